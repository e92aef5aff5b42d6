"""Loss, learning rate, loop: how the model learns.

Vaswani et al. 2017, section 5: Adam with β = (0.9, 0.98), warm-up, label smoothing.
"""

import hashlib
import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from itertools import islice
from numbers import Real
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tutorial_transformer import _checks as check
from tutorial_transformer._running import (
    Progress,
    finish_the_step,
    join_processes,
    put_back_modes,
)
from tutorial_transformer.checkpoints import (
    load_checkpoint,
    load_state,
    pack_state,
    plain,
    save_checkpoint,
    unpack_state,
)
from tutorial_transformer.data import Batch
from tutorial_transformer.evaluation import Scores, evaluate, translate
from tutorial_transformer.transformer import Transformer

__all__ = [
    "History",
    "Scores",
    "evaluate",
    "load_checkpoint",
    "save_checkpoint",
    "sequence_loss",
    "train",
    "translate",
    "warmup_schedule",
]


def _check_loss(
    logits: Tensor,
    tgt_out: Tensor,
    pad_id: int = 0,
    label_smoothing: Real = 0.0,
    num_tokens: int | None = None,
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
    if num_tokens is not None:
        check.size(num_tokens=num_tokens)


@check.first(_check_loss)
def sequence_loss(
    logits: Float[Tensor, "batch tgt_len tgt_vocab"],
    tgt_out: Int[Tensor, "batch tgt_len"],
    pad_id: int = 0,
    label_smoothing: Real = 0.0,
    num_tokens: int | None = None,
) -> Float[Tensor, ""]:
    """Average the cross entropy over the real tokens of the whole batch, in nats per token.

    Padded targets count nothing, neither above nor below the fraction line; a batch of pads
    only has loss 0. Label smoothing gives each of all V classes label_smoothing / V of the
    target's mass, pad included, as F.cross_entropy does. num_tokens, if given, is the count to
    divide by: that of a whole step, of which these rows are a part, so that the parts add up.
    """
    dtype = torch.promote_types(logits.dtype, torch.float32)  # sums overflow in half precision
    total = F.cross_entropy(
        logits.flatten(0, 1).to(dtype),
        tgt_out.flatten().long(),
        ignore_index=pad_id,
        reduction="sum",
        label_smoothing=label_smoothing,
    )
    return total / (num_tokens or (tgt_out != pad_id).sum().clamp(min=1))


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
    micro_batches: int = 1,
    precision: str = "full",
    folder: str | Path | None = None,
    checkpoint_every: int = 100,
    resume: bool = False,
) -> History:
    """Train with Adam on the batches, again and again in a new order, for num_steps steps.

    The learning rate is warmup_schedule's, rescaled so that its peak is max_lr if that is given.
    Gradients longer than clip_norm are shortened to it. The seed fixes the order of the batches
    and dropout; the caller's random state is left alone. score(model) is called every score_every
    steps and kept. progress is "bar", "lines", "none", or "auto": a bar on a terminal, else lines.

    Each batch is computed in micro_batches parts, which needs less memory and changes nothing
    else. precision "bfloat16" computes the forward pass in autocast; the weights stay float32.

    With a folder, a checkpoint is written every checkpoint_every steps, after the last one and
    after Ctrl-C, which ends the step first; resume=True goes on from it, or starts where there
    is none yet, and gives the very weights of a run that was never stopped.

    Under torchrun every process calls this with the same batches and computes its share of each;
    the first one writes the checkpoints.

    Raises FloatingPointError, naming the step, before a loss or gradient that is not finite can
    reach the weights, and ValueError for a folder that holds another run.
    """
    settings = {
        "warmup_steps": warmup_steps,
        "max_lr": max_lr,
        "label_smoothing": label_smoothing,
        "clip_norm": clip_norm,
        "seed": seed,
        "precision": precision,
    }
    _check_train(model, batches, settings, num_steps, score_every, micro_batches, checkpoint_every)
    run = _Run(model, settings, micro_batches)
    if folder is not None:
        settings |= asdict(model.config) | {"dtype": str(next(model.parameters()).dtype)}
        settings["batches"] = _fingerprint(batches)
        run.restore(Path(folder), resume, num_steps)
    elif resume:
        raise ValueError("resume=True needs the folder of the run")
    device = next(model.parameters()).device
    order = islice(_endless(batches, random.Random(seed)), run.done, None)
    with (
        put_back_modes(model),
        torch.random.fork_rng([device] if device.type == "cuda" else []),
        Progress(progress if run.rank == 0 else "none", num_steps, run.done) as report,
        finish_the_step() as asked_to_stop,
    ):
        while run.done < num_steps:
            loss = run.step(next(order).to(device))
            if score is not None and run.done % score_every == 0:
                run.history.scored_at.append(run.done)
                run.history.scores.append(score(model))
            report(run.done, loss)
            stop = run.total(asked_to_stop()) > 0  # all processes stop after the same step
            due = stop or run.done == num_steps or run.done % checkpoint_every == 0
            if folder is not None and due:
                run.save(folder)
            if stop:
                raise KeyboardInterrupt
    return run.history


