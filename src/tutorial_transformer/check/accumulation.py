"""A grader of chapter 10: the gradient of a batch that comes in parts."""

import functools
from collections.abc import Callable

import torch

from tutorial_transformer.check._calling import by_position
from tutorial_transformer.check._grade import Case, grade
from tutorial_transformer.check._parts import WRONG_WEIGHTS, gradients, mixed, shares, slope
from tutorial_transformer.check._report import Report
from tutorial_transformer.check._trial import NotAttemptedError, UnusableError, call
from tutorial_transformer.data import Batch

MOVED = "a weight has moved: this is not yet the time for an optimiser's step"

ALONE = (
    "already one micro-batch alone has another gradient: is it model(src, tgt_in), with the loss "
    "on tgt_out, and without its pads?"
)


def accumulate_gradients(function: object) -> Report:
    """Grade accumulate_gradients(model, micro_batches) -> None; the gradient stays in the model.

    micro_batches is a list of Batch(src, tgt_in, tgt_out) with different numbers of real tokens.
    Afterwards each parameter's .grad must be that of the mean loss per real token of all of them
    together, as if they had been one batch; no weight has moved.
    """
    report = Report(
        "accumulate_gradients",
        "accumulate_gradients(model, micro_batches) -> None; leaves in each parameter's .grad the "
        "gradient of the mean loss per real token over all micro-batches, and moves no weight",
        "chapter 10, 6. Split a batch that does not fit",
    )
    three = _micro_batches((2, 5), (3, 4), (1, 2))
    named = [
        ("one micro-batch is the whole batch", "2 rows", three[:1]),
        ("equal parts add up to the whole", "twice the same rows", [three[0], three[0]]),
        ("unequal parts add up to the whole", "micro-batches of 2 × 5, 3 × 4, 1 × 2 ids", three),
    ]
    cases = [Case(name, text, (parts,), view=lambda x: x[0]) for name, text, parts in named]
    every = "every parameter has its gradient", "micro-batches of 2 × 5, 3 × 4, 1 × 2 ids"
    cases += [
        Case(*every, (three,), "a part of the model has no gradient", lambda x: x[1]),
        Case("no weight moves", "2 rows", (three[:1],), MOVED, lambda x: x[2]),
        Case("no weight moves", "three micro-batches", (three,), MOVED, lambda x: x[2]),
    ]
    wrong = {name: mixed(weights) for name, weights in WRONG_WEIGHTS.items()}
    learner = gradients(by_position(function, "model", "micro_batches"))
    grade(report, learner, cases, mixed(lambda tokens, rows, ids: shares(tokens)), wrong)
    if any(item.name == "no weight moves" and not item.passed for item in report.properties):
        moved = next(item for item in report.properties if item.name == "no weight moves")
        report.diagnosis = MOVED if "a weight moved" in moved.got else report.diagnosis
    elif report.diagnosis.startswith("this does not hold"):
        report.diagnosis = _mixture(learner, three)
    return report


def _mixture(learner: Callable, parts: list[Batch]) -> str:
    """Say how much of each part's gradient the learner's gradient holds."""
    try:
        (_, got, _), (_, alone, _) = call(learner, parts), call(learner, parts[:1])
    except (UnusableError, NotAttemptedError) as error:
        return str(error)
    if isinstance(got, str):
        return got
    got, each = got.double(), torch.stack([slope(part)[1].double() for part in parts])
    weights = torch.linalg.lstsq(each.T, got[:, None]).solution[:, 0]
    tokens = torch.tensor([float((part.tgt_out != 0).sum()) for part in parts])
    if (weights @ each - got).norm() > 1e-3 * got.norm():
        if abs(torch.cosine_similarity(alone.double(), each[0], dim=0)) < 0.9999:
            return ALONE
        return (
            "the gradient is no sum of the parts' gradients: do padded targets count, or does a "
            "part see what another one has changed?"
        )
    sizes = [round(float(one), 3) + 0.0 for one in weights]
    factor = weights * tokens.sum() / tokens
    if (factor < 0).all():
        return f"the sign is wrong, the loss would rise: the parts weigh {sizes}"
    if (factor - factor[0]).abs().max() < 1e-3:
        return (
            f"the whole gradient is {factor[0]:.3g} times the right one: the sum of all losses is "
            f"divided by {tokens.sum() / factor[0]:.4g}, wanted {tokens.sum():g}, the number of "
            "real tokens in tgt_out (or is it clipped?)"
        )
    lost = ": only one part is left, not all are added up" if (weights.abs() < 1e-3).any() else ""
    wanted = [round(float(one), 3) for one in tokens / tokens.sum()]
    return f"the parts weigh {sizes}, wanted their shares of the real tokens, {wanted}{lost}"


@functools.cache
def _micro_batches(*sizes: tuple[int, int]) -> list[Batch]:
    """Random batches of (rows, tgt_len); the first row of each is padded by one."""
    generator, batches = torch.Generator().manual_seed(0), []
    for rows, length in sizes:
        src = torch.randint(3, 9, (rows, 4), generator=generator)
        tgt = torch.randint(3, 8, (rows, length + 1), generator=generator)
        tgt[:, 0], tgt[0, -1] = 1, 0
        batches.append(Batch(src, tgt[:, :-1], tgt[:, 1:]))
    return batches
