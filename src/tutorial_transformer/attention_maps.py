"""Look at what the heads look at: collect attention weights during an ordinary forward pass."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from jaxtyping import Float
from torch import Tensor, nn

from tutorial_transformer.multi_head import MultiHeadAttention


@contextmanager
def record_attention(
    model: nn.Module,
) -> Iterator[dict[str, Float[Tensor, "batch heads q_len k_len"]]]:
    """Collect the attention weights of every MultiHeadAttention in the model, by name.

    Names are paths such as "encoder.0.self_attn" or "decoder.1.cross_attn"; a module that is
    itself an attention is called "attention". The weights are those before dropout, detached.
    Each forward pass replaces the maps of the one before. There is no second walk through the
    model: the same forward runs, with the readable attention instead of the fused kernel.
    Raises ValueError for a model without attention.

    >>> import torch
    >>> attention = MultiHeadAttention(d_model=8, num_heads=2)
    >>> x = torch.randn(1, 3, 8)
    >>> with record_attention(attention) as maps:
    ...     output = attention(x, x, x)
    >>> maps["attention"].shape
    torch.Size([1, 2, 3, 3])
    """
    modules = {
        re.sub(r"(^|\.)layers\.", r"\1", name) or "attention": module
        for name, module in model.named_modules()
        if isinstance(module, MultiHeadAttention)
    }
    if not modules:
        raise ValueError(f"model has no MultiHeadAttention, got {type(model).__name__}")
    maps: dict[str, Tensor] = {}
    before = {name: module.on_weights for name, module in modules.items()}

    def keep(name: str):
        return lambda attn_weights: maps.__setitem__(name, attn_weights.detach())

    try:
        for name, module in modules.items():
            module.on_weights = keep(name)
        yield maps
    finally:
        for name, module in modules.items():
            module.on_weights = before[name]
