"""A grader of chapter 10: the loss of a batch."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from tutorial_transformer import training as right
from tutorial_transformer.check._calling import by_position
from tutorial_transformer.check._grade import Case, grade
from tutorial_transformer.check._loss_weights import name_weights
from tutorial_transformer.check._losses import WRONG_LOSSES
from tutorial_transformer.check._report import Report
from tutorial_transformer.check._trial import UnusableError


def sequence_loss(function: object) -> Report:
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
    named = by_position(function, "logits", "tgt_out", "pad_id", "label_smoothing")
    learner, reference = _with_gradient(named), _with_gradient(right.sequence_loss)
    grade(report, learner, _loss_cases(), reference, wrong, _loss)
    if report.diagnosis.startswith("this does not hold"):
        report.diagnosis = name_weights(learner, *_batch([4, 1, 2])) or report.diagnosis
    return report


COST = "a token costs -log softmax(logits)[target]"
SAYS = {
    "equal logits cost ln V": f"{COST}: equal logits cost ln V",
    "certain and right costs nothing": f"{COST}: one that is certain and right costs 0",
    "certain and wrong costs its logit": "a bad error must cost its logit: no clamp and no ε in "
    "the log may bound it; use log_softmax",
    "pad_id says which id is the pad": "pad_id is not obeyed: the targets that equal it are pads",
    "in smoothing, every class gets ε/V": "the smoothed target is not that of F.cross_entropy: all "
    "V classes get ε/V, the right one 1 - ε more",
}


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
    cases = [
        Case(name, text, tuple(args), SAYS.get(name, ""), lambda x: x[0])
        for name, text, *args in by_loss
    ]
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


def _with_gradient(function: object) -> Callable:
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
        unmoved = torch.zeros_like(logits)  # a loss of its own may have a graph without them
        return loss.detach().reshape(()), unmoved if gradient[0] is None else gradient[0]

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