class _Run:
    """A training run between two steps: what has to be kept, and how to make one more step."""

    def __init__(self, model: Transformer, settings: dict, micro_batches: int) -> None:
        self.model, self.settings, self.micro_batches = model, settings, micro_batches
        self.optimizer = torch.optim.Adam(
            model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9, fused=True
        )
        self.history, self.done = History(), 0
        self.rank, self.world = join_processes(next(model.parameters()).device)
        self.parallel = model
        if self.world > 1:  # the only buffer is the table of positions, the same everywhere
            self.parallel = DistributedDataParallel(model, forward_sync_buffers=False)

    def step(self, batch: Batch) -> float:
        """Forward, loss, backward, clip, Adam; returns the loss."""
        self.done += 1
        self.model.train()
        # Random numbers depend on seed, step and process only: no random state need be saved.
        torch.manual_seed(hash((self.settings["seed"], self.done, self.rank)) % 2**63)
        self.optimizer.zero_grad()
        loss = self.total(self._backward(batch))
        clip_norm = self.settings["clip_norm"]
        grad_norm = nn.utils.clip_grad_norm_(self.model.parameters(), clip_norm).item()
        for name, value in (("loss", loss), ("gradient norm", grad_norm)):
            if not math.isfinite(value):
                raise FloatingPointError(f"the {name} is {value} at step {self.done}")
        lr = _learning_rate(self.done, self.model.config.d_model, self.settings)
        self.optimizer.param_groups[0]["lr"] = lr
        self.optimizer.step()
        self.history.loss.append(loss)
        self.history.learning_rate.append(lr)
        self.history.grad_norm.append(grad_norm)
        return loss

    def _backward(self, batch: Batch) -> float:
        """Add up the gradients of this process's parts; returns their loss.

        Each part's loss is divided by the tokens of the whole batch, so that the sum over all
        parts and processes is the loss of the batch, however unequal the parts are.
        """
        pad_id, smoothing = self.model.config.pad_id, self.settings["label_smoothing"]
        bfloat16 = torch.autocast(
            batch.src.device.type, torch.bfloat16, enabled=self.settings["precision"] == "bfloat16"
        )
        num_tokens = max(int((batch.tgt_out != pad_id).sum()), 1)
        num_parts = min(self.world * self.micro_batches, max(self.world, len(batch.src)))
        parts = batch.split(num_parts, pad_id)[self.rank :: self.world]
        total = 0.0
        for number, part in enumerate(parts, start=1):
            alone = self.world > 1 and number < len(parts)  # exchange gradients once a step
            with self.parallel.no_sync() if alone else nullcontext():
                with bfloat16:
                    logits = self.parallel(part.src, part.tgt_in)
                loss = sequence_loss(logits, part.tgt_out, pad_id, smoothing, num_tokens)
                (loss * self.world).backward()  # torch averages over the processes
            total += loss.item()
        return total

    def total(self, value: Real) -> Real:
        """Add up a number over the processes, which wait here for each other."""
        if self.world == 1:
            return value
        tensor = torch.tensor(
            value, dtype=torch.float64, device=next(self.model.parameters()).device
        )
        torch.distributed.all_reduce(tensor)
        return tensor.item()

    def save(self, folder: str | Path) -> None:
        """Write a checkpoint; with several processes the first one does and the others wait."""
        if self.rank == 0:
            state = pack_state(self.model, self.optimizer, self.history, self.done, self.settings)
            save_checkpoint(folder, self.model, state=state)
        self.total(0)

    def restore(self, folder: Path, resume: bool, num_steps: int) -> None:
        """Go on where the run in the folder stopped, if there is one and it is this one."""
        state = load_state(folder)
        if state is None and (folder / "model.safetensors").exists():
            raise ValueError(f"{folder} holds a model, but no run that could go on")
        if state is None:
            return
        if not resume:
            raise ValueError(f"{folder} holds a training run; resume=True goes on with it")
        for name, value in plain(self.settings).items():
            if state.settings.get(name) != value:
                raise ValueError(
                    f"{folder} holds a run with another {name}: "
                    f"{state.settings.get(name)}, now {value}"
                )
        if num_steps < state.step:
            raise ValueError(f"num_steps={num_steps}, but {folder} holds {state.step} steps")
        unpack_state(
            state, folder / "training.safetensors", self.model, self.optimizer, self.history
        )
        self.done = state.step


