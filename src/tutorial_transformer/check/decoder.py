"""A grader of chapter 08: one layer of the decoder."""

import torch

from tutorial_transformer.check._block import SCALE
from tutorial_transformer.check._decoder_mistakes import LAYER, THREE
from tutorial_transformer.check._dropping import blame_rate
from tutorial_transformer.check._grade import Case, grade
from tutorial_transformer.check._inputs import causal, numbers, output_of, until
from tutorial_transformer.check._layer_checks import blame_list, check_parts, check_rates, finite
from tutorial_transformer.check._layer_mistakes import UNKNOWN, UNMASKED
from tutorial_transformer.check._layers import Student, suspect
from tutorial_transformer.check._mistakes import blame_chance, point, rules
from tutorial_transformer.check._report import Report
from tutorial_transformer.check._source_mistakes import wire

MIXED = torch.tensor([[[True, False, True], [True, True, False], [False, True, True]]])


def decoder_layer(cls: object) -> Report:
    """Grade a module: cls(d_model, num_heads, d_ff, dropout, norm_first)(x, memory, masks).

    It is called as layer(x, memory, tgt_mask, src_mask); masks are None or bool, True = may
    attend: tgt_mask (batch or 1, tgt_len or 1, tgt_len), src_mask (batch or 1, 1, src_len).
    nn.TransformerDecoderLayer is taken, too. Parameters may have any names: all are filled by
    one rule, so that only the wiring shows.
    """
    expects = (
        "cls(d_model, num_heads, d_ff, dropout, norm_first), an nn.Module called as layer(x, "
        "memory, tgt_mask, src_mask) -> (batch, tgt_len, d_model): self-attention, attention to "
        "memory, then a ReLU feed-forward network, each with a residual and a norm (norm_first "
        "False: after the sum, True: before the sub-layer), dropout on each sub-layer's output; "
        "masks are None or bool, True = may attend"
    )
    report, student = Report("decoder_layer", expects, THREE), Student(cls, 2)
    cases = decoder_cases()
    suspects = {says: suspect(rule) for says, rule in rules(LAYER).items()}
    grade(report, student, cases, suspect(wire), suspects, output_of, tolerance=1e-3)
    blame_chance(report, student, *cases[2].args)
    blame_rate(report, student, *cases[-1].args)
    hidden = torch.zeros(2, 1, 4, dtype=torch.bool)
    finite(report, student, numbers((2, 3, 8)), numbers((2, 4, 8), 1), None, hidden)
    blame_list(report, student, THREE)
    check_parts(report, student, 2, THREE)
    check_rates(report, student)
    return point(report, LAYER)


def decoder_cases() -> list[Case]:
    """Arguments are norm_first, training mode, the scale of all weights, and the layer's own."""
    x = numbers((1, 2, 8)), numbers((1, 2, 8), 1)
    short = numbers((2, 3, 8), 3), numbers((2, 4, 8), 4)
    many = numbers((2, 5, 12), 5), numbers((2, 7, 12), 6)
    nothing, size = "sub-layers give 0, x (1, 2, 8)", "tgt_len 2, src_len 2"
    even, masks = (numbers((1, 3, 8), 7), numbers((1, 3, 8), 8)), (MIXED, until(2, 3)[:1])
    past, pads = causal(5, 5), until(4, 6, 7)[:2]
    own, source = until(1, 3).expand(2, 3, 3), until(4, 2)
    lengths, post, pre = "tgt_len 5, src_len 7", (False, False), (True, False)
    named = [
        ("pre-norm with sub-layers of 0 is x", nothing, (*pre, 0.0, *x)),
        ("post-norm with sub-layers of 0 is three norms", nothing, (*post, 0.0, *x)),
        ("post-norm order: self, cross, feed-forward", size, (*post, SCALE, *x)),
        ("pre-norm order: self, cross, feed-forward", size, (*pre, SCALE, *x)),
        ("each attention has its own mask", "both of length 3", (*post, SCALE, *even, *masks)),
        ("target and source may differ in length", lengths, (*post, SCALE, *many)),
        ("target and source may differ in length", "pre-norm", (*pre, SCALE, *many)),
        ("a mask of the future is obeyed", "tgt_len 5", (*post, SCALE, *many, past)),
        ("a mask of the future is obeyed", "pre-norm", (*pre, SCALE, *many, past)),
        (
            "a mask of the source is obeyed",
            "4 and 6 of 7",
            (*post, SCALE, *many, None, pads),
        ),
        ("both masks act together", lengths, (*pre, SCALE, *many, past, pads)),
        ("each sentence has its own masks", "batch 2", (*post, SCALE, *short, own, source)),
        ("training obeys the masks too", lengths, (False, True, SCALE, *many, past, pads)),
        ("training obeys the masks too", "pre-norm", (True, True, SCALE, *many, past, pads)),
    ]
    return [Case(*one, UNMASKED if "mask" in one[0] else UNKNOWN) for one in named]
