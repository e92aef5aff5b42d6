"""Call a learner's code so that nothing it does can hurt the notebook that asks.

The code runs in a thread of its own with a time limit; what it prints is kept aside, the random
state and the arguments are put back or compared, and an error becomes a sentence.
"""

import contextlib
import ctypes
import io
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

TIME_LIMIT = 2.0  # seconds a call; right code needs a hundredth of it


class OutOfTime(BaseException):
    """Raised inside the learner's thread when its time is over; not an Exception on purpose."""


class UnusableError(Exception):
    """A sentence for the learner about a call that gave no usable answer."""

    def __init__(self, sentence: str, final: bool = False) -> None:
        super().__init__(sentence)
        self.final = final  # further calls would only cost time


class NotAttemptedError(Exception):
    """The learner's function is still the stub."""


def call(function: Callable, *args, limit: float = TIME_LIMIT) -> object:
    """Call the function; raises UnusableError if it raises, loops, or changes its arguments."""
    before = [_copy(value) for value in args]
    box = _Box()
    worker = threading.Thread(target=_run, args=(box, function, args), daemon=True)
    with _put_back(), contextlib.redirect_stdout(io.StringIO()):
        worker.start()
        worker.join(limit)
        if worker.is_alive():
            _stop(worker)
            raise UnusableError(
                f"it does not come back within {limit} s: an endless loop?", final=True
            )
    changed = _restored(before, args)
    if isinstance(box.error, UnusableError):  # a grader's own sentence, from inside the call
        raise box.error
    if isinstance(box.error, NotImplementedError) and "not implemented for" not in str(box.error):
        raise NotAttemptedError  # the other text is torch's, about a dtype
    if box.error is not None:
        raise UnusableError(_sentence(box.error))
    if changed:
        raise UnusableError("it changes its argument in place; work on a copy")
    return box.value


@contextlib.contextmanager
def _put_back() -> Iterator[None]:
    """Put torch's random state and default dtype back as they were; warnings are no failures."""
    dtype = torch.get_default_dtype()
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_default_dtype(dtype)


@dataclass
class _Box:
    value: object = None
    error: BaseException | None = None


def _run(box: _Box, function: Callable, args: tuple) -> None:
    try:
        box.value = function(*args)
    except BaseException as error:  # SystemExit and KeyboardInterrupt of the learner's too
        box.error = error


def _stop(worker: threading.Thread) -> None:
    """Ask the thread to raise OutOfTime at its next line."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(worker.ident), ctypes.py_object(OutOfTime)
    )
    worker.join(0.2)


def _copy(value: object) -> object:
    return value.detach().clone() if isinstance(value, Tensor) else value


def _restored(before: list, args: tuple) -> bool:
    """Put changed arguments back for the next case; whether there were any."""
    changed = False
    for old, new in zip(before, args, strict=True):
        if isinstance(old, Tensor) and not _same(old, new):
            new.data, changed = old, True
    return changed


def _same(old: Tensor, new: Tensor) -> bool:
    if old.shape != new.shape or old.dtype != new.dtype:
        return False
    return torch.equal(torch.nan_to_num(old.double()), torch.nan_to_num(new.detach().double()))


def _sentence(error: BaseException) -> str:
    """An error in one line, with the learner's own line where it happened."""
    frames = traceback.extract_tb(error.__traceback__)[1:]
    own = [frame for frame in frames if "site-packages" not in frame.filename]
    where = f" in the line `{own[-1].line}`" if own and own[-1].line else ""
    text = str(error).strip().splitlines()
    return f"it raises {type(error).__name__}{where}: {text[0] if text else ''}".rstrip(": ")


def close(got: object, wanted: object, tolerance: float = 1e-5) -> bool:
    """Whether two answers are the same: nested tuples, tensors in value and shape, numbers."""
    if isinstance(wanted, tuple | list):
        return (
            isinstance(got, tuple | list)
            and len(got) == len(wanted)
            and all(close(a, b, tolerance) for a, b in zip(got, wanted, strict=True))
        )
    if isinstance(wanted, Tensor):
        if not isinstance(got, Tensor) or got.shape != wanted.shape:
            return False
        if (got.dtype == torch.bool) != (wanted.dtype == torch.bool):
            return False
        got, wanted = got.detach().double().cpu(), wanted.detach().double().cpu()
        return torch.allclose(got, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)
    if isinstance(wanted, float | int) and not isinstance(wanted, bool):
        got = got.item() if isinstance(got, Tensor) and got.numel() == 1 else got
        return isinstance(got, float | int) and abs(got - wanted) <= tolerance * max(1, abs(wanted))
    return got == wanted


def set_parameters(module: nn.Module, seed: int = 0) -> None:
    """Fill all parameters of a module with small random numbers, in the order of their names."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, parameter in sorted(module.named_parameters()):
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
