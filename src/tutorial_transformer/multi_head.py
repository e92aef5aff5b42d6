"""Multi-head attention: project, split into heads, attend in each, merge, project back.

    MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O
    head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V)        Vaswani et al. 2017, section 3.2.2

Self-attention, cross-attention and masked attention are this one function with other
arguments: where the keys come from, and which of them the mask shows.
"""

from collections.abc import Callable
from numbers import Real

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tutorial_transformer import _checks as check
from tutorial_transformer.attention import scaled_dot_product_attention


def _check_split(x: Tensor, num_heads: int) -> None:
    check.vectors("x", x, ndim=3)
    check.size(num_heads=num_heads)
    check.divisible(x.shape[-1], num_heads)


@check.first(_check_split)
def split_heads(
    x: Float[Tensor, "batch length d_model"], num_heads: int
) -> Float[Tensor, "batch num_heads length d_k"]:
    """Cut every vector into num_heads pieces and move the pieces next to the batch axis.

    No numbers change. Two steps, because the cut must be made on the last axis:
    (batch, length, d_model) -> (batch, length, num_heads, d_k) -> (batch, num_heads, length, d_k).
    """
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def _check_merge(x: Tensor) -> None:
    check.vectors("x", x, ndim=4)


@check.first(_check_merge)
def merge_heads(
    x: Float[Tensor, "batch num_heads length d_k"],
) -> Float[Tensor, "batch length d_model"]:
    """Undo split_heads: lay the heads of each position side by side again."""
    return x.transpose(1, 2).flatten(-2)


class KVCache:
    """The keys and values of one attention so far, in a buffer that is written once.

    A new token appends its key and value behind the earlier ones, which are not copied: the
    buffer holds max_len positions, or doubles when it is full and max_len is not known.
    With fixed=True (cross-attention) the first keys and values stay for good.
    """

    def __init__(self, max_len: int | None = None, fixed: bool = False) -> None:
        if max_len is not None:
            check.size(max_len=max_len)
        self.max_len, self.fixed, self.length = max_len, fixed, 0
        self.source = None  # what a fixed cache was projected from
        self._keys = self._values = None

    def __len__(self) -> int:
        return self.length

    @property
    def keys(self) -> Float[Tensor, "batch num_heads k_len d_k"]:
        """All keys so far: a view, not a copy."""
        return self._keys[:, :, : self.length]

    @property
    def values(self) -> Float[Tensor, "batch num_heads k_len d_k"]:
        """All values so far: a view, not a copy."""
        return self._values[:, :, : self.length]

    def check_source(self, key: Float[Tensor, "batch k_len d_model"]) -> None:
        """Raise ValueError if this fixed cache was filled from another memory than `key`."""
        if self.source is not None and key is not self.source and not torch.equal(key, self.source):
            raise ValueError("key is not the memory that this cache was filled from")

    def append(
        self,
        keys: Float[Tensor, "batch num_heads new d_k"],
        values: Float[Tensor, "batch num_heads new d_k"],
    ) -> None:
        """Write the keys and values of the new positions behind the earlier ones.

        Raises ValueError beyond max_len, or for another batch, heads or width than before.
        """
        if values.shape != keys.shape:
            raise ValueError(
                f"keys have shape {tuple(keys.shape)}, values have {tuple(values.shape)}"
            )
        total = self.length + keys.shape[2]
        if self.max_len is not None and total > self.max_len:
            raise ValueError(
                f"the cache holds max_len={self.max_len} positions, {total} are needed"
            )
        for axis, name in {0: "batch", 1: "heads", 3: "width"}.items():
            if self.length and keys.shape[axis] != self._keys.shape[axis]:
                raise ValueError(
                    f"the cache holds {name} {self._keys.shape[axis]}, key has {keys.shape[axis]}"
                )
        if self._keys is None or total > self._keys.shape[2]:
            self._keys = self._grown(self._keys, keys, total)
            self._values = self._grown(self._values, values, total)
        self._keys[:, :, self.length : total] = keys
        self._values[:, :, self.length : total] = values
        self.length = total

    def _check_rows(self, rows: Tensor) -> None:
        check.tensor("rows", rows)
        if rows.dtype not in (torch.int32, torch.int64):
            raise TypeError(f"rows must hold int64 or int32 numbers, got {rows.dtype}")
        if rows.ndim != 1 or len(rows) == 0:
            raise ValueError(f"rows must have shape (new_batch,), not 0, got {tuple(rows.shape)}")
        if self.length and ((rows < 0) | (rows >= len(self._keys))).any():
            raise ValueError(
                f"rows must lie in the batch of {len(self._keys)}, got {rows.tolist()}"
            )

    @check.first(_check_rows)
    def select(self, rows: Int[Tensor, " new_batch"]) -> None:
        """Go on with these batch rows, in this order; a row may come twice, or not at all.

        Beam search drops some beginnings and continues others. The new buffers have as much room
        as the old ones. Only for decoding: torch refuses keys that need a gradient.
        """
        if self.length:
            self._keys = self._picked(self._keys, rows)
            self._values = self._picked(self._values, rows)
        if self.source is not None:
            self.source = self.source.index_select(0, rows)

    def _picked(self, old: Tensor, rows: Tensor) -> Tensor:
        """A buffer with the same room for other rows; only the filled part is copied, and once."""
        buffer = old.new_empty(len(rows), *old.shape[1:])
        filled = buffer[:, :, : self.length]
        torch.index_select(old[:, :, : self.length], 0, rows, out=filled)
        return buffer

    def _grown(self, old: Tensor | None, new: Tensor, total: int) -> Tensor:
        """A buffer with room for `total` positions or more, which begins with the old one's."""
        batch, heads, _, width = new.shape
        capacity = total if self.fixed else self.max_len or 2 * max(total, 16)
        buffer = new.new_empty(batch, heads, capacity, width)
        if old is not None:
            buffer[:, :, : self.length] = old[:, :, : self.length]
        return buffer


