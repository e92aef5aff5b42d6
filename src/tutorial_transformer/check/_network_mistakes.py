"""The mistakes that people make in the feed-forward network, each under its sentence."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from tutorial_transformer.check._mistakes import Mistake

BEND = "chapter 04, 1. Widen, bend, come back"
ALONE = "chapter 04, 2. Treat each position alone"
CONVOLUTION = "chapter 04, 3. Read it as two convolutions"
FLAT = "chapter 04, 4. Take the bend out, and two maps become one"
MIXED = "mixes the numbers of several tokens; swap the axes with .mT before and after"


def _bent(bend: Callable) -> Callable:
    return lambda x, w, b, v, c: F.linear(bend(F.linear(x, w, b)), v, c)


def network(x: Tensor, w: Tensor, b: Tensor, v: Tensor, c: Tensor) -> Tensor:
    """Widen, bend, come back, rightly."""
    return F.linear(F.linear(x, w, b).relu(), v, c)


def _after(change: Callable) -> Callable:
    """A mistake in the whole network's output."""
    return lambda x, *maps: change(x, network(x, *maps))


def _read_across(x: Tensor) -> Tensor:
    """The tokens that a convolution sees after x.reshape(batch, d_model, length)."""
    return x.reshape(len(x), x.shape[2], x.shape[1]).mT


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
    **{
        f"the activation is a leaky ReLU (slope {slope}); the formula here has ReLU": (
            lambda h, slope=slope: F.leaky_relu(h, slope),
            BEND,
        )
        for slope in (0.01, 0.1, 0.2, 0.25, 0.3)
    },
    "the activation is softplus; the formula here has ReLU": (F.softplus, BEND),
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
    f"the answer comes back by a reshape, which {MIXED}": (
        Mistake(CONVOLUTION, _after(lambda x, y: y.mT.reshape(y.shape)))
    ),
    f"x goes in and comes back by a reshape, which {MIXED}": Mistake(
        CONVOLUTION,
        lambda x, *maps: network(_read_across(x), *maps).mT.reshape(x.shape),
    ),
    f"x goes in by a reshape, which {MIXED}": (
        Mistake(CONVOLUTION, lambda x, *maps: network(_read_across(x), *maps))
    ),
    "x is added: the residual belongs to the wrapper round the network": (
        Mistake(BEND, _after(lambda x, y: x + y))
    ),
    "the output is normed: the norm belongs to the wrapper round the network": (
        Mistake(BEND, _after(lambda x, y: F.layer_norm(y, y.shape[-1:])))
    ),
    "the biases have no effect": Mistake(
        BEND, lambda x, w, b, v, c: network(x, w, 0 * b, v, 0 * c)
    ),
    "b_1 has no effect": Mistake(BEND, lambda x, w, b, v, c: network(x, w, 0 * b, v, c)),
    "b_2 has no effect": Mistake(BEND, lambda x, w, b, v, c: network(x, w, b, v, 0 * c)),
    "the second map has no effect: the hidden layer must come back to d_model": (
        Mistake(BEND, lambda x, w, b, v, c: F.linear(x, w, b).relu())
    ),
}
