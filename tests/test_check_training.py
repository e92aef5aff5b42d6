"""The graders of chapter 10: wrong losses, rates and gradients are named, right ones pass."""

import jaxtyping
import pytest
import torch
from faults.training import FAULTS, RIGHT
from grading import (
    assert_accepted,
    assert_harmless,
    assert_rejected,
    assert_stopped,
    assert_told,
    changing,
    headings,
    loud,
    nothing,
    raising,
    stub,
)

from tutorial_transformer import training as ours
from tutorial_transformer.check._losses import WRONG_LOSSES
from tutorial_transformer.check._rates import WRONG_RATES
from tutorial_transformer.check.accumulation import accumulate_gradients
from tutorial_transformer.check.schedule import warmup_schedule
from tutorial_transformer.check.smoothing import smoothed_targets
from tutorial_transformer.check.training import sequence_loss

GRADERS = {
    "sequence_loss": sequence_loss,
    "warmup_schedule": warmup_schedule,
    "smoothed_targets": smoothed_targets,
    "accumulate_gradients": accumulate_gradients,
}
AT_HAND = {
    name: RIGHT[f"{name}: {kind}"]
    for name, kind in (
        ("sequence_loss", "ours"),
        ("warmup_schedule", "ours"),
        ("smoothed_targets", "by mixing"),
        ("accumulate_gradients", "exact parts"),
    )
}


@pytest.fixture(autouse=True)
def unchecked():
    """Shapes are checked for right answers in float32 only: the checks take most of the time."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize("name", ["sequence_loss", "warmup_schedule", "smoothed_targets"])
def test_stubs_errors_and_nonsense_are_told(name):
    assert_told(GRADERS[name])


def test_a_gradient_that_never_comes_is_told():
    assert accumulate_gradients(stub).status == "not attempted"
    assert_rejected(accumulate_gradients(raising), "KeyError")
    report = accumulate_gradients(nothing)  # which is what it shall return, but not all
    assert_rejected(report, "no gradient")
    assert report.reread in headings()


def test_an_endless_loop_is_stopped():
    assert_stopped(sequence_loss)


@pytest.mark.parametrize("name", GRADERS)
def test_the_grader_leaves_no_trace(name, capsys):
    def code(*inputs):
        with torch.enable_grad():  # what loud code takes away
            return AT_HAND[name](*inputs)

    assert_harmless(GRADERS[name], loud(code), capsys)


def test_a_caller_without_gradients_gets_the_same_answer():
    with torch.no_grad():
        for name, code in AT_HAND.items():
            assert_accepted(GRADERS[name](code))
        assert not torch.is_grad_enabled()


def test_inputs_that_are_changed_are_told_and_put_back():
    def erases_pads(logits, tgt_out, pad_id=0, label_smoothing=0.0):
        loss = ours.sequence_loss(logits, tgt_out, pad_id, label_smoothing)
        tgt_out[tgt_out == pad_id] = -100
        return loss

    def changes_logits(logits, tgt_out, pad_id=0, label_smoothing=0.0):
        loss = ours.sequence_loss(logits.clone(), tgt_out, pad_id, label_smoothing)
        logits.data.sub_(1)
        return loss

    assert_rejected(sequence_loss(erases_pads), "inplace")  # torch's word: backward() fails first
    assert_rejected(sequence_loss(changes_logits), "in place")
    assert_rejected(smoothed_targets(changing(AT_HAND["smoothed_targets"])), "in place")
    for name, code in AT_HAND.items():
        assert_accepted(GRADERS[name](code))


def test_losses_that_are_no_single_number_are_told():
    def per_token(logits, tgt_out, pad_id=0, label_smoothing=0.0):
        return logits.logsumexp(-1) - logits.gather(-1, tgt_out[..., None])[..., 0]

    def with_pair(*args):
        return ours.sequence_loss(*args), {"tokens": 3}

    assert_rejected(
        sequence_loss(lambda *args: per_token(*args)[..., None].expand(-1, -1, 2)), "one number"
    )
    assert_accepted(sequence_loss(with_pair))


def test_every_mistake_is_named_as_itself():
    for grader, table in (("sequence_loss", WRONG_LOSSES), ("warmup_schedule", WRONG_RATES)):
        words = [FAULTS[name][1] for name in FAULTS if name.startswith(grader)]
        for says, wrong in table.items():  # those that no fault above stands for
            if not any(word in says for word in words):
                assert GRADERS[grader](wrong).diagnosis == says


def test_a_rate_that_is_wrong_far_below_one_is_still_wrong():
    def nearly(step, d_model, warmup_steps=4000):
        rate = ours.warmup_schedule(step, d_model, warmup_steps)
        return rate if rate > 1e-5 else 0.0  # only the paper's first steps, 1.7e-07, are lost

    report = warmup_schedule(nearly)
    assert_rejected(report, "small rates are lost")
    assert [item.name for item in report.properties if not item.passed] == ["the paper's rates"]
