"""What one answer cannot show of a layer: its parameters, its dropout, and pads only."""

import torch
from torch import Tensor, nn

from tutorial_transformer.check._block import SCALE, SIZES, is_matrix
from tutorial_transformer.check._building import fail, gains_of
from tutorial_transformer.check._dropping import RATE, check_dropout, check_random, check_still
from tutorial_transformer.check._inputs import numbers, output_of
from tutorial_transformer.check._layers import Student, run
from tutorial_transformer.check._mistakes import EMPTY
from tutorial_transformer.check._report import Property, Report
from tutorial_transformer.check._student import _hidden
from tutorial_transformer.check._trial import (
    NotAttemptedError,
    UnusableError,
    call,
    set_parameters,
)

COUNT = 12  # d_model of the module whose parameters are counted
UNREGISTERED = (
    "parts in a plain list are not registered, so nobody trains or saves them: use nn.ModuleList"
)


def blame_list(report: Report, student: Student, reread: str) -> None:
    """Name parts that a layer hides from torch, if it is wrong."""
    hidden = (_hidden(module) for module in student.modules.values())
    if not report.passed and any(True for parts in hidden for _ in parts):
        report.diagnosis, report.reread = UNREGISTERED, reread


def check_parts(report: Report, student: Student, attentions: int, reread: str) -> None:
    """Count norms and matrices, and ask whether each of them has an effect."""
    if not report.passed:
        return
    try:
        module = call(lambda: student.made(False, COUNT))
        says, got, wanted = _miscounted(module, attentions)
        says, got = (says, got) if says else (call(lambda: _idle(student)), "its gradient is 0")
    except (UnusableError, NotAttemptedError) as error:
        says = got = str(error)
    name, example = "every part has its own parameters", f"d_model {COUNT}, d_ff {SIZES[COUNT][1]}"
    if says:
        fail(report, Property(name, False, example, got, wanted), says, reread)
    else:
        report.properties.append(Property(name, True))


def _miscounted(module: nn.Module, attentions: int) -> tuple[str, str, str]:
    """The sentence for a wrong number of norms or weights, and both numbers."""
    norms, sublayers = len(gains_of(module, COUNT)), attentions + 1
    weights = sum(one.numel() for one in module.parameters() if is_matrix(one, COUNT))
    wanted = 4 * attentions * COUNT**2 + 2 * COUNT * SIZES[COUNT][1]
    numbers_of = f"{norms} norms, {weights} weights", f"{sublayers} norms, {wanted} weights"
    if weights < wanted:
        lost = any(True for _ in _hidden(module))
        says = (
            UNREGISTERED
            if lost
            else (
                "there are too few weights: each attention and both maps of the feed-forward "
                "network need their own, registered with the layer"
            )
        )
    elif norms < sublayers:
        says = "there are too few norms: one for each sub-layer, not shared"
    else:
        says = ""
    return says, *numbers_of


def _idle(student: Student) -> str:
    """Name a matrix or gain that no output depends on."""
    for first in (False, True):
        module = student.made(first, COUNT)
        gains = gains_of(module, COUNT)
        set_parameters(module)
        inputs = [numbers((2, 5 + place, COUNT), place) for place in range(student.inputs)]
        weigh = numbers((2, 5, COUNT), 9)
        with torch.enable_grad():
            output = output_of(run(module.train(), *inputs))
            if not output.requires_grad:
                return ""  # code without gradients is not judged
            (output * weigh).sum().backward()
        for name, one in module.named_parameters():
            used = one.grad is not None and bool((one.grad.abs() > 1e-9).any())
            if not used and (is_matrix(one, COUNT) or _is_in(one, gains)):
                return (
                    f"{name} has no effect on the output: is another part in its place? A part "
                    "that is made but never used: use it or remove it"
                )
    return ""


def _is_in(one: Tensor, others: list) -> bool:
    return any(one is other for other in others)


def check_rates(report: Report, student: Student) -> None:
    """Dropout acts on the output of each sub-layer, at the rate that was asked for."""

    def drawn(first: bool, scale: float, feed: float, silent: bool = False) -> tuple:
        x = numbers((20, 30, COUNT))
        rest = [numbers((20, 29, COUNT), 1) * (not silent) for _ in range(student.inputs - 1)]
        module = student.build(first, COUNT, scale, RATE, feed)
        still = output_of(run(module.eval(), x, *rest))
        module.train()
        return x, still, output_of(run(module, x, *rest))

    def twice() -> list[Tensor]:
        module = student.build(False, COUNT, SCALE, RATE).eval()
        inputs = [numbers((2, 3, COUNT), place) for place in range(student.inputs)]
        return [output_of(run(module, *inputs)).detach() for _ in range(2)]

    check_still(report, twice)
    told = f"dropout {RATE}, norm_first=True, "
    part = "feed-forward network"
    check_dropout(report, part, told + "attention gives 0", lambda: drawn(True, 0.0, SCALE))
    run_self = lambda: drawn(True, SCALE, 0.0, True)  # noqa: E731
    check_dropout(report, "self-attention", told + "all else gives 0", run_self)
    if student.inputs > 1:
        both = RATE**2  # an entry is 0 where both attentions are dropped
        example = told + "the feed-forward network gives 0"
        check_dropout(report, "cross-attention", example, lambda: drawn(True, SCALE, 0.0), both)
    for place, scales in (("none", (0.0, 0.0)), (part, (0.0, SCALE)), ("attention", (SCALE, 0.0))):
        check_random(report, place, lambda scales=scales: drawn(False, *scales)[1:])


def finite(report: Report, student: Student, *inputs: Tensor | None) -> None:
    """A sentence of pads only must not end in an error; NaN, as torch's attention gives, may be."""
    if not report.passed:
        return
    name = "a sentence of pads only is taken"
    try:
        fine = bool(call(student, False, False, SCALE, *inputs).isfinite().all())
    except (UnusableError, NotAttemptedError) as error:
        fail(
            report,
            Property(name, False, "mask all False", str(error), "numbers"),
            str(error),
            EMPTY,
        )
    else:
        nan = "remark: a sentence of pads only gives NaN; in the course such a query gets zeros"
        report.properties.append(Property(name if fine else nan, True))
