"""From logits to words: how the trained model writes a target, one token after another.

All decoders take the same steps on one _Draft: ask the model for the logits of the next id,
choose, append. They differ in how they choose. A row ends with <eos>; pads stand behind it.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Real

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from tutorial_transformer import _checks as check
from tutorial_transformer._running import put_back_modes
from tutorial_transformer.transformer import Transformer, TransformerConfig


@contextmanager
def _dropout_off(model: Transformer) -> Iterator[None]:
    """Compute without dropout and gradients; each module gets its own mode back afterwards."""
    with put_back_modes(model), torch.no_grad():
        model.eval()
        yield


class _Draft:
    """What is written so far, `beams` rows for each source row, and what the model says next."""

    def __init__(
        self, model: Transformer, src: Tensor, max_len: int, use_cache: bool, beams: int = 1
    ) -> None:
        memory, src_mask = model.encode(src)
        self.model, self.max_len = model, max_len
        # Beams of one source stand side by side: two sources with two beams are rows 0, 0, 1, 1.
        self.memory = memory.repeat_interleave(beams, dim=0)
        self.src_mask = src_mask.repeat_interleave(beams, dim=0)
        self.cache = model.new_cache(self.memory, max_len) if use_cache else None
        self.ids = src.new_full((len(self.memory), 1), model.config.bos_id)
        self.never = torch.tensor([model.config.pad_id, model.config.bos_id], device=src.device)

    def next_logits(self) -> Tensor:
        """The logits of the next id, of all ids; with a cache the model reads one id a row."""
        tgt_in = self.ids if self.cache is None else self.ids[:, -1:]
        logits = self.model.decode(tgt_in, self.memory, self.src_mask, self.cache)[:, -1]
        return logits.to(torch.promote_types(logits.dtype, torch.float32))  # half cannot add up

    def allowed(self, logits: Tensor) -> Tensor:
        """The same logits without pad and <bos>, which are never said."""
        return logits.index_fill(-1, self.never, -torch.inf)

    def append(self, next_ids: Tensor) -> None:
        self.ids = torch.cat([self.ids, next_ids[:, None].to(self.ids.dtype)], dim=1)

    def write(self, choose: Callable[[Tensor], Tensor]) -> Tensor:
        """Append what `choose` makes of the allowed logits until every row has ended."""
        config = self.model.config
        done = torch.zeros(len(self.ids), dtype=torch.bool, device=self.ids.device)
        for _ in range(self.max_len):
            next_ids = choose(self.allowed(self.next_logits())).masked_fill(done, config.pad_id)
            self.append(next_ids)
            done = done | (next_ids == config.eos_id)
            if done.all():
                break
        return self.ids[:, 1:]


# The checks have no type hints, so that their messages come before those of a type checker.


def _check_decoder(model, src, max_len, use_cache=True) -> None:
    if not isinstance(getattr(model, "config", None), TransformerConfig):
        raise TypeError(f"model must be a Transformer, got {type(model).__name__}")
    check.size(max_len=max_len)
    if max_len > model.config.max_len:
        raise ValueError(f"max_len={max_len} is beyond the model's max_len={model.config.max_len}")
    check.ids("src", src, model.config.src_vocab_size)
    if not isinstance(use_cache, bool):
        raise TypeError(f"use_cache must be True or False, got {use_cache!r}")


def _check_number(name, value) -> None:
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, got {value!r}")


@check.first(_check_decoder)
def greedy_decode(
    model: Transformer, src: Int[Tensor, "batch src_len"], max_len: int, use_cache: bool = True
) -> Int[Tensor, "batch new_len"]:
    """Write the most probable next token until every row has said <eos>, or max_len is reached.

    Returns ids without <bos>; <eos> is kept and followed by pads. Rows stop on their own. Pad
    and <bos> are never chosen. Dropout is off; the model's mode is put back afterwards.
    use_cache=False computes every earlier position again at each step, to compare.
    """
    with _dropout_off(model):
        return _Draft(model, src, max_len, use_cache).write(lambda logits: logits.argmax(dim=-1))


def _check_beam(model, src, max_len, beam_size=4, length_penalty=0.6, use_cache=True) -> None:
    _check_decoder(model, src, max_len, use_cache)
    check.size(beam_size=beam_size)
    _check_number("length_penalty", length_penalty)
    if not abs(length_penalty) * math.log((5 + max_len) / 6) < 80:  # e^88 ends float32
        raise ValueError(
            f"length_penalty={length_penalty} must keep ((5 + n) / 6) ** length_penalty within "
            f"the range of float32 up to max_len={max_len}"
        )


@check.first(_check_beam)
def beam_search(
    model: Transformer,
    src: Int[Tensor, "batch src_len"],
    max_len: int,
    beam_size: int = 4,
    length_penalty: Real = 0.6,
    use_cache: bool = True,
) -> tuple[Int[Tensor, "batch new_len"], Float[Tensor, " batch"]]:
    """Keep the beam_size best beginnings of every row at each step, and return its best ending.

    Returns (ids, scores), ids as greedy_decode does, and for each row the score that won,

        log p(ids) / ((5 + n) / 6) ** length_penalty        Wu et al. 2016, eq. (14)

    where n counts <eos>. With 0 the most probable row wins, which favours short ones. A row that
    max_len cuts off competes with its score there. beam_size=1 says what greedy_decode says.
    """
    with _dropout_off(model):
        draft = _Draft(model, src, max_len, use_cache, beam_size)
        beams = _Beams(draft, len(src), beam_size, length_penalty)
        while not beams.settled():
            beams.step()
    longest = (beams.best_ids != model.config.pad_id).sum(dim=-1).max()
    return beams.best_ids[:, :longest], beams.best_scores


class _Beams:
    """The slots of each source row, (batch, beam) in all tensors, and its best ending so far.

    A finished slot stays, its score frozen, while it is among the best. The best ending is kept
    aside as well: beginnings may push it out of its slot and end worse.
    """

    def __init__(self, draft: _Draft, batch: int, beam_size: int, length_penalty: Real) -> None:
        self.draft, self.length_penalty = draft, length_penalty
        dtype = torch.promote_types(draft.memory.dtype, torch.float32)
        # Only one slot is alive at first: equal beams would stay equal.
        self.sums = draft.memory.new_full((batch, beam_size), -torch.inf, dtype=dtype)
        self.sums[:, 0] = 0.0
        self.lengths = torch.zeros_like(self.sums)
        self.done = torch.zeros_like(self.sums, dtype=torch.bool)
        self.best_scores = self.sums[:, 0] - torch.inf
        self.best_ids = draft.ids.new_full((batch, draft.max_len), draft.model.config.pad_id)

    def penalty(self, lengths: Tensor) -> Tensor:
        return ((5 + lengths) / 6) ** self.length_penalty

    def step(self) -> None:
        """Put the best continuations of each row into its slots, and note what has ended."""
        log_p, ids = self.continuations()  # (batch, beam, choices)
        sums = self.sums[..., None] + log_p
        lengths = self.lengths + ~self.done
        scores = (sums / self.penalty(lengths)[..., None]).flatten(1)  # (batch, beam * choices)
        best, order = scores.topk(self.sums.shape[1], dim=-1)  # (batch, beam)
        slot = order // ids.shape[-1]
        self.sums, ids = sums.flatten(1).gather(1, order), ids.flatten(1).gather(1, order)
        self.lengths = lengths.gather(1, slot)
        self.done = self.done.gather(1, slot) | (ids == self.draft.model.config.eos_id)
        self.rewrite(slot, ids)
        self.keep_best(best)

    def continuations(self) -> tuple[Tensor, Tensor]:
        """The most probable next ids of each slot; of a finished one only pad, at no cost."""
        logits = self.draft.next_logits()
        log_total = logits.logsumexp(dim=-1, keepdim=True)  # over all ids, pad and <bos> too
        log_total = log_total.clamp(min=torch.finfo(logits.dtype).min)  # -inf - -inf is NaN
        logits, beam_size = self.draft.allowed(logits), self.sums.shape[1]
        if beam_size == 1:  # of equal ones the first, as argmax does
            top, ids = logits.max(dim=-1, keepdim=True)
        else:
            top, ids = logits.topk(min(beam_size, logits.shape[-1]), dim=-1)
        done = self.done.flatten()
        log_p = (top - log_total).masked_fill(done[:, None], -torch.inf)
        log_p[:, 0] = log_p[:, 0].masked_fill(done, 0.0)
        ids = ids.masked_fill(done[:, None], self.draft.model.config.pad_id)
        return log_p.unflatten(0, self.sums.shape), ids.unflatten(0, self.sums.shape)

    def rewrite(self, slot: Tensor, ids: Tensor) -> None:
        """Let each slot go on from what `slot` has written; the source stays the same."""
        draft, (batch, beam_size) = self.draft, slot.shape
        first = beam_size * torch.arange(batch, device=slot.device)
        rows = (first[:, None] + slot).flatten()
        draft.ids = draft.ids[rows]
        draft.append(ids.flatten())
        if draft.cache is not None:
            draft.cache.select(rows)

    def keep_best(self, scores: Tensor) -> None:
        """Put the best ending of each row aside; at max_len everything has ended."""
        written = self.draft.ids[:, 1:].unflatten(0, scores.shape)  # (batch, beam, length)
        length = written.shape[-1]
        if length < self.draft.max_len:
            scores = scores.masked_fill(~self.done, -torch.inf)
        best, slot = scores.max(dim=-1)
        rows = (best > self.best_scores).nonzero()[:, 0]
        self.best_scores[rows] = best[rows]
        self.best_ids[rows, :length] = written[rows, slot[rows]]

    def settled(self) -> bool:
        """Whether no live slot can still overtake the best ending of its row.

        A sum never rises. So the most a slot may hope for is its sum now, divided by the largest
        penalty ahead: that of max_len, or of the next step when length_penalty is negative.
        """
        length, max_len = self.draft.ids.shape[1] - 1, self.draft.max_len
        ahead = self.penalty(self.sums.new_tensor([length + 1, max_len])).max()
        hopes = self.sums.masked_fill(self.done, -torch.inf).amax(dim=-1) / ahead
        return length == max_len or bool((hopes <= self.best_scores).all())


def _check_cuts(top_k, top_p) -> None:
    if top_k is not None:
        check.size(top_k=top_k)
    if top_p is not None:
        _check_number("top_p", top_p)
        if not 0 <= top_p <= 1:
            raise ValueError(f"top_p must lie in [0, 1], got {top_p}")


def _check_filter(logits, top_k=None, top_p=None) -> None:
    check.vectors("logits", logits)
    _check_cuts(top_k, top_p)
    if not (logits < torch.inf).all():
        raise ValueError("logits must be numbers or -inf, got NaN or +inf")
    if (logits == -torch.inf).all(dim=-1).any():
        raise ValueError("logits has a row of nothing but -inf, which leaves no token to choose")


@check.first(_check_filter)
def filter_logits(
    logits: Float[Tensor, "*batch vocab"], top_k: int | None = None, top_p: Real | None = None
) -> Float[Tensor, "*batch vocab"]:
    """Set all but the most probable tokens of each row to -inf.

    First top_k: the k largest stay. Then top_p, the nucleus of Holtzman et al. 2020, over what is
    left and renormalised: the smallest set of tokens whose probabilities reach top_p stays, the
    one that crosses top_p included, and always one. Of equal logits the first ones stay.

    >>> filter_logits(torch.tensor([0.5, 0.41, 0.09]).log(), top_p=0.9).exp()
    tensor([0.5000, 0.4100, 0.0000])
    """
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    if top_k is not None:
        ordered[..., top_k:] = -torch.inf
    if top_p is not None and top_p < 1:
        # Probabilities known to 1e-7 may add up to a little less than the top_p that they equal.
        precision = torch.float64 if logits.dtype == torch.float64 else torch.float32
        enough = top_p - 8 * torch.finfo(precision).eps
        mass = ordered.double().softmax(dim=-1).cumsum(dim=-1)
        beyond = F.pad(mass[..., :-1] >= enough, (1, 0))  # the first one is never beyond
        ordered = ordered.masked_fill(beyond, -torch.inf)
    return torch.empty_like(logits).scatter(-1, order, ordered)


def _check_sample(
    model, src, max_len, temperature=1.0, top_k=None, top_p=None, generator=None, use_cache=True
) -> None:
    _check_decoder(model, src, max_len, use_cache)
    _check_number("temperature", temperature)
    if not temperature >= 0:
        raise ValueError(f"temperature must be 0 or more, got {temperature}")
    _check_cuts(top_k, top_p)
    if generator is not None and not isinstance(generator, torch.Generator):
        raise TypeError(f"generator must be a torch.Generator, got {type(generator).__name__}")


@check.first(_check_sample)
def sample(
    model: Transformer,
    src: Int[Tensor, "batch src_len"],
    max_len: int,
    temperature: Real = 1.0,
    top_k: int | None = None,
    top_p: Real | None = None,
    generator: torch.Generator | None = None,
    use_cache: bool = True,
) -> Int[Tensor, "batch new_len"]:
    """Draw each next token from softmax(logits / temperature), cut to top_k and top_p.

    Returns ids as greedy_decode does, and says the same at temperature 0 or with top_k=1. A
    temperature below 1 sharpens the choice, above 1 it flattens it. For the cuts see
    filter_logits. Draws come from `generator`; without one from torch's global random state.
    """

    def draw(logits: Tensor) -> Tensor:
        limits = torch.finfo(logits.dtype)
        divisor = min(max(temperature, limits.tiny), limits.max)  # 0 / 0 and inf / inf are NaN
        logits = (logits - logits.amax(dim=-1, keepdim=True)) / divisor
        probs = filter_logits(logits, top_k, top_p).softmax(dim=-1)
        return torch.multinomial(probs, 1, generator=generator)[:, 0]

    with _dropout_off(model):
        draft = _Draft(model, src, max_len, use_cache)
        return draft.write(draw if temperature > 0 else lambda logits: logits.argmax(dim=-1))
