"""A grader of chapter 10: the distribution that a smoothed loss compares with."""

import contextlib

import torch
import torch.nn.functional as F
from torch import Tensor

from tutorial_transformer.check import _targets
from tutorial_transformer.check._calling import by_position
from tutorial_transformer.check._grade import Case, grade
from tutorial_transformer.check._report import Report
from tutorial_transformer.check._trial import NotAttemptedError, UnusableError, call


def smoothed_targets(function: object) -> Report:
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
        "label_smoothing has no effect": _targets.unsmoothed,
        "mass is kept from pad and from the right class, the pad-excluded variant ε/(V-2); here "
        "all V classes share it, as in F.cross_entropy": _targets.without_pad,
        "the mass goes to the other classes only, ε/(V-1); here all V classes share it, the right "
        "one too": _targets.without_right,
        "the rows do not sum to 1: what the right class loses, nobody gets": _targets.without_rest,
        "the rows do not sum to 1: the right class has 1 - ε; it also gets its own share, ε/V": (
            lambda ids, vocab, eps: _targets.smoothed(ids, vocab, eps).clamp(max=1 - eps)
        ),
        "pad gets no mass, the others share it, ε/(V-1); here all V classes share it": (
            lambda ids, vocab, eps: (
                _targets.smoothed(ids, vocab, eps) - eps / vocab + eps / (vocab - 1)
            ).index_fill(-1, torch.tensor([0]), 0.0)
        ),
        "the others have ε/(V-1) beside 1 - ε + ε/V, so that the rows do not sum to 1": (
            lambda ids, vocab, eps: (
                _targets.without_right(ids, vocab, eps) + F.one_hot(ids, vocab) * eps / vocab
            )
        ),
        "softmax is taken of what are probabilities already": (
            lambda ids, vocab, eps: _targets.smoothed(ids, vocab, eps).softmax(-1)
        ),
        "these are logarithms; wanted the probabilities themselves": (
            lambda ids, vocab, eps: _targets.smoothed(ids, vocab, eps).log()
        ),
        "the probabilities became whole numbers": (
            lambda ids, vocab, eps: _targets.smoothed(ids, vocab, eps).floor()
        ),
        "the rows sum to more than 1: the right class must give ε away": _targets.overfull,
        "the rows sum to more than 1: all V classes share ε, so divide it by V, not by V-1": (
            _targets.crowded
        ),
        "1 - ε and ε have changed places": (
            lambda ids, vocab, eps: _targets.smoothed(ids, vocab, 1 - eps)
        ),
        "every class gets ε itself; ε must be shared, ε/V each": (
            lambda ids, vocab, eps: (1 - eps) * F.one_hot(ids, vocab) + eps
        ),
    }
    learner = by_position(function, "tgt_out", "vocab_size", "label_smoothing")
    grade(report, learner, cases, _targets.smoothed, suspects, _tensor)
    if report.diagnosis.startswith("this does not hold"):
        with contextlib.suppress(UnusableError, NotAttemptedError):
            answer = _tensor(call(learner, one, 5, 0.4)).detach()
            report.diagnosis = _shares(answer[0, 0]) if answer.ndim == 3 else report.diagnosis
    return report


def _shares(row: Tensor) -> str:
    """Say what the classes have of a smoothed target, class 2 of 5 with ε 0.4."""
    numbers = ", ".join(f"{one:.3g}" for one in row.tolist())
    wrong = "" if row.argmax() == 2 else f", and most of it lies on class {int(row.argmax())}"
    return (
        f"with target 2, V 5, ε 0.4 the classes have {numbers}, together {row.sum():.3g}{wrong}; "
        "wanted 0.68 for the right class, 0.08 for each other, together 1"
    )


def _tensor(answer: object) -> Tensor:
    if isinstance(answer, list):
        with contextlib.suppress(TypeError, ValueError):
            answer = torch.tensor(answer)
    if not isinstance(answer, Tensor):
        raise UnusableError(f"it must return a tensor, got {type(answer).__name__}")
    return answer.to(torch.get_default_dtype())
