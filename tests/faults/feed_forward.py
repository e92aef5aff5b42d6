"""Wrong and right feed-forward networks, as learners write them."""

import torch
import torch.nn.functional as F
from torch import nn

from tutorial_transformer import feed_forward as ours


class Plain(nn.Module):
    """Two linear layers with ReLU between them."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.lin1 = nn.Linear(d_model, d_ff)
        self.lin2 = nn.Linear(d_ff, d_model)

    def forward(self, x):
        return self.lin2(torch.relu(self.lin1(x)))


class NoBend(Plain):
    """4: two linear maps in a row."""

    def forward(self, x):
        hidden = self.lin1(x)
        return self.lin2(hidden)


class Gelu(Plain):
    """J06: GELU in the place of ReLU."""

    def forward(self, x):
        return self.lin2(F.gelu(self.lin1(x)))


class BendsTwice(Plain):
    """4: the output is bent, too."""

    def forward(self, x):
        for layer in (self.lin1, self.lin2):
            x = F.relu(layer(x))
        return x


class BendsLast(Plain):
    """4: ReLU after both maps."""

    def forward(self, x):
        x = self.lin1(x)
        x = self.lin2(x)
        return x.clamp(min=0)


class WithResidual(Plain):
    """G09: adds x although the wrapper does."""

    def forward(self, x):
        return x + super().forward(x)


class WithNorm(Plain):
    """G10: the norm is inside."""

    def forward(self, x):
        out = super().forward(x)
        return (out - out.mean(-1, keepdim=True)) / (
            out.var(-1, keepdim=True, unbiased=False) + 1e-5
        ).sqrt()


class Pools(Plain):
    """G04: averages the hidden layer over time."""

    def forward(self, x):
        hidden = torch.relu(self.lin1(x))
        mean = hidden.mean(dim=1, keepdim=True)
        return self.lin2(mean).repeat(1, x.shape[1], 1)


class NoBias(nn.Module):
    """9: both maps lack their bias."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.a = nn.Parameter(torch.randn(d_model, d_ff))
        self.b = nn.Parameter(torch.randn(d_ff, d_model))

    def forward(self, x):
        return (x @ self.a).relu() @ self.b


class Narrow(Plain):
    """D12: d_ff is not used."""

    def __init__(self, d_model, d_ff):
        super().__init__(d_model, 4 * d_model)


class InAList(nn.Module):
    """G16: a plain list of layers."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.layers = [nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)]

    def forward(self, x):
        return self.layers[1](F.relu(self.layers[0](x)))


class AlwaysDrops(Plain):
    """8: dropout in evaluation mode."""

    def forward(self, x):
        return self.lin2(F.dropout(torch.relu(self.lin1(x)), 0.5))


class InPlace(Plain):
    """A17: writes into x."""

    def forward(self, x):
        x += self.lin2(torch.relu(self.lin1(x)))
        return x


class SoftmaxInside(Plain):
    """B04: a softmax over the hidden layer."""

    def forward(self, x):
        scores = self.lin1(x)
        exp = (scores - scores.max(-1, keepdim=True).values).exp()
        return self.lin2(exp / exp.sum(-1, keepdim=True))


class ThreeMaps(Plain):
    """9: one map too many."""

    def __init__(self, d_model, d_ff):
        super().__init__(d_model, d_ff)
        self.lin3 = nn.Linear(d_model, d_model)

    def forward(self, x):
        return self.lin3(super().forward(x))


class Leaky(Plain):
    """J06: leaky ReLU with a slope of 0.2."""

    def forward(self, x):
        return self.lin2(F.leaky_relu(self.lin1(x), 0.2))


class NormsFirst(Plain):
    """G10: the norm of the wrapper is inside, before the first map."""

    def forward(self, x):
        return super().forward(F.layer_norm(x, x.shape[-1:]))


class LeavesOutABias(Plain):
    """9: b_2 is registered and never used."""

    def forward(self, x):
        return F.relu(self.lin1(x)) @ self.lin2.weight.T


class ReshapesBack(nn.Module):
    """Convolutions, whose answer is reshaped instead of turned."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w_1, self.w_2 = nn.Conv1d(d_model, d_ff, 1), nn.Conv1d(d_ff, d_model, 1)

    def forward(self, x):
        return self.w_2(self.w_1(x.mT).relu()).reshape(x.shape)


class ReshapesBoth(ReshapesBack):
    """Reshaped on both ways."""

    def forward(self, x):
        batch, length, d_model = x.shape
        return self.w_2(self.w_1(x.reshape(batch, d_model, length)).relu()).reshape(x.shape)


