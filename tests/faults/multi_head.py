"""Wrong and right multi-head attentions, as learners write them; a key begins with its grader."""

import functools
import math

import torch
import torch.nn.functional as F
from torch import nn

from tutorial_transformer import multi_head as ours
from tutorial_transformer.attention import masked_softmax, scaled_dot_product_attention


def split_by_view(x, num_heads):
    """D02: a view straight to four axes."""
    batch, length, d_model = x.shape
    return x.view(batch, num_heads, length, d_model // num_heads)


def split_without_transpose(x, num_heads):
    """D04: the heads stay behind the length."""
    return torch.stack(x.chunk(num_heads, dim=-1), dim=2)


def split_for_keys(x, num_heads):
    """D04: transposed for the scores already."""
    return x.reshape(*x.shape[:2], num_heads, -1).permute(0, 2, 3, 1)


def split_heads_first(x, num_heads):
    """D04: heads before the batch."""
    return torch.stack(torch.split(x, x.shape[-1] // num_heads, -1))


def split_every_nth(x, num_heads):
    """D04: the last two axes of the cut exchanged."""
    batch, length, d_model = x.shape
    return x.view(batch, length, d_model // num_heads, num_heads).permute(0, 3, 1, 2)


def split_into_batch(x, num_heads):
    """D04: heads and batch in one axis."""
    pieces = x.reshape(x.shape[0], x.shape[1], num_heads, -1).transpose(1, 2)
    return pieces.reshape(-1, *pieces.shape[2:])


def merge_by_view(x):
    """D01: no transpose before the reshape."""
    batch, heads, length, d_k = x.shape
    return x.reshape(batch, length, heads * d_k)


def merge_interleaved(x):
    """D02: d_k before the heads."""
    return torch.stack(x.unbind(1), dim=-1).flatten(-2)


def merge_sum(x):
    """D02: heads are added."""
    return sum(x[:, i] for i in range(x.shape[1]))


def merge_not_yet(x):
    """D02: four axes come back."""
    return x.permute(0, 2, 1, 3).contiguous()


def merge_along_length(x):
    """D02: the heads stand one after the other in time."""
    return torch.cat(list(x.unbind(1)), dim=1)


def merge_first(x):
    """D02: a loop that returns too early."""
    for i in range(x.shape[1]):
        return x[:, i].clone()


class Base(nn.Module):
    """Four maps and a plain forward; subclasses put one part wrong."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h, self.d_k = num_heads, d_model // num_heads
        self.w_q, self.w_k = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.w_v, self.w_o = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)

    def cut(self, x):
        return x.view(x.shape[0], -1, self.h, self.d_k).transpose(1, 2)

    def scores(self, q, k):
        return q @ k.transpose(-2, -1) / math.sqrt(self.d_k)

    def weights(self, scores, mask):
        return masked_softmax(scores, mask)

    def merge(self, x):
        return x.transpose(1, 2).contiguous().view(x.shape[0], -1, self.h * self.d_k)

    def forward(self, query, key, value, mask=None):
        q, k, v = self.cut(self.w_q(query)), self.cut(self.w_k(key)), self.cut(self.w_v(value))
        if mask is not None:
            mask = mask.unsqueeze(1)
        return self.w_o(self.merge(self.weights(self.scores(q, k), mask) @ v))


class CutByView(Base):
    """D02: split by a view; the merge is right."""

    def cut(self, x):
        return x.reshape(x.shape[0], self.h, x.shape[1], self.d_k)


class MergedByView(Base):
    """D01: merged without moving the head axis back."""

    def merge(self, x):
        return x.reshape(x.shape[0], x.shape[2], -1)


class ViewTwice(CutByView):
    """D01, D02: views on both sides."""

    def merge(self, x):
        return x.reshape(x.shape[0], -1, self.h * self.d_k)


class NoTranspose(nn.Module):
    """D04: attention between the heads of one token."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.query_proj = nn.Linear(d_model, d_model)
        self.key_proj = nn.Linear(d_model, d_model)
        self.value_proj = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, query, key, value, mask=None):
        projected = self.query_proj(query), self.key_proj(key), self.value_proj(value)
        q, k, v = (x.unflatten(-1, (self.num_heads, -1)) for x in projected)
        weights = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=-1)
        return self.out_proj((weights @ v).flatten(2))


class EveryNth(Base):
    """D04: head i takes the features i, i + h, i + 2h."""

    def cut(self, x):
        return torch.stack([x[..., i :: self.h] for i in range(self.h)], dim=1)

    def merge(self, x):
        return torch.stack(x.unbind(1), dim=-1).flatten(-2)


class OneWideHead(Base):
    """D11: num_heads has no effect."""

    def __init__(self, d_model, num_heads):
        super().__init__(d_model, 1)


class WrongScale(Base):
    """D13: the root of d_model."""

    def scores(self, q, k):
        return q @ k.mT / (self.h * self.d_k) ** 0.5


class NoScale(Base):
    """D13: no scale."""

    def scores(self, q, k):
        return torch.einsum("bhqd,bhkd->bhqk", q, k)


class OverQueries(Base):
    """B03: softmax over the wrong axis."""

    def weights(self, scores, mask):
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -torch.inf)
        return scores.softmax(dim=2).nan_to_num(0)


class OverHeads(Base):
    """B04: softmax over the heads."""

    def weights(self, scores, mask):
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        return F.softmax(scores, dim=1).nan_to_num(0)


class HidesTrue(Base):
    """A01: the mask is read as torch's module reads it."""

    def weights(self, scores, mask):
        return masked_softmax(scores, None if mask is None else ~mask)


class NoHeadAxis(Base):
    """A-31: unsqueeze(0) in the place of unsqueeze(1)."""

    def forward(self, query, key, value, mask=None):
        q, k, v = self.cut(self.w_q(query)), self.cut(self.w_k(key)), self.cut(self.w_v(value))
        mask = None if mask is None else mask.unsqueeze(0)
        output = F.scaled_dot_product_attention(q, k, v, mask)
        return self.w_o(self.merge(output))


class MaskForgotten(Base):
    """A19: the mask is an argument that nobody reads."""

    def weights(self, scores, mask):
        return torch.softmax(scores, dim=-1)


class OnlyWhenTraining(Base):
    """B05, B06: the mask is tied to self.training."""

    def weights(self, scores, mask):
        return masked_softmax(scores, mask if self.training else None)


class OnlyWhenEvaluating(Base):
    """B05: the mask is forgotten in training mode."""

    def weights(self, scores, mask):
        return scores.softmax(-1) if self.training else masked_softmax(scores, mask)


class NanRows(Base):
    """C01, C02: -inf, and nothing for the empty row."""

    def weights(self, scores, mask):
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        return scores.softmax(-1)


class UniformRows(Base):
    """A09: a finite fill."""

    def weights(self, scores, mask):
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        return torch.softmax(scores, -1)


class NoOutput(nn.Module):
    """D11: the last map is missing."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.heads = num_heads
        self.to_q = nn.Linear(d_model, d_model, bias=False)
        self.to_k = nn.Linear(d_model, d_model, bias=False)
        self.to_v = nn.Linear(d_model, d_model, bias=False)

    def forward(self, query, key, value, mask=None):
        parts = (self.to_q(query), self.to_k(key), self.to_v(value))
        q, k, v = (ours.split_heads(x, self.heads) for x in parts)
        mask = None if mask is None else mask[:, None]
        return ours.merge_heads(scaled_dot_product_attention(q, k, v, mask)[0])


class KeysFromQueryMap(Base):
    """D15: w_q twice; w_k is never used."""

    def forward(self, query, key, value, mask=None):
        q, k, v = self.cut(self.w_q(query)), self.cut(self.w_q(key)), self.cut(self.w_v(value))
        attn = self.weights(self.scores(q, k), None if mask is None else mask.unsqueeze(1))
        return self.w_o(self.merge(attn @ v))


class SelfOnly(Base):
    """A11: cross-attention looks at the query's own sentence."""

    def forward(self, query, key, value, mask=None):
        return super().forward(query, query, query, mask)


class ValueIsKey(Base):
    """A11: two arguments, and the third one ignored."""

    def forward(self, query, key, value, mask=None):
        return super().forward(query, key, key, mask)


class Residual(Base):
    """G: the residual is inside."""

    def forward(self, query, key, value, mask=None):
        return query + super().forward(query, key, value, mask)


class AcrossTheBatch(nn.Module):
    """D07: torch's module with its default, batch second."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(d_model, num_heads)

    def forward(self, query, key, value, mask=None):
        return self.attention(query, key, value)[0]


class PlainList(nn.Module):
    """I9: the maps stand in a Python list."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.linears = [nn.Linear(d_model, d_model) for _ in range(4)]

    def forward(self, query, key, value, mask=None):
        inputs = zip(self.linears, (query, key, value), strict=False)
        q, k, v = (ours.split_heads(linear(x), self.h) for linear, x in inputs)
        mask = None if mask is None else mask[:, None]
        output, _ = scaled_dot_product_attention(q, k, v, mask)
        return self.linears[-1](ours.merge_heads(output))


class AlwaysDropping(Base):
    """E03: dropout does not know of eval()."""

    def weights(self, scores, mask):
        return F.dropout(masked_softmax(scores, mask), 0.3)


class WeightsFirst(Base):
    """D10: (weights, output)."""

    def forward(self, query, key, value, mask=None):
        q, k = self.cut(self.w_q(query)), self.cut(self.w_k(key))
        attn = self.weights(self.scores(q, k), None if mask is None else mask[:, None])
        return attn, self.w_o(self.merge(attn @ self.cut(self.w_v(value))))


class ShowsScores(Base):
    """E01: the weights that come with the output are no weights."""

    def forward(self, query, key, value, mask=None):
        output = super().forward(query, key, value, mask)
        return output, self.scores(self.cut(self.w_q(query)), self.cut(self.w_k(key)))


class Newest:
    """I11: the cache is bound anew at every step."""

    def __init__(self):
        self.keys = self.values = None

    def append(self, new_keys, new_values):
        self.keys, self.values = new_keys.clone(), new_values.clone()
        return self.keys, self.values

    def __len__(self):
        return 0 if self.keys is None else self.keys.shape[2]


class Lists:
    """A list of steps, joined when asked; right, for the faults below."""

    axis = 2

    def __init__(self):
        self.steps = []

    def append(self, new_keys, new_values):
        self.steps.append((new_keys, new_values))
        return self.joined()

    def joined(self):
        keys, values = zip(*self.steps, strict=True)
        return torch.cat(keys, self.axis), torch.cat(values, self.axis)

    def __len__(self):
        return sum(keys.shape[2] for keys, _ in self.steps)


class AlongTheBatch(Lists):
    """I11: torch.cat with its default axis."""

    axis = 0


class AlongTheWidth(Lists):
    """I11: the last axis."""

    axis = -1


class InFront(Lists):
    """I11: the newest stands first."""

    def append(self, new_keys, new_values):
        self.steps.insert(0, (new_keys, new_values))
        return self.joined()


class BeforeTheStep(Lists):
    """I11: the current token is not in the answer."""

    def append(self, new_keys, new_values):
        old = self.joined() if self.steps else (new_keys, new_values)
        self.steps.append((new_keys, new_values))
        return old


class Exchanged(Lists):
    """I11: values, keys."""

    def joined(self):
        return super().joined()[::-1]


class CountsSteps(Lists):
    """F08: the offset grows by one at every step."""

    def __len__(self):
        return len(self.steps)


class CountsBatch:
    """F08: len of a tensor is its first axis."""

    def __init__(self):
        self.keys = self.values = torch.empty(0)

    def append(self, new_keys, new_values):
        if self.keys.numel() == 0:
            self.keys, self.values = new_keys, new_values
        else:
            self.keys = torch.concat((self.keys, new_keys), dim=-2)
            self.values = torch.concat((self.values, new_values), dim=-2)
        return self.keys, self.values

    def __len__(self):
        return len(self.keys)


class OfTheClass:
    """I14: the lists belong to the class, the second prompt goes on from the first."""

    keys, values, length = [], [], 0

    def append(self, new_keys, new_values):
        self.keys.append(new_keys)
        self.values.append(new_values)
        self.length += new_keys.shape[2]
        return torch.cat(self.keys, dim=2), torch.cat(self.values, dim=2)


class Buffer:
    """I11: the place to write grows by one, whatever the step."""

    def __init__(self, max_len=128):
        self.max_len, self.length, self.at, self.buffers = max_len, 0, 0, None

    def append(self, new_keys, new_values):
        batch, heads, new, width = new_keys.shape
        if self.buffers is None:
            self.buffers = [new_keys.new_zeros(batch, heads, self.max_len, width) for _ in "kv"]
        for buffer, tensor in zip(self.buffers, (new_keys, new_values), strict=True):
            buffer[:, :, self.at : self.at + new] = tensor
        self.length = self.at + new
        self.at += 1
        return tuple(buffer[:, :, : self.length] for buffer in self.buffers)


class WholeBuffer(Buffer):
    """I11: the unused rest comes along."""

    def append(self, new_keys, new_values):
        super().append(new_keys, new_values)
        self.at = self.length
        return tuple(self.buffers)


class TorchsMask(nn.Module):
    """A02: our mask goes to torch's module unchanged."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h, self.inner = num_heads, nn.MultiheadAttention(d_model, num_heads, batch_first=True)

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            mask = mask.expand(len(query), query.shape[1], key.shape[1])
            mask = mask.repeat_interleave(self.h, dim=0)
        return self.inner(query, key, value, attn_mask=mask)


class RepeatedMask(TorchsMask):
    """D04: repeat lays the masks of the batch in another order than repeat_interleave."""

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            mask = ~mask.expand(len(query), query.shape[1], key.shape[1]).repeat(self.h, 1, 1)
        return self.inner(query, key, value, attn_mask=mask, need_weights=False)[0]


class BentProjections(Base):
    """D11: ReLU after each projection."""

    def cut(self, x):
        return super().cut(F.relu(x))


class WideHeads(nn.Module):
    """D11: every head has the width of the model."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(d_model, 3 * d_model) for _ in range(num_heads))
        self.out = nn.Linear(num_heads * d_model, d_model)

    def forward(self, query, key, value, mask=None):
        heads = []
        for one in self.maps:
            parts = zip(one.weight.chunk(3), (query, key, value), strict=True)
            q, k, v = (x @ weight.T for weight, x in parts)
            heads.append(scaled_dot_product_attention(q, k, v, mask)[0])
        return self.out(torch.cat(heads, dim=-1))


class KeysAsTheyAre(Base):
    """D11: w_k is never used."""

    def forward(self, query, key, value, mask=None):
        q, k, v = self.cut(self.w_q(query)), self.cut(key), self.cut(self.w_v(value))
        mask = None if mask is None else mask[:, None]
        return self.w_o(self.merge(self.weights(self.scores(q, k), mask) @ v))


class Window(Lists):
    """I14: the cache forgets what is older than eight positions."""

    def append(self, new_keys, new_values):
        keys, values = super().append(new_keys, new_values)
        return keys[:, :, -8:], values[:, :, -8:]


class ForgetsValues(Lists):
    """I11: only the keys are kept."""

    def append(self, new_keys, new_values):
        return super().append(new_keys, new_values)[0], new_values


class LengthIsAStub(Lists):
    """Append is written, len is not."""

    def __len__(self):
        raise NotImplementedError


class Misspelt(nn.Module):
    """The method has another name."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.project = nn.Linear(d_model, d_model)

    def forwrad(self, query, key, value, mask=None):
        return self.project(value)


class RoundedAway(Base):
    """Masked after the softmax, the sum is kept from 0."""

    def weights(self, scores, mask):
        weights = scores.softmax(-1)
        if mask is not None:
            weights = weights.masked_fill(~mask, 0)
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-9)
        return weights


FAULTS = {
    "kv_cache: length is a stub": (LengthIsAStub, "len(cache) is still to be written"),
    "multi_head: misspelt": (Misspelt, "Misspelt has no method forward"),
    "multi_head: rounded away": (RoundedAway, "rounded to 0; hide the scores before"),
    "multi_head: torch's mask": (TorchsMask, "inverted"),
    "multi_head: repeated mask": (RepeatedMask, "read as heads"),
    "multi_head: bent projections": (BentProjections, "bent by a ReLU"),
    "multi_head: wide heads": (WideHeads, "width d_model / num_heads"),
    "multi_head: keys as they are": (KeysAsTheyAre, "w_k is missing"),
    "kv_cache: window": (Window, "only the last 8 positions"),
    "kv_cache: forgets values": (ForgetsValues, "earlier values are lost"),
    "split_heads: view": (split_by_view, "view alone"),
    "split_heads: no transpose": (split_without_transpose, "transpose is missing"),
    "split_heads: for keys": (split_for_keys, "last two axes"),
    "split_heads: heads first": (split_heads_first, "batch and heads are exchanged"),
    "split_heads: every nth": (split_every_nth, "every h-th"),
    "split_heads: into batch": (split_into_batch, "one axis"),
    "merge_heads: view": (merge_by_view, "view alone"),
    "merge_heads: interleaved": (merge_interleaved, "interleaved"),
    "merge_heads: sum": (merge_sum, "summed"),
    "merge_heads: not yet": (merge_not_yet, "not merged"),
    "merge_heads: along length": (merge_along_length, "along the length"),
    "merge_heads: first": (merge_first, "first head"),
    "multi_head: cut by view": (CutByView, "cut by a view"),
    "multi_head: merged by view": (MergedByView, "without moving their axis back"),
    "multi_head: view twice": (ViewTwice, "cut and merged by a view"),
    "multi_head: no transpose": (NoTranspose, "transpose after the cut is missing"),
    "multi_head: every nth": (EveryNth, "every h-th"),
    "multi_head: one wide head": (OneWideHead, "num_heads is ignored"),
    "multi_head: wrong scale": (WrongScale, "√d_model"),
    "multi_head: no scale": (NoScale, "not scaled"),
    "multi_head: over queries": (OverQueries, "over the queries"),
    "multi_head: over heads": (OverHeads, "over the heads"),
    "multi_head: hides True": (HidesTrue, "inverted"),
    "multi_head: no head axis": (NoHeadAxis, "read as heads"),
    "multi_head: mask forgotten": (MaskForgotten, "no effect"),
    "multi_head: only when training": (OnlyWhenTraining, "only in training"),
    "multi_head: only when evaluating": (OnlyWhenEvaluating, "only in evaluation"),
    "multi_head: NaN rows": (NanRows, "gets NaN"),
    "multi_head: uniform rows": (UniformRows, "average of hidden"),
    "multi_head: no output": (NoOutput, "no output projection"),
    "multi_head: keys from w_q": (KeysFromQueryMap, "made by w_q"),
    "multi_head: self only": (SelfOnly, "asks itself"),
    "multi_head: value is key": (ValueIsKey, "value is ignored"),
    "multi_head: residual": (Residual, "residual"),
    "multi_head: across the batch": (AcrossTheBatch, "over the batch"),
    "multi_head: plain list": (PlainList, "plain list"),
    "multi_head: always dropping": (AlwaysDropping, "dropout"),
    "multi_head: weights first": (WeightsFirst, "where the output belongs"),
    "multi_head: shows scores": (ShowsScores, "scores before the softmax"),
    "kv_cache: newest": (Newest, "earlier ones are lost"),
    "kv_cache: along the batch": (AlongTheBatch, "along the batch"),
    "kv_cache: along the width": (AlongTheWidth, "along the width"),
    "kv_cache: in front": (InFront, "in front"),
    "kv_cache: before the step": (BeforeTheStep, "left out"),
    "kv_cache: exchanged": (Exchanged, "exchanged"),
    "kv_cache: counts steps": (CountsSteps, "counts the steps"),
    "kv_cache: counts batch": (CountsBatch, "batch size"),
    "kv_cache: of the class": (OfTheClass, "share their memory"),
    "kv_cache: buffer": (Buffer, "place to write"),
    "kv_cache: whole buffer": (WholeBuffer, "unused positions"),
}


def split_by_chunks(x, num_heads):
    """Chunks, stacked."""
    return torch.stack(x.chunk(num_heads, dim=-1), dim=1)


def split_by_loop(x, num_heads):
    """Number by number."""
    batch, length, d_model = x.shape
    out = torch.zeros(batch, num_heads, length, d_model // num_heads)
    for i in range(d_model):
        out[:, i * num_heads // d_model, :, i % (d_model // num_heads)] = x[:, :, i]
    return out


def split_by_permute(x, num_heads):
    """view and permute."""
    return x.view(x.size(0), x.size(1), num_heads, -1).permute(0, 2, 1, 3).contiguous()


def split_in_float64(x, num_heads=2):
    """reshape and swapaxes, in float64."""
    return x.double().reshape(*x.shape[:2], num_heads, -1).swapaxes(1, 2)


def merge_by_cat(x):
    """The heads, concatenated."""
    return torch.cat([x[:, i] for i in range(x.shape[1])], dim=-1)


def merge_by_permute(x):
    """permute, contiguous, view."""
    x = x.permute(0, 2, 1, 3).contiguous()
    return x.view(x.size(0), x.size(1), -1)


def merge_by_reshape(x):
    """transpose and reshape."""
    return x.transpose(1, 2).reshape(x.shape[0], -1, x.shape[1] * x.shape[3])


def merge_by_loop(x):
    """Number by number."""
    batch, heads, length, d_k = x.shape
    out = torch.empty(batch, length, heads * d_k)
    for head in range(heads):
        for i in range(d_k):
            out[..., head * d_k + i] = x[:, head, :, i]
    return out


class FourInAList(nn.Module):
    """One ModuleList; returns the weights of all heads."""

    def __init__(self, d_model, num_heads, dropout=0.1):
        super().__init__()
        self.h = num_heads
        self.linears = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))
        self.dropout = nn.Dropout(dropout)

    def forward(self, query, key, value, mask=None):
        mask = None if mask is None else mask.unsqueeze(1)
        parts = zip(self.linears, (query, key, value), strict=False)
        q, k, v = (linear(x).unflatten(-1, (self.h, -1)).transpose(1, 2) for linear, x in parts)
        output, attn = scaled_dot_product_attention(q, k, v, mask, self.dropout)
        return self.linears[-1](output.transpose(1, 2).flatten(2)), attn


class Head(nn.Module):
    """One head with its own small maps."""

    def __init__(self, d_model, d_k):
        super().__init__()
        self.query = nn.Linear(d_model, d_k, bias=False)
        self.key = nn.Linear(d_model, d_k, bias=False)
        self.value = nn.Linear(d_model, d_k)

    def forward(self, query, key, value, mask):
        scores = self.query(query) @ self.key(key).mT / self.key.out_features**0.5
        return masked_softmax(scores, mask) @ self.value(value)


class LoopOfHeads(nn.Module):
    """A head at a time, concatenated."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.heads = nn.ModuleList(Head(d_model, d_model // num_heads) for _ in range(num_heads))
        self.proj = nn.Linear(d_model, d_model)

    def forward(self, query, key, value, mask=None):
        return self.proj(torch.cat([head(query, key, value, mask) for head in self.heads], -1))


class Einsums(nn.Module):
    """Bare parameters with three axes; the mean of the weights comes along."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        shape = (num_heads, d_model, d_model // num_heads)
        self.w_q, self.w_k, self.w_v = (nn.Parameter(torch.randn(shape)) for _ in range(3))
        self.w_o = nn.Parameter(torch.randn(num_heads, d_model // num_heads, d_model))
        self.bias = nn.Parameter(torch.randn(d_model))

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            torch.einsum("bnd,hdk->bhnk", x, w)
            for x, w in ((query, self.w_q), (key, self.w_k), (value, self.w_v))
        )
        scores = torch.einsum("bhqk,bhnk->bhqn", q, k) / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask.unsqueeze(1), float("-inf"))
        attn = scores.softmax(-1).nan_to_num(0)
        return torch.einsum("bhqn,bhnk,hkd->bqd", attn, v, self.w_o) + self.bias, attn.mean(1)


class Fused(nn.Module):
    """One matrix for q, k and v, used as x @ matrix, part after part."""

    def __init__(self, d_model, num_heads, bias=True):
        super().__init__()
        self.num_heads = num_heads
        self.c_attn = nn.Linear(d_model, 3 * d_model, bias=bias)
        self.c_proj = nn.Linear(d_model, d_model, bias=bias)

    def forward(self, query, key, value, mask=None):
        weights, biases = self.c_attn.weight.chunk(3), self.c_attn.bias.chunk(3)
        parts = zip((query, key, value), weights, biases, strict=True)
        q, k, v = (ours.split_heads(F.linear(*part), self.num_heads) for part in parts)
        mask = mask if mask is None else mask[:, None]
        return self.c_proj(ours.merge_heads(F.scaled_dot_product_attention(q, k, v, mask)))


class FusedByHead(nn.Module):
    """One map for all, in which the q, k and v of a head stand side by side."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.qkv_proj = nn.Linear(d_model, 3 * d_model)
        self.o_proj = nn.Linear(d_model, d_model)

    def cut(self, x, part):
        x = self.qkv_proj(x).reshape(x.shape[0], x.shape[1], self.h, -1)
        return x.permute(0, 2, 1, 3).chunk(3, dim=-1)[part]

    def forward(self, query, key, value, mask=None):
        q, k, v = (self.cut(x, part) for part, x in enumerate((query, key, value)))
        output, attn = scaled_dot_product_attention(
            q, k, v, mask if mask is None else mask[:, None]
        )
        return self.o_proj(output.transpose(1, 2).flatten(2)), attn


class BareMatrices(nn.Module):
    """x @ matrix, registered in an order of its own, without names that help."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.d, self.a, self.b, self.c = (
            nn.Parameter(torch.randn(d_model, d_model)) for _ in range(4)
        )

    def forward(self, query, key, value, mask=None):
        parts = (query @ self.a, key @ self.b, value @ self.c)
        q, k, v = (ours.split_heads(x, self.num_heads) for x in parts)
        output, _ = scaled_dot_product_attention(q, k, v, mask if mask is None else mask[:, None])
        return ours.merge_heads(output) @ self.d


class FusedKeyValue(nn.Module):
    """A map for q, one for k and v together."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.to_q, self.to_kv = nn.Linear(dim, dim, bias=False), nn.Linear(dim, 2 * dim, bias=False)
        self.to_out = nn.Sequential(nn.Linear(dim, dim), nn.Dropout(0.5))

    def forward(self, query, key, value, mask=None):
        k, v = self.to_kv(key).chunk(2, -1)[0], self.to_kv(value).chunk(2, -1)[1]
        q, k, v = (ours.split_heads(x, self.heads) for x in (self.to_q(query), k, v))
        output, _ = scaled_dot_product_attention(q, k, v, mask if mask is None else mask[:, None])
        return self.to_out(ours.merge_heads(output))


class ThroughTorch(nn.Module):
    """torch's module behind our masks."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.attention = nn.MultiheadAttention(d_model, num_heads, batch_first=True)

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            mask = ~mask.expand(len(query), query.shape[1], key.shape[1])
            mask = mask.repeat_interleave(self.num_heads, dim=0)
        return self.attention(query, key, value, attn_mask=mask, need_weights=False)[0]


class OneTensor:
    """Keys and values stacked in one tensor; length is a property."""

    def __init__(self):
        self.both = None

    @property
    def length(self):
        return 0 if self.both is None else self.both.size(3)

    def append(self, new_keys, new_values):
        new = torch.stack([new_keys, new_values])
        self.both = new if self.both is None else torch.cat([self.both, new], dim=3)
        return self.both[0], self.both[1]


class Doubling:
    """A buffer that doubles, and answers with a list."""

    def __init__(self):
        self.buffers, self.size = None, 0

    def __len__(self):
        return self.size

    def append(self, new_keys, new_values):
        total = self.size + new_keys.shape[2]
        if self.buffers is None:
            self.buffers = [torch.empty_like(new_keys), torch.empty_like(new_values)]
        if total > self.buffers[0].shape[2]:
            self.buffers = [torch.cat([b, b, new_keys * 0], dim=2) for b in self.buffers]
        self.buffers[0][:, :, self.size : total] = new_keys
        self.buffers[1][:, :, self.size : total] = new_values
        self.size = total
        return [b[:, :, : self.size] for b in self.buffers]


class WithRoom:
    """Room is made once, so it must know how much; length is a method."""

    def __init__(self, max_len):
        self.max_len, self.n = max_len, 0

    def append(self, new_keys, new_values):
        if self.n == 0:
            batch, heads, _, width = new_keys.shape
            self.k = new_keys.new_zeros(batch, heads, self.max_len, width)
            self.v = torch.zeros_like(self.k)
        for position in range(new_keys.shape[2]):
            self.k[:, :, self.n] = new_keys[:, :, position]
            self.v[:, :, self.n] = new_values[:, :, position]
            self.n += 1
        return self.k[:, :, : self.n], self.v[:, :, : self.n]

    def length(self):
        return self.n


class HeadsFirst(Base):
    """num_heads stands first, and dropout must be given."""

    def __init__(self, num_heads, d_model, dropout):
        super().__init__(d_model, num_heads)
        self.dropout = nn.Dropout(dropout)


class MaskByName(Base):
    """The mask goes by name only."""

    def forward(self, query, key, value, *, attn_mask=None):
        return super().forward(query, key, value, attn_mask)


class Stacked(nn.Module):
    """All maps in one parameter, all biases in another."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.h = num_heads
        self.w = nn.Parameter(torch.randn(4, d_model, d_model))
        self.b = nn.Parameter(torch.zeros(4, d_model))

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            (x @ self.w[i] + self.b[i]).unflatten(-1, (self.h, -1)).transpose(1, 2)
            for i, x in enumerate((query, key, value))
        )
        mask = None if mask is None else mask[:, None]
        output = F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2)
        return output @ self.w[3] + self.b[3]


