"""A grader of chapter 10: the gradient of a batch that comes in parts."""

from collections.abc import Callable

import torch
from torch.nn.utils import parameters_to_vector

from tutorial_transformer.check._grade import Case, grade
from tutorial_transformer.check._report import Report
from tutorial_transformer.check._scripted import real_model
from tutorial_transformer.check._trial import UnusableError
from tutorial_transformer.data import Batch
from tutorial_transformer.training import sequence_loss


def accumulate_gradients(function: Callable) -> Report:
    """Grade accumulate_gradients(model, micro_batches) -> None; the gradient stays in the model.

    micro_batches is a list of Batch(src, tgt_in, tgt_out) with different numbers of real tokens.
    Afterwards each parameter's .grad must be that of the mean loss per real token of all of them
    together, as if they had been one batch; no weight has moved.
    """
    report = Report(
        "accumulate_gradients",
        "accumulate_gradients(model, micro_batches) -> None; leaves in each parameter's .grad the "
        "gradient of the mean loss per real token over all micro-batches, and moves no weight",
        "chapter 10, 6. Split a batch that does not fit",
    )
    three = _micro_batches((2, 5), (3, 4), (1, 2))
    named = [
        ("one micro-batch is the whole batch", "2 rows", three[:1]),
        ("equal parts add up to the whole", "twice the same rows", [three[0], three[0]]),
        ("unequal parts add up to the whole", "micro-batches of 2 × 5, 3 × 4, 1 × 2 ids", three),
    ]
    cases = [Case(name, text, (parts,), view=lambda x: x[0]) for name, text, parts in named]
    cases.append(
        Case(
            "no weight moves",
            "2 rows",
            (three[:1],),
            "a weight has moved: this is not yet the time for an optimiser's step",
            lambda x: x[1],
        )
    )
    suspects = {
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
            lambda tokens, rows, ids: _shares(rows)
        ),
        "the parts are weighed by their ids, pads too; weigh them by their real tokens": (
            lambda tokens, rows, ids: _shares(ids)
        ),
        "only the last part is left: is zero_grad called between the parts?": (
            lambda tokens, rows, ids: [0.0] * (len(rows) - 1) + [1.0]
        ),
        "only a share of the last part is left: is zero_grad called between the parts?": (
            lambda tokens, rows, ids: [0.0] * (len(rows) - 1) + _shares(tokens)[-1:]
        ),
        "only an equal share of the last part is left: is zero_grad called between the parts?": (
            lambda tokens, rows, ids: [0.0] * (len(rows) - 1) + [1 / len(rows)]
        ),
    }
    wrong = {name: _gradients(_accumulate(weights)) for name, weights in suspects.items()}
    reference = _gradients(_accumulate(lambda tokens, rows, ids: _shares(tokens)))
    return grade(report, _gradients(function), cases, reference, wrong)


def _shares(counts: list[int]) -> list[float]:
    return [count / sum(counts) for count in counts]


def _accumulate(weights: Callable) -> Callable:
    """Give each part's mean loss a weight, which depends on their tokens, rows and ids."""

    def accumulate(model, parts):
        tokens = [int((part.tgt_out != 0).sum()) for part in parts]
        rows, ids = [len(part.src) for part in parts], [part.tgt_out.numel() for part in parts]
        for part, weight in zip(parts, weights(tokens, rows, ids), strict=True):
            (weight * sequence_loss(model(part.src, part.tgt_in), part.tgt_out)).backward()

    return accumulate


def _gradients(function: Callable) -> Callable:
    """Return (the gradient of the last bias, whether a weight moved) of a fresh model."""

    def run(parts):
        model = real_model(seed=0)
        before = parameters_to_vector(model.parameters()).detach().clone()
        with torch.enable_grad():
            function(model, list(parts))
        after = parameters_to_vector(model.parameters()).detach()
        moved = "no weight moved" if torch.equal(before, after) else "a weight moved"
        if model.output_proj.bias.grad is None:
            raise UnusableError("it leaves no gradient in the model: is backward() called?")
        return model.output_proj.bias.grad, moved

    return run


def _micro_batches(*sizes: tuple[int, int]) -> list[Batch]:
    """Random batches of (rows, tgt_len); the first row of each is padded by one."""
    generator, batches = torch.Generator().manual_seed(0), []
    for rows, length in sizes:
        src = torch.randint(3, 9, (rows, 4), generator=generator)
        tgt = torch.randint(3, 8, (rows, length + 1), generator=generator)
        tgt[:, 0], tgt[0, -1] = 1, 0
        batches.append(Batch(src, tgt[:, :-1], tgt[:, 1:]))
    return batches
