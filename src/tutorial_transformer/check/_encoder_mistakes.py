"""The mistakes that people make in an encoder layer, each under its sentence."""

from torch import Tensor

from tutorial_transformer.check._adding_mistakes import ADD
from tutorial_transformer.check._block import Block
from tutorial_transformer.check._inputs import causal
from tutorial_transformer.check._layer_mistakes import mistakes
from tutorial_transformer.check._mistakes import Mistake

ASSEMBLE = "chapter 07, 1. Assemble one layer from four parts"
PADS = "chapter 07, 7. Pad without leaving a trace"
REACH = "chapter 07, 6. Trace who reaches whom in one layer"


def wire(block: Block, x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Self-attention, then the feed-forward network, rightly."""
    x = block.add(0, x, lambda y: block.attend(y, y, y, mask))
    return block.add(1, x, block.feed)


def _swapped(block: Block, x: Tensor, mask: Tensor | None = None) -> Tensor:
    x = block.add(1, x, block.feed)
    return block.add(0, x, lambda y: block.attend(y, y, y, mask))


def _side_by_side(block: Block, x: Tensor, mask: Tensor | None = None) -> Tensor:
    both = lambda y: block.attend(y, y, y, mask) + block.feed(y)  # noqa: E731
    return block.add(0, x, both)


def _stale_sum(block: Block, x: Tensor, mask: Tensor | None = None) -> Tensor:
    mid = block.add(0, x, lambda y: block.attend(y, y, y, mask))
    if block.first:
        return x + block.feed(block.norm(mid))
    return block.norm(x + block.feed(mid))


def _stale_input(block: Block, x: Tensor, mask: Tensor | None = None) -> Tensor:
    mid = block.add(0, x, lambda y: block.attend(y, y, y, mask))
    if block.first:
        return mid + block.feed(block.norm(x))
    return block.norm(mid + block.feed(x))


def _unequal(block: Block, x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Queries are normed in pre-norm order, keys and values are not."""
    return block.add(1, block.add(0, x, lambda y: block.attend(y, x, x, mask)), block.feed)


WIRES = {
    "the mask has no effect: it must reach the attention": (
        Mistake(PADS, lambda b, x, m=None: wire(b, x))
    ),
    "the mask is obeyed in training mode only": (
        Mistake(PADS, lambda b, x, m=None: wire(b, x, m if b.train else None))
    ),
    "the mask is obeyed in evaluation mode only": (
        Mistake(PADS, lambda b, x, m=None: wire(b, x, None if b.train else m))
    ),
    "the future is hidden although no mask says so: an encoder looks both ways": Mistake(
        REACH,
        lambda b, x, m=None: wire(
            b,
            x,
            causal(x.shape[1], x.shape[1]) if m is None else m & causal(x.shape[1], x.shape[1]),
        ),
    ),
    "attention runs across the batch, not along the sentence (batch_first?)": Mistake(
        REACH, lambda b, x, m=None: wire(b, x.transpose(0, 1), m).transpose(0, 1)
    ),
    "the feed-forward network is missing": (
        Mistake(ASSEMBLE, lambda b, x, m=None: b.add(0, x, lambda y: b.attend(y, y, y, m)))
    ),
    "the attention is missing": Mistake(ASSEMBLE, lambda b, x, m=None: b.add(1, x, b.feed)),
    "the feed-forward network comes first; the attention does": Mistake(ASSEMBLE, _swapped),
    "attention and feed-forward network stand side by side; one comes after the other": (
        Mistake(ASSEMBLE, _side_by_side)
    ),
    "the feed-forward network's residual adds the layer's input, so that the attention is lost": (
        Mistake(ADD, _stale_sum)
    ),
    "the feed-forward network reads the layer's input, not what attention has made of it": (
        Mistake(ASSEMBLE, _stale_input)
    ),
    "in pre-norm order only the queries are normed; keys and values must be, too": (
        Mistake(ASSEMBLE, _unequal)
    ),
    "one norm too many: a layer's output is normed again": Mistake(
        ASSEMBLE, lambda b, x, m=None: b.norm(wire(b, x, m))
    ),
    "in pre-norm order one norm too many: the last norm belongs to the stack, not to the layer": (
        Mistake(ASSEMBLE, lambda b, x, m=None: b.norm(wire(b, x, m)) if b.first else wire(b, x, m))
    ),
    "in post-norm order one norm too many: a layer's output is normed again": Mistake(
        ASSEMBLE, lambda b, x, m=None: wire(b, x, m) if b.first else b.norm(wire(b, x, m))
    ),
}
LAYER = mistakes(wire, WIRES, "attention", "feed-forward network")
