"""Every planted fault is rejected and its mistake named; every right implementation passes."""

import importlib
from pathlib import Path

import jaxtyping
import pytest
import torch
from grading import assert_accepted, assert_rejected

from tutorial_transformer import check

FAULTS, RIGHT = {}, {}
for path in sorted((Path(__file__).parent / "faults").glob("*.py")):
    module = importlib.import_module(f"faults.{path.stem}")
    own = f"{path.stem}_layer" if path.stem in ("encoder", "decoder") else path.stem
    for found, codes in ((FAULTS, module.FAULTS), (RIGHT, module.RIGHT)):
        found |= {name if ":" in name else f"{own}: {name}": code for name, code in codes.items()}


def grader_of(name):
    return check.GRADERS[name.split(":")[0]]


@pytest.fixture(autouse=True)
def unchecked():
    """Shapes are checked for right answers in float32 only: the checks take most of the time."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_rejected_and_its_mistake_named(name):
    fault, word = FAULTS[name]
    assert_rejected(grader_of(name)(fault), word)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", RIGHT)
def test_right_code_passes_in_every_usual_form(name, dtype):
    before = torch.get_default_dtype()
    jaxtyping.config.update("jaxtyping_disable", dtype == torch.float64)
    torch.set_default_dtype(dtype)
    try:
        assert_accepted(grader_of(name)(RIGHT[name]))
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("grader", check.GRADERS)
def test_each_grader_has_five_faults_and_five_right_implementations(grader):
    for codes in (FAULTS, RIGHT):
        assert sum(name.startswith(f"{grader}:") for name in codes) >= 5


def test_there_are_far_more_than_eighty_faults():
    assert len(FAULTS) >= 400
