"""Wrong and right norms and wrappers, as learners write them; a key begins with its grader."""

import itertools

import torch
import torch.nn.functional as F
from torch import nn

from tutorial_transformer import add_norm as ours


class Norm(nn.Module):
    """Right: written out."""

    def __init__(self, features, eps=1e-6):
        super().__init__()
        self.a_2, self.b_2 = nn.Parameter(torch.ones(features)), nn.Parameter(torch.zeros(features))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        var = ((x - mean) ** 2).mean(-1, keepdim=True)
        return self.a_2 * (x - mean) / torch.sqrt(var + self.eps) + self.b_2


def norm_by_loop(x, weight, bias, eps):
    """Right: vector by vector."""
    out = torch.empty_like(x)
    for at in itertools.product(*map(range, x.shape[:-1])):
        v = x[at]
        m = sum(v) / len(v)
        out[at] = (v - m) / (sum((v - m) ** 2) / len(v) + eps) ** 0.5 * weight + bias
    return out


def norm_by_torch(x, weight, bias, eps=1e-5):
    """Right: torch's function."""
    return F.layer_norm(x, weight.shape, weight, bias, eps)


class Annotated(Norm):
    """G01: unbiased, and eps outside."""

    def forward(self, x):
        return (
            self.a_2 * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + self.eps)
            + self.b_2
        )


class Unbiased(Norm):
    """G01: unbiased variance."""

    def forward(self, x):
        return (
            self.a_2
            * (x - x.mean(-1, keepdim=True))
            * torch.rsqrt(x.var(-1, keepdim=True) + self.eps)
            + self.b_2
        )


def eps_outside(x, weight, bias, eps):
    """G01: eps after the root."""
    centred = x - x.mean(dim=-1, keepdim=True)
    return weight * centred / (centred.pow(2).mean(dim=-1, keepdim=True).sqrt() + eps) + bias


def over_time(x, weight, bias, eps):
    """G04: along the positions."""
    mean, var = x.mean(1, keepdim=True), x.var(1, keepdim=True, unbiased=False)
    return (x - mean) / torch.sqrt(var + eps) * weight + bias


def over_sentence(x, weight, bias, eps):
    """G04: over positions and features."""
    flat = x.flatten(1)
    flat = (flat - flat.mean(1, keepdim=True)) / (
        flat.var(1, keepdim=True, unbiased=False) + eps
    ) ** 0.5
    return flat.view_as(x) * weight + bias


def rms(x, weight, bias, eps):
    """G01: no mean."""
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * weight + bias


def no_root(x, weight, bias, eps):
    """G01: the variance divides."""
    mean = x.mean(-1, keepdim=True)
    return weight * (x - mean) / (((x - mean) ** 2).mean(-1, keepdim=True) + eps) + bias


def no_eps(x, weight, bias, eps):
    """G01: a constant row is NaN."""
    return weight * (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True, unbiased=False) + bias


def no_bias(x, weight, bias, eps):
    """9: the bias is forgotten."""
    return F.layer_norm(x, x.shape[-1:], weight, None, eps)


class PlainNorm(nn.Module):
    """9: no parameters."""

    def __init__(self, d_model, eps):
        super().__init__()
        self.eps = eps

    def forward(self, x):
        return F.layer_norm(x, x.shape[-1:], eps=self.eps)


class OneNumber(Norm):
    """9: gain and bias are single numbers."""

    def __init__(self, d_model, eps):
        super().__init__(1, eps)


class Wrapper(nn.Module):
    """Right: nn.LayerNorm and nn.Dropout."""

    def __init__(self, d_model, dropout=0.1, norm_first=False):
        super().__init__()
        self.ln, self.drop, self.pre = nn.LayerNorm(d_model), nn.Dropout(dropout), norm_first

    def forward(self, x, sublayer):
        if self.pre:
            return x + self.drop(sublayer(self.ln(x)))
        return self.ln(x + self.drop(sublayer(x)))


class Functional(nn.Module):
    """Right: no parts, other names."""

    def __init__(self, size, p, pre_norm):
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))
        self.p, self.pre_norm = p, pre_norm

    def norm(self, x):
        return F.layer_norm(x, x.shape[-1:], self.gain, self.shift)

    def forward(self, inputs, function):
        y = function(self.norm(inputs) if self.pre_norm else inputs)
        if self.training:
            y = y * (torch.rand_like(y) >= self.p) / (1 - self.p)
        total = inputs + y
        return total if self.pre_norm else self.norm(total)


class OwnNorm(Wrapper):
    """Right: with a norm of one's own."""

    def __init__(self, *args):
        super().__init__(*args)
        self.ln = Norm(len(self.ln.weight))


class AddsInPlace(Wrapper):
    """Right: += on its own tensor."""

    def forward(self, x, sublayer):
        out = self.drop(sublayer(self.ln(x) if self.pre else x)).clone()
        out += x
        return out if self.pre else self.ln(out)


