"""Where dropout acts, and at which rate: what a module does in training mode."""

from collections.abc import Callable

import torch
from torch import Tensor

from tutorial_transformer.check._building import fail
from tutorial_transformer.check._mistakes import DROPOUT, RANDOM, blame_chance
from tutorial_transformer.check._report import Property, Report
from tutorial_transformer.check._trial import NotAttemptedError, UnusableError, call, close

RATE = 0.3
PLACE = "dropout must act on each sub-layer's output, before the sum"
ORDER = "chapter 06, 4. Wrap the sub-layer, in one of two orders"


def check_dropout(report: Report, part: str, example: str, run: Callable, share=RATE) -> None:
    """Compare the share of zeros in what a pre-norm module adds to x with the rate.

    run() returns x, and the outputs in evaluation and training mode.
    """
    if not report.passed:
        return
    name = f"dropout acts on the {part}'s output, at its rate"
    try:
        x, still, drawn = call(_seeded(run))
        got, says = _fault(x, still - x, drawn, share)
        says = f"at the {part}'s output: {says}" if says else ""
    except (UnusableError, NotAttemptedError) as error:
        got = says = str(error)
    if says:
        wanted = f"a share of {share:g} of what is added to x is 0, the rest grows to keep the mean"
        fail(report, Property(name, False, example, got, wanted), says, ORDER)
    else:
        report.properties.append(Property(name, True))


def blame_rate(report: Report, function: Callable, *args) -> None:
    """Name a fixed rate where training is random although dropout is 0."""
    first = next((item for item in report.properties if not item.passed), None)
    if first is not None and "training" in first.name:
        blame_chance(report, function, *args)
        if report.diagnosis == RANDOM:
            report.diagnosis = (
                "with dropout 0 training is random: a rate is fixed somewhere, pass the given one "
                "to every part"
            )


def check_random(report: Report, example: str, run: Callable) -> None:
    """What run() returns, the outputs in evaluation and training mode, must differ."""
    if not report.passed:
        return
    name = "with dropout, training is random in post-norm order too"
    try:
        still, drawn = call(_seeded(run))
        says = "" if not close(still, drawn) else "dropout changes nothing in post-norm order"
    except (UnusableError, NotAttemptedError) as error:
        says = str(error)
    if says:
        fail(report, Property(name, False, example, says, "two different outputs"), says, DROPOUT)
    else:
        report.properties.append(Property(name, True))


def _seeded(run: Callable) -> Callable:
    def seeded() -> tuple[Tensor, ...]:
        torch.manual_seed(0)
        return tuple(output.detach() for output in run())

    return seeded


def _fault(x: Tensor, added: Tensor, drawn: Tensor, share: float):
    """What was seen, and the sentence for the mistake, empty if there is none."""
    live, grown = added.abs() > 1e-3, drawn - x
    zero = float((grown[live].abs() < 1e-6).double().mean())
    kept = float((grown * added)[live].sum() / added[live].square().sum())
    got = f"a share of {zero:.2f} is 0, the mean is {kept:.2f} times that of evaluation mode"
    if close(drawn, x + added):
        return got, "dropout changes nothing in training: is its rate passed on, is it called?"
    if abs(zero - share) < 0.03:
        fine = abs(kept - 1) < 0.1
        return got, "" if fine else "what dropout keeps must be scaled by 1 / (1 - p)"
    if abs(zero - (1 - RATE)) < 0.03:
        return got, "the rate is taken for the share that is kept; it is the share that is dropped"
    if float((drawn.abs() < 1e-6).double().mean()) > RATE / 2:
        return got, f"dropout acts on x too, in the sum or behind it; {PLACE}"
    if zero < 0.03:
        return got, f"nothing is dropped; {PLACE}"
    return got, f"the rate is not the one that was asked for, or it acts elsewhere: {PLACE}"
