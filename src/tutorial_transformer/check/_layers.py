"""Somebody's encoder or decoder layer: built, filled, called, counted."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tutorial_transformer.check._answers import settled
from tutorial_transformer.check._block import SIZES, Block, fill
from tutorial_transformer.check._building import build
from tutorial_transformer.check._calling import parameters_of
from tutorial_transformer.check._inputs import numbers, output_of


class Student:
    """A class as a function of (norm_first, train, scale, x, ...), dropout 0."""

    def __init__(self, cls: object, inputs: int) -> None:
        self.cls, self.inputs, self.modules = cls, inputs, {}

    def __call__(self, first: bool, train: bool, scale: float, x: Tensor, *rest) -> Tensor:
        """Build and fill a layer once for each order, scale and width, and call it."""
        key = first, scale, x.shape[-1]
        if key not in self.modules:
            self.modules[key] = self.build(first, x.shape[-1], scale)
        return output_of(run(self.modules[key].train(train), x, *rest))

    def build(self, first: bool, width: int, scale: float, dropout=0.0, feed=None) -> nn.Module:
        """Build a layer and fill its parameters; feed is the scale of the feed-forward network."""
        module = self.made(first, width, dropout)
        fill(module, width, scale, feed)
        return module

    def made(self, first: bool, width: int, dropout: float = 0.0) -> nn.Module:
        """Build a layer, and call it once, for what is made late is made then."""
        module = build(self.cls, width, *SIZES[width], dropout=dropout, norm_first=first)
        run(module.eval(), *(numbers((1, 2, width)) for _ in range(self.inputs)))
        return module


def run(module: nn.Module, *inputs: Tensor | None) -> object:
    """Call a layer, and put the default dtype back for the call after it."""
    dtype = torch.get_default_dtype()
    try:
        return settled(_run(module, *inputs))
    finally:
        torch.set_default_dtype(dtype)


def _run(module: nn.Module, *inputs: Tensor | None) -> object:
    """Torch's own layers get their masks in torch's form."""
    forward, heads = type(module).forward, SIZES[inputs[0].shape[-1]][0]
    if forward is nn.TransformerEncoderLayer.forward:
        x, mask = (*inputs, None)[:2]
        return module(x, _torchs(mask, x, x, heads))
    if forward is nn.TransformerDecoderLayer.forward:
        x, memory, own, source = (*inputs, None, None)[:4]
        return module(x, memory, _torchs(own, x, x, heads), _torchs(source, x, memory, heads))
    placed, named = _placed(module, inputs)
    return module(*placed, **named)


def _placed(module: nn.Module, inputs: tuple) -> tuple[tuple, dict]:
    """Add masks of None that a layer asks for, and name what it takes by name only."""
    given = list(parameters_of(module.forward).values())
    if any(one.kind is one.VAR_POSITIONAL for one in given):
        return inputs, {}
    places = [one for one in given if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    inputs += (None,) * (sum(one.default is one.empty for one in places) - len(inputs))
    names = [one.name for one in given if one.kind is one.KEYWORD_ONLY]
    count = len(places) if names else len(inputs)
    return inputs[:count], dict(zip(names, inputs[count:], strict=False))


def _torchs(mask: Tensor | None, query: Tensor, key: Tensor, heads: int) -> Tensor | None:
    if mask is None:
        return None
    whole = mask.expand(len(query), query.shape[1], key.shape[1])
    return ~whole.repeat_interleave(heads, dim=0)


def suspect(wire: Callable, change: Callable = lambda block: block) -> Callable:
    """A layer with a mistake, as a function of a case's arguments."""
    return lambda first, train, scale, x, *rest: wire(
        change(Block(first, train, scale, x.shape[-1])), x, *rest
    )
