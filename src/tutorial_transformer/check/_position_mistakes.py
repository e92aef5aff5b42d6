"""The mistakes that people make when they look up vectors and add positions to them."""

from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor

from tutorial_transformer.check._mistakes import Mistake
from tutorial_transformer.check._wave_mistakes import WAVES, waves

LOOKUP = "chapter 05, 1. Look up a vector for each id"
PAD = "chapter 05, 2. Silence the pad row, and mask it all the same"
SIZE = "chapter 05, 3. Match the size of tokens to the size of positions"
ONCE = "chapter 05, 8. Add once, at the bottom"
BUFFER = "chapter 05, 9. Store the table as a buffer, and pass an offset"


def _placed(x: Tensor, offset: int = 0) -> Tensor:
    return waves(offset + x.shape[1], x.shape[-1])[offset:]


ADDED = {
    "each sample gets a position; each time step must: x is (batch, length, d_model)": Mistake(
        WAVES, lambda x, offset=0: x + waves(len(x), x.shape[-1])[:, None]
    ),
    "every time step gets position 0": (
        Mistake(WAVES, lambda x, offset=0: x + waves(1, x.shape[-1]))
    ),
    "every time step gets the last position": (
        Mistake(WAVES, lambda x, offset=0: x + _placed(x, offset)[-1:])
    ),
    "the offset has no effect: the first new token looks like position 0": Mistake(
        BUFFER, lambda x, offset=0: x + _placed(x)
    ),
    "the offset is one too large": (
        Mistake(BUFFER, lambda x, offset=0: x + _placed(x, offset + (offset > 0)))
    ),
    "the offset is one too small": (
        Mistake(BUFFER, lambda x, offset=0: x + _placed(x, max(offset - 1, 0)))
    ),
    "all positions of a call become the offset's": (
        Mistake(BUFFER, lambda x, offset=0: x + _placed(x[:, :1], offset))
    ),
    "the positions alone come back; add x": Mistake(
        ONCE, lambda x, offset=0: _placed(x, offset).expand_as(x)
    ),
    "the positions are not added: x comes back": Mistake(ONCE, lambda x, offset=0: x),
    "x is multiplied by √d_model here; that is the embedding's part": Mistake(
        SIZE, lambda x, offset=0: x * x.shape[-1] ** 0.5 + _placed(x, offset)
    ),
    "the positions are multiplied by √d_model; only the embedding is": Mistake(
        SIZE, lambda x, offset=0: x + _placed(x, offset) * x.shape[-1] ** 0.5
    ),
    "x is multiplied by the positions; add them": Mistake(
        ONCE, lambda x, offset=0: x * _placed(x, offset)
    ),
    "the positions are added twice": Mistake(ONCE, lambda x, offset=0: x + 2 * _placed(x, offset)),
    "the positions are subtracted": Mistake(ONCE, lambda x, offset=0: x - _placed(x, offset)),
}


def _scaled(rule: Callable) -> Callable:
    return lambda table, ids: table[ids] * rule(*table.shape)


TOKENS = {
    "the vectors are not multiplied by √d_model": Mistake(SIZE, _scaled(lambda v, d: 1.0)),
    "the vectors are multiplied by d_model; wanted its root": (
        Mistake(SIZE, _scaled(lambda v, d: d))
    ),
    "the vectors are divided by √d_model; multiply": Mistake(SIZE, _scaled(lambda v, d: d**-0.5)),
    "the factor is the root of the vocabulary's size; wanted √d_model": (
        Mistake(SIZE, _scaled(lambda v, d: v**0.5))
    ),
    "positions are added here; that is another module's part": Mistake(
        ONCE,
        lambda table, ids: table[ids] * table.shape[1] ** 0.5 + waves(ids.shape[1], table.shape[1]),
    ),
    "the vectors are normed, as by LayerNorm": Mistake(
        SIZE,
        lambda table, ids: F.layer_norm(table[ids], table.shape[1:]) * table.shape[1] ** 0.5,
    ),
    "the vectors are normed to one length": Mistake(
        SIZE,
        lambda table, ids: table[ids] / table[ids].norm(dim=-1, keepdim=True).clamp(min=1e-9),
    ),
}
