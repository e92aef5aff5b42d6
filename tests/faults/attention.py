"""Wrong and right attentions, as learners write them; each key begins with its grader."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from tutorial_transformer import attention as ours


def unscaled(query, key, value, mask=None):
    """D13: no division at all."""
    scores = torch.matmul(query, key.transpose(1, 2))
    if mask is not None:
        scores = scores.masked_fill(mask == 0, float("-inf"))
    weights = torch.nan_to_num(torch.softmax(scores, dim=-1))
    return torch.matmul(weights, value), weights


def scaled_by_width(query, key, value, mask=None):
    """D13: divided by d_k instead of its root."""
    d_k = query.size(-1)
    scores = torch.einsum("bqd,bkd->bqk", query, key) / d_k
    weights = ours.masked_softmax(scores, mask)
    return torch.einsum("bqk,bkv->bqv", weights, value)


def scaled_by_length(query, key, value, mask=None):
    """D13: the root of the number of keys."""
    scores = query @ key.mT / math.sqrt(key.shape[1])
    return ours.masked_softmax(scores, mask) @ value


def softmax_over_queries(query, key, value, mask=None):
    """B03, B04: softmax along dim 1."""
    scores = query @ key.mT / query.shape[-1] ** 0.5
    if mask is not None:
        scores = torch.where(mask, scores, -torch.inf)
    return scores.softmax(dim=1).nan_to_num() @ value


def mask_hides_true(query, key, value, mask=None):
    """A01, A02: fills where the mask is True."""
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask, -1e9)
    return scores.softmax(-1) @ value


def fill_thrown_away(query, key, value, mask=None):
    """A15: the result of masked_fill is not kept."""
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    if mask is not None:
        scores.masked_fill(~mask, -1e9)
    weights = F.softmax(scores, dim=-1)
    return weights @ value, weights


def mask_afterwards(query, key, value, mask=None):
    """C-049: weights are set to 0 after the softmax."""
    weights = (query @ key.mT * query.shape[-1] ** -0.5).softmax(-1)
    if mask is not None:
        weights = weights * mask
    return weights @ value


def mask_added(query, key, value, mask=None):
    """A04: a mask of 0 and 1 is added."""
    bias = 0.0 if mask is None else mask.to(query.dtype)
    return ((query @ key.mT) / math.sqrt(query.shape[-1]) + bias).softmax(-1) @ value


def scores_multiplied(query, key, value, mask=None):
    """A04: hidden scores are multiplied by 0."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores * mask
    return torch.softmax(scores, -1) @ value


def nan_rows(query, key, value, mask=None):
    """C01: softmax of a row of -inf."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if mask is not None:
        scores[~mask.expand_as(scores)] = float("-inf")
    weights = scores.softmax(-1)
    return weights @ value, weights


def average_of_hidden(query, key, value, mask=None):
    """A09: -1e9 makes an empty row uniform."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not(), -1e9)
    exp = torch.exp(scores - scores.max(dim=-1, keepdim=True).values)
    return exp / exp.sum(dim=-1, keepdim=True) @ value


def half_overflows(query, key, value, mask=None):
    """C07: the fill does not fit in float16; empty rows are cared for."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if mask is None:
        return scores.softmax(-1) @ value
    return scores.masked_fill(~mask, -1e9).softmax(-1).masked_fill(~mask, 0) @ value


def fill_too_high(query, key, value, mask=None):
    """B: -1e4 is not low enough for large scores."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if mask is None:
        return scores.softmax(-1) @ value
    weights = scores.masked_fill(~mask, -1e4).softmax(-1)
    return weights.masked_fill(~mask.any(-1, keepdim=True), 0) @ value


def exp_overflows(query, key, value, mask=None):
    """C07: exp without subtracting the largest score."""
    exp = torch.exp(query @ key.mT / math.sqrt(query.shape[-1]))
    if mask is not None:
        exp = exp * mask
    total = exp.sum(-1, keepdim=True)
    return torch.where(total > 0, exp / total, torch.zeros_like(exp)) @ value


