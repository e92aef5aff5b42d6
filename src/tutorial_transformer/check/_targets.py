"""The distributions that smoothed losses compare with: the right one, and the usual wrong ones."""

import torch
import torch.nn.functional as F
from torch import Tensor


def smoothed(ids: Tensor, vocab_size: int, eps: float, pad_id: int = 0) -> Tensor:
    """What F.cross_entropy compares with: eps is shared by all classes."""
    return (1 - eps) * one_hot(ids, vocab_size) + eps / vocab_size


def without_pad(ids: Tensor, vocab_size: int, eps: float, pad_id: int = 0) -> Tensor:
    """Share eps among all classes but the right one and pad."""
    right = one_hot(ids, vocab_size)
    others = (1 - right) * eps / (vocab_size - 2)
    others[..., pad_id] = 0
    return (1 - eps) * right + others


def without_right(ids: Tensor, vocab_size: int, eps: float, pad_id: int = 0) -> Tensor:
    """Share eps among all classes but the right one."""
    right = one_hot(ids, vocab_size)
    return (1 - eps) * right + (1 - right) * eps / (vocab_size - 1)


def without_rest(ids: Tensor, vocab_size: int, eps: float, pad_id: int = 0) -> Tensor:
    """Take eps from the right class and give it to nobody."""
    return (1 - eps) * one_hot(ids, vocab_size)


def overfull(ids: Tensor, vocab_size: int, eps: float, pad_id: int = 0) -> Tensor:
    """Give eps to all classes and take it from nobody."""
    return one_hot(ids, vocab_size) + eps / vocab_size


def crowded(ids: Tensor, vocab_size: int, eps: float, pad_id: int = 0) -> Tensor:
    """Give all classes the share that is meant for all but one."""
    return (1 - eps) * one_hot(ids, vocab_size) + eps / (vocab_size - 1)


def unsmoothed(ids: Tensor, vocab_size: int, eps: float, pad_id: int = 0) -> Tensor:
    """Leave the target one-hot."""
    return one_hot(ids, vocab_size)


def one_hot(ids: Tensor, vocab_size: int) -> Tensor:
    """All mass on the right class, in the default dtype."""
    return F.one_hot(ids.clamp(0, vocab_size - 1), vocab_size).to(torch.get_default_dtype())
