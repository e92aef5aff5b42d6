"""A grader of chapter 10: the distribution that a smoothed loss compares with."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from tutorial_transformer.check import _losses
from tutorial_transformer.check._grade import Case, grade
from tutorial_transformer.check._report import Report
from tutorial_transformer.check._trial import UnusableError


def smoothed_targets(function: Callable) -> Report:
    """Grade smoothed_targets(tgt_out, vocab_size, label_smoothing) -> (batch, tgt_len, vocab_size).

    The distributions that F.cross_entropy compares with: all classes share the mass. What stands
    in the rows of padded targets is not asked.
    """
    report = Report(
        "smoothed_targets",
        "smoothed_targets(tgt_out, vocab_size, label_smoothing) -> probabilities (batch, tgt_len, "
        "vocab_size); all classes share label_smoothing, the right one too",
        "chapter 10, 3. Compute the loss: nats per real token",
    )
    one, more = torch.tensor([[2]]), torch.tensor([[4, 1, 5], [3, 3, 2]])
    cases = [
        Case("without smoothing it is one-hot", "target 2, V 5, ε 0", (one, 5, 0.0)),
        Case(
            "the right class has 1 - ε + ε/V, the others ε/V", "target 2, V 5, ε 0.4", (one, 5, 0.4)
        ),
        Case("it works in batches", f"targets {more.tolist()}, V 7, ε 0.1", (more, 7, 0.1)),
    ]
    suspects = {
        "label_smoothing has no effect": _losses.unsmoothed,
        "mass is kept from pad and from the right class, the pad-excluded variant ε/(V-2); here "
        "all V classes share it, as in F.cross_entropy": _losses.without_pad,
        "the mass goes to the other classes only, ε/(V-1); here all V classes share it, the right "
        "one too": _losses.without_right,
        "the rows do not sum to 1: what the right class loses, nobody gets": _losses.without_rest,
        "the rows sum to more than 1: the right class must give ε away": _losses.overfull,
        "1 - ε and ε have changed places": (
            lambda ids, vocab, eps: _losses.smoothed(ids, vocab, 1 - eps)
        ),
        "every class gets ε itself; ε must be shared, ε/V each": (
            lambda ids, vocab, eps: (1 - eps) * F.one_hot(ids, vocab) + eps
        ),
    }
    return grade(report, function, cases, _losses.smoothed, suspects, _tensor)


def _tensor(answer: object) -> Tensor:
    if not isinstance(answer, Tensor):
        raise UnusableError(f"it must return a tensor, got {type(answer).__name__}")
    return answer.to(torch.get_default_dtype())
