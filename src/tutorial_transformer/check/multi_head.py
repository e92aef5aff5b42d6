"""Graders of chapter 03: cut into heads, attend in each, merge, mix."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from tutorial_transformer import multi_head as right
from tutorial_transformer.attention import scaled_dot_product_attention
from tutorial_transformer.check._answers import tensor_of
from tutorial_transformer.check._attention_mistakes import RETURNED
from tutorial_transformer.check._calling import by_position
from tutorial_transformer.check._grade import Case, grade
from tutorial_transformer.check._inputs import LAST, NONE, causal, numbers, output_of, rows, until
from tutorial_transformer.check._mistakes import CUT, MIX, blame_chance, point, rules
from tutorial_transformer.check._multi_head_mistakes import MULTI_HEAD
from tutorial_transformer.check._report import Report
from tutorial_transformer.check._split_mistakes import MERGING, SPLITTING
from tutorial_transformer.check._student import Student


def split_heads(function: object) -> Report:
    """Grade split_heads(x, num_heads): (batch, length, d_model) -> (batch, heads, length, d_k)."""
    expects = (
        "split_heads(x, num_heads) -> (batch, num_heads, length, d_k); head i holds the features "
        "from i · d_k on"
    )
    report = Report("split_heads", expects, CUT)
    shown = torch.arange(8.0).view(1, 2, 4)
    cases = [
        Case("each head holds its piece of every vector", "x [[[0..3], [4..7]]], 2", (shown, 2)),
        Case("it works in batches, all sizes different", "x (2, 3, 20), 4", (_x(2, 3, 20), 4)),
        Case("one head holds all", "x (2, 3, 5), 1", (_x(2, 3, 5), 1)),
    ]
    learner = by_position(function, "x", "num_heads")
    grade(report, learner, cases, right.split_heads, rules(SPLITTING), tensor_of)
    return point(report, SPLITTING)


def merge_heads(function: object) -> Report:
    """Grade merge_heads(x): (batch, heads, length, d_k) -> (batch, length, d_model)."""
    expects = "merge_heads(x) -> (batch, length, d_model), the heads of a position side by side"
    report = Report("merge_heads", expects, CUT)
    shown = torch.arange(8.0).view(1, 2, 2, 2)
    cases = [
        Case("the heads of a position lie side by side", "x = arange(8), (1, 2, 2, 2)", (shown,)),
        Case(
            "it works in batches, all sizes different", "x (2, 4, 3, 5)", (numbers((2, 4, 3, 5)),)
        ),
        Case(
            "it undoes the split",
            "x (2, 3, 20) split into 4 heads",
            (right.split_heads(_x(2, 3, 20), 4),),
        ),
    ]
    spare = lambda x: {"head|^h$": x.shape[1], "d_?model": x.shape[1] * x.shape[3]}  # noqa: E731
    learner = by_position(function, "x", spare=spare)
    grade(report, learner, cases, right.merge_heads, rules(MERGING), tensor_of)
    return point(report, MERGING)


def multi_head(cls: object) -> Report:
    """Grade a module: cls(d_model, num_heads)(query, key, value, mask) -> output, or with weights.

    mask is None or bool, True = may attend, (batch or 1, q_len or 1, k_len), the same for all
    heads. nn.MultiheadAttention itself is taken, too. The projections may have any names and
    forms: w_q, w_k, w_v, w_o, one map for all three, or small ones for each head.
    """
    expects = (
        "cls(d_model, num_heads), an nn.Module called as module(query, key, value, mask) -> output "
        "(batch, q_len, d_model), or (output, weights); mask is None or bool (batch or 1, q_len or "
        "1, k_len), True = may attend; a query that may see nothing gives w_o zeros"
    )
    report = Report("multi_head", expects, MIX)
    student = Student(cls)
    suspects = {says: student.wrong(one.rule) for says, one in MULTI_HEAD.items()}
    grade(report, student, _cases(), student.reference, suspects, output_of, tolerance=1e-4)
    if report.passed and student.shows_weights:
        _check_weights(report, student)
    student.explain(report)
    blame_chance(report, student, *_cases()[2].args)
    return point(report, MULTI_HEAD | RETURNED)


def _cases() -> list[Case]:
    """The smallest input first; as many sentences as heads where a mask could be misread."""
    one, two, three = (_x(1, 1, 8, seed) for seed in range(3))
    few, many, source = _x(1, 2, 8), _x(2, 5, 12), _x(2, 7, 12, seed=1)
    value, other = _x(2, 7, 12, seed=2), _x(2, 3, 8, seed=3)
    own = torch.stack([causal(3, 3)[0], until(1, 3)[0].expand(3, 3)])  # (batch, 3, 3)
    far = (few * 1e7, other[:1], other[:1])
    past, empty = causal(5, 5), NONE[:, :, [0, 2]]
    return [
        Case("with one key the output is w_o(w_v(value))", "one query, one key", (one, two, three)),
        Case(
            "each head attends over the positions, scores divided by √d_k",
            "d_model 8, 2 heads",
            (few, few, few),
        ),
        Case("query, key and value may differ", "q_len 5, k_len 7", (many, source, value)),
        Case("a causal mask holds for all heads", "length 5", (many, many, many, past)),
        Case("each sentence has its own mask", "2 sentences, 2 heads", (other, other, other, own)),
        Case("a padding mask hides keys", "lengths 4, 7", (many, source, source, until(4, 7))),
        Case("a query that may see nothing gives w_o zeros", rows(empty), (few, few, few, empty)),
        Case("large scores do not overflow", "query × 10⁷", (*far, causal(2, 3))),
        Case("large scores do not overflow", "query × -3000", (few * -3000, *far[1:], LAST)),
        Case("no fill is too high", "query × 10⁷, late keys only", (*far, LAST)),
        Case("training mode obeys the mask too", "length 5", (many, many, many, past, True)),
    ]


def _check_weights(report: Report, student: Student) -> None:
    """Compare the weights where they come with the output: each head's, or their mean."""

    def mean(rule: Callable) -> Callable:
        inside = lambda *inputs: rule(*student.layer(inputs[0].shape[-1]).inside(*inputs))  # noqa: E731
        return lambda *inputs: inside(*inputs).mean(1)

    def given(*inputs: Tensor | None) -> Tensor:
        weights = student(*inputs)[-1]
        return weights.mean(1) if weights.ndim == 4 else weights

    name = "the returned weights are those that average the values"
    cases = [replace(case, name=name) for case in _cases()[:6]]
    suspects = {says: mean(one.rule) for says, one in RETURNED.items()}
    grade(report, given, cases, mean(lambda *its: scaled_dot_product_attention(*its)[1]), suspects)


def _x(batch: int, length: int, width: int, seed: int = 0) -> Tensor:
    return numbers((batch, length, width), seed) / 2
