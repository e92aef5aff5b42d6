"""What stands between a submission and the machine, and between it and its graders."""

import ast
import builtins
import linecache
import os
import re
import sys
import traceback
from pathlib import Path
from types import CodeType, ModuleType

import torch
from exercises import defined

import tutorial_transformer.check  # noqa: F401 -- here already when processes split off

try:
    import resource
except ImportError:  # Windows has none
    resource = None

PACKAGE = "tutorial_transformer"
KEPT = ("PATH", "LANG", "PYTHONPATH", "OMP_NUM_THREADS", "MKL_NUM_THREADS")  # of the environment
LARGEST = 20 << 20  # bytes of a submission, and of any file that it writes


def shut_in(home: Path, seconds: float, memory: float) -> None:
    """No input, no output, a folder that is thrown away, and no more than the limits allow."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    home.mkdir()
    os.chdir(home)
    sys.dont_write_bytecode = True
    kept = {name: os.environ[name] for name in KEPT if name in os.environ}
    os.environ.clear()
    os.environ.update(kept, HOME=str(home), TMPDIR=str(home), MPLBACKEND="Agg")
    torch.set_num_threads(1)
    if resource:
        _limit(resource.RLIMIT_CORE, 0)
        _limit(resource.RLIMIT_FSIZE, LARGEST)
        _limit(resource.RLIMIT_CPU, round(seconds) + 1)
        _limit(resource.RLIMIT_AS, _mapped() + int(memory * 2**30))


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    try:
        resource.setrlimit(kind, (value, value))
    except (ValueError, OSError):  # macOS knows no limit of addresses
        if sys.platform == "linux":
            raise


def _mapped() -> int:
    """The bytes of addresses in use before the submission runs: torch maps much, touches little."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def namespace(name: str) -> dict:
    """The names of a new module, which data classes and pickles can find."""
    sys.modules[name] = ModuleType(name)
    return vars(sys.modules[name])


def _compiled(source: str, place: str) -> CodeType:
    """Compile a cell; graders quote its lines, and what only IPython knows is left out."""
    linecache.cache[f"<{place}>"] = (len(source), None, source.splitlines(True), f"<{place}>")
    try:
        return compile(source, f"<{place}>", "exec")
    except SyntaxError:
        plain = re.sub(r"^(\s*)[%!].*$", r"\1pass", source, flags=re.M)
        if plain == source:
            raise
        return compile(plain, f"<{place}>", "exec")


def attempt(source: str, names: dict, place: str) -> str:
    """Run a cell of a submission; what stopped it in a sentence, or nothing."""
    try:
        exec(_compiled(source, place), names)
    except BaseException as error:  # SystemExit and KeyboardInterrupt too
        return sentence(error)
    return ""


def attempt_each(source: str, names: dict) -> list[tuple[str, set[str]]]:
    """Run a file statement by statement, so that one that fails does not hide the others.

    Gives what stopped a statement in a sentence, and the names that it should have defined.
    """
    failed, place = [], "<the file>"
    linecache.cache[place] = (len(source), None, source.splitlines(True), place)
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return [(sentence(error), set())]
    first = [one for one in body if isinstance(one, ast.ImportFrom) and one.module == "__future__"]
    for statement in body:
        try:
            exec(compile(ast.Module([*first, statement], []), place, "exec"), names)
        except BaseException as error:
            failed.append((sentence(error), defined(ast.unparse(statement))))
    return failed


def sentence(error: BaseException) -> str:
    """An error in a line, with the line of the submission where it happened."""
    frames = traceback.extract_tb(error.__traceback__)
    frames = [f for f in frames if f.filename[:1] == "<" and f.filename in linecache.cache]
    line = getattr(error, "lineno", None) if isinstance(error, SyntaxError) else None
    line = line or (frames[-1].lineno if frames else None)
    try:
        text = (str(error).strip().splitlines() or [""])[0]
    except Exception:  # an error of its own whose text fails too
        text = ""
    return f"{f'line {line}: ' if line else ''}{type(error).__name__}: {text}".rstrip(": ")


def snapshot() -> list[tuple[object, dict]]:
    """What the graders stand on, as it is before a submission runs."""
    ours = [module for name, module in sys.modules.items() if name.startswith(PACKAGE)]
    kinds = {one for module in ours for one in vars(module).values() if _is_ours(one)}
    others = [builtins, torch, torch.Tensor, torch.nn.functional]
    return [(owner, dict(vars(owner))) for owner in [*ours, *kinds, *others]]


def put_back(held: list[tuple[object, dict]]) -> None:
    """Undo what a submission has changed in them, and added to our classes."""
    for owner, members in held:
        now = dict(vars(owner))
        for name in now.keys() - members.keys() if _is_ours(owner) else ():
            delattr(owner, name)
        for name, value in members.items():
            if now.get(name) is not value:
                setattr(owner, name, value)


def _is_ours(one: object) -> bool:
    return isinstance(one, type) and one.__module__.startswith(PACKAGE)
