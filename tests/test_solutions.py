"""Every exercise has a published solution: with it its check passes, without it none does."""

import re
import sys
from collections import Counter
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "tools"))
import exercises  # noqa: E402
import run_notebooks  # noqa: E402

BOOKS = {path.stem: path for path in sorted((ROOT / "notebooks").glob("[01][0-9]_*.ipynb"))}
CHAPTERS = [stem for stem in BOOKS if "01" <= stem[:2] <= "11"]
every_chapter = pytest.mark.parametrize("stem", CHAPTERS)


def part(stem):
    return exercises.part(nbformat.read(BOOKS[stem], 4))


def test_there_are_eleven_chapters_with_exercises():
    assert [stem[:2] for stem in CHAPTERS] == [f"{number:02d}" for number in range(1, 12)]


@every_chapter
def test_each_exercise_has_a_stub_a_check_hints_and_a_solution(stem):
    cells = part(stem)
    numbers = [f"{stem[:2]}.{count}" for count in range(1, len(exercises.stubs(cells)) + 1)]
    assert 4 <= len(numbers) <= 10
    assert list(exercises.stubs(cells)) == numbers
    assert list(exercises.solutions(cells)) == numbers
    assert [step.number for step in exercises.steps(cells) if step.kind == "check"] == numbers
    hints = re.findall(r"<summary>(Hint \d)", "\n".join(cell.source for cell in cells))
    assert Counter(hints) == {"Hint 1": len(numbers), "Hint 2": len(numbers)}


@every_chapter
def test_each_exercise_says_its_kind_minutes_and_difficulty(stem):
    said = exercises.exercises(part(stem))
    assert [one.number for one in said] == list(exercises.stubs(part(stem)))
    assert {one.kind for one in said} == {"write it", "predict it", "break it", "find the bug"}
    assert all(2 <= one.minutes <= 30 for one in said)
    assert len({one.difficulty for one in said}) > 1


@every_chapter
def test_shipped_notebooks_are_unsolved(stem):
    cells = part(stem)
    shipped = exercises.verdicts(cells)
    assert len(shipped) == len(exercises.stubs(cells))
    assert all(re.fullmatch(r"\[ \] \w+: not attempted yet", line) for line in shipped), shipped
    for number, cell in exercises.stubs(cells).items():
        assert "raise NotImplementedError" in cell.source, number
        names = exercises.defined(cell.source)
        assert names == exercises.defined(exercises.solutions(cells)[number]) & names


def test_no_two_stubs_have_a_name_in_common():
    cells = [cell for stem in CHAPTERS for cell in exercises.stubs(part(stem)).values()]
    names = Counter(name for cell in cells for name in exercises.defined(cell.source))
    assert len(names) >= len(cells)
    assert {name for name, count in names.items() if count > 1} == set()


@every_chapter
def test_published_solutions_pass_in_a_part_that_stands_alone(stem):
    cells = exercises.part(exercises.with_solutions(nbformat.read(BOOKS[stem], 4)))
    run_notebooks.execute(nbformat.v4.new_notebook(cells=cells), ROOT / "notebooks")
    solved = exercises.verdicts(cells)
    assert len(solved) == len(exercises.stubs(cells))
    assert all(line.startswith("[x]") for line in solved), solved
