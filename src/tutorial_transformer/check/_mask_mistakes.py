"""The mistakes that people make in masks, each under the sentence that names it."""

import torch
from torch import Tensor

from tutorial_transformer import masks
from tutorial_transformer.check._mistakes import FUTURE, POLARITY, Mistake

PADDING = "chapter 01, 2. Hide the padding, on the key axis"
COMBINE = "chapter 01, 4. Combine masks with &"
INVERTED = (
    "the mask is inverted: your True means hide, as in nn.MultiheadAttention; here True = may "
    "attend"
)


def _ones(q_len: int, k_len: int | None = None) -> Tensor:
    return torch.ones(1, q_len, k_len or q_len, dtype=torch.bool)


def _right_only(ids: Tensor, pad_id: int = 0) -> Tensor:
    """Count the real tokens and show as many from the left."""
    return (torch.arange(ids.shape[1]) < (ids != pad_id).sum(1, keepdim=True))[:, None]


def _both_axes(ids: Tensor, pad_id: int = 0) -> Tensor:
    return (ids != pad_id)[:, :, None] & (ids != pad_id)[:, None]


def _causal(ids: Tensor) -> Tensor:
    return _ones(ids.shape[1]).tril()


def _itself(ids: Tensor) -> Tensor:
    return torch.eye(ids.shape[1], dtype=torch.bool)


CAUSAL = {
    INVERTED: Mistake(POLARITY, lambda q, k=None: ~masks.causal_mask(q, k)),
    "the mask is upside down: a query sees the future and itself, not the past": (
        Mistake(FUTURE, lambda q, k=None: _ones(q, k).triu((k or q) - q))
    ),
    "the mask is upside down, and with more keys it is aligned top-left: a query sees the future": (
        Mistake(FUTURE, lambda q, k=None: _ones(q, k).triu())
    ),
    "the mask is inverted, True = hide, and with more keys it is aligned top-left": (
        Mistake(POLARITY, lambda q, k=None: _ones(q, k).triu(1))
    ),
    "rows and columns are exchanged: rows are queries, columns keys": (
        Mistake(FUTURE, lambda q, k=None: masks.causal_mask(q, k).mT)
    ),
    "rows and columns are exchanged: rows are queries, columns keys; and with more keys it is "
    "aligned top-left": Mistake(FUTURE, lambda q, k=None: _ones(q, k).tril().mT),
    "the diagonal is hidden: a query must see itself": (
        Mistake(FUTURE, lambda q, k=None: _ones(q, k).tril((k or q) - q - 1))
    ),
    "one key of the future is visible: the diagonal is off by one": (
        Mistake(FUTURE, lambda q, k=None: _ones(q, k).tril((k or q) - q + 1))
    ),
    "with more keys than queries the mask is aligned top-left; a new token must see all earlier "
    "keys": Mistake(FUTURE, lambda q, k=None: _ones(q, k).tril()),
    "k_len is ignored: a mask for a cache has more columns than rows": (
        Mistake(FUTURE, lambda q, k=None: _ones(q).tril())
    ),
    "it is k_len × k_len: a row for each key; only the last q_len rows are queries": (
        Mistake(FUTURE, lambda q, k=None: _ones(k or q).tril())
    ),
    "nothing is hidden: the future is visible": Mistake(FUTURE, _ones),
    "a query sees itself only: the past is hidden": (
        Mistake(FUTURE, lambda q, k=None: _ones(q, k).tril((k or q) - q).triu((k or q) - q))
    ),
}

