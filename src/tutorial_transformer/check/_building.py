"""Build somebody's class, whatever its arguments are called, and read its parameters."""

import functools
import inspect

from torch import nn

from tutorial_transformer.check._answers import UnusableError, settled
from tutorial_transformer.check._calling import arranged, name_of
from tutorial_transformer.check._report import Property, Report

SIZES = ("d_model", "num_heads", "d_ff")


def build(cls: object, *sizes: int, roles: tuple[str, ...] = SIZES, **options) -> nn.Module:
    """Make a module; arguments go by their names where the class has them elsewhere."""
    if isinstance(cls, nn.Module):
        raise UnusableError("give the class itself, not a module that was made from it")
    names = (*roles[: len(sizes)], *options)
    heads = dict(zip(roles, sizes, strict=False)).get("num_heads", 1)
    spare = {"d_[kvh]|head_dim|head_size": sizes[0] // heads}
    placed, named = arranged(cls, names, (*sizes, *options.values()), spare)
    if name_of(cls, "batch_first"):
        named = {"batch_first": True} | named
    module = settled(cls(*placed, **named))
    if not isinstance(module, nn.Module):
        raise UnusableError(f"the class must make an nn.Module, got {type(module).__name__}")
    if any(one.is_meta for one in module.parameters()):
        raise UnusableError("its parameters have no numbers: they are on the meta device")
    return module


def is_class(code: object) -> bool:
    """Whether it is a class, perhaps with some arguments given, and not a function."""
    return inspect.isclass(code.func if isinstance(code, functools.partial) else code)


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
