"""Grade what a file of the learner's defines under the names of components."""

import ast
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

from tutorial_transformer.check._report import Report
from tutorial_transformer.check._trial import NotAttemptedError, UnusableError, call
from tutorial_transformer.check.names import GRADERS, recognised

FILE_LIMIT = 60.0  # seconds for what the file itself does, imports of its own included


def grade_file(path: Path, only: Sequence[str] = ()) -> Iterator[Report]:
    """Run a file and grade each of its functions and classes whose name is a component's.

    The file is run as an imported one, so nothing under `if __name__ == "__main__"` happens. What
    it imports is not graded. `only` are names of components, or of things in the file. Raises
    ValueError if the file cannot be run, or holds nothing of that name.
    """
    try:
        own = _own_names(ast.parse(path.read_text(encoding="utf-8"), filename=str(path)))
        values = vars(call(_imported, path, limit=FILE_LIMIT))
    except (SyntaxError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read as Python: {error}") from error
    except NotAttemptedError:
        raise ValueError(f"{path} cannot be run: it raises NotImplementedError") from None
    except UnusableError as mistake:
        raise ValueError(f"{path} cannot be run: {mistake}") from None
    found = {
        name: recognised(name)
        for name, value in values.items()
        if name in own and isinstance(value, Callable) and recognised(name)
    }
    for wanted in only:
        if recognised(wanted) is None and wanted not in found:
            raise ValueError(f"there is no grader {wanted!r}; there are {', '.join(GRADERS)}")
        if not {wanted, recognised(wanted)} & {*found, *found.values()}:
            raise ValueError(f"{path} has no {wanted}; found are: {', '.join(found) or 'none'}")
    if not found:
        raise ValueError(f"{path} defines no component; names are {', '.join(GRADERS)}")
    asked = {wanted for name in only for wanted in (name, recognised(name))}
    for name, grader in found.items():
        if not only or {name, grader} & asked:
            report = GRADERS[grader](values[name])
            report.component = grader if name == grader else f"{grader} ({name})"
            yield report


def _own_names(tree: ast.Module) -> set[str]:
    """What the file defines or assigns itself, and does not only import."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def _imported(path: Path) -> ModuleType:
    """The file as a module, which finds the files beside it."""
    spec = importlib.util.spec_from_file_location(f"graded_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickling look there
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.resolve().parent))
    return module
