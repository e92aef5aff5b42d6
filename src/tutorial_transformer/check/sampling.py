"""A grader of chapter 11: how words are drawn."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from tutorial_transformer import decoding as right
from tutorial_transformer.check._calling import by_position
from tutorial_transformer.check._decoders import WRONG_GREEDY
from tutorial_transformer.check._grade import Case, grade
from tutorial_transformer.check._report import Report
from tutorial_transformer.check._scripted import Scripted, paths
from tutorial_transformer.check._shares import WORDS, grade_shares
from tutorial_transformer.check._watch import ids, watched
from tutorial_transformer.check.decoding import DROPS, real_cases

BANNED = next(says for says in WRONG_GREEDY if says.startswith("pad or <bos>"))
DRAWN = (
    "a word that is certain is not said: draw it from softmax(logits / temperature), the "
    "temperature before softmax, and let the model read <bos> and all that is written"
)
ENDED = "text stands behind <eos>, or <eos> is lost: rows stop on their own, and pads follow"
SCRIPT = {(4,): WORDS, (8,): {0: 0.5, 1: 0.3, 9: 0.2}, (8, 9): {2: 1.0}}  # 8 tempts to say pad
SCRIPT |= paths((5, [9, 10, 2], 1.0), (6, [8, 2], 1.0), (7, [5, 6, 7, 8, 9, 10], 1.0))


def sample(function: object) -> Report:
    """Grade sample(model, src, max_len, temperature) -> ids (batch, at most max_len), drawn.

    Each next word is drawn from softmax(logits / temperature), for each row anew; the rest is as
    in greedy_decode. At temperature 0 it says what greedy_decode says, or raises ValueError.
    """
    report = Report(
        "sample",
        "sample(model, src, max_len, temperature) -> ids as greedy_decode gives them, each word "
        "drawn from softmax(logits / temperature); temperature 0: the most probable, or ValueError",
        "chapter 11, 3. Draw a word, but not from the tail",
    )
    learner = by_position(function, "model", "src", "max_len", "temperature")
    model = Scripted(SCRIPT).eval()
    wrong = {name: _tidy(decode) for name, decode in WRONG_GREEDY.items()}
    told, reference = _tidy(learner, warm=True), _tidy(right.greedy_decode)
    cases = _certain_cases(model)
    cold = (model, torch.tensor([[4, 2]] * 3), 1, 0.0)
    says = "temperature 0 must take the most probable word, or raise ValueError"
    zero = Case("temperature 0 takes the most probable word, or is refused", "temperature 0", cold)
    steps = (
        lambda: grade(report, told, cases[:-2], reference, wrong),
        lambda: grade_shares(report, learner, model),
        lambda: grade(
            report,
            told,
            [*cases[-2:], *real_cases(5, 0.02, says="max_len 5, temperature 0.02")],
            reference,
            wrong,
        ),
        lambda: grade(report, told, [replace(zero, says=says)], reference, {}),
    )
    for step in steps:
        if report.attempted and report.passed:
            step()
    return report


def _certain_cases(model: Scripted) -> list[Case]:
    """Texts that leave no choice, so that a draw must say what greedy search says."""
    named = [
        ("a certain word is said", [6], 1, DRAWN),
        ("pad and <bos> are never said", [8] * 9, 1, BANNED),
        ("a row ends with <eos>", [5], 5, ENDED),
        ("rows read their own source and stop on their own at <eos>", [6, 5, 7], 5, ENDED),
        ("max_len ends a row that does not say <eos>", [7], 3, ""),
    ]
    cases = [
        Case(name, f"certain texts, sources {sources}, max_len {length}, temperature 1", args, says)
        for name, sources, length, says in named
        for args in [(model, torch.tensor([[one, 2] for one in sources]), length, 1.0)]
    ]
    train = Scripted(SCRIPT).train(), torch.tensor([[6, 2]]), 3, 1.0
    mode, kept = "a certain text, the model in training mode", "the model's mode is put back"
    first, pads, ends, *others = (replace(case, view=lambda pair: pair[0]) for case in cases)
    return [
        *(first, pads, ends),
        Case("dropout is off while it writes", mode, train, DROPS, lambda pair: pair[0]),
        Case(kept, mode, train, view=lambda pair: pair[1]),
        replace(cases[0], name=kept, says="", view=lambda pair: pair[1]),
        *others,
    ]


def _tidy(function: Callable, warm: bool = False) -> Callable:
    """Watch a decoder; to refuse temperature 0 is as good as to take the most probable word."""

    def run(model, src: Tensor, max_len: int, temperature: float) -> tuple:
        given = (max_len, temperature) if warm else (max_len,)
        torch.manual_seed(0)  # the same report each time
        try:
            return watched(function, ids)(model, src, *given)
        except (ValueError, AssertionError):
            if temperature > 0:
                raise
            return right.greedy_decode(model, src, max_len), "as before"

    return run
