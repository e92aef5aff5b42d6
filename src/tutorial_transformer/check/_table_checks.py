"""What one answer cannot show of a module that adds positions: how it keeps its table."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tutorial_transformer.check._building import build, fail, name_of
from tutorial_transformer.check._position_mistakes import BUFFER
from tutorial_transformer.check._report import Property, Report
from tutorial_transformer.check._trial import NotAttemptedError, UnusableError, call, close
from tutorial_transformer.check._wave_mistakes import PRECISION, waves

MAX_LEN = 300  # of the modules that are built here


def positions(cls: Callable, d_model: int, max_len: int = MAX_LEN) -> nn.Module:
    """Build the module for so many positions, if it has such an argument."""
    options = {"max_len": max_len} if name_of(cls, "max_len") else {}
    return build(cls, d_model, **options).eval()


def check_table(report: Report, cls: Callable) -> None:
    """Ask for training, saving, device, dtype, and the end of the table."""
    for name, (check, example, says, reread) in CHECKS.items():
        ask(report, name, lambda check=check: check(cls), example, says, reread)


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


def _fixed(cls: Callable) -> bool:
    return not any(one.requires_grad for one in positions(cls, 4).parameters())


def _unsaved(cls: Callable) -> bool:
    return not positions(cls, 4).state_dict()


def _follows(cls: Callable) -> bool:
    """A table in a plain attribute may only stay behind if the answer has the right dtype."""
    module = positions(cls, 4)
    plain = any(isinstance(one, Tensor) for part in module.modules() for one in vars(part).values())
    x = torch.zeros(1, 3, 4, dtype=torch.bfloat16)
    return not plain or module.bfloat16()(x).dtype == x.dtype


def _precise(cls: Callable) -> bool:
    module = positions(cls, 4).bfloat16()
    answer = module(torch.zeros(1, MAX_LEN, 4, dtype=torch.bfloat16))
    return close(answer.float(), waves(MAX_LEN, 4)[None], 0.02)


def _ends(cls: Callable) -> bool:
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
    "the table is not saved": (
        _unsaved,
        "state_dict() is empty",
        "the table is saved with the module, so that no model with another max_len can load it: "
        "register_buffer(..., persistent=False)",
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
