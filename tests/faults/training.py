"""What learners hand in for chapter 10: wrong losses, rates, targets and gradients, and right ones.

FAULTS holds, under grader: name, a wrong implementation and a piece of the sentence that names its
mistake; RIGHT holds right implementations.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tutorial_transformer import training

# sequence_loss


def softmax_first(logits, tgt_out, pad_id=0, label_smoothing=0.0):
    """Softmax is applied twice (H01)."""
    probs = torch.softmax(logits, dim=-1)
    vocab = logits.size(-1)
    loss = F.cross_entropy(
        probs.view(-1, vocab),
        tgt_out.reshape(-1),
        ignore_index=pad_id,
        label_smoothing=label_smoothing,
        reduction="sum",
    )
    return loss / max(1, int((tgt_out != pad_id).sum()))


def pads_counted(logits, tgt_out, pad_id=0, label_smoothing=0.0):
    """Padded targets are counted like words (H05)."""
    vocab = logits.size(-1)
    return F.cross_entropy(
        logits.view(-1, vocab), tgt_out.reshape(-1), label_smoothing=label_smoothing
    )


def mean_with_pads(logits, tgt_out, pad_id=0, label_smoothing=0.0):
    """The sum leaves pads out, the number below does not (H21)."""
    per_token = F.cross_entropy(
        logits.transpose(1, 2),
        tgt_out,
        ignore_index=pad_id,
        label_smoothing=label_smoothing,
        reduction="none",
    )
    return per_token.mean()


def batchmean(logits, tgt_out, pad_id=0, label_smoothing=0.0):
    """The sum is divided by the batch size, as batchmean does (H21)."""
    log_p = logits.log_softmax(-1)
    total = 0.0
    for row, targets in zip(log_p, tgt_out, strict=True):
        for scores, target in zip(row, targets, strict=True):
            if target != pad_id:
                total = total - (1 - label_smoothing) * scores[target]
                total = total - label_smoothing * scores.mean()
    return (total + logits.sum() * 0) / logits.shape[0]


def mean_of_means(logits, tgt_out, pad_id=0, label_smoothing=0.0):
    """Each row is averaged by itself, then the rows are."""
    rows = []
    for row, targets in zip(logits, tgt_out, strict=True):
        real = targets != pad_id
        if real.any():
            rows.append(F.cross_entropy(row[real], targets[real], label_smoothing=label_smoothing))
    return torch.stack(rows).mean() if rows else logits.sum() * 0


def only_torch(logits, tgt_out, pad_id=0, label_smoothing=0.0):
    """A batch of pads gives NaN (C10)."""
    return F.cross_entropy(
        logits.transpose(1, 2), tgt_out, ignore_index=pad_id, label_smoothing=label_smoothing
    )


def detached_when_empty(logits, tgt_out, pad_id=0, label_smoothing=0.0):
    """A batch of pads gives a zero without a graph."""
    keep = (tgt_out != pad_id).view(-1)
    if keep.sum() == 0:
        return torch.tensor(0.0)
    flat = logits.reshape(-1, logits.shape[-1])[keep]
    return F.cross_entropy(flat, tgt_out.view(-1)[keep], label_smoothing=label_smoothing)


def a_number(logits, tgt_out, pad_id=0, label_smoothing=0.0):
    """It returns loss.item(), from which nothing can be learned."""
    return training.sequence_loss(logits, tgt_out, pad_id, label_smoothing).item()


def log_of_softmax(logits, tgt_out, pad_id=0, label_smoothing=0.0):
    """log(softmax(x)) overflows (C11)."""
    log_p = torch.log(torch.softmax(logits, -1))
    picked = -log_p.gather(-1, tgt_out.unsqueeze(-1)).squeeze(-1)
    mixed = (1 - label_smoothing) * picked
    if label_smoothing:
        mixed = mixed - label_smoothing * log_p.mean(-1)
    real = tgt_out != pad_id
    return mixed[real].sum() / real.sum().clamp(min=1)


def guarded_log(logits, tgt_out, pad_id=0, label_smoothing=0.0):
    """An epsilon keeps log from -inf, and hides bad errors."""
    log_p = torch.log(torch.softmax(logits, -1) + 1e-9)
    real = (tgt_out != pad_id).float()
    nll = -log_p.gather(-1, tgt_out[..., None])[..., 0]
    loss = (1 - label_smoothing) * nll - label_smoothing * log_p.mean(-1)
    return (loss * real).sum() / real.sum().clamp(min=1.0)


def pad_excluded(logits, tgt_out, pad_id=0, label_smoothing=0.0):
    """No smoothing mass on pad: the variant of the Annotated Transformer (H04)."""
    vocab = logits.size(-1)
    wanted = torch.full_like(logits, label_smoothing / (vocab - 2))
    wanted.scatter_(-1, tgt_out.unsqueeze(-1), 1.0 - label_smoothing)
    wanted[..., pad_id] = 0
    wanted = wanted * (tgt_out != pad_id).unsqueeze(-1)
    return -(wanted * F.log_softmax(logits, -1)).sum() / (tgt_out != pad_id).sum().clamp(min=1)


def kl_divergence(logits, tgt_out, pad_id=0, label_smoothing=0.0):
    """The KL divergence of the pad-excluded variant, whose value is another one (H04)."""
    vocab = logits.size(-1)
    wanted = torch.full(logits.shape, label_smoothing / (vocab - 2))
    wanted.scatter_(-1, tgt_out.unsqueeze(-1), 1.0 - label_smoothing)
    wanted[..., pad_id] = 0
    wanted[tgt_out == pad_id] = 0
    loss = nn.KLDivLoss(reduction="sum")(F.log_softmax(logits, -1), wanted)
    return loss / max(1, int((tgt_out != pad_id).sum()))


def no_smoothing(logits, tgt_out, pad_id=0, label_smoothing=0.0):
    """label_smoothing is never used."""
    return training.sequence_loss(logits, tgt_out, pad_id)


def pad_is_zero(logits, tgt_out, pad_id=0, label_smoothing=0.0):
    """pad_id is never used."""
    return training.sequence_loss(logits, tgt_out, label_smoothing=label_smoothing)


def smooths_pads(logits, tgt_out, pad_id=0, label_smoothing=0.0):
    """The smoothing part is a mean over all positions, padded ones too (H05)."""
    log_p = logits.log_softmax(dim=-1)
    hard = training.sequence_loss(logits, tgt_out, pad_id)
    return (1 - label_smoothing) * hard + label_smoothing * (-log_p).mean()


def only_pads(logits, tgt_out, pad_id=0, label_smoothing=0.0):
    """The mask is inverted: only pads count (H05)."""
    real = (tgt_out == pad_id).float()
    loss = F.cross_entropy(
        logits.transpose(1, 2), tgt_out, reduction="none", label_smoothing=label_smoothing
    )
    return (loss * real).sum() / real.sum().clamp(min=1)


def shifts_again(logits, tgt_out, pad_id=0, label_smoothing=0.0):
    """tgt_out is shifted once more (H19)."""
    if tgt_out.shape[1] > 1:
        logits, tgt_out = logits[:, :-1], tgt_out[:, 1:]
    return training.sequence_loss(logits, tgt_out, pad_id, label_smoothing)


def viewed(logits, tgt_out, pad_id=0, label_smoothing=0.0):
    """view in place of transpose scrambles classes and positions."""
    batch, length, vocab = logits.shape
    loss = F.cross_entropy(
        logits.reshape(batch, vocab, length),
        tgt_out,
        ignore_index=pad_id,
        label_smoothing=label_smoothing,
        reduction="sum",
    )
    return loss / (tgt_out != pad_id).sum().clamp(min=1)


def bits(logits, tgt_out, pad_id=0, label_smoothing=0.0):
    """It is measured in bits."""
    return training.sequence_loss(logits, tgt_out, pad_id, label_smoothing) / math.log(2)


def a_sum(logits, tgt_out, pad_id=0, label_smoothing=0.0):
    """The sum is not divided by anything."""
    return F.cross_entropy(
        logits.flatten(0, 1),
        tgt_out.flatten(),
        ignore_index=pad_id,
        reduction="sum",
        label_smoothing=label_smoothing,
    )


# right losses


def masked_sum(logits, tgt_out, pad_id=0, label_smoothing=0.0):
    per_token = F.cross_entropy(
        logits.transpose(1, 2), tgt_out, reduction="none", label_smoothing=label_smoothing
    )
    real = (tgt_out != pad_id).to(per_token.dtype)
    return (per_token * real).sum() / real.sum().clamp(min=1)


def a_loop(logits, tgt_out, pad_id=0, label_smoothing=0.0):
    total, count = logits.sum() * 0, 0
    for b in range(logits.shape[0]):
        for t in range(logits.shape[1]):
            if tgt_out[b, t] == pad_id:
                continue
            log_p = logits[b, t] - torch.logsumexp(logits[b, t], dim=0)
            right = log_p[tgt_out[b, t]]
            total = total - ((1 - label_smoothing) * right + label_smoothing * log_p.mean())
            count += 1
    return total / max(count, 1)


def by_einsum(logits, tgt_out, pad_id=0, label_smoothing=0.0):
    vocab = logits.shape[-1]
    wanted = F.one_hot(tgt_out, vocab).to(logits.dtype) * (1 - label_smoothing)
    wanted = wanted + label_smoothing / vocab
    real = (tgt_out != pad_id).to(logits.dtype)
    total = -torch.einsum("btv,btv,bt->", wanted, logits.log_softmax(-1), real)
    return total / real.sum().clamp(min=1)


def in_double(logits, tgt_out, pad_id=0, label_smoothing=0.0, **unused):
    count = int((tgt_out != pad_id).sum())
    return masked_sum(logits.double(), tgt_out, pad_id, label_smoothing), count


class LossModule(nn.Module):
    def forward(self, logits, tgt_out, pad_id=0, label_smoothing=0.0):
        keep = tgt_out != pad_id
        if not keep.any():
            return (logits * 0).sum()[None]
        criterion = nn.CrossEntropyLoss(label_smoothing=label_smoothing)
        return criterion(logits[keep], tgt_out[keep])[None]


# warmup_schedule


def zero_based(step, d_model, warmup_steps=4000):
    """The first step has rate 0 (H14)."""
    step = step - 1
    if step == 0:
        return 0.0
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


def one_ahead(step, d_model, warmup_steps=4000):
    """It adds 1 to a step that begins with 1 (H14)."""
    now = step + 1
    return 1 / math.sqrt(d_model) * min(1 / math.sqrt(now), now / warmup_steps**1.5)


def without_width(step, d_model, warmup_steps=4000):
    """The width is forgotten (H16)."""
    return min(step ** (-0.5), step * warmup_steps ** (-1.5))


def half_exponent(step, d_model, warmup_steps=4000):
    """The exponent of warmup_steps is -0.5."""
    arg1, arg2 = step**-0.5, step * warmup_steps**-0.5
    return d_model**-0.5 * min(arg1, arg2)


def only_rises(step, d_model, warmup_steps=4000):
    """The rate rises for ever."""
    return (step / warmup_steps) / math.sqrt(d_model * warmup_steps)


def flat_after(step, d_model, warmup_steps=4000):
    """After warm-up the rate stays where it is."""
    peak = (d_model * warmup_steps) ** -0.5
    return peak * min(1.0, step / warmup_steps)


def larger_term(step, d_model, warmup_steps=4000):
    """max in place of min."""
    return d_model**-0.5 * max(step**-0.5, step * warmup_steps**-1.5)


def only_falls(step, d_model, warmup_steps=4000):
    """There is no warm-up."""
    return (d_model * step) ** -0.5


def a_factor(step, d_model, warmup_steps=4000):
    """A factor whose peak is 1."""
    return step / warmup_steps if step < warmup_steps else math.sqrt(warmup_steps / step)


def wider_is_faster(step, d_model, warmup_steps=4000):
    """The root of d_model multiplies."""
    return math.sqrt(d_model) * min(step**-0.5, step * warmup_steps**-1.5)


def by_tensors(step, d_model, warmup_steps=4000):
    step = torch.tensor(float(step))
    return torch.minimum(step.rsqrt(), step * warmup_steps**-1.5) / math.sqrt(d_model)


def by_cases(step, d_model, warmup_steps=4000):
    peak = 1 / math.sqrt(d_model * warmup_steps)
    if step <= warmup_steps:
        return peak * step / warmup_steps
    return peak * math.sqrt(warmup_steps / step)


def never_zero(step, d_model, warmup_steps=4000, factor=1.0):
    step = max(step, 1)
    return factor * d_model ** (-0.5) * min(step ** (-0.5), step * warmup_steps ** (-1.5))


def as_a_vector(step, d_model, warmup_steps=4000):
    return torch.tensor([step**-0.5, step * warmup_steps**-1.5], dtype=torch.float64).min() * (
        d_model**-0.5
    )


class Schedule:
    def __call__(self, step, d_model, warmup_steps=4000):
        return math.exp(-0.5 * math.log(d_model)) * min(1 / step**0.5, step / warmup_steps**1.5)


# smoothed_targets


def targets_without_right(tgt_out, vocab_size, label_smoothing):
    """The mass goes to the wrong classes only."""
    out = torch.full((*tgt_out.shape, vocab_size), label_smoothing / (vocab_size - 1))
    return out.scatter(-1, tgt_out[..., None], 1 - label_smoothing)


def targets_without_pad(tgt_out, vocab_size, label_smoothing):
    """The mass goes to the wrong classes without pad (H04)."""
    out = torch.full((*tgt_out.shape, vocab_size), label_smoothing / (vocab_size - 2))
    out.scatter_(-1, tgt_out[..., None], 1 - label_smoothing)
    out[..., 0] = 0
    return out


def targets_too_full(tgt_out, vocab_size, label_smoothing):
    """The right class keeps everything."""
    return F.one_hot(tgt_out, vocab_size) + label_smoothing / vocab_size


def targets_one_hot(tgt_out, vocab_size, label_smoothing):
    """It does not smooth."""
    return F.one_hot(tgt_out, vocab_size).float()


def targets_swapped(tgt_out, vocab_size, label_smoothing):
    """The right class gets the small share."""
    right = torch.eye(vocab_size)[tgt_out]
    return label_smoothing * right + (1 - label_smoothing) / vocab_size


def targets_lost(tgt_out, vocab_size, label_smoothing):
    """What is taken from the right class is lost."""
    return torch.eye(vocab_size)[tgt_out] * (1 - label_smoothing)


def targets_by_loop(tgt_out, vocab_size, label_smoothing):
    rows = [
        [
            [
                label_smoothing / vocab_size + (1 - label_smoothing) * (v == word)
                for v in range(vocab_size)
            ]
            for word in row
        ]
        for row in tgt_out.tolist()
    ]
    return torch.tensor(rows)


def targets_by_scatter(tgt_out, vocab_size, label_smoothing, pad_id=None):
    share = label_smoothing / vocab_size
    out = torch.full((*tgt_out.shape, vocab_size), share, dtype=torch.float64)
    return out.scatter(-1, tgt_out[..., None], 1 - label_smoothing + share)


# accumulate_gradients


def mean_of_parts(model, micro_batches):
    """The mean of the parts' means (H12)."""
    for src, tgt_in, tgt_out in micro_batches:
        loss = training.sequence_loss(model(src, tgt_in), tgt_out)
        (loss / len(micro_batches)).backward()


