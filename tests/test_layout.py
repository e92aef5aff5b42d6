"""The package is a building: a file imports only from floors below its own."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NAME = "tutorial_transformer"
SOURCES = sorted(path for path in (ROOT / "src" / NAME).glob("*.py") if path.stem != "__init__")
MODULES = [path for path in SOURCES if not path.stem.startswith("_")]

FLOORS = [
    {"masks", "attention", "feed_forward", "embeddings", "add_norm", "plotting", "vocab"},
    {"multi_head", "data"},
    {"encoder", "decoder"},
    {"transformer"},
    {"checkpoints", "evaluation"},
    {"training", "decoding", "attention_maps"},
    {"model_families", "vision", "efficient_attention", "positions"},
]
FLOOR = {name: height for height, names in enumerate(FLOORS) for name in names}
TOP = len(FLOORS)  # the graders see all of the building
FLOOR |= {"_checks": -1, "_running": -1, "check": TOP, "_commands": TOP + 1, "__main__": TOP + 2}
GRADERS = sorted((ROOT / "src" / NAME / "check").glob("*.py"))


def imports_of(code):
    """All modules that some code imports, in whatever form and place; ours begin with a dot."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = f"{NAME}.{node.module or ''}".rstrip(".") if node.level else node.module
            found |= {f"{base}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called in ("import_module", "__import__") and isinstance(node.args[0], ast.Constant):
                found.add(node.args[0].value)
    ours = NAME + "."
    return {
        "." + name.removeprefix(ours).split(".")[0] if name.startswith(ours) else name.split(".")[0]
        for name in found
    }


@pytest.mark.parametrize(
    "code",
    [
        "import tutorial_transformer.masks",
        "import math, tutorial_transformer.masks as m",
        "from tutorial_transformer import _checks, masks",
        "from tutorial_transformer.masks import causal_mask as c",
        "from . import masks",
        "from .masks import causal_mask",
        "def f():\n    if True:\n        from tutorial_transformer.masks import causal_mask",
        "import importlib\nimportlib.import_module('tutorial_transformer.masks')",
        "m = __import__('tutorial_transformer.masks')",
    ],
)
def test_the_reader_of_imports_sees_every_form(code):
    assert ".masks" in imports_of(code)
    assert ".masks" not in imports_of(code.replace("masks", "decoder"))
    assert imports_of("import matplotlib.pyplot as plt") == {"matplotlib"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_imports_only_go_down(path):
    assert path.stem in FLOOR, f"{path.stem} has no floor in DESIGN.md"
    imports = imports_of(path.read_text(encoding="utf-8"))
    for name in sorted(name[1:] for name in imports if name.startswith(".")):
        assert FLOOR[name] < FLOOR[path.stem], f"{path.stem} must not import {name}"
    assert NAME not in imports, "import modules, not the package"
    if path.stem not in ("plotting", "_commands"):  # a command draws, the model never does
        assert not {"matplotlib", "seaborn", ".plotting"} & imports


@pytest.mark.parametrize("path", GRADERS, ids=lambda path: path.stem)
def test_graders_stand_on_the_building_and_draw_nothing(path):
    imports = imports_of(path.read_text(encoding="utf-8"))
    ours = {name[1:] for name in imports if name.startswith(".")} - {"check"}
    assert all(FLOOR[name] < TOP for name in ours)
    assert not {NAME, "matplotlib", "seaborn", ".plotting"} & imports


def test_checks_and_the_package_itself_stand_on_nothing_of_ours():
    for stem in ("__init__", "_checks"):
        imports = imports_of((ROOT / "src" / NAME / f"{stem}.py").read_text(encoding="utf-8"))
        assert not any(name.startswith((".", NAME)) for name in imports)
    plotting = (ROOT / "src" / NAME / "plotting.py").read_text(encoding="utf-8")
    assert {"matplotlib", "seaborn"} <= imports_of(plotting)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_every_module_has_a_test_file_of_its_name(path):
    tests = ROOT / "tests" / f"test_{path.stem}.py"
    assert tests.exists()
    assert f".{path.stem}" in imports_of(tests.read_text(encoding="utf-8"))


def test_there_are_modules_on_every_floor_of_the_main_line():
    stems = {path.stem for path in MODULES}
    assert all(floor <= stems for floor in FLOORS[:6])
