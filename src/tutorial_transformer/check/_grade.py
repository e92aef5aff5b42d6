"""The engine of all graders: cases with right answers, and suspects with wrong ones."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tutorial_transformer.check._report import Property, Report, short
from tutorial_transformer.check._trial import (
    TIME_LIMIT,
    NotAttemptedError,
    UnusableError,
    call,
    close,
)


@dataclass
class Case:
    """One input, the property that it shows, and what to say if it fails for no known reason."""

    name: str
    example: str
    args: tuple
    says: str = ""
    view: Callable = lambda answer: answer  # what of an answer is compared


def grade(
    report: Report,
    function: Callable,
    cases: Sequence[Case],
    reference: Callable,
    suspects: dict[str, Callable],
    adapt: Callable = lambda answer: answer,
    tolerance: float = 1e-5,
) -> Report:
    """Compare the function with the reference on every case, the smallest input first.

    suspects are the mistakes that people make, each under the sentence that names it: a wrong
    implementation with the same arguments. The suspect that gives most of the learner's answers,
    the first wrong one among them, is the diagnosis; if there is none, it is what the first
    failing case says.
    adapt turns usual other forms of an answer into the reference's; it may raise UnusableError.
    """
    answers: list[object] = []
    start = time.monotonic()
    for case in cases:
        try:
            answers.append(adapt(call(function, *case.args)))
        except NotAttemptedError:
            report.attempted = False
            return report
        except UnusableError as mistake:
            answers.append(mistake)
            if mistake.final:
                break
        if time.monotonic() - start > TIME_LIMIT and len(answers) < len(cases):
            answers.append(UnusableError(f"it is too slow: {TIME_LIMIT} s are over", final=True))
            break
    failing: list[int] = []
    for number, (case, answer) in enumerate(zip(cases, answers, strict=False)):
        right = reference(*case.args)
        holds = not isinstance(answer, UnusableError) and close(
            case.view(answer), case.view(right), tolerance
        )
        entry = _entry(report, case.name)
        if holds or not entry.passed:
            continue
        failing.append(number)
        entry.passed, entry.example = False, case.example
        entry.got = str(answer) if isinstance(answer, UnusableError) else short(case.view(answer))
        entry.wanted = short(case.view(right))
    if failing:
        report.diagnosis = _diagnose(cases, answers, failing, suspects, tolerance)
    return report


def _entry(report: Report, name: str) -> Property:
    """The property of this name; several cases may show one."""
    for item in report.properties:
        if item.name == name:
            return item
    report.properties.append(Property(name, True))
    return report.properties[-1]


def _diagnose(cases, answers, failing, suspects, tolerance) -> str:
    """The suspect that gives most of the learner's answers, the first wrong one among them."""
    case, answer = cases[failing[0]], answers[failing[0]]
    tried = [*failing, *(number for number in range(len(answers)) if number not in failing)]
    best, fewest = "", len(answers)  # answers that differ
    unusable = sum(isinstance(one, UnusableError) for one in answers)
    for sentence, wrong in suspects.items():
        if not _agrees(wrong, case, answer, tolerance):
            continue
        differ = 0
        for number in tried[1:]:
            differ += not _agrees(wrong, cases[number], answers[number], tolerance)
            if differ >= fewest:
                break
        else:
            best, fewest = sentence, differ
        if fewest == unusable:  # none can agree more
            break
    return best or (str(answer) if isinstance(answer, UnusableError) else case.says or case.name)


def _agrees(wrong: Callable, case: Case, answer: object, tolerance: float) -> bool:
    """Whether a suspect gives the learner's answer."""
    if isinstance(answer, UnusableError):
        return False
    try:
        return close(case.view(answer), case.view(wrong(*case.args)), tolerance)
    except Exception:  # some mistakes end in an error on some inputs
        return False
