"""The table of points: who handed in what, and what it is worth."""

import csv
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import exercises
import nbformat
from grading import STATES, Outcome, grade_file
from submission import Job


def grade(folder: Path, notebooks: Path, out: Path, seconds: float, memory: float) -> None:
    """Grade all that is in a folder into a CSV; a row is there as soon as it is known."""
    job, points = Job(Path(), {}, Path(), seconds, memory), {}
    for path in sorted(notebooks.glob("*.ipynb")):
        part = exercises.part(nbformat.read(path, as_version=4))
        job.chapters[path.stem] = exercises.steps(part)
        points |= {
            one.number: exercises.POINTS[one.difficulty] for one in exercises.exercises(part)
        }
    handed_in: dict[str, list] = {}
    for student, path, refusal in submissions(folder, list(job.chapters)):
        handed_in.setdefault(student, []).append((path, refusal))
    out.parent.mkdir(parents=True, exist_ok=True)
    names = [name for number in points for name in (number, f"{number} diagnosis")]
    _write(out, "w", ["student", "total", "notes", *names])
    for student, files in sorted(handed_in.items()):
        print(student, file=sys.stderr, flush=True)
        outcomes = [
            (path.name, Outcome(notes=[why]) if why else grade_file(replace(job, path=path)))
            for path, why in files
        ]
        _write(out, "a", [student, *_row(outcomes, points)])


def submissions(folder: Path, stems: list[str]) -> Iterator[tuple[str, Path, str]]:
    """Student, path, and why it is not graded if it is not; in the order of the names."""
    for path in _visible(folder.absolute()):  # the processes work elsewhere
        if path.is_dir() and not path.is_symlink():
            try:
                inner = [(path.name, one, _refusal(one)) for one in _visible(path)]
            except OSError as error:
                inner = [(path.name, path, f"cannot be read: {error.strerror}")]
            yield from inner or [(path.name, path, "an empty folder")]
            continue
        student = path.stem
        for stem in stems:
            student = student.removesuffix(stem).rstrip("_- ") or student
        yield student, path, _refusal(path)


def _visible(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if not path.name.startswith((".", "__"))]


def _refusal(path: Path) -> str:
    if path.is_symlink():
        return "a link, not read"
    if path.is_dir():
        return "a folder in a student's folder, not read"
    is_ours = path.is_file() and path.suffix in (".ipynb", ".py")
    return "" if is_ours else "neither a notebook nor a .py file"


def _row(outcomes: list[tuple[str, Outcome]], points: dict[str, int]) -> list[object]:
    """Total, notes, and points and diagnosis of every exercise, the best of all files."""
    cells, total = [], 0
    for number, worth in points.items():
        found = [one.verdicts[number] for _, one in outcomes if number in one.verdicts]
        missing = (STATES[-1], STATES[-1])
        state, says = min([*found, missing], key=lambda verdict: STATES.index(verdict[0]))
        earned = worth if state == "passed" else 0
        total += earned
        cells += [earned, says]
    notes = [f"{name}: {note}" for name, outcome in outcomes for note in outcome.notes]
    return [total, "; ".join(notes), *cells]


def _write(path: Path, mode: str, row: list[object]) -> None:
    """Add a row; names that are not Unicode are written with escapes."""
    with path.open(mode, encoding="utf-8", errors="backslashreplace", newline="") as file:
        csv.writer(file).writerow([_harmless(cell) for cell in row])


def _harmless(cell: object) -> object:
    """One line, and no formula: a spreadsheet computes what starts with one of these signs."""
    if not isinstance(cell, str):
        return cell
    line = "".join(c if c.isprintable() or "\ud800" <= c <= "\udfff" else " " for c in cell).strip()
    return f"'{line}" if line.startswith(("=", "+", "-", "@")) else line
