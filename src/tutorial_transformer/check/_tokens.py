"""Somebody's token embedding: its table, its pad row, and what training does to both."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from tutorial_transformer.check._building import build
from tutorial_transformer.check._calling import name_of
from tutorial_transformer.check._inputs import numbers
from tutorial_transformer.check._position_mistakes import LOOKUP, PAD
from tutorial_transformer.check._report import Report
from tutorial_transformer.check._table_checks import ask
from tutorial_transformer.check._trial import UnusableError, close

VOCAB = 7
TWICE = (
    "two calls with the same ids differ: dropout is on, or each call changes the table; multiply "
    "what was looked up, not the table"
)


def right_tokens(table: Tensor, ids: Tensor) -> Tensor:
    """Look up and scale, rightly."""
    return table[ids] * math.sqrt(table.shape[1])


class Tokens:
    """A class as a function of (ids, d_model), and the table that it must look up."""

    def __init__(self, cls: object) -> None:
        self.cls, self.tables, self.modules = cls, {}, {}

    def __call__(self, ids: Tensor, d_model: int) -> object:
        """Build a module, give its table known numbers but for the pad row, and call it twice."""
        if d_model not in self.modules:
            self.modules[d_model] = _made(self.cls, d_model)
        module = self.modules[d_model]
        table = _table(module, d_model)
        with torch.no_grad():
            table[1:] = numbers((VOCAB - 1, d_model))
        self.tables[d_model] = table.detach().clone()
        first, second = module(ids), module(ids)
        if isinstance(first, Tensor) and not close(second, first):
            raise UnusableError(TWICE)
        return second

    def wrong(self, rule: Callable) -> Callable:
        """A rule with this module's table."""
        return lambda ids, d_model: rule(self.tables.get(d_model, torch.zeros(VOCAB, d_model)), ids)


def _made(cls: object, d_model: int, pad_id: int | None = None) -> nn.Module:
    options = {} if pad_id is None else {"pad_id": pad_id}
    return build(cls, VOCAB, d_model, roles=("vocab_size", "d_model"), **options).eval()


def _table(module: nn.Module, d_model: int) -> Tensor:
    """The table (vocab_size, d_model), as a view of the parameter."""
    for one in module.parameters():
        if one.shape == (VOCAB, d_model):
            return one.data
        if one.shape == (d_model, VOCAB):
            return one.data.T
    shapes = [tuple(one.shape) for one in module.parameters()]
    raise UnusableError(
        f"it must register a table of shape (vocab_size, d_model) = ({VOCAB}, {d_model}); its "
        f"parameters have shapes {shapes}"
    )


def _trained(cls: object, pad_id: int | None) -> tuple[Tensor, Tensor]:
    """The vectors of pad, 1 and 2 after a step of training, and before."""
    module, pad = _made(cls, 5, pad_id), pad_id or 0
    ids = torch.tensor([[pad, 1, 2], [2, pad, pad]])
    before = module(ids)
    if not before.requires_grad:  # nothing learns, which is told elsewhere
        return before[0], before[0]
    (before - 1).square().sum().backward()
    with torch.no_grad():
        for one in module.parameters():
            if one.grad is not None:
                one -= 0.1 * one.grad
    return module(ids).detach()[0], before.detach()[0]


def check_pads(report: Report, cls: object) -> None:
    """The pad's vector is zero, at first and after training, whichever id it has."""
    name, example = "the vector of pad is zero", "pad_id 0, a new module"
    says = "the vector of pad is not zero: pass padding_idx, and let no init overwrite its row"
    zero = lambda pad, place: bool((_trained(cls, pad)[place][0] == 0).all())  # noqa: E731
    ask(report, name, lambda: zero(None, 1), example, says, PAD)
    name = "training leaves the vector of pad zero"
    says = "training moves the vector of pad: its row must get no gradient, as with padding_idx"
    ask(report, name, lambda: zero(None, 0), "pad_id 0, one step", says, PAD)
    if name_of(cls, "pad_id"):
        name, says = "pad_id says which id is the pad", "pad_id has no effect: its vector is zero"
        says = "pad_id is not obeyed: its vector must be zero and stay so, whichever id it is"
        ask(report, name, lambda: zero(3, 0) and zero(3, 1), "pad_id 3", says, PAD)


def check_slopes(report: Report, cls: object) -> None:
    """Training moves the vectors of other ids."""

    def moves() -> bool:
        after, before = _trained(cls, None)
        return bool((after[1:] != before[1:]).any(-1).all())

    says = "training does not move the vectors: is the table a parameter, and not detached?"
    ask(
        report, "training moves the vectors of tokens", moves, "ids 1 and 2, one step", says, LOOKUP
    )
