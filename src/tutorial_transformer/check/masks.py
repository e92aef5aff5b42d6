"""Graders of chapter 01: who may look at whom."""

from collections.abc import Callable

import torch
from torch import Tensor

from tutorial_transformer import masks
from tutorial_transformer.check._grade import Case, grade
from tutorial_transformer.check._mask_mistakes import CAUSAL, COMBINE, PADDED, PADDING, TARGET
from tutorial_transformer.check._mistakes import BOOLEAN, FUTURE, Mistake, point, rules
from tutorial_transformer.check._report import Report
from tutorial_transformer.check._trial import UnusableError


def causal_mask(function: Callable) -> Report:
    """Grade causal_mask(q_len, k_len=None): bool (1, q_len, k_len), True = may attend.

    (q_len, k_len) without the first axis, one more axis for the heads, and 0/1 numbers are taken.
    """
    expects = "causal_mask(q_len, k_len=None) -> bool (1, q_len, k_len), True = may attend"
    report = Report("causal_mask", expects, FUTURE)
    cases = [
        _sizes("one query sees itself", 1),
        _sizes("the past and itself are visible, the future is not", 3),
        _sizes("with more keys, the queries are the last ones", 2, 5),
        _sizes("one new query sees all keys", 1, 4),
    ]
    return _graded(report, function, cases, masks.causal_mask, CAUSAL)


def padding_mask(function: Callable) -> Report:
    """Grade padding_mask(ids, pad_id=0): bool (batch, 1, k_len), True where the id is no pad.

    (batch, k_len), a table for each query, one more axis for the heads, and 0/1 numbers are taken.
    """
    expects = "padding_mask(ids, pad_id=0) -> bool (batch, 1, k_len), True = may attend"
    report = Report("padding_mask", expects, PADDING)
    cases = _on_ids(keys_only=True)
    cases[0].name = "real tokens are visible, padding is not"
    return _graded(report, function, cases, masks.padding_mask, PADDED)


def target_mask(function: Callable) -> Report:
    """Grade target_mask(ids, pad_id=0): bool (batch, length, length), padding and causality.

    One more axis for the heads and 0/1 numbers are taken.
    """
    expects = "target_mask(ids, pad_id=0) -> bool (batch, length, length), True = may attend"
    report = Report("target_mask", expects, COMBINE)
    cases = _on_ids(keys_only=False)
    cases[0].name = "a query sees the real tokens up to itself"
    return _graded(report, function, cases, masks.target_mask, TARGET)


def _graded(report, function, cases, reference, mistakes: dict[str, Mistake]) -> Report:
    grade(report, function, cases, reference, rules(mistakes), _numbers)
    for item in report.properties:
        if "a bool mask" in item.got:  # the smallest mask may hide that it holds other numbers
            report.diagnosis, report.reread = item.got, BOOLEAN
    return point(report, mistakes)


def _sizes(name: str, *sizes: int) -> Case:
    example = f"causal_mask({', '.join(map(str, sizes))})"
    return Case(name, example, sizes, view=_table(1, sizes[0], sizes[-1]))


def _on_ids(keys_only: bool) -> list[Case]:
    """Cases for a mask that is made from ids, the smallest first."""
    return [
        _case("", [[5, 6, 0]], keys_only),
        _case("each row of a batch has its own padding", [[7, 3, 9, 4], [5, 8, 0, 0]], keys_only),
        _case("a pad may stand anywhere, also on the left", [[0, 0, 4, 5, 9]], keys_only),
        _case("pad_id says which id is the padding", [[1, 0, 4, 3, 3]], keys_only, 3),
        _case("a row of pads sees nothing", [[6, 2], [0, 0], [4, 0]], keys_only),
    ]


def _case(name: str, rows: list[list[int]], keys_only: bool, *pad_id: int) -> Case:
    ids = torch.tensor(rows)
    view = _table(len(ids), ids.shape[1], ids.shape[1], keys_only)
    example = f"ids {rows}" + "".join(f", pad_id {pad}" for pad in pad_id)
    return Case(name, example, (ids, *pad_id), view=view)


def _table(batch: int, q_len: int, k_len: int, keys_only: bool = False) -> Callable:
    """See a mask as the table it stands for, whatever axes it has; others stay as they are."""

    def view(mask: Tensor) -> Tensor:
        if mask.ndim == 4 and mask.shape[1] == 1:
            mask = mask[:, 0]
        if keys_only and tuple(mask.shape) == (batch, k_len):
            mask = mask[:, None]
        try:
            table = mask.broadcast_to(batch, q_len, k_len)
        except RuntimeError:
            return mask
        alike = keys_only and bool((table == table[:, :1]).all())
        return table[:, :1] if alike else table

    return view


def _numbers(answer: object) -> Tensor:
    """The mask as bool; numbers that are not 0 and 1 are no mask."""
    if not isinstance(answer, Tensor):
        raise UnusableError(f"it must return a tensor, got {type(answer).__name__}")
    if answer.dtype == torch.bool:
        return answer
    low = answer.double() < -1000
    if low.any() and (low | (answer == 0)).all():
        raise UnusableError(
            "it returns numbers to add to the scores (0, and -inf or the like), wanted a bool mask"
        )
    if not ((answer == 0) | (answer == 1)).all():
        raise UnusableError(f"it must return a bool mask, got {answer.dtype} with other numbers")
    return answer.bool()
