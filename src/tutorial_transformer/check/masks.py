"""Graders of chapter 01: who may look at whom."""

import contextlib
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from tutorial_transformer import masks
from tutorial_transformer.check._answers import UnusableError, tensor_of
from tutorial_transformer.check._calling import by_position
from tutorial_transformer.check._grade import Case, grade, unexplained
from tutorial_transformer.check._mask_mistakes import CAUSAL, COMBINE, PADDED, PADDING, TARGET
from tutorial_transformer.check._mistakes import BOOLEAN, FUTURE, Mistake, point, rules
from tutorial_transformer.check._report import Property, Report
from tutorial_transformer.check._trial import NotAttemptedError, call


def causal_mask(function: object) -> Report:
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


def padding_mask(function: object) -> Report:
    """Grade padding_mask(ids, pad_id=0): bool (batch, 1, k_len), True where the id is no pad.

    (batch, k_len), a table for each query, one more axis for the heads, and 0/1 numbers are taken.
    """
    expects = "padding_mask(ids, pad_id=0) -> bool (batch, 1, k_len), True = may attend"
    report = Report("padding_mask", expects, PADDING)
    cases = _on_ids(keys_only=True)
    cases[0].name = "real tokens are visible, padding is not"
    return _graded(report, function, cases, masks.padding_mask, PADDED)


def target_mask(function: object) -> Report:
    """Grade target_mask(ids, pad_id=0): bool (batch, length, length), padding and causality.

    One more axis for the heads and 0/1 numbers are taken.
    """
    expects = "target_mask(ids, pad_id=0) -> bool (batch, length, length), True = may attend"
    report = Report("target_mask", expects, COMBINE)
    cases = _on_ids(keys_only=False)
    cases[0].name = "a query sees the real tokens up to itself"
    return _graded(report, function, cases, masks.target_mask, TARGET)


def _graded(report, function, cases, reference, mistakes: dict[str, Mistake]) -> Report:
    names = ("q_len", "k_len") if mistakes is CAUSAL else ("ids", "pad_id")
    learner, seen = by_position(function, *names), set()

    def adapted(answer: object) -> Tensor:
        mask = _numbers(answer)
        seen.update(_remarks(tensor_of(answer), mistakes is PADDED))
        return mask

    grade(report, learner, cases, reference, rules(mistakes), adapted)
    if report.passed:
        report.properties += [Property(f"remark: {says}", True) for says in sorted(seen)]
    if unexplained(report):
        report.diagnosis = _described(report, learner, cases, reference)
    for item in report.properties:
        if "a bool mask" in item.got:  # the smallest mask may hide that it holds other numbers
            report.diagnosis, report.reread = item.got, BOOLEAN
    return point(report, mistakes)


def _remarks(mask: Tensor, keys_only: bool) -> Iterator[str]:
    """What is taken here, but not by everybody who is given this mask."""
    axes = "(batch, 1, k_len)" if keys_only else "(1, q_len, k_len)"
    if mask.ndim == 2:
        more = "[:, None]" if keys_only else "[None]"
        yield f"two axes work after {more}; this course's layers take {axes}"
    if mask.ndim == 4:
        yield "four axes are one too many for this course's layers; they add the one of the heads"
    if mask.dtype != torch.bool:
        yield "numbers 0 and 1; a bool mask is safer, as ~ and & do what they say"


def _described(report: Report, learner: Callable, cases: list[Case], reference: Callable) -> str:
    """Say which key is wrongly hidden or visible first, in a mask that no mistake gives."""
    wrong = {item.name for item in report.properties if not item.passed}
    for case in cases:
        with contextlib.suppress(UnusableError, NotAttemptedError):
            got = case.view(_numbers(call(learner, *case.args)))
            wanted = case.view(reference(*case.args))
            if case.name not in wrong:
                continue
            fits = got.ndim == 3 and got.shape[::2] == wanted.shape[::2]
            if fits and (got.shape[1] == wanted.shape[1] or 1 in (got.shape[1], wanted.shape[1])):
                return _first_wrong(case, *torch.broadcast_tensors(got, wanted))
            break
    return report.diagnosis


def _first_wrong(case: Case, got: Tensor, wanted: Tensor) -> str:
    """Name the first entry that differs, and what stands there."""
    row, query, key = (got != wanted).nonzero()[0].tolist()
    moved = query + got.shape[2] - got.shape[1]  # the position of the query among the keys
    place = "itself" if key == moved else "of its future" if key > moved else "of its past"
    ids, *pad = case.args if isinstance(case.args[0], Tensor) else (None,)
    if ids is not None:
        is_pad = int(ids[row, key]) == (pad[0] if pad else 0)
        place += ", padding" if is_pad else f", a real token (id {int(ids[row, key])})"
    verb = "is visible, wanted hidden" if got[row, query, key] else "is hidden, wanted visible"
    return f"for query {query}, key {key} ({place}) {verb} [{case.example}]"


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
        _case("a sentence of pads alone sees nothing", [[6, 2], [0, 0], [4, 0]], keys_only),
    ]


def _case(name: str, rows: list[list[int]], keys_only: bool, *pad_id: int) -> Case:
    ids = torch.tensor(rows)
    view = _table(len(ids), ids.shape[1], ids.shape[1], keys_only)
    example = f"ids {rows}" + "".join(f", pad_id {pad}" for pad in pad_id)
    return Case(name, example, (ids, *pad_id), view=view)


def _table(batch: int, q_len: int, k_len: int, keys_only: bool = False) -> Callable:
    """See a mask as the table it stands for, whatever axes it has; others stay as they are."""

    def view(mask: Tensor) -> Tensor:
        mask = mask[None] if mask.ndim == 2 and not keys_only else mask
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
    answer = tensor_of(answer)
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
