"""The mistakes that people make when they cut vectors into heads and merge them again."""

from tutorial_transformer.check._layer import merge, split
from tutorial_transformer.check._mistakes import CUT, SCRAMBLE, Mistake

SPLITTING = {
    "a view alone cannot cut the last axis: positions get scrambled; cut it, then transpose": (
        Mistake(CUT, lambda x, h: x.reshape(len(x), h, x.shape[1], -1))
    ),
    "the transpose is missing: the heads must stand next to the batch, before the length": (
        Mistake(CUT, lambda x, h: split(x, h).transpose(1, 2))
    ),
    "the last two axes are exchanged: wanted (batch, heads, length, d_k)": (
        Mistake(CUT, lambda x, h: split(x, h).mT)
    ),
    "batch and heads are exchanged: wanted (batch, heads, length, d_k)": (
        Mistake(CUT, lambda x, h: split(x, h).transpose(0, 1))
    ),
    "batch and heads became one axis: wanted (batch, heads, length, d_k)": (
        Mistake(CUT, lambda x, h: split(x, h).flatten(0, 1))
    ),
    "batch and heads became one axis by a view alone: positions get scrambled; wanted (batch, "
    "heads, length, d_k)": Mistake(CUT, lambda x, h: x.reshape(len(x) * h, x.shape[1], -1)),
    "each head takes every h-th feature; it must take d_k neighbours": (
        Mistake(CUT, lambda x, h: x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2))
    ),
    "the length is cut, not the vectors: each head must see every position": (
        Mistake(CUT, lambda x, h: x.unflatten(1, (h, -1)))
    ),
    "num_heads and d_k are exchanged": (
        Mistake(CUT, lambda x, h: x.unflatten(-1, (-1, h)).transpose(1, 2))
    ),
    "nothing is cut: every head holds the whole vector": (
        Mistake(CUT, lambda x, h: x[:, None].repeat(1, h, 1, 1))
    ),
}

MERGING = {
    "a view alone cannot merge: positions get scrambled; move the heads back first (transpose)": (
        Mistake(SCRAMBLE, lambda x: x.reshape(len(x), x.shape[2], -1))
    ),
    "the features of the heads are interleaved; lay the heads side by side": (
        Mistake(CUT, lambda x: x.permute(0, 2, 3, 1).flatten(2))
    ),
    "the last two axes of the heads are exchanged before they are merged": (
        Mistake(CUT, lambda x: merge(x.mT) if x.shape[2] == x.shape[3] else x.mT.transpose(1, 2))
    ),
    "the heads are summed; lay them side by side": Mistake(CUT, lambda x: x.sum(1)),
    "the heads are averaged; lay them side by side": Mistake(CUT, lambda x: x.mean(1)),
    "only the first head is kept; lay all side by side": Mistake(CUT, lambda x: x[:, 0]),
    "the heads are laid one after the other along the length; lay them side by side": (
        Mistake(CUT, lambda x: x.flatten(1, 2))
    ),
    "the heads are moved back but not merged into one axis": (
        Mistake(CUT, lambda x: x.transpose(1, 2))
    ),
}
