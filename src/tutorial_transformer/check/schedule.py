"""A grader of chapter 10: the learning rate of a step."""

from collections.abc import Callable

from tutorial_transformer import training as right
from tutorial_transformer.check._calling import by_position
from tutorial_transformer.check._grade import Case, grade
from tutorial_transformer.check._rates import WRONG_RATES, powers
from tutorial_transformer.check._report import Report
from tutorial_transformer.check._trial import NotAttemptedError, UnusableError, call


def warmup_schedule(function: object) -> Report:
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
        ("it is highest at the last warm-up step", (9, 4, 9), "the peak is not at warmup_steps"),
        ("then it falls as step^-0.5", (36, 4, 9), "after warm-up it must fall as step^-0.5"),
        ("it falls with the width, as d_model^-0.5", (5, 16, 9), "it must fall as d_model^-0.5"),
        ("a warm-up of one step is none", (3, 4, 1), "a warm-up of one step must be none"),
    ]
    steps += [("the paper's rates", (step, 512, 4000), "") for step in (1, 2, 4000, 16000)]
    cases = [
        Case(name, "step {}, d_model {}, warmup_steps {}".format(*args), args, says)
        for name, args, says in steps
    ]
    wrong = {name: lambda *args, f=rate: _shown(f(*args)) for name, rate in WRONG_RATES.items()}
    learner = by_position(function, "step", "d_model", "warmup_steps")
    grade(report, learner, cases, lambda *args: _shown(right.warmup_schedule(*args)), wrong, _shown)
    named = wrong.get(report.diagnosis)
    if not report.passed and not (named and _is_exactly(named, learner, cases)):
        report.diagnosis = powers(learner) or report.diagnosis
    return report


def _is_exactly(named: Callable, learner: Callable, cases: list[Case]) -> bool:
    """Whether a suspect gives all of the learner's rates."""
    try:
        return all(named(*case.args) == _shown(call(learner, *case.args)) for case in cases)
    except (UnusableError, NotAttemptedError, ArithmeticError):
        return False


def _shown(rate: object) -> str:
    """A rate in four digits; rates are small, so that only a relative comparison can tell."""
    try:
        return f"{float(rate):.4g}"
    except (TypeError, ValueError, RuntimeError):
        raise UnusableError(f"it must return a number, got {type(rate).__name__}") from None
