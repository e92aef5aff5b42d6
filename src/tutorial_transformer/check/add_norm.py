"""Graders of chapter 06: the norm, and the wrapper round every sub-layer."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tutorial_transformer.check._adding_mistakes import ADDING, ORDER, right_add
from tutorial_transformer.check._building import build, is_class, parameters_of, tensor_of
from tutorial_transformer.check._dropping import RATE, blame_rate, check_dropout, check_random
from tutorial_transformer.check._grade import Case, grade
from tutorial_transformer.check._inputs import numbers
from tutorial_transformer.check._mistakes import blame_chance, point, rules
from tutorial_transformer.check._norm_mistakes import HAND, NORMING
from tutorial_transformer.check._report import Report
from tutorial_transformer.check._trial import UnusableError
from tutorial_transformer.check._wrapping import answers_of, drawn, right_norm, wrap_cases, wrapped

TORCHS = (F.layer_norm, torch.layer_norm)  # they want the shape before the weight


def layer_norm(code: Callable) -> Report:
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
    learner = _norm_of(code)
    suspects = rules(NORMING)
    grade(report, learner, _norm_cases(), right_norm, suspects, tensor_of, tolerance=1e-4)
    blame_chance(report, learner, *_norm_cases()[2].args)
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


def _norm_of(code: Callable) -> Callable:
    """The learner's code as f(x, weight, bias, eps), whether a class or a function."""
    if code in TORCHS:
        return lambda x, weight, bias, eps: code(x, x.shape[-1:], weight, bias, eps)
    if not is_class(code) and not isinstance(code, nn.Module) and len(parameters_of(code)) != 2:
        return code

    def run(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
        module = build(code, x.shape[-1], eps=eps).eval()
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


def add_norm(cls: Callable) -> Report:
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
    check_dropout(report, "sub-layer", f"dropout {RATE}, norm_first=True", lambda: drawn(cls, True))
    check_random(report, f"dropout {RATE}, norm_first=False", lambda: drawn(cls, False)[1:])
    return point(report, ADDING | NORMING)