PADDED = {
    INVERTED: Mistake(POLARITY, lambda ids, pad=0: ids[:, None] == pad),
    "the mask stands on the query axis: hide padding as a key, (batch, 1, k_len)": (
        Mistake(PADDING, lambda ids, pad=0: (ids != pad)[:, :, None])
    ),
    "pad_id is ignored: the padding is not always id 0": (
        Mistake(PADDING, lambda ids, pad=0: ids[:, None] != 0)
    ),
    "ids above pad_id are shown, not all ids but pad_id": (
        Mistake(PADDING, lambda ids, pad=0: ids[:, None] > pad)
    ),
    "padding is hidden at the right end only: compare the ids, do not count them": (
        Mistake(PADDING, _right_only)
    ),
    "padding is hidden as a query too: (batch, 1, k_len) hides keys, the same for all queries": (
        Mistake(PADDING, _both_axes)
    ),
    "one row's padding is hidden in all rows: each row of the batch has its own": (
        Mistake(PADDING, lambda ids, pad=0: (ids[:1, None] != pad).expand(len(ids), 1, -1))
    ),
    "what is padding in one row is hidden in all rows: each row of the batch has its own": (
        Mistake(PADDING, lambda ids, pad=0: (ids != pad).all(0).expand(len(ids), 1, -1))
    ),
    "all that stands behind the first pad is hidden: hide the pads alone": (
        Mistake(PADDING, lambda ids, pad=0: ((ids == pad).cumsum(1) == 0)[:, None])
    ),
    "the future is hidden as well: a padding mask hides padding only": (
        Mistake(PADDING, masks.target_mask)
    ),
    "nothing is hidden: the padding is visible": (
        Mistake(PADDING, lambda ids, pad=0: torch.ones_like(ids, dtype=torch.bool)[:, None])
    ),
}

TARGET = {
    INVERTED: Mistake(POLARITY, lambda ids, pad=0: ~masks.target_mask(ids, pad)),
    "the padding stays visible: the mask is only causal": (
        Mistake(COMBINE, lambda ids, pad=0: _causal(ids))
    ),
    "the future stays visible: the mask hides only padding": (
        Mistake(COMBINE, lambda ids, pad=0: masks.padding_mask(ids, pad))
    ),
    "a key needs only one of two permissions: join may-attend masks with &, hide masks with |": (
        Mistake(COMBINE, lambda ids, pad=0: masks.padding_mask(ids, pad) | _causal(ids))
    ),
    "the padding is hidden on the query axis: pads stay visible as keys": (
        Mistake(PADDING, lambda ids, pad=0: (ids != pad)[:, :, None] & _causal(ids))
    ),
    "padding queries see nothing: hide padding on the key axis only": (
        Mistake(PADDING, lambda ids, pad=0: _both_axes(ids, pad) & _causal(ids))
    ),
    "the causal half is upside down: a query sees the future, not the past": (
        Mistake(FUTURE, lambda ids, pad=0: masks.padding_mask(ids, pad) & _causal(ids).mT)
    ),
    "the causal half is inverted: there True means hide": (
        Mistake(POLARITY, lambda ids, pad=0: masks.padding_mask(ids, pad) & ~_causal(ids))
    ),
    "the padding half is inverted: there True means hide": (
        Mistake(POLARITY, lambda ids, pad=0: ~masks.padding_mask(ids, pad) & _causal(ids))
    ),
    "the diagonal is hidden: a query must see itself": Mistake(
        FUTURE, lambda ids, pad=0: masks.padding_mask(ids, pad) & _causal(ids) & ~_itself(ids)
    ),
    "a padding query sees itself: padding is hidden for every query": (
        Mistake(PADDING, lambda ids, pad=0: masks.target_mask(ids, pad) | _itself(ids))
    ),
    "pad_id is ignored: the padding is not always id 0": (
        Mistake(PADDING, lambda ids, pad=0: masks.target_mask(ids, 0))
    ),
    "padding is hidden at the right end only: compare the ids, do not count them": (
        Mistake(PADDING, lambda ids, pad=0: _right_only(ids, pad) & _causal(ids))
    ),
    "one row's padding is hidden in all rows: each row of the batch has its own": Mistake(
        PADDING, lambda ids, pad=0: masks.target_mask(ids[:1], pad).expand(len(ids), -1, -1)
    ),
    "what is padding in one row is hidden in all rows: each row of the batch has its own": Mistake(
        PADDING, lambda ids, pad=0: ((ids != pad).all(0) & _causal(ids)).expand(len(ids), -1, -1)
    ),
    "one key of the future is visible: the diagonal is off by one": Mistake(
        FUTURE, lambda ids, pad=0: masks.padding_mask(ids, pad) & _ones(ids.shape[1]).tril(1)
    ),
}
