"""Teachers get copies without solutions, and marks whatever students hand in."""

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

ROOT = Path(__file__).parent.parent
TOOL = ROOT / "tools" / "classroom.py"
sys.path.append(str(ROOT / "tools"))
import exercises  # noqa: E402

NAME = "77_numbers"
GIVEN = """from tutorial_transformer import check
def double(number):
    return number + number
def right(number):
    return double(number) + 1"""
TASKS = {
    "77.1": ("my_double(number)", "easy", "return 2 * number"),
    "77.2": ("answer_77_2()", "medium", "return 42"),
    "77.3": ("my_right(number)", "hard", "return double(number) + 1"),
}
REREAD = 'reread="chapter 77, 1. Double")'
CHECKS = {
    "77.1": f"check.agreement(my_double, double, [(1,), (2,)], {REREAD}",
    "77.2": f"check.prediction(answer_77_2, lambda: double(21), {REREAD}",
    "77.3": f"inputs = [(1,), (2,)]\ncheck.agreement(my_right, right, inputs, {REREAD}",
}
LOST = "raise NotImplementedError"


def code(number, body):
    return f"def {TASKS[number][0]}:\n    {body}"


def chapter(answers=(), name=lambda number: [f"exercise-{number.replace('.', '-')}"], extra=()):
    """The chapter, with other sources in the place of some stubs, and some more cells on top."""
    cells = [
        new_markdown_cell("# Numbers"),
        new_code_cell("import os\nos._exit(9)  # no lesson is run"),
    ]
    cells += [new_markdown_cell("## Exercises\n\nThree."), new_code_cell(GIVEN)]
    cells += [new_code_cell(source) for source in extra]
    for number, (_, difficulty, answer) in TASKS.items():
        said = f"### {number} A task\n\nwrite it · 5 minutes · {difficulty}\n\nDo it."
        stub = new_code_cell(dict(answers).get(number, code(number, LOST)))
        check = new_code_cell(CHECKS[number], metadata={"tags": ["check"]})
        stub.metadata["tags"] = name(number)
        hint = "<details><summary>Hint 1: a question</summary>\n\nWhy?\n</details>"
        solution = f"<details><summary>Solution {number}</summary>\n\n```python\n"
        solution += f"{code(number, answer)}\n```\n\nSince it is so.\n</details>"
        cells += [new_markdown_cell(said), stub, check, new_markdown_cell(f"{hint}\n\n{solution}")]
        if not answers:
            line = f"[ ] {TASKS[number][0].split('(')[0]}: not attempted yet\n"
            check.outputs = [new_output("stream", text=line)]
    cells += [new_markdown_cell("Previous: nothing")]
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number:02d}"
    return new_notebook(cells=cells)


SOLVED = {number: code(number, answer) for number, (_, _, answer) in TASKS.items()}


def solved(**changes):
    """All exercises solved but those of the given numbers: x1 for 77.1."""
    return SOLVED | {f"77.{name[1]}": source for name, source in changes.items()}