class NoResidual(Wrapper):
    """G05: x is not added."""

    def forward(self, x, sublayer):
        return self.drop(sublayer(self.ln(x))) if self.pre else self.ln(self.drop(sublayer(x)))


class Reassigned(Wrapper):
    """G07: x is overwritten before the sum."""

    def forward(self, x, sublayer):
        if self.pre:
            x = self.ln(x)
        x = x + self.drop(sublayer(x))
        return x if self.pre else self.ln(x)


class AlwaysPost(Wrapper):
    """G05: norm_first is not read."""

    def forward(self, x, sublayer):
        return self.ln(x + self.drop(sublayer(x)))


class AlwaysPre(Wrapper):
    """G05: as the annotated code does it."""

    def forward(self, x, sublayer):
        return x + self.drop(sublayer(self.ln(x)))


class Exchanged(Wrapper):
    """G05: the flag the wrong way round."""

    def forward(self, x, sublayer):
        if not self.pre:
            return x + self.drop(sublayer(self.ln(x)))
        return self.ln(x + self.drop(sublayer(x)))


class NormsTheBranch(Wrapper):
    """G12: x + norm(f(x))."""

    def forward(self, x, sublayer):
        return x + self.ln(self.drop(sublayer(x)))


class NoNorm(Wrapper):
    """G10: never normed."""

    def forward(self, x, sublayer):
        return x + self.drop(sublayer(x))


class NoDropout(Wrapper):
    """E03: dropout is never called."""

    def forward(self, x, sublayer):
        return x + sublayer(self.ln(x)) if self.pre else self.ln(x + sublayer(x))


class FixedRate(Wrapper):
    """E03: the rate is not passed on."""

    def __init__(self, d_model, dropout, norm_first):
        super().__init__(d_model, 0.1, norm_first)


class DropsSum(Wrapper):
    """E04: dropout after the sum."""

    def forward(self, x, sublayer):
        if self.pre:
            return self.drop(x + sublayer(self.ln(x)))
        return self.ln(self.drop(x + sublayer(x)))


class KeepRate(Wrapper):
    """E03: p is taken for the share that stays."""

    def __init__(self, d_model, dropout, norm_first):
        super().__init__(d_model, 1 - dropout if dropout else 0.0, norm_first)


class Unscaled(Functional):
    """E01: what stays is not scaled."""

    def forward(self, inputs, function):
        y = function(self.norm(inputs) if self.pre_norm else inputs)
        y = y * torch.bernoulli(torch.full_like(y, 1 - self.p)) if self.training else y
        return inputs + y if self.pre_norm else self.norm(inputs + y)


class DropsInEvaluation(Functional):
    """8: dropout in both modes; the rate is fixed."""

    def forward(self, inputs, function):
        y = F.dropout(function(self.norm(inputs) if self.pre_norm else inputs), 0.2)
        return inputs + y if self.pre_norm else self.norm(inputs + y)


class UnbiasedInside(Wrapper):
    """G01: the wrapper's norm has the unbiased deviation."""

    def __init__(self, *args):
        super().__init__(*args)
        self.ln = Annotated(len(self.ln.weight))


class Squares(Norm):
    """G01: the mean of the squares in the place of the variance."""

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        return self.a_2 * centred / torch.sqrt((x**2).mean(-1, keepdim=True) + self.eps) + self.b_2


class Halves(Wrapper):
    """G05: half of the branch."""

    def forward(self, x, sublayer):
        return super().forward(x, lambda y: sublayer(y) * 0.5)


class Detached(Wrapper):
    """G05: the shortcut is cut from the graph."""

    def forward(self, x, sublayer):
        if self.pre:
            return x.detach() + self.drop(sublayer(self.ln(x)))
        return self.ln(x.detach() + self.drop(sublayer(x)))


class PostNorm(Wrapper):
    """A wrapper whose post-norm order is its own."""

    def forward(self, x, sublayer):
        return super().forward(x, sublayer) if self.pre else self.post(x, sublayer)


class DropsPostSum(PostNorm):
    """Post-norm alone drops the sum."""

    def post(self, x, sublayer):
        return self.ln(self.drop(x + sublayer(x)))


class DropsShortcut(PostNorm):
    """Post-norm alone drops x."""

    def post(self, x, sublayer):
        return self.ln(self.drop(x) + sublayer(x))


class DropsResult(PostNorm):
    """Post-norm alone drops the normed sum."""

    def post(self, x, sublayer):
        return self.drop(self.ln(x + sublayer(x)))


class DropsNothingPost(PostNorm):
    """No dropout in post-norm order."""

    def post(self, x, sublayer):
        return self.ln(x + sublayer(x))


class DropsInput(Wrapper):
    """Dropout before the sub-layer."""

    def forward(self, x, sublayer):
        if self.pre:
            return x + sublayer(self.drop(self.ln(x)))
        return self.ln(x + sublayer(self.drop(x)))


