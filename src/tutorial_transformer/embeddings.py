"""From ids to vectors that know their place: a lookup table plus a fixed wave for each position.

    PE(pos, 2i)   = sin(pos / 10000^(2i / d_model))
    PE(pos, 2i+1) = cos(pos / 10000^(2i / d_model))      Vaswani et al. 2017, section 3.5

i counts pairs of dimensions: 2i and 2i+1 share one frequency.
"""

import math
from numbers import Real

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tutorial_transformer import _checks as check


class TokenEmbedding(nn.Embedding):
    """Look up a vector for each id and multiply it by √d_model (section 3.4).

    Rows start with standard deviation 1/√d_model, so that after the scaling their entries have
    size 1, next to positions whose entries have size 0.7. The row of pad_id is zero and gets
    no gradient.
    """

    def __init__(self, vocab_size: int, d_model: int, pad_id: int = 0) -> None:
        check.size(vocab_size=vocab_size, d_model=d_model)
        check.special_id("pad_id", pad_id, vocab_size)
        super().__init__(vocab_size, d_model, padding_idx=pad_id)

    def reset_parameters(self) -> None:
        """Draw the table anew; nn.Embedding calls this when it is built."""
        nn.init.normal_(self.weight, std=self.embedding_dim**-0.5)
        with torch.no_grad():
            self.weight[self.padding_idx] = 0.0

    def _check_input(self, ids: Tensor) -> None:
        check.ids("ids", ids, self.num_embeddings)

    @check.first(_check_input)
    def forward(self, ids: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length d_model"]:
        """Return one scaled vector for each id; an id outside the vocabulary is a ValueError."""
        return super().forward(ids) * math.sqrt(self.embedding_dim)


def _check_table(length: int, d_model: int) -> None:
    check.size(length=length, d_model=d_model)


@check.first(_check_table)
def sinusoidal_positions(length: int, d_model: int) -> Float[Tensor, "length d_model"]:
    """Build the table of position vectors: row pos, sine in even columns, cosine in odd ones.

    Works for odd d_model too, where the last pair lacks its cosine. Computed in float64 and
    returned in the default dtype, never below float32: bfloat16 cannot tell 256 from 257.

    >>> sinusoidal_positions(2, 4)
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 0.9999]])
    """
    pos = torch.arange(length, dtype=torch.float64)[:, None]  # (length, 1)
    two_i = torch.arange(0, d_model, 2, dtype=torch.float64)  # (pairs,)
    angle = pos / 10000 ** (two_i / d_model)  # (length, pairs)
    table = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :d_model]
    return table.to(torch.promote_types(torch.get_default_dtype(), torch.float32))


class PositionalEncoding(nn.Module):
    """Add to each vector the wave of its position, then drop out (section 5.4).

    The table is a buffer: it follows the model to another device or dtype, is not trained, and
    is not saved, so that a checkpoint loads into a model with another max_len.
    """

    def __init__(self, d_model: int, dropout: Real = 0.0, max_len: int = 5000) -> None:
        super().__init__()
        check.size(d_model=d_model, max_len=max_len)
        check.rate(dropout=dropout)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("table", sinusoidal_positions(max_len, d_model), persistent=False)

    def _check_input(self, x: Tensor, offset: int = 0) -> None:
        max_len, d_model = self.table.shape
        check.vectors("x", x, d_model, ndim=3)
        if not isinstance(offset, int) or isinstance(offset, bool):
            raise TypeError(f"offset must be an int, got {offset!r}")
        if offset < 0:
            raise ValueError(f"offset must not be negative, got {offset}")
        if offset + x.shape[1] > max_len:
            raise ValueError(
                f"positions {offset} to {offset + x.shape[1] - 1} (length {offset + x.shape[1]}) "
                f"are asked for, but max_len is {max_len}"
            )

    @check.first(_check_input)
    def forward(
        self, x: Float[Tensor, "batch length d_model"], offset: int = 0
    ) -> Float[Tensor, "batch length d_model"]:
        """Place x at the positions from `offset` on; a cache passes the number of earlier tokens.

        Raises ValueError when the last position lies beyond max_len.
        """
        positions = self.table[offset : offset + x.shape[1]].to(x.dtype)  # (length, d_model)
        return self.dropout(x + positions)