# What a submission holds, its points, and what its diagnoses and notes must say.
ALL, NONE = (1, 2, 3), (0, 0, 0)
PRINTS = "import os\nos.write(1, b'[x]')\nprint('[x]')\n"
CHEAT = "\n".join(
    [
        "import builtins, torch, tutorial_transformer.check._report as r",
        "from tutorial_transformer.check import exercises",
        "r.Report.passed = r.Report.status = property(lambda self: 'passed')",
        "r.Report.__getattribute__ = lambda self, name: 'passed'",
        "exercises.grade = lambda report, *rest, **more: report",
        "builtins.all = lambda many: True",
        "class check: agreement = prediction = staticmethod(lambda *a, **b: r.Report('', '', ''))",
        "print = double = right = lambda *any, **more: 0",
    ]
)
NOTEBOOKS = {
    "perfect": (SOLVED, ALL, "passed"),
    "unsolved": ({}, NONE, "not attempted"),
    "partly": ({"77.1": SOLVED["77.1"]}, (1, 0, 0), "not attempted"),
    "wrong": (solved(x1=code("77.1", "return number")), (0, 2, 3), "reread chapter 77"),
    "syntax": (solved(x1="def my_double(number:"), (0, 2, 3), "line 1: SyntaxError"),
    "raises": (solved(x2="raise ValueError('=1+1')"), (1, 0, 3), "line 1: ValueError: =1"),
    "leaves": (solved(x1="import sys\nsys.exit()"), (0, 2, 3), "line 2: SystemExit"),
    "asks": (solved(x1=code("77.1", "return input()")), (0, 2, 3), "EOFError"),
    "prints": (solved(x3=PRINTS + SOLVED["77.3"]), ALL, "passed"),
    "ends": (solved(x2="import os\nos._exit(3)"), (1, 0, 3), "ended the process, exit code 3"),
    "crashes": (
        solved(x2=code("77.2", "import ctypes\n    return ctypes.string_at(0)")),
        (1, 0, 3),
        "ended the process, SIGSEGV",
    ),
    "sleeps": (solved(x1="import time\ntime.sleep(99)"), (0, 2, 3), "to an end within 8 s"),
    "loops": (solved(x2=code("77.2", "while True: pass")), (1, 0, 3), "an endless loop"),
    "hungry": (solved(x1="much = [1] * (1 << 28)"), (0, 2, 3), "MemoryError"),
    "magic": (solved(x1="%time 1\n" + SOLVED["77.1"]), ALL, "passed"),
    "cheats": (solved(x1=CHEAT + "\n" + code("77.1", "return 0")), (0, 2, 0), "reread chapter 77"),
}  # fmt: skip
SCRIPT = "\n\n".join(SOLVED.values())
SCRIPTS = {
    "script": (SCRIPT, ALL, "passed"),
    "shouts": ("1 / 0\n" + SCRIPT + "\nif __name__ == '__main__':\n    1 / 0", ALL, "passed"),
    "half": (SOLVED["77.2"] + "\nmy_double = 1 / 0", (0, 2, 0), "ZeroDivisionError|not handed in"),
    "stops": (SCRIPT + "\nimport os\nos._exit(0)", NONE, "the file ended the process, exit code 0"),
    "blank": ("", NONE, "blank.py: holds no exercise of these chapters"),
    "prose": ("not python (", NONE, "holds no exercise that can be read: line 1: SyntaxError"),
    "torn": (SCRIPT + "\ndef broken(:", NONE, "SyntaxError"),
}
BYTES = {
    "latin.py": ("# é\n".encode("latin-1"), "cannot be read: UnicodeDecodeError"),
    "zero.ipynb": (b"", "cannot be read: NotJSONError"),
    "cut.ipynb": (b'{"cells": [', "cannot be read: NotJSONError"),
    "list.ipynb": (b"[1]", "cannot be read"),
    "text.pdf": (b"%PDF", "neither a notebook nor a .py file"),
}


def hand_in(folder):
    for name, (answers, _, _) in NOTEBOOKS.items():
        nbformat.write(chapter(answers or {"": ""}), folder / f"{name}_{NAME}.ipynb")
    for name, (text, _, _) in SCRIPTS.items():
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
    for name, (content, _) in BYTES.items():
        (folder / name).write_bytes(content)
    (folder / "linked.py").symlink_to(folder / "script.py")
    for name in ("nobody", "twice", "untagged", "=1+1", ".hidden"):
        (folder / name).mkdir()
    (folder / "twice" / "a.py").write_text(SOLVED["77.1"])
    (folder / "twice" / "b.py").write_text(code("77.1", "return 0") + "\n" + SOLVED["77.3"])
    answers = solved(x1=code("77.1", "return two() * number"))
    double = chapter(answers, name=lambda number: [], extra=["def two():\n    return 2"])
    at = [cell.source for cell in double.cells].index(answers["77.1"])
    double.cells.insert(at + 1, new_code_cell(code("77.1", LOST)))  # a stub that stayed
    nbformat.write(double, folder / "untagged" / "mine.ipynb")
    other = new_notebook(cells=[new_markdown_cell("## Exercises"), new_code_cell("x = 1")])
    nbformat.write(other, folder / "=1+1" / "other.ipynb")


def run(*words, folder=None):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, TOOL, *map(str, words)]
    given = {"env": environment, "cwd": folder, "timeout": 300}
    done = subprocess.run(command, capture_output=True, text=True, **given)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def official(tmp_path_factory):
    folder = tmp_path_factory.mktemp("course") / "notebooks"
    folder.mkdir()
    nbformat.write(chapter(), folder / f"{NAME}.ipynb")
    return folder


@pytest.fixture(scope="module")
def graded(official, tmp_path_factory):
    """The rows of the CSV by student; one run for all the tests."""
    folder, out = tmp_path_factory.mktemp("in"), tmp_path_factory.mktemp("out") / "grades.csv"
    hand_in(folder)
    before = sorted(folder.rglob("*"))
    limits = ["--seconds", 32, "--memory", 1.5]
    call = ["--notebooks", official, "grade", folder.name, "--out", out, *limits]
    told = run(*call, folder=folder.parent)
    assert told.stdout == "", "what submissions print is not shown"
    assert sorted(folder.rglob("*")) == before, "grading leaves nothing among the submissions"
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["student"] for row in rows] == sorted({row["student"] for row in rows}, key=bare)
    return {row["student"]: row for row in rows}


