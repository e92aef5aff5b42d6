"""Wrong and right decoder layers, as learners write them."""

import torch
from faults.encoder import Attention
from torch import nn

from tutorial_transformer import decoder as ours


class Layer(nn.Module):
    """Right: three sub-layers in a row; wrong ones replace a step."""

    def __init__(self, d_model, num_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__()
        self.own, self.cross = Attention(d_model, num_heads), Attention(d_model, num_heads)
        self.feed = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(3))
        self.drop, self.pre = nn.Dropout(dropout), norm_first

    def step(self, number, x, sublayer):
        if self.pre:
            return x + self.drop(sublayer(self.norms[number](x)))
        return self.norms[number](x + self.drop(sublayer(x)))

    def look_back(self, x, mask):
        return self.own(x, x, x, mask)

    def ask(self, x, memory, tgt_mask, src_mask):
        return self.cross(x, memory, memory, src_mask)

    def forward(self, x, memory, tgt_mask=None, src_mask=None):
        x = self.step(0, x, lambda y: self.look_back(y, tgt_mask))
        x = self.step(1, x, lambda y: self.ask(y, memory, tgt_mask, src_mask))
        return self.step(2, x, self.feed)


class NoTargetMask(Layer):
    """B01: the future is visible."""

    def look_back(self, x, mask):
        return self.own(x, x, x)


class NoSourceMask(Layer):
    """1c: the source's pads are read."""

    def ask(self, x, memory, tgt_mask, src_mask):
        return self.cross(x, memory, memory)


class TargetMaskTwice(Layer):
    """A11: the target's mask in the cross-attention."""

    def ask(self, x, memory, tgt_mask, src_mask):
        return self.cross(x, memory, memory, tgt_mask)


class Exchanged(Layer):
    """A22: the masks in the wrong order."""

    def forward(self, x, memory, src_mask=None, tgt_mask=None):
        return super().forward(x, memory, tgt_mask, src_mask)


class CausalInTraining(Layer):
    """B05: the mask in training mode only."""

    def look_back(self, x, mask):
        return self.own(x, x, x, mask if self.training else None)


class HidesItself(Layer):
    """B01: the diagonal is hidden, too."""

    def look_back(self, x, mask):
        if mask is not None:
            mask = mask.clone()
            mask[:, range(x.shape[1]), range(x.shape[1])] = False
        return self.own(x, x, x, mask)


class WrongSentence(Layer):
    """A20: the second sentence gets the first one's source mask."""

    def ask(self, x, memory, tgt_mask, src_mask):
        return self.cross(x, memory, memory, None if src_mask is None else src_mask[:1])


class MasksRows(Layer):
    """A08: the mask hides queries."""

    def look_back(self, x, mask):
        return self.own(x, x, x, None if mask is None else mask.transpose(1, 2))


class ForgetsMemory(Layer):
    """B15: the second attention reads the target."""

    def ask(self, x, memory, tgt_mask, src_mask):
        return self.cross(x, x, x, tgt_mask)


class ValuesOfTarget(Layer):
    """D15: values do not come from memory."""

    def ask(self, x, memory, tgt_mask, src_mask):
        return self.cross(x, memory, x, src_mask)


class QueriesOfMemory(Layer):
    """D15: queries and keys exchanged."""

    def ask(self, x, memory, tgt_mask, src_mask):
        return self.cross(memory, x, x, None)


class NormsMemory(Layer):
    """G11: memory is normed with the target's norm."""

    def ask(self, x, memory, tgt_mask, src_mask):
        memory = self.norms[1](memory)
        return self.cross(x, memory, memory, src_mask)


class QueriesSkip(Layer):
    """G11: cross-attention asks with the layer's input."""

    def forward(self, x, memory, tgt_mask=None, src_mask=None):
        h = self.step(0, x, lambda y: self.look_back(y, tgt_mask))
        h = self.step(1, h, lambda y: self.ask(x, memory, tgt_mask, src_mask))
        return self.step(2, h, self.feed)


