"""Wrong and right encoder layers, as learners write them."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from tutorial_transformer import encoder as ours
from tutorial_transformer.add_norm import AddNorm
from tutorial_transformer.feed_forward import FeedForward
from tutorial_transformer.multi_head import MultiHeadAttention


class Attention(nn.Module):
    """Plain multi-head attention with one map for query, key and value each."""

    def __init__(self, d_model, heads, bias=True):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (
            nn.Linear(d_model, d_model, bias=bias) for _ in range(4)
        )

    def forward(self, query, key, value, mask=None):
        def cut(x):
            return x.reshape(x.shape[0], x.shape[1], self.heads, -1).permute(0, 2, 1, 3)

        q, k, v = cut(self.q(query)), cut(self.k(key)), cut(self.v(value))
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(~mask.unsqueeze(1), -1e9)
        return self.out((scores.softmax(-1) @ v).permute(0, 2, 1, 3).flatten(2))


class Layer(nn.Module):
    """Right: post-norm and pre-norm spelt out."""

    def __init__(self, d_model, num_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__()
        self.attention = Attention(d_model, num_heads)
        self.feed = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.drop, self.norm_first = nn.Dropout(dropout), norm_first

    def attend(self, x, mask):
        return self.attention(x, x, x, mask)

    def forward(self, x, src_mask=None):
        if self.norm_first:
            x = x + self.drop(self.attend(self.norm1(x), src_mask))
            return x + self.drop(self.feed(self.norm2(x)))
        x = self.norm1(x + self.drop(self.attend(x, src_mask)))
        return self.norm2(x + self.drop(self.feed(x)))


class NoMask(Layer):
    """A19: the mask does not reach the attention."""

    def attend(self, x, mask):
        return self.attention(x, x, x)


class Inverted(Layer):
    """A01: True is taken for hidden."""

    def attend(self, x, mask):
        return self.attention(x, x, x, None if mask is None else ~mask)


class TrainOnly(Layer):
    """B05: the mask in training mode only."""

    def attend(self, x, mask):
        return self.attention(x, x, x, mask if self.training else None)


class AlwaysCausal(Layer):
    """B15: an encoder that looks back only."""

    def attend(self, x, mask):
        past = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()[None]
        return self.attention(x, x, x, past if mask is None else mask & past)


class LostAttention(Layer):
    """G09: the second residual adds the layer's input."""

    def forward(self, x, src_mask=None):
        if self.norm_first:
            h = x + self.drop(self.attend(self.norm1(x), src_mask))
            return x + self.drop(self.feed(self.norm2(h)))
        h = self.norm1(x + self.drop(self.attend(x, src_mask)))
        return self.norm2(x + self.drop(self.feed(h)))


class NormedShortcut(Layer):
    """G07: pre-norm whose shortcut is normed."""

    def forward(self, x, src_mask=None):
        if not self.norm_first:
            return super().forward(x, src_mask)
        x = self.norm1(x)
        x = x + self.drop(self.attend(x, src_mask))
        x = self.norm2(x)
        return x + self.drop(self.feed(x))


class AlwaysPost(Layer):
    """G05: norm_first is ignored."""

    def __init__(self, d_model, num_heads, d_ff, dropout, norm_first):
        super().__init__(d_model, num_heads, d_ff, dropout, False)


class NoFirstResidual(Layer):
    """G09: nothing is added after the attention."""

    def forward(self, x, src_mask=None):
        if self.norm_first:
            x = self.drop(self.attend(self.norm1(x), src_mask))
            return x + self.drop(self.feed(self.norm2(x)))
        x = self.norm1(self.drop(self.attend(x, src_mask)))
        return self.norm2(x + self.drop(self.feed(x)))


class OneNormLess(Layer):
    """G10: the feed-forward network's input is not normed."""

    def forward(self, x, src_mask=None):
        if self.norm_first:
            x = x + self.drop(self.attend(self.norm1(x), src_mask))
            return x + self.drop(self.feed(x))
        x = x + self.drop(self.attend(x, src_mask))
        return self.norm2(x + self.drop(self.feed(x)))


