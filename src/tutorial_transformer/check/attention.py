"""Graders of chapter 02: compare, scale, weigh, average."""

import contextlib
import copy
import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from tutorial_transformer import attention as right
from tutorial_transformer.check._attention_mistakes import ATTENTION, RETURNED
from tutorial_transformer.check._building import is_class
from tutorial_transformer.check._calling import arranged, by_position
from tutorial_transformer.check._grade import Case, grade
from tutorial_transformer.check._inputs import (
    LAST,
    NONE,
    SOME,
    attention_cases,
    causal,
    numbers,
    output_of,
    rows,
    triple,
    until,
    weights_of,
)
from tutorial_transformer.check._mistakes import EMPTY, FUTURE, LADDER, blame_chance, point, rules
from tutorial_transformer.check._report import Property, Report
from tutorial_transformer.check._trial import NotAttemptedError, UnusableError, call
from tutorial_transformer.check._weight_mistakes import LOWEST, WEIGHTS

NAMES = ("query", "key", "value", "mask")
HALF = (
    f"in float16 the fill overflows: it lies beyond the lowest number there, -65504; use {LOWEST}"
)
SLOPES = (
    "the gradient is NaN where a query may see nothing: keep the fill out of sums and products, "
    "as masked_fill does"
)


def masked_softmax(function: object) -> Report:
    """Grade masked_softmax(scores, mask) -> weights (batch, q_len, k_len).

    mask is bool, True = may attend, (batch or 1, q_len or 1, k_len). Weights are exactly 0 where
    it hides, sum to 1 over the rest of a row, and are all 0 in a row that may see nothing.
    """
    expects = (
        "masked_softmax(scores, mask) -> weights (batch, q_len, k_len); mask is bool, True = may "
        "attend; a row that may see nothing gets zeros; any float dtype, float16 too"
    )
    report, function = Report("masked_softmax", expects, FUTURE), _ready(function, "scores", "mask")
    few, many = numbers((1, 2, 3)), numbers((2, 3, 5), seed=1)
    cases = [
        Case("hidden keys weigh 0, the rest of the row sums to 1", rows(SOME), (few, SOME)),
        Case("a padding mask hides keys in all rows", "lengths 3 and 5", (many, until(3, 5))),
        Case("a mask for one sentence serves the batch", "batch 2", (many, causal(3, 5))),
        Case("a row that may see nothing gets zeros", rows(NONE), (few, NONE)),
        Case("large scores do not overflow", "scores × 1000", (few * 1000, SOME)),
        Case("large scores do not overflow", "late keys only", (few * 1000, LAST)),
        Case("no fill is too high", "scores × 10⁷", (few * 1e7, causal(2, 3))),
        Case("no fill is too high", "scores × 10⁷, late keys only", (few * 1e7, LAST)),
        Case("it works in float16", "scores 0", (torch.zeros(1, 1, 3).half(), SOME[:, :1])),
        Case("it works in float64", "double scores", (few.double(), SOME)),
    ]
    _forgive(grade(report, function, cases, right.masked_softmax, rules(WEIGHTS), output_of))
    return _finished(report, function, WEIGHTS, many, until(3, 5))


def attention(function: object) -> Report:
    """Grade attention(query, key, value, mask=None) -> (output, attn_weights).

    The output alone is taken too. mask is bool, True = may attend, (batch or 1, q_len or 1,
    k_len); a query that may see nothing gets zeros, and gradients stay finite.
    """
    expects = (
        "attention(query, key, value, mask=None) -> output (batch, q_len, d_v), or (output, "
        "attn_weights); mask is bool, True = may attend; a query that may see nothing gets zeros "
        "(gradients stay finite); any float dtype, float16 too"
    )
    report, function = Report("attention", expects, LADDER), _ready(function, *NAMES)
    shown: list[bool] = []

    def output(answer: object) -> Tensor:
        first = output_of(answer)
        shown.append(isinstance(answer, tuple | list) and isinstance(answer[-1], Tensor))
        return first

    _compare(report, function, attention_cases(), 0, ATTENTION, output)
    if report.passed and any(shown):
        name = "the returned weights are those that average the values"
        cases = [replace(case, name=name) for case in attention_cases()[:6]]
        _compare(report, function, cases, 1, RETURNED, weights_of)
        if not report.passed and report.diagnosis not in RETURNED:
            report.diagnosis = f"the returned weights are wrong: {report.diagnosis}"
    if report.passed:
        _check_slopes(report, function)
    return _finished(report, function, ATTENTION | RETURNED, *triple(2, 3, 5, 4, 6, seed=1))


def _compare(report, function, cases, place: int, mistakes: dict, adapt: Callable) -> None:
    """Compare the output (place 0) or the weights (place 1) with the package's."""

    def wanted(*inputs: Tensor) -> Tensor:
        return right.scaled_dot_product_attention(*inputs)[place]

    _forgive(grade(report, function, cases, wanted, rules(mistakes), adapt))


def _forgive(report: Report) -> None:
    """Code that fixes its dtype is not judged on others; code that overflows in one is."""
    for item in report.properties.copy():
        fixed = "dtype" in item.got or "scalar type" in item.got
        if fixed and item.name.startswith("it works in float"):
            report.properties.remove(item)
            report.diagnosis = "" if item.got in report.diagnosis else report.diagnosis


def _ready(function: object, *names: str) -> Callable:
    """A module, or its class, as a function in evaluation mode."""
    if not is_class(function) and not isinstance(function, nn.Module):
        return by_position(function, *names)

    def run(*inputs):
        d_k = inputs[0].shape[-1]
        spare = {"d_?k|dim|^d$|size": d_k, "temp": math.sqrt(d_k)}
        made = _made(function, spare) if is_class(function) else copy.deepcopy(function)
        made = made.eval() if isinstance(made, nn.Module) else made
        return by_position(made, *names)(*inputs)

    return run


def _made(cls: object, spare: dict) -> object:
    """An object of the class, which may have to know the width of the keys."""
    return cls(**arranged(cls, (), (), spare)[1])


def _check_slopes(report: Report, function: object) -> None:
    """Gradients stay finite beside an empty row; code without gradients is not judged."""

    def slopes(*inputs: Tensor) -> list[Tensor]:
        leaves = [x.clone().requires_grad_() for x in inputs]
        output_of(function(*leaves, NONE)).square().sum().backward()
        return [leaf.grad for leaf in leaves if leaf.grad is not None]

    with contextlib.suppress(UnusableError, NotAttemptedError):
        finite = all(bool(slope.isfinite().all()) for slope in call(slopes, *triple(1, 2, 3, 4, 5)))
        name = "gradients stay finite where a query may see nothing"
        report.properties.append(Property(name, finite, rows(NONE), "NaN", "finite numbers"))
        if not finite:
            report.diagnosis, report.reread = SLOPES, EMPTY


def _finished(report: Report, function: object, mistakes: dict, *args) -> Report:
    """Say what single answers cannot tell, and where to reread."""
    for item in report.properties:
        if "float16" in item.name and "overflow" in item.got and item.got in report.diagnosis:
            report.diagnosis, report.reread = HALF, EMPTY
    blame_chance(report, function, *args)
    return point(report, mistakes)
