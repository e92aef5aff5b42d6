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
    order: Callable = lambda probs: probs.argsort(-1, descending=True),
    back: Callable = lambda kept, places: torch.empty_like(kept).scatter(-1, places, kept),
) -> Callable:
    """Which words are in the nucleus; before and after are the sums without and with a word."""

    def keep(logits: Tensor, p: float) -> Tensor:
        places = order(probs(logits))
        ordered = probs(logits).gather(-1, places)
        after = ordered.cumsum(-1)
        before = (after - ordered).index_fill(-1, torch.tensor([0]), 0.0)
        kept = inside(before, after, p - 1e-6)
        return back(kept, places)

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
    "the k-th smallest is taken for the k-th largest": _keep(
        lambda x, k: x >= x.sort(-1).values[:, [min(k, x.shape[-1]) - 1]]
    ),
    "k has no effect: only the largest is kept": _keep(lambda x, k: _largest(x, 1)),
    "the largest in size are kept, whatever their sign": _keep(lambda x, k: _largest(x.abs(), k)),
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
        _keep(_nucleus(order=lambda probs: probs.argsort(-1)))
    ),
    "it is inverted: the nucleus is removed": (_keep(lambda x, p: ~_nucleus()(x, p))),
    "what was found for the sorted words is applied to the unsorted ones: scatter it back": (
        _keep(_nucleus(back=lambda kept, places: kept))
    ),
    "what was found for the sorted words goes back by gather; that needs scatter, or the inverse "
    "order": _keep(_nucleus(back=lambda kept, places: kept.gather(-1, places))),
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
    "at least two words stay; one is enough if its probability reaches p": (
        _keep(lambda x, p: _nucleus()(x, p) | _largest(x, 2))
    ),
    "p is taken for the share that is removed: the nucleus must reach p, not 1 - p": (
        _keep(lambda x, p: _nucleus()(x, 1 - p))
    ),
    "p has no effect: 0.9 is taken instead": _keep(lambda x, p: _nucleus()(x, 0.9)),
    "the probabilities are added up as they stand; sort them first, the largest in front": (
        _keep(_nucleus(order=lambda probs: torch.arange(probs.shape[-1]).expand_as(probs)))
    ),
    "only the most probable word is kept": _keep(lambda x, p: _largest(x, 1)),
    "the rows are not cut apart: the whole batch is one distribution": (
        lambda x, p: _keep(_nucleus())(x.flatten(), p).view_as(x)
    ),
}
