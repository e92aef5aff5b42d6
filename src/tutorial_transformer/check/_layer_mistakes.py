"""The mistakes that people make in a layer, whichever of its sub-layers they befall."""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from tutorial_transformer.check._adding_mistakes import ADDING, UNNORMED
from tutorial_transformer.check._block import Block, gain, with_add, with_parts
from tutorial_transformer.check._mistakes import Mistake
from tutorial_transformer.check._multi_head_mistakes import MULTI_HEAD
from tutorial_transformer.check._norm_mistakes import HAND, NORMING, standard

UNKNOWN = "the wiring is not that of the formula: compare the order of norm, sub-layer and sum"
UNMASKED = (
    "without a mask all is right, with a mask it is not: follow the mask to the attention that "
    "needs it, give it an axis for the heads behind the batch, and do not change it on the way"
)
READS = "; a lambda y that reads x gets it without the norm: read y, which AddNorm passes in"
Change = Callable[[Block], Block]
BENDS = {
    "the activation of the feed-forward network is missing": lambda h: h,
    "the feed-forward network bends with GELU; here it is ReLU": F.gelu,
    "the feed-forward network bends with SiLU; here it is ReLU": F.silu,
    "the feed-forward network bends with tanh; here it is ReLU": torch.tanh,
    "the feed-forward network bends with a sigmoid; here it is ReLU": torch.sigmoid,
}
BEND = "chapter 04, 4. Take the bend out, and two maps become one"


def changes(*sublayers: str) -> dict[str, tuple[str, Change]]:
    """Sentence, section and change of every mistake in a part of a layer."""
    found: dict[str, tuple[str, Change]] = {}
    places = range(len(sublayers))
    for says, (at, rule) in ADDING.items():
        says += READS * (says == UNNORMED)
        found[says] = at, with_add(rule, *places)
        for place, name in enumerate(sublayers):
            found[f"round the {name}: {says}"] = at, with_add(rule, place)
    for says, (at, rule) in NORMING.items():
        found[says] = at, with_parts(norming=lambda x, rule=rule: rule(x, 1.0, 0.0, 1e-5))
    found["the gain of the norms is missing: LayerNorm multiplies by a learned gain"] = (
        HAND,
        with_parts(norming=lambda x: standard(x) / gain(x.shape[-1])),
    )
    between = "ReLU stands between the two maps of the feed-forward network"
    found[f"{between}, not behind both"] = BEND, with_parts(bend=lambda h: h, end=torch.relu)
    found[f"{between}, not once more behind both"] = BEND, with_parts(end=torch.relu)
    for says, bend in BENDS.items():
        found[says] = BEND, with_parts(bend=bend)
    for says, (at, rule) in MULTI_HEAD.items():
        found[f"in the attention: {says}"] = at, with_parts(attention=rule, asking=rule)
        if len(sublayers) > 2:
            found[f"in the self-attention: {says}"] = at, with_parts(attention=rule)
            found[f"in the cross-attention: {says}"] = at, with_parts(asking=rule)
    return found


def mistakes(wire: Callable, wires: dict[str, Mistake], *sublayers: str) -> dict[str, Mistake]:
    """All mistakes of a layer, as rules of (block, x, ...); wires are its own."""

    def rule(change: Change) -> Callable:
        return lambda block, *inputs: wire(change(block), *inputs)

    parts = changes(*sublayers).items()
    return wires | {says: Mistake(at, rule(change)) for says, (at, change) in parts}
