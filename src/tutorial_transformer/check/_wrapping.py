"""Somebody's residual wrapper: built in each order, called, and set beside the right one."""

from collections.abc import Callable

import torch
from torch import Tensor

from tutorial_transformer.check._building import build, gains_of
from tutorial_transformer.check._dropping import RATE
from tutorial_transformer.check._grade import Case
from tutorial_transformer.check._inputs import numbers
from tutorial_transformer.check._norm_mistakes import standard


def right_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return standard(x, eps) * weight + bias


def _nothing(x: Tensor) -> Tensor:
    return x * 0


def _bend(x: Tensor) -> Tensor:
    return (x.roll(1, -1) * 1.5 + 0.5).tanh() * torch.arange(1.0, 1 + x.shape[-1])


def wrap_cases() -> list[Case]:
    """Arguments are norm_first, whether it trains (dropout is 0), x, and the sub-layer."""
    x, many = torch.tensor([[[1.0, 2, 3, 5]]]), numbers((2, 3, 5), 3) + 0.5
    nothing = "sublayer gives 0, x [1, 2, 3, 5]"
    return [
        Case("pre-norm with a sub-layer of 0 is x", nothing, (True, False, x, _nothing)),
        Case(
            "post-norm with a sub-layer of 0 is LayerNorm(x)", nothing, (False, False, x, _nothing)
        ),
        Case("post-norm is LayerNorm(x + Sublayer(x))", "x (1, 1, 4)", (False, False, x, _bend)),
        Case("pre-norm is x + Sublayer(LayerNorm(x))", "x (1, 1, 4)", (True, False, x, _bend)),
        Case("it works in batches", "x (2, 3, 5), post-norm", (False, False, many, _bend)),
        Case("it works in batches", "x (2, 3, 5), pre-norm", (True, False, many, _bend)),
        Case("without dropout training is the same", "post-norm", (False, True, many, _bend)),
        Case("without dropout training is the same", "pre-norm", (True, True, many, _bend)),
    ]


def _gain(width: int) -> Tensor:
    return torch.linspace(0.5, 2.0, width)


def answers_of(cls: Callable) -> Callable:
    """The learner's module in each order, its gain set to known numbers."""

    def run(first: bool, train: bool, x: Tensor, sublayer: Callable) -> object:
        module = build(cls, x.shape[-1], dropout=0.0, norm_first=first).train(train)
        with torch.no_grad():
            for one in gains_of(module, x.shape[-1]):
                one.copy_(_gain(x.shape[-1]).view_as(one))
        return module(x, sublayer)

    return run


def wrapped(add: Callable, norm: Callable = right_norm) -> Callable:
    """A wrapper rule as a function of a case's arguments."""

    def run(first: bool, train: bool, x: Tensor, sublayer: Callable) -> Tensor:
        gain = _gain(x.shape[-1])
        return add(lambda y: norm(y, gain, gain * 0, 1e-5), first, x, sublayer)

    return run


def drawn(cls: Callable, first: bool) -> tuple[Tensor, ...]:
    """x, and the outputs in evaluation and training mode."""
    x = numbers((20, 30, 12))
    module = build(cls, 12, dropout=RATE, norm_first=first)
    still = module.eval()(x, _ones)
    module.train()
    return x, still, module(x, _ones)


def _ones(x: Tensor) -> Tensor:
    return torch.ones_like(x) + x * 0
