"""A decoder layer, and what people do wrong with its masks and with the source."""

from collections.abc import Callable

import torch
from torch import Tensor

from tutorial_transformer.check._block import Block
from tutorial_transformer.check._mistakes import Mistake

HIDE = "chapter 08, 2. Hide the future, keep yourself"
ASK = "chapter 08, 4. Ask the source: cross-attention"
Mask = Tensor | None


def wire(b: Block, x: Tensor, memory: Tensor, own: Mask = None, source: Mask = None) -> Tensor:
    """Masked self-attention, cross-attention, feed-forward network, rightly."""
    x = b.add(0, x, lambda y: b.attend(y, y, y, own))
    x = b.add(1, x, lambda y: b.ask(y, memory, memory, source))
    return b.add(2, x, b.feed)


def _past(x: Tensor) -> Tensor:
    return x.new_ones(1, x.shape[1], x.shape[1]).bool().tril()


def _asking(cross: Callable) -> Mistake:
    """A mistake in the cross-attention alone: cross(b, y, x, memory, own, source)."""

    def run(b: Block, x: Tensor, memory: Tensor, own: Mask = None, source: Mask = None) -> Tensor:
        mid = b.add(0, x, lambda y: b.attend(y, y, y, own))
        mid = b.add(1, mid, lambda y: cross(b, y, x, memory, own, source))
        return b.add(2, mid, b.feed)

    return Mistake(ASK, run)


MASKS = {
    "tgt_mask has no effect: the future leaks in": Mistake(
        HIDE, lambda b, x, memory, own=None, source=None: wire(b, x, memory, None, source)
    ),
    "src_mask has no effect: the source's pads are read": Mistake(
        ASK, lambda b, x, memory, own=None, source=None: wire(b, x, memory, own)
    ),
    "both masks have no effect": Mistake(HIDE, lambda b, x, memory, *masks: wire(b, x, memory)),
    "tgt_mask and src_mask have changed places": Mistake(
        ASK, lambda b, x, memory, own=None, source=None: wire(b, x, memory, source, own)
    ),
    "the masks are obeyed in training mode only": Mistake(
        HIDE, lambda b, x, memory, *masks: wire(b, x, memory, *(masks if b.train else ()))
    ),
    "the masks are obeyed in evaluation mode only": Mistake(
        HIDE, lambda b, x, memory, *masks: wire(b, x, memory, *(() if b.train else masks))
    ),
    "tgt_mask is obeyed in training mode only: in evaluation mode the future leaks in": Mistake(
        HIDE,
        lambda b, x, memory, own=None, source=None: wire(
            b, x, memory, own if b.train else None, source
        ),
    ),
    "src_mask is obeyed in training mode only": Mistake(
        ASK,
        lambda b, x, memory, own=None, source=None: wire(
            b, x, memory, own, source if b.train else None
        ),
    ),
    "src_mask is obeyed in evaluation mode only": Mistake(
        ASK,
        lambda b, x, memory, own=None, source=None: wire(
            b, x, memory, own, None if b.train else source
        ),
    ),
    "the future is hidden although no mask says so: tgt_mask alone decides": Mistake(
        HIDE,
        lambda b, x, memory, own=None, source=None: wire(
            b, x, memory, _past(x) if own is None else own & _past(x), source
        ),
    ),
    "no position sees itself: tgt_mask hides the future, not the diagonal": Mistake(
        HIDE,
        lambda b, x, memory, own=None, source=None: wire(
            b, x, memory, None if own is None else own & ~torch.eye(x.shape[1]).bool(), source
        ),
    ),
    "the target's mask is used in the cross-attention; it needs src_mask": _asking(
        lambda b, y, x, memory, own, source: b.attend(y, memory, memory, own)
    ),
    "both masks reach the self-attention, none the cross-attention": Mistake(
        ASK,
        lambda b, x, memory, own=None, source=None: wire(
            b, x, memory, own if source is None or own is None else own & source
        ),
    ),
}
SOURCES = {
    "memory is not used: the second attention reads the target once more": _asking(
        lambda b, y, x, memory, own, source: b.attend(y, y, y, own)
    ),
    "memory is not used: the second attention reads the target, without a mask": _asking(
        lambda b, y, x, memory, own, source: b.attend(y, y, y, None)
    ),
    "the cross-attention takes its queries from memory; they come from the target": _asking(
        lambda b, y, x, memory, own, source: b.attend(memory, y, y, own)
    ),
    "the cross-attention takes all three from memory; queries come from the target": _asking(
        lambda b, y, x, memory, own, source: b.attend(memory, memory, memory, source)
    ),
    "the cross-attention takes its values from the target; they come from memory": _asking(
        lambda b, y, x, memory, own, source: b.attend(y, memory, y, source)
    ),
    "the cross-attention takes its keys from the target; they come from memory": _asking(
        lambda b, y, x, memory, own, source: b.attend(y, y, memory, source)
    ),
    "the cross-attention's queries are the layer's input; they come from the sub-layer before it": (
        _asking(lambda b, y, x, memory, own, source: b.attend(x, memory, memory, source))
    ),
    "memory is normed in the layer; the encoder has done that": _asking(
        lambda b, y, x, memory, own, source: b.attend(y, b.norm(memory), b.norm(memory), source)
    ),
    "in pre-norm order memory is normed in the layer; the encoder has done that": _asking(
        lambda b, y, x, memory, own, source: (
            b.attend(y, b.norm(memory), b.norm(memory), source)
            if b.first
            else b.ask(y, memory, memory, source)
        )
    ),
}
