"""Mistakes in what multi-head attention projects, from where, and what it gives back."""

import math

import torch
from torch import Tensor

from tutorial_transformer.check._layer import Layer, by, split, with_roles
from tutorial_transformer.check._mistakes import MIX, PROJECT, SOURCES, Mistake
from tutorial_transformer.check._roles import Map, Roles
from tutorial_transformer.check._weight_mistakes import weigh


def _eye(roles: Roles) -> Map:
    return Map(torch.eye(len(roles["q"].weight)))


def _across(layer: Layer, query, key, value, mask=None, train=False) -> Tensor:
    turned = (x.transpose(0, 1) for x in (query, key, value))
    return layer(*turned).transpose(0, 1)


def _from_query(layer: Layer, query, key, value, mask=None, train=False) -> Tensor:
    """A mask for other keys is left out, as it cannot fit."""
    fits = mask is not None and mask.shape[-1] == query.shape[1]
    return layer(query, query, query, mask if fits else None)


def _weights_only(layer: Layer, query, key, value, mask=None, train=False) -> Tensor:
    q, k, _, mask = layer.inside(query, key, value, mask)
    return weigh(q @ k.mT / math.sqrt(q.shape[-1]), mask)


PROJECTING = {
    "there is no output projection w_o: nothing mixes the heads": (
        Mistake(MIX, with_roles(lambda r: {"o": _eye(r)}))
    ),
    **{
        f"the {whose} are not projected: w_{role} is missing": (
            Mistake(PROJECT, with_roles(lambda r, role=role: {role: _eye(r)}))
        )
        for role, whose in (("q", "queries"), ("k", "keys"), ("v", "values"))
    },
    "the vectors themselves are cut: project them by w_q, w_k and w_v first": (
        Mistake(PROJECT, with_roles(lambda r: dict.fromkeys("qkv", _eye(r))))
    ),
    "the keys are made by w_q; they need a projection of their own": (
        Mistake(PROJECT, with_roles(lambda r: {"k": r["q"]}))
    ),
    "the queries are made by w_k; they need a projection of their own": (
        Mistake(PROJECT, with_roles(lambda r: {"q": r["k"]}))
    ),
    "the values are made by w_k; they need a projection of their own": (
        Mistake(PROJECT, with_roles(lambda r: {"v": r["k"]}))
    ),
    "one projection makes queries, keys and values; each needs its own": (
        Mistake(PROJECT, with_roles(lambda r: dict.fromkeys("qkv", r["q"])))
    ),
    "the projections are bent by a ReLU; they are linear": (
        Mistake(PROJECT, by(split=lambda x, heads: split(x.relu(), heads)))
    ),
    "the biases of the projections are left out": Mistake(
        PROJECT, with_roles(lambda r: {role: Map(one.weight) for role, one in r.items()})
    ),
}

SOURCE = {
    "keys and values are made from the query: cross-attention asks itself": (
        Mistake(SOURCES, _from_query)
    ),
    "value is ignored: the values are made from key": (
        Mistake(SOURCES, lambda layer, q, k, v, *rest: layer(q, k, k, *rest))
    ),
    "key is ignored: the keys are made from value": (
        Mistake(SOURCES, lambda layer, q, k, v, *rest: layer(q, v, v, *rest))
    ),
    "attention runs over the batch: the first axis is batch, the second the length": (
        Mistake(SOURCES, _across)
    ),
    "it gives the attention weights where the output belongs": Mistake(MIX, _weights_only),
}
