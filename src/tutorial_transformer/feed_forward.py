"""The feed-forward network: the same two linear maps, applied at every position alone.

FFN(x) = max(0, x W_1 + b_1) W_2 + b_2               Vaswani et al. 2017, eq. (2)
"""

from numbers import Real

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from tutorial_transformer import _checks as check

ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu}


class FeedForward(nn.Module):
    """Widen every vector to d_ff, bend it, and bring it back to d_model.

    Positions do not see each other here: all mixing happens in attention. The paper has no
    dropout between the two maps; `dropout` is there for those who want it, 0 by default.
    """

    def __init__(
        self, d_model: int, d_ff: int, dropout: Real = 0.0, activation: str = "relu"
    ) -> None:
        super().__init__()
        check.size(d_model=d_model, d_ff=d_ff)
        check.rate(dropout=dropout)
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {list(ACTIVATIONS)}, got {activation!r}")
        self.w_1 = nn.Linear(d_model, d_ff)
        self.w_2 = nn.Linear(d_ff, d_model)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.activation = activation

    def _check_input(self, x: Tensor) -> None:
        check.vectors("x", x, self.w_1.in_features)

    @check.first(_check_input)
    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Transform each vector, whatever its neighbours are."""
        hidden = ACTIVATIONS[self.activation](self.w_1(x))  # (*batch, d_ff)
        return self.w_2(self.dropout(hidden))