class FinalNorm(Layer):
    """G06: one more norm at the end."""

    def __init__(self, *args):
        super().__init__(*args)
        self.norm3 = nn.LayerNorm(args[0])

    def forward(self, x, src_mask=None):
        return self.norm3(super().forward(x, src_mask))


class SharedNorm(Layer):
    """G15: one norm in two roles."""

    def __init__(self, *args):
        super().__init__(*args)
        self.norm2 = self.norm1


class UnusedKey(Layer):
    """D07: the key is projected with the query's matrix."""

    def __init__(self, *args):
        super().__init__(*args)
        self.attention.k.forward = self.attention.q.forward


class FeedFirst(Layer):
    """G11: the feed-forward network comes first."""

    def forward(self, x, src_mask=None):
        if self.norm_first:
            x = x + self.drop(self.feed(self.norm2(x)))
            return x + self.drop(self.attend(self.norm1(x), src_mask))
        x = self.norm2(x + self.drop(self.feed(x)))
        return self.norm1(x + self.drop(self.attend(x, src_mask)))


class QueriesNormed(Layer):
    """G11: keys and values skip the norm in pre-norm order."""

    def forward(self, x, src_mask=None):
        if not self.norm_first:
            return super().forward(x, src_mask)
        x = x + self.drop(self.attention(self.norm1(x), x, x, src_mask))
        return x + self.drop(self.feed(self.norm2(x)))


class NoScale(Layer):
    """D13: √d_model in the place of √d_k."""

    def attend(self, x, mask):
        query = x / math.sqrt(self.attention.heads)
        return self.attention(query, x, x, mask)


class Scrambled(Layer):
    """D01: the heads are cut by a view."""

    def attend(self, x, mask):
        a, (batch, length, d_model) = self.attention, x.shape
        q, k, v = (f(x).view(batch, a.heads, length, -1) for f in (a.q, a.k, a.v))
        mask = None if mask is None else mask[:, None]
        out = F.scaled_dot_product_attention(q, k, v, mask)
        return a.out(out.transpose(1, 2).reshape(batch, length, d_model))


class AcrossBatch(Layer):
    """D07: batch and length exchanged."""

    def __init__(self, d_model, num_heads, d_ff, dropout, norm_first):
        super().__init__(d_model, num_heads, d_ff, dropout, norm_first)
        self.mha = nn.MultiheadAttention(d_model, num_heads)
        del self.attention

    def attend(self, x, mask):
        return self.mha(x, x, x)[0]


class NoBend(Layer):
    """4: no ReLU."""

    def __init__(self, *args):
        super().__init__(*args)
        self.feed = nn.Sequential(self.feed[0], self.feed[2])


class FixedRate(Layer):
    """E03: dropout 0.1 whatever is asked for."""

    def __init__(self, d_model, num_heads, d_ff, dropout, norm_first):
        super().__init__(d_model, num_heads, d_ff, 0.1, norm_first)


class NoDropout(Layer):
    """E03: dropout is forgotten."""

    def __init__(self, d_model, num_heads, d_ff, dropout, norm_first):
        super().__init__(d_model, num_heads, d_ff, 0.0, norm_first)


class DropsAttentionOnly(Layer):
    """E04: no dropout behind the feed-forward network."""

    def forward(self, x, src_mask=None):
        if self.norm_first:
            x = x + self.drop(self.attend(self.norm1(x), src_mask))
            return x + self.feed(self.norm2(x))
        x = self.norm1(x + self.drop(self.attend(x, src_mask)))
        return self.norm2(x + self.feed(x))


class DropsSum(Layer):
    """E04: dropout on the stream itself."""

    def forward(self, x, src_mask=None):
        if not self.norm_first:
            return super().forward(x, src_mask)
        x = self.drop(x + self.attend(self.norm1(x), src_mask))
        return self.drop(x + self.feed(self.norm2(x)))


