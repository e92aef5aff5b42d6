"""Watch a decoder at work: what it says, and in which state it leaves the model."""

import contextlib
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from tutorial_transformer.check._calling import settled
from tutorial_transformer.check._grade import Case
from tutorial_transformer.check._report import Report
from tutorial_transformer.check._trial import UnusableError, call, close


def watched(decode: object, tidy: Callable) -> Callable:
    """Return (the tidied answer, what became of the model's mode), and put the model back."""

    def run(model, src: Tensor, *rest) -> tuple:
        training, weights = model.training, parameters_to_vector(model.parameters()).detach()
        try:
            answer = decode(model, src, *rest)
            wrong = [one.training for one in model.modules() if one.training != training]
            now = parameters_to_vector(model.parameters()).detach()
        finally:
            model.train(training)
        if not torch.equal(weights, now):
            with torch.no_grad():
                vector_to_parameters(weights, model.parameters())
            raise UnusableError("it changes the weights of the model")
        mode = f"training {wrong[0]}" if wrong else "as before"
        tidied = tidy(settled(answer), len(src), model.config.pad_id)
        words = (tidied[0] if isinstance(tidied, tuple) else tidied).shape[1]
        if words > rest[0] + 1:
            raise UnusableError(f"it does not stop at max_len {rest[0]}: it writes {words} words")
        return tidied, mode

    return run


def name_draws(report: Report, learner: object, case: Case) -> Report:
    """Say so where two calls differ, because words are drawn."""
    slow = "endless loop" in report.diagnosis or "too slow" in report.diagnosis
    if report.attempted and not report.passed and not slow:
        try:
            first, second = (call(_seeded(learner, seed), *case.args) for seed in (0, 1))
        except UnusableError:
            return report
        if not close(first, second):
            report.diagnosis = "two calls say different words: they are drawn, wanted the best ones"
    return report


def _seeded(run: Callable, seed: int) -> Callable:
    """The same run from another random state."""

    def from_seed(*args):
        torch.manual_seed(seed)
        return run(*args)

    return from_seed


def ids(answer: object, rows: int, pad_id: int) -> Tensor:
    """Ids without columns of nothing but pads; lists of rows, and (ids, anything), are taken."""
    if isinstance(answer, tuple) and answer and getattr(answer[0], "ndim", 1) > 1:
        answer = answer[0]
    if isinstance(answer, tuple | list) and len(answer) == rows:
        with contextlib.suppress(TypeError, ValueError, RuntimeError):
            answer = _stacked([torch.as_tensor(row).flatten().tolist() for row in answer], pad_id)
    if not isinstance(answer, Tensor):
        raise UnusableError(f"it must return a tensor of ids, got {type(answer).__name__}")
    if answer.ndim != 2 or len(answer) != rows:
        raise UnusableError(
            f"it must return ids of shape (batch {rows}, words), got shape {tuple(answer.shape)}"
        )
    used = (answer != pad_id).any(dim=0).nonzero()
    return answer[:, : int(used.max()) + 1 if len(used) else 0]


def ids_and_scores(answer: object, rows: int, pad_id: int) -> tuple[Tensor, Tensor]:
    """The best text of each row, and its score."""
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        kind = f"{len(answer)} things" if isinstance(answer, tuple) else type(answer).__name__
        raise UnusableError(f"it must return two things, (ids, scores), got {kind}")
    texts, scores = answer
    if isinstance(texts, Tensor) and texts.is_floating_point() and texts.ndim == 1:
        raise UnusableError("it returns (scores, ids), which have changed places: (ids, scores)")
    if isinstance(texts, Tensor) and texts.ndim == 3:
        raise UnusableError(
            f"it returns all beams, shape {tuple(texts.shape)}; return the best text of each row, "
            "(batch, words)"
        )
    try:
        scores = torch.as_tensor(scores).detach().flatten()
    except (TypeError, ValueError, RuntimeError):
        raise UnusableError(f"scores must be a tensor, got {type(scores).__name__}") from None
    if len(scores) != rows:
        raise UnusableError(f"there must be one score for each of {rows} rows, got {len(scores)}")
    return ids(texts, rows, pad_id), scores


def _stacked(rows: list[list[int]], pad_id: int) -> Tensor:
    width = max(map(len, rows))
    return torch.tensor([row + [pad_id] * (width - len(row)) for row in rows])
