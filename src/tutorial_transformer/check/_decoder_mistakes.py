"""The mistakes that people make in a decoder layer, each under its sentence."""

from collections.abc import Callable

from torch import Tensor

from tutorial_transformer.check._adding_mistakes import ADD
from tutorial_transformer.check._block import Block
from tutorial_transformer.check._layer_mistakes import mistakes
from tutorial_transformer.check._mistakes import Mistake
from tutorial_transformer.check._source_mistakes import ASK, MASKS, SOURCES, Mask, wire

THREE = "chapter 08, 5. Assemble three sub-layers"


def _cross_first(b, x, memory, own=None, source=None) -> Tensor:
    x = b.add(1, x, lambda y: b.ask(y, memory, memory, source))
    x = b.add(0, x, lambda y: b.attend(y, y, y, own))
    return b.add(2, x, b.feed)


def _feed_early(b, x, memory, own=None, source=None) -> Tensor:
    x = b.add(0, x, lambda y: b.attend(y, y, y, own))
    x = b.add(2, x, b.feed)
    return b.add(1, x, lambda y: b.ask(y, memory, memory, source))


def _with(place: int, adds: int, reads: int) -> Callable:
    """A layer in which one sub-layer adds, or reads, what stood before an earlier one."""

    def run(b: Block, x: Tensor, memory: Tensor, own: Mask = None, source: Mask = None) -> Tensor:
        stream, parts = [x], _parts(b, memory, own, source)
        for at, part in enumerate(parts):
            shortcut = stream[adds] if at == place else stream[-1]
            read = stream[reads] if at == place else stream[-1]
            if b.first:
                stream.append(shortcut + part(b.norm(read)))
            else:
                stream.append(b.norm(shortcut + part(read)))
        return stream[-1]

    return run


def _parts(b: Block, memory: Tensor, own: Mask, source: Mask) -> tuple:
    return (
        lambda y: b.attend(y, y, y, own),
        lambda y: b.ask(y, memory, memory, source),
        b.feed,
    )


def _without(place: int) -> Callable:
    """A layer that lacks one sub-layer."""

    def run(b: Block, x: Tensor, memory: Tensor, own: Mask = None, source: Mask = None) -> Tensor:
        for at, part in enumerate(_parts(b, memory, own, source)):
            x = x if at == place else b.add(at, x, part)
        return x

    return run


def _side_by_side(b, x, memory, own=None, source=None) -> Tensor:
    own_and_source = _parts(b, memory, own, source)[:2]
    x = b.add(0, x, lambda y: sum(part(y) for part in own_and_source))
    return b.add(2, x, b.feed)


ORDERS = {
    "the self-attention is missing": Mistake(THREE, _without(0)),
    "the cross-attention is missing: memory is not used": Mistake(ASK, _without(1)),
    "the feed-forward network is missing": Mistake(THREE, _without(2)),
    "the cross-attention comes first; the self-attention does": Mistake(THREE, _cross_first),
    "the feed-forward network stands before the cross-attention; it comes last": (
        Mistake(THREE, _feed_early)
    ),
    "both attentions stand side by side; one comes after the other": (
        Mistake(THREE, _side_by_side)
    ),
    "the cross-attention's residual adds the layer's input, so that the self-attention is lost": (
        Mistake(ADD, _with(1, 0, -1))
    ),
    "the feed-forward network's residual adds the layer's input, so that the attention is lost": (
        Mistake(ADD, _with(2, 0, -1))
    ),
    "the feed-forward network's residual adds what stood before the cross-attention": (
        Mistake(ADD, _with(2, 1, -1))
    ),
    "the feed-forward network reads the layer's input": Mistake(THREE, _with(2, -1, 0)),
    "the feed-forward network reads what stood before the cross-attention": (
        Mistake(THREE, _with(2, -1, 1))
    ),
    "the layer's input goes into the cross-attention; the self-attention's output must": (
        Mistake(THREE, _with(1, 0, 0))
    ),
    "one norm too many: a layer's output is normed again": Mistake(
        THREE, lambda b, *inputs: b.norm(wire(b, *inputs))
    ),
    "in pre-norm order one norm too many: the last norm belongs to the stack, not to the layer": (
        Mistake(THREE, lambda b, *i: b.norm(wire(b, *i)) if b.first else wire(b, *i))
    ),
    "attention runs across the batch, not along the sentence (batch_first?)": Mistake(
        THREE,
        lambda b, x, memory, own=None, source=None: wire(
            b, x.transpose(0, 1), memory.transpose(0, 1), own, source
        ).transpose(0, 1),
    ),
}
LAYER = mistakes(
    wire,
    MASKS | SOURCES | ORDERS,
    "self-attention",
    "cross-attention",
    "feed-forward network",
)
