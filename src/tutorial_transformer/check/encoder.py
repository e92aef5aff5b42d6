"""A grader of chapter 07: one layer of the encoder."""

import torch

from tutorial_transformer.check._block import SCALE
from tutorial_transformer.check._dropping import blame_rate
from tutorial_transformer.check._encoder_mistakes import ASSEMBLE, LAYER, wire
from tutorial_transformer.check._grade import Case, grade
from tutorial_transformer.check._inputs import causal, numbers, output_of, until
from tutorial_transformer.check._layer_checks import blame_list, check_parts, check_rates, finite
from tutorial_transformer.check._layer_mistakes import UNKNOWN, UNMASKED
from tutorial_transformer.check._layers import Student, suspect
from tutorial_transformer.check._mistakes import blame_chance, point, rules
from tutorial_transformer.check._report import Property, Report
from tutorial_transformer.check._trial import NotAttemptedError, UnusableError, call, close


def encoder_layer(cls: object) -> Report:
    """Grade a module: cls(d_model, num_heads, d_ff, dropout, norm_first)(x, src_mask) -> output.

    src_mask is None or bool, True = may attend, (batch or 1, src_len or 1, src_len).
    nn.TransformerEncoderLayer is taken, too. Parameters may have any names: all are filled by
    one rule, so that only the wiring shows.
    """
    expects = (
        "cls(d_model, num_heads, d_ff, dropout, norm_first), an nn.Module called as layer(x, "
        "src_mask) -> (batch, src_len, d_model): self-attention, then a ReLU feed-forward network, "
        "each with a residual and a norm (norm_first False: after the sum, True: before the "
        "sub-layer), dropout on each sub-layer's output; src_mask None or bool, True = may attend"
    )
    report, student = Report("encoder_layer", expects, ASSEMBLE), Student(cls, 1)
    cases = encoder_cases()
    suspects = {says: suspect(rule) for says, rule in rules(LAYER).items()}
    grade(report, student, cases[:-1], suspect(wire), suspects, output_of, tolerance=1e-3)
    if report.attempted and report.passed and not _keys_only(report, student, cases[-1]):
        grade(report, student, cases[-1:], suspect(wire), suspects, output_of, tolerance=1e-3)
    blame_chance(report, student, *cases[2].args)
    blame_rate(report, student, *cases[-2].args)
    finite(report, student, numbers((2, 3, 8)), torch.zeros(2, 1, 3, dtype=torch.bool))
    blame_list(report, student, ASSEMBLE)
    check_parts(report, student, 1, ASSEMBLE)
    check_rates(report, student)
    return point(report, LAYER)


def _keys_only(report: Report, student: Student, case: Case) -> bool:
    """Whether one row of the mask serves all queries: pads are hidden so, and no more is asked."""
    try:
        answer = call(student, *case.args)
    except (UnusableError, NotAttemptedError):
        return False
    mask = case.args[-1]
    keys = suspect(wire)(*case.args[:-1], mask[:, :1].expand_as(mask))
    if close(answer, keys, 1e-3):
        says = "remark: the mask's first row serves all queries, as key_padding_mask does"
        report.properties.append(Property(says, True))
    return close(answer, keys, 1e-3)


def encoder_cases() -> list[Case]:
    """Arguments are norm_first, training mode, the scale of all weights, x and the mask."""
    x, few, many = numbers((1, 2, 8)), numbers((2, 3, 8), 3), numbers((2, 5, 12), 1)
    nothing, own = "sub-layers give 0, x (1, 2, 8)", until(1, 3).expand(2, 3, 3)
    pads, past = until(3, 4, 5)[:2], causal(5, 5)
    named = [
        ("pre-norm with sub-layers of 0 is x", nothing, (True, False, 0.0, x)),
        ("post-norm with sub-layers of 0 is LN(LN(x))", nothing, (False, False, 0.0, x)),
        ("post-norm order: attention, then feed-forward", "x (1, 2, 8)", (False, False, SCALE, x)),
        ("pre-norm order: attention, then feed-forward", "x (1, 2, 8)", (True, False, SCALE, x)),
        ("it works in batches, all sizes different", "(2, 5, 12)", (False, False, SCALE, many)),
        ("it works in batches, all sizes different", "pre-norm", (True, False, SCALE, many)),
        ("a mask of pads is obeyed", "lengths 3 and 4 of 5", (False, False, SCALE, many, pads)),
        ("each sentence has its own mask", "lengths 1 and 3", (True, False, SCALE, few, own)),
        ("training obeys the mask too", "lengths 3 and 4 of 5", (False, True, SCALE, many, pads)),
        ("training obeys the mask too", "pre-norm", (True, True, SCALE, many, pads)),
        ("a mask of each query is obeyed", "causal, length 5", (True, False, SCALE, many, past)),
    ]
    return [Case(*one, UNMASKED if "mask" in one[0] else UNKNOWN) for one in named]
