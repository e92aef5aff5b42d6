"""Every experiment runs in its quick size and writes a table like the one beside it."""

import csv
import runpy
import sys
from pathlib import Path

import pytest
import torch

FOLDER = Path(__file__).parent.parent / "experiments"
SCRIPTS = sorted(FOLDER.glob("*.py"))


def table(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def tables_of(script):
    """The tables beside a script: some write a second one, whose name is longer."""
    return {path.name for path in FOLDER.glob(f"{script.stem}*.csv")}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_quick_run_writes_the_columns_of_the_saved_table(script, tmp_path, monkeypatch):
    out = tmp_path / f"{script.stem}.csv"
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.setattr(sys, "argv", [str(script), "--quick", "--out", str(out)])
    dtype = torch.get_default_dtype()
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        torch.set_default_dtype(dtype)
        torch.set_num_threads(1)
    tables = {path.name for path in tmp_path.glob("*.csv")}
    assert tables == tables_of(script) and out.name in tables
    for name in tables:
        quick, saved = table(tmp_path / name), table(FOLDER / name)
        assert quick[0] == saved[0]
        assert 2 <= len(quick) <= len(saved)
        assert all(len(row) == len(saved[0]) for row in quick + saved)


def test_every_saved_table_has_its_script():
    assert SCRIPTS
    assert {path.name for path in FOLDER.glob("*.csv")} == set.union(*map(tables_of, SCRIPTS))