def averages_keys(query, key, value, mask=None):
    """A20: key in the place of value."""
    return ours.scaled_dot_product_attention(query, key, key, mask)


def weights_first(query, key, value, mask=None):
    """D10: the tuple is the wrong way round."""
    output, weights = ours.scaled_dot_product_attention(query, key, value, mask)
    return weights, output


def key_reshaped(query, key, value, mask=None):
    """D05: view instead of transpose."""
    batch, k_len, d_k = key.shape
    scores = query @ key.reshape(batch, d_k, k_len) / math.sqrt(d_k)
    return ours.masked_softmax(scores, mask) @ value


def always_dropping(query, key, value, mask=None):
    """E03: F.dropout acts in evaluation too."""
    _, weights = ours.scaled_dot_product_attention(query, key, value, mask)
    return F.dropout(weights, 0.2) @ value, weights


def shows_scores(query, key, value, mask=None):
    """E01: the second answer is what went into the softmax."""
    scores = ours.attention_scores(query, key)
    return ours.masked_softmax(scores, mask) @ value, scores


def shows_unmasked(query, key, value, mask=None):
    """E01: the map is drawn without the mask."""
    output = F.scaled_dot_product_attention(query, key, value, mask)
    return output, ours.attention_scores(query, key).softmax(-1)


def nan_gradient(query, key, value, mask=None):
    """C01: -inf is added, the output is repaired, the gradient is not."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores + torch.zeros_like(scores).masked_fill(~mask, float("-inf"))
    return scores.softmax(-1).nan_to_num(0.0) @ value


def causal_always(query, key, value, mask=None):
    """B05: the future is hidden in every attention."""
    past = torch.ones(query.shape[1], key.shape[1]).tril().bool()
    return F.scaled_dot_product_attention(query, key, value, past if mask is None else mask & past)


def no_softmax(query, key, value, mask=None):
    """B03: raw scores average the values."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    return (scores if mask is None else scores.masked_fill(~mask, 0)) @ value


def softmax_columns(scores, mask):
    """B03: columns sum to 1."""
    return torch.softmax(torch.where(mask, scores, float("-inf")), dim=-2).nan_to_num()


def softmax_inverted(scores, mask):
    """A01: hides the visible keys."""
    filled = scores.clone()
    filled[mask.expand_as(scores)] = float("-inf")
    return filled.softmax(-1).nan_to_num(0)


def softmax_ignores(scores, mask):
    """A15: masked_fill is not kept."""
    scores.masked_fill(mask.logical_not(), float("-inf"))
    return scores.softmax(-1)


def softmax_late(scores, mask):
    """C-049: masks the weights."""
    return F.softmax(scores, dim=-1).masked_fill(~mask, 0.0)


def softmax_added(scores, mask):
    """A04: adds 0 and 1."""
    return torch.softmax(scores + mask.float(), dim=-1)


def softmax_nan(scores, mask):
    """C01: NaN where nothing is visible."""
    exp = scores.masked_fill(~mask, -torch.inf)
    exp = (exp - exp.amax(-1, keepdim=True)).exp()
    return exp / exp.sum(-1, keepdim=True)


def softmax_uniform(scores, mask):
    """C01: uniform where nothing is visible."""
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1)


def softmax_half(scores, mask):
    """C07: -1e9 in float16."""
    return scores.masked_fill(~mask, -1e9).softmax(-1) * mask.any(-1, keepdim=True)


def softmax_weak_fill(scores, mask):
    """C07: -10000 as minus infinity."""
    return scores.masked_fill(~mask, -10000).softmax(-1) * mask.any(-1, keepdim=True)


def softmax_typo(scores, mask):
    """I24: 1e-9 for -1e9."""
    return scores.masked_fill(~mask, 1e-9).softmax(-1)


