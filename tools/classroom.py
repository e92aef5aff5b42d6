"""Copies of the notebooks for students and for teachers, and marks for what students hand in.

`make` writes student/ (without solutions) and solutions/ (solved and run) from the notebooks as
shipped. `grade FOLDER` writes a CSV, a row a student, with points and a diagnosis an exercise.
Submissions are

    FOLDER/anna/ANY.ipynb, FOLDER/anna/ANY.py    all files of a folder are one student's
    FOLDER/anna.ipynb, FOLDER/anna.py            a file with the student's name
    FOLDER/anna_02_attention.ipynb, or .py       the same, with the name of a notebook behind it

Exercises are found by the tags of their cells, or by the names of their stubs, in a .py file by the
names alone; if several files of a student have one, the best counts. Each file runs in a process of
its own, with limits of time and memory (no memory limit on macOS; Windows needs WSL). This stops
accidents and plain tricks, not an attack: that process has the rights of whoever grades, and the
graders run in it.
"""

import argparse
import shutil
from pathlib import Path

import exercises
import nbformat
from run_notebooks import execute

ROOT = Path(__file__).resolve().parent.parent
HAND_IN = """# How to hand in

Write in the cells that say `raise NotImplementedError`, and keep the names of their functions and
classes: the graders look for these. The line under a check says how far you are: `[x]` passed,
`[!]` what is wrong, `[ ]` not attempted.

Hand in the notebook, named after you (`anna_02_attention.ipynb`), or one file `anna.py` with
functions and classes of the same names (`my_attention`, `answer_02_1`, ...). In a notebook only the
exercise part is run, with cells of your own in it; a file is run from its top. Neither may ask for
input, and each must end within seconds.

The notebooks need the package of the course: put them in place of its `notebooks` folder.
"""


def make(notebooks: Path, out: Path) -> None:
    """Write both sets of copies, and beside them what the notebooks link to and read."""
    for name in ("student", "solutions"):
        shutil.rmtree(out / name, ignore_errors=True)
        (out / name).mkdir(parents=True)
    for path in sorted(notebooks.glob("*.ipynb")):
        print(path.stem, flush=True)
        notebook = nbformat.read(path, as_version=4)
        nbformat.write(exercises.without_solutions(notebook), out / "student" / path.name)
        nbformat.write(_solved(notebook, path), out / "solutions" / path.name)
    (out / "student" / "README.md").write_text(HAND_IN, encoding="utf-8")
    leave = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for beside in ("src", "experiments"):
        if (notebooks.parent / beside).is_dir():
            shutil.copytree(
                notebooks.parent / beside, out / beside, ignore=leave, dirs_exist_ok=True
            )


def _solved(notebook: nbformat.NotebookNode, path: Path) -> nbformat.NotebookNode:
    """The notebook with its solutions, the exercise part run; that part stands alone."""
    solved = exercises.with_solutions(notebook)
    part = exercises.part(solved)
    if exercises.stubs(part):
        execute(nbformat.v4.new_notebook(cells=part), path.parent)
    wrong = [line for line in exercises.verdicts(part) if not line.startswith("[x]")]
    if wrong:
        raise SystemExit(f"{path.name}: a published solution does not pass: {wrong[0]}")
    return solved


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--notebooks", type=Path, default=ROOT / "notebooks")
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make", help="write the copies for students and for teachers")
    making.add_argument("--out", type=Path, default=ROOT / "build" / "classroom")
    grading = commands.add_parser("grade", help="grade a folder of submissions into a CSV")
    grading.add_argument("folder", type=Path)
    grading.add_argument("--out", type=Path, default=Path("grades.csv"))
    grading.add_argument("--seconds", type=float, default=120, help="for a file; a step: a quarter")
    grading.add_argument("--memory", type=float, default=4, help="GiB for a file")
    given = parser.parse_args()
    if given.command == "make":
        make(given.notebooks, given.out)
        return
    if not given.folder.is_dir():
        parser.error(f"there is no folder {given.folder}")
    from gradebook import grade  # which imports torch, and that takes seconds

    grade(given.folder, given.notebooks, given.out, given.seconds, given.memory)


if __name__ == "__main__":
    main()