def sum_of_parts(model, micro_batches):
    """The parts' means are summed (H12)."""
    for part in micro_batches:
        training.sequence_loss(model(part.src, part.tgt_in), part.tgt_out).backward()


def only_last_part(model, micro_batches):
    """The gradient is cleared for each part."""
    for part in micro_batches:
        model.zero_grad()
        training.sequence_loss(model(part.src, part.tgt_in), part.tgt_out).backward()


def by_rows(model, micro_batches):
    """Parts are weighed by their rows."""
    rows = sum(part.src.shape[0] for part in micro_batches)
    for part in micro_batches:
        loss = training.sequence_loss(model(part.src, part.tgt_in), part.tgt_out)
        (loss * part.src.shape[0] / rows).backward()


def by_all_ids(model, micro_batches):
    """Parts are weighed by their ids, pads too."""
    everything = sum(part.tgt_out.numel() for part in micro_batches)
    for part in micro_batches:
        loss = training.sequence_loss(model(part.src, part.tgt_in), part.tgt_out)
        (loss * part.tgt_out.numel() / everything).backward()


def steps_too(model, micro_batches):
    """It moves the weights."""
    exact_parts(model, micro_batches)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad


def undivided(model, micro_batches):
    """The sums are not divided at all."""
    for part in micro_batches:
        logits = model(part.src, part.tgt_in).flatten(0, 1)
        F.cross_entropy(logits, part.tgt_out.flatten(), ignore_index=0, reduction="sum").backward()


