"""The mistakes that people make in attention, each under the sentence that names it."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import normalize

from tutorial_transformer.check._mistakes import FUTURE, HEAD_AXIS, LADDER, SCALE, Mistake
from tutorial_transformer.check._weight_mistakes import WEIGHTS, weigh
from tutorial_transformer.check._weight_mistakes import attend as right

LENGTH = "chapter 02, 6. Mind the length, not only the direction"
ROLES = "chapter 02, 2. Give every token three roles"


def _scaled(scale: Callable) -> Callable:
    return lambda q, k, v, m=None: right(q, k, v, m, scale)


def _weighed(rule: Callable) -> Callable:
    return lambda q, k, v, m=None: right(q, k, v, m, weigh=rule)


def _reshaped(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    turned = key.reshape(*key.shape[:-2], key.shape[-1], key.shape[-2])
    return weigh(query @ turned / math.sqrt(query.shape[-1]), mask) @ value


def _always_causal(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    past = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return weigh(scores, past if mask is None else past & mask)


def _more_axes(scores: Tensor, mask: Tensor | None = None) -> Tensor:
    return weigh(scores, mask if mask is None else mask[:, None])


def _scores(query: Tensor, key: Tensor) -> Tensor:
    return query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])


SCORES = {
    "the scores are not scaled: divide them by √d_k": Mistake(SCALE, _scaled(lambda q, k: 1.0)),
    "the scores are divided by d_k, not by its root": (
        Mistake(SCALE, _scaled(lambda q, k: q.shape[-1]))
    ),
    "the scores are multiplied by √d_k; divide them by it": (
        Mistake(SCALE, _scaled(lambda q, k: q.shape[-1] ** -0.5))
    ),
    "the scores are divided by the root of the number of keys; the width d_k makes them large": (
        Mistake(SCALE, _scaled(lambda q, k: k.shape[-2] ** 0.5))
    ),
    "the scores are divided by the root of the number of queries; the width d_k makes them large": (
        Mistake(SCALE, _scaled(lambda q, k: q.shape[-2] ** 0.5))
    ),
    "the scores are divided by 8, whatever d_k is; that is the root of 64 only": (
        Mistake(SCALE, _scaled(lambda q, k: 8.0))
    ),
    "the weights are divided by √d_k after the softmax; divide the scores before it": Mistake(
        SCALE,
        lambda q, k, v, m=None: weigh(q @ k.transpose(-2, -1), m) @ v / math.sqrt(q.shape[-1]),
    ),
    "the key is reshaped, which scrambles it; transpose its last two axes": (
        Mistake(LADDER, _reshaped)
    ),
    "the scores are cosines: the lengths of query and key must count": Mistake(
        LENGTH, lambda q, k, v, m=None: right(normalize(q, dim=-1), normalize(k, dim=-1), v, m)
    ),
}

MIXING = {
    "the weights average the keys; they must average the values": (
        Mistake(ROLES, lambda q, k, v, m=None: right(q, k, k, m))
    ),
    "the mask is not read: whatever it says, the future is hidden": Mistake(
        FUTURE, _weighed(lambda s, m=None: s.softmax(-1) if m is None else _always_causal(s))
    ),
    "the future is hidden although no mask says so": Mistake(FUTURE, _weighed(_always_causal)),
}

OUTPUT = {
    "the scores are divided by the root of the values' width d_v; d_k is the keys'": Mistake(
        SCALE, lambda q, k, v, m=None: right(q, k, v, m, lambda q, k: v.shape[-1] ** 0.5)
    ),
    "it gives the attention weights where the output belongs: return output, or (output, "
    "attn_weights)": Mistake(LADDER, lambda q, k, v, m=None: weigh(_scores(q, k), m)),
    "the mask gets an axis for heads that the scores do not have": (
        Mistake(HEAD_AXIS, _weighed(_more_axes))
    ),
}

ATTENTION = SCORES | MIXING | OUTPUT
ATTENTION |= {says: Mistake(at, _weighed(rule)) for says, (at, rule) in WEIGHTS.items()}

RETURNED = {
    "the returned weights are the scores before the softmax": (
        Mistake(LADDER, lambda q, k, v, m=None: _scores(q, k))
    ),
    "the returned weights are the masked scores before the softmax": Mistake(
        LADDER,
        lambda q, k, v, m=None: (
            _scores(q, k) if m is None else _scores(q, k).masked_fill(~m, -math.inf)
        ),
    ),
    "the returned weights know nothing of the mask": (
        Mistake(FUTURE, lambda q, k, v, m=None: _scores(q, k).softmax(-1))
    ),
    "the returned weights have keys as rows; rows are queries": (
        Mistake(LADDER, lambda q, k, v, m=None: weigh(_scores(q, k), m).transpose(-2, -1))
    ),
    "the returned weights are those of unscaled scores": (
        Mistake(SCALE, lambda q, k, v, m=None: weigh(q @ k.transpose(-2, -1), m))
    ),
}
