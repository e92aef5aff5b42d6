"""Scaled dot-product attention: every query takes a weighted average of the values.

    Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V          Vaswani et al. 2017, eq. (1)

The three functions below are the three steps of that line, read from the inside out:
compare queries with keys, turn the comparisons into weights, average the values.
None of them has parameters; the learned projections live one floor up, in multi_head.py.

Axis names
    *batch   any leading axes: none, (batch,), or (batch, heads)
    q_len    queries, the rows of an attention map
    k_len    keys and values, its columns
    d_k      width of a query and of a key
    d_v      width of a value
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from tutorial_transformer import _checks as check


def _check_query_key(query: Tensor, key: Tensor) -> None:
    check.vectors("query", query)
    check.vectors("key", key)
    for name, x in (("query", query), ("key", key)):
        if x.ndim < 2:
            raise ValueError(f"{name} must have shape (*batch, length, d_k), got {tuple(x.shape)}")
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(
            f"query and key must have the same width, got {query.shape[-1]} and {key.shape[-1]}"
        )
    if query.shape[:-2] != key.shape[:-2]:
        raise ValueError(
            "query and key must have the same leading axes, "
            f"got {tuple(query.shape)} and {tuple(key.shape)}"
        )


@check.first(_check_query_key)
def attention_scores(
    query: Float[Tensor, "*batch q_len d_k"],
    key: Float[Tensor, "*batch k_len d_k"],
) -> Float[Tensor, "*batch q_len k_len"]:
    """Compare every query with every key by a dot product, divided by √d_k.

    The dot product of two random vectors with unit-variance entries has variance d_k.
    Dividing by √d_k brings it back to 1, where softmax still has a useful gradient.
    Raises ValueError when the widths or the leading axes differ.
    """
    d_k = query.shape[-1]
    # Scaling the query, not the product, keeps half precision from overflowing in the sum.
    return (query / math.sqrt(d_k)) @ key.transpose(-2, -1)


def _check_scores_mask(scores: Tensor, mask: Tensor | None = None) -> None:
    check.vectors("scores", scores)
    if mask is None:
        return
    check.boolean_mask("mask", mask)
    wanted = scores.shape[scores.ndim - mask.ndim :] if mask.ndim <= scores.ndim else ()
    fits = mask.ndim >= 2 and len(wanted) == mask.ndim and mask.shape[-1] == wanted[-1]
    fits = fits and all(m in (1, s) for m, s in zip(mask.shape, wanted, strict=True))
    # Without this a (batch, q_len, k_len) mask would be read as (heads, q_len, k_len).
    whole = mask.ndim == scores.ndim or all(m == 1 for m in mask.shape[:-2])
    if not (fits and whole):
        raise ValueError(
            f"mask of shape {tuple(mask.shape)} does not fit scores of shape "
            f"{tuple(scores.shape)}: each axis must be equal or 1, the last one equal"
        )


@check.first(_check_scores_mask)
def masked_softmax(
    scores: Float[Tensor, "*batch q_len k_len"],
    mask: Bool[Tensor, "..."] | None = None,
) -> Float[Tensor, "*batch q_len k_len"]:
    """Turn each row of scores into weights that sum to 1 over the visible keys.

    mask is True where a query may attend, each axis equal to that of the scores or 1.
    A hidden key weighs exactly 0, in every dtype. A query that may see no key at all gets a
    row of zeros, never NaN. Raises TypeError for a mask that is not bool, ValueError for one
    that does not fit.

    >>> masked_softmax(torch.zeros(2, 3), torch.tensor([[True, True, False]]))
    tensor([[0.5000, 0.5000, 0.0000],
            [0.5000, 0.5000, 0.0000]])
    """
    if mask is None:
        return scores.softmax(dim=-1)
    lowest = torch.finfo(scores.dtype).min  # finite, so an empty row gives no NaN
    return scores.masked_fill(~mask, lowest).softmax(dim=-1).masked_fill(~mask, 0.0)


def _check_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: nn.Module | None = None,
) -> None:
    _check_query_key(query, key)
    check.vectors("value", value)
    if value.shape[:-1] != key.shape[:-1]:
        raise ValueError(
            "key and value must agree in all axes but the last, "
            f"got {tuple(key.shape)} and {tuple(value.shape)}"
        )
    if mask is not None:
        check.boolean_mask("mask", mask)
    if dropout is not None and not callable(dropout):
        raise TypeError(
            f"dropout must be an nn.Dropout, got {dropout!r}; try nn.Dropout({dropout})"
        )


@check.first(_check_attention)
def scaled_dot_product_attention(
    query: Float[Tensor, "*batch q_len d_k"],
    key: Float[Tensor, "*batch k_len d_k"],
    value: Float[Tensor, "*batch k_len d_v"],
    mask: Bool[Tensor, "..."] | None = None,
    dropout: nn.Module | None = None,
) -> tuple[Float[Tensor, "*batch q_len d_v"], Float[Tensor, "*batch q_len k_len"]]:
    """Average the values, weighted by how well each query matches each key.

    Returns (output, attn_weights). The weights come back too because half of this
    course is looking at them. Dropout, when given, acts on the weights that average
    the values; the returned weights are the ones before dropout, so rows still sum to 1.
    mask is True where a query may attend, as in masked_softmax.

    Same output as torch.nn.functional.scaled_dot_product_attention(query, key, value, mask).

    >>> query, key, value = torch.randn(5, 8), torch.randn(7, 8), torch.randn(7, 16)
    >>> output, attn_weights = scaled_dot_product_attention(query, key, value)
    >>> output.shape, attn_weights.shape
    (torch.Size([5, 16]), torch.Size([5, 7]))
    """
    scores = attention_scores(query, key)  # (*batch, q_len, k_len)
    attn_weights = masked_softmax(scores, mask)  # rows sum to 1
    mixing = attn_weights if dropout is None else dropout(attn_weights)
    return mixing @ value, attn_weights  # (*batch, q_len, d_v)
