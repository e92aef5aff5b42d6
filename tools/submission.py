"""Run one submission, in a process of its own, and tell what its exercises are worth.

The notebooks that the course ships give the checks and the given cells; of a submission only what
stands in place of the stubs is run, with the cells of its own around it. There are two namespaces:
checks run in the official one, into which come only the names that the stubs have. What a
submission changes in the package, in torch or in Python's own names is put back before each check.
"""

import ast
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import confined
import nbformat
import torch
from confined import LARGEST, attempt, attempt_each, put_back, sentence
from exercises import HEADING, Step, defined, number_of, tags

SCRIPT = "the file"  # the step that all of a .py file is


@dataclass(frozen=True)
class Job:
    """What a process has to do; skip are steps that ended an earlier one, done those graded."""

    path: Path
    chapters: dict[str, list[Step]]
    results: Path
    seconds: float
    memory: float
    skip: frozenset[str] = frozenset()
    done: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Cell:
    """A code cell of a submission; number is the exercise of its tag, if it has one."""

    place: str
    source: str
    number: str = ""


def work(job: Job) -> None:
    """Grade a submission, and write what is found to the results file, a line each."""
    os.setsid()  # so that what it starts ends with it
    file = os.open(job.results, os.O_WRONLY | os.O_APPEND)
    code = 1
    try:
        sys.path.append(str(job.path.parent))  # what it imports from beside it
        confined.shut_in(job.results.parent / "home", job.seconds, job.memory)
        _grade(job, lambda *message: os.write(file, json.dumps(message).encode() + b"\n"))
        code = 0
    finally:
        os._exit(code)  # threads that loop must not keep the process alive


def _grade(job: Job, tell: Callable) -> None:
    tell("begin", SCRIPT)
    try:
        cells = read(job.path)
    except Exception as error:  # nbformat raises many kinds on what is no notebook
        tell("note", f"cannot be read: {sentence(error)}")
        return tell("end")
    held = confined.snapshot()
    found = [_Chapter(steps, cells, job, tell, held) for steps in job.chapters.values()]
    found = [chapter for chapter in found if chapter.own]
    tell("found", [number for chapter in found for number in chapter.own])
    if not found:
        tell("note", _why_nothing(cells))
    for chapter in found:
        chapter.run_script(cells[0]) if job.path.suffix == ".py" else chapter.run_cells()
    return tell("end")


def _why_nothing(cells: list[Cell]) -> str:
    for cell in cells:
        try:
            ast.parse(cell.source)
        except SyntaxError as error:
            return f"holds no exercise that can be read: {sentence(error)}"
    return "holds no exercise of these chapters"


def read(path: Path) -> list[Cell]:
    """The code cells of a notebook's exercise part, or a whole .py file as one cell."""
    if path.stat().st_size > LARGEST:
        raise ValueError(f"larger than {LARGEST >> 20} MiB")
    text = path.read_bytes().decode("utf-8-sig")
    if path.suffix == ".py":
        return [Cell(SCRIPT, text)]
    cells = nbformat.reads(text, as_version=4).cells
    code = [(at, cell) for at, cell in enumerate(cells, 1) if cell.cell_type == "code"]
    heads = [at for at, cell in enumerate(cells, 1) if cell.source.lstrip().startswith(HEADING)]
    start = min(heads or [at for at, cell in code if number_of(cell)], default=0)
    return [
        Cell(f"cell {at}", cell.source, number_of(cell))
        for at, cell in code
        if at >= start and "check" not in tags(cell)
    ]


