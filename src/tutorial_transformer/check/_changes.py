"""What people do to a right answer, or to an input before it: mistakes of every component.

Each is the reference, wrong in one way, under the sentence that names it.
"""

from collections.abc import Callable, Iterator
from itertools import combinations, permutations

import torch
import torch.nn.functional as F
from torch import Tensor

AXES = ("first", "second", "third", "fourth")


def _norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


BENDS = {
    "a ReLU": torch.relu,
    "a softmax": lambda x: x.softmax(-1),
    "a logarithm": torch.log,
    "a sigmoid": torch.sigmoid,
    "a tanh": torch.tanh,
    "a GELU": F.gelu,
    "a LayerNorm": _norm,
}
OUTPUT: dict[str, Callable] = {
    "the answer has the wrong sign": torch.neg,
    "the answer of the first sentence is given for the whole batch": (
        lambda answer: answer[:1].expand_as(answer)
    ),
    "only the last position comes back": lambda answer: answer[:, -1],
    "only the last position comes back, with its axis": lambda answer: answer[:, -1:],
    "an axis of size 1 is squeezed away: a batch of one keeps its axis": torch.squeeze,
} | {f"{name} is applied to the answer; it does not belong there": BENDS[name] for name in BENDS}
for _axis, _name in enumerate(AXES):
    OUTPUT |= {
        f"the order along the {_name} axis of the answer is reversed": (
            lambda answer, axis=_axis: answer.flip(axis)
        ),
        f"the answer is averaged over its {_name} axis": (
            lambda answer, axis=_axis: answer.mean(axis, keepdim=True).expand_as(answer)
        ),
        f"the answer is averaged over its {_name} axis, which is gone": (
            lambda answer, axis=_axis: answer.mean(axis)
        ),
        f"the answer is summed over its {_name} axis, which is gone": (
            lambda answer, axis=_axis: answer.sum(axis)
        ),
    }
for _one, _other in combinations(range(4), 2):
    OUTPUT[f"the {AXES[_one]} and the {AXES[_other]} axis of the answer are exchanged"] = (
        lambda answer, one=_one, other=_other: answer.transpose(one, other)
    )
for _order in (*permutations(range(3)), *permutations(range(4))):
    OUTPUT[f"the axes of the answer are permuted: they stand in the order {_order}"] = (
        lambda answer, order=_order: answer.permute(order)
    )


def _first(inputs: tuple) -> int:
    """The place of the first input that is vectors, not ids or masks."""
    return next(
        at for at, x in enumerate(inputs) if isinstance(x, Tensor) and x.is_floating_point()
    )


def _bent_first(reference: Callable, bend: Callable) -> Callable:
    def run(*inputs):
        at = _first(inputs)
        return reference(*inputs[:at], bend(inputs[at]), *inputs[at + 1 :])

    return run


def _exchanged(reference: Callable, one: int, other: int) -> Callable:
    def run(*inputs):
        order = list(range(len(inputs)))
        order[one], order[other] = other, one
        return reference(*(inputs[at] for at in order))

    return run


def changed(reference: Callable) -> Iterator[tuple[str, Callable]]:
    """Yield the reference, wrong in each of these ways, under the sentence for it."""
    for says, change in OUTPUT.items():
        yield says, lambda *inputs, change=change: change(reference(*inputs))
    says = "an input is added to the answer: leave the residual to the block around it"
    added = lambda *inputs: reference(*inputs) + inputs[_first(inputs)]  # noqa: E731
    yield says, added
    yield says + ", and the norm too", lambda *inputs: _norm(added(*inputs))
    for name, bend in BENDS.items():
        says = f"{name} is applied to the first input; it does not belong there"
        yield says, _bent_first(reference, bend)
    for one, other in combinations(range(3), 2):
        says = f"the {AXES[one]} and the {AXES[other]} argument have changed places"
        yield says, _exchanged(reference, one, other)


def factor(got: object, wanted: object) -> float | None:
    """The number by which an answer is too large or too small, if it is but that."""
    tensors = isinstance(got, Tensor) and isinstance(wanted, Tensor)
    if (
        not tensors
        or wanted.count_nonzero() < 2
        or got.shape != wanted.shape
        or not wanted.is_floating_point()
    ):
        return None
    got, wanted = got.detach().double(), wanted.detach().double()
    size = float(wanted.square().sum())
    ratio = float((got * wanted).sum()) / size if size else 0.0
    return ratio if abs(ratio) > 1e-6 and torch.allclose(got, ratio * wanted, 1e-4, 1e-5) else None