class ReshapesThere(ReshapesBack):
    """Reshaped on the way in, turned on the way back."""

    def forward(self, x):
        batch, length, d_model = x.shape
        return self.w_2(self.w_1(x.reshape(batch, d_model, length)).relu()).mT


FAULTS = {
    "reshapes back": (ReshapesBack, "the answer comes back by a reshape, which mixes"),
    "reshapes both": (ReshapesBoth, "goes in and comes back by a reshape, which mixes"),
    "reshapes there": (ReshapesThere, "goes in by a reshape, which mixes"),
    "leaky": (Leaky, "leaky ReLU (slope 0.2)"),
    "norms first": (NormsFirst, "LayerNorm is applied to the first input"),
    "leaves out a bias": (LeavesOutABias, "b_2 has no effect"),
    "no bend": (NoBend, "activation is missing"),
    "gelu": (Gelu, "GELU"),
    "bends twice": (BendsTwice, "output is bent"),
    "bends last": (BendsLast, "after the second map"),
    "residual": (WithResidual, "x is added"),
    "norm": (WithNorm, "output is normed"),
    "pools": (Pools, "averaged over the positions"),
    "no bias": (NoBias, "parameters"),
    "narrow": (Narrow, "parameters"),
    "in a list": (InAList, "registered"),
    "always drops": (AlwaysDrops, "dropout is on"),
    "in place": (InPlace, "in place"),
    "softmax": (SoftmaxInside, "softmax"),
    "three maps": (ThreeMaps, "parameters"),
}


class Matrices(nn.Module):
    """Bare parameters, used as x @ W."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.w2, self.b2 = (
            nn.Parameter(torch.randn(d_ff, d_model)),
            nn.Parameter(torch.zeros(d_model)),
        )
        self.w1, self.b1 = nn.Parameter(torch.randn(d_model, d_ff)), nn.Parameter(torch.zeros(d_ff))

    def forward(self, x):
        return torch.maximum(x @ self.w1 + self.b1, torch.zeros(())) @ self.w2 + self.b2


class Turned(Matrices):
    """Bare parameters, laid out as nn.Linear does."""

    def __init__(self, d_model, d_ff):
        super().__init__(d_ff, d_model)
        self.b1, self.b2 = nn.Parameter(torch.zeros(d_ff)), nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        h = torch.einsum("...i,hi->...h", x, self.w1) + self.b1
        return torch.einsum("...h,ih->...i", h * (h > 0), self.w2) + self.b2


class Convolutions(nn.Module):
    """Two convolutions of width 1."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(d_model, d_ff, 1), nn.ReLU(), nn.Conv1d(d_ff, d_model, 1)
        )

    def forward(self, x):
        return self.net(x.transpose(1, 2)).transpose(1, 2)


class Loop(Plain):
    """One position after the other."""

    def forward(self, x):
        return torch.stack([super(Loop, self).forward(x[:, t]) for t in range(x.shape[1])], dim=1)


class Drops(Plain):
    """With dropout, registered the other way round."""

    def __init__(self, dim, hidden, dropout=0.1, **extra):
        nn.Module.__init__(self)
        self.back, self.drop = nn.Linear(hidden, dim), nn.Dropout(dropout)
        self.up = nn.Linear(dim, hidden)

    def forward(self, x, return_hidden=False):
        return self.back(self.drop(F.relu(self.up(x))))


class WeightNorm(Plain):
    """Length and direction of one map apart."""

    def __init__(self, d_model, d_ff):
        super().__init__(d_model, d_ff)
        self.lin1 = nn.utils.parametrizations.weight_norm(self.lin1)


class OtherOrder(Plain):
    """d_ff stands first, and dropout must be given."""

    def __init__(self, d_ff, d_model, dropout):
        super().__init__(d_model, d_ff)
        self.dropout = nn.Dropout(dropout)


RIGHT = {
    "other order": OtherOrder,
    "weight norm": WeightNorm,
    "ours": ours.FeedForward,
    "plain": Plain,
    "sequential": lambda d, h: nn.Sequential(nn.Linear(d, h), nn.ReLU(), nn.Linear(h, d)),
    "matrices": Matrices,
    "turned": Turned,
    "convolutions": Convolutions,
    "loop": Loop,
    "drops": Drops,
    "lazy": lambda d, h: nn.Sequential(nn.LazyLinear(h), nn.ReLU(inplace=True), nn.LazyLinear(d)),
}
