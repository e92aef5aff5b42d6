"""Read the exercises of a notebook: their stubs, checks and published solutions, in one place."""

import ast
import copy
import re
from dataclasses import dataclass

from nbformat import NotebookNode

HEADING = "## Exercises"
POINTS = {"easy": 1, "medium": 2, "hard": 3}
TITLE = re.compile(r"### (\d\d\.\d+) .+\n\n(.+) · (\d+) minutes · (easy|medium|hard)\n")
SOLUTION = re.compile(
    r"\n*<details><summary>Solution (\d\d\.\d+)</summary>\s*```python\n(.*?)```.*?</details>", re.S
)
TAG = re.compile(r"exercise-(\d\d)-(\d+)")


@dataclass(frozen=True)
class Exercise:
    """What the heading of an exercise says."""

    number: str
    kind: str
    minutes: int
    difficulty: str


@dataclass(frozen=True)
class Step:
    """A code cell of the exercise part: kind is given, stub or check; a given one has no number."""

    kind: str
    number: str
    source: str


def tags(cell: NotebookNode) -> list[str]:
    """The tags of a cell, none if it has none."""
    found = cell.get("metadata", {}).get("tags")
    return found if isinstance(found, list) else []


def part(notebook: NotebookNode) -> list[NotebookNode]:
    """The cells from the one that starts the exercises; none if there is no such cell."""
    starts = [cell.source.splitlines()[:1] == [HEADING] for cell in notebook.cells]
    return notebook.cells[starts.index(True) :] if any(starts) else []


def exercises(cells: list[NotebookNode]) -> list[Exercise]:
    """What the headings say, in order."""
    found = [TITLE.match(cell.source) for cell in cells if cell.cell_type == "markdown"]
    return [Exercise(m[1], m[2], int(m[3]), m[4]) for m in found if m]


def number_of(cell: NotebookNode) -> str:
    """The exercise of which a cell is the stub, such as 02.3, by its tag; or nothing."""
    matches = [TAG.fullmatch(str(tag)) for tag in tags(cell)]
    return next((f"{match[1]}.{match[2]}" for match in matches if match), "")


def stubs(cells: list[NotebookNode]) -> dict[str, NotebookNode]:
    """The stub cells by number; two of one number are an error of the author's."""
    found = [(number_of(cell), cell) for cell in cells if number_of(cell)]
    if len(dict(found)) < len(found):
        raise ValueError(f"a number twice among {[number for number, _ in found]}")
    return dict(found)


def solutions(cells: list[NotebookNode]) -> dict[str, str]:
    """The code of the published solutions by number."""
    prose = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    return {match[1]: match[2].rstrip("\n") for match in SOLUTION.finditer(prose)}


def verdicts(cells: list[NotebookNode]) -> list[str]:
    """What the check cells have printed: a line each."""
    outputs = [output for cell in cells if "check" in tags(cell) for output in cell.outputs]
    return [line for output in outputs for line in output.get("text", "").splitlines()]


def steps(cells: list[NotebookNode]) -> list[Step]:
    """The code cells in order; a check belongs to the stub before it."""
    found, number = [], ""
    for cell in cells:
        if cell.cell_type != "code":
            continue
        number = number_of(cell) or number
        kind = "stub" if number_of(cell) else "check" if "check" in tags(cell) else "given"
        found.append(Step(kind, "" if kind == "given" else number, cell.source))
    return found


def without_solutions(notebook: NotebookNode) -> NotebookNode:
    """A copy without the published solutions; hints and everything else stay."""
    notebook = copy.deepcopy(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = SOLUTION.sub("", cell.source)
    notebook.cells = [cell for cell in notebook.cells if cell.source or cell.cell_type == "code"]
    return notebook


def with_solutions(notebook: NotebookNode) -> NotebookNode:
    """A copy with each stub replaced by its published solution, not yet run."""
    notebook = copy.deepcopy(notebook)
    answers = solutions(part(notebook))
    for number, cell in stubs(part(notebook)).items():
        cell.source = answers[number]
    return notebook


def defined(source: str) -> set[str]:
    """The names that code defines at its top level, as far as can be told if it does not parse."""
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set(re.findall(r"^(?:def |class )?(\w+)(?=\s*[(:=])", source, re.M))
    names = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            inner = [name for target in targets for name in ast.walk(target)]
            names |= {name.id for name in inner if isinstance(name, ast.Name)}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return names