class MultiHeadAttention(nn.Module):
    """Attend num_heads times in parallel, each head with its own projections of width d_k.

    Four linear maps, w_q, w_k, w_v and w_o, each d_model × d_model: the h projections of the
    paper stand side by side in one matrix. d_k = d_model / num_heads. `dropout` acts on the
    attention weights; the paper does not use it, so it is 0 by default.

    on_weights is None, or a function that is handed the weights (batch, heads, q_len, k_len) of
    every call; attention_maps.record_attention sets it. Without it nobody looks at the weights
    and torch's fused kernel computes the same output without keeping them.
    """

    def __init__(
        self, d_model: int, num_heads: int, dropout: Real = 0.0, bias: bool = True
    ) -> None:
        super().__init__()
        check.size(d_model=d_model, num_heads=num_heads)
        check.rate(dropout=dropout)
        check.divisible(d_model, num_heads)
        self.num_heads = num_heads
        self.w_q = nn.Linear(d_model, d_model, bias=bias)
        self.w_k = nn.Linear(d_model, d_model, bias=bias)
        self.w_v = nn.Linear(d_model, d_model, bias=bias)
        self.w_o = nn.Linear(d_model, d_model, bias=bias)
        self.dropout = nn.Dropout(dropout) if dropout else None
        self.on_weights: Callable[[Tensor], None] | None = None

    def _check_input(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> None:
        for name, x in (("query", query), ("key", key), ("value", value)):
            check.vectors(name, x, self.w_q.in_features, ndim=3)
            if x.shape[0] != query.shape[0]:
                raise ValueError(f"query has batch {query.shape[0]}, {name} has {x.shape[0]}")
        if value.shape[1] != key.shape[1]:
            raise ValueError(f"key has length {key.shape[1]}, value has {value.shape[1]}")
        if cache is not None and not isinstance(cache, KVCache):
            raise TypeError(f"cache must be a KVCache, got {type(cache).__name__}")
        if mask is not None:
            earlier = cache.length if cache is not None and not cache.fixed else 0
            k_len = earlier + key.shape[1]
            _check_mask(mask, query.shape[0], self.num_heads, query.shape[1], k_len)

    @check.first(_check_input)
    def forward(
        self,
        query: Float[Tensor, "batch q_len d_model"],
        key: Float[Tensor, "batch new_len d_model"],
        value: Float[Tensor, "batch new_len d_model"],
        mask: Bool[Tensor, "..."] | None = None,
        cache: KVCache | None = None,
    ) -> Float[Tensor, "batch q_len d_model"]:
        """Let every query gather what it needs from the keys that its mask shows.

        mask: True = may attend, shape (batch or 1, q_len or 1, k_len), the same for all heads;
        or with a head axis, (batch or 1, heads or 1, q_len or 1, k_len). k_len counts the keys
        in the cache too. A query that may see nothing contributes the zero vector before w_o.
        """
        if mask is not None and mask.ndim == 3:
            mask = mask.unsqueeze(1)  # (batch, 1, q_len, k_len): one mask for all heads
        q = split_heads(self.w_q(query), self.num_heads)
        k, v = self.keys_and_values(key, value, cache)
        return self.w_o(merge_heads(self._attend(q, k, v, mask)))

    def keys_and_values(
        self, key: Tensor, value: Tensor, cache: KVCache | None = None
    ) -> tuple[Tensor, Tensor]:
        """Project and split the keys and values, through the cache where there is one."""
        if cache is not None and cache.fixed and cache.length:
            cache.check_source(key)
            return cache.keys, cache.values
        k = split_heads(self.w_k(key), self.num_heads)
        v = split_heads(self.w_v(value), self.num_heads)
        if cache is None:
            return k, v
        cache.source = key if cache.fixed else None
        cache.append(k, v)
        return cache.keys, cache.values

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """One attention, two ways: readable with its weights, or torch's fused kernel without."""
        if self.on_weights is not None:
            output, attn_weights = scaled_dot_product_attention(q, k, v, mask, self.dropout)
            self.on_weights(attn_weights)
            return output
        dropout_p = self.dropout.p if self.dropout is not None and self.training else 0.0
        return F.scaled_dot_product_attention(q, k, v, mask, dropout_p)


def _check_mask(mask: Tensor, batch: int, heads: int, q_len: int, k_len: int) -> None:
    check.boolean_mask("mask", mask)
    names, wanted = ("batch", "q_len", "k_len"), (batch, q_len, k_len)
    if mask.ndim == 4:
        names, wanted = ("batch", "heads", "q_len", "k_len"), (batch, heads, q_len, k_len)
    elif mask.ndim != 3:
        raise ValueError(
            f"mask must have 3 axes (batch or 1, q_len or 1, k_len) or 4 with heads, got shape "
            f"{tuple(mask.shape)}"
        )
    for name, came, size in zip(names, mask.shape, wanted, strict=True):
        if came != size and (came != 1 or name == "k_len"):
            raise ValueError(
                f"mask has {came} in its {name} axis, wanted {size}"
                + ("" if name == "k_len" else " or 1")
                + f" (mask {tuple(mask.shape)}, {dict(zip(names, wanted, strict=True))})"
            )
