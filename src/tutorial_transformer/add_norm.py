"""Residual connection and layer normalisation, the wrapper round every sub-layer.

post-norm   LayerNorm(x + Sublayer(x))               Vaswani et al. 2017, section 3.1
pre-norm    x + Sublayer(LayerNorm(x))               the order that most later models use
"""

from collections.abc import Callable
from numbers import Real

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from tutorial_transformer import _checks as check


class LayerNorm(nn.Module):
    """Give each vector mean 0 and variance 1, then a learned gain and bias.

        LN(x) = weight · (x - mean) / √(variance + eps) + bias

    Each vector is normalised alone, over its d_model entries; variance is the biased one
    (divide by d_model), eps stands inside the root. Equal to nn.LayerNorm, whose weights load.
    """

    def __init__(self, d_model: int, eps: Real = 1e-5) -> None:
        super().__init__()
        check.size(d_model=d_model)
        if not isinstance(eps, Real) or not eps > 0:
            raise ValueError(f"eps must be positive, got {eps!r}")
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))
        self.eps = eps

    def _check_input(self, x: Tensor) -> None:
        check.vectors("x", x, self.weight.shape[0])

    @check.first(_check_input)
    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Normalise each vector; neighbours and batch mates do not matter."""
        # torch's kernel sums in float32 even when x is half precision; the formula alone overflows.
        return F.layer_norm(x, x.shape[-1:], self.weight, self.bias, self.eps)


class AddNorm(nn.Module):
    """Run a sub-layer on x, add x back, and normalise: after the sum, or before the sub-layer."""

    def __init__(self, d_model: int, dropout: Real = 0.0, norm_first: bool = False) -> None:
        super().__init__()
        check.rate(dropout=dropout)
        self.norm = LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)
        self.norm_first = norm_first

    def _check_input(self, x: Tensor, sublayer: Callable) -> None:
        check.vectors("x", x, self.norm.weight.shape[0])
        if not callable(sublayer):
            raise TypeError(f"sublayer must be callable, got {type(sublayer).__name__}")

    @check.first(_check_input)
    def forward(
        self, x: Float[Tensor, "*batch d_model"], sublayer: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "*batch d_model"]:
        """Return LayerNorm(x + Sublayer(x)), or x + Sublayer(LayerNorm(x)) with norm_first.

        Dropout acts on the sub-layer's output (section 5.4). Raises ValueError when the
        sub-layer changes the shape, which the sum could otherwise hide by broadcasting.
        """
        if self.norm_first:
            return x + self.dropout(_same_shape(x, sublayer(self.norm(x))))
        return self.norm(x + self.dropout(_same_shape(x, sublayer(x))))


def _same_shape(x: Tensor, y: Tensor) -> Tensor:
    check.tensor("the sub-layer's output", y)
    if y.shape != x.shape:
        raise ValueError(
            f"sublayer must keep the shape {tuple(x.shape)}, it returned {tuple(y.shape)}"
        )
    return y
