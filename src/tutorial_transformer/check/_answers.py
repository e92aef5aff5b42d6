"""What a learner's code gives back, in the one form that graders compare."""

import inspect

import torch
from torch import Tensor

MOST = 10**7  # numbers in an answer; no right one is nearly so large


class UnusableError(Exception):
    """A sentence for the learner about a call that gave no usable answer."""

    def __init__(self, sentence: str, final: bool = False) -> None:
        super().__init__(sentence)
        self.final = final  # further calls would only cost time


class NotAttemptedError(Exception):
    """The learner's function is still the stub."""


def settled(answer: object) -> object:
    """The answer, arrays as tensors; a coroutine, generator or tensor without numbers is none."""
    if inspect.iscoroutine(answer):
        answer.close()
        raise UnusableError(
            "it is an async function, whose call gives a coroutine; write plain def"
        )
    if inspect.isgenerator(answer):
        raise UnusableError("it yields, so a call gives a generator; return the answer instead")
    if isinstance(answer, tuple | list):
        for one in filter(inspect.iscoroutine, answer):
            one.close()
        return type(answer)(map(settled, answer)) if type(answer) in (tuple, list) else answer
    if type(answer).__module__ == "numpy":
        try:
            answer = torch.as_tensor(answer)
        except TypeError:
            raise UnusableError(f"it returns an array of {answer.dtype}, not of numbers") from None
    return _plain(answer) if isinstance(answer, Tensor) else answer


def _plain(answer: Tensor) -> Tensor:
    """The tensor, if its numbers can be read."""
    if answer.is_nested or answer.is_meta or answer.is_quantized:
        raise UnusableError("it returns a nested, quantized or meta tensor; wanted a plain one")
    answer = answer.to_dense() if answer.layout != torch.strided else answer
    if answer.numel() > MOST or answer.is_complex():
        kind = str(answer.dtype).removeprefix("torch.")
        raise UnusableError(f"it returns a {kind} tensor of shape {tuple(answer.shape)}")
    return answer


def tensor_of(answer: object) -> Tensor:
    """The answer, if it is one tensor, or nested lists of numbers."""
    answer = settled(answer)
    if isinstance(answer, list):
        try:
            answer = torch.tensor(answer)
        except (TypeError, ValueError, RuntimeError):
            raise UnusableError("it must return one tensor, got a list") from None
    if not isinstance(answer, Tensor):
        raise UnusableError(f"it must return one tensor, got {type(answer).__name__}")
    return answer
