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


def check_still(report: Report, twice: Callable) -> None:
    """In evaluation mode dropout is off; twice() gives two outputs for one input."""
    name, example = "in evaluation mode dropout is off", f"dropout {RATE}, the same input twice"
    says = "dropout is on in evaluation mode, too: F.dropout needs training=self.training"
    check_same(report, name, twice, example, says, DROPOUT)


def check_same(report: Report, name: str, twice: Callable, example: str, says: str, reread: str):
    """Add a property that holds if twice() gives the same tensor twice."""
    if not report.passed:
        return
    try:
        says = "" if close(*call(twice)) else says
    except (UnusableError, NotAttemptedError) as error:
        says = str(error)
    if says:
        fail(report, Property(name, False, example, says, "the same twice"), says, reread)
    else:
        report.properties.append(Property(name, True))


def blame_rate(report: Report, function: object, *args) -> None:
    """Name a fixed rate where training is random although dropout is 0."""
    first = next((item for item in report.properties if not item.passed), None)
    if first is not None and "training" in first.name:
        blame_chance(report, function, *args)
        if report.diagnosis == RANDOM:
            report.diagnosis = (
                "with dropout 0 training is random: a rate is fixed somewhere, pass the given one "
                "to every part"
            )


def check_random(report: Report, part: str, run: Callable) -> None:
    """In post-norm order, too, training is random where a sub-layer gives something, only there."""
    if not report.passed:
        return
    name, wanted = "in post-norm order dropout acts on each sub-layer's output", "as in evaluation"
    try:
        still, drawn = call(_seeded(run))
        same = close(still, drawn)
        says = "" if same == (part == "none") else f"dropout changes nothing at the {part}'s output"
        if part == "none" and not same:
            says = f"dropout acts on x too, in the sum or behind the norm; {PLACE}"
    except (UnusableError, NotAttemptedError) as error:
        says = str(error)
    if says:
        says = f"in post-norm order {says}"
        example = f"dropout {RATE}, norm_first=False, sub-layers that give something: {part}"
        fail(report, Property(name, False, example, says, wanted), says, ORDER)
    elif part == "none":
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