def bare(name):
    return name.removeprefix("'")


def points(row):
    return tuple(int(row[number]) for number in TASKS)


def words(row):
    return " | ".join([row["notes"], *(row[f"{number} diagnosis"] for number in TASKS)])


@pytest.mark.parametrize("student", [*NOTEBOOKS, *SCRIPTS])
def test_each_submission_gets_its_points_and_is_told_why(graded, student):
    _, wanted, says = (NOTEBOOKS | SCRIPTS)[student]
    assert points(graded[student]) == wanted, words(graded[student])
    assert int(graded[student]["total"]) == sum(wanted)
    assert re.search(says, words(graded[student])), words(graded[student])
    assert student in SCRIPTS or graded[student]["notes"] == ""


@pytest.mark.parametrize("name", BYTES)
def test_what_cannot_be_read_is_a_remark_and_no_end(graded, name):
    row = graded[name.split(".")[0]]
    assert points(row) == NONE
    assert f"{name}: {BYTES[name][1]}" in row["notes"]
    assert row["77.1 diagnosis"] == "not handed in"


def test_links_and_empty_folders_are_named_and_hidden_ones_left_out(graded):
    assert graded["linked"]["notes"] == "linked.py: a link, not read"
    assert points(graded["linked"]) == NONE != points(graded["script"])
    assert "an empty folder" in graded["nobody"]["notes"]
    assert not {".hidden", "hidden"} & set(graded)


def test_a_student_with_several_files_gets_the_best_of_each_exercise(graded):
    assert points(graded["twice"]) == (1, 0, 3)
    assert graded["twice"]["77.2 diagnosis"] == "not handed in"


def test_lost_tags_helpers_and_stubs_that_stayed_do_no_harm(graded):
    assert points(graded["untagged"]) == ALL, words(graded["untagged"])


def test_no_cell_of_the_table_is_a_formula(graded):
    assert "'=1+1" in graded
    assert "holds no exercise" in graded["'=1+1"]["notes"]
    assert not [
        cell for row in graded.values() for cell in row.values() if cell[:1] in "=+-@" and cell
    ]


def test_copies_for_students_hold_no_word_of_a_solution():
    found = 0
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        whole = nbformat.read(path, as_version=4)
        student = exercises.without_solutions(whole)
        found += len(exercises.solutions(whole.cells))
        assert len(student.cells) == len(whole.cells)
        for copy, cell in zip(student.cells, whole.cells, strict=True):
            head, mark, _ = cell.source.partition("<details><summary>Solution ")
            assert copy == cell | {"source": head.rstrip("\n") if mark else cell.source}
    assert found > 50


def test_make_writes_both_copies_from_the_same_notebook(official, tmp_path):
    (official.parent / "src").mkdir()
    (official.parent / "src" / "numbers.py").write_text("")
    run("--notebooks", official, "make", "--out", tmp_path)
    assert (tmp_path / "src" / "numbers.py").exists(), "notebooks link to ../src"
    student, solution = (
        (tmp_path / name / f"{NAME}.ipynb").read_text(encoding="utf-8")
        for name in ("student", "solutions")
    )
    assert "Hint 1" in student and "not attempted" in student
    assert not re.search(r"Solution|2 \* number|Since it is so", student)
    shipped = nbformat.writes(
        exercises.without_solutions(nbformat.read(official / f"{NAME}.ipynb", 4))
    )
    assert student == shipped + "\n"
    lines = exercises.verdicts(nbformat.reads(solution, as_version=4).cells)
    assert len(lines) == 3 and all(line.startswith("[x]") for line in lines)
    assert "Hand in" in (tmp_path / "student" / "README.md").read_text(encoding="utf-8")


def test_a_solution_that_fails_stops_the_making(official, tmp_path):
    folder = tmp_path / "notebooks"
    folder.mkdir()
    text = (official / f"{NAME}.ipynb").read_text(encoding="utf-8")
    (folder / f"{NAME}.ipynb").write_text(text.replace("return 42", "return 41"), encoding="utf-8")
    with pytest.raises(AssertionError, match=r"published solution does not pass.*answer_77_2"):
        run("--notebooks", folder, "make", "--out", tmp_path / "out")


def test_a_folder_that_is_not_there_is_named():
    with pytest.raises(AssertionError, match="there is no folder nowhere"):
        run("grade", "nowhere")
