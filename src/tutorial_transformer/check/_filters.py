"""Wrong filters, each under the sentence that names the mistake."""

from collections.abc import Callable

import torch
from torch import Tensor


def _keep(keep: Callable, fill: float = -torch.inf) -> Callable:
    """A filter that keeps what keep(logits, limit) says."""
    return lambda logits, limit: logits.where(keep(logits, limit), torch.tensor(fill))


def _largest(logits: Tensor, k: int) -> Tensor:
    rank = logits.argsort(-1, descending=True).argsort(-1)
    return rank < k


def _nucleus(
    probs: Callable = lambda logits: logits.softmax(-1),
    inside: Callable = lambda before, after, p: (before < p) | (before == 0),
    descending: bool = True,
    back: bool = True,
) -> Callable:
    """Which words are in the nucleus; before and after are the sums without and with a word."""

    def keep(logits: Tensor, p: float) -> Tensor:
        ordered, order = probs(logits).sort(-1, descending=descending)
        after = ordered.cumsum(-1)
        kept = inside(after.roll(1, -1).index_fill(-1, torch.tensor([0]), 0.0), after, p - 1e-6)
        return torch.empty_like(kept).scatter(-1, order, kept) if back else kept

    return keep


WRONG_TOP_K = {
    "the k smallest are kept, wanted the k largest": _keep(lambda x, k: _largest(-x, k)),
    "it is inverted: the k largest are removed": _keep(lambda x, k: ~_largest(x, k)),
    "one too many is kept": _keep(lambda x, k: _largest(x, k + 1)),
    "one too few is kept: the k-th largest stays too": _keep(lambda x, k: _largest(x, k - 1)),
    "removed logits are set to 0, or near it, which is a logit like others; set them to -inf": (
        _keep(_largest, 0.0)
    ),
    "the fill is too mild: the probability of removed words must be exactly 0; set them to -inf": (
        _keep(_largest, -10.0)
    ),
    "nothing is removed (is the result of masked_fill kept?)": lambda logits, k: logits,
    "the first k of the vocabulary are kept, wanted the k largest": (
        _keep(lambda x, k: (torch.arange(x.shape[-1]) < k).expand_as(x))
    ),
    "the rows are not cut apart: the k largest of the whole batch are kept": (
        _keep(lambda x, k: _largest(x.flatten(), k).view_as(x))
    ),
    "the rows are not cut apart: all are measured against the first row's k-th largest": (
        _keep(lambda x, k: x >= x[0].sort(descending=True).values[min(k, x.shape[-1]) - 1])
    ),
    "the filter runs over the batch, not over the vocabulary, the last axis": (
        _keep(lambda x, k: _largest(x.T, k).T)
    ),
}
WRONG_TOP_P = {
    "the word that crosses p is dropped; it must stay, or less than p is left": (
        _keep(_nucleus(inside=lambda before, after, p: after <= p + 2e-6))
    ),
    "the word that crosses p is dropped, except where nothing would be left; it must stay": (
        _keep(_nucleus(inside=lambda before, after, p: (after <= p + 2e-6) | (before == 0)))
    ),
    "where the sum reaches p exactly, one word too many stays: compare with >=": (
        _keep(_nucleus(inside=lambda before, after, p: (before <= p + 2e-6) | (before == 0)))
    ),
    "one word too many stays: the nucleus ends with the word that crosses p": (
        _keep(_nucleus(inside=lambda before, after, p: (before < p).roll(1, -1) | (before == 0)))
    ),
    "p = 0 removes everything; the most probable word must always stay": (
        _keep(_nucleus(inside=lambda before, after, p: before < p))
    ),
    "the least probable words are kept: sort from the largest down": (
        _keep(_nucleus(descending=False))
    ),
    "it is inverted: the nucleus is removed": (_keep(lambda x, p: ~_nucleus()(x, p))),
    "what was found for the sorted words is applied to the unsorted ones: scatter it back": (
        _keep(_nucleus(back=False))
    ),
    "the logits are added up as if they were probabilities: softmax is missing": (
        _keep(_nucleus(probs=lambda logits: logits))
    ),
    "words with a probability of at least p are kept; wanted the most probable ones whose sum "
    "reaches p": _keep(lambda x, p: x.softmax(-1) >= p),
    "words with a probability of at least 1 - p are kept; wanted the most probable ones whose sum "
    "reaches p": _keep(lambda x, p: x.softmax(-1) >= 1 - p),
    "words with a probability of at least p times the largest are kept (min-p); wanted the most "
    "probable ones whose sum reaches p": (
        _keep(lambda x, p: x.softmax(-1) >= p * x.softmax(-1).amax(-1, keepdim=True))
    ),
    "removed logits are set to 0, or near it, which is a logit like others; set them to -inf": (
        _keep(_nucleus(), 0.0)
    ),
    "nothing is removed (is the result of masked_fill kept?)": lambda logits, p: logits,
    "only the most probable word is kept": _keep(lambda x, p: _largest(x, 1)),
    "the rows are not cut apart: the whole batch is one distribution": (
        lambda x, p: _keep(_nucleus())(x.flatten(), p).view_as(x)
    ),
}
