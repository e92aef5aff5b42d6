"""A grader of chapter 11: how words are drawn."""

from collections.abc import Callable

import torch
from torch import Tensor

from tutorial_transformer import decoding as right
from tutorial_transformer.check._grade import Case, grade
from tutorial_transformer.check._report import Report
from tutorial_transformer.check._scripted import VOCAB, Scripted, paths
from tutorial_transformer.check._watch import ids

MANY = 4000


def sample(function: Callable) -> Report:
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
    words = {(4,): {5: 0.5, 6: 0.3, 7: 0.15, 8: 0.05}}
    model = Scripted(words | paths((5, [9, 10, 2], 1.0), (6, [8, 2], 1.0))).eval()
    many, shown = torch.tensor([[4, 2]]).repeat(MANY, 1), "shares of words in 4000 draws: 0.5, "
    shown += "0.3, 0.15, 0.05 at temperature "
    drawn = [
        (f"at temperature {t:g} words are drawn with the right shares", f"{shown}{t:g}", many, 1, t)
        for t in (1.0, 0.5, 2.0)
    ]
    cases = [Case(name, example, (model, *told)) for name, example, *told in drawn]
    rows = torch.tensor([[6, 2], [5, 2]])
    cases.append(
        Case("rows stop on their own at <eos>", "two certain texts", (model, rows, 5, 1.0))
    )
    cases.append(
        Case(
            "temperature 0 takes the most probable word, or is refused",
            "temperature 0",
            (model, many[:3], 1, 0.0),
            "temperature 0 must take the most probable word, or raise ValueError",
        )
    )
    wrong = {name: _exact(shares) for name, shares in WRONG_SHARES.items()}
    reference = _exact(lambda log_p, temperature: (log_p / temperature).softmax(-1))
    return grade(report, _drawn(function), cases, reference, wrong, tolerance=0.04)


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
    "all words are equally probable: the draw must follow softmax(logits / temperature)": (
        lambda log_p, t: (log_p > -30).double() / (log_p > -30).sum()
    ),
    "all rows say the same word: draw one for each row, and do not take the largest": (
        lambda log_p, t: log_p.new_tensor([1.0])
    ),
}


def _exact(shares: Callable) -> Callable:
    """What an endless number of draws would give; texts that are certain as they are."""

    def run(model, src: Tensor, max_len: int, temperature: float) -> Tensor:
        if len(src) < MANY:
            return right.greedy_decode(model, src, max_len)
        bos = torch.ones(1, 1, dtype=torch.int64)
        log_p = model.decode(bos, *model.encode(src[:1]))[0, -1].double().log_softmax(-1)
        return _five(shares(log_p, temperature))

    return run


def _drawn(function: Callable) -> Callable:
    """Count what many equal rows say; of a few rows return the texts."""

    def run(model, src: Tensor, max_len: int, temperature: float) -> Tensor:
        torch.manual_seed(0)
        try:
            texts = ids(function(model, src, max_len, temperature), len(src), 0)
        except ValueError:
            if temperature > 0:
                raise
            return right.greedy_decode(model, src, max_len)
        if len(src) < MANY:
            return texts
        return _five(texts[:, 0].bincount(minlength=VOCAB).double() / len(src))

    return run


def _five(shares: Tensor) -> Tensor:
    """The shares of the four words and of all others; or 1, if one word has all."""
    if shares.max() == 1:
        return shares.new_tensor([1.0])
    return torch.cat([shares[5:9], 1 - shares[5:9].sum(0, keepdim=True)])
