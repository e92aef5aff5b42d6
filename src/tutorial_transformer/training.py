"""Loss, learning rate, loop: how the model learns.

Vaswani et al. 2017, section 5: Adam with β = (0.9, 0.98), warm-up, label smoothing.
"""

import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from numbers import Real

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from tqdm import tqdm

from tutorial_transformer import _checks as check
from tutorial_transformer.data import Batch
from tutorial_transformer.transformer import Transformer


def _check_loss(
    logits: Tensor, tgt_out: Tensor, pad_id: int = 0, label_smoothing: Real = 0.0
) -> None:
    check.vectors("logits", logits, ndim=3)
    check.ids("tgt_out", tgt_out)
    if logits.shape[:2] != tgt_out.shape:
        raise ValueError(
            f"logits of shape {tuple(logits.shape)} need tgt_out of shape "
            f"{tuple(logits.shape[:2])}, got {tuple(tgt_out.shape)}"
        )
    check.ids("tgt_out", tgt_out.where(tgt_out != pad_id, 0), logits.shape[-1])
    check.rate(label_smoothing=label_smoothing)


@check.first(_check_loss)
def sequence_loss(
    logits: Float[Tensor, "batch tgt_len tgt_vocab"],
    tgt_out: Int[Tensor, "batch tgt_len"],
    pad_id: int = 0,
    label_smoothing: Real = 0.0,
) -> Float[Tensor, ""]:
    """Average the cross entropy over the real tokens of the whole batch, in nats per token.

    Padded targets count nothing, neither above nor below the fraction line; a batch of pads
    only has loss 0. Label smoothing gives each of all V classes label_smoothing / V of the
    target's mass, pad included, as F.cross_entropy does.
    """
    dtype = torch.promote_types(logits.dtype, torch.float32)  # sums overflow in half precision
    total = F.cross_entropy(
        logits.flatten(0, 1).to(dtype),
        tgt_out.flatten().long(),
        ignore_index=pad_id,
        reduction="sum",
        label_smoothing=label_smoothing,
    )
    return total / (tgt_out != pad_id).sum().clamp(min=1)


def warmup_schedule(step: int, d_model: int, warmup_steps: int = 4000) -> float:
    """Return the paper's learning rate (section 5.3): up in a line, then down as 1/√step.

        lr = d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5)

    Steps count from 1, so that the first update is not lost; step 0 is a ValueError.

    >>> [f"{warmup_schedule(step, 512):.3e}" for step in (1, 4000, 16000)]
    ['1.747e-07', '6.988e-04', '3.494e-04']
    """
    check.size(step=step, d_model=d_model, warmup_steps=warmup_steps)
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


@dataclass
class History:
    """What happened in training: one entry a step, and one a score that was asked for."""

    loss: list[float] = field(default_factory=list)
    learning_rate: list[float] = field(default_factory=list)
    grad_norm: list[float] = field(default_factory=list)
    scored_at: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)


def train(
    model: Transformer,
    batches: Sequence[Batch],
    num_steps: int,
    warmup_steps: int = 400,
    max_lr: Real | None = None,
    label_smoothing: Real = 0.0,
    clip_norm: Real = 1.0,
    seed: int = 0,
    progress: str = "auto",
    score: Callable[[Transformer], float] | None = None,
    score_every: int = 100,
) -> History:
    """Train with Adam on the batches, again and again in a new order, for num_steps steps.

    The learning rate is warmup_schedule's, rescaled so that its peak is max_lr if that is given.
    Gradients longer than clip_norm are shortened to it. The seed fixes the order of the batches
    and dropout; the caller's random state is left alone. score(model) is called every score_every
    steps and kept. progress is "bar", "lines", "none", or "auto": a bar on a terminal, else lines.
    Raises FloatingPointError, naming the step, before a loss or gradient that is not finite can
    reach the weights.
    """
    _check_train(batches, num_steps, warmup_steps, max_lr, clip_norm, score_every)
    peak = warmup_schedule(warmup_steps, model.config.d_model, warmup_steps)
    scale = 1.0 if max_lr is None else max_lr / peak
    optimizer = torch.optim.Adam(
        model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9, fused=True
    )
    history = History()
    was_training = model.training
    with torch.random.fork_rng(devices=[]), _Progress(progress, num_steps) as report:
        torch.manual_seed(seed)
        order = _endless(batches, random.Random(seed))
        for step in range(1, num_steps + 1):
            model.train()
            lr = scale * warmup_schedule(step, model.config.d_model, warmup_steps)
            loss, grad_norm = _step(
                model, next(order), optimizer, lr, label_smoothing, clip_norm, step
            )
            history.loss.append(loss)
            history.learning_rate.append(lr)
            history.grad_norm.append(grad_norm)
            if score is not None and step % score_every == 0:
                history.scored_at.append(step)
                history.scores.append(score(model))
            report(step, loss)
    model.train(was_training)
    return history