def softmax_twice(query, key, value, mask=None):
    """H01: weights go through another softmax."""
    weights = ours.masked_softmax(query @ key.mT / math.sqrt(query.shape[-1]), mask)
    return F.softmax(weights, dim=-1) @ value


def logarithms(query, key, value, mask=None):
    """H02: log_softmax in the place of softmax."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -1e9)
    return F.log_softmax(scores, dim=-1) @ value


def causal_for_any_mask(query, key, value, mask=None):
    """B11: the mask only switches is_causal on."""
    return F.scaled_dot_product_attention(query, key, value, is_causal=mask is not None)


def weak_number_added(query, key, value, mask=None):
    """C07: (1 - mask) times -10000 is added."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    if mask is None:
        return scores.softmax(-1) @ value
    weights = (scores + (1 - mask.to(scores.dtype)) * -1e4).softmax(-1)
    return weights * mask.any(-1, keepdim=True) @ value


def softmax_renormalised(scores, mask):
    """C-049: masked after the softmax, then divided by the rest."""
    weights = scores.softmax(-1) * mask
    return weights / (weights.sum(-1, keepdim=True) + 1e-9)


def softmax_from_fifty(scores, mask):
    """C07: -50 seems low."""
    weights = scores.masked_fill(~mask, -50.0).softmax(-1)
    return weights * mask.any(-1, keepdim=True)


def softmax_late_with_eps(scores, mask):
    """Masked after the softmax, and never divided by 0."""
    weights = scores.softmax(-1).masked_fill(~mask, 0.0)
    return weights / (weights.sum(-1, keepdim=True) + 1e-9)


def late_and_clamped(query, key, value, mask=None):
    """Masked after the softmax, the sum is kept from 0."""
    weights = (query @ key.mT * query.shape[-1] ** -0.5).softmax(-1)
    if mask is not None:
        weights = weights * mask
        weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-9)
    return weights @ value


def softmax_late_with_more(scores, mask):
    """Masked after the softmax, and a sum that is visibly too large."""
    weights = scores.softmax(-1).masked_fill(~mask, 0.0)
    return weights / (weights.sum(-1, keepdim=True) + 1e-6)


def softmax_lowest_float(scores, mask):
    """The lowest number of float32 in every dtype."""
    filled = scores.masked_fill(~mask, torch.finfo(torch.float32).min)
    return filled.softmax(-1) * mask.any(-1, keepdim=True)


def softmax_of_products(scores, mask):
    """The scores are multiplied by the mask, and the weights once more."""
    return (scores * mask).softmax(-1) * mask