def exact_parts(model, micro_batches):
    total = sum(int((part.tgt_out != 0).sum()) for part in micro_batches)
    for part in micro_batches:
        logits = model(part.src, part.tgt_in)
        training.sequence_loss(logits, part.tgt_out, num_tokens=total).backward()


def weighed_parts(model, micro_batches):
    counts = [(part.tgt_out != 0).sum() for part in micro_batches]
    model.zero_grad()
    for part, count in zip(micro_batches, counts, strict=True):
        loss = training.sequence_loss(model(part.src, part.tgt_in), part.tgt_out)
        (loss * count / sum(counts)).backward()


def one_backward(model, micro_batches):
    total = count = 0
    for src, tgt_in, tgt_out in micro_batches:
        losses = F.cross_entropy(
            model(src, tgt_in).transpose(1, 2), tgt_out, ignore_index=0, reduction="none"
        )
        total, count = total + losses.sum(), count + (tgt_out != 0).sum()
    (total / count).backward()


def divided_last(model, micro_batches):
    undivided(model, micro_batches)
    count = sum((part.tgt_out != 0).sum() for part in micro_batches)
    for parameter in model.parameters():
        parameter.grad /= count
    return count


def by_autograd(model, micro_batches):
    count = sum(int(part.tgt_out.ne(0).sum()) for part in micro_batches)
    parameters = list(model.parameters())
    for part in micro_batches:
        log_p = model(part.src, part.tgt_in).log_softmax(-1)
        picked = log_p.gather(-1, part.tgt_out[..., None])[..., 0][part.tgt_out != 0]
        gradients = torch.autograd.grad(-picked.sum() / count, parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient


# what other readers have found


def in_log10(*args):
    """Logarithms to the base 10."""
    return training.sequence_loss(*args) / math.log(10)


def exponential(*args):
    """The perplexity."""
    return training.sequence_loss(*args).exp()


def without_pad_class(logits, tgt_out, pad_id=0, label_smoothing=0.0):
    """The class of the pad is hidden, as if that were the mask."""
    hidden = torch.arange(logits.shape[-1]) == pad_id
    return training.sequence_loss(
        logits.masked_fill(hidden, -1e4), tgt_out, pad_id, label_smoothing
    )


def last_position(logits, tgt_out, pad_id=0, label_smoothing=0.0):
    """Only the last position counts."""
    return training.sequence_loss(logits[:, -1:], tgt_out[:, -1:], pad_id, label_smoothing)


def by_length(logits, tgt_out, pad_id=0, label_smoothing=0.0):
    """The sum is divided by the length."""
    return a_sum(logits, tgt_out, pad_id, label_smoothing) / tgt_out.shape[1]


def encoder_forgotten(model, micro_batches):
    """The encoder runs without gradients."""
    total = sum((part.tgt_out != 0).sum() for part in micro_batches)
    for src, tgt_in, tgt_out in micro_batches:
        with torch.no_grad():
            memory, src_mask = model.encode(src)
        (a_sum(model.decode(tgt_in, memory, src_mask), tgt_out) / total).backward()


def by_source(model, micro_batches):
    """The number of source tokens divides."""
    total = sum((part.src != 0).sum() for part in micro_batches)
    for src, tgt_in, tgt_out in micro_batches:
        (a_sum(model(src, tgt_in), tgt_out) / total).backward()


def first_part(model, micro_batches):
    """Only the first part is used."""
    src, tgt_in, tgt_out = micro_batches[0]
    training.sequence_loss(model(src, tgt_in), tgt_out).backward()


def uphill(model, micro_batches):
    """The sign is wrong."""
    exact_parts(model, micro_batches)
    for parameter in model.parameters():
        parameter.grad.neg_()


def by_name(logits, tgt_out, *, pad_id=0, label_smoothing=0.0):
    return training.sequence_loss(logits, tgt_out, pad_id, label_smoothing)


def a_leaf_when_empty(logits, tgt_out, pad_id=0, label_smoothing=0.0):
    if (tgt_out == pad_id).all():
        return torch.zeros((), requires_grad=True)
    return training.sequence_loss(logits, tgt_out, pad_id, label_smoothing)


def with_optimizer(model, micro_batches):
    torch.optim.Adam(model.parameters()).zero_grad()
    exact_parts(model, micro_batches)


def smooths_over_all(logits, tgt_out, pad_id=0, label_smoothing=0.0):
    """The smoothing part leaves pads out, the number below it does not."""
    log_p, real = torch.log_softmax(logits, -1), tgt_out != pad_id
    picked = log_p.gather(-1, tgt_out[..., None]).squeeze(-1)
    sharp = -picked.masked_fill(~real, 0).sum() / real.sum().clamp(min=1)
    flat = -(log_p * real[..., None]).mean()
    return (1 - label_smoothing) * sharp + label_smoothing * flat


def crowded(ids, vocab, eps):
    """The share of V - 1 classes, for all V of them."""
    return torch.full((*ids.shape, vocab), eps / (vocab - 1)) + (1 - eps) * F.one_hot(ids, vocab)


def crowded_loss(logits, tgt_out, pad_id=0, label_smoothing=0.0):
    """The share of V - 1 classes, for all V of them."""
    wanted, real = crowded(tgt_out, logits.shape[-1], label_smoothing), tgt_out != pad_id
    cost = -(wanted * logits.log_softmax(-1)).sum(-1)
    return (cost * real).sum() / max(1, int(real.sum()))


def reads_answers(model, micro_batches):
    """The decoder reads tgt_out, which it should say."""
    total = sum(int((part.tgt_out != 0).sum()) for part in micro_batches)
    for part in micro_batches:
        logits = model(part.src, part.tgt_out).transpose(1, 2)
        cost = F.cross_entropy(logits, part.tgt_out, ignore_index=0, reduction="sum")
        (cost / total).backward()


FAULTS = {
    "sequence_loss: smooths over all": (smooths_over_all, "divided by all positions"),
    "sequence_loss: crowded": (crowded_loss, "divide it by V"),
    "smoothed_targets: crowded": (crowded, "divide it by V"),
    "accumulate_gradients: reads the answers": (reads_answers, "alone has another gradient"),
    "sequence_loss: in log10": (in_log10, "log10"),
    "sequence_loss: exponential": (exponential, "perplexity"),
    "sequence_loss: without pad class": (without_pad_class, "pad is taken out of the classes"),
    "sequence_loss: last position": (last_position, "as their position says"),
    "sequence_loss: by length": (by_length, "divided by 4, wanted 7"),
    "warmup_schedule: doubled": (
        lambda s, d, w=4000: 2 * training.warmup_schedule(s, d, w),
        "2 times the right ones",
    ),
    "warmup_schedule: root of step": (
        lambda s, d, w=4000: (d * w) ** -0.5 * min((s / w) ** 0.5, (w / s) ** 0.5),
        "step^0.5, wanted ^1",
    ),
    "warmup_schedule: one width": (
        lambda s, d, w=4000: training.warmup_schedule(s, 512, w),
        "d_model^0, wanted ^-0.5",
    ),
    "smoothed_targets: own share": (
        lambda ids, vocab, eps: torch.full((*ids.shape, vocab), eps / vocab).scatter(
            -1, ids[..., None], 1 - eps
        ),
        "its own share",
    ),
    "smoothed_targets: logarithms": (
        lambda ids, vocab, eps: ((1 - eps) * F.one_hot(ids, vocab) + eps / vocab).log(),
        "logarithm",
    ),
    "accumulate_gradients: encoder forgotten": (encoder_forgotten, "has no gradient"),
    "accumulate_gradients: by source": (by_source, "the number of real tokens in tgt_out"),
    "accumulate_gradients: first part": (first_part, "only one part is left"),
    "accumulate_gradients: uphill": (uphill, "sign is wrong"),
    "sequence_loss: softmax first": (softmax_first, "softmax is applied twice"),
    "sequence_loss: pads counted": (pads_counted, "padded targets are counted"),
    "sequence_loss: mean with pads": (mean_with_pads, "below the fraction line"),
    "sequence_loss: batchmean": (batchmean, "batchmean"),
    "sequence_loss: mean of means": (mean_of_means, "mean of the rows' means"),
    "sequence_loss: only torch": (only_torch, "NaN"),
    "sequence_loss: detached when empty": (detached_when_empty, "with pads only the loss is cut"),
    "sequence_loss: a number": (a_number, "cut from the graph"),
    "sequence_loss: log of softmax": (log_of_softmax, "log_softmax"),
    "sequence_loss: guarded log": (guarded_log, "epsilon inside"),
    "sequence_loss: pad excluded": (pad_excluded, "pad-excluded variant"),
    "sequence_loss: kl divergence": (kl_divergence, "KL divergence"),
    "sequence_loss: no smoothing": (no_smoothing, "label_smoothing has no effect"),
    "sequence_loss: pad is zero": (pad_is_zero, "pad_id is ignored"),
    "sequence_loss: smooths pads": (smooths_pads, "smoothing part"),
    "sequence_loss: only pads": (only_pads, "the mask is inverted"),
    "sequence_loss: shifts again": (shifts_again, "shifted"),
    "sequence_loss: viewed": (viewed, "view or reshape"),
    "sequence_loss: bits": (bits, "bits"),
    "sequence_loss: a sum": (a_sum, "not divided"),
    "warmup_schedule: zero based": (zero_based, "first step has rate 0"),
    "warmup_schedule: one ahead": (one_ahead, "counts from 0 and adds 1"),
    "warmup_schedule: without width": (without_width, "d_model^-0.5 is missing"),
    "warmup_schedule: half exponent": (half_exponent, "exponent of warmup_steps is -0.5"),
    "warmup_schedule: only rises": (only_rises, "only rises"),
    "warmup_schedule: flat after": (flat_after, "stays constant"),
    "warmup_schedule: larger term": (larger_term, "max"),
    "warmup_schedule: only falls": (only_falls, "only falls"),
    "warmup_schedule: a factor": (a_factor, "factor whose peak is 1"),
    "warmup_schedule: wider is faster": (wider_is_faster, "d_model^0.5"),
    "smoothed_targets: without right": (targets_without_right, "ε/(V-1)"),
    "smoothed_targets: without pad": (targets_without_pad, "pad-excluded"),
    "smoothed_targets: too full": (targets_too_full, "more than 1"),
    "smoothed_targets: one hot": (targets_one_hot, "no effect"),
    "smoothed_targets: swapped": (targets_swapped, "changed places"),
    "smoothed_targets: lost": (targets_lost, "nobody gets"),
    "accumulate_gradients: mean of parts": (mean_of_parts, "each part counts the same"),
    "accumulate_gradients: sum of parts": (sum_of_parts, "summed and not divided"),
    "accumulate_gradients: only last part": (only_last_part, "zero_grad"),
    "accumulate_gradients: by rows": (by_rows, "by their rows"),
    "accumulate_gradients: by all ids": (by_all_ids, "pads too"),
    "accumulate_gradients: steps too": (steps_too, "weight has moved"),
    "accumulate_gradients: undivided": (undivided, "sums are added and not divided"),
}

RIGHT = {
    "sequence_loss: by name": by_name,
    "sequence_loss: a leaf when empty": a_leaf_when_empty,
    "smoothed_targets: an array": lambda ids, vocab, eps: (
        np.eye(vocab)[ids.numpy()] * (1 - eps) + eps / vocab
    ),
    "smoothed_targets: lists": lambda ids, vocab, eps: targets_by_loop(ids, vocab, eps).tolist(),
    "accumulate_gradients: with an optimiser": with_optimizer,
    "sequence_loss: ours": training.sequence_loss,
    "sequence_loss: masked sum": masked_sum,
    "sequence_loss: a loop": a_loop,
    "sequence_loss: by einsum": by_einsum,
    "sequence_loss: in double": in_double,
    "sequence_loss: module": LossModule(),
    "warmup_schedule: ours": training.warmup_schedule,
    "warmup_schedule: by tensors": by_tensors,
    "warmup_schedule: by cases": by_cases,
    "warmup_schedule: never zero": never_zero,
    "warmup_schedule: as a vector": as_a_vector,
    "warmup_schedule: object": Schedule(),
    "smoothed_targets: by loop": targets_by_loop,
    "smoothed_targets: by scatter": targets_by_scatter,
    "smoothed_targets: by mixing": lambda ids, vocab, eps: (
        (1 - eps) * F.one_hot(ids, vocab) + eps / vocab
    ),
    "smoothed_targets: by lerp": lambda ids, vocab, eps: torch.lerp(
        torch.eye(vocab)[ids], torch.full((), 1 / vocab), eps
    ),
    "smoothed_targets: by table": lambda ids, vocab, eps: F.embedding(
        ids, torch.eye(vocab).mul(1 - eps).add(eps / vocab)
    ),
    "accumulate_gradients: exact parts": exact_parts,
    "accumulate_gradients: weighed parts": weighed_parts,
    "accumulate_gradients: one backward": one_backward,
    "accumulate_gradients: divided last": divided_last,
    "accumulate_gradients: by autograd": by_autograd,
}