def _step(model, batch, optimizer, lr, label_smoothing, clip_norm, step) -> tuple[float, float]:
    """One update: forward, loss, backward, clip, Adam. Returns the loss and the gradient norm."""
    logits = model(batch.src, batch.tgt_in)
    loss = sequence_loss(logits, batch.tgt_out, model.config.pad_id, label_smoothing)
    if not loss.isfinite():
        raise FloatingPointError(f"the loss is {loss.item()} at step {step}")
    optimizer.zero_grad()
    loss.backward()
    grad_norm = nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
    if not grad_norm.isfinite():
        raise FloatingPointError(f"the gradient norm is {grad_norm.item()} at step {step}")
    optimizer.param_groups[0]["lr"] = lr
    optimizer.step()
    return loss.item(), grad_norm.item()


def _check_train(batches, num_steps, warmup_steps, max_lr, clip_norm, score_every) -> None:
    if not batches:
        raise ValueError("batches must not be empty")
    check.size(num_steps=num_steps, warmup_steps=warmup_steps, score_every=score_every)
    if max_lr is not None and not max_lr > 0:
        raise ValueError(f"max_lr must be positive, got {max_lr}")
    if not clip_norm > 0:
        raise ValueError(f"clip_norm must be positive, got {clip_norm}")


def _endless(batches: Sequence[Batch], rng: random.Random):
    while True:
        yield from rng.sample(batches, len(batches))


class _Progress:
    """Tell the reader how far training is: a bar, ten lines, or nothing."""

    def __init__(self, kind: str, num_steps: int) -> None:
        if kind not in ("auto", "bar", "lines", "none"):
            raise ValueError(f"progress must be 'auto', 'bar', 'lines' or 'none', got {kind!r}")
        if kind == "auto":
            kind = "bar" if sys.stderr.isatty() else "lines"
        self.kind, self.num_steps = kind, num_steps
        round_steps = (digit * 10**power for power in range(9) for digit in (1, 2, 5))
        self.every = next(step for step in round_steps if num_steps <= 10 * step)

    def __enter__(self):
        self.bar = tqdm(total=self.num_steps, disable=self.kind != "bar")
        return self

    def __call__(self, step: int, loss: float) -> None:
        self.bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
        self.bar.update()
        if self.kind == "lines" and step % self.every == 0:
            print(f"step {step:5d}   loss {loss:.3f}")

    def __exit__(self, *error) -> None:
        self.bar.close()


def evaluate(
    model: Transformer,
    batches: Sequence[Batch],
    decode: Callable[[Transformer, Tensor, int], Tensor],
) -> float:
    """Return the share of targets that the model writes exactly, in free-running decoding.

    decode(model, src, max_len) is greedy_decode or another decoder; it sees the source only,
    never the target. A row counts when all its ids up to <eos> are right.
    """
    if not batches:
        raise ValueError("batches must not be empty")
    right = total = 0
    for batch in batches:
        said = decode(model, batch.src, batch.tgt_out.shape[1])
        padded = F.pad(said, (0, batch.tgt_out.shape[1] - said.shape[1]), value=model.config.pad_id)
        right += (padded == batch.tgt_out).all(dim=1).sum().item()
        total += len(batch.src)
    return right / total
