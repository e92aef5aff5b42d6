"""Give a learner's code its arguments by position, or by name where it takes them otherwise."""

import inspect
import re
from collections.abc import Callable, Sequence

from torch import nn

from tutorial_transformer.check._answers import settled

NAMES = {  # how people call an argument
    "d_model": r"d_?model|^d$|^dim$|embed|n_embd|emb_dim|width",
    "num_heads": r"num_?heads|n_?heads?$|heads$|^h$",
    "d_ff": r"ff|inner|hidden|mlp",
    "vocab_size": r"voc|num_emb|tokens",
    "length": r"len|seq|positions|^n$|^t$",
    "mask": r"mask",
    "sublayer": r"sub|^f$|^fn$|func|layer",
    "x": r"^x$|input",
    "weight": r"weight|gain|gamma|^[gw]$",
    "bias": r"bias|beta|shift|^b$",
    "dropout": r"drop|rate|prob|^p$",
    "norm_first": r"norm_first|pre",
    "max_len": r"max|positions|len(gth)?$",
    "pad_id": r"pad",
    "eps": r"eps",
    "batch_first": r"^batch_first$",
    "offset": r"offset|start|begin|shift|past|step|^pos(ition)?$",
}
SPARE = {"drop|rate|prob|^p$": 0.0, "pad": 0, "eps": 1e-5, "max|len": 64, "bias": True}


def parameters_of(code: object) -> dict[str, inspect.Parameter]:
    """The arguments of a function, class or module; none if Python cannot tell."""
    try:
        code = code.forward if isinstance(code, nn.Module) else code
        return dict(inspect.signature(code).parameters)
    except Exception:  # builtins, and objects that are broken
        return {}


def name_of(code: object, role: str) -> str:
    """How the code calls this argument; "" if it has none."""
    return next((name for name in parameters_of(code) if _is(role, name)), "")


def _is(role: str, name: str) -> bool:
    return role in NAMES and bool(re.search(NAMES[role], name.lower()))


def by_position(code: object, *names: str, spare: Callable = lambda *inputs: {}) -> Callable:
    """The code as a function of positional arguments, whatever order and names it wants."""

    def run(*inputs):
        placed, named = arranged(code, names, inputs, spare(*inputs))
        return settled(code(*placed, **named))

    return run


def arranged(code: object, names: Sequence[str], values: Sequence, spare: dict | None = None):
    """Which values go by position, and which by name.

    An argument goes where it stands in `names`, unless the code calls another one so. spare are
    values for arguments that nobody asked for but the code requires, each under a pattern.
    """
    given = parameters_of(code)
    kinds = {one.kind for one in given.values()}
    if not given or inspect.Parameter.VAR_POSITIONAL in kinds:
        return tuple(values), {}
    places = [name for name, one in given.items() if one.kind in (0, 1)]  # not by name only
    others = [name for name, one in given.items() if one.kind is inspect.Parameter.KEYWORD_ONLY]
    loose = inspect.Parameter.VAR_KEYWORD in kinds
    chosen: list[str] = []
    for place, role in enumerate(names[: len(values)]):
        own = places[place] if place < len(places) else ""
        known = [name for name in (*places, *others) if _is(role, name) and name not in chosen]
        left = [name for name in others if name not in chosen and name != role]
        left = [role] * (role in others) + left
        last = own or (left[0] if left else role if loose else "")
        chosen.append(own if own and _is(role, own) else known[0] if known else last)
    named = _spared(given, chosen, SPARE | (spare or {}))
    unclear = "" in chosen or len({*chosen}) < len(chosen)
    if unclear or chosen == places[: len(chosen)]:
        return tuple(values), named
    fixed = [name for name, one in given.items() if one.kind == 0]  # by position only
    pairs = dict(zip(chosen, values, strict=False))
    placed = tuple(pairs.pop(name) for name in fixed if name in pairs)
    return placed, pairs | named


def _spared(given: dict[str, inspect.Parameter], chosen: list[str], spare: dict) -> dict:
    """Values for what is required and not chosen; the last pattern that fits decides."""
    named = {}
    for name, one in given.items():
        fitting = [value for want, value in spare.items() if re.search(want, name.lower())]
        if fitting and one.default is one.empty and one.kind in (1, 3) and name not in chosen:
            named[name] = fitting[-1]
    return named
