"""The mistakes that people make when scores become weights, and attention itself, rightly."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from tutorial_transformer.check._mistakes import (
    BOOLEAN,
    EMPTY,
    FUTURE,
    LADDER,
    POLARITY,
    ROWS,
    SCALE,
    Mistake,
)


def weigh(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    """Turn scores into weights, rightly: what is hidden weighs 0, also where all is hidden."""
    if mask is None:
        return scores.softmax(-1)
    return _hide(scores, mask).softmax(-1).nan_to_num(0)


def attend(query, key, value, mask=None, scale=None, weigh=weigh) -> Tensor:
    """Attend, rightly but for the scale and the weights that are given."""
    divisor = math.sqrt(query.shape[-1]) if scale is None else scale(query, key)
    return weigh(query @ key.transpose(-2, -1) / divisor, mask) @ value


def _hide(scores: Tensor, mask: Tensor, fill: float = -math.inf) -> Tensor:
    return scores.masked_fill(~mask, fill)


def _late(scores: Tensor, mask: Tensor, eps: float = 0.0) -> Tensor:
    weights = scores.softmax(-1) * mask
    return weights / (weights.sum(-1, keepdim=True) + eps)


def _overflowing(scores: Tensor, mask: Tensor | None) -> Tensor:
    weights = scores.exp() if mask is None else _hide(scores, mask).exp()
    return weights / weights.sum(-1, keepdim=True)


def _finite(fill: float) -> Callable:
    """Hide behind this number, and give empty rows zeros afterwards."""
    return lambda s, m: _hide(s, m, fill).softmax(-1) * m.any(-1, keepdim=True)


LOWEST = "-inf or torch.finfo(scores.dtype).min"
INVERTED = "the mask is inverted: here True means may attend, your code hides it"
_MASK = {
    INVERTED: Mistake(POLARITY, lambda s, m: weigh(s, ~m)),
    f"{INVERTED}; and a query that may then see nothing gets NaN": (
        Mistake(POLARITY, lambda s, m: _hide(s, ~m).softmax(-1))
    ),
    f"{INVERTED}; and a query that may then see nothing gets the average": (
        Mistake(POLARITY, lambda s, m: _hide(s, ~m, -1e9).softmax(-1))
    ),
    "the mask has no effect (is the result of masked_fill kept?)": (
        Mistake(LADDER, lambda s, m: s.softmax(-1))
    ),
    "the mask comes after the softmax: hidden keys still take their share, and rows no longer "
    "sum to 1": Mistake(FUTURE, lambda s, m: s.softmax(-1) * m),
    f"the mask was added to the scores as 0 and 1; fill hidden scores with {LOWEST}": (
        Mistake(BOOLEAN, lambda s, m: (s + m.to(s.dtype)).softmax(-1))
    ),
    "the mask became numbers by 0 · (-inf), which is NaN; use masked_fill": (
        Mistake(BOOLEAN, lambda s, m: s * math.nan)
    ),
    "the mask became numbers by 0 · (-inf), which is NaN, and NaN became 0; use masked_fill": (
        Mistake(BOOLEAN, lambda s, m: s * 0)
    ),
    f"hidden scores become 0, and e⁰ = 1 is a share like any other; fill them with {LOWEST}": (
        Mistake(FUTURE, lambda s, m: _hide(s, m, 0.0).softmax(-1))
    ),
    "a hidden score of 0 still takes its share, and cutting that off afterwards leaves less than "
    f"1; fill hidden scores with {LOWEST}": (
        Mistake(FUTURE, lambda s, m: _hide(s, m, 0.0).softmax(-1) * m)
    ),
    "a query that may see nothing gets NaN, the softmax of a row of -inf; give it zeros": (
        Mistake(EMPTY, lambda s, m: _hide(s, m).softmax(-1))
    ),
    "the mask comes after the softmax: dividing by the rest gives 0/0 where that rest is 0; hide "
    "the scores before the softmax": Mistake(FUTURE, _late),
    "a query that may see nothing gets the average of hidden values, because the fill is finite; "
    "give it zeros": Mistake(EMPTY, lambda s, m: _hide(s, m, -1e9).softmax(-1)),
    "a query that may see nothing sees everything, because a finite number is added to all its "
    "scores; give it zeros": (
        Mistake(
            EMPTY, lambda s, m: torch.where(m.any(-1, keepdim=True), weigh(s, m), s.softmax(-1))
        )
    ),
    "the number that is added to hidden scores is not low enough: they can lie that far above the "
    f"visible ones; use {LOWEST}": (
        Mistake(EMPTY, lambda s, m: (s - 1e4 * ~m).softmax(-1) * m.any(-1, keepdim=True))
    ),
    "the mask comes after the softmax: where hidden scores are much larger, visible weights have "
    "been rounded to 0; hide the scores before the softmax": (
        Mistake(FUTURE, lambda s, m: _late(s, m).nan_to_num(0))
    ),
}

for _eps in (1e-6, 1e-5, 1e-4):
    _MASK[
        f"the mask comes after the softmax, and with {_eps:g} in the divisor rows sum to less than "
        "1; hide the scores before the softmax"
    ] = Mistake(FUTURE, lambda s, m, eps=_eps: _late(s, m, eps))
HIGH = f"visible scores can lie below it; use {LOWEST}"
_MASK[f"the fill is not low enough: {HIGH}: all weights are lost"] = Mistake(
    EMPTY, lambda s, m: _finite(-1e4)(s, m) * m
)
for _fill in (-1e4, -100.0):
    _about = f"the fill is not low enough (about {_fill:g}?): "
    _MASK |= {
        f"{_about}{HIGH}": Mistake(EMPTY, _finite(_fill)),
        f"{_about}{HIGH}, and give an empty row zeros, not the average of hidden values": (
            Mistake(EMPTY, lambda s, m, fill=_fill: _hide(s, m, fill).softmax(-1))
        ),
    }

_SOFTMAX = {
    "the softmax runs over the queries; it must run over the keys, the last axis": (
        Mistake(ROWS, lambda s, m: (s if m is None else _hide(s, m)).softmax(-2).nan_to_num(0))
    ),
    "the softmax runs over the first axis; it must run over the keys, the last axis": (
        Mistake(ROWS, lambda s, m: (s if m is None else _hide(s, m)).softmax(0).nan_to_num(0))
    ),
    "one softmax runs over a whole table of scores; each query needs its own, over its keys": (
        Mistake(ROWS, lambda s, m: weigh(s.flatten(-2), _flat(s, m)).view_as(s))
    ),
    "the softmax is applied twice": Mistake(LADDER, lambda s, m: weigh(s, m).softmax(-1)),
    "it is log_softmax: logarithms are no weights": (
        Mistake(LADDER, lambda s, m: (s if m is None else _hide(s, m, -1e9)).log_softmax(-1))
    ),
    "there is no softmax: the scores themselves are the weights": (
        Mistake(LADDER, lambda s, m: s if m is None else _hide(s, m, 0.0))
    ),
    "exp overflows on large scores: subtract the largest score of the row first, as softmax does": (
        Mistake(SCALE, _overflowing)
    ),
    "each weight is a sigmoid of its own score; a row must sum to 1": (
        Mistake(LADDER, lambda s, m: s.sigmoid() if m is None else s.sigmoid() * m)
    ),
}


def _flat(scores: Tensor, mask: Tensor | None) -> Tensor | None:
    return None if mask is None else mask.expand_as(scores).flatten(-2)


def _only_masked(rule: Callable) -> Callable:
    return lambda s, m=None: s.softmax(-1) if m is None else rule(s, m)


WEIGHTS = {says: Mistake(at, _only_masked(rule)) for says, (at, rule) in _MASK.items()} | _SOFTMAX
