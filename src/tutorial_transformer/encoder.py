"""The encoder: N layers of self-attention and feed-forward, each wrapped in Add & Norm.

Vaswani et al. 2017, section 3.1 and the left half of figure 1.
"""

from numbers import Real

from jaxtyping import Bool, Float
from torch import Tensor, nn

from tutorial_transformer import _checks as check
from tutorial_transformer.add_norm import AddNorm, LayerNorm
from tutorial_transformer.feed_forward import FeedForward
from tutorial_transformer.multi_head import MultiHeadAttention


def _check_input(self: nn.Module, x: Tensor, src_mask: Tensor | None = None) -> None:
    check.vectors("x", x, self.d_model, ndim=3)  # the mask is checked in the attention


class EncoderLayer(nn.Module):
    """Let every position gather from all others, then work on each position alone.

    dropout acts on the output of each sub-layer, as in the paper's section 5.4.
    """

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
        self.feed_forward = FeedForward(d_model, d_ff)
        self.add_norm_1 = AddNorm(d_model, dropout, norm_first)
        self.add_norm_2 = AddNorm(d_model, dropout, norm_first)

    @check.first(_check_input)
    def forward(
        self,
        x: Float[Tensor, "batch src_len d_model"],
        src_mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch src_len d_model"]:
        """Return one vector per source position; src_mask (batch or 1, 1, src_len) hides pads."""
        x = self.add_norm_1(x, lambda x: self.self_attn(x, x, x, src_mask))
        return self.add_norm_2(x, self.feed_forward)


class Encoder(nn.Module):
    """Stack num_layers encoder layers, each with weights of its own.

    Pre-norm layers leave their sum unnormalised, so a pre-norm stack ends in one more LayerNorm.
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
            EncoderLayer(d_model, num_heads, d_ff, dropout, norm_first) for _ in range(num_layers)
        )
        self.norm = LayerNorm(d_model) if norm_first else None

    @check.first(_check_input)
    def forward(
        self,
        x: Float[Tensor, "batch src_len d_model"],
        src_mask: Bool[Tensor, "..."] | None = None,
    ) -> Float[Tensor, "batch src_len d_model"]:
        """Refine the vectors layer by layer; the result is the decoder's memory."""
        for layer in self.layers:
            x = layer(x, src_mask)
        return x if self.norm is None else self.norm(x)
