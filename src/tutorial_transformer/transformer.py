"""The whole model: embed, encode, decode, project to logits.

Vaswani et al. 2017, figure 1. The only module that knows a configuration.
"""

from dataclasses import dataclass
from numbers import Real

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from tutorial_transformer import _checks as check
from tutorial_transformer.decoder import Decoder, LayerCache
from tutorial_transformer.embeddings import PositionalEncoding, TokenEmbedding
from tutorial_transformer.encoder import Encoder
from tutorial_transformer.masks import causal_mask, padding_mask


@dataclass(frozen=True)
class TransformerConfig:
    """All sizes of a model; the defaults are the paper's base model (table 3).

    tie_embeddings shares one matrix between both embeddings and the output projection
    (section 3.4), so it needs one vocabulary. Unknown names are refused, wrong values too.
    """

    src_vocab_size: int
    tgt_vocab_size: int
    d_model: int = 512
    num_heads: int = 8
    num_layers: int = 6
    d_ff: int = 2048
    dropout: Real = 0.1
    max_len: int = 5000
    norm_first: bool = False
    tie_embeddings: bool = False
    pad_id: int = 0
    bos_id: int = 1
    eos_id: int = 2

    def __post_init__(self) -> None:
        for name in ("src_vocab_size", "tgt_vocab_size", "d_model", "num_heads"):
            check.size(**{name: getattr(self, name)})
        check.size(num_layers=self.num_layers, d_ff=self.d_ff, max_len=self.max_len)
        check.rate(dropout=self.dropout)
        check.divisible(self.d_model, self.num_heads)
        for name in ("norm_first", "tie_embeddings"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(f"{name} must be True or False, got {getattr(self, name)!r}")
        if self.tie_embeddings and self.src_vocab_size != self.tgt_vocab_size:
            raise ValueError(
                "tie_embeddings needs one vocabulary, got "
                f"src_vocab_size={self.src_vocab_size} and tgt_vocab_size={self.tgt_vocab_size}"
            )
        special = {"pad_id": self.pad_id, "bos_id": self.bos_id, "eos_id": self.eos_id}
        for name, value in special.items():
            check.special_id(name, value, self.tgt_vocab_size)
        check.special_id("pad_id", self.pad_id, self.src_vocab_size)
        if len(set(special.values())) < 3:
            raise ValueError(f"the special ids must differ, got {special}")

    @classmethod
    def base(cls, src_vocab_size: int, tgt_vocab_size: int, **changes) -> "TransformerConfig":
        """The base model of table 3: 6 layers, width 512, 8 heads."""
        return cls(src_vocab_size, tgt_vocab_size, **changes)

    @classmethod
    def big(cls, src_vocab_size: int, tgt_vocab_size: int, **changes) -> "TransformerConfig":
        """The big model of table 3: width 1024, 16 heads, d_ff 4096, dropout 0.3."""
        sizes = {"d_model": 1024, "num_heads": 16, "d_ff": 4096, "dropout": 0.3}
        return cls(src_vocab_size, tgt_vocab_size, **(sizes | changes))

    @classmethod
    def tiny(cls, src_vocab_size: int, tgt_vocab_size: int, **changes) -> "TransformerConfig":
        """A model that trains on a laptop in a minute: 2 layers, width 64, 4 heads, no dropout."""
        sizes = {"d_model": 64, "num_heads": 4, "num_layers": 2, "d_ff": 256, "dropout": 0.0}
        return cls(src_vocab_size, tgt_vocab_size, **(sizes | {"max_len": 256} | changes))


class DecodingCache:
    """What the decoder has computed so far: keys and values of each layer, which ids are pads."""

    def __init__(self, layers: list[LayerCache], max_len: int | None = None) -> None:
        self.layers, self.max_len = layers, max_len
        self.visible: Bool[Tensor, "batch 1 length"] | None = None

    @property
    def length(self) -> int:
        """How many target positions are in the cache."""
        return 0 if self.visible is None else self.visible.shape[-1]

    def __len__(self) -> int:
        return self.length

    def _check_rows(self, rows: Tensor) -> None:
        check.tensor("rows", rows)
        if self.visible is not None and rows.shape != self.visible.shape[:1]:
            raise ValueError(
                f"rows must name one row for each of the {len(self.visible)} in the cache, "
                f"got shape {tuple(rows.shape)}"
            )

    @check.first(_check_rows)
    def select(self, rows: Int[Tensor, " batch"]) -> None:
        """Let each row go on from another one, as beam search does: row i becomes what rows[i] was.

        Row i must read the same source as rows[i], because the source's keys stay where they are.
        """
        for layer in self.layers:
            layer.self_attn.select(rows)
        if self.visible is not None:
            self.visible = self.visible.index_select(0, rows)


class Transformer(nn.Module):
    """The encoder-decoder Transformer; forward returns logits, not probabilities.

    Softmax lives in the loss and in decoding. Masks are built here, from the ids.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        if not isinstance(config, TransformerConfig):
            raise TypeError(f"config must be a TransformerConfig, got {type(config).__name__}")
        self.config = config
        d_model = config.d_model
        sizes = (config.num_layers, d_model, config.num_heads, config.d_ff)
        self.src_embedding = TokenEmbedding(config.src_vocab_size, d_model, config.pad_id)
        self.tgt_embedding = TokenEmbedding(config.tgt_vocab_size, d_model, config.pad_id)
        self.positions = PositionalEncoding(d_model, config.dropout, config.max_len)
        self.encoder = Encoder(*sizes, config.dropout, config.norm_first)
        self.decoder = Decoder(*sizes, config.dropout, config.norm_first)
        self.output_proj = nn.Linear(d_model, config.tgt_vocab_size)
        self._start_output_small()

    def _start_output_small(self) -> None:
        """Start with nearly equal logits, so that the first loss is about ln V."""
        nn.init.zeros_(self.output_proj.bias)
        nn.init.normal_(self.output_proj.weight, std=0.1 * self.config.d_model**-0.5)
        if self.config.tie_embeddings:  # a tied table cannot be small: rows are embeddings too
            self.tgt_embedding.weight = self.src_embedding.weight
            self.output_proj.weight = self.src_embedding.weight

    def _check_src(self, src: Tensor) -> None:
        check.ids("src", src, self.config.src_vocab_size)
        _check_length("src", src.shape[1], self.config.max_len)
        is_pad = src == self.config.pad_id
        if (is_pad[:, :-1] & ~is_pad[:, 1:]).any():
            raise ValueError(
                f"src has a pad (id {self.config.pad_id}) before a real id; pad on the right"
            )

    @check.first(_check_src)
    def encode(
        self, src: Int[Tensor, "batch src_len"]
    ) -> tuple[Float[Tensor, "batch src_len d_model"], Bool[Tensor, "batch 1 src_len"]]:
        """Return (memory, src_mask): a vector for each source position, and which are real.

        Raises ValueError for ids outside the vocabulary, rows longer than max_len, and pads
        in front of real ids.
        """
        src_mask = padding_mask(src, self.config.pad_id)
        x = self.positions(self.src_embedding(src))
        return self.encoder(x, src_mask), src_mask

    def _check_tgt(
        self,
        tgt_in: Tensor,
        memory: Tensor,
        src_mask: Tensor | None,
        cache: DecodingCache | None = None,
    ) -> None:
        check.ids("tgt_in", tgt_in, self.config.tgt_vocab_size)
        check.vectors("memory", memory, self.config.d_model, ndim=3)
        if memory.shape[0] != tgt_in.shape[0]:
            raise ValueError(
                f"tgt_in has batch {tgt_in.shape[0]}, memory has batch {memory.shape[0]}"
            )
        if src_mask is not None:
            check.boolean_mask("src_mask", src_mask)
            batch, src_len, _ = memory.shape
            if tuple(src_mask.shape) not in ((batch, 1, src_len), (1, 1, src_len)):
                raise ValueError(
                    f"src_mask must have shape ({batch} or 1, 1, {src_len}), as encode returns it, "
                    f"got {tuple(src_mask.shape)}"
                )
        if cache is not None and not isinstance(cache, DecodingCache):
            raise TypeError(f"cache must come from new_cache(), got {type(cache).__name__}")
        earlier = 0 if cache is None else cache.length
        limit = self.config.max_len if cache is None else cache.max_len or self.config.max_len
        _check_length("tgt_in", earlier + tgt_in.shape[1], min(limit, self.config.max_len))
        if earlier and cache.visible.shape[0] != tgt_in.shape[0]:
            raise ValueError(f"tgt_in has batch {len(tgt_in)}, the cache {len(cache.visible)}")
        if cache is not None:  # before any layer's cache has grown
            for layer in cache.layers:
                layer.cross_attn.check_source(memory)

    @check.first(_check_tgt)
    def decode(
        self,
        tgt_in: Int[Tensor, "batch tgt_len"],
        memory: Float[Tensor, "batch src_len d_model"],
        src_mask: Bool[Tensor, "batch_or_1 1 src_len"] | None,
        cache: DecodingCache | None = None,
    ) -> Float[Tensor, "batch tgt_len tgt_vocab"]:
        """Return logits for the word after each target position.

        tgt_in begins with <bos>. With a cache it holds only the ids that are new; the cache
        grows in place and knows their positions and which of the earlier ids were pads.
        """
        visible = padding_mask(tgt_in, self.config.pad_id)
        offset = 0 if cache is None else cache.length
        if offset:
            visible = torch.cat([cache.visible, visible], dim=-1)  # (batch, 1, k_len)
        tgt_mask = visible & causal_mask(tgt_in.shape[1], visible.shape[-1]).to(tgt_in.device)
        x = self.positions(self.tgt_embedding(tgt_in), offset)
        x = self.decoder(x, memory, tgt_mask, src_mask, None if cache is None else cache.layers)
        if cache is not None:
            cache.visible = visible
        return self.output_proj(x)

    def _check_pair(self, src: Tensor, tgt_in: Tensor) -> None:
        check.ids("src", src)
        check.ids("tgt_in", tgt_in, self.config.tgt_vocab_size)
        if src.shape[0] != tgt_in.shape[0]:
            raise ValueError(f"src has batch {src.shape[0]}, tgt_in has batch {tgt_in.shape[0]}")

    @check.first(_check_pair)
    def forward(
        self, src: Int[Tensor, "batch src_len"], tgt_in: Int[Tensor, "batch tgt_len"]
    ) -> Float[Tensor, "batch tgt_len tgt_vocab"]:
        """Return logits for the word after each target position, all positions at once."""
        memory, src_mask = self.encode(src)
        return self.decode(tgt_in, memory, src_mask)

    def _check_cache(self, memory: Tensor | None = None, max_len: int | None = None) -> None:
        if memory is not None:
            check.vectors("memory", memory, self.config.d_model, ndim=3)

    @check.first(_check_cache)
    def new_cache(
        self,
        memory: Float[Tensor, "batch src_len d_model"] | None = None,
        max_len: int | None = None,
    ) -> DecodingCache:
        """Make an empty cache for decode; with memory its keys and values are projected now.

        max_len target positions are reserved at once; without it the buffers double as needed.
        """
        return DecodingCache(self.decoder.new_cache(memory, max_len), max_len)


def _check_length(name: str, length: int, max_len: int) -> None:
    if length > max_len:
        raise ValueError(f"{name} has length {length}, but max_len is {max_len}")
