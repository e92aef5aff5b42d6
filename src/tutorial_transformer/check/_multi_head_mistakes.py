"""The mistakes that people make in multi-head attention, each under the sentence that names it."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from tutorial_transformer.check._attention_mistakes import MIXING, SCORES
from tutorial_transformer.check._layer import Layer, by
from tutorial_transformer.check._mistakes import (
    CUT,
    EMPTY,
    FUTURE,
    HEAD_AXIS,
    ROWS,
    SCALE,
    SCRAMBLE,
    Mistake,
)
from tutorial_transformer.check._projection_mistakes import PROJECTING, SOURCE
from tutorial_transformer.check._weight_mistakes import WEIGHTS, attend, weigh


def _viewed(x: Tensor, heads: int) -> Tensor:
    return x.reshape(len(x), heads, x.shape[1], -1)


def _every_nth(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (-1, heads)).permute(0, 3, 1, 2)


def _unmoved(x: Tensor) -> Tensor:
    return x.reshape(len(x), x.shape[2], -1)


def _interleaved(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1).flatten(2)


def _scaled(width: Callable) -> Callable:
    """Divide the scores by the root of this, of all heads side by side (batch, heads, ...)."""
    return by(core=lambda q, k, v, m: attend(q, k, v, m, lambda q, k: math.sqrt(width(q))))


def _repeated(layer: Layer, *inputs) -> Tensor:
    """As mask.unsqueeze(0) does, or repeat in the place of repeat_interleave."""

    def see(mask: Tensor) -> Tensor:
        rows = torch.arange(len(mask) * layer.heads) % len(mask)
        return mask[rows].unflatten(0, (len(mask), layer.heads))

    return layer._replace(see=see)(*inputs)


def _seen_when(training: bool) -> Callable:
    """A layer that obeys its mask in one mode only."""
    return lambda layer, q, k, v, m=None, train=False: layer(
        q, k, v, m if train == training else None
    )


def _first_head(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    if mask is None:
        return weigh(scores)
    return torch.cat([weigh(scores[:, :1], mask), weigh(scores[:, 1:])], dim=1)


def _zeros_late(layer: Layer, *inputs) -> Tensor:
    rule = next(
        one.rule for says, one in WEIGHTS.items() if says.startswith("a query") and "NaN" in says
    )
    return by(core=lambda q, k, v, m: attend(q, k, v, m, weigh=rule))(layer, *inputs).nan_to_num(0)


SPLITTING = {
    "the heads are cut by a view without a transpose: positions get scrambled": (
        Mistake(CUT, by(split=_viewed))
    ),
    "heads are cut and merged by a view without a transpose: positions get scrambled": (
        Mistake(SCRAMBLE, by(split=_viewed, merge=_unmoved))
    ),
    "the heads are merged without moving their axis back: positions get scrambled": (
        Mistake(SCRAMBLE, by(merge=_unmoved))
    ),
    "the transpose after the cut is missing: heads attend to heads, no position hears another": (
        Mistake(CUT, by(split=lambda x, h: x.unflatten(-1, (h, -1)), merge=lambda x: x.flatten(2)))
    ),
    "each head takes every h-th feature, not d_k neighbours": (
        Mistake(CUT, by(split=_every_nth, merge=_interleaved))
    ),
    "each head takes every h-th feature when cut, and neighbours when merged": (
        Mistake(CUT, by(split=_every_nth))
    ),
    "the features of the heads are interleaved when merged; lay the heads side by side": (
        Mistake(CUT, by(merge=_interleaved))
    ),
    "num_heads is ignored: it is one wide head": Mistake(
        CUT, by(split=lambda x, h: x[:, None], merge=lambda x: x[:, 0])
    ),
}

MASKING = {
    "the batch axis of the mask is read as heads: insert the head axis between batch and queries, "
    "mask.unsqueeze(1)": Mistake(HEAD_AXIS, _repeated),
    "the mask is transposed: its rows are queries, its columns keys": (
        Mistake(HEAD_AXIS, by(see=lambda mask: mask.mT[:, None]))
    ),
    "only the first head obeys the mask; all heads must": (
        Mistake(HEAD_AXIS, by(core=lambda q, k, v, m: attend(q, k, v, m, weigh=_first_head)))
    ),
    "the mask of the first sentence is used for the whole batch": (
        Mistake(HEAD_AXIS, by(see=lambda mask: mask[:1, None]))
    ),
    "the mask acts only in training mode": Mistake(FUTURE, _seen_when(True)),
    "the mask acts only in evaluation mode": Mistake(FUTURE, _seen_when(False)),
    "a query that may see nothing gives zeros after w_o; give w_o zeros, so that its bias stays": (
        Mistake(EMPTY, _zeros_late)
    ),
}


def _over_heads(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    hidden = scores if mask is None else scores.masked_fill(~mask, -math.inf)
    return hidden.softmax(1).nan_to_num(0)


def _weighing(rule: Callable) -> Callable:
    return by(core=lambda q, k, v, m: attend(q, k, v, m, weigh=rule))


HEADS = {
    "the scores are divided by √d_model; each head has width d_k": Mistake(
        SCALE, _scaled(lambda q: q.shape[1] * q.shape[-1])
    ),
    "the scores are divided by the root of the number of heads; each head has width d_k": (
        Mistake(SCALE, _scaled(lambda q: q.shape[1]))
    ),
    "the softmax runs over the heads; it must run over the keys, the last axis": (
        Mistake(ROWS, _weighing(_over_heads))
    ),
}

MULTI_HEAD = SPLITTING | PROJECTING | SOURCE | HEADS | MASKING
MULTI_HEAD |= {says: Mistake(at, by(core=rule)) for says, (at, rule) in (SCORES | MIXING).items()}
MULTI_HEAD |= {
    says: Mistake(at, _weighing(rule))
    for says, (at, rule) in WEIGHTS.items()
    if "in the divisor" not in says  # too little to show behind w_o
}
