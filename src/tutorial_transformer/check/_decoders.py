"""Wrong greedy decoders, each under the sentence that names the mistake."""

from collections.abc import Callable

import torch
from torch import Tensor


def greedy(
    start: Callable = lambda config: config.bos_id,
    read: Callable = lambda ids: ids,
    place: int = -1,
    ban: float | None = -torch.inf,
    ends: Callable = lambda done: done.all(),
    fill: Callable | None = lambda config: config.pad_id,
    extra: int = 0,
    rows: Callable = lambda rows: rows,
    sources: Callable = lambda memory: memory,
    see_pads: bool = False,
    shown: Callable = lambda ids, config: ids[:, 1:],
    dropout_off: bool = True,
    left: Callable = lambda training: training,
    pick: Callable = lambda logits: logits.argmax(-1),
    forget: bool = False,
    cached: bool = False,
    special: tuple[int, int, int] | None = None,
) -> Callable:
    """A greedy decoder with one mistake."""

    def decode(model, src: Tensor, max_len: int) -> Tensor:
        config, training = model.config, model.training
        pad, bos, eos = special or (config.pad_id, config.bos_id, config.eos_id)
        model.train(training and not dropout_off)
        memory, src_mask = model.encode(src)
        read_rows = rows(torch.arange(len(src)))
        memory, src_mask = sources(memory)[read_rows], None if see_pads else src_mask[read_rows]
        ids = src.new_full((len(src), 1), bos if special else start(config))
        done = torch.zeros(len(src), dtype=torch.bool)
        cache = model.new_cache(memory) if cached else None
        for _ in range(max_len + extra):
            logits = model.decode(read(ids), memory, src_mask, cache)[:, place]
            if ban is not None:
                logits = logits.index_fill(-1, torch.tensor([pad, bos]), ban)
            said = pick(logits)
            if fill is not None:
                said = said.masked_fill(done, pad if special else fill(config))
            ids = torch.cat([ids, said[:, None]], dim=1)
            done = (said == eos) | (done & (not forget))
            if ends(done):
                break
        model.train(left(training))
        return shown(ids, config)

    return decode


def _without_eos(ids: Tensor, config) -> Tensor:
    return ids[:, 1:].masked_fill(ids[:, 1:] == config.eos_id, config.pad_id)


WRONG_GREEDY = {
    "<bos> stands in front of the answer: return only what was written": (
        greedy(shown=lambda ids, config: ids)
    ),
    "<bos> stands in front of the answer, in place of the last word: return max_len "
    "words behind it": (greedy(extra=-1, shown=lambda ids, config: ids)),
    "the first word is lost: only <bos> must be cut off": (
        greedy(shown=lambda ids, config: ids[:, 2:])
    ),
    "it begins with <pad> (id 0) where <bos> was learned": greedy(lambda config: config.pad_id),
    "it begins with <eos> where <bos> was learned": greedy(lambda config: config.eos_id),
    "each step reads only the last word, so that all positions are 0: give the decoder all that "
    "is written, or a cache": greedy(read=lambda ids: ids[:, -1:]),
    "the last word written is not read: each step lags one behind": (
        greedy(read=lambda ids: ids[:, :-1] if ids.shape[1] > 1 else ids)
    ),
    "the logits are taken at the first position, or only <bos> is read: the next word stands at "
    "the last position, behind all that is written": greedy(place=0),
    "it never stops at <eos>: text stands behind it": greedy(fill=None, ends=lambda done: False),
    "a row that has said <eos> goes on writing until all have: text stands behind its <eos>; put "
    "pads there": greedy(fill=None),
    "behind <eos> stand more <eos>; put pads there": greedy(fill=lambda config: config.eos_id),
    "it stops when the first row of the batch ends; each row must stop on its own, the loop with "
    "the last": greedy(ends=lambda done: done.any()),
    "it looks for <eos> in row 0 only, as if the batch were one row": (
        greedy(fill=None, ends=lambda done: done[0])
    ),
    "it looks for <eos> in row 0 only: the other rows are cut off": greedy(ends=lambda d: d[0]),
    "<eos> is missing from the answer: keep it": greedy(shown=_without_eos),
    "it writes one word too few: max_len counts the words behind <bos>": greedy(extra=-1),
    "it writes one word too many: more than max_len": greedy(extra=1),
    "pad or <bos> is written: neither is a word, take them out of the choice": greedy(ban=None),
    "a logit of 0 is not impossible, so that pad or <bos> is still written: use -inf": (
        greedy(ban=0.0)
    ),
    "all rows read the source of row 0": greedy(rows=lambda rows: rows * 0),
    "the rows read each other's sources": greedy(rows=lambda rows: rows.flip(0)),
    "the padding of the source is read: give src_mask to decode": greedy(see_pads=True),
    "dropout is on while it writes: call model.eval() first": greedy(dropout_off=False),
    "the model is left in eval mode: put its mode back as it was": greedy(left=lambda was: False),
    "the model is left in training mode: put its mode back as it was": (
        greedy(left=lambda was: True)
    ),
    "the least probable word is taken, wanted the most probable": (
        greedy(pick=lambda logits: logits.where(logits > -torch.inf, torch.inf).argmin(-1))
    ),
    "the second most probable word is taken, wanted the first": (
        greedy(pick=lambda logits: logits.topk(2).indices[:, 1])
    ),
    "a row that has ended is forgotten at the next step and goes on: once done, it stays done": (
        greedy(forget=True)
    ),
    "the source has no effect": greedy(sources=lambda memory: memory * 0),
    "the cache reads all words again at each step; give it only the new one": greedy(cached=True),
    "it takes 0, 1, 2 for pad, <bos>, <eos>; ask model.config": greedy(special=(0, 1, 2)),
}
