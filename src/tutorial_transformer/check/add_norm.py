"""Graders of chapter 06: the norm, and the wrapper round every sub-layer."""

import torch
from torch import Tensor, nn

from tutorial_transformer.check._adding_mistakes import ADDING, ORDER, right_add
from tutorial_transformer.check._answers import UnusableError, tensor_of
from tutorial_transformer.check._building import build, is_class
from tutorial_transformer.check._calling import by_position, name_of, parameters_of
from tutorial_transformer.check._dropping import blame_rate
from tutorial_transformer.check._grade import Case, grade
from tutorial_transformer.check._inputs import numbers
from tutorial_transformer.check._mistakes import blame_chance, point, rules
from tutorial_transformer.check._norm_mistakes import HAND, NORMING
from tutorial_transformer.check._report import Report
from tutorial_transformer.check._wrapping import (
    answers_of,
    check_drops,
    check_shortcut,
    right_norm,
    wrap_cases,
    wrapped,
)


def layer_norm(code: object) -> Report:
    """Grade a class cls(d_model, eps)(x), or a function f(x, weight, bias, eps).

    Each vector of x, (..., d_model), gets mean 0 and variance 1, with eps inside the root, then
    a gain and a bias for each feature. A class must register both, gain 1 and bias 0 at first.
    """
    expects = (
        "cls(d_model, eps), called as module(x), with a gain (ones at first) and a bias (zeros), "
        "each of shape (d_model,); or f(x, weight, bias, eps) -> weight · (x - mean) / √(variance "
        "+ eps) + bias, over the last axis alone, variance divided by d_model"
    )
    report = Report("layer_norm", expects, HAND)
    learner, takes_eps = _norm_of(code), name_of(code, "eps") or len(parameters_of(code)) != 1
    suspects = rules(NORMING)
    cases = [case for case in _norm_cases() if takes_eps or "eps" not in case.name]
    grade(report, learner, cases, right_norm, suspects, tensor_of, tolerance=1e-4)
    blame_chance(report, learner, *cases[-1].args)
    return point(report, NORMING)


def _norm_cases() -> list[Case]:
    """The smallest input first; of the plain ones the gain is 1 and the bias 0."""
    four, spike = torch.tensor([[[1.0, 2, 3, 4]]]), torch.tensor([[[1.0, 0, 0, 0]]])
    plain, gain, bias = (torch.ones(4), torch.zeros(4)), numbers((5,), 1), numbers((5,), 2)
    many = numbers((2, 3, 5), 3) + 1
    return [
        Case("[1, 2, 3, 4] gives ±1.3416, ±0.4472", "[1, 2, 3, 4]", (four, *plain, 1e-5)),
        Case("[1, 0, 0, 0] gives 1.732, -0.577", "[1, 0, 0, 0]", (spike, *plain, 1e-5)),
        Case("eps stands inside the root", "[1, 2, 3, 4], eps 0.5", (four, *plain, 0.5)),
        Case("a constant vector gives zeros", "[3, 3, 3, 3]", (four * 0 + 3, *plain, 1e-5)),
        Case("a variance near eps is damped", "[1..4] / 400", (four / 400, *plain, 1e-5)),
        Case("each token is normed alone", "x (2, 3, 5)", (many, gain * 0 + 1, bias * 0, 1e-5)),
        Case("gain and bias are those of each feature", "x (2, 3, 5)", (many, gain, bias, 1e-5)),
    ]


def _norm_of(code: object) -> object:
    """The learner's code as f(x, weight, bias, eps), whether a class or a function."""
    if code is torch.layer_norm:  # it cannot be asked for its arguments
        return lambda x, weight, bias, eps: code(x, x.shape[-1:], weight, bias, eps)
    if not is_class(code) and not isinstance(code, nn.Module) and len(parameters_of(code)) != 2:
        shape = lambda x, *_: {"shape": x.shape[-1:]}  # noqa: E731
        return by_position(code, "x", "weight", "bias", "eps", spare=shape)

    def run(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        options = {"eps": eps} if len(parameters_of(code)) != 1 else {}
        module = build(code, x.shape[-1], **options).eval()
        tensor_of(module(x))
        vectors = [p for p in module.parameters() if p.numel() == x.shape[-1] == max(p.shape)]
        gains = [one for one in vectors if bool((one == 1).all())]
        biases = [one for one in vectors if bool((one == 0).all())]
        if len(gains) != 1 or len(biases) != 1 or len(list(module.parameters())) != 2:
            shapes = [tuple(one.shape) for one in module.parameters()]
            raise UnusableError(
                "it must have two nn.Parameter of shape (d_model,): a gain, ones at first, and a "
                f"bias, zeros at first; found shapes {shapes}"
            )
        with torch.no_grad():
            gains[0].copy_(weight.view_as(gains[0]))
            biases[0].copy_(bias.view_as(biases[0]))
        return module(x)

    return run


def add_norm(cls: object) -> Report:
    """Grade a module: cls(d_model, dropout, norm_first)(x, sublayer).

    norm_first False is LayerNorm(x + Sublayer(x)), True is x + Sublayer(LayerNorm(x)). sublayer
    is a function of one tensor; dropout acts on its output, before the sum.
    """
    expects = (
        "cls(d_model, dropout, norm_first), an nn.Module called as module(x, sublayer) -> "
        "LayerNorm(x + Sublayer(x)), or with norm_first x + Sublayer(LayerNorm(x)); dropout acts "
        "on the sub-layer's output"
    )
    report = Report("add_norm", expects, ORDER)
    suspects = {says: wrapped(rule) for says, rule in rules(ADDING).items()}
    suspects |= {says: wrapped(right_add, rule) for says, rule in rules(NORMING).items()}
    right, cases = wrapped(right_add), wrap_cases()
    answers = answers_of(cls)
    grade(report, answers, cases, right, suspects, tensor_of, tolerance=1e-4)
    blame_chance(report, answers, *cases[2].args)
    blame_rate(report, answers, *cases[-1].args)
    check_shortcut(report, cls)
    check_drops(report, cls)
    return point(report, ADDING | NORMING)
