"""What all graders share: names, reports, exercises that are no component, and files."""

import contextlib
import io
import time

import pytest
import torch
from grading import assert_accepted, assert_rejected, looping, raising, stub

from tutorial_transformer import check
from tutorial_transformer.__main__ import main
from tutorial_transformer.attention import scaled_dot_product_attention
from tutorial_transformer.check._trial import UnusableError, call
from tutorial_transformer.check.names import recognised
from tutorial_transformer.masks import causal_mask

REREAD = "chapter 01, 3. Hide the future"


def upside_down(q_len, k_len=None):
    return causal_mask(q_len, k_len).mT


def top_left(q_len, k_len=None):
    return torch.ones(1, q_len, k_len or q_len).tril().bool()


def file_of(folder, text, name="mine.py"):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


RIGHT = """
import torch

def my_causal_mask(q_len, k_len=None):
    k_len = k_len or q_len
    return torch.ones(1, q_len, k_len, dtype=torch.bool).tril(k_len - q_len)
"""
WRONG = """
import torch

def padding_mask(ids, pad_id=0):
    return (ids == pad_id)[:, None]
"""


def test_every_grader_and_helper_is_exported_under_its_name():
    for name, grader in check.GRADERS.items():
        assert getattr(check, name) is grader and name in check.__all__
    assert set(check.ALIASES.values()) <= check.GRADERS.keys()
    assert all(hasattr(check, name) for name in check.__all__)


@pytest.mark.parametrize(
    ("name", "grader"),
    [
        ("causal_mask", "causal_mask"),
        ("my_causal_mask", "causal_mask"),
        ("CausalMask", "causal_mask"),
        ("causal_mask_2", "causal_mask"),
        ("MultiHeadAttention", "multi_head"),
        ("MyMultiHead", "multi_head"),
        ("scaled_dot_product_attention", "attention"),
        ("EncoderLayer", "encoder_layer"),
        ("KVCache", "kv_cache"),
        ("PositionWiseFeedForward", "feed_forward"),
        ("SinusoidalPositions", "positional_encoding"),
        ("my_helper", None),
        ("mask", None),
        ("_", None),
    ],
)
def test_names_are_recognised_in_any_style(name, grader):
    assert recognised(name) == grader


@pytest.mark.parametrize("name", check.GRADERS)
def test_what_is_no_code_is_told_as_an_error(name):
    for odd in (None, "text"):
        report = check.GRADERS[name](odd)
        assert report.status == "failed" and "is not callable" in report.diagnosis


def test_a_report_is_lines_on_a_terminal_and_a_table_in_a_notebook():
    report = check.causal_mask(top_left)
    assert not report.passed and report.status == "failed"
    lines = str(report).splitlines()
    assert lines[0] == report.line and lines[0].startswith("[!] causal_mask: with more keys")
    assert "reread chapter 01" in lines[0]
    assert "         input: causal_mask(2, 5)" in lines
    assert sum(line.startswith("    FAIL") for line in lines) == 2
    table = report._repr_html_()
    assert table.count("<tr>") == len(report.properties) and "causal_mask(2, 5)" in table
    assert repr(report) == str(report)


def test_a_report_escapes_what_the_learner_wrote():
    def answer():
        return "<script>"

    def unlucky():
        raise ValueError("<script>")

    for report in (check.prediction(code, lambda: "b", REREAD) for code in (answer, unlucky)):
        assert "<script>" in str(report) and "<script>" not in report._repr_html_()
        assert "&lt;script&gt;" in report._repr_html_()