FAULTS = {
    "masked_softmax: late with eps": (
        softmax_late_with_eps,
        "rounded to 0; hide the scores before",
    ),
    "attention: late and clamped": (late_and_clamped, "rounded to 0; hide the scores before"),
    "masked_softmax: late with more": (softmax_late_with_more, "1e-06 in the divisor"),
    "masked_softmax: lowest float": (softmax_lowest_float, "the fill overflows: it lies beyond"),
    "masked_softmax: products": (softmax_of_products, "score of 0 still takes its share"),
    "attention: softmax twice": (softmax_twice, "applied twice"),
    "attention: logarithms": (logarithms, "log_softmax"),
    "attention: causal for any mask": (causal_for_any_mask, "whatever it says"),
    "attention: weak number added": (weak_number_added, "added to hidden scores"),
    "masked_softmax: renormalised": (softmax_renormalised, "after the softmax"),
    "masked_softmax: fifty": (softmax_from_fifty, "not low enough"),
    "attention: unscaled": (unscaled, "not scaled"),
    "attention: scaled by width": (scaled_by_width, "not by its root"),
    "attention: scaled by length": (scaled_by_length, "number of keys"),
    "attention: softmax over queries": (softmax_over_queries, "over the queries"),
    "attention: mask hides True": (mask_hides_true, "inverted"),
    "attention: fill thrown away": (fill_thrown_away, "no effect"),
    "attention: mask afterwards": (mask_afterwards, "after the softmax"),
    "attention: mask added": (mask_added, "added to the scores as 0 and 1"),
    "attention: scores multiplied": (scores_multiplied, "hidden scores become 0"),
    "attention: NaN rows": (nan_rows, "gets NaN"),
    "attention: average of hidden": (average_of_hidden, "average of hidden"),
    "attention: half overflows": (half_overflows, "float16"),
    "attention: fill too high": (fill_too_high, "fill is not low enough"),
    "attention: exp overflows": (exp_overflows, "exp overflows"),
    "attention: averages keys": (averages_keys, "average the keys"),
    "attention: weights first": (weights_first, "where the output belongs"),
    "attention: key reshaped": (key_reshaped, "reshaped"),
    "attention: always dropping": (always_dropping, "dropout"),
    "attention: shows scores": (shows_scores, "scores before the softmax"),
    "attention: shows unmasked": (shows_unmasked, "know nothing of the mask"),
    "attention: NaN gradient": (nan_gradient, "gradient is NaN"),
    "attention: causal always": (causal_always, "future is hidden"),
    "attention: no softmax": (no_softmax, "no softmax"),
    "masked_softmax: columns": (softmax_columns, "over the queries"),
    "masked_softmax: inverted": (softmax_inverted, "inverted"),
    "masked_softmax: ignores": (softmax_ignores, "no effect"),
    "masked_softmax: late": (softmax_late, "after the softmax"),
    "masked_softmax: added": (softmax_added, "added to the scores as 0 and 1"),
    "masked_softmax: NaN": (softmax_nan, "gets NaN"),
    "masked_softmax: uniform": (softmax_uniform, "average of hidden"),
    "masked_softmax: half": (softmax_half, "float16"),
    "masked_softmax: weak fill": (softmax_weak_fill, "fill is not low enough"),
    "masked_softmax: typo": (softmax_typo, "hidden scores become 0"),
}


def loop(query, key, value, mask=None, dropout=None):
    """One query at a time, in plain numbers."""
    output = torch.zeros(query.shape[0], query.shape[1], value.shape[2])
    for b in range(len(query)):
        for i in range(query.shape[1]):
            row = None if mask is None else mask.expand(len(query), query.shape[1], -1)[b, i]
            seen = [j for j in range(key.shape[1]) if row is None or row[j]]
            scores = [float(query[b, i] @ key[b, j]) / math.sqrt(query.shape[2]) for j in seen]
            exps = [math.exp(score - max(scores)) for score in scores]
            for j, exp in zip(seen, exps, strict=True):
                output[b, i] += exp / sum(exps) * value[b, j]
    return output


def by_einsum(query, key, value, mask=None):
    """Einstein sums, -inf, NaN replaced."""
    scores = torch.einsum("bqd,bkd->bqk", query, key) / query.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = scores.softmax(-1).nan_to_num(0.0)
    return torch.einsum("bqk,bkd->bqd", weights, value), weights


def in_float32(query, key, value, mask=None):
    """The softmax in float32, whatever comes."""
    scores = (query @ key.mT / math.sqrt(key.size(-1))).float()
    weights = ours.masked_softmax(scores, mask).type_as(value)
    return [weights @ value, weights]


def scale_first(query, key, value, mask=None, **options):
    """Both sides scaled by the fourth root; the fill is the lowest number."""
    root = query.shape[-1] ** -0.25
    scores = torch.bmm(query * root, (key * root).transpose(1, 2))
    if mask is None:
        return scores.softmax(-1) @ value, None
    weights = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1)
    return torch.where(mask.any(-1, keepdim=True), weights, 0) @ value, None


class Module(torch.nn.Module):
    """A module, with dropout that is off in evaluation."""

    def __init__(self):
        super().__init__()
        self.dropout = torch.nn.Dropout(0.0)

    def forward(self, query, key, value, mask=None):
        output, weights = ours.scaled_dot_product_attention(query, key, value, mask, self.dropout)
        return output, weights