class DropsInputToo(Wrapper):
    """Dropout before the sub-layer and behind it."""

    def forward(self, x, sublayer):
        return super().forward(x, lambda y: sublayer(self.drop(y)))


class NeverStops(Functional):
    """F.dropout at the right rate, in every mode."""

    def forward(self, inputs, function):
        y = F.dropout(function(self.norm(inputs) if self.pre_norm else inputs), self.p)
        return inputs + y if self.pre_norm else self.norm(inputs + y)


class Subtracts(Wrapper):
    """X is taken away."""

    def forward(self, x, sublayer):
        return sublayer(self.ln(x)) - x if self.pre else self.ln(sublayer(x) - x)


FAULTS = {
    "add_norm: drops the post-norm sum": (DropsPostSum, "post-norm order dropout acts on x too"),
    "add_norm: drops the shortcut": (DropsShortcut, "post-norm order dropout acts on x too"),
    "add_norm: drops the result": (DropsResult, "post-norm order dropout acts on x too"),
    "add_norm: no post-norm dropout": (DropsNothingPost, "nothing at the sub-layer's output"),
    "add_norm: drops the input": (DropsInput, "acts on the sub-layer's input"),
    "add_norm: drops the input too": (DropsInputToo, "acts on the sub-layer's input"),
    "add_norm: never stops": (NeverStops, "dropout is on in evaluation mode"),
    "add_norm: subtracts x": (Subtracts, "x is subtracted"),
    "layer_norm: squares": (Squares, "mean of the squares"),
    "add_norm: halves": (Halves, "halved"),
    "add_norm: detached": (Detached, "detached"),
    "layer_norm: annotated": (Annotated, "eps stands outside"),
    "layer_norm: unbiased": (Unbiased, "unbiased"),
    "layer_norm: eps outside": (eps_outside, "eps stands outside the root"),
    "layer_norm: over time": (over_time, "over the positions"),
    "layer_norm: over sentence": (over_sentence, "positions and features"),
    "layer_norm: rms": (rms, "RMSNorm"),
    "layer_norm: no root": (no_root, "by the variance"),
    "layer_norm: no eps": (no_eps, "eps is missing"),
    "layer_norm: no bias": (no_bias, "bias has no effect"),
    "layer_norm: no parameters": (PlainNorm, "two nn.Parameter"),
    "layer_norm: one number": (OneNumber, "two nn.Parameter"),
    "add_norm: no residual": (NoResidual, "residual is missing"),
    "add_norm: reassigned": (Reassigned, "shortcut carries the norm"),
    "add_norm: always post": (AlwaysPost, "always post-norm"),
    "add_norm: always pre": (AlwaysPre, "always pre-norm"),
    "add_norm: exchanged": (Exchanged, "wrong way round"),
    "add_norm: norms the branch": (NormsTheBranch, "normed alone"),
    "add_norm: no norm": (NoNorm, "norm is missing"),
    "add_norm: no dropout": (NoDropout, "dropout changes nothing"),
    "add_norm: fixed rate": (FixedRate, "rate is fixed"),
    "add_norm: drops the sum": (DropsSum, "dropout acts on x too"),
    "add_norm: keep rate": (KeepRate, "share that is kept"),
    "add_norm: unscaled": (Unscaled, "scaled by 1 / (1 - p)"),
    "add_norm: drops in evaluation": (DropsInEvaluation, "dropout is on"),
    "add_norm: unbiased norm": (UnbiasedInside, "unbiased"),
}


class FixedEps(Norm):
    """eps cannot be chosen."""

    def __init__(self, features):
        super().__init__(features)


class SublayerFirst(Wrapper):
    """The sub-layer is the first argument."""

    def forward(self, sublayer, x):
        return super().forward(x, sublayer)


RIGHT = {
    "layer_norm: fixed eps": FixedEps,
    "layer_norm: eps by name": lambda x, gamma, beta, *, eps: norm_by_torch(x, gamma, beta, eps),
    "add_norm: sub-layer first": SublayerFirst,
    "layer_norm: ours": ours.LayerNorm,
    "layer_norm: torch's class": nn.LayerNorm,
    "layer_norm: torch's function": F.layer_norm,
    "layer_norm: written out": Norm,
    "layer_norm: loop": norm_by_loop,
    "layer_norm: wrapped": norm_by_torch,
    "layer_norm: factory": lambda d_model, eps: nn.LayerNorm(d_model, eps=eps),
    "add_norm: ours": ours.AddNorm,
    "add_norm: torch's parts": Wrapper,
    "add_norm: functional": Functional,
    "add_norm: own norm": OwnNorm,
    "add_norm: in place": AddsInPlace,
    "add_norm: factory": lambda d, p, first: Wrapper(d, p, first),
}
