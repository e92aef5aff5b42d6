"""The mistakes that people make in the feed-forward network, each under its sentence."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from tutorial_transformer.check._mistakes import Mistake

BEND = "chapter 04, 1. Widen, bend, come back"
ALONE = "chapter 04, 2. Treat each position alone"
FLAT = "chapter 04, 4. Take the bend out, and two maps become one"


def _bent(bend: Callable) -> Callable:
    return lambda x, w, b, v, c: F.linear(bend(F.linear(x, w, b)), v, c)


def network(x: Tensor, w: Tensor, b: Tensor, v: Tensor, c: Tensor) -> Tensor:
    """Widen, bend, come back, rightly."""
    return F.linear(F.linear(x, w, b).relu(), v, c)


def _after(change: Callable) -> Callable:
    """A mistake in the whole network's output."""
    return lambda x, *maps: change(x, network(x, *maps))


WRONG_BENDS = {
    "the activation is missing: two linear maps in a row are one": (lambda h: h, FLAT),
    "the activation is GELU; the formula here has ReLU": (F.gelu, BEND),
    "the activation is GELU (tanh form); the formula here has ReLU": (
        lambda h: F.gelu(h, approximate="tanh"),
        BEND,
    ),
    "the activation is SiLU; the formula here has ReLU": (F.silu, BEND),
    "the activation is tanh; the formula here has ReLU": (torch.tanh, BEND),
    "the activation is a sigmoid; the formula here has ReLU": (torch.sigmoid, BEND),
    "the activation is a leaky ReLU; the formula here has ReLU": (F.leaky_relu, BEND),
    "the activation is ELU; the formula here has ReLU": (F.elu, BEND),
    "the activation is ReLU6; the formula here has ReLU": (lambda h: h.clamp(0, 6), BEND),
    "the activation is the absolute value; ReLU is max(0, h)": (torch.abs, BEND),
    "ReLU keeps the wrong side: it is max(0, h), not min(0, h)": (lambda h: h.clamp(max=0), BEND),
    "the hidden layer is squared after ReLU": (lambda h: h.relu().square(), BEND),
    "a softmax stands where ReLU belongs": (lambda h: h.softmax(-1), BEND),
    "the hidden layer is averaged over the positions; each position is on its own": (
        lambda h: h.relu().mean(-2, keepdim=True).expand_as(h),
        ALONE,
    ),
}

NETWORK = {says: Mistake(at, _bent(bend)) for says, (bend, at) in WRONG_BENDS.items()} | {
    "the output is bent as well; only the hidden layer is": (
        Mistake(BEND, _after(lambda x, y: y.relu()))
    ),
    "the activation stands after the second map; it belongs between the two": (
        Mistake(BEND, lambda x, w, b, v, c: F.linear(F.linear(x, w, b), v, c).relu())
    ),
    "the activation stands before the first map; it belongs between the two": (
        Mistake(BEND, lambda x, w, b, v, c: F.linear(F.linear(x.relu(), w, b), v, c))
    ),
    "x is added: the residual belongs to the wrapper round the network": (
        Mistake(BEND, _after(lambda x, y: x + y))
    ),
    "the output is normed: the norm belongs to the wrapper round the network": (
        Mistake(BEND, _after(lambda x, y: F.layer_norm(y, y.shape[-1:])))
    ),
    "x is added and normed: that belongs to the wrapper round the network": (
        Mistake(BEND, _after(lambda x, y: F.layer_norm(x + y, y.shape[-1:])))
    ),
    "the output is averaged over the positions; each position is on its own": (
        Mistake(ALONE, _after(lambda x, y: y.mean(-2, keepdim=True).expand_as(y)))
    ),
    "the second map has no effect: the hidden layer must come back to d_model": (
        Mistake(BEND, lambda x, w, b, v, c: F.linear(x, w, b).relu())
    ),
}
