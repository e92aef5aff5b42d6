"""Draw many words from one distribution, and name the distribution that they come from."""

import contextlib
import math
import random
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from tutorial_transformer.check._grade import Case, grade
from tutorial_transformer.check._report import Report
from tutorial_transformer.check._scripted import VOCAB, Scripted
from tutorial_transformer.check._trial import NotAttemptedError, UnusableError, call
from tutorial_transformer.check._watch import ids

MANY, FEW = 2000, 250  # rows that are drawn at once, or one after the other
WORDS = {5: 0.5, 6: 0.3, 7: 0.15, 8: 0.05}
SHARES = "the words are drawn with other shares than those of softmax(logits / temperature)"
WRONG_SHARES = {
    "temperature has no effect": lambda log_p, t: log_p.exp(),
    "the logits are multiplied by the temperature; divide by it": (
        lambda log_p, t: (log_p * t).softmax(-1)
    ),
    "the probabilities are divided by the temperature, wanted the logits, before softmax": (
        lambda log_p, t: (log_p.exp() / t).softmax(-1)
    ),
    "all likely words are equally probable: the draw must follow softmax(logits / temperature)": (
        lambda log_p, t: (log_p > -9).double() / (log_p > -9).sum()
    ),
    "all rows say the same word: draw one for each row, and do not take the largest": (
        lambda log_p, t: log_p.new_tensor([1.0])
    ),
}


def grade_shares(report: Report, learner: Callable, model: Scripted) -> None:
    """Compare the shares of words in many draws, at several temperatures."""
    fast = _is_fast(learner, model)
    rows, temperatures = (MANY, (1.0, 0.5, 2.0)) if fast else (FEW, (1.0, 0.5))
    cases = [
        Case(
            f"at temperature {t:g} words are drawn with the right shares",
            f"shares of words in {rows} draws: 0.5, 0.3, 0.15, 0.05 at temperature 1, now {t:g}",
            (model, torch.tensor([[4, 2]]).repeat(rows, 1), 1, t),
            SHARES,
        )
        for t in temperatures
    ]
    wrong = {name: _exact(shares) for name, shares in WRONG_SHARES.items()}
    right, drawn = _exact(lambda log_p, t: (log_p / t).softmax(-1)), _drawn(learner)
    tolerance = 2.6 / rows**0.5  # five standard deviations of the most uncertain share
    grade(report, drawn, cases, right, wrong, tolerance=tolerance)
    if report.diagnosis.startswith(SHARES):
        with contextlib.suppress(UnusableError, NotAttemptedError):
            report.diagnosis = _heat(drawn, cases)


def _exact(shares: Callable) -> Callable:
    """What an endless number of draws would give."""

    def run(model, src: Tensor, max_len: int, temperature: float) -> tuple[float, ...]:
        bos = torch.ones(1, 1, dtype=torch.int64)
        log_p = model.decode(bos, *model.encode(src[:1]))[0, -1].double().log_softmax(-1)
        return _five(shares(log_p, temperature))

    return run


def _drawn(function: Callable) -> Callable:
    """Count what many equal rows say."""

    def run(model, src: Tensor, max_len: int, temperature: float) -> tuple[float, ...]:
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        texts = ids(function(model, src, max_len, temperature), len(src), 0)
        return _five(texts[:, 0].long().bincount(minlength=VOCAB).double() / len(src))

    return run


def _five(shares: Tensor) -> tuple[float, ...]:
    """The shares of the four words and of all others; or 1, if one word has all."""
    if shares.max() == 1:
        return (1.0,)
    return (*shares[5:9].tolist(), 1 - float(shares[5:9].sum()))


def _heat(drawn: Callable, cases: list[Case]) -> str:
    """Say as at which temperature it draws, or which words it never draws."""
    told = []
    for case in cases:
        shares, asked = call(drawn, *case.args), case.args[-1]
        if 0 in shares[: 4 if asked > 0.5 else 3]:
            return f"at temperature {asked:g} some words are never drawn: each must have its share"
        if len(shares) < 5 or shares[0] == shares[2]:
            return SHARES
        heat = math.log(0.5 / 0.15) / math.log(shares[0] / shares[2])
        told.append(f"at temperature {asked:g} it draws as if at {heat:.2g}")
    return f"{', '.join(told)}: divide the logits by the temperature, once"


def _is_fast(learner: Callable, model: Scripted) -> bool:
    """Whether it draws for many rows at once, and not for one after the other."""
    start = time.process_time()
    with contextlib.suppress(UnusableError, NotAttemptedError):
        call(learner, model, torch.tensor([[4, 2]]).repeat(40, 1), 1, 1.0)
    return time.process_time() - start < 0.01
