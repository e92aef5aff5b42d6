"""Somebody's multi-head attention: built, given known parameters, called, and understood."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from tutorial_transformer.check._building import build
from tutorial_transformer.check._calling import by_position
from tutorial_transformer.check._grade import unexplained
from tutorial_transformer.check._layer import Layer
from tutorial_transformer.check._mistakes import PROJECT
from tutorial_transformer.check._report import Report
from tutorial_transformer.check._roles import LAYERS, NORMS, Map, Roles, possible_roles
from tutorial_transformer.check._trial import close, set_parameters

HEADS = {8: 2, 12: 4}  # num_heads for each d_model of the cases
SIZES = (
    "it has {} parameters for d_model {}; four maps d_model × d_model have 4 · d_model², and "
    "their biases 4 · d_model: each head has the width d_model / num_heads"
)
UNREGISTERED = (
    "projections in a plain list are not registered, so nobody trains or saves them: use "
    "nn.ModuleList"
)


class Student:
    """A class as one function of (query, key, value, mask), and the layer that it should equal."""

    def __init__(self, cls: object) -> None:
        self.cls = cls
        self.modules: dict[int, nn.Module] = {}
        self.layers: dict[int, Layer] = {}
        self.shows_weights = False
        self.seen: list[tuple[tuple, Tensor]] = []  # answers without a mask: they tell the roles

    def __call__(self, query, key, value, mask=None, train=False) -> object:
        """Call the module; in training mode only if it is not random there."""
        d_model = query.shape[-1]
        if d_model not in self.modules:
            self.modules[d_model] = self._build(d_model)
        module = self.modules[d_model]
        inputs = (query, key, value, mask)
        answer = _run(module.train(), inputs) if train else None
        if not train or not close(_run(module, inputs), answer):
            answer = _run(module.eval(), inputs)
        output = answer[0] if isinstance(answer, tuple | list) and answer else answer
        if mask is None and isinstance(output, Tensor):
            self.seen.append((inputs, output.detach()))
        if isinstance(answer, tuple | list) and isinstance(answer[-1], Tensor):
            table = (query.shape[1], key.shape[1])
            self.shows_weights = answer[-1].ndim > 2 and answer[-1].shape[-2:] == table
        return answer

    def _build(self, d_model: int) -> nn.Module:
        module = build(self.cls, d_model, HEADS[d_model])
        _prepare(module, d_model)
        return module

    def reference(self, *inputs) -> Tensor | str:
        """What the module should answer."""
        d_model = inputs[0].shape[-1]
        if d_model not in self.modules:
            return f"a tensor of shape {tuple(inputs[0].shape)}"
        return self.layer(d_model)(*inputs)

    def wrong(self, rule: Callable) -> Callable:
        """A mistake, made with this module's projections."""
        return lambda *inputs: rule(self.layer(inputs[0].shape[-1]), *inputs)

    def layer(self, d_model: int) -> Layer:
        """The right layer with this module's projections, whoever plays which role."""
        if d_model not in self.layers:
            module, heads = self.modules[d_model], HEADS[d_model]
            layers = [Layer(one, heads) for one in possible_roles(module, d_model, heads)]
            fitting = (layer for layer in layers if self._fits(layer, d_model))
            first = layers[0]._replace(roles=_filled(layers[0].roles, d_model))
            self.layers[d_model] = next(fitting, first)
        return self.layers[d_model]

    def _fits(self, layer: Layer, d_model: int) -> bool:
        if len(layer.roles) < 4:
            return False
        seen = [one for one in self.seen if one[0][0].shape[-1] == d_model]
        return bool(seen) and all(close(output, layer(*its), 1e-4) for its, output in seen)

    def explain(self, report: Report) -> None:
        """Name projections that the module hides from torch, or that are too many or too few."""
        for module in self.modules.values():
            if not report.passed and any(True for _ in _hidden(module)):
                report.diagnosis, report.reread = UNREGISTERED, PROJECT
                return
        if not unexplained(report):
            return
        for d_model, module in self.modules.items():
            count = sum(one.numel() for one in module.parameters())
            if not 4 * d_model**2 <= count <= 4 * d_model**2 + 4 * d_model:
                report.diagnosis, report.reread = SIZES.format(count, d_model), PROJECT


def _prepare(module: nn.Module, d_model: int) -> None:
    """Give all parameters known numbers; a bias that belongs to no layer gets zeros."""
    scalars = [(one, one.detach().clone()) for one in module.parameters() if one.numel() == 1]
    set_parameters(module)
    for one, value in scalars:
        one.data = value
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
        if isinstance(part, NORMS):
            part.reset_parameters()
        elif not isinstance(part, LAYERS):
            own = list(part.parameters(recurse=False))
            stacks = {len(one) for one in own if one.ndim == 3}  # of whole maps, or of heads
            for one in own:
                pair = one.ndim == 2 and len(one) in stacks
                if one.numel() > 1 and (one.ndim == 1 or one.numel() <= d_model or pair):
                    nn.init.zeros_(one)


def _run(module: nn.Module, inputs: tuple) -> object:
    """Call a module; nn.MultiheadAttention has its own order of axes and its own masks."""
    if type(module).forward is not nn.MultiheadAttention.forward:
        return by_position(module, "query", "key", "value", "mask")(*inputs)
    query, key, value, mask = inputs
    if mask is not None:
        whole = mask.expand(len(query), query.shape[1], key.shape[1])
        mask = ~whole.repeat_interleave(module.num_heads, dim=0)
    if module.batch_first:
        return module(query, key, value, attn_mask=mask, need_weights=False)[0]
    turned = (x.transpose(0, 1) for x in (query, key, value))
    return module(*turned, attn_mask=mask, need_weights=False)[0].transpose(0, 1)


def _filled(roles: Roles, d_model: int) -> Roles:
    """Give a role that nobody plays a map of its own."""
    generator = torch.Generator().manual_seed(1)
    others = {role: Map(torch.randn(d_model, d_model, generator=generator)) for role in "qkvo"}
    return others | roles


def _hidden(module: nn.Module) -> Iterator[nn.Module]:
    """Modules in plain lists, tuples and dictionaries, which torch does not see."""
    for part in module.modules():
        for value in vars(part).values():
            values = value.values() if isinstance(value, dict) else value
            if isinstance(value, list | tuple | dict) and value is not part._modules:
                yield from (one for one in values if isinstance(one, nn.Module))
