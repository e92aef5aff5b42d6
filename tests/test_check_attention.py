"""The graders of chapter 02: wrong attentions are named, right ones pass in all their forms."""

import os

import numpy as np
import pytest
import torch
import torch.nn.functional as F
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

from tutorial_transformer import attention as ours
from tutorial_transformer.check._attention_mistakes import ATTENTION, RETURNED
from tutorial_transformer.check._weight_mistakes import WEIGHTS
from tutorial_transformer.check.attention import attention, masked_softmax

GRADERS = {"attention": attention, "masked_softmax": masked_softmax}
CODE = {"attention": ours.scaled_dot_product_attention, "masked_softmax": ours.masked_softmax}


@pytest.mark.parametrize("name", GRADERS)
def test_stubs_errors_and_nonsense_are_told(name):
    assert_told(GRADERS[name])


def test_an_endless_loop_is_stopped():
    assert_stopped(attention)


@pytest.mark.parametrize("name", GRADERS)
def test_the_grader_leaves_no_trace(name, capsys):
    assert_harmless(GRADERS[name], loud(CODE[name]), capsys)


@pytest.mark.parametrize("name", GRADERS)
def test_inputs_that_are_changed_are_told_and_put_back(name):
    assert_rejected(GRADERS[name](changing(CODE[name])), "in place")
    assert_accepted(GRADERS[name](CODE[name]))


def test_a_mask_that_is_changed_is_put_back():
    def inverts(query, key, value, mask=None):
        output = F.scaled_dot_product_attention(query, key, value, mask)
        if mask is not None:
            mask.logical_not_()
        return output

    assert_rejected(attention(inverts), "in place")
    assert_accepted(attention(F.scaled_dot_product_attention))


def test_the_weights_are_judged_only_if_they_come():
    alone = attention(F.scaled_dot_product_attention)
    both = attention(ours.scaled_dot_product_attention)
    more = {item.name for item in both.properties} - {item.name for item in alone.properties}
    assert more == {"the returned weights are those that average the values"}


def test_code_without_gradients_is_not_judged_by_them():
    def numbers(query, key, value, mask=None):
        output = F.scaled_dot_product_attention(query, key, value, mask)
        return torch.tensor(output.tolist(), dtype=query.dtype)

    assert_accepted(attention(numbers))


def test_a_class_of_modules_is_taken_and_its_dropout_is_off():
    class Attention(torch.nn.Module):
        def __init__(self, dropout=0.5):
            super().__init__()
            self.dropout = torch.nn.Dropout(dropout)

        def forward(self, query, key, value, mask=None):
            return ours.scaled_dot_product_attention(query, key, value, mask, self.dropout)

    made = Attention().train()
    assert_accepted(attention(Attention))
    assert_accepted(attention(made))
    assert made.training


def test_code_that_fixes_its_dtype_passes_but_a_fill_that_overflows_does_not():
    def fixed(scores, mask):
        one = torch.eye(scores.shape[-1], dtype=torch.float32)
        return ours.masked_softmax(scores @ one, mask)

    assert_accepted(masked_softmax(fixed))
    report = masked_softmax(lambda s, m: ours.masked_softmax(s.masked_fill(~m, -1e9), m))
    assert_rejected(report, "65504")


class BrokenError(Exception):
    """Not even its text can be had."""

    def __str__(self):
        raise ValueError

    __repr__ = __str__


async def later(*_):
    return None


def one_by_one(*inputs):
    yield from inputs


def throws_broken(*_):
    raise BrokenError


def leaves(*_):
    raise SystemExit


ODD = {
    "coroutine": (later, "async"),
    "generator": (one_by_one, "yields"),
    "broken error": (throws_broken, "BrokenError"),
    "broken object": (lambda *_: BrokenError(), "Broken"),
    "exit": (leaves, "SystemExit"),
    "meta": (lambda *_: torch.zeros(2, device="meta"), "meta"),
    "nested": (lambda *_: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested"),
    "sparse": (lambda *_: torch.eye(3).to_sparse(), "shape"),
    "complex": (lambda *_: torch.zeros(1, 2, 3, dtype=torch.complex64), "complex"),
    "huge": (lambda *_: torch.zeros(1).expand(10**4, 10**4), "10000"),
    "array of words": (lambda *_: np.array(["a", None]), "array of object"),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("grader", GRADERS)
def test_answers_that_nobody_can_read_are_told(grader, name):
    code, word = ODD[name]
    assert_rejected(GRADERS[grader](code), word)


def test_the_folder_stays_where_it_was(tmp_path):
    folder = os.getcwd()

    def moves(scores, mask):
        os.chdir(tmp_path)
        return ours.masked_softmax(scores, mask)

    assert_accepted(masked_softmax(moves))
    assert os.getcwd() == folder


@pytest.mark.parametrize(
    "grader, table",
    [(masked_softmax, WEIGHTS), (attention, ATTENTION)],
    ids=["masked_softmax", "attention"],
)
def test_every_mistake_is_named_as_itself(grader, table):
    for says, mistake in table.items():
        report = grader(mistake.rule)
        assert report.diagnosis == says and report.reread == mistake.reread
        assert mistake.reread in headings()


def test_every_wrong_weight_beside_a_right_output_is_named():
    for says, mistake in RETURNED.items():

        def answers(*inputs, rule=mistake.rule):
            return ours.scaled_dot_product_attention(*inputs)[0], rule(*inputs)

        report = attention(answers)
        assert report.diagnosis == says and report.reread == mistake.reread