def softmax_loop(scores, mask):
    """Row by row over the visible keys."""
    weights = torch.zeros_like(scores)
    mask = mask.expand_as(scores)
    for b in range(scores.shape[0]):
        for i in range(scores.shape[1]):
            if mask[b, i].any():
                weights[b, i, mask[b, i]] = scores[b, i, mask[b, i]].softmax(0)
    return weights


def softmax_by_logsumexp(scores, mask=None):
    """exp(score - logsumexp)."""
    filled = scores if mask is None else torch.where(mask, scores, -torch.inf)
    return (filled - filled.logsumexp(-1, keepdim=True)).exp().nan_to_num(0.0)


def softmax_by_hand(scores, mask):
    """exp of the differences, times the mask."""
    exp = (scores - scores.masked_fill(~mask, -torch.inf).amax(-1, keepdim=True)).clamp(max=0).exp()
    exp = torch.where(mask, exp, torch.zeros_like(exp))
    return exp / exp.sum(-1, keepdim=True).clamp_min(1e-6)


def softmax_by_torch(scores, mask):
    """torch's own attention, with the identity as values."""
    eye = torch.eye(scores.shape[-1], dtype=scores.dtype).expand(len(scores), -1, -1)
    return F.scaled_dot_product_attention(scores, eye, eye, mask, scale=1.0)


def softmax_cleaned(scores, mask):
    """-inf, then zeros where the mask hides."""
    return scores.masked_fill(~mask, -torch.inf).softmax(-1).masked_fill(~mask, 0.0)


def mask_by_name(query, key, value, *, attn_mask=None, need_weights=True):
    """The mask goes by name only, and has another one."""
    weights = ours.masked_softmax(query @ key.mT / math.sqrt(query.shape[-1]), attn_mask)
    return weights @ value, weights


def dropout_before_mask(query, key, value, dropout=None, mask=None):
    """The mask is the fifth argument."""
    return ours.scaled_dot_product_attention(query, key, value, mask, dropout)[0]


def as_arrays(query, key, value, mask=None):
    """numpy inside and outside."""
    q, k, v = (x.detach().double().numpy() for x in (query, key, value))
    scores = q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1])
    shown = np.ones_like(scores, dtype=bool) if mask is None else mask.numpy()
    scores = np.where(shown, scores, -1e300)
    weights = np.exp(scores - scores.max(-1, keepdims=True)) * shown
    weights /= np.maximum(weights.sum(-1, keepdims=True), 1e-30)
    return (weights @ v).astype(query.numpy().dtype)


class WithTemperature(torch.nn.Module):
    """It must be told the root of the width."""

    def __init__(self, temperature, attn_dropout=0.1):
        super().__init__()
        self.temperature, self.dropout = temperature, torch.nn.Dropout(attn_dropout)

    def forward(self, q, k, v, mask=None):
        weights = self.dropout(ours.masked_softmax(q / self.temperature @ k.mT, mask))
        return weights @ v, weights


RIGHT = {
    "attention: mask by name": mask_by_name,
    "attention: dropout before mask": dropout_before_mask,
    "attention: arrays": as_arrays,
    "attention: with temperature": WithTemperature,
    "attention: ours": ours.scaled_dot_product_attention,
    "attention: torch": F.scaled_dot_product_attention,
    "attention: loop": loop,
    "attention: einsum": by_einsum,
    "attention: float32": in_float32,
    "attention: scale first": scale_first,
    "attention: module": Module(),
    "masked_softmax: ours": ours.masked_softmax,
    "masked_softmax: loop": softmax_loop,
    "masked_softmax: logsumexp": softmax_by_logsumexp,
    "masked_softmax: by hand": softmax_by_hand,
    "masked_softmax: torch": softmax_by_torch,
    "masked_softmax: cleaned": softmax_cleaned,
}
