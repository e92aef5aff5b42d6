"""Learner's code that goes wrong before it answers, and what every grader must do with it."""

import functools
import json
import re
from collections.abc import Callable
from pathlib import Path

import torch

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"


def stub(*_):
    raise NotImplementedError("yours")


def raising(*_):
    return {}["lost"]


def looping(*_):
    while True:
        pass


def nothing(*_):
    return None


def wrong_shape(*_):
    return torch.zeros(3, 1, 2, 1, 2)


TOLD = {raising: "KeyError", nothing: "NoneType"}


def changing(function: Callable) -> Callable:
    """The function, which then changes its first tensor."""

    def changed(*inputs):
        answer = function(*(x.clone() if isinstance(x, torch.Tensor) else x for x in inputs))
        next(x for x in inputs if isinstance(x, torch.Tensor)).add_(1)
        return answer

    return changed


def loud(function: Callable) -> Callable:
    """The function, which prints and touches all that torch keeps globally."""

    def shouting(*inputs):
        print("shapes", inputs)
        torch.manual_seed(7)
        torch.set_grad_enabled(False)
        answer = function(*inputs)
        torch.set_default_dtype(torch.float64)
        return answer

    return shouting


def assert_rejected(report, word: str) -> None:
    """Rejected with this word in the diagnosis, and an example that shows it."""
    assert report.attempted and not report.passed and report.status == "failed"
    assert word in report.diagnosis, report.line
    first = next(item for item in report.properties if not item.passed)
    assert first.example and first.got and first.wanted
    assert report.reread in headings()


def assert_accepted(report) -> None:
    """Passed, with every property."""
    assert report.passed and report.diagnosis == "", str(report)


def assert_told(grader: Callable, wrap: Callable = lambda function: function) -> None:
    """Stub, error, nothing and nonsense are told as what they are."""
    assert grader(wrap(stub)).status == "not attempted"
    for function, word in TOLD.items():
        assert_rejected(grader(wrap(function)), word)
    assert_rejected(grader(wrap(wrong_shape)), "")


def assert_stopped(grader: Callable, wrap: Callable = lambda function: function) -> None:
    """An endless loop is told as one."""
    assert_rejected(grader(wrap(looping)), "endless loop")


def assert_harmless(grader: Callable, code: Callable, capsys) -> None:
    """The grader accepts loud code, and leaves everything as it was."""
    state, dtype = torch.get_rng_state(), torch.get_default_dtype()
    assert_accepted(grader(code))
    assert capsys.readouterr().out == ""
    assert torch.equal(torch.get_rng_state(), state) and torch.get_default_dtype() == dtype
    assert torch.is_grad_enabled()


@functools.cache
def headings() -> set[str]:
    """All that a report may name to reread, "chapter NN, " and a heading; 11 is not written yet."""
    found = {"chapter 11, 5. Keep what does not change: the cache"}
    for path in NOTEBOOKS.glob("[0-9]*.ipynb"):
        text = "\n".join("".join(cell["source"]) for cell in json.loads(path.read_text())["cells"])
        found |= {f"chapter {path.name[:2]}, {title}" for title in re.findall("(?m)^## (.*)", text)}
    return found
