"""Grader of chapter 11: keep the keys and values of one attention."""

import inspect
from collections.abc import Callable

from torch import Tensor

from tutorial_transformer.check._cache_mistakes import CACHE, PADDED, SHARED, STUB, right
from tutorial_transformer.check._grade import Case, grade
from tutorial_transformer.check._inputs import numbers
from tutorial_transformer.check._mistakes import KEEP, point, rules
from tutorial_transformer.check._report import Report
from tutorial_transformer.check._trial import UnusableError

ROOM = 64  # positions, for a class that must know how many it will hold


def kv_cache(cls: object) -> Report:
    """Grade a cache: keys, values = cls().append(new_keys, new_values), all so far.

    len(cache), or cache.length, counts the positions. The course's own form is taken too: a class
    that wants max_len, append without an answer, cache.keys and cache.values.
    """
    expects = (
        "cache = cls(); keys, values = cache.append(new_keys, new_values), all so far, (batch, "
        "heads, length, d_k); len(cache) counts positions, 0 when new"
    )
    report = Report("kv_cache", expects, KEEP)
    more: list[int] = []
    grade(report, _follow(cls, more), _cases(), right, rules(CACHE))
    if not report.passed and report.diagnosis not in CACHE and more and max(more) > 0 <= min(more):
        report.diagnosis = PADDED if min(more) > 0 else SHARED if more[0] == 0 else report.diagnosis
    return point(report, CACHE)


def _cases() -> list[Case]:
    """The smallest input first; who says to which of two caches a step belongs."""
    one, two = _steps(1, 1, 2, 1), _steps(1, 1, 2, 1, 1)
    many, pair, long = (
        _steps(2, 3, 4, 5, 1, 2),
        _steps(1, 2, 3, 2, 1, 1),
        _steps(1, 2, 3, *[1] * 40),
    )
    said = "steps of 5, 1, 2 positions"
    return [
        Case("what goes in comes back", "one position", ("0", *one), view=_pairs),
        Case("a new position stands behind the earlier ones", "1 + 1", ("00", *two), view=_pairs),
        Case("several at once, all sizes different", said, ("000", *many), view=_pairs),
        Case("two caches share nothing", "steps to A, B, A", ("010", *pair), view=_pairs),
        Case("a second sequence starts empty", "A, then B, B", ("0|11", *pair), view=_pairs),
        Case("it grows with the text", "40 positions", ("0" * 40, *long), view=_last),
        Case("its length counts positions", said, ("000", *many), view=_lengths),
        Case("a new cache has length 0", "before any step", ("0", *one), view=_fresh),
    ]


def _steps(batch: int, heads: int, d_k: int, *lengths: int) -> list[Tensor]:
    """Keys and values of the steps, in turn."""
    sizes = [(batch, heads, length, d_k) for length in lengths for _ in range(2)]
    return [numbers(size, seed) for seed, size in enumerate(sizes)]


def _pairs(seen: list) -> list:
    return [(keys, values) for keys, values, *_ in seen]


def _last(seen: list) -> tuple:
    return seen[-1][:2]


def _lengths(seen: list) -> list:
    return [length for _, _, length, _ in seen]


def _fresh(seen: list) -> list:
    return [seen[0][3]]


def _follow(cls: object, more: list[int]) -> Callable:
    """Take the steps and note keys, values, the length now and the length before any step.

    more counts what a new cache gives back beyond its first step: the memory of an earlier one,
    or the unused rest of a buffer.
    """

    def steps(who: str, *tensors: Tensor) -> list[tuple]:
        early, _, late = who.partition("|")  # behind the bar stand caches that are made later
        seen: list[tuple] = []
        for names in (early, late):
            new = set(names)
            caches = {name: _new(cls) for name in sorted(new)}
            fresh = {name: _length(cache) for name, cache in caches.items()}
            for name in names:
                at = 2 * len(seen)
                keys, values = _append(caches[name], *tensors[at : at + 2])
                if name in new:
                    new.remove(name)
                    more.append(_beyond(keys, tensors[at]))
                seen.append((keys, values, _length(caches[name]), fresh[name]))
        return seen

    return steps


def _beyond(keys: Tensor, new: Tensor) -> int:
    """How many positions come back beyond the new ones; -1 for another shape."""
    alike = keys.ndim == new.ndim and keys[:, :, :1].shape == new[:, :, :1].shape
    return keys.shape[2] - new.shape[2] if alike else -1


def _new(cls: object) -> object:
    """A cache; a class with one required argument learns how many positions will come."""
    try:
        parameters = inspect.signature(cls).parameters.values()
    except (TypeError, ValueError):
        return cls()
    required = [
        one
        for one in parameters
        if one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    return cls(ROOM) if len(required) == 1 else cls()


def _append(cache: object, new_keys: Tensor, new_values: Tensor) -> tuple[Tensor, Tensor]:
    append = getattr(cache, "append", None) or getattr(cache, "update", None) or cache
    if not callable(append):
        raise UnusableError("it has no method append(new_keys, new_values)")
    answer = append(new_keys, new_values)
    if answer is None:
        answer = tuple(_value(getattr(cache, name, None)) for name in ("keys", "values"))
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        raise UnusableError(f"append must return (keys, values), got {type(answer).__name__}")
    if not all(isinstance(one, Tensor) for one in answer):
        kinds = ", ".join(type(one).__name__ for one in answer)
        raise UnusableError(f"append must return two tensors (keys, values), got ({kinds})")
    return answer[0].detach().clone(), answer[1].detach().clone()


def _length(cache: object) -> int | str | None:
    """What len(cache) says, or cache.length; None if it cannot tell."""
    try:
        length = len(cache) if hasattr(cache, "__len__") else _value(cache.length)
    except NotImplementedError:
        return STUB
    except Exception:
        return None
    return int(length) if isinstance(length, int | Tensor) else None


def _value(one: object) -> object:
    return one() if callable(one) else one
