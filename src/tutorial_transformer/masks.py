"""Who may look at whom: boolean masks, True = this query may attend to this key.

A mask has shape (batch or 1, q_len or 1, k_len): rows are queries, columns are keys, and there
is no head axis, because every head obeys the same mask. Masks combine with `&`.
"""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from tutorial_transformer import _checks as check


def _check_ids(ids: Tensor, pad_id: int = 0) -> None:
    check.ids("ids", ids)
    if not isinstance(pad_id, int) or isinstance(pad_id, bool):
        raise TypeError(f"pad_id must be an int, got {pad_id!r}")


@check.first(_check_ids)
def padding_mask(ids: Int[Tensor, "batch k_len"], pad_id: int = 0) -> Bool[Tensor, "batch 1 k_len"]:
    """Show the real tokens and hide the padding, for every query alike.

    Only keys are hidden. A query that is itself padding still computes something;
    the loss drops it.

    >>> padding_mask(torch.tensor([[5, 6, 0]])).int()
    tensor([[[1, 1, 0]]], dtype=torch.int32)
    """
    return (ids != pad_id)[:, None, :]


def _check_lengths(q_len: int, k_len: int | None = None) -> None:
    check.size(q_len=q_len)
    if k_len is not None:
        check.size(k_len=k_len)
        if k_len < q_len:
            raise ValueError(
                f"k_len={k_len} must be at least q_len={q_len}: queries see themselves"
            )


@check.first(_check_lengths)
def causal_mask(q_len: int, k_len: int | None = None) -> Bool[Tensor, "1 q_len k_len"]:
    """Show every position itself and the past, and hide the future.

    With k_len > q_len the queries are the last q_len of k_len positions, which is what a
    decoder with a cache needs: one new query sees all the keys so far.

    >>> causal_mask(2, 4).int()
    tensor([[[1, 1, 1, 0],
             [1, 1, 1, 1]]], dtype=torch.int32)
    """
    k_len = q_len if k_len is None else k_len
    return torch.ones(1, q_len, k_len, dtype=torch.bool).tril(diagonal=k_len - q_len)


@check.first(_check_ids)
def target_mask(
    ids: Int[Tensor, "batch length"], pad_id: int = 0
) -> Bool[Tensor, "batch length length"]:
    """Show every target position the real tokens up to itself: padding and causality at once.

    ids is the decoder's input, which starts with <bos> (the paper's "shifted right").
    """
    return padding_mask(ids, pad_id) & causal_mask(ids.shape[1]).to(ids.device)


def _check_mask(mask: Tensor) -> None:
    check.boolean_mask("mask", mask)


@check.first(_check_mask)
def to_torch_attn_mask(mask: Bool[Tensor, "*shape"]) -> Bool[Tensor, "*shape"]:
    """Turn our mask into one for nn.MultiheadAttention and nn.Transformer, where True = hide.

    Raises TypeError for a mask that is not bool. F.scaled_dot_product_attention needs no
    translation: there True = may attend, as here.
    """
    return ~mask


@check.first(_check_mask)
def from_torch_attn_mask(mask: Bool[Tensor, "*shape"]) -> Bool[Tensor, "*shape"]:
    """Turn a mask of nn.MultiheadAttention (True = hide) into ours (True = may attend)."""
    return ~mask
