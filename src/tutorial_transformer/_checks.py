"""Refuse bad input at the door: every message names the argument, what came and what was wanted.

Modules call these before they compute, so that a mistake is reported in the reader's words
and not three floors down as a failed matrix product.
"""

from collections.abc import Callable
from functools import wraps
from numbers import Real

import torch
from torch import Tensor


def first(check: Callable) -> Callable:
    """Run `check` on the arguments of a function before the function itself (a decorator)."""

    def decorate(function: Callable) -> Callable:
        @wraps(function)
        def checked(*args, **kwargs):
            check(*args, **kwargs)
            return function(*args, **kwargs)

        return checked

    return decorate


def size(**sizes: int) -> None:
    """Refuse anything but whole numbers from 1 upwards."""
    for name, value in sizes.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise TypeError(f"{name} must be an int, got {value!r}")
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")


def rate(**rates: Real) -> None:
    """Refuse a dropout probability outside [0, 1)."""
    for name, value in rates.items():
        if not isinstance(value, Real) or isinstance(value, bool):
            raise TypeError(f"{name} must be a number, got {value!r}")
        if not 0 <= value < 1:
            raise ValueError(f"{name} must lie in [0, 1), got {value}")


def special_id(name: str, value: int, vocab_size: int) -> None:
    """Refuse an id that is no entry of the vocabulary."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, got {value!r}")
    if not 0 <= value < vocab_size:
        raise ValueError(f"{name}={value} must lie in the vocabulary of {vocab_size} entries")


def divisible(d_model: int, num_heads: int) -> None:
    """Refuse a width that the heads cannot share evenly."""
    if d_model % num_heads:
        raise ValueError(f"d_model={d_model} must be divisible by num_heads={num_heads}")


def tensor(name: str, value: Tensor) -> None:
    """Refuse anything but a tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(value).__name__}")


def ids(name: str, value: Tensor, vocab_size: int | None = None) -> None:
    """Refuse anything but whole-number ids of shape (batch, length), none of them out of range."""
    tensor(name, value)
    if value.dtype == torch.bool or value.is_floating_point() or value.is_complex():
        raise TypeError(f"{name} must hold integer ids, got {value.dtype}")
    if value.ndim != 2 or 0 in value.shape:
        raise ValueError(
            f"{name} must have shape (batch, length), neither of them 0, got {tuple(value.shape)}"
        )
    if vocab_size is not None and value.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"{name} must hold int64 or int32 ids to be looked up, got {value.dtype}")
    if vocab_size is not None and ((value < 0) | (value >= vocab_size)).any():
        bad = value[(value < 0) | (value >= vocab_size)][0].item()
        raise ValueError(f"{name} holds id {bad}, but the vocabulary has {vocab_size} entries")


def vectors(name: str, value: Tensor, width: int | None = None, ndim: int | None = None) -> None:
    """Refuse anything but non-empty floating-point vectors, of this width and this many axes."""
    tensor(name, value)
    if not value.is_floating_point():
        raise TypeError(f"{name} must be a floating-point tensor, got {value.dtype}")
    if ndim is not None and value.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} axes, got shape {tuple(value.shape)}")
    if value.ndim == 0 or 0 in value.shape:
        raise ValueError(f"{name} must not be empty, got shape {tuple(value.shape)}")
    if width is not None and value.shape[-1] != width:
        raise ValueError(
            f"{name} must have last axis {width}, got {value.shape[-1]}: {tuple(value.shape)}"
        )


def boolean_mask(name: str, value: Tensor) -> None:
    """Refuse anything but a bool tensor: 0/1 numbers would be added or inverted by somebody."""
    tensor(name, value)
    if value.dtype != torch.bool:
        raise TypeError(
            f"{name} must be a bool tensor (True = may attend), got {value.dtype}; "
            f"a 0/1 mask becomes one with {name}.bool()"
        )
