"""Start the processes in which submissions run, end them in time, and read what they found."""

import contextlib
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from io import BufferedReader
from pathlib import Path

from submission import SCRIPT, Job, work

# A process that is split off has torch already; elsewhere than on Linux that is not safe.
PROCESSES = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
SHARE = 4  # no step may take more than this part of a file's time, so that the others have some
STATES = ("passed", "failed", "not attempted", "not handed in")  # the best first


@dataclass
class Outcome:
    """What is known of a file: state and diagnosis of its exercises, and remarks on the file."""

    verdicts: dict[str, tuple[str, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    step: str = SCRIPT
    ended: bool = False

    def hear(self, kind: str, *rest: object) -> None:
        """Take in a message of the process."""
        if kind == "begin":
            self.step = str(rest[0])
        elif kind == "verdict" and rest[0] in self.found and rest[1] in STATES:
            self.verdicts[rest[0]] = (rest[1], str(rest[2])[:1000])
        elif kind == "found":
            self.found = self.found or [str(number) for number in rest[0]]
        elif kind == "note" and rest[0] not in self.notes:
            self.notes.append(str(rest[0])[:1000])
        self.ended = kind == "end"

    def fail(self, says: str, *numbers: str) -> None:
        """Give exercises without a verdict one."""
        for number in numbers:
            self.verdicts.setdefault(number, ("failed", says))


def grade_file(job: Job) -> Outcome:
    """Grade one file; where a step ends the process, a new one goes on without that step."""
    outcome, skip, until = Outcome(), set(), time.monotonic() + job.seconds
    while not outcome.ended:
        done = frozenset(outcome.verdicts)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            results = Path(folder, "results")
            reason = _run(
                replace(job, results=results, skip=frozenset(skip), done=done), outcome, until
            )
        if outcome.ended:
            break
        if outcome.step in outcome.found:
            outcome.fail(f"it {reason}", outcome.step)
        else:
            outcome.notes.append(f"{outcome.step} {reason}")
        if time.monotonic() > until or outcome.step in {SCRIPT, *skip}:  # no use in going on
            outcome.fail(f"{outcome.step} {reason}", *outcome.found)
            break
        skip.add(outcome.step)
    return outcome


def _run(job: Job, outcome: Outcome, until: float) -> str:
    """Run one process to its end, or to the end of its time; how it ended."""
    outcome.step = SCRIPT
    job.results.touch()
    process = PROCESSES.Process(target=work, args=(job,))
    process.start()
    try:
        with job.results.open("rb") as file:
            return _follow(process, file, outcome, job.seconds, until)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # what it has started ends with it
        process.kill()
        process.join()


def _follow(process, file: BufferedReader, outcome: Outcome, seconds: float, until: float) -> str:
    begun = time.monotonic()
    while True:
        process.join(0.02)
        code = process.exitcode  # asked before the last messages are read
        for message in _messages(file):
            with contextlib.suppress(LookupError, TypeError):  # not one of ours
                outcome.hear(*message)
            begun = time.monotonic()
        if code is not None:
            return _ended(code)
        if time.monotonic() > until:
            return f"uses up the time of the file, {seconds:g} s"
        if time.monotonic() > begun + seconds / SHARE:
            return f"does not come to an end within {seconds / SHARE:g} s"


def _messages(file: BufferedReader) -> Iterator[list]:
    """The whole lines that are new; a line that is not ours is left out."""
    for line in file:
        if not line.endswith(b"\n"):
            file.seek(-len(line), os.SEEK_CUR)
            return
        with contextlib.suppress(ValueError):
            yield json.loads(line)


def _ended(code: int) -> str:
    if code >= 0:
        return f"ended the process, exit code {code}"
    name = signal.Signals(-code).name if -code in list(signal.Signals) else f"signal {-code}"
    means = {"SIGXCPU": "no processor time left", "SIGKILL": "perhaps no memory left"}
    return f"ended the process, {name}" + (f": {means[name]}" if name in means else "")
