"""A layer of encoder or decoder with weights that need no names: every matrix is filled alike.

Weight (i, j) is `scale` or -`scale`, in turn, where i and j are equal modulo d_k, else 0; biases
are 0 and all gains the same. Every projection and every head then sees the same vector, so that it
does not matter who is called what, who is fused with whom, or which way round a matrix is used.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tutorial_transformer.check._adding_mistakes import right_add
from tutorial_transformer.check._building import gains_of
from tutorial_transformer.check._layer import Layer
from tutorial_transformer.check._norm_mistakes import standard
from tutorial_transformer.check._roles import Map

SIZES = {8: (2, 12), 12: (3, 20)}  # num_heads and d_ff for each d_model
D_K = 4
SCALE = 0.4


@functools.cache
def _pattern(rows: int, columns: int, scale: float, dtype: torch.dtype) -> Tensor:
    row, column = torch.arange(rows)[:, None], torch.arange(columns)
    return scale * (((row - column) % D_K == 0) * (1 - 2 * (row % 2))).to(dtype)


def pattern(rows: int, columns: int, scale: float) -> Tensor:
    """The matrix with ±`scale` where row and column are equal modulo d_k."""
    return _pattern(rows, columns, scale, torch.get_default_dtype())


def gain(width: int) -> Tensor:
    """The gain of all norms; it is not 1, so that a norm too many shows."""
    return torch.linspace(0.6, 1.8, width)


def fill(module: nn.Module, width: int, scale: float, feed: float | None = None) -> None:
    """Fill all parameters; `feed` is the scale of matrices that have d_ff rows or columns."""
    gains, d_ff = gains_of(module, width), SIZES[width][1]
    with torch.no_grad():
        for one in module.parameters():
            if any(one is other for other in gains):
                one.copy_(gain(width).view_as(one))
            elif not is_matrix(one, width):
                one.mul_(0 if one.numel() > 1 else 1)
            else:
                wide = feed is not None and d_ff in one.shape
                _fill_matrix(one.data, feed if wide else scale, width)


def is_matrix(one: Tensor, width: int) -> bool:
    """Whether it is a map, and no bias; that of all heads may have two axes."""
    return one.numel() >= D_K * width and one.numel() != max(one.shape)


def _fill_matrix(weight: Tensor, scale: float, width: int) -> None:
    """Fill a matrix, or a stack of them; a head may have an axis of its own."""
    sizes = [size for size in weight.shape if size != 1]
    if len(sizes) == 2 or all(size % D_K == 0 for size in sizes[-2:]):
        one = pattern(*sizes[-2:], scale)
        weight.copy_(one.expand(sizes).reshape(weight.shape))
    elif width in sizes and D_K in sizes:
        at, to = sizes.index(width), len(sizes) - 1 - sizes[::-1].index(D_K)
        one = pattern(width, D_K, scale)
        shape = [size if axis in (at, to) else 1 for axis, size in enumerate(sizes)]
        one = (one if at < to else one.T).reshape(shape)
        weight.copy_(one.expand(sizes).reshape(weight.shape))


class Block(NamedTuple):
    """The parts of a layer, right unless one is replaced."""

    first: bool  # norm_first
    train: bool
    scale: float
    width: int
    adds: tuple[Callable, ...] = (right_add,) * 3
    attention: Callable = Layer.__call__  # of (layer, query, key, value, mask)
    asking: Callable = Layer.__call__
    bend: Callable = torch.relu
    end: Callable = lambda y: y
    norming: Callable = lambda x: standard(x)

    def norm(self, x: Tensor) -> Tensor:
        """Norm every vector, with the gain that all norms have."""
        return self.norming(x) * gain(self.width)

    def add(self, place: int, x: Tensor, sublayer: Callable) -> Tensor:
        """Wrap the sub-layer of this place."""
        return self.adds[place](self.norm, self.first, x, sublayer)

    def attend(self, query: Tensor, source: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Attend to the sentence itself, with all heads."""
        return self._all_heads(self.attention, query, source, value, mask)

    def ask(self, query: Tensor, source: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Attend to another sentence, with all heads."""
        return self._all_heads(self.asking, query, source, value, mask)

    def _all_heads(self, attention: Callable, *inputs: Tensor | None) -> Tensor:
        one = Map(pattern(self.width, self.width, self.scale))
        layer = Layer(dict.fromkeys("qkvo", one), SIZES[self.width][0])
        return attention(layer, *inputs)

    def feed(self, x: Tensor) -> Tensor:
        """The feed-forward network."""
        weight = pattern(SIZES[self.width][1], self.width, self.scale)
        return self.end(self.bend(x @ weight.T) @ weight)


def with_parts(**parts: Callable) -> Callable:
    """A change of a block."""
    return lambda block: block._replace(**parts)


def with_add(rule: Callable, *places: int) -> Callable:
    """A change of how the sub-layers of these places are wrapped."""
    return lambda block: block._replace(
        adds=tuple(rule if at in places else add for at, add in enumerate(block.adds))
    )
