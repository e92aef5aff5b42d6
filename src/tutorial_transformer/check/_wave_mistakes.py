"""The mistakes that people make in the table of positions, each under its sentence."""

from collections.abc import Callable

import torch
from torch import Tensor

from tutorial_transformer.check._mistakes import Mistake

WAVES = "chapter 05, 5. Draw a position as waves"
PRECISION = "chapter 05, 6. Keep the rows apart: compute in high precision"


def waves(
    length: int,
    width: int,
    exponent: Callable = lambda i, d: 2 * i / d,
    cosine: Callable | None = None,
    base: float = 10000.0,
    first: int = 0,
) -> Tensor:
    """Lay sines and cosines side by side; exponent(i, d) is that of pair i, 2i / d if right."""
    pos = torch.arange(length, dtype=torch.float64)[:, None] + first
    pair = torch.arange((width + 1) // 2, dtype=torch.float64)
    angles = [pos / base ** rule(pair, width) for rule in (exponent, cosine or exponent)]
    return (
        torch.stack([angles[0].sin(), angles[1].cos()], -1)
        .flatten(1)[:, :width]
        .to(torch.get_default_dtype())
    )


def _halves(length: int, width: int) -> Tensor:
    table = waves(length, width)
    return torch.cat([table[:, ::2], table[:, 1::2]], -1)


def _low(length: int, width: int) -> Tensor:
    return waves(length + 2, width)[torch.arange(length).bfloat16().long()]


def _swapped(table: Tensor) -> Tensor:
    return table.unflatten(-1, (-1, 2)).flip(-1).flatten(1)


def _same_pair(rule: Callable) -> Mistake:
    return Mistake(WAVES, lambda length, width: waves(length, width, rule))


TABLES = {
    "the exponent is doubled twice: 2i is the dimension already, wanted 2i / d_model": (
        _same_pair(lambda i, d: 4 * i / d)
    ),
    "the cosines have a frequency of their own, 2i + 1; a pair shares 2i": Mistake(
        WAVES, lambda n, d: waves(n, d, cosine=lambda i, d: (2 * i + 1) / d)
    ),
    "the cosines have a frequency of their own, and 2i is doubled twice; a pair shares 2i": (
        Mistake(
            WAVES,
            lambda n, d: waves(n, d, lambda i, d: 4 * i / d, lambda i, d: (4 * i + 2) / d),
        )
    ),
    "the exponent is i / d_model, or the base is 100; wanted 10000^(2i / d_model)": _same_pair(
        lambda i, d: i / d
    ),
    "all frequencies are equal: is the exponent divided as whole numbers?": (
        _same_pair(lambda i, d: 0 * i)
    ),
    "the exponent is not divided by d_model": _same_pair(lambda i, d: 2 * i),
    "the angle is multiplied by 10000^(2i / d_model); divide by it": (
        _same_pair(lambda i, d: -2 * i / d)
    ),
    "the exponent is divided so that the last pair turns at 1/10000; wanted 2i / d_model": (
        _same_pair(lambda i, d: i / max((d + 1) // 2 - 1, 1))
    ),
    "the base is 1000; wanted 10000": (Mistake(WAVES, lambda n, d: waves(n, d, base=1000.0))),
    "the base is 100000; wanted 10000": (Mistake(WAVES, lambda n, d: waves(n, d, base=100000.0))),
    "positions start at 1; the first one is 0": Mistake(WAVES, lambda n, d: waves(n, d, first=1)),
    "sine and cosine have changed places: sine in even columns, cosine in odd ones": (
        Mistake(WAVES, lambda n, d: _swapped(waves(n, d + d % 2))[:, :d])
    ),
    "sines stand in the left half, cosines in the right; interleave them, column by column": (
        Mistake(WAVES, _halves)
    ),
    "all columns are sines; odd columns are cosines": Mistake(
        WAVES, lambda n, d: waves(n, d)[:, ::2].repeat_interleave(2, 1)[:, :d]
    ),
    "all columns are sines, each with its own frequency; wanted pairs of sine and cosine": (
        Mistake(WAVES, lambda n, d: _all_sines(n, d))
    ),
    "length and d_model are exchanged": Mistake(WAVES, lambda n, d: waves(d, n)),
    "it is computed in low precision: positions above 256 fall together": (
        Mistake(PRECISION, _low)
    ),
    "the table is 0": Mistake(WAVES, lambda n, d: torch.zeros(n, d)),
}


def _all_sines(length: int, width: int) -> Tensor:
    rate = 10000 ** -(torch.arange(width, dtype=torch.float64) / width)
    return (torch.arange(length)[:, None] * rate).sin().to(torch.get_default_dtype())
