"""The graders of chapter 01: wrong masks are named, right ones pass in all their forms."""

import pytest
import torch
from grading import (
    assert_accepted,
    assert_harmless,
    assert_rejected,
    assert_stopped,
    assert_told,
    changing,
    headings,
    loud,
)

from tutorial_transformer import masks
from tutorial_transformer.check import _mask_mistakes as mistakes
from tutorial_transformer.check.masks import causal_mask, padding_mask, target_mask

GRADERS = {"causal_mask": causal_mask, "padding_mask": padding_mask, "target_mask": target_mask}


@pytest.mark.parametrize("name", GRADERS)
def test_stubs_errors_and_nonsense_are_told(name):
    assert_told(GRADERS[name])


def test_an_endless_loop_is_stopped():
    assert_stopped(padding_mask)


@pytest.mark.parametrize("name", GRADERS)
def test_the_grader_leaves_no_trace(name, capsys):
    assert_harmless(GRADERS[name], loud(getattr(masks, name)), capsys)


@pytest.mark.parametrize("name", ["padding_mask", "target_mask"])
def test_ids_that_are_changed_are_told_and_put_back(name):
    assert_rejected(GRADERS[name](changing(getattr(masks, name))), "in place")
    assert_accepted(GRADERS[name](getattr(masks, name)))


@pytest.mark.parametrize("low", [-1e9, -10_000.0, float("-inf")])
def test_numbers_to_add_are_told_from_masks(low):
    def additive(ids, pad_id=0):
        return torch.zeros(ids.shape).masked_fill(ids == pad_id, low)[:, None]

    assert_rejected(padding_mask(additive), "to add to the scores")


def test_other_numbers_are_no_mask():
    assert_rejected(causal_mask(lambda q, k=None: torch.arange(q * (k or q))), "other numbers")


@pytest.mark.parametrize(
    ("name", "form", "word"),
    [
        ("padding_mask", lambda mask: mask[:, 0], "two axes work after [:, None]"),
        ("padding_mask", lambda mask: mask[:, None], "four axes"),
        ("padding_mask", lambda mask: mask * 1, "numbers 0 and 1"),
        ("causal_mask", lambda mask: mask[0], "two axes work after [None]"),
        ("causal_mask", lambda mask: mask.float(), "a bool mask is safer"),
        ("target_mask", lambda mask: mask[:, None], "the one of the heads"),
    ],
)
def test_what_only_works_after_a_change_passes_with_a_remark(name, form, word):
    code = getattr(masks, name)
    report, plain = (GRADERS[name](one) for one in (lambda *sizes: form(code(*sizes)), code))
    assert_accepted(report)
    (remark,) = report.properties[len(plain.properties) :]
    assert remark.name.startswith("remark: ") and word in remark.name


def test_a_mask_without_k_len_is_told_what_it_lacks():
    report = causal_mask(lambda n: torch.ones(n, n).tril())
    assert_rejected(report, "TypeError")
    assert [item.passed for item in report.properties] == [True, True, False, False]


def test_every_mistake_differs_from_the_right_mask_and_names_a_section():
    for name in GRADERS:
        table = {"causal": mistakes.CAUSAL, "padding": mistakes.PADDED, "target": mistakes.TARGET}
        for says, mistake in table[name.split("_")[0]].items():
            report = GRADERS[name](mistake.rule)
            assert report.diagnosis == says and mistake.reread in headings()