class InAList(Layer):
    """G16: the maps in a plain list."""

    def __init__(self, *args):
        super().__init__(*args)
        self.parts = [self._modules.pop("feed")]

    def feed(self, x):
        return self.parts[0](x)


class DropsBehindNorm(Layer):
    """E04: in post-norm order dropout comes last."""

    def forward(self, x, src_mask=None):
        if self.norm_first:
            return super().forward(x, src_mask)
        x = self.drop(self.norm1(x + self.attend(x, src_mask)))
        return self.drop(self.norm2(x + self.feed(x)))


class DropsNoFeed(Layer):
    """E04: in post-norm order the feed-forward network is not dropped."""

    def forward(self, x, src_mask=None):
        if self.norm_first:
            return super().forward(x, src_mask)
        x = self.norm1(x + self.drop(self.attend(x, src_mask)))
        return self.norm2(x + self.feed(x))


class DropsAlways(Layer):
    """8: F.dropout does not know of eval()."""

    def __init__(self, *args):
        super().__init__(*args)
        self.rate = self._modules.pop("drop").p

    def drop(self, x):
        return F.dropout(x, self.rate)


class ReluLast(Layer):
    """4: one more ReLU behind the second map."""

    def __init__(self, *args):
        super().__init__(*args)
        self.feed.append(nn.ReLU())


class ReluBehind(Layer):
    """4: the ReLU stands behind both maps."""

    def __init__(self, *args):
        super().__init__(*args)
        self.feed = nn.Sequential(self.feed[0], self.feed[2], self.feed[1])


class NoGain(Layer):
    """4: norms that learn nothing."""

    def __init__(self, *args):
        super().__init__(*args)
        self.norm1, self.norm2 = (nn.LayerNorm(args[0], elementwise_affine=False) for _ in "12")


class HidesTokens(Layer):
    """A01: the mask goes to torch's key_padding_mask as it is."""

    def __init__(self, *args):
        super().__init__(*args)
        self.attention = nn.MultiheadAttention(args[0], args[1], batch_first=True)

    def attend(self, x, mask):
        hidden = None if mask is None else mask[:, 0].expand(len(x), -1)
        return self.attention(x, x, x, key_padding_mask=hidden, need_weights=False)[0]


class OfParts(nn.Module):
    """Right: the course's parts."""

    def __init__(self, d_model, num_heads, d_ff, dropout=0.1, norm_first=False):
        super().__init__()
        self.attention = MultiHeadAttention(d_model, num_heads)
        self.feed = FeedForward(d_model, d_ff)
        self.add1, self.add2 = (AddNorm(d_model, dropout, norm_first) for _ in range(2))

    def forward(self, x, src_mask=None):
        x = self.add1(x, lambda y: self.attention(y, y, y, src_mask))
        return self.add2(x, self.feed)


class InvertedOurs(OfParts):
    """A01: True is taken for hidden, and zeros come where a query may see nothing."""

    def forward(self, x, src_mask=None):
        return super().forward(x, None if src_mask is None else ~src_mask)


class WrappersInAList(OfParts):
    """G16: the wrappers in a plain list."""

    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.adds = [self._modules.pop(name) for name in ("add1", "add2")]

    def forward(self, x, src_mask=None):
        x = self.adds[0](x, lambda y: self.attention(y, y, y, src_mask))
        return self.adds[1](x, self.feed)


class UnusedNorm(OfParts):
    """A norm more than is used."""

    def __init__(self, d_model, *sizes, **options):
        super().__init__(d_model, *sizes, **options)
        self.norm = nn.LayerNorm(d_model)


class LambdaReadsX(OfParts):
    """The lambda reads x, not what the wrapper gives it."""

    def forward(self, x, src_mask=None):
        mid = self.add1(x, lambda y: self.attention(x, x, x, src_mask))
        return self.add2(mid, self.feed)