def _learning_rate(step: int, d_model: int, settings: dict) -> float:
    """The schedule's rate at this step, rescaled so that the peak is max_lr if that is given."""
    warmup_steps, max_lr = settings["warmup_steps"], settings["max_lr"]
    lr = warmup_schedule(step, d_model, warmup_steps)
    if max_lr is None:
        return lr
    return max_lr / warmup_schedule(warmup_steps, d_model, warmup_steps) * lr


def _check_train(
    model, batches, settings, num_steps, score_every, micro_batches, checkpoint_every
) -> None:
    if not batches:
        raise ValueError("batches must not be empty")
    check.size(num_steps=num_steps, warmup_steps=settings["warmup_steps"])
    check.size(score_every=score_every, micro_batches=micro_batches)
    check.size(checkpoint_every=checkpoint_every)
    check.rate(label_smoothing=settings["label_smoothing"])
    if not isinstance(settings["seed"], int):
        raise TypeError(f"seed must be an int, got {settings['seed']!r}")
    max_lr, clip_norm = settings["max_lr"], settings["clip_norm"]
    if max_lr is not None and not 0 < max_lr < math.inf:
        raise ValueError(f"max_lr must be positive, got {max_lr}")
    if not clip_norm > 0:
        raise ValueError(f"clip_norm must be positive, got {clip_norm}")
    if settings["precision"] not in ("full", "bfloat16"):
        raise ValueError(f"precision must be 'full' or 'bfloat16', got {settings['precision']!r}")
    dtype = next(model.parameters()).dtype
    if settings["precision"] == "bfloat16" and dtype != torch.float32:
        raise ValueError(f"precision 'bfloat16' needs float32 weights, the model has {dtype}")


def _endless(batches: Sequence[Batch], rng: random.Random) -> Iterator[Batch]:
    while True:
        yield from rng.sample(batches, len(batches))


def _fingerprint(batches: Sequence[Batch]) -> str:
    """A short name for the ids of all batches, in their order."""
    digest = hashlib.sha256()
    for ids in (ids for batch in batches for ids in batch):
        digest.update(repr(tuple(ids.shape)).encode() + ids.cpu().numpy().tobytes())
    return digest.hexdigest()[:16]
