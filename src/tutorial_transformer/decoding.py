"""From logits to words: how the trained model writes a target, one token after another."""

import torch
from jaxtyping import Int
from torch import Tensor

from tutorial_transformer import _checks as check
from tutorial_transformer.transformer import Transformer


def _check_greedy(model: Transformer, src: Tensor, max_len: int, use_cache: bool = True) -> None:
    check.size(max_len=max_len)
    if max_len > model.config.max_len:
        raise ValueError(f"max_len={max_len} is beyond the model's max_len={model.config.max_len}")
    check.ids("src", src, model.config.src_vocab_size)


@check.first(_check_greedy)
@torch.no_grad()
def greedy_decode(
    model: Transformer,
    src: Int[Tensor, "batch src_len"],
    max_len: int,
    use_cache: bool = True,
) -> Int[Tensor, "batch new_len"]:
    """Write the most probable next token until every row has said <eos>, or max_len is reached.

    Returns ids without <bos>; <eos> is kept and followed by pads. Rows stop on their own. Pad
    and <bos> are never chosen. Dropout is off; the model's mode is put back afterwards.
    use_cache=False computes every earlier position again at each step, to compare.
    """
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        return _greedy(model, src, max_len, use_cache)
    finally:
        for module, training in modes.items():
            module.training = training


def _greedy(model: Transformer, src: Tensor, max_len: int, use_cache: bool) -> Tensor:
    pad_id, bos_id, eos_id = model.config.pad_id, model.config.bos_id, model.config.eos_id
    memory, src_mask = model.encode(src)
    cache = model.new_cache(memory, max_len) if use_cache else None
    tgt = src.new_full((src.shape[0], max_len + 1), pad_id)
    tgt[:, 0] = bos_id
    done = torch.zeros(src.shape[0], dtype=torch.bool, device=src.device)
    for step in range(max_len):
        tgt_in = tgt[:, step : step + 1] if use_cache else tgt[:, : step + 1]
        logits = model.decode(tgt_in, memory, src_mask, cache)[:, -1]  # (batch, tgt_vocab)
        logits[:, [pad_id, bos_id]] = -torch.inf
        tgt[:, step + 1] = logits.argmax(dim=-1).masked_fill(done, pad_id)
        done = done | (tgt[:, step + 1] == eos_id)
        if done.all():
            break
    return tgt[:, 1 : step + 2]