class _Chapter:
    """The official steps of one chapter, with the cells that a submission has for it."""

    def __init__(self, steps: list[Step], cells: list[Cell], job: Job, tell: Callable, held: list):
        self.steps, self.job, self.tell, self.held = steps, job, tell, held
        self.names = {step.number: defined(step.source) for step in steps if step.kind == "stub"}
        self.own = _by_exercise(cells, self.names)
        taken = {cell for own in self.own.values() for cell in own}
        official = {step.source.strip() for step in steps}
        self.others = [
            cell
            for cell in cells
            if not cell.number and cell not in taken and cell.source.strip() not in official
        ]
        self.order = {cell: at for at, cell in enumerate(cells)}
        self.official, self.student = map(confined.namespace, ("official", "handed_in"))
        self.unsolved: dict[str, object] = {}  # what the stubs define
        self.trouble: dict[str, str] = {}  # what stopped an exercise's cell

    def run_script(self, script: Cell) -> None:
        """Run a file once, on all that is given, and then the checks."""
        for step in sorted(self.steps, key=lambda step: step.kind == "stub"):
            if step.kind != "check":
                self._both(step)
        failed = [] if SCRIPT in self.job.skip else attempt_each(script.source, self.student)
        for number in self.own:
            near = [says for says, names in failed if names & self.names[number]]
            self.trouble[number] = next(iter([*near, *(says for says, _ in failed)]), "")
        for step in self.steps:
            if step.kind == "check":
                self._check(step)

    def run_cells(self) -> None:
        """Go through the official steps; after each stub come the cells written in its place."""
        for step in self.steps:
            if step.kind == "check":
                self._check(step)
                continue
            self._both(step)
            if step.number in self.own:
                self._write(step)

    def _both(self, step: Step) -> None:
        """Run official code in both namespaces, with the same random numbers."""
        put_back(self.held)
        torch.manual_seed(0)
        wrong = attempt(step.source, self.official, "official")
        if wrong:
            self.tell("note", f"a cell of the course does not run: {wrong}")
        torch.manual_seed(0)
        attempt(step.source, self.student, "given")  # may meet what the submission has changed
        names = self.names.get(step.number, ())
        self.unsolved |= {name: self.student.get(name) for name in names}

    def _write(self, step: Step) -> None:
        """Run the cells of an exercise, and before them those of no exercise that stand above."""
        own = self.own[step.number]
        for cell in [cell for cell in self.others if self.order[cell] < self.order[own[-1]]]:
            self.others.remove(cell)
            self._run(cell.place, cell)
        for cell in own:
            if cell.source.strip() != step.source.strip():
                trouble = self._run(step.number, cell)
                self.trouble[step.number] = trouble or self.trouble.get(step.number, "")

    def _run(self, name: str, cell: Cell) -> str:
        """Run a cell of the submission unless it ended a process before; what stopped it."""
        if name in self.job.skip:
            return ""
        self.tell("begin", name)
        return attempt(cell.source, self.student, cell.place)

    def _check(self, step: Step) -> None:
        """Run the official check on what now has the names of the stubs."""
        put_back(self.held)
        torch.manual_seed(0)
        for names in self.names.values():
            self.official.update({n: self.student[n] for n in names if n in self.student})
        graded = step.number in self.own and step.number not in self.job.skip | self.job.done
        if graded:
            self.tell("begin", step.number)
        state, says = self._verdict(step.source, graded)
        if all(self.student.get(n) is self.unsolved[n] for n in self.names[step.number]):
            state, says = "not attempted", ""
        if state == "not attempted" and self.trouble.get(step.number):
            state, says = "failed", self.trouble[step.number]
        if graded:
            self.tell("verdict", step.number, state, says or state)

    def _verdict(self, source: str, graded: bool) -> tuple[str, str]:
        """What the check says; what it defines may serve later ones, also where nobody asks."""
        *head, last = ast.parse(source).body
        try:
            exec(compile(ast.Module(head, []), "<check>", "exec"), self.official)
            call = compile(ast.Expression(last.value), "<check>", "eval")
            report = eval(call, self.official) if graded else None
        except BaseException as error:  # SystemExit too
            return "failed", sentence(error)
        finally:
            put_back(self.held)
        if report is None or report.status != "failed":
            return report.status if report else "", ""
        return "failed", report.line[4:]


def _by_exercise(cells: list[Cell], names: dict[str, set[str]]) -> dict[str, list[Cell]]:
    """The cells of each exercise: those with its tag, and untagged ones that define its names."""
    own = {
        number: [
            cell
            for cell in cells
            if cell.number == number or (not cell.number and wanted & defined(cell.source))
        ]
        for number, wanted in names.items()
    }
    return {number: found for number, found in own.items() if found}
