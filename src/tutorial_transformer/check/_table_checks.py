"""What one answer cannot show of a module that adds positions: how it keeps its table."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tutorial_transformer.check._building import build, fail
from tutorial_transformer.check._calling import name_of
from tutorial_transformer.check._position_mistakes import BUFFER
from tutorial_transformer.check._report import Property, Report
from tutorial_transformer.check._trial import NotAttemptedError, UnusableError, call, close
from tutorial_transformer.check._wave_mistakes import PRECISION, waves

MAX_LEN = 300  # of the modules that are built here
SAVED = (
    "remark: the table is saved with the module, so no model with another max_len can load it; "
    "register_buffer(..., persistent=False) leaves it out"
)


def positions(cls: object, d_model: int, max_len: int = MAX_LEN) -> nn.Module:
    """Build the module for so many positions, if it has such an argument."""
    options = {"max_len": max_len} if name_of(cls, "max_len") else {}
    return build(cls, d_model, **options).eval()


def check_table(report: Report, cls: object) -> None:
    """Ask for training, saving, device, dtype, and the end of the table."""
    for name, (check, example, says, reread) in CHECKS.items():
        ask(report, name, lambda check=check: check(cls), example, says, reread)
    if report.passed and call(lambda: positions(cls, 4).state_dict()):
        report.properties.append(Property(SAVED, True))


def learned(built: list[nn.Module]) -> str:
    """Say so where positions are parameters."""
    if not any(one.requires_grad for module in built for one in module.parameters()):
        return ""
    return "its positions are learned parameters, drawn at random; wanted the fixed waves"


def measured(table: Callable) -> str:
    """Say by which angles a position turns, in a table that no mistake gives."""
    try:
        long, row = call(table, 300, 6), call(table, 2, 4)[-1].double()
        near = close(long[:3], waves(3, 6), 0.02) and not close(long, waves(300, 6), 1e-4)
    except (UnusableError, NotAttemptedError, TypeError, IndexError):
        return ""
    if near:
        return "its error grows with the position: is it computed in low precision?"
    if row.shape != (4,) or close(row, waves(2, 4)[-1].double(), 1e-4):
        return ""
    size = row.view(2, 2).square().sum(1)
    if not close(size, torch.ones(2), 1e-3):
        return f"sin² + cos² of the pairs is {size[0]:.4g} and {size[1]:.4g}, wanted 1"
    first, second = (float(torch.atan2(*pair)) for pair in row.view(2, 2))
    base = f": the base is {second**-2:.4g}, wanted 10000" if abs(first - 1) < 1e-3 < second else ""
    return (
        f"from position 0 to 1 the pairs turn by {first:.4g} and {second:.4g}, not 1 and 0.01{base}"
    )


def ask(report: Report, name: str, check: Callable, example: str, says: str, reread: str) -> None:
    """Add a property that a call answers with yes or no."""
    if not report.passed:
        return
    try:
        holds, got = bool(call(check)), "no"
    except (UnusableError, NotAttemptedError) as error:
        holds, got = False, str(error)
    if holds:
        report.properties.append(Property(name, True))
    else:
        fail(report, Property(name, False, example, got, "yes"), says, reread)


def _fixed(cls: object) -> bool:
    return not any(one.requires_grad for one in positions(cls, 4).parameters())


def _follows(cls: object) -> bool:
    """A table in a plain attribute may only stay behind if the answer has the right dtype."""
    module = positions(cls, 4)
    plain = any(isinstance(one, Tensor) for part in module.modules() for one in vars(part).values())
    x = torch.zeros(1, 3, 4, dtype=torch.bfloat16)
    return not plain or module.bfloat16()(x).dtype == x.dtype


def _precise(cls: object) -> bool:
    module = positions(cls, 4).bfloat16()
    answer = module(torch.zeros(1, MAX_LEN, 4, dtype=torch.bfloat16))
    return close(answer.float(), waves(MAX_LEN, 4)[None], 0.02)


def _ends(cls: object) -> bool:
    try:
        answer = positions(cls, 4, 2)(torch.zeros(2, 3, 4))
    except Exception:  # it refuses, which is right
        return True
    return close(answer[0], waves(3, 4))


CHECKS = {
    "the table is not trained": (
        _fixed,
        "parameters that require a gradient",
        "the table is trained; the waves are fixed: register them as a buffer",
        BUFFER,
    ),
    "the table follows the module": (
        _follows,
        "module.bfloat16(), x in bfloat16",
        "the table does not follow the module to another dtype or device: it must be a buffer, not "
        "a plain attribute",
        BUFFER,
    ),
    "rows stay apart in bfloat16": (
        _precise,
        f"module.bfloat16(), {MAX_LEN} positions",
        "in bfloat16 positions above 256 fall together: compute the table in float32, then cast",
        PRECISION,
    ),
    "past max_len it refuses, or goes on rightly": (
        _ends,
        "max_len 2, length 3",
        "past max_len it gives wrong positions and says nothing; raise an error",
        BUFFER,
    ),
}
