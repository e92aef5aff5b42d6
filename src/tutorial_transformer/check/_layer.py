"""Multi-head attention with somebody's projections, of which parts can be replaced."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from tutorial_transformer.check._roles import Map, Roles
from tutorial_transformer.check._weight_mistakes import attend


def split(x: Tensor, heads: int) -> Tensor:
    """Cut the last axis and move the heads next to the batch."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge(x: Tensor) -> Tensor:
    """Undo split."""
    return x.transpose(1, 2).flatten(2)


class Layer(NamedTuple):
    """Multi-head attention with somebody's projections, right unless a part is replaced."""

    roles: Roles
    heads: int
    split: Callable = split
    merge: Callable = merge
    core: Callable = attend
    see: Callable = lambda mask: mask[:, None]

    def inside(self, query, key, value, mask=None) -> tuple[Tensor | None, ...]:
        """Project and split: the queries, keys and values of all heads, and their mask."""
        named = zip("qkv", (query, key, value), strict=True)
        parts = [self.split(apply(self.roles[role], x), self.heads) for role, x in named]
        return (*parts, None if mask is None else self.see(mask))

    def __call__(self, query, key, value, mask=None, train=False) -> Tensor:
        """Project, split, attend, merge, project."""
        output = self.core(*self.inside(query, key, value, mask))
        return apply(self.roles["o"], self.merge(output))


def apply(one: Map, x: Tensor) -> Tensor:
    """Project the vectors."""
    return x @ one.weight.T + one.bias


def by(**parts: Callable) -> Callable:
    """A layer in which these parts are replaced."""
    return lambda layer, *inputs: layer._replace(**parts)(*inputs)


def with_roles(change: Callable) -> Callable:
    """A layer in which the projections are others."""
    return lambda layer, *inputs: layer._replace(roles=layer.roles | change(layer.roles))(*inputs)
