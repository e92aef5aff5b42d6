"""The engine of all graders: cases with right answers, and suspects with wrong ones."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tutorial_transformer.check._changes import changed, factor
from tutorial_transformer.check._clock import Clock
from tutorial_transformer.check._difference import difference, pictures
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
    function: object,
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
    failing case says, or what can be said of any answer.
    adapt turns usual other forms of an answer into the reference's; it may raise UnusableError.
    """
    answers: list[object] = []
    clock = Clock(TIME_LIMIT)
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
        if len(answers) < len(cases) and clock.is_over():
            answers.append(UnusableError(f"it is too slow: {TIME_LIMIT} s are over", final=True))
            break
    reference, failing = _remembered(reference), []
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
        if isinstance(answer, UnusableError):
            entry.got, entry.wanted = str(answer), short(case.view(right))
        else:
            both = case.view(answer), case.view(right)
            entry.got, entry.wanted = pictures(*both, tolerance)
    if failing:
        report.diagnosis, partly = _diagnose(
            cases, answers, failing, suspects, reference, tolerance
        )
        if not report.diagnosis:
            number = failing[0]
            right = cases[number].view(reference(*cases[number].args))
            report.diagnosis = _grown(cases, answers, failing, reference) or _describe(
                cases[number], answers[number], right, number == 0, tolerance
            )
            if partly and not isinstance(answers[number], UnusableError):
                report.diagnosis += f"; perhaps {partly}"
    return report


def unexplained(report: Report) -> bool:
    """Whether the diagnosis only says that something fails, not why."""
    return report.diagnosis.startswith(("this does not hold", "its shape is"))


def _entry(report: Report, name: str) -> Property:
    """The property of this name; several cases may show one."""
    for item in report.properties:
        if item.name == name:
            return item
    report.properties.append(Property(name, True))
    return report.properties[-1]


def _diagnose(cases, answers, failing, suspects, reference, tolerance) -> tuple[str, str]:
    """The suspect that gives most of the learner's answers, the first wrong one among them.

    The second sentence is that of one that gives the first wrong answer and few others.
    """
    case, answer = cases[failing[0]], answers[failing[0]]
    tried = [*failing, *(number for number in range(len(answers)) if number not in failing)]
    best, partly, fewest = "", "", len(answers)  # answers that differ
    unusable, clock = sum(isinstance(one, UnusableError) for one in answers), Clock(TIME_LIMIT / 2)
    for sentence, wrong in (suspects | dict(changed(reference))).items():
        most = 0.6 * (len(failing) + unusable) if sentence in suspects else unusable
        if not _agrees(wrong, case, answer, tolerance):
            continue
        if sentence not in suspects and not any(
            _tells(wrong, reference, cases[number]) for number in failing
        ):
            continue
        partly = partly or sentence * (sentence in suspects)
        differ = 0
        for place, number in enumerate(tried[1:], 1):
            differ += not _agrees(wrong, cases[number], answers[number], tolerance)
            if differ >= fewest or (place < len(failing) and differ > most):
                break
        else:
            if 2 * differ <= len(answers) + unusable:  # the answers that are right count, too
                best, fewest = sentence, differ
        if fewest == unusable or clock.is_over():  # none can agree more
            break
    return best, partly


def _tells(wrong: Callable, reference: Callable, case: Case) -> bool:
    """Whether a change does more than to write the right numbers in another shape or kind."""
    try:
        one, other = case.view(wrong(*case.args)), case.view(reference(*case.args))
    except Exception:  # some changes end in an error on some inputs
        return False
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return True
    if (one.dtype == torch.bool) != (other.dtype == torch.bool):
        return False
    if one.shape in (other.shape, other.squeeze().shape):
        return True
    return not close(one.flatten(), other.flatten())


def _grown(cases, answers, failing, reference) -> str:
    """Say by which factor all answers are too large or too small, if they are but that."""
    ratios: dict[int, float | None] = {}
    for number, answer in enumerate(answers):
        right = reference(*cases[number].args)
        if not isinstance(right, Tensor) or right.any():  # 0 fits every factor
            ratios[number] = factor(answer, right)
    wrong = {ratios.get(number) for number in failing}
    sizes = {f"{ratio:.4g}" for ratio in wrong - {None}}
    if None in wrong or len(sizes) != 1 or sizes == {"1"}:
        return ""
    some = len(failing) < len(ratios)  # the others are right
    if some and len(failing) == 1:
        return ""
    where = "where they are wrong, " if some else ""
    return f"{where}the answers are {sizes.pop()} times the right ones"


def _describe(case: Case, answer: object, right: object, first: bool, tolerance: float) -> str:
    """What is wrong with an answer that no suspect gives."""
    if isinstance(answer, UnusableError):
        says = f"{answer} [{case.example}]" if "it raises" in str(answer) else str(answer)
        return says if first or not case.says or answer.final else f"{says}; {case.says}"
    got = case.view(answer)
    if any(one.isnan().any() and not other.isnan().any() for one, other in _tensors(got, right)):
        return f"it gives NaN: {case.says or case.name}"
    seen = difference(got, right, tolerance)
    if seen.startswith("its shape is") and not case.says:
        return f"{seen}: {case.name}"
    return f"{case.says or f'this does not hold: {case.name}'}: {seen}"


def _tensors(got: object, wanted: object) -> Iterator[tuple[Tensor, Tensor]]:
    """The tensors of two answers, side by side."""
    if isinstance(wanted, tuple | list) and isinstance(got, tuple | list):
        for pair in zip(got, wanted, strict=False):
            yield from _tensors(*pair)
    elif isinstance(wanted, Tensor) and isinstance(got, Tensor):
        yield got, wanted


def _remembered(function: Callable) -> Callable:
    """The function, which answers only once to the very same arguments."""
    known: dict[tuple, tuple] = {}

    def run(*args):
        key = tuple(map(id, args))
        if key not in known:
            known[key] = args, function(*args)  # args are kept, so that no id is given anew
        return known[key][1]

    return run


def _agrees(wrong: Callable, case: Case, answer: object, tolerance: float) -> bool:
    """Whether a suspect gives the learner's answer."""
    if isinstance(answer, UnusableError):
        return False
    try:
        return close(case.view(answer), case.view(wrong(*case.args)), tolerance)
    except Exception:  # some mistakes end in an error on some inputs
        return False