@pytest.mark.parametrize(("code", "tables"), [(causal_mask, 1), (top_left, 1), (stub, 0)])
def test_a_notebook_shows_one_line_and_a_table_once_it_is_attempted(code, tables, monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    report, out = check.causal_mask(code), io.StringIO()
    with contextlib.redirect_stdout(out):
        report._ipython_display_()
    assert out.getvalue() == report.line + "\n"
    assert len(shown) == tables
    if tables:
        assert "<table>" in shown[0].data


def test_a_prediction_is_right_or_told_with_what_came_out():
    def answer():
        return 7

    assert_accepted(check.prediction(answer, lambda: 7, REREAD))
    report = check.prediction(answer, lambda: 8, REREAD)
    assert_rejected(report, "not what comes out")
    assert (report.properties[0].got, report.properties[0].wanted) == ("7", "8")
    assert check.prediction(stub, lambda: 1 / 0, REREAD).status == "not attempted"
    assert check.prediction(8, lambda: 8, REREAD).passed  # no function, but an answer


def test_a_prediction_of_the_wrong_length_is_told_so():
    def answer():
        return 2

    report = check.prediction(answer, lambda: torch.zeros(2, 3).shape, REREAD)
    assert report.diagnosis == "your prediction must have 2 values"
    report = check.prediction((2, 4), lambda: torch.zeros(2, 3).shape, REREAD)
    assert report.diagnosis == "value 2 of your prediction is not what comes out"


@pytest.mark.parametrize(
    ("said", "found", "passed"),
    [
        (1_050_624, 1_050_624, True),
        (1_050_625, 1_050_624, False),  # a whole number is exact
        (7.0, 7, True),
        (0.333, 1 / 3, True),
        (0.32, 1 / 3, False),
        (1005.0, 1000.0, True),
        ((2, 3), torch.Size([2, 3]), True),
        ([2, 3], torch.zeros(2, 3).shape, True),
        ([3, 2], torch.zeros(2, 3).shape, False),
        ([2, 3, 1], torch.zeros(2, 3).shape, False),
        ([[1, 0], [1, 1]], causal_mask(2)[0], True),
        ([[1, 1], [0, 1]], causal_mask(2)[0], False),
        (torch.tensor(2.5), 2.5, True),
        (True, torch.tensor(True), True),
        (False, torch.tensor(True), False),
        (" Yes", "yes", True),
        ("no", "yes", False),
        (None, 1.5, False),
        (float("nan"), 1.5, False),
        ({"a": 1}, {"a": 1}, True),
    ],
)
def test_predictions_may_come_in_any_form_of_the_same_value(said, found, passed):
    def answer():
        return said

    assert check.prediction(answer, lambda: found, REREAD).passed == passed


def test_the_tolerance_of_a_prediction_can_be_chosen():
    def answer():
        return 2.3

    assert not check.prediction(answer, lambda: 2.5, REREAD).passed
    assert check.prediction(answer, lambda: 2.5, REREAD, tolerance=0.1).passed


def test_agreement_compares_on_every_input_and_shows_the_first_that_fails():
    inputs = [(1,), (3,), (2, 5)]
    assert_accepted(check.agreement(causal_mask, causal_mask, inputs, REREAD))
    report = check.agreement(top_left, causal_mask, inputs, REREAD)
    assert_rejected(report, "on input 3 is not right")
    assert [item.passed for item in report.properties] == [True, True, False]
    assert report.properties[2].example == "2, 5"
    assert "top_left(" in report.expects
    assert check.agreement(stub, causal_mask, inputs, REREAD).status == "not attempted"
    assert_rejected(check.agreement(None, causal_mask, inputs, REREAD), "not callable")
    assert_rejected(check.agreement(raising, causal_mask, inputs, REREAD), "KeyError")


BIG = torch.arange(60.0).view(2, 5, 6)


def off_at(*place):
    """Right but for one number."""

    def code(x):
        answer = x.clone()
        answer[place] += 0.0004
        return answer

    return code


@pytest.mark.parametrize(
    ("code", "right", "one", "word"),
    [
        (lambda n: (n, n, n + 1), lambda n: (n, n, n), 7, "item 3 of 3: got 8, wanted 7"),
        (lambda n: (n,), lambda n: (n, n), 7, "it has 1 item, wanted 2"),
        (lambda x: x[:, -1], lambda x: x, torch.ones(1, 1), "shape is (1,), wanted (1, 1)"),
        (lambda x: (x > 2) * 1.0, lambda x: x > 2, BIG[:1, 0] * 0, "are float32, wanted bool"),
        (lambda x: [1, 2], lambda x: x, BIG, "got list 1, 2, wanted a tensor"),
        (off_at(0, 2, 1), lambda x: x, BIG, "first at [0, 2, 1]: got 13.0004, wanted 13"),
        (off_at(0, 1), lambda x: x, BIG[0, :2, :2] * 0, "first at [0, 1]: got 0.0004, wanted 0"),
        (lambda n: n + 1, lambda n: n, 10**7, "got 10000001, wanted 10000000"),
        (lambda n: torch.tensor([n + 1]), lambda n: torch.tensor([n]), 10**7, "got [10000001]"),
    ],
)
def test_a_difference_is_told_in_kind_shape_or_value(code, right, one, word):
    report = check.agreement(code, right, [(one,)], REREAD)
    assert_rejected(report, "on input 1 is not right: ")
    assert word in report.diagnosis
    assert report.properties[0].got != report.properties[0].wanted


def test_numbers_that_read_the_same_are_shown_where_they_differ():
    (item,) = check.agreement(off_at(0, 2, 1), lambda x: x, [(BIG,)], REREAD).properties
    assert item.got == "float32 tensor of shape (2, 5, 6), at [0, 2, 1]: 13.0004"
    assert item.wanted == "float32 tensor of shape (2, 5, 6), at [0, 2, 1]: 13"


def test_a_factor_is_told_only_if_it_is_the_same_on_all_inputs():
    def by_size(x):
        return x * (-1 if len(x) < 2 else -2)

    def once(x):
        return x if len(x) < 2 else 3 * x

    inputs = [(BIG[:1] + 1,), (BIG + 1,)]
    for code in (by_size, once):
        report = check.agreement(code, lambda x: x, inputs, REREAD)
        assert "times" not in report.diagnosis and "sign" not in report.diagnosis
    report = check.agreement(lambda x: 3 * x, lambda x: x, inputs, REREAD)
    assert report.diagnosis == "the answers are 3 times the right ones"
    report = check.agreement(once, lambda x: x, [*inputs, (BIG[:, 1:],)], REREAD)
    assert report.diagnosis == "where they are wrong, the answers are 3 times the right ones"
    report = check.agreement(lambda x: 3 * x, lambda x: x, [(BIG[0, 0, 1:2],)], REREAD)
    assert_rejected(report, "got [3.0]")


def test_an_error_comes_with_the_input_that_raises_it():
    report = check.agreement(lambda x: x.view(7), lambda x: x, [(BIG[0, 0],)], REREAD)
    assert_rejected(report, "it raises RuntimeError")
    assert report.diagnosis.endswith("(float32, shape (6,))]")


def test_a_module_without_forward_is_no_stub():
    class Misspelt(torch.nn.Module):
        def forwrad(self, x):
            return x

    report = check.agreement(Misspelt(), lambda x: x, [(BIG,)], REREAD)
    assert_rejected(report, "Misspelt has no method forward")


def test_a_counterexample_must_show_every_fault():
    def answer():
        return 2, 5

    def square():
        return (3,)

    def no_input():
        return "three", 4

    both = [top_left, upside_down]
    assert_accepted(check.counterexample(answer, causal_mask, both, REREAD))
    assert_accepted(check.counterexample(answer, causal_mask, top_left, REREAD))
    report = check.counterexample(square, causal_mask, both, REREAD)
    assert not report.passed and report.diagnosis == "top_left is right on this input"
    assert [item.passed for item in report.properties] == [True, False, True]
    report = check.counterexample(no_input, causal_mask, both, REREAD)
    assert "does not take your input: it raises" in report.diagnosis
    assert check.counterexample([2, 5], causal_mask, both, REREAD).passed
    assert check.counterexample(stub, causal_mask, both, REREAD).status == "not attempted"
    report = check.counterexample(looping, causal_mask, both, REREAD)
    assert "endless loop" in report.diagnosis


def test_a_counterexample_may_be_one_tensor_and_make_wrong_code_raise():
    def answer():
        return torch.zeros(1, 3, 4)

    def picky(x):
        return x.view(4, 3)

    def changing(x):
        return x.add_(1)

    wrong = [lambda x: x.view(2, 6), changing]
    report = check.counterexample(answer, picky, wrong, REREAD)
    assert_accepted(report)


def test_a_bug_is_found_by_number_and_mended():
    names = [item.name for item in check.causal_mask(causal_mask).properties]
    violated = 1 + names.index("with more keys, the queries are the last ones")

    def graded(number, mended=causal_mask):
        return check.bug(lambda: number, mended, top_left, check.causal_mask)

    assert_accepted(graded(violated))
    assert "the broken code has property 1, one query" in graded(1).diagnosis
    for nonsense in (0, len(names) + 1, "3", True, None, 2.0):
        assert f"a number from 1 to {len(names)}" in graded(nonsense).diagnosis
    report = graded(violated, top_left)
    assert not report.passed and report.line.startswith("[!] top_left: with more keys")
    assert graded(violated, stub).line == "[!] stub: stub is still to be written (reread " + (
        "chapter 01, 3. Hide the future)"
    )
    report = check.bug(stub, causal_mask, top_left, check.causal_mask)
    assert report.diagnosis == "it is mended; now write stub()"
    assert check.bug(stub, stub, top_left, check.causal_mask).status == "not attempted"
    report = check.bug(raising, causal_mask, top_left, check.causal_mask)
    assert "KeyError" in report.diagnosis and not report.passed


def test_a_property_that_was_not_looked_at_is_no_answer():
    def late(query, key, value, mask=None):
        weights = (query @ key.mT / query.shape[-1] ** 0.5).softmax(-1)
        if mask is not None:
            weights = weights.masked_fill(~mask, 0)
            weights = weights / weights.sum(-1, keepdim=True)
        return weights @ value

    right = scaled_dot_product_attention
    names = [item.name for item in check.attention(right).properties]
    slopes = 1 + names.index("gradients stay finite where a query may see nothing")
    report = check.bug(lambda: slopes, right, late, check.attention)
    assert "is not looked at while an earlier one fails" in report.diagnosis
    zeros = 1 + names.index("a query that may see nothing gets zeros")
    assert check.bug(lambda: zeros, right, late, check.attention).passed


def test_a_file_is_graded_under_its_names(tmp_path):
    reports = list(check.grade_file(file_of(tmp_path, RIGHT + WRONG)))
    assert [report.component for report in reports] == [
        "causal_mask (my_causal_mask)",
        "padding_mask",
    ]
    assert [report.passed for report in reports] == [True, False]
    assert "your True means hide" in reports[1].diagnosis


@pytest.mark.parametrize("only", ["causal_mask", "my_causal_mask", "CausalMask"])
def test_one_component_of_a_file_can_be_asked_for(only, tmp_path):
    reports = list(check.grade_file(file_of(tmp_path, RIGHT + WRONG), [only]))
    assert [report.passed for report in reports] == [True]


def test_a_file_may_use_its_neighbours_dataclasses_and_a_main_part(tmp_path):
    file_of(tmp_path, RIGHT, "neighbour.py")
    text = """
from __future__ import annotations
from dataclasses import dataclass
import neighbour
from torch.nn import LayerNorm

@dataclass
class Options:
    width: int

causal_mask = neighbour.my_causal_mask

if __name__ == "__main__":
    raise SystemExit(3)
"""
    (report,) = check.grade_file(file_of(tmp_path, text))
    assert report.component == "causal_mask" and report.passed


@pytest.mark.parametrize(
    ("text", "only", "word"),
    [
        ("def f(:", [], "cannot be read as Python"),
        ("{}['lost']", [], "cannot be run: it raises KeyError"),
        ("raise SystemExit(0)", [], "cannot be run: it raises SystemExit"),
        ("raise NotImplementedError", [], "cannot be run: it raises NotImplementedError"),
        ("x = 1", [], "defines no component"),
        ("from tutorial_transformer.masks import causal_mask", [], "defines no component"),
        (RIGHT, ["padding_mask"], "has no padding_mask; found are: my_causal_mask"),
        (RIGHT, ["mask"], "there is no grader 'mask'"),
    ],
)
def test_files_that_cannot_be_graded_are_refused_with_a_reason(text, only, word, tmp_path):
    with pytest.raises(ValueError, match=word):
        list(check.grade_file(file_of(tmp_path, text), only))


def test_a_call_may_have_another_limit():
    assert call(time.sleep, 0.01, limit=0.5) is None
    with pytest.raises(UnusableError, match=r"within 0\.1 s"):
        call(time.sleep, 0.5, limit=0.1)


def test_a_file_that_does_not_end_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr("tutorial_transformer.check.files.FILE_LIMIT", 0.3)
    with pytest.raises(ValueError, match="endless loop"):
        list(check.grade_file(file_of(tmp_path, "while True:\n    pass")))


def test_the_command_grades_a_file_and_fails_unless_all_pass(tmp_path, capsys):
    assert main(["check", str(file_of(tmp_path, RIGHT))]) == 0
    out = capsys.readouterr().out
    assert out.startswith("[x] causal_mask (my_causal_mask): passed") and "1 of 1 passed" in out
    path = str(file_of(tmp_path, RIGHT + WRONG))
    assert main(["check", path]) == 1
    assert "1 of 2 passed" in capsys.readouterr().out
    assert main(["check", path, "--only", "causal_mask"]) == 0
    assert main(["check", path, "--only", "causal_mask", "--only", "padding_mask"]) == 1
    stubs = "def top_k(logits, k):\n    raise NotImplementedError\n"
    assert main(["check", str(file_of(tmp_path, stubs, "stubs.py"))]) == 1
    assert "[ ] top_k: not attempted yet" in capsys.readouterr().out
    assert main(["check", path, "--only", "top_k"]) == 1
    assert "has no top_k" in capsys.readouterr().err
    assert main(["check", str(tmp_path / "lost.py")]) == 1
    assert "lost.py: No such file" in capsys.readouterr().err
