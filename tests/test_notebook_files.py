"""The notebooks carry the outputs that nbval compares; without them nbval passes anything."""

import base64
import io
import re
from pathlib import Path

import matplotlib.image
import nbformat
import numpy as np
import pytest

FOLDER = Path(__file__).parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
LAX_TAGS = {"nbval-skip", "nbval-ignore-output"}
LAX_COMMENTS = ("NBVAL_SKIP", "NBVAL_IGNORE_OUTPUT", "PYTEST_VALIDATE_IGNORE_OUTPUT")
every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(path):
    return [cell for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]


def prose(path):
    cells = nbformat.read(path, 4).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def pictures(path):
    for cell in code_cells(path):
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                yield cell.id, output["data"]["image/png"]


def test_there_are_notebooks():
    assert {"01_masks", "02_attention", "09_transformer", "10_training"} <= {
        path.stem for path in NOTEBOOKS
    }


@every_notebook
def test_every_cell_was_run_in_order_and_its_output_is_checked(path):
    nbformat.validate(nbformat.read(path, 4))
    cells = code_cells(path)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        assert not LAX_TAGS & set(cell.metadata.get("tags", [])), cell.id
        assert not any(comment in cell.source for comment in LAX_COMMENTS), cell.id
        assert not cell.source.rstrip().endswith(";"), f"{cell.id}: nbval ignores the ';'"
    kinds = {output.output_type for cell in cells for output in cell.outputs}
    assert kinds & {"stream", "execute_result"}, "nothing that nbval compares"


@every_notebook
def test_outputs_hold_no_errors_warnings_or_traces_of_a_machine(path):
    assert "widgets" not in nbformat.read(path, 4).metadata
    for cell in code_cells(path):
        assert "execution" not in cell.metadata, f"{cell.id}: timing"
        for output in cell.outputs:
            if output.output_type == "error":
                assert "raises-exception" in cell.metadata.get("tags", []), cell.id
                assert len(output.traceback) == 1, f"{cell.id}: frames name files of a machine"
            if output.output_type == "stream":
                assert output.name == "stdout", f"{cell.id}: {output.text[:80]}"
            assert "image/svg+xml" not in output.get("data", {}), cell.id
    traces = r"0x[0-9a-f]{6,}|/home/|/root/|/tmp/|site-packages"
    text = re.sub(r'"image/png": "[^"]*"', "", path.read_text(encoding="utf-8"))
    assert not re.search(traces, text)


@every_notebook
def test_pictures_are_small_and_not_blank(path):
    found = list(pictures(path))
    assert found
    for cell_id, data in found:
        assert len(data) < 150_000, f"{cell_id}: {len(data) // 1024} kB"
        image = matplotlib.image.imread(io.BytesIO(base64.b64decode(data)))
        colours = (image[..., :3] * 255).round() @ (1, 256, 256**2)
        assert len(np.unique(colours)) > 10, f"{cell_id}: blank"


@every_notebook
def test_cells_are_short_and_chapters_too(path):
    cells = nbformat.read(path, 4).cells
    starts = [cell.source.splitlines()[:1] == ["## Exercises"] for cell in cells]
    lesson = cells[: starts.index(True)]  # exercises are done at home
    assert len(lesson) <= (100 if path.stem == "10_training" else 70)  # two lecture hours, not one
    lines = [sum(map(bool, cell.source.split("\n"))) for cell in code_cells(path)]
    assert max(lines) <= 15
    assert np.median(lines) <= 5


@every_notebook
def test_every_chapter_has_the_parts_a_reader_expects(path):
    text = prose(path)
    for part in ("You will be able to", "You need", "here this breaks", "Recap", "Exercises"):
        assert part in text, part
    assert "<details>" in text
    assert text.count("**Predict") >= 6
    assert sum(1 for _ in pictures(path)) >= 2


@every_notebook
def test_links_lead_somewhere(path):
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", prose(path)):
        if not link.startswith("http"):
            assert (FOLDER / link).exists(), link
