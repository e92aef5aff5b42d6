"""Call a learner's code so that nothing it does can hurt the notebook that asks.

The code runs in a thread of its own with a time limit; what it prints is kept aside, the random
state and the arguments are put back or compared, and an error becomes a sentence.
"""

import contextlib
import ctypes
import io
import os
import random
import re
import threading
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tutorial_transformer.check._answers import NotAttemptedError, UnusableError, settled
from tutorial_transformer.check._clock import Clock

PACKAGE = str(Path(__file__).parent.parent)
TIME_LIMIT = 2.0  # seconds a call; right code needs a hundredth of it


class OutOfTime(BaseException):
    """Raised inside the learner's thread when its time is over; not an Exception on purpose."""


def call(function: object, *args, limit: float = TIME_LIMIT) -> object:
    """Call the function; raises UnusableError if it raises, loops, or changes its arguments."""
    before = [_copy(value) for value in args]
    box = _Box()
    worker = threading.Thread(target=_run, args=(box, function, args), daemon=True)
    with (
        _put_back(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        clock = Clock(limit)
        worker.start()
        while worker.is_alive():
            worker.join(0.05)
            if worker.is_alive() and clock.is_over():
                _stop(worker)
                raise UnusableError(
                    f"it does not come back within {limit} s: an endless loop?", final=True
                )
    changed = _restored(before, args)
    if isinstance(box.error, UnusableError):  # a grader's own sentence, from inside the call
        raise box.error
    if isinstance(box.error, NotImplementedError):
        _judge_stub(str(box.error))
    if box.error is not None:
        raise UnusableError(_sentence(box.error))
    if changed:
        raise UnusableError("it changes its argument in place; work on a copy")
    return settled(box.value)


def _judge_stub(text: str) -> None:
    """A NotImplementedError is the stub's, or torch's about a dtype or a missing forward."""
    if lacking := re.match(r"Module \[(\w+)\] is missing the required", text):
        raise UnusableError(f"{lacking[1]} has no method forward")
    if "not implemented for" not in text:
        raise NotAttemptedError


@contextlib.contextmanager
def _put_back() -> Iterator[None]:
    """Put random states, dtype and folder back as they were; warnings are no failures."""
    folder = os.getcwd()
    dtype, state, state_of_numpy = (
        torch.get_default_dtype(),
        random.getstate(),
        np.random.get_state(),
    )
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        os.chdir(folder)
        torch.set_default_dtype(dtype)
        random.setstate(state)
        np.random.set_state(state_of_numpy)


@dataclass
class _Box:
    value: object = None
    error: BaseException | None = None


def _run(box: _Box, function: object, args: tuple) -> None:
    try:
        box.value = function(*args)
    except BaseException as error:  # SystemExit and KeyboardInterrupt of the learner's too
        box.error = error


def _stop(worker: threading.Thread) -> None:
    """Ask the thread to raise OutOfTime at its next line; again, if it catches even that."""
    for _ in range(5):
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(worker.ident), ctypes.py_object(OutOfTime)
        )
        worker.join(0.1)
        if not worker.is_alive():
            break


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
    own = [
        frame
        for frame in frames
        if "site-packages" not in frame.filename and not frame.filename.startswith(PACKAGE)
    ]
    where = f" in the line `{own[-1].line}`" if own and own[-1].line else ""
    try:
        text = str(error).strip().splitlines()
    except Exception:  # an error of the learner's own, broken too
        text = []
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
        relative = tolerance * wanted.is_floating_point()  # whole numbers are exact
        got, wanted = got.detach().double().cpu(), wanted.detach().double().cpu()
        return torch.allclose(got, wanted, rtol=relative, atol=tolerance, equal_nan=True)
    if isinstance(wanted, float | int) and not isinstance(wanted, bool):
        got = got.item() if isinstance(got, Tensor) and got.numel() == 1 else got
        size = max(1, abs(wanted)) if isinstance(wanted, float) else 1
        return isinstance(got, float | int) and abs(got - wanted) <= tolerance * size
    try:
        return bool(got == wanted)
    except Exception:  # of an object of the learner's own
        return False


def set_parameters(module: nn.Module, seed: int = 0) -> None:
    """Fill all parameters of a module with small random numbers, in the order of their names."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for _, parameter in sorted(module.named_parameters()):
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