class LosesSelf(Layer):
    """G09: the second residual adds the layer's input."""

    def forward(self, x, memory, tgt_mask=None, src_mask=None):
        h = self.step(0, x, lambda y: self.look_back(y, tgt_mask))
        if self.pre:
            h = x + self.drop(self.ask(self.norms[1](h), memory, tgt_mask, src_mask))
        else:
            h = self.norms[1](x + self.drop(self.ask(h, memory, tgt_mask, src_mask)))
        return self.step(2, h, self.feed)


class CrossFirst(Layer):
    """G11: the order of the attentions."""

    def forward(self, x, memory, tgt_mask=None, src_mask=None):
        x = self.step(1, x, lambda y: self.ask(y, memory, tgt_mask, src_mask))
        x = self.step(0, x, lambda y: self.look_back(y, tgt_mask))
        return self.step(2, x, self.feed)


class NoFeed(Layer):
    """G11: two sub-layers only."""

    def forward(self, x, memory, tgt_mask=None, src_mask=None):
        x = self.step(0, x, lambda y: self.look_back(y, tgt_mask))
        return self.step(1, x, lambda y: self.ask(y, memory, tgt_mask, src_mask))


class NoCross(Layer):
    """G11: an encoder layer."""

    def forward(self, x, memory, tgt_mask=None, src_mask=None):
        x = self.step(0, x, lambda y: self.look_back(y, tgt_mask))
        return self.step(2, x, self.feed)


class NoCrossResidual(Layer):
    """G12: nothing is added after the cross-attention."""

    def step(self, number, x, sublayer):
        if number != 1:
            return super().step(number, x, sublayer)
        return (
            self.drop(sublayer(self.norms[1](x)))
            if self.pre
            else self.norms[1](self.drop(sublayer(x)))
        )


class WrongWayRound(Layer):
    """G05: the orders are exchanged."""

    def __init__(self, *args):
        super().__init__(*args)
        self.pre = not self.pre


class ShortcutNormed(Layer):
    """G07: pre-norm overwrites x."""

    def step(self, number, x, sublayer):
        if self.pre:
            x = self.norms[number](x)
            return x + self.drop(sublayer(x))
        return self.norms[number](x + self.drop(sublayer(x)))


class OneAttention(Layer):
    """G15: one attention in two roles."""

    def __init__(self, *args):
        super().__init__(*args)
        self.cross = self.own


class SameNorm(Layer):
    """G15: the norms are copies of one object."""

    def __init__(self, *args):
        super().__init__(*args)
        self.norms = nn.ModuleList([self.norms[0]] * 3)


class WrongAttention(Layer):
    """G11: the self-attention's weights are used twice."""

    def ask(self, x, memory, tgt_mask, src_mask):
        return self.own(x, memory, memory, src_mask)


class CrossNotDropped(Layer):
    """E04: no dropout behind the cross-attention."""

    def step(self, number, x, sublayer):
        if number == 1:
            return x + sublayer(self.norms[1](x)) if self.pre else self.norms[1](x + sublayer(x))
        return super().step(number, x, sublayer)


class FixedRate(Layer):
    """E03: the rate is not passed on."""

    def __init__(self, *args):
        super().__init__(*args)
        self.drop = nn.Dropout(0.2)


class Additive(Layer):
    """A04: the mask is added as 0 and 1."""

    def look_back(self, x, mask):
        a = self.own
        q, k, v = (f(x).unflatten(-1, (a.heads, -1)).transpose(1, 2) for f in (a.q, a.k, a.v))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores + mask.unsqueeze(1).float()
        return a.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class SourceInEval(Layer):
    """B05: src_mask in evaluation mode only."""

    def ask(self, x, memory, tgt_mask, src_mask):
        return self.cross(x, memory, memory, None if self.training else src_mask)


class DropsNorms(Layer):
    """E04: in post-norm order dropout acts behind the norms."""

    def step(self, number, x, sublayer):
        if self.pre:
            return super().step(number, x, sublayer)
        return self.drop(self.norms[number](x + sublayer(x)))


