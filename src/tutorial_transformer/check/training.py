"""Graders of chapter 10: the loss of a batch, and the learning rate of a step."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from tutorial_transformer import training as right
from tutorial_transformer.check._grade import Case, grade
from tutorial_transformer.check._losses import WRONG_LOSSES
from tutorial_transformer.check._rates import WRONG_RATES
from tutorial_transformer.check._report import Report
from tutorial_transformer.check._trial import UnusableError


def sequence_loss(function: Callable) -> Report:
    """Grade sequence_loss(logits, tgt_out, pad_id=0, label_smoothing=0.0) -> mean nats a token.

    The mean is over the real tokens of the whole batch; padded targets count nothing. Label
    smoothing is F.cross_entropy's: all classes share its mass, pad included. A batch of pads only
    has loss 0 and a zero gradient. (loss, anything else) is taken too.
    """
    report = Report(
        "sequence_loss",
        "sequence_loss(logits, tgt_out, pad_id=0, label_smoothing=0.0) -> mean nats per real "
        "token, a scalar with a gradient; logits (batch, tgt_len, tgt_vocab), tgt_out (batch, "
        "tgt_len); smoothing as in F.cross_entropy; pads only: loss 0, and backward() works",
        "chapter 10, 3. Compute the loss: nats per real token",
    )
    wrong = {name: _with_gradient(loss) for name, loss in WRONG_LOSSES.items()}
    reference = _with_gradient(right.sequence_loss)
    return grade(report, _with_gradient(function), _loss_cases(), reference, wrong, _loss)


def _loss_cases() -> list[Case]:
    sure, token = torch.tensor([[[0.0, 0.0, 50.0]]]), torch.tensor([[2]])
    whole, ragged = _batch([4]), _batch([4, 1, 2])
    longer = F.pad(ragged[0], (0, 0, 0, 3), value=1.0), F.pad(ragged[1], (0, 3))
    swapped = torch.tensor([3, 1, 2, 0, 4])[ragged[1]]  # pad is 3, and 0 a token like others
    pads = ragged[0], torch.zeros_like(ragged[1])
    rows, only = "real tokens in the three rows: 4, 1 and 2", "tgt_out holds pads only"
    no_gradient = "the loss is cut from the graph (.item(), detach, no_grad): nothing can learn"
    cut = "with pads only the loss is cut from the graph and backward() fails: divide the sum by "
    by_loss = [
        ("certain and right costs nothing", "logits [0, 0, 50], target 2", sure, token),
        ("equal logits cost ln V", "logits [0, 0, 0], target 2", sure * 0, token),
        ("it is the mean over the tokens", "tgt_len 4, V 5, no pads", *whole),
        ("padded targets count nothing", rows, *ragged),
        ("padded targets count nothing", f"{rows}; three more pads each", *longer),
        ("certain and wrong costs its logit", "logits [0, 0, 200], target 1", sure * 4, token - 1),
        ("pad_id says which id is the pad", f"pad_id 3; {rows}", ragged[0], swapped, 3),
        ("in smoothing, every class gets ε/V", "ε 0.4, V 5, no pads", *whole, 0, 0.4),
        ("smoothing leaves padded targets out", f"ε 0.4, {rows}", *ragged, 0, 0.4),
        ("a batch of pads only costs 0", only, *pads),
    ]
    cases = [Case(name, text, tuple(args), view=lambda x: x[0]) for name, text, *args in by_loss]
    by_gradient = [
        ("the gradient reaches the real tokens, and no others", rows, ragged, no_gradient),
        ("with pads only the gradient is zero", only, pads, cut + "max(1, number of real tokens)"),
    ]
    for name, text, args, says in by_gradient:
        cases.append(Case(name, f"d loss / d logits; {text}", args, says, lambda x: x[1]))
    return cases


def _batch(lengths: list[int], vocab: int = 5) -> tuple[Tensor, Tensor]:
    """Random logits and targets; real tokens are not pads."""
    generator = torch.Generator().manual_seed(len(lengths))
    size = (len(lengths), max(lengths))
    logits = 2 * torch.randn(*size, vocab, generator=generator)
    tgt_out = torch.randint(1, vocab, size, generator=generator)
    return logits, tgt_out.masked_fill(torch.arange(size[1]) >= torch.tensor(lengths)[:, None], 0)


def _with_gradient(function: Callable) -> Callable:
    """Let a loss return its gradient with respect to the logits as well."""

    def run(logits, tgt_out, *rest):
        with torch.enable_grad():
            logits = logits.detach().requires_grad_()
            answer = function(logits, tgt_out, *rest)
            loss = answer[0] if isinstance(answer, tuple | list) and answer else answer
            if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
                return loss, "no gradient"
            try:  # the shape of the loss is (), or (1,)
                gradient = torch.autograd.grad(
                    loss, logits, torch.ones_like(loss), allow_unused=True
                )
            except RuntimeError as error:
                text = str(error).splitlines()[0]
                raise UnusableError(f"backward() fails on its loss: {text}") from None
        return loss.detach().reshape(()), "no gradient" if gradient[0] is None else gradient[0]

    return run


def _loss(answer: tuple) -> tuple:
    loss, gradient = answer
    if isinstance(loss, float | int):
        return torch.tensor(float(loss)), gradient
    if not isinstance(loss, Tensor):
        raise UnusableError(f"it must return a scalar tensor, got {type(loss).__name__}")
    if loss.numel() != 1:
        raise UnusableError(
            f"it must return one number, got shape {tuple(loss.shape)}: sum over the real tokens "
            "and divide by their number"
        )
    return loss.reshape(()), gradient


def warmup_schedule(function: Callable) -> Report:
    """Grade warmup_schedule(step, d_model, warmup_steps=4000) -> rate; steps count from 1."""
    report = Report(
        "warmup_schedule",
        "warmup_schedule(step, d_model, warmup_steps=4000) -> learning rate, a number: "
        "d_model^-0.5 · min(step^-0.5, step · warmup_steps^-1.5); steps count from 1",
        "chapter 10, 4. Raise the learning rate, then lower it",
    )
    first = "the first step is step 1, and must have the rate d_model^-0.5 · warmup_steps^-1.5"
    steps = [
        ("the first step has a rate", (1, 4, 9), first),
        ("the rate rises in a line", (2, 4, 9), "during warm-up it must rise in a line"),
        ("it is highest at the last warm-up step", (9, 4, 9), ""),
        ("then it falls as step^-0.5", (36, 4, 9), ""),
        ("it falls with the width, as d_model^-0.5", (5, 16, 9), ""),
        ("a warm-up of one step is none", (3, 4, 1), ""),
    ]
    steps += [("the paper's rates", (step, 512, 4000), "") for step in (1, 2, 4000, 16000)]
    cases = [
        Case(name, "step {}, d_model {}, warmup_steps {}".format(*args), args, says)
        for name, args, says in steps
    ]
    wrong = {name: lambda *args, f=rate: _shown(f(*args)) for name, rate in WRONG_RATES.items()}
    return grade(
        report, function, cases, lambda *args: _shown(right.warmup_schedule(*args)), wrong, _shown
    )


def _shown(rate: object) -> str:
    """A rate in four digits; rates are small, so that only a relative comparison can tell."""
    try:
        return f"{float(rate):.4g}"
    except (TypeError, ValueError, RuntimeError):
        raise UnusableError(f"it must return a number, got {type(rate).__name__}") from None
