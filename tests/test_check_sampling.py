"""The graders of chapter 11 for filters and draws: wrong ones are named, right ones pass."""

import jaxtyping
import pytest
import torch
from faults.decoding import FAULTS, RIGHT
from grading import (
    assert_accepted,
    assert_harmless,
    assert_rejected,
    assert_told,
    changing,
    loud,
)

from tutorial_transformer import decoding as ours
from tutorial_transformer.check._filters import WRONG_TOP_K, WRONG_TOP_P
from tutorial_transformer.check.filters import top_k, top_p
from tutorial_transformer.check.sampling import sample

GRADERS = {"top_k": top_k, "top_p": top_p, "sample": sample}
CODE = {
    "top_k": RIGHT["top_k: by loop"],
    "top_p": RIGHT["top_p: by loop"],
    "sample": ours.sample,
}


@pytest.fixture(autouse=True)
def unchecked():
    """Shapes are checked for right answers in float32 only: the checks take most of the time."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize("name", GRADERS)
def test_stubs_errors_and_nonsense_are_told(name):
    assert_told(GRADERS[name])


@pytest.mark.parametrize("name", GRADERS)
def test_the_grader_leaves_no_trace(name, capsys):
    assert_harmless(GRADERS[name], loud(CODE[name]), capsys)


@pytest.mark.parametrize("name", GRADERS)
def test_inputs_that_are_changed_are_told_and_put_back(name):
    assert_rejected(GRADERS[name](changing(CODE[name])), "in place")
    assert_accepted(GRADERS[name](CODE[name]))


def test_every_mistake_is_named_as_itself():
    for grader, table in (("top_k", WRONG_TOP_K), ("top_p", WRONG_TOP_P)):
        words = [FAULTS[name][1] for name in FAULTS if name.startswith(grader)]
        for says, wrong in table.items():  # those that no fault above stands for
            if not any(word in says for word in words):
                assert GRADERS[grader](wrong).diagnosis == says


def test_a_draw_is_judged_by_its_shares_whatever_the_random_state():
    for seed in range(3):
        torch.manual_seed(seed)
        assert_accepted(sample(ours.sample))