FAULTS = {
    "source in eval": (SourceInEval, "src_mask is obeyed in evaluation mode only"),
    "drops norms": (DropsNorms, "in post-norm order dropout acts on x too"),
    "no target mask": (NoTargetMask, "future leaks"),
    "no source mask": (NoSourceMask, "src_mask has no effect"),
    "target mask twice": (TargetMaskTwice, "target's mask is used in the cross"),
    "exchanged": (Exchanged, "changed places"),
    "causal in training": (CausalInTraining, "training mode only"),
    "hides itself": (HidesItself, "no position sees itself"),
    "wrong sentence": (WrongSentence, "mask of the first sentence"),
    "masks rows": (MasksRows, "transposed"),
    "forgets memory": (ForgetsMemory, "memory is not used"),
    "values of target": (ValuesOfTarget, "values from the target"),
    "queries of memory": (QueriesOfMemory, "queries from memory"),
    "norms memory": (NormsMemory, "memory is normed"),
    "queries skip": (QueriesSkip, "queries are the layer's input"),
    "loses self": (LosesSelf, "self-attention is lost"),
    "cross first": (CrossFirst, "cross-attention comes first"),
    "no feed": (NoFeed, "feed-forward network is missing"),
    "no cross": (NoCross, "cross-attention is missing"),
    "no cross residual": (NoCrossResidual, "round the cross-attention: the residual is missing"),
    "wrong way round": (WrongWayRound, "wrong way round"),
    "shortcut normed": (ShortcutNormed, "shortcut carries the norm"),
    "one attention": (OneAttention, "too few weights"),
    "same norm": (SameNorm, "too few norms"),
    "wrong attention": (WrongAttention, "has no effect on the output"),
    "cross not dropped": (CrossNotDropped, "at the cross-attention's output"),
    "fixed rate": (FixedRate, "rate is fixed"),
    "additive": (Additive, "added"),
}


class Written(nn.Module):
    """Right: written out, torch's attention, other names."""

    def __init__(self, size, h, hidden, p, prenorm):
        super().__init__()
        self.attn1 = nn.MultiheadAttention(size, h, batch_first=True)
        self.attn2 = nn.MultiheadAttention(size, h, batch_first=True)
        self.ln1, self.ln2, self.ln3 = (nn.LayerNorm(size, eps=1e-6) for _ in range(3))
        self.up, self.down = nn.Linear(size, hidden), nn.Linear(hidden, size)
        self.p, self.prenorm = p, prenorm

    def drop(self, x):
        return nn.functional.dropout(x, self.p, self.training)

    def attend(self, attn, x, source, mask):
        if mask is not None:
            mask = torch.where(mask, 0.0, float("-inf")).expand(len(x), x.shape[1], source.shape[1])
            mask = mask.repeat_interleave(attn.num_heads, dim=0)
        return self.drop(attn(x, source, source, attn_mask=mask, need_weights=False)[0])

    def forward(self, x, memory, tgt_mask=None, src_mask=None):
        if self.prenorm:
            y = self.ln1(x)
            x = x + self.attend(self.attn1, y, y, tgt_mask)
            x = x + self.attend(self.attn2, self.ln2(x), memory, src_mask)
            return x + self.drop(self.down(self.up(self.ln3(x)).relu()))
        x = self.ln1(x + self.attend(self.attn1, x, x, tgt_mask))
        x = self.ln2(x + self.attend(self.attn2, x, memory, src_mask))
        return self.ln3(x + self.drop(self.down(self.up(x).relu())))


class WithCache(Layer):
    """Right: one more argument, and the layer's attention has no biases."""

    def __init__(self, d_model, num_heads, d_ff, dropout=0.0, norm_first=False, bias=False):
        super().__init__(d_model, num_heads, d_ff, dropout, norm_first)
        self.own, self.cross = (Attention(d_model, num_heads, bias) for _ in range(2))

    def forward(self, x, memory, tgt_mask=None, src_mask=None, cache=None):
        return super().forward(x, memory, tgt_mask, src_mask)


class AllGiven(Layer):
    """Right: both masks must be given, and None is one."""

    def forward(self, tgt, encoded, self_mask, cross_mask):
        return super().forward(tgt, encoded, self_mask, cross_mask)


RIGHT = {
    "all given": AllGiven,
    "ours": ours.DecoderLayer,
    "torch": nn.TransformerDecoderLayer,
    "torch, by a factory": lambda d, h, f, p, first: nn.TransformerDecoderLayer(
        d, h, f, p, batch_first=True, norm_first=first
    ),
    "plain": Layer,
    "written out": Written,
    "with a cache": WithCache,
}