class DropsShortcut(Layer):
    """Dropout on the shortcut, in post-norm order."""

    def forward(self, x, src_mask=None):
        if self.norm_first:
            return super().forward(x, src_mask)
        x = self.norm1(self.drop(x) + self.attend(x, src_mask))
        return self.norm2(self.drop(x) + self.feed(x))


class DropsResult(Layer):
    """Dropout behind the norms, in post-norm order."""

    def forward(self, x, src_mask=None):
        if self.norm_first:
            return super().forward(x, src_mask)
        x = self.drop(self.norm1(x + self.attend(x, src_mask)))
        return self.drop(self.norm2(x + self.feed(x)))


FAULTS = {
    "inverted, as ours": (InvertedOurs, "the mask is inverted"),
    "wrappers in a list": (WrappersInAList, "parts in a plain list"),
    "unused norm": (UnusedNorm, "never used"),
    "lambda reads x": (LambdaReadsX, "read y"),
    "drops the shortcut": (DropsShortcut, "dropout acts on x too"),
    "drops the result": (DropsResult, "dropout acts on x too"),
    "drops behind the norm": (DropsBehindNorm, "in post-norm order dropout acts on x too"),
    "drops no feed": (DropsNoFeed, "feed-forward network's output"),
    "drops always": (DropsAlways, "in evaluation mode"),
    "relu last": (ReluLast, "not once more behind both"),
    "relu behind": (ReluBehind, "not behind both"),
    "no gain": (NoGain, "the gain of the norms"),
    "hides tokens": (HidesTokens, "inverted"),
    "no mask": (NoMask, "mask has no effect"),
    "inverted": (Inverted, "inverted"),
    "train only": (TrainOnly, "training mode only"),
    "causal": (AlwaysCausal, "the future is hidden"),
    "lost attention": (LostAttention, "attention is lost"),
    "normed shortcut": (NormedShortcut, "shortcut carries the norm"),
    "always post": (AlwaysPost, "always post-norm"),
    "no first residual": (NoFirstResidual, "round the attention: the residual is missing"),
    "one norm less": (OneNormLess, "norm is missing"),
    "final norm": (FinalNorm, "one norm too many"),
    "shared norm": (SharedNorm, "too few norms"),
    "unused key": (UnusedKey, "attention.k.weight has no effect"),
    "feed first": (FeedFirst, "comes first"),
    "queries normed": (QueriesNormed, "only the queries are normed"),
    "no scale": (NoScale, "√d_model"),
    "scrambled": (Scrambled, "cut by a view"),
    "across batch": (AcrossBatch, "over the batch"),
    "no bend": (NoBend, "activation of the feed-forward network"),
    "fixed rate": (FixedRate, "rate is fixed"),
    "no dropout": (NoDropout, "dropout changes nothing"),
    "drops attention only": (DropsAttentionOnly, "at the feed-forward network's output"),
    "drops the sum": (DropsSum, "dropout acts on x too"),
    "in a list": (InAList, "plain list"),
}


class Fused(Layer):
    """Right: one map for all three, no biases, torch's kernel, convolutions."""

    def __init__(self, size, h, hidden, p_drop, pre_ln):
        super().__init__(size, h, hidden, p_drop, pre_ln)
        self.h, self.qkv = h, nn.Linear(size, 3 * size, bias=False)
        self.proj = nn.Linear(size, size, bias=False)
        self.up, self.down = nn.Conv1d(size, hidden, 1), nn.Conv1d(hidden, size, 1)
        del self.attention, self.feed

    def attend(self, x, mask):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.h, -1)).permute(2, 0, 3, 1, 4)
        mask = None if mask is None else mask.unsqueeze(1)
        return self.proj(F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2))

    def feed(self, x):
        return self.down(self.up(x.mT).relu()).mT


