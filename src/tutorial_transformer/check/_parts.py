"""The gradient of a batch that comes in parts, as a sum of the parts' gradients."""

import functools
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from tutorial_transformer.check._scripted import real_model
from tutorial_transformer.data import Batch
from tutorial_transformer.training import sequence_loss
from tutorial_transformer.transformer import Transformer

LOST = "it leaves no gradient in the model: is backward() called, and zero_grad only before it?"


def shares(counts: list[int]) -> list[float]:
    """Divide all by their sum."""
    return [count / sum(counts) for count in counts]


def mixed(weights: Callable) -> Callable:
    """Give each part's mean loss a weight, which depends on their tokens, rows and ids."""

    def run(parts: list[Batch]) -> tuple[Tensor, Tensor, str]:
        tokens = [int((part.tgt_out != 0).sum()) for part in parts]
        rows, ids = [len(part.src) for part in parts], [part.tgt_out.numel() for part in parts]
        each = zip(weights(tokens, rows, ids), map(slope, parts), strict=True)
        last, every = (
            sum(terms) for terms in zip(*([w * g for g in s] for w, s in each), strict=True)
        )
        return last, every, "no weight moved"

    return run


@functools.cache
def slope(part: Batch) -> tuple[Tensor, Tensor]:
    """The gradients of the mean loss of one part: that of the last bias, and all."""

    def backward(model: Transformer, parts: list[Batch]) -> None:
        sequence_loss(model(parts[0].src, parts[0].tgt_in), parts[0].tgt_out).backward()

    return gradients(backward)([part])[:2]


def gradients(function: Callable) -> Callable:
    """Return (the last bias's gradient, everybody's, whether a weight moved) of a fresh model."""

    def run(parts):
        model = real_model(seed=0)
        before = parameters_to_vector(model.parameters()).detach().clone()
        with torch.enable_grad():
            function(model, [Batch(*(ids.clone() for ids in part)) for part in parts])
        after = parameters_to_vector(model.parameters()).detach()
        moved = "no weight moved" if torch.equal(before, after) else "a weight moved"
        last = model.output_proj.bias.grad
        if last is None or not last.any():
            return LOST, LOST, moved
        every = [
            torch.zeros_like(one) if one.grad is None else one.grad for one in model.parameters()
        ]
        return last, parameters_to_vector(every), moved

    return run


WRONG_WEIGHTS = {
    "each part counts the same, whatever its number of real tokens: weigh the parts by their "
    "tokens": lambda tokens, rows, ids: [1 / len(rows)] * len(rows),
    "the parts' mean losses are summed and not divided": (
        lambda tokens, rows, ids: [1.0] * len(rows)
    ),
    "the parts' sums are added and not divided by the number of real tokens": (
        lambda tokens, rows, ids: tokens
    ),
    "the sum of all losses is divided by the number of parts, wanted by that of real tokens": (
        lambda tokens, rows, ids: [n / len(tokens) for n in tokens]
    ),
    "the parts are weighed by their rows, not by their real tokens": (
        lambda tokens, rows, ids: shares(rows)
    ),
    "the parts are weighed by their ids, pads too; weigh them by their real tokens": (
        lambda tokens, rows, ids: shares(ids)
    ),
    "only the last part is left: is zero_grad called between the parts?": (
        lambda tokens, rows, ids: [0.0] * (len(rows) - 1) + [1.0]
    ),
    "only a share of the last part is left: is zero_grad called between the parts?": (
        lambda tokens, rows, ids: [0.0] * (len(rows) - 1) + shares(tokens)[-1:]
    ),
    "only an equal share of the last part is left: is zero_grad called between the parts?": (
        lambda tokens, rows, ids: [0.0] * (len(rows) - 1) + [1 / len(rows)]
    ),
}
