"""Mistakes that people make, each under the sentence that names it, and where to reread.

A grader's suspects are a dictionary {sentence: Mistake}. The constants are headings of the
chapters: what a report names to reread.
"""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from tutorial_transformer.check._report import Report
from tutorial_transformer.check._trial import NotAttemptedError, UnusableError, call, close

POLARITY = "chapter 01, 5. Ask what True means before you pass a mask"
BOOLEAN = "chapter 01, 6. Keep masks boolean"
EMPTY = "chapter 01, 7. Decide what an empty row means"
HEAD_AXIS = "chapter 01, 8. Leave the head axis to the layer"
FUTURE = "chapter 01, 3. Hide the future"
LADDER = "chapter 02, 3. Climb from a loop to a batch"
ROWS = "chapter 02, 4. Read the map along its rows"
SCALE = "chapter 02, 5. Scale the scores, or softmax stops learning"
CUT = "chapter 03, 1. Cut every vector on the right axis"
PROJECT = "chapter 03, 2. Give every head its own projection"
MIX = "chapter 03, 4. Mix the heads with $W^O$"
SOURCES = "chapter 03, 5. Swap the sources, and mind the head axis"
SCRAMBLE = "chapter 03, 8. Catch a scramble that trains"
DROPOUT = "chapter 02, 9. Drop weights, but show the undropped ones"
KEEP = "chapter 11, 5. Keep what does not change: the cache"
RANDOM = "two calls with the same input differ: dropout is on, although nobody asked for it"


class Mistake(NamedTuple):
    """What is computed instead, and where to read about it."""

    reread: str
    rule: Callable


def point(report: Report, mistakes: dict[str, Mistake]) -> Report:
    """Let the report name the section that explains its diagnosis."""
    if report.diagnosis in mistakes:
        report.reread = mistakes[report.diagnosis].reread
    return report


def rules(mistakes: dict[str, Mistake]) -> dict[str, Callable]:
    """The mistakes as grade wants them."""
    return {says: mistake.rule for says, mistake in mistakes.items()}


def blame_chance(report: Report, function: object, *args) -> None:
    """Name dropout as the reason if two calls differ; random answers fit no suspect."""
    slow = any(
        "it is too slow" in item.got or "come back" in item.got for item in report.properties
    )
    if report.passed or not report.attempted or slow:
        return
    try:
        first, second = call(lambda *inputs: (function(*inputs), function(*inputs)), *args)
    except (UnusableError, NotAttemptedError):
        return
    parts = first if isinstance(first, tuple | list) else [first]
    if any(isinstance(one, Tensor) for one in parts) and not close(second, first):
        report.diagnosis, report.reread = RANDOM, DROPOUT
