"""The mistakes that people make in a cache of keys and values."""

from collections.abc import Callable

import torch
from torch import Tensor

from tutorial_transformer.check._mistakes import KEEP, Mistake

SHARED = "the caches share their memory: keep it in self, made anew in __init__"
PADDED = "the answer holds unused positions: cut the buffer at the length that is filled"
STUB = "still to be written"  # what a length says that is
Steps = list[tuple[Tensor, Tensor]]


def _take(who: str, tensors: tuple[Tensor, ...], join: tuple, count: Callable) -> list[tuple]:
    """What a cache answers to its steps; join has a rule for keys and one for values."""
    mine: dict[str, Steps] = {}
    seen = []
    for name, *new in zip(who.replace("|", ""), tensors[::2], tensors[1::2], strict=True):
        steps = mine.setdefault(name, [])
        steps.append(tuple(new))
        keys, values = (rule([step[kind] for step in steps]) for kind, rule in enumerate(join))
        seen.append((keys, values, count([step[0] for step in steps]), 0))
    return seen


def _joined(tensors: list[Tensor]) -> Tensor:
    return torch.cat(tensors, dim=2)


def _positions(tensors: list[Tensor]) -> int:
    return _joined(tensors).shape[2]


def right(who: str, *tensors: Tensor) -> list[tuple]:
    """Keys, values, length, and the length before any step, after each step."""
    return _take(who, tensors, (_joined, _joined), _positions)


def _joining(keys: Callable, values: Callable | None = None) -> Mistake:
    join = keys, values or keys
    return Mistake(KEEP, lambda who, *tensors: _take(who, tensors, join, _positions))


def _counting(count: Callable) -> Mistake:
    return Mistake(KEEP, lambda who, *tensors: _take(who, tensors, (_joined, _joined), count))


def _changed(change: Callable) -> Mistake:
    return Mistake(KEEP, lambda who, *its: [change(*one) for one in right(who, *its)])


def _written(tensors: list[Tensor]) -> Tensor:
    """Each step moves the place to write by one, however many positions it brings."""
    buffer = torch.zeros_like(torch.cat([*tensors, *tensors], dim=2))
    for place, new in enumerate(tensors):
        buffer[:, :, place : place + new.shape[2]] = new
    return buffer[:, :, : len(tensors) - 1 + tensors[-1].shape[2]]


def _shared(who: str, *tensors: Tensor) -> list[tuple]:
    """All caches are one."""
    return right("0" * len(who.replace("|", "")), *tensors)


def _before(tensors: list[Tensor]) -> Tensor:
    return _joined(tensors[:-1]) if len(tensors) > 1 else tensors[0][:, :, :0]


CACHE = {
    "only the newest positions come back: the earlier ones are lost": _joining(lambda x: x[-1]),
    "the earlier values are lost, only the keys are kept": _joining(_joined, lambda x: x[-1]),
    "the earlier keys are lost, only the values are kept": _joining(lambda x: x[-1], _joined),
    "only the first positions come back: nothing is appended": _joining(lambda x: x[0]),
    "the new numbers are added to the old ones; append them": _joining(lambda x: sum(x)),
    **{
        f"only the last {n} positions are kept: nothing may be lost": (
            _joining(lambda x, n=n: _joined(x)[:, :, -n:])
        )
        for n in (1, 2, 3, 4, 5, 8, 10, 16, 20, 32)
    },
    "new positions are put in front: append them behind the earlier ones": (
        _joining(lambda x: _joined(x[::-1]))
    ),
    "positions are joined along the batch; the length is axis 2": (
        _joining(lambda x: torch.cat(x, dim=0))
    ),
    "positions are joined along the heads; the length is axis 2": (
        _joining(lambda x: torch.cat(x, dim=1))
    ),
    "positions are joined along the width d_k; the length is axis 2": (
        _joining(lambda x: torch.cat(x, dim=3))
    ),
    "the new positions are left out of the answer: a token attends to itself, too": (
        _joining(_before)
    ),
    "the new positions are left out of the answer, but for the first ones: a token attends to "
    "itself, too": _joining(lambda x: _joined(x[:-1] or x)),
    "the place to write moves by one for each step, not by the number of new positions": (
        _joining(_written)
    ),
    "the newest positions come back twice": _joining(lambda x: _joined([*x, x[-1]])),
    "the last positions are dropped when new ones come": (
        _joining(lambda x: _joined([*(one[:, :, :-1] for one in x[:-1]), x[-1]]))
    ),
    "keys and values are exchanged: return (keys, values)": (
        _changed(lambda keys, values, *rest: (values, keys, *rest))
    ),
    "the values are the keys once more": _changed(lambda keys, _, *rest: (keys, keys, *rest)),
    "the keys are the values once more": _changed(lambda _, values, *rest: (values, values, *rest)),
    "heads and length are exchanged in the answer: wanted (batch, heads, length, d_k)": (
        _changed(lambda keys, values, *rest: (keys.transpose(1, 2), values.transpose(1, 2), *rest))
    ),
    SHARED: Mistake(KEEP, _shared),
    f"len(cache) is {STUB}": (_changed(lambda keys, values, *_: (keys, values, STUB, STUB))),
    "it cannot tell its length: define __len__, or an attribute length": (
        _changed(lambda keys, values, *_: (keys, values, None, None))
    ),
    "a new cache cannot tell its length, or starts above 0": (
        _changed(lambda keys, values, length, _: (keys, values, length, None))
    ),
    "its length counts the steps, not the positions": _counting(len),
    "its length counts the newest positions only": _counting(lambda x: x[-1].shape[2]),
    "its length is that before the step": _counting(lambda x: _positions(x) - x[-1].shape[2]),
    "its length is the batch size: len(tensor) is its first axis": _counting(lambda x: len(x[0])),
    "its length is the number of heads; the length is axis 2": _counting(lambda x: x[0].shape[1]),
    "its length is the width; the length is axis 2": _counting(lambda x: x[0].shape[3]),
    "its length stays 0": _counting(lambda x: 0),
    "its length counts keys and values: every position twice": (
        _counting(lambda x: 2 * _positions(x))
    ),
}
