"""What a wrong loss says of each token, read from its gradient."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from tutorial_transformer.check._trial import NotAttemptedError, UnusableError, call


def name_weights(learner: Callable, logits: Tensor, tgt_out: Tensor) -> str:
    """Say how much each token counts; "" if all is right, or no cross entropy.

    learner gives (loss, d loss / d logits). A cross entropy has the gradient
    weight · (softmax(logits) - target) at every token.
    """
    try:
        loss, slope = call(learner, logits, tgt_out)
    except (UnusableError, NotAttemptedError):
        return ""
    if not isinstance(slope, Tensor):
        return ""
    way = logits.softmax(-1) - F.one_hot(tgt_out, logits.shape[-1])
    weights = (slope * way).sum(-1) / way.square().sum(-1)
    cost = -logits.log_softmax(-1).gather(-1, tgt_out[..., None])[..., 0]
    if not torch.allclose(slope, weights[..., None] * way, atol=1e-5):
        return ""
    if not torch.isclose(loss.to(cost.dtype), (weights * cost).sum(), rtol=1e-4):
        return ""
    real = tgt_out != 0
    if torch.allclose(weights, real / real.sum(), atol=1e-5):
        return ""  # the mistake shows elsewhere
    return _sentence(weights, real)


def _sentence(weights: Tensor, real: Tensor) -> str:
    """The weights in words; right ones would all be 1 / number of real tokens."""
    count, live = int(real.sum()), weights[real]
    if (weights[~real].abs() > 1e-6).any():
        return f"padded targets are counted: the weights of the tokens are {_rows(weights)}"
    if torch.allclose(live, live[:1].expand_as(live), rtol=1e-3):
        return (
            f"the sum of all costs is divided by {1 / float(live[0]):.3g}, wanted {count}, the "
            "number of real tokens"
        )
    says = "some real tokens count nothing" if live.abs().min() < 1e-6 else "tokens count unequally"
    for kind, lines, which in (("row", weights, real), ("position", weights.T, real.T)):
        pairs = zip(lines, which, strict=True)
        if all(torch.allclose(line[there], line[there].mean(), 1e-3) for line, there in pairs):
            says += f", as their {kind} says"
    return f"{says}: their weights are {_rows(weights)}, wanted 1/{count} for each real token"


def _rows(weights: Tensor) -> str:
    rows = (", ".join(f"{one:.2g}" for one in row) for row in weights.tolist())
    return "; ".join(f"({row})" for row in rows)
