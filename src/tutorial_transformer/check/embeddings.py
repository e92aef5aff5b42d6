"""Graders of chapter 05: ids become vectors that know their place."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tutorial_transformer.check._answers import UnusableError, tensor_of
from tutorial_transformer.check._building import is_class
from tutorial_transformer.check._calling import by_position, name_of
from tutorial_transformer.check._grade import Case, grade, unexplained
from tutorial_transformer.check._inputs import numbers
from tutorial_transformer.check._mistakes import blame_chance, point, rules
from tutorial_transformer.check._position_mistakes import ADDED, BUFFER, SIZE, TOKENS
from tutorial_transformer.check._report import Property, Report
from tutorial_transformer.check._table_checks import (
    MAX_LEN,
    check_table,
    learned,
    measured,
    positions,
)
from tutorial_transformer.check._tokens import TWICE, Tokens, check_pads, check_slopes, right_tokens
from tutorial_transformer.check._trial import NotAttemptedError, call
from tutorial_transformer.check._wave_mistakes import TABLES, WAVES, waves

SIZES = ("length", "d_model")
OFFSET = "offset says where the positions start"


def positional_encoding(code: object) -> Report:
    """Grade a function f(length, d_model) -> table, or a class cls(d_model, max_len=...)(x).

    The table is (length, d_model): sine in even columns, cosine in odd ones, 10000^(2i / d_model)
    for both columns of pair i; odd d_model works. A module gives x + table for x (batch, length,
    d_model), at positions from `offset` on if it has that argument; its table follows the module
    to other devices and dtypes and is not trained. If it is saved with it, a remark says so.
    """
    expects = (
        "f(length, d_model) -> table (length, d_model), or cls(d_model, max_len=...), called as "
        "module(x[, offset]) -> x + table; sine in even columns, cosine in odd ones, the exponent "
        "2i / d_model for both; any d_model; the table is a buffer, best with persistent=False"
    )
    report, table = Report("positional_encoding", expects, WAVES), by_position(code, *SIZES)
    try:
        module = is_class(code) or isinstance(call(table, 5, 4), nn.Module)
    except (UnusableError, NotAttemptedError):
        module = False
    seen = "a class of modules" if module else "a function of (length, d_model)"
    report.properties.append(Property(f"it is {seen}", True))
    if module:
        _grade_module(report, code)
    else:
        grade(report, table, _table_cases(), waves, rules(TABLES), _table, tolerance=1e-4)
        if unexplained(report) and "perhaps" not in report.diagnosis:
            report.diagnosis = measured(table) or report.diagnosis
        blame_chance(report, table, 3, 4)
    return point(report, TABLES | ADDED)


def _table_cases() -> list[Case]:
    """The smallest table first; d_model odd, and both longer and shorter than the length."""
    return [
        Case("row 0 is 0, 1, 0, 1", "length 1, d_model 4", (1, 4)),
        Case("row 1 is 0.8415, 0.5403, 0.01, 0.99995", "length 2, d_model 4", (2, 4)),
        Case("d_model may be odd", "length 4, d_model 5", (4, 5)),
        Case("it works for other sizes", "length 3, d_model 10", (3, 10)),
        Case("it works for long texts", "length 300, d_model 6", (300, 6)),
    ]


def _table(answer: object) -> Tensor:
    """A table, perhaps as lists, or with axes of size 1 for batch or heads."""
    table = tensor_of(answer)
    if table.ndim > 2:
        return table[0] if len(table) == 1 else table.squeeze(1)
    return table


def _grade_module(report: Report, cls: object) -> None:
    """Grade x + table, then how the table is kept."""

    modules: dict[int, nn.Module] = {}

    def learner(x: Tensor, offset: int | None = None) -> object:
        d_model = x.shape[-1]
        module = modules[d_model] = modules.get(d_model) or positions(cls, d_model)
        return module(x) if offset is None else module(x, **{name: offset})

    built: list[nn.Module] = []
    try:
        built.append(call(lambda: positions(cls, 4)))
    except NotAttemptedError:
        report.attempted = False
        return
    except UnusableError:
        pass  # the first case tells it
    name = name_of(built[0].forward, "offset") if built else ""
    suspects = {says: _summed(rule) for says, rule in rules(TABLES).items()} | rules(ADDED)
    cases = _sum_cases(bool(name))
    grade(report, learner, cases, _summed(waves), suspects, tensor_of, tolerance=1e-4)
    if unexplained(report):
        zeros = lambda length, d_model: learner(torch.zeros(1, length, d_model))[0]  # noqa: E731
        report.diagnosis = learned(built) or measured(zeros) or report.diagnosis
    blame_chance(report, learner, *cases[1].args)
    first = next((item for item in report.properties if not item.passed), None)
    if first is not None and first.name == OFFSET:
        report.reread = BUFFER
    if report.passed:
        check_table(report, cls)


def _sum_cases(offset: bool) -> list[Case]:
    x, odd, long = numbers((2, 3, 4)), numbers((2, 4, 5), 1), torch.zeros(1, MAX_LEN, 6)
    cases = [
        Case("a module on zeros gives the table", "x = 0, (1, 2, 4)", (torch.zeros(1, 2, 4),)),
        Case("x stays as it is, positions are added", "x (2, 3, 4)", (x,)),
        Case("each time step has its position", "x = 0, (3, 2, 4)", (torch.zeros(3, 2, 4),)),
        Case("d_model may be odd", "x (2, 4, 5)", (odd,)),
        Case("max_len positions can be used", f"x = 0, (1, {MAX_LEN}, 6)", (long,)),
    ]
    moved = [(torch.zeros(1, 2, 4), 0), (torch.zeros(1, 1, 4), 3), (x, 7)]
    for y, start in moved if offset else []:
        cases.append(Case(OFFSET, f"x {tuple(y.shape)}, offset {start}", (y, start)))
    return cases


def _summed(table: Callable) -> Callable:
    """A table of positions as a module would add it."""

    def run(x: Tensor, offset: int | None = None) -> Tensor:
        start = offset or 0
        return x + table(start + x.shape[1], x.shape[-1])[start:].to(x.dtype)

    return run


def token_embedding(cls: object) -> Report:
    """Grade a module: cls(vocab_size, d_model, pad_id=0)(ids) -> table[ids] · √d_model.

    ids are (batch, length). The vector of pad_id is zero, and training leaves it so; the table
    may have any name.
    """
    expects = (
        "cls(vocab_size, d_model, pad_id=0), an nn.Module called as module(ids) -> (batch, length, "
        "d_model), the rows of its table times √d_model; the vector of pad_id is zero and stays so"
    )
    report, student = Report("token_embedding", expects, SIZE), Tokens(cls)
    one, many = torch.tensor([[3]]), torch.tensor([[1, 6, 2, 5], [4, 1, 1, 2]])
    cases = [
        Case("the vector of an id is its row times √d_model", "ids [[3]], d_model 4", (one, 4)),
        Case("it works in batches, all sizes different", "ids (2, 4), d_model 5", (many, 5)),
        Case("every id has its vector", "ids 1 to 6", (torch.arange(1, 7)[None], 5)),
    ]
    suspects = {says: student.wrong(rule) for says, rule in rules(TOKENS).items()}
    grade(report, student, cases, student.wrong(right_tokens), suspects, tensor_of)
    if any(item.got == TWICE for item in report.properties):
        report.diagnosis = TWICE
    extra = max((len(list(one.parameters())) for one in student.modules.values()), default=1)
    if unexplained(report) and extra > 1:
        report.diagnosis = "it has other parameters beside its table: an embedding has no bias"
    check_pads(report, cls)
    check_slopes(report, cls)
    return point(report, TOKENS)
