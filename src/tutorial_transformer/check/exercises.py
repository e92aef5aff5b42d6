"""Graders for exercises that are no component: agree, predict, break, and find the bug."""

import inspect
from collections.abc import Callable

from torch import Tensor

from tutorial_transformer.check._grade import Case, grade
from tutorial_transformer.check._report import Property, Report, short
from tutorial_transformer.check._trial import NotAttemptedError, UnusableError, call, close


def agreement(
    code: object, right: Callable, inputs: list[tuple], reread: str, tolerance: float = 1e-5
) -> Report:
    """Compare the learner's function with a right one on inputs, the smallest first.

    Each input is a tuple of arguments; tensors must agree in shape and value, within `tolerance`
    relative or absolute.
    """
    report = Report(_name(code), f"{_name(code)}{inspect.signature(right)}", reread)
    cases = [
        Case(f"it is right on input {n}", short(one), one, f"its answer on input {n} is not right")
        for n, one in enumerate(inputs, start=1)
    ]
    return grade(report, code, cases, right, {}, tolerance=tolerance)


def prediction(answer: object, measure: Callable, reread: str, tolerance: float = 0.01) -> Report:
    """Compare what answer() says with what measure() finds by running it.

    Whole numbers, words and truth values must be equal; other numbers may differ by `tolerance`,
    relative above 1 and absolute below. Tensors, shapes, lists and tuples are the same.
    """
    report = Report(_name(answer), f"{_name(answer)}() -> your prediction", reread)
    name = "the prediction is what comes out when it is run"
    try:
        said = _said(answer)
    except NotAttemptedError:
        report.attempted = False
        return report
    except UnusableError as mistake:
        return _failed(report, name, str(mistake))
    said, found = _plain(said), _plain(measure())
    if _near(said, found, tolerance):
        report.properties.append(Property(name, True))
        return report
    says = "your prediction is not what comes out when it is run"
    if isinstance(found, tuple):
        if not isinstance(said, tuple) or len(said) != len(found):
            says = f"your prediction must have {len(found)} values"
        else:
            right = [_near(*pair, tolerance) for pair in zip(said, found, strict=True)]
            says = f"value {1 + right.index(False)} of your prediction is not what comes out"
    return _failed(report, name, says, "the call in the check cell", short(said), short(found))


def counterexample(
    answer: object, right: Callable, wrong: Callable | list[Callable], reread: str
) -> Report:
    """Ask for an input, a tuple of arguments, on which wrong code gives itself away.

    answer() must be an input that right(*input) takes; each wrong one must raise or return
    something else there.
    """
    expects = f"{_name(answer)}() -> a tuple of arguments on which the wrong code shows"
    report = Report(_name(answer), expects, reread)
    try:
        given = _said(answer)
        given = tuple(given) if isinstance(given, tuple | list) else (given,)
        wanted = call(right, *given)
    except NotAttemptedError:
        report.attempted = False
        return report
    except UnusableError as mistake:
        says = f"the right code does not take your input: {mistake}"
        return _failed(report, "the right code takes the input", says)
    report.properties.append(Property("the right code takes the input", True))
    for code in wrong if isinstance(wrong, list) else [wrong]:
        name = f"{_name(code)} shows its fault"
        try:
            same = close(call(code, *given), wanted)
        except UnusableError:
            same = False
        if same:
            _failed(report, name, f"{_name(code)} is right on this input", short(given))
        else:
            report.properties.append(Property(name, True))
    return report


def bug(fails: object, mended: object, broken: Callable, grader: Callable) -> Report:
    """Grade the mended code, and the number of a property that the broken code violates.

    fails() is that number, counted from 1 in the order of the properties of a passing report.
    """
    report = grader(mended)
    report.component = _name(mended)
    name = f"{_name(fails)}() is the number of a property that {_name(broken)} violates"
    try:
        number = _said(fails)
    except NotAttemptedError:
        if not report.attempted or not report.passed:
            return report
        return _failed(report, name, f"it is mended; now write {_name(fails)}()")
    except UnusableError as mistake:
        return _failed(report, name, str(mistake))
    if not report.attempted:
        report.attempted = True
        return _failed(report, "the mended code passes", f"{_name(mended)} is still to be written")
    return _judge(report, name, number, grader(broken)) if report.passed else report


def _judge(report: Report, name: str, number: object, broken: Report) -> Report:
    """Add to the report of the mended code whether the broken one violates property `number`."""
    names = [item.name for item in report.properties]
    measured = {item.name: item.passed for item in broken.properties}
    if type(number) is not int or not 1 <= number <= len(names):
        return _failed(report, name, f"it must be a number from 1 to {len(names)}, got {number!r}")
    chosen = names[number - 1]
    if chosen not in measured:
        says = f"property {number}, {chosen}, is not looked at while an earlier one fails"
        return _failed(report, name, says)
    if measured[chosen]:
        return _failed(report, name, f"the broken code has property {number}, {chosen}")
    report.properties.append(Property(name, True))
    return report


def _name(code: object) -> str:
    return getattr(code, "__name__", type(code).__name__)


def _said(answer: object) -> object:
    """What the learner's function says; a value in its place is taken as it is."""
    return call(answer) if callable(answer) else answer


def _failed(
    report: Report, name: str, says: str, example: str = "", got: str = "", wanted: str = ""
) -> Report:
    """Add a property that does not hold; the first one is the diagnosis."""
    report.properties.append(Property(name, False, example, got, wanted))
    report.diagnosis = report.diagnosis or says
    return report


def _plain(value: object) -> object:
    """Numbers, words, and tuples of them, whatever they came in."""
    if isinstance(value, Tensor) or hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return tuple(_plain(one) for one in value)
    return value.strip().lower() if isinstance(value, str) else value


def _near(said: object, found: object, tolerance: float) -> bool:
    if isinstance(found, tuple):
        return (
            isinstance(said, tuple)
            and len(said) == len(found)
            and all(_near(one, other, tolerance) for one, other in zip(said, found, strict=True))
        )
    if isinstance(found, float) and isinstance(said, int | float):
        return abs(said - found) <= tolerance * max(1, abs(found))
    return said == found
