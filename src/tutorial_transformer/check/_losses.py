"""Wrong losses, each under the sentence that names the mistake: the suspects of chapter 10."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from tutorial_transformer.check._targets import (
    crowded,
    overfull,
    smoothed,
    unsmoothed,
    without_pad,
    without_rest,
    without_right,
)


def _per_real(real: Tensor) -> Tensor:
    return real / real.sum().clamp(min=1)


def _loss(
    log_p: Callable = lambda logits: logits.log_softmax(-1),
    target: Callable = smoothed,
    weigh: Callable = _per_real,
    kl: bool = False,
    pad: int | None = None,
    sign: int = 1,
) -> Callable:
    """A loss with one mistake; weigh turns (real or not) into the weight of each token."""

    def loss(logits, tgt_out, pad_id=0, label_smoothing=0.0):
        pad_id = pad_id if pad is None else pad
        wanted = target(tgt_out, logits.shape[-1], label_smoothing, pad_id)
        terms = torch.where(wanted > 0, wanted * log_p(logits), 0)
        if kl:
            terms = terms - torch.special.xlogy(wanted, wanted)
        return sign * -(terms.sum(-1) * weigh((tgt_out != pad_id).to(logits.dtype))).sum()

    return loss


def _smooth_on_pads(logits, tgt_out, pad_id=0, label_smoothing=0.0) -> Tensor:
    sharp = _loss()(logits, tgt_out, pad_id)
    return (1 - label_smoothing) * sharp - label_smoothing * logits.log_softmax(-1).mean()


def _smooth_over_all(logits, tgt_out, pad_id=0, label_smoothing=0.0) -> Tensor:
    log_p, real = logits.log_softmax(-1), tgt_out != pad_id
    sharp = _loss()(logits, tgt_out, pad_id)
    return (1 - label_smoothing) * sharp - label_smoothing * (log_p * real[..., None]).mean()


def _without_class(logits, tgt_out, pad_id=0, label_smoothing=0.0) -> Tensor:
    logits = logits.index_fill(-1, torch.tensor([pad_id]), -1e4)
    return _loss()(logits, tgt_out, pad_id, label_smoothing)


def _by_class(logits, tgt_out, pad_id=0, label_smoothing=0.0) -> Tensor:
    wanted = smoothed(tgt_out, logits.shape[-1], label_smoothing).to(logits.dtype)
    terms = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none").sum(-1)
    return (terms * _per_real((tgt_out != pad_id).to(logits.dtype))).sum()


def _by_argmax(logits, tgt_out, pad_id=0, label_smoothing=0.0) -> Tensor:
    said = logits.argmax(-1)
    terms = smoothed(tgt_out, logits.shape[-1], label_smoothing) * -logits.log_softmax(-1)
    return (terms.sum(-1) * _per_real((said != pad_id).to(logits.dtype))).sum()


def _shifted(logits, tgt_out, pad_id=0, label_smoothing=0.0) -> Tensor:
    return _loss()(logits[:, :-1], tgt_out[:, 1:], pad_id, label_smoothing)


def _reshaped(logits: Tensor) -> Tensor:
    batch, length, vocab = logits.shape
    return logits.reshape(batch, vocab, length).transpose(1, 2).log_softmax(-1)


WRONG_LOSSES = {
    "softmax is applied twice: F.cross_entropy and log_softmax want logits, not probabilities": (
        _loss(lambda logits: logits.softmax(-1).log_softmax(-1))
    ),
    "the softmax is missing: logits are no log-probabilities": _loss(lambda logits: logits),
    "the logarithm is missing: a token costs -log p, not -p": (
        _loss(lambda logits: logits.softmax(-1))
    ),
    "the sign is wrong: a token costs -log p, and the loss is never negative": _loss(sign=-1),
    "it is in bits, with log2; wanted nats, with the natural logarithm": (
        _loss(lambda logits: logits.log_softmax(-1) / torch.tensor(2.0).log())
    ),
    "it is measured with log10; wanted nats, with the natural logarithm": (
        _loss(lambda logits: logits.log_softmax(-1) / torch.tensor(10.0).log())
    ),
    "it is the perplexity, exp of the loss; wanted the loss itself": (
        lambda *given: _loss()(*given).exp()
    ),
    "each class has a sigmoid of its own (binary cross entropy); one softmax runs over all": (
        _by_class
    ),
    "pad is taken out of the classes of the softmax; leave out padded targets, not the class": (
        _without_class
    ),
    "the mask is made from what the logits say; padded targets are those of tgt_out": _by_argmax,
    "the softmax runs over the positions; it must run over the classes, the last axis": (
        _loss(lambda logits: logits.log_softmax(1))
    ),
    "the softmax runs over the batch; it must run over the classes, the last axis": (
        _loss(lambda logits: logits.log_softmax(0))
    ),
    "the classes were moved with view or reshape, which scrambles them; transpose, or flatten the "
    "first two axes": _loss(_reshaped),
    "logits and tgt_out are shifted against each other once more: tgt_out is shifted already": (
        _shifted
    ),
    "padded targets are counted": _loss(weigh=lambda real: torch.ones_like(real) / real.numel()),
    "padded targets cost nothing, but they are still counted below the fraction line: divide by "
    "the number of real tokens": _loss(weigh=lambda real: real / real.numel()),
    "the mask is inverted: only padded targets count": (
        _loss(weigh=lambda real: (1 - real) / (1 - real).sum().clamp(min=1))
    ),
    "it is divided by the number of rows (batchmean); divide by the number of real tokens": (
        _loss(weigh=lambda real: real / len(real))
    ),
    "it is the mean of the rows' means, in which a short row weighs too much; sum over the whole "
    "batch, then divide once": (
        _loss(weigh=lambda real: real / real.sum(1, keepdim=True).clamp(min=1) / len(real))
    ),
    "the sum is not divided by the number of real tokens": _loss(weigh=lambda real: real),
    "log(softmax(x)) is -inf where the probability rounds to 0; use log_softmax": (
        _loss(lambda logits: logits.softmax(-1).log())
    ),
    "an epsilon inside log(softmax(x) + ε) bounds the price of a bad error; use log_softmax": (
        _loss(lambda logits: (logits.softmax(-1) + 1e-9).log())
    ),
    "pad_id is ignored: 0 is taken for the pad": _loss(pad=0),
    "label_smoothing has no effect": _loss(target=unsmoothed),
    "1 - ε and ε have changed places": (
        _loss(target=lambda ids, vocab, eps, pad: smoothed(ids, vocab, 1 - eps if eps else 0.0))
    ),
    "smoothing mass is kept from pad and from the right class, the pad-excluded variant ε/(V-2); "
    "here all V classes share it, as in F.cross_entropy": _loss(target=without_pad),
    "smoothing mass goes to the other classes only, ε/(V-1); here all V classes share it, the "
    "right one too": _loss(target=without_right),
    "the smoothed target does not sum to 1: what the right class loses, nobody gets": (
        _loss(target=without_rest)
    ),
    "the smoothed target sums to more than 1: the right class must give ε away": (
        _loss(target=overfull)
    ),
    "the smoothed target sums to more than 1: all V classes share ε, so divide it by V, not V-1": (
        _loss(target=crowded)
    ),
    "it is the KL divergence, which lacks the entropy of the smoothed target; wanted cross "
    "entropy": _loss(kl=True),
    "it is the KL divergence with the pad-excluded variant of smoothing; wanted cross entropy, and "
    "all V classes share ε": _loss(target=without_pad, kl=True),
    "padded targets are counted in the smoothing part": _smooth_on_pads,
    "the smoothing part is divided by all positions, pads too: divide it by the real tokens": (
        _smooth_over_all
    ),
    "a batch of pads only gives 0/0, NaN: divide by max(1, number of real tokens)": (
        _loss(weigh=lambda real: real / real.sum())
    ),
}