class Called(OneTensor):
    """The cache itself is called."""

    def __call__(self, new_keys, new_values):
        return super().append(new_keys, new_values)

    append = None


RIGHT = {
    "multi_head: heads first": HeadsFirst,
    "multi_head: mask by name": MaskByName,
    "multi_head: stacked": Stacked,
    "kv_cache: called": Called,
    "split_heads: ours": ours.split_heads,
    "split_heads: chunks": split_by_chunks,
    "split_heads: loop": split_by_loop,
    "split_heads: permute": split_by_permute,
    "split_heads: float64": split_in_float64,
    "merge_heads: ours": ours.merge_heads,
    "merge_heads: cat": merge_by_cat,
    "merge_heads: permute": merge_by_permute,
    "merge_heads: reshape": merge_by_reshape,
    "merge_heads: loop": merge_by_loop,
    "multi_head: ours": ours.MultiHeadAttention,
    "multi_head: plain": Base,
    "multi_head: torch": nn.MultiheadAttention,
    "multi_head: torch, batch first": functools.partial(nn.MultiheadAttention, batch_first=True),
    "multi_head: torch inside": ThroughTorch,
    "multi_head: four in a list": FourInAList,
    "multi_head: loop": LoopOfHeads,
    "multi_head: einsum": Einsums,
    "multi_head: fused": Fused,
    "multi_head: fused by head": FusedByHead,
    "multi_head: fused key and value": FusedKeyValue,
    "multi_head: bare matrices": BareMatrices,
    "multi_head: no bias": functools.partial(ours.MultiHeadAttention, bias=False),
    "kv_cache: ours": ours.KVCache,
    "kv_cache: ours with max_len": functools.partial(ours.KVCache, max_len=64),
    "kv_cache: lists": Lists,
    "kv_cache: one tensor": OneTensor,
    "kv_cache: doubling": Doubling,
    "kv_cache: with room": WithRoom,
}
