"""A grader of chapter 04: the network that treats every position alone."""

import torch

from tutorial_transformer.check._answers import tensor_of
from tutorial_transformer.check._building import fail
from tutorial_transformer.check._grade import Case, grade
from tutorial_transformer.check._inputs import numbers
from tutorial_transformer.check._mistakes import blame_chance, point, rules
from tutorial_transformer.check._network import WIDTHS, Network
from tutorial_transformer.check._network_mistakes import BEND, NETWORK, network
from tutorial_transformer.check._report import Property, Report


def feed_forward(cls: object) -> Report:
    """Grade a module: cls(d_model, d_ff)(x) -> max(0, x W_1 + b_1) W_2 + b_2, for each position.

    x is (batch, length, d_model). A function that makes an nn.Sequential is taken, too; the two
    maps may have any names. Dropout is off.
    """
    expects = (
        "cls(d_model, d_ff), an nn.Module called as module(x) -> max(0, x W_1 + b_1) W_2 + b_2, "
        "shape (batch, length, d_model) as x"
    )
    report, student = Report("feed_forward", expects, BEND), Network(cls)
    x, many = numbers((1, 1, 4)), numbers((2, 3, 4), seed=1)
    cases = [
        Case("one vector is widened, bent by ReLU and brought back", "x (1, 1, 4)", (x,)),
        Case("zeros give max(0, b_1) W_2 + b_2", "x = 0, (1, 2, 4)", (torch.zeros(1, 2, 4),)),
        Case("every position is treated alone", "x (1, 3, 4)", (many[:1],)),
        Case("every position is treated alone", "positions turned round", (many[:1].flip(1),)),
        Case("it works in batches, all sizes different", "x (2, 3, 4), d_ff 10", (many,)),
        Case("large numbers stay as they are", "x × 100", (many * 100,)),
        Case("d_ff may be smaller", "x (2, 3, 6), d_ff 5", (numbers((2, 3, 6), seed=2),)),
    ]
    suspects = {says: student.wrong(rule) for says, rule in rules(NETWORK).items()}
    grade(report, student, cases, student.wrong(network), suspects, tensor_of, tolerance=1e-4)
    blame_chance(report, student, many)
    _check_shapes(report, student)
    return point(report, NETWORK)


def _check_shapes(report: Report, student: Network) -> None:
    """Say so where the module has other parameters than the formula."""
    for d_model, module in student.modules.items():
        d_ff, count = WIDTHS[d_model], sum(one.numel() for one in module.parameters())
        wanted = 2 * d_model * d_ff + d_ff + d_model
        fine = count == wanted or (report.passed and count > wanted)  # weight norm has more
        if fine or report.diagnosis in NETWORK or not student.seen:
            continue
        shapes = [tuple(one.shape) for one in module.parameters()]
        says = (
            f"it has {count} parameters, the formula has {wanted}: W_1, b_1, W_2 and b_2, nothing "
            "else, and all registered (no plain list)"
        )
        example = f"d_model {d_model}, d_ff {d_ff}"
        item = Property("it has W_1, b_1, W_2 and b_2", False, example, str(shapes), str(wanted))
        fail(report, item, says, BEND)
        report.diagnosis, report.reread = says, BEND
        return
