"""Say what differs between an answer and the right one: kind, shape, or the first number."""

import torch
from torch import Tensor

from tutorial_transformer.check._report import kind_of, short
from tutorial_transformer.check._trial import close


def difference(got: object, wanted: object, tolerance: float = 1e-5) -> str:
    """Name the first difference, as "item 3 of 3: its shape is (1,), wanted (1, 1)"."""
    if isinstance(wanted, tuple | list) and isinstance(got, tuple | list):
        if len(got) != len(wanted):
            return f"it has {_count(got)}, wanted {len(wanted)}"
        for place, pair in enumerate(zip(got, wanted, strict=True), 1):
            if not close(*pair, tolerance):
                return f"item {place} of {len(wanted)}: {difference(*pair, tolerance)}"
    if isinstance(wanted, Tensor) and isinstance(got, Tensor):
        return _of_tensors(got, wanted, tolerance)
    if isinstance(wanted, Tensor | tuple | list):
        kind = "a tensor" if isinstance(wanted, Tensor) else _count(wanted)
        return f"got {type(got).__name__} {short(got)}, wanted {kind}"
    texts = _apart(got, wanted)
    return f"got {texts[0]}, wanted {texts[1]}"


def pictures(got: object, wanted: object, tolerance: float = 1e-5) -> tuple[str, str]:
    """Write both; where they would read the same, with the first numbers that differ."""
    texts = short(got), short(wanted)
    if texts[0] != texts[1]:
        return texts
    where, *parts = _first(got, wanted, tolerance)
    one, other = _apart(*parts)
    return tuple(f"{texts[0]}, {where} {number}".strip() for number in (one, other))


def _of_tensors(got: Tensor, wanted: Tensor, tolerance: float) -> str:
    if got.shape != wanted.shape:
        return f"its shape is {tuple(got.shape)}, wanted {tuple(wanted.shape)}"
    if (got.dtype == torch.bool) != (wanted.dtype == torch.bool):
        return f"its numbers are {kind_of(got)}, wanted {kind_of(wanted)}"
    shown = f"got {short(got)}, wanted {short(wanted)}"
    if len(shown) < 160 and short(got) != short(wanted):
        return shown
    where, *parts = _first(got, wanted, tolerance)
    one, other = _apart(*parts)
    return f"they differ first {where} got {one}, wanted {other}"


def _first(got: object, wanted: object, tolerance: float) -> tuple[str, object, object]:
    """Where two answers differ first, and what stands there."""
    if isinstance(wanted, tuple | list) and isinstance(got, tuple | list):
        for place, pair in enumerate(zip(got, wanted, strict=False), 1):
            if not close(*pair, tolerance):
                where, *parts = _first(*pair, tolerance)
                return f"item {place} {where}", *parts
    if isinstance(wanted, Tensor) and isinstance(got, Tensor) and got.shape == wanted.shape:
        pairs = got.detach().cpu().double(), wanted.detach().cpu().double()
        rtol = tolerance * wanted.is_floating_point()
        apart = ~torch.isclose(*pairs, rtol=rtol, atol=tolerance, equal_nan=True)
        if apart.any():
            at = apart.nonzero()[0].tolist()
            return f"at {at}:", got[tuple(at)].item(), wanted[tuple(at)].item()
    return "", got, wanted


def _apart(got: object, wanted: object) -> tuple[str, str]:
    """Both as texts that differ, with as few digits as that needs."""
    if isinstance(got, float) and isinstance(wanted, float):
        texts = [(f"{got:.{digits}g}", f"{wanted:.{digits}g}") for digits in (4, 6, 9, 17)]
        return next((pair for pair in texts if pair[0] != pair[1]), texts[0])
    return short(got), short(wanted)


def _count(values: tuple | list) -> str:
    return "1 item" if len(values) == 1 else f"{len(values)} items"
