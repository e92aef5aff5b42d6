"""Wrong beam searches, each under the sentence that names the mistake."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Beam:
    """A beam search over one row after the other, in which one mistake can be set."""

    score: Callable = lambda total, n, power: total / ((5 + n) / 6) ** power
    told: Callable | None = None  # the score that is returned, if it is another one
    chooses: Callable | None = None  # the score that chooses the winner, if it is another one
    longer: int = 0
    now: bool = False  # finished texts are rated with the length of the live ones
    equal: bool = False
    log_p: Callable = lambda logits: logits.log_softmax(-1)
    mixed: bool = False
    pick: Callable = lambda scores: scores.index(max(scores))
    ends: bool = True
    rests: bool = True  # a finished text keeps its words while others go on
    stale: bool = False  # the cache stays with its slot while the texts change places
    stop: Callable = all
    ban: bool = True
    see_pads: bool = False
    cut_end: bool = False
    first: int = 1  # the first id that is returned; 0 is <bos>
    dropout_off: bool = True
    left: Callable = lambda training: training
    alone: bool = False  # each text keeps its own best continuation
    loses: bool = False  # finished texts are thrown away
    stuck: bool = False  # the texts stay in their slots, only the new words move

    def __call__(self, model, src: Tensor, max_len: int, beam_size: int, power: float):
        training = model.training
        model.train(training and not self.dropout_off)
        memory, src_mask = model.encode(src)
        found = []
        for row in range(len(src)):
            slots = row * beam_size + torch.arange(beam_size)
            source = slots % len(src) if self.mixed else slots // beam_size
            mask = None if self.see_pads else src_mask[source]
            found.append(self.search(model, memory[source], mask, max_len, power))
        model.train(self.left(training))
        width = max(len(ids) for ids, _ in found)
        pad = model.config.pad_id
        ids = torch.tensor([ids + [pad] * (width - len(ids)) for ids, _ in found])
        return ids, torch.tensor([score for _, score in found])

    def search(self, model, memory: Tensor, mask: Tensor | None, max_len: int, power: float):
        """Return (ids, score) of one row; a text is (sum, ids, whether it has ended)."""
        beam_size = len(memory)
        self.read = [[] for _ in memory]  # what each slot's cache has seen
        texts = [(0.0, [model.config.bos_id], False)] * (beam_size if self.equal else 1)
        for length in range(1, max_len + 1):
            longer = self.continued(model, texts, memory, mask)
            rates = [self.rate(text, length, power) for text in longer]
            order = sorted(range(len(longer)), key=rates.__getitem__, reverse=True)
            texts = self.chosen(texts, [longer[i] for i in order], beam_size)
            if self.stop([text[2] for text in texts]):
                break
        if self.stop is any:
            texts = [text for text in texts if text[2]] or texts
        best = texts[self.pick([self.rate(text, length, power, self.chooses) for text in texts])]
        ids = best[1][self.first : -1 if self.cut_end and best[2] else None]
        return ids, self.rate(best, length, power, self.told)

    def chosen(self, before: list, longer: list, beam_size: int) -> list:
        """The texts that go on, of all, the best first."""
        if self.loses:
            longer = [text for text in longer if not text[2]] or longer
        if self.alone and len(before) == beam_size:
            longer = [
                next(text for text in longer if text[1][: len(old[1])] == old[1]) for old in before
            ]
        if self.stuck and len(before) == beam_size:
            pairs = zip(longer, before, strict=False)
            longer = [(new[0], [*old[1], new[1][-1]], new[2]) for new, old in pairs]
        return longer[:beam_size]

    def rate(self, text: tuple, length: int, power: float, by: Callable | None = None) -> float:
        """The score of a text; length is that of the live ones."""
        n = length if self.now else len(text[1]) - 1
        return (by or self.score)(text[0], n + self.longer, power)

    def continued(self, model, texts: list, memory: Tensor, mask: Tensor | None) -> list:
        """Each live text with each of its most probable next words; the others as they are."""
        config, longer = model.config, [text for text in texts if text[2] and self.rests]
        live = [i for i, text in enumerate(texts) if not (text[2] and self.rests)]
        for i, seen in enumerate(self.read):
            said = texts[i][1][-1] if i < len(texts) else config.bos_id
            seen.append(config.pad_id if said == config.eos_id else said)
        tgt_in = torch.tensor([self.read[i] if self.stale else texts[i][1] for i in live])
        logits = model.decode(tgt_in, memory[live], None if mask is None else mask[live])[:, -1]
        gains = self.log_p(logits).detach()
        if self.ban:
            gains[:, [config.pad_id, config.bos_id]] = -torch.inf
        for i, row in zip(live, gains, strict=True):
            for gain, word in zip(*row.topk(min(len(memory), len(row))), strict=True):
                ended = self.ends and (texts[i][2] or word.item() == config.eos_id)
                longer.append((texts[i][0] + gain.item(), [*texts[i][1], word.item()], ended))
        return longer


WRONG_BEAMS = {
    "it finds only what greedy search finds: beam_size has no effect, or all beams are equal at "
    "first and stay so; let one beam live at first": Beam(equal=True),
    "logits are summed, wanted log-probabilities: log_softmax is missing": (
        Beam(log_p=lambda logits: logits)
    ),
    "probabilities are summed, wanted their logarithms": Beam(log_p=lambda x: x.softmax(-1)),
    "length_penalty has no effect": Beam(score=lambda total, n, power: total),
    "the sum is divided by n^penalty, wanted ((5 + n) / 6)^penalty": (
        Beam(score=lambda total, n, power: total / n**power)
    ),
    "the sum is always divided by the length n, whatever length_penalty says": (
        Beam(score=lambda total, n, power: total / n)
    ),
    "the sum is divided by (5 + n)^penalty / 6, wanted ((5 + n) / 6)^penalty": (
        Beam(score=lambda total, n, power: total / ((5 + n) ** power / 6))
    ),
    "the sum is multiplied by the length term; divide by it": (
        Beam(score=lambda total, n, power: total * ((5 + n) / 6) ** power)
    ),
    "the length is off by one: <eos> counts too": Beam(longer=-1),
    "the length is off by one: <bos> does not count": Beam(longer=1),
    "a finished text is rated with the current step's length; its own length and score are final": (
        Beam(now=True)
    ),
    "a finished text goes on: it must keep its words and its score": Beam(ends=False),
    "a finished text goes on while others live: it must keep its words and its score": (
        Beam(rests=False)
    ),
    "it stops at the first finished text; a live one may still become better": Beam(stop=any),
    "the beams read the wrong sources: rows of one source stand side by side, 0, 0, 1, 1 "
    "(repeat_interleave), not 0, 1, 0, 1 (repeat)": Beam(mixed=True),
    "the last beam is returned, the worst of them; wanted the best": (
        Beam(pick=lambda scores: len(scores) - 1)
    ),
    "the score is the bare sum, not divided by the length term that chose the winner": (
        Beam(told=lambda total, n, power: total)
    ),
    "the sign of the score is wrong: log-probabilities are negative, and the largest wins": (
        Beam(told=lambda total, n, power: -total / ((5 + n) / 6) ** power)
    ),
    "the score is a probability, wanted its logarithm": (
        Beam(told=lambda total, n, power: math.exp(total / ((5 + n) / 6) ** power))
    ),
    "<bos> stands in front of the answer: return only what was written": Beam(first=0),
    "pad or <bos> is written: neither is a word, take them out of the choice": Beam(ban=False),
    "the padding of the source is read: give src_mask to decode": Beam(see_pads=True),
    "the cache stays where it is while the texts change places: move its rows with the texts, "
    "cache.select(rows)": Beam(stale=True),
    "dropout is on while it writes: call model.eval() first": Beam(dropout_off=False),
    "the model is left in eval mode: put its mode back as it was": Beam(left=lambda was: False),
    "the model is left in training mode: put its mode back as it was": Beam(left=lambda was: True),
    "each beam goes on by itself: the continuations of all beams must compete": Beam(alone=True),
    "finished texts are thrown away: they must compete with the live ones": Beam(loses=True),
    "the texts stay in their slots while the new words move: reorder them together": (
        Beam(stuck=True)
    ),
    "the winner is chosen by the bare sum; the score with the length term must choose": (
        Beam(chooses=lambda total, n, power: total)
    ),
    "length_penalty has no effect: 0.6 is taken instead": (
        Beam(score=lambda total, n, power: total / ((5 + n) / 6) ** 0.6)
    ),
    "<eos> is missing from the answer: keep it": Beam(cut_end=True),
}
