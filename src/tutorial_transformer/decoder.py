"""The decoder: masked self-attention, cross-attention and feed-forward, N times.

Vaswani et al. 2017, section 3.1 and the right half of figure 1.
"""

from numbers import Real
from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor, nn

from tutorial_transformer import _checks as check
from tutorial_transformer.add_norm import AddNorm, LayerNorm
from tutorial_transformer.feed_forward import FeedForward
from tutorial_transformer.multi_head import KVCache, MultiHeadAttention


def _check_input(
    self: nn.Module,
    x: Tensor,
    memory: Tensor,
    tgt_mask: Tensor | None = None,
    src_mask: Tensor | None = None,
    cache: object = None,
) -> None:
    check.vectors("x", x, self.d_model, ndim=3)  # masks and cache are checked in the attention
    check.vectors("memory", memory, self.d_model, ndim=3)
    if memory.shape[0] != x.shape[0]:
        raise ValueError(f"x has batch {x.shape[0]}, memory has batch {memory.shape[0]}")


class LayerCache(NamedTuple):
    """What one decoder layer remembers: its own keys and values, and the source's."""

    self_attn: KVCache
    cross_attn: KVCache


class DecoderLayer(nn.Module):
    """Look back over the target, look over at the source, then work on each position alone."""

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int,
        dropout: Real = 0.0,
        norm_first: bool = False,
    ) -> None:
        super().__init__()
        self.d_model = d_model
        self.self_attn = MultiHeadAttention(d_model, num_heads)
        self.cross_attn = MultiHeadAttention(d_model, num_heads)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.add_norm_1 = AddNorm(d_model, dropout, norm_first)
        self.add_norm_2 = AddNorm(d_model, dropout, norm_first)
        self.add_norm_3 = AddNorm(d_model, dropout, norm_first)

    @check.first(_check_input)
    def forward(
        self,
        x: Float[Tensor, "batch tgt_len d_model"],
        memory: Float[Tensor, "batch src_len d_model"],
        tgt_mask: Bool[Tensor, "..."] | None = None,
        src_mask: Bool[Tensor, "..."] | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "batch tgt_len d_model"]:
        """Return one vector per target position.

        Queries of the cross-attention come from the sub-layer before it, keys and values from
        memory. tgt_mask (batch or 1, tgt_len, k_len) hides the future and the pads, src_mask
        (batch or 1, 1, src_len) the source's pads. With a cache, x holds only new positions.
        """
        own, source = cache or (None, None)
        x = self.add_norm_1(x, lambda x: self.self_attn(x, x, x, tgt_mask, own))
        x = self.add_norm_2(x, lambda x: self.cross_attn(x, memory, memory, src_mask, source))
        return self.add_norm_3(x, self.feed_forward)


class Decoder(nn.Module):
    """Stack num_layers decoder layers; all of them read the same memory.

    A pre-norm stack ends in one more LayerNorm, as in the encoder.
    """

    def __init__(
        self,
        num_layers: int,
        d_model: int,
        num_heads: int,
        d_ff: int,
        dropout: Real = 0.0,
        norm_first: bool = False,
    ) -> None:
        super().__init__()
        check.size(num_layers=num_layers)
        self.d_model = d_model
        self.layers = nn.ModuleList(
            DecoderLayer(d_model, num_heads, d_ff, dropout, norm_first) for _ in range(num_layers)
        )
        self.norm = LayerNorm(d_model) if norm_first else None

    @check.first(_check_input)
    def forward(
        self,
        x: Float[Tensor, "batch tgt_len d_model"],
        memory: Float[Tensor, "batch src_len d_model"],
        tgt_mask: Bool[Tensor, "..."] | None = None,
        src_mask: Bool[Tensor, "..."] | None = None,
        cache: list[LayerCache] | None = None,
    ) -> Float[Tensor, "batch tgt_len d_model"]:
        """Refine the target vectors layer by layer, each layer with its own cache."""
        caches = [None] * len(self.layers) if cache is None else cache
        if len(caches) != len(self.layers):
            raise ValueError(f"cache has {len(caches)} layers, the decoder has {len(self.layers)}")
        for layer, layer_cache in zip(self.layers, caches, strict=True):
            x = layer(x, memory, tgt_mask, src_mask, layer_cache)
        return x if self.norm is None else self.norm(x)

    def new_cache(
        self, memory: Float[Tensor, "batch src_len d_model"] | None, max_len: int | None
    ) -> list[LayerCache]:
        """Make an empty cache for every layer; a given memory is projected here, once for all."""
        caches = [LayerCache(KVCache(max_len), KVCache(fixed=True)) for _ in self.layers]
        if memory is not None:
            for layer, cache in zip(self.layers, caches, strict=True):
                layer.cross_attn.keys_and_values(memory, memory, cache.cross_attn)
        return caches
