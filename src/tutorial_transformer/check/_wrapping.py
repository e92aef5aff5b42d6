"""Somebody's residual wrapper: built in each order, called, and set beside the right one."""

import contextlib
from collections.abc import Callable

import torch
from torch import Tensor

from tutorial_transformer.check._adding_mistakes import ADD, ORDER
from tutorial_transformer.check._building import build, fail, gains_of
from tutorial_transformer.check._calling import by_position
from tutorial_transformer.check._dropping import (
    RATE,
    check_dropout,
    check_random,
    check_same,
    check_still,
)
from tutorial_transformer.check._grade import Case
from tutorial_transformer.check._inputs import numbers
from tutorial_transformer.check._norm_mistakes import standard
from tutorial_transformer.check._report import Property, Report, short
from tutorial_transformer.check._trial import NotAttemptedError, UnusableError, call, close

CALL = ("x", "sublayer")


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


def answers_of(cls: object) -> Callable:
    """The learner's module in each order, its gain set to known numbers."""

    def run(first: bool, train: bool, x: Tensor, sublayer: Callable) -> object:
        module = build(cls, x.shape[-1], dropout=0.0, norm_first=first).train(train)
        with torch.no_grad():
            for one in gains_of(module, x.shape[-1]):
                one.copy_(_gain(x.shape[-1]).view_as(one))
        return by_position(module, *CALL)(x, sublayer)

    return run


def wrapped(add: Callable, norm: Callable = right_norm) -> Callable:
    """A wrapper rule as a function of a case's arguments."""

    def run(first: bool, train: bool, x: Tensor, sublayer: Callable) -> Tensor:
        gain = _gain(x.shape[-1])
        return add(lambda y: norm(y, gain, gain * 0, 1e-5), first, x, sublayer)

    return run


def check_drops(report: Report, cls: object) -> None:
    """Dropout acts on the sub-layer's output alone, and only in training."""
    listed = report.properties.copy()
    check_still(report, lambda: _modes(cls, False, _ones, (False, False))[1:])
    says = "dropout acts on the sub-layer's input; drop its output, before the sum"
    example = f"dropout {RATE}, what the sub-layer is given in evaluation and training mode"
    for first in (False, True):
        name = f"dropout leaves the sub-layer's input alone, norm_first={first}"
        check_same(report, name, lambda first=first: _heard(cls, first), example, says, ORDER)
    if report.passed:  # what an exercise counts are the properties below
        report.properties = listed
    example = f"dropout {RATE}, norm_first=True"
    check_dropout(report, "sub-layer", example, lambda: _modes(cls, True, _ones))
    check_random(report, "sub-layer", lambda: _modes(cls, False, _ones)[1:])
    check_random(report, "none", lambda: _modes(cls, False, _nothing)[1:])


def _modes(cls: object, first: bool, sublayer: Callable, modes=(False, True)) -> list[Tensor]:
    """x, and the outputs in evaluation and training mode."""
    x, module = numbers((20, 30, 12)), build(cls, 12, dropout=RATE, norm_first=first)
    run = by_position(module, *CALL)
    return [x, *(run(x, sublayer) for mode in modes if module.train(mode))]


def _heard(cls: object, first: bool) -> tuple[Tensor, Tensor]:
    """What the sub-layer is given in evaluation and training mode."""
    given: list[Tensor] = []

    def sublayer(x: Tensor) -> Tensor:
        given.append(x.detach())
        return _ones(x)

    _modes(cls, first, sublayer)
    return given[0], given[-1]


def check_shortcut(report: Report, cls: object) -> None:
    """The gradient reaches x past a pre-norm sub-layer that gives 0."""

    def slope() -> Tensor:
        x = torch.ones(1, 2, 4, requires_grad=True)
        output = by_position(build(cls, 4, dropout=0.0, norm_first=True), *CALL)(x, _nothing)
        if not output.requires_grad:  # code without gradients is not judged
            return torch.ones_like(x)
        return torch.autograd.grad(output.sum(), x, allow_unused=True)[0]

    if not report.passed:
        return
    with contextlib.suppress(UnusableError, NotAttemptedError):
        got = call(slope)
        if not close(got, torch.ones(1, 2, 4)):
            says = "no gradient takes the shortcut: x is detached before it is added"
            name, example = "the gradient takes the shortcut", "pre-norm, sublayer gives 0"
            fail(report, Property(name, False, example, short(got), "1 everywhere"), says, ADD)


def _ones(x: Tensor) -> Tensor:
    return torch.ones_like(x) + x * 0
