"""What a long run needs around its steps: progress, a patient Ctrl-C, modes, other processes."""

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from tqdm import tqdm


class Progress:
    """Tell the reader how far training is: a bar, ten lines, or nothing."""

    def __init__(self, kind: str, num_steps: int, done: int = 0) -> None:
        if kind not in ("auto", "bar", "lines", "none"):
            raise ValueError(f"progress must be 'auto', 'bar', 'lines' or 'none', got {kind!r}")
        if kind == "auto":
            kind = "bar" if sys.stderr.isatty() else "lines"
        self.kind, self.num_steps, self.done = kind, num_steps, done
        round_steps = (digit * 10**power for power in range(9) for digit in (1, 2, 5))
        self.every = next(step for step in round_steps if num_steps <= 10 * step)

    def __enter__(self) -> "Progress":
        self.bar = tqdm(total=self.num_steps, initial=self.done, disable=self.kind != "bar")
        return self

    def __call__(self, step: int, loss: float) -> None:
        """Report the loss of a step."""
        self.bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
        self.bar.update()
        if self.kind == "lines" and step % self.every == 0:
            print(f"step {step:5d}   loss {loss:.3f}")

    def __exit__(self, *error) -> None:
        self.bar.close()


@contextmanager
def finish_the_step() -> Iterator[Callable[[], bool]]:
    """Hold back Ctrl-C, which would leave a half-made step; yields a function: did it come?"""
    came = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield came.is_set  # only the main thread may set a handler, and only it gets the signal
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: came.set())
    try:
        yield came.is_set
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def put_back_modes(model: nn.Module) -> Iterator[None]:
    """Put every module back into train or eval mode as it was, whatever happens meanwhile."""
    modes = {module: module.training for module in model.modules()}
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training


def join_processes(device: torch.device) -> tuple[int, int]:
    """Return (rank, number of processes); joins the others where torchrun started several."""
    if not dist.is_available():
        return 0, 1
    if int(os.environ.get("WORLD_SIZE", 1)) > 1 and not dist.is_initialized():
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        atexit.register(dist.destroy_process_group)
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
