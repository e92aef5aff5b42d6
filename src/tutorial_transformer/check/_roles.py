"""Find the projections of somebody's attention module: w_q, w_k, w_v and w_o, whatever they are.

Known forms: square linear maps, one map for q, k and v or for k and v, and small maps for each
head; as nn.Linear, nn.Conv1d or bare parameters. Names say who is who, or else the order; a
grader may try all other orders too.
"""

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

NORMS = (nn.LayerNorm, nn.RMSNorm)
LAYERS = (nn.Linear, nn.Conv1d)
PATTERN = "(w|to|lin|linear|fc|proj)?({})(proj|linear)?"
WORDS = {
    "q": "q|query|queries|qs",
    "k": "k|key|keys|ks",
    "v": "v|value|values|vs",
    "o": "o|out|output|outputs|concat|combine|merge",
}


class Map(NamedTuple):
    """A linear map: x @ weight.T + bias; by_head: a row for each feature of each head."""

    weight: Tensor
    bias: Tensor | float = 0.0
    by_head: bool = False


Roles = dict[str, Map]


def possible_roles(module: nn.Module, d_model: int, num_heads: int) -> Iterator[Roles]:
    """Yield who may be who, the best guess first; a role that nobody plays is left out."""
    variants: list[list[tuple[str, Map]]] = []
    for turned, per_head in itertools.product((False, True), repeat=2):
        maps = _maps(module, d_model, num_heads, turned, per_head)
        if not any(_alike(maps, others) for others in variants):
            variants.append(maps)
    for maps in variants:
        yield _cast(_guess(maps))
    for maps in variants:
        if 4 <= len(maps) <= 5:
            for chosen in itertools.permutations([one for _, one in maps], 4):
                yield _cast(dict(zip("qkvo", chosen, strict=True)))


def _alike(maps: list[tuple[str, Map]], others: list[tuple[str, Map]]) -> bool:
    pairs = zip(maps, others, strict=True)
    return all(torch.equal(one.weight, other.weight) for (_, one), (_, other) in pairs)


def _cast(roles: Roles) -> Roles:
    """w_o reads what the heads wrote: its rows by head are columns."""
    last = roles.get("o")
    if last is not None and last.by_head:
        return roles | {"o": Map(last.weight.T, last.bias)}
    return roles


def _guess(maps: list[tuple[str, Map]]) -> Roles:
    """By name where the names say it; the others take what is left, in order."""
    roles: Roles = {}
    for name, one in maps:
        if role := _role(name):
            roles.setdefault(role, one)
    others = [one for name, one in maps if _role(name) is None]
    return roles | dict(zip((r for r in "qkvo" if r not in roles), others, strict=False))


def _role(name: str) -> str | None:
    """The role that one of the words in a dotted name stands for, the last one first."""
    for word in reversed(re.split(r"[^a-z]+", name.lower())):
        for role, words in WORDS.items():
            if re.fullmatch(PATTERN.format(words), word):
                return role
    return None


def _maps(module, d_model: int, num_heads: int, turned: bool, per_head: bool) -> list:
    """All maps with their names, in order; turned: bare matrices are used as x @ matrix."""
    families: dict[str, list[Map]] = {}
    for name, weight, bias, bare in _weights(module):
        matrix = _matrix(weight.detach(), d_model, num_heads)
        rows, width = matrix.shape
        if width != d_model:
            continue
        if rows == d_model:
            by_head = weight.ndim == 3 and weight.shape[-1] != 1
            flip = turned and bare and not by_head
            families[name] = [Map(matrix.T if flip else matrix, bias, by_head)]
        elif rows in (2 * d_model, 3 * d_model):
            families |= _cut(name, matrix, bias, rows // d_model, num_heads, per_head)
        elif rows == d_model // num_heads:
            families.setdefault(re.sub(r"\d+", "#", name), []).append(Map(matrix, bias, True))
    return [(name, _stack(maps)) for name, maps in families.items()]


def _weights(module: nn.Module) -> Iterator[tuple[str, Tensor, Tensor | float, bool]]:
    """Name, weight, bias, and whether it is a bare parameter; all in the order of registration."""
    for name, part in module.named_modules():
        if isinstance(part, LAYERS):
            yield name, part.weight, 0.0 if part.bias is None else part.bias.detach(), False
        elif not isinstance(part, NORMS):
            for own, weight in part.named_parameters(prefix=name, recurse=False):
                stacked = weight.ndim == 3 and weight.shape[1] == weight.shape[2]
                for number, one in enumerate(weight if stacked else [weight]):
                    if one.ndim > 1 and bool(one.any()):  # else it is a bias, set to 0
                        yield f"{own}.{number}" if stacked else own, one, 0.0, True


def _matrix(weight: Tensor, d_model: int, num_heads: int) -> Tensor:
    """A weight as (out, d_model); three axes are heads, d_k and d_model, in any order."""
    sizes = [num_heads, d_model // num_heads, d_model]
    if weight.ndim == 3 and sorted(weight.shape) == sorted(sizes):
        return weight.permute([weight.shape.index(size) for size in sizes]).flatten(0, 1)
    weight = weight.flatten(1)
    return weight if weight.shape[1] == d_model else weight.T


def _cut(name, matrix, bias, parts: int, num_heads: int, per_head: bool) -> dict[str, list[Map]]:
    """Cut a fused map: part after part, or the parts of each head side by side."""

    def pieces(rows: Tensor) -> Iterable[Tensor]:
        if not per_head:
            return rows.chunk(parts)
        return [one.flatten(0, 1) for one in rows.unflatten(0, (num_heads, parts, -1)).unbind(1)]

    weights = pieces(matrix)
    biases = pieces(bias) if isinstance(bias, Tensor) else [0.0] * parts
    named = zip("qkv"[-parts:], weights, biases, strict=True)
    return {f"{name}.{role}": [Map(weight, its)] for role, weight, its in named}


def _stack(maps: list[Map]) -> Map:
    """Lay the small maps of all heads below one another."""
    if len(maps) == 1:
        return maps[0]
    weight = torch.cat([one.weight for one in maps])
    biases = [one.bias for one in maps]
    if not isinstance(biases[0], Tensor):
        return Map(weight, 0.0, True)
    whole = len(biases[0]) == weight.shape[1]  # of small maps that write to the output
    return Map(weight, sum(biases) if whole else torch.cat(biases), True)
