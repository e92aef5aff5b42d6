"""Graders of chapter 11: which words may be drawn."""

import contextlib
from collections.abc import Callable

import torch
from torch import Tensor

from tutorial_transformer import decoding as right
from tutorial_transformer.check._calling import by_position, parameters_of, settled
from tutorial_transformer.check._filters import WRONG_TOP_K, WRONG_TOP_P
from tutorial_transformer.check._grade import Case, grade
from tutorial_transformer.check._report import Report
from tutorial_transformer.check._trial import NotAttemptedError, UnusableError, call

SECTION = "chapter 11, 3. Draw a word, but not from the tail"


def top_k(function: object) -> Report:
    """Grade top_k(logits, k) -> logits (batch, vocab) in which all but the k largest are -inf.

    filter_logits(logits, top_k=...) is taken too, and any fill whose probability is exactly 0.
    A k of the vocabulary's size or more keeps all.
    """
    report = Report(
        "top_k",
        "top_k(logits, k) -> logits of the same shape, (batch, vocab), all but the k largest of "
        "each row -inf; a k beyond the vocabulary keeps all",
        SECTION,
    )
    row, rows = torch.tensor([[0.5, 2.0, -1.0, 1.0]]), _logits(3, 7)
    cases = [
        Case("k = 1 keeps the largest", "logits [[0.5, 2, -1, 1]], k 1", (row, 1)),
        Case("the k largest stay, wherever they are", "logits [[0.5, 2, -1, 1]], k 2", (row, 2)),
        Case("each row is cut as if alone", "3 rows of 7 random logits, k 2", (rows, 2)),
        Case("k = vocabulary size keeps all", "logits [[0.5, 2, -1, 1]], k 4", (row, 4)),
        Case("k beyond the vocabulary keeps all", "logits [[0.5, 2, -1, 1]], k 6", (row, 6)),
    ]
    wrong = {name: _filter(cut, "top_k") for name, cut in WRONG_TOP_K.items()}
    reference = _filter(right.filter_logits, "top_k")
    learner = _filter(function, "top_k")
    grade(report, learner, cases, reference, wrong, tolerance=1e-4)
    return _describe(report, learner, cases, reference)


def top_p(function: object) -> Report:
    """Grade top_p(logits, p) -> logits (batch, vocab) in which all outside the nucleus are -inf.

    The nucleus is the smallest set of most probable words whose probabilities reach p: the word
    that crosses p is in it, and there is always one. filter_logits(logits, top_p=...) is taken
    too, and any fill whose probability is exactly 0.
    """
    report = Report(
        "top_p",
        "top_p(logits, p) -> logits of the same shape, (batch, vocab), -inf outside the smallest "
        "set whose probabilities reach p (0 <= p <= 1); the word that crosses p stays, one always",
        SECTION,
    )
    given = [
        ("the word that crosses p stays", [0.5, 0.41, 0.09], 0.9),
        ("the word that crosses p stays", [0.4, 0.3, 0.2, 0.1], 0.8),
        ("one word always stays", [0.5, 0.41, 0.09], 0.2),
        ("the words need not be in order", [0.09, 0.5, 0.41], 0.6),
        ("the words need not be in order", [0.1, 0.3, 0.2, 0.4], 0.65),
        ("where the sum reaches p exactly, no further word stays", [0.5, 0.25, 0.125, 0.125], 0.75),
        ("p = 1 keeps all", [0.1, 0.3, 0.2, 0.4], 1.0),
        ("p = 0 keeps the most probable word", [0.1, 0.3, 0.2, 0.4], 0.0),
    ]
    cases = [
        Case(
            name, f"logits = log of {probs}, p {p:g}", (torch.tensor([probs]).float().log() + 1, p)
        )
        for name, probs, p in given
    ]
    rows = Case(
        "each row is cut as if alone", "3 rows of 7 random logits, p 0.7", (_logits(3, 7), 0.7)
    )
    wrong = {name: _filter(cut, "top_p") for name, cut in WRONG_TOP_P.items()}
    learner, reference = _filter(function, "top_p"), _filter(right.filter_logits, "top_p")
    cases = [*cases[:5], rows, *cases[5:]]
    grade(report, learner, cases, reference, wrong, tolerance=1e-4)
    return _describe(report, learner, cases, reference)


def _describe(report: Report, learner: Callable, cases: list[Case], right: Callable) -> Report:
    """Say which words are kept on the first failing case, if no better name is known."""
    if report.diagnosis.startswith("this does not hold"):
        failing = next(item for item in report.properties if not item.passed)
        case = next(case for case in cases if case.example == failing.example)
        with contextlib.suppress(UnusableError, NotAttemptedError):
            got, wanted = call(learner, *case.args), right(*case.args)
            change = _change(case.args[0].softmax(-1).double(), *got, *wanted)
            report.diagnosis = f"{change} ({case.example})"
    return report


def _change(old: Tensor, probs: Tensor, kept: Tensor, right: Tensor, wanted: Tensor) -> str:
    """What became of the words: which stay, and with what probability."""
    if torch.allclose(probs.sort(-1).values, right.sort(-1).values, atol=1e-4):
        return "the right logits stand in wrong places: scatter back what was sorted"
    rest = old * kept
    if not torch.allclose(probs, rest / rest.sum(-1, keepdim=True), atol=1e-4):
        if (kept & ~wanted).any():
            most = float(probs[kept & ~wanted].max())
            return f"removed words keep a probability of {most:.2g}: set their logits to -inf"
        return "the logits of words that stay are changed, or they change places"
    words = [_words(old, which) for which in (old > 0, kept, wanted)]
    return "of the probabilities {} it keeps {}, wanted {}".format(*words)


def _words(probs: Tensor, kept: Tensor) -> str:
    rows = (row[which].tolist() for row, which in zip(probs, kept, strict=True))
    return "; ".join(", ".join(f"{one:.2g}" for one in row) or "none" for row in rows)


def _logits(rows: int, vocab: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return 2 * torch.randn(rows, vocab, generator=generator, dtype=torch.float32)


def _filter(function: object, name: str) -> Callable:
    """Return (probabilities, which are not 0) after a filter; added constants do not count."""
    by_name = name in parameters_of(function)
    code = function if by_name else by_position(function, "logits", name[-1])

    def run(logits: Tensor, limit: float | int) -> tuple[Tensor, Tensor]:
        answer = settled(code(logits, **{name: limit}) if by_name else code(logits, limit))
        if not isinstance(answer, Tensor) or answer.shape != logits.shape:
            got = tuple(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
            raise UnusableError(
                f"it must return logits of the same shape, {tuple(logits.shape)}, got {got}"
            )
        if answer.dtype == torch.bool:
            raise UnusableError("it returns which words stay; wanted the logits, the others -inf")
        answer = answer.detach().to(torch.float64)
        if not (answer < torch.inf).all():
            bad = "NaN, as 0 · (-inf) is" if answer.isnan().any() else "+inf"
            raise UnusableError(f"it gives {bad}; removed logits must be -inf, by masked_fill")
        sums = answer.clamp(min=0).sum(-1)
        if (answer >= 0).all() and torch.allclose(sums, torch.ones_like(sums), atol=1e-4):
            raise UnusableError("it returns probabilities; wanted logits, the removed ones -inf")
        return answer.softmax(-1), answer.softmax(-1) > 0

    return run