class Einsum(Layer):
    """Right: three-axis matrices and einsum."""

    def __init__(self, d_model, num_heads, d_ff, *, dropout=0.0, norm_first=False):
        super().__init__(d_model, num_heads, d_ff, dropout, norm_first)
        del self.attention
        self.d_k = d_model // num_heads
        shape = d_model, num_heads, self.d_k
        self.a, self.b, self.c = (nn.Parameter(torch.randn(shape)) for _ in range(3))
        self.d = nn.Parameter(torch.randn(num_heads, self.d_k, d_model))

    def attend(self, x, mask):
        q, k, v = (torch.einsum("btd,dhk->bhtk", x, w) for w in (self.a, self.b, self.c))
        scores = torch.einsum("bhqk,bhsk->bhqs", q, k) / self.d_k**0.5
        if mask is not None:
            scores = torch.where(mask[:, None], scores, float("-inf"))
        weights = scores.softmax(-1).nan_to_num()
        return torch.einsum("bhqs,bhsk,hkd->bqd", weights, v, self.d)


class PerHead(Layer):
    """Right: small maps for every head, and a loop; the weights come back, too."""

    def __init__(self, *args):
        super().__init__(*args)
        d_model, heads = args[:2]
        del self.attention
        size = d_model // heads
        self.heads = nn.ModuleList(
            nn.ModuleList(nn.Linear(d_model, size) for _ in range(3)) for _ in range(heads)
        )
        self.last = nn.Linear(d_model, d_model)

    def attend(self, x, mask):
        outs = [F.scaled_dot_product_attention(*(f(x) for f in head), mask) for head in self.heads]
        return self.last(torch.cat(outs, -1))

    def forward(self, x, src_mask=None):
        return super().forward(x, src_mask), None


class TorchAttention(Layer):
    """Right: torch's attention, with dropout on the weights and the hidden layer as well."""

    def __init__(self, d_model, num_heads, d_ff, dropout, norm_first):
        super().__init__(d_model, num_heads, d_ff, dropout, norm_first)
        self.attention = nn.MultiheadAttention(d_model, num_heads, dropout, batch_first=True)
        self.feed.insert(2, nn.Dropout(dropout))

    def attend(self, x, mask):
        if mask is not None:
            mask = ~mask.expand(len(x), x.shape[1], x.shape[1])
            mask = mask.repeat_interleave(self.attention.num_heads, 0)
        return self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]


class KeyPadding(HidesTokens):
    """Right for pads, which is what a source mask hides."""

    def attend(self, x, mask):
        return super().attend(x, None if mask is None else ~mask)


class Weights(HidesTokens):
    """Right: torch's attention with its weights, which gives NaN where all is hidden."""

    def attend(self, x, mask):
        if mask is not None:
            mask = ~mask.expand(len(x), x.shape[1], -1).repeat_interleave(2 + (len(x[0, 0]) > 8), 0)
        return self.attention(x, x, x, attn_mask=mask)[0]


class HeadBiases(Einsum):
    """Right: biases of the heads in two axes, and a mask that must be given."""

    def __init__(self, d_model, *, num_heads, d_ff, dropout, norm_first):
        super().__init__(d_model, num_heads, d_ff, dropout=dropout, norm_first=norm_first)
        self.bias = nn.Parameter(torch.zeros(num_heads, self.d_k))

    def attend(self, x, mask):
        return super().attend(x, mask) + torch.einsum("hk,hkd->d", self.bias, self.d)

    def forward(self, x, mask):
        return super().forward(x, mask)


RIGHT = {
    "key padding": KeyPadding,
    "torch's attention with weights": Weights,
    "biases of heads": HeadBiases,
    "ours": ours.EncoderLayer,
    "torch": nn.TransformerEncoderLayer,
    "torch, by a factory": lambda d, h, f, p, first: nn.TransformerEncoderLayer(
        d, h, f, p, batch_first=True, norm_first=first
    ),
    "plain": Layer,
    "fused": Fused,
    "einsum": Einsum,
    "per head": PerHead,
    "torch's attention": TorchAttention,
}
