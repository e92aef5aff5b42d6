"""Build somebody's class, whatever its arguments are called, and read its parameters."""

import functools
import inspect
import re
from collections.abc import Callable

from torch import Tensor, nn

from tutorial_transformer.check._report import Property, Report
from tutorial_transformer.check._trial import UnusableError

NAMES = {
    "dropout": "drop|rate|prob|^p$",
    "norm_first": "norm_first|pre",
    "max_len": "len|max|positions",
    "pad_id": "pad",
    "eps": "eps",
    "batch_first": "^batch_first$",
    "offset": "offset|start|begin|shift|past|step|^pos",
}


def parameters_of(code: Callable) -> dict[str, inspect.Parameter]:
    """The arguments of a function or class; none if Python cannot tell."""
    try:
        return dict(inspect.signature(code).parameters)
    except (TypeError, ValueError):
        return {}


def name_of(code: Callable, role: str) -> str:
    """How the code calls this argument; "" if it has none."""
    return next((name for name in parameters_of(code) if re.search(NAMES[role], name.lower())), "")


def build(cls: Callable, *sizes: int, **options) -> nn.Module:
    """Make a module; options go by their names where the class has them, or else by position."""
    if isinstance(cls, nn.Module):
        raise UnusableError("give the class itself, not a module that was made from it")
    names = {role: name_of(cls, role) for role in options}
    if all(names.values()):
        named, rest = {names[role]: value for role, value in options.items()}, ()
    else:
        named, rest = {}, tuple(options.values())
    for extra, value in (("batch_first", True), ("dropout", 0.0)):
        name = name_of(cls, extra)
        missing = parameters_of(cls)[name].default is inspect.Parameter.empty if name else False
        if not rest and name and name not in named and (extra == "batch_first" or missing):
            named[name] = value
    module = cls(*sizes, *rest, **named)
    if not isinstance(module, nn.Module):
        raise UnusableError(f"the class must make an nn.Module, got {type(module).__name__}")
    return module


def is_class(code: Callable) -> bool:
    """Whether it is a class, perhaps with some arguments given, and not a function."""
    return inspect.isclass(code.func if isinstance(code, functools.partial) else code)


def tensor_of(answer: object) -> Tensor:
    """The answer, if it is one tensor."""
    if not isinstance(answer, Tensor):
        raise UnusableError(f"it must return one tensor, got {type(answer).__name__}")
    return answer


def gains_of(module: nn.Module, width: int) -> list[nn.Parameter]:
    """The gains of all norms: they start as ones."""
    return [
        one
        for one in module.parameters()
        if one.numel() == width == max(one.shape) and bool((one == 1).all())
    ]


def fail(report: Report, item: Property, says: str, reread: str) -> None:
    """Add a property that does not hold, and name it as the mistake if it is the first one."""
    if report.passed:
        report.diagnosis, report.reread = says, reread
    report.properties.append(item)
