"""How good is it? Scores of what the model writes by itself, from the source alone."""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import sacrebleu
import torch
from torch import Tensor

from tutorial_transformer import _checks as check
from tutorial_transformer._running import put_back_modes
from tutorial_transformer.data import AnyVocab, Pair, encode_pairs
from tutorial_transformer.transformer import Transformer
from tutorial_transformer.vocab import CJK, EOS, PAD, UNK

Decoder = Callable[[Transformer, Tensor, int], Tensor]  # greedy_decode, or another like it


class Scores(NamedTuple):
    """Shares from 0 to 1; BLEU and chrF from 0 to 100, as they are published.

    All but teacher_forced are measured on free-running output: the model reads its own words.
    teacher_forced is the share of right tokens where it reads the right answer up to the token
    before; it answers an easier question and is here to be compared with token_accuracy.
    """

    exact_match: float
    token_accuracy: float
    bleu: float
    chrf: float
    teacher_forced: float


def translate(
    model: Transformer,
    texts: Sequence[str],
    src_vocab: AnyVocab,
    tgt_vocab: AnyVocab,
    decode: Decoder,
    max_len: int | None = None,
    batch_size: int = 100,
) -> list[str]:
    """Translate texts, in their order; decode(model, src, max_len) writes the ids.

    max_len is the text's own length plus 50, as in the paper, unless given, whatever stands
    beside it in a batch; the model's max_len bounds it. Raises ValueError for a text that is
    longer than the model can read.
    """
    check.size(batch_size=batch_size)
    if max_len is not None:
        check.size(max_len=max_len)
    lengths = _source_lengths(texts, src_vocab, model.config.max_len)
    limits = [min(max_len or length + 50, model.config.max_len) for length in lengths]
    device = next(model.parameters()).device
    order = sorted(range(len(texts)), key=lengths.__getitem__)  # little padding
    said = [""] * len(texts)
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        pairs = [(texts[number], "") for number in chosen]
        src = encode_pairs(pairs, src_vocab, tgt_vocab).src.to(device)
        with put_back_modes(model):
            model.eval()
            written = decode(model, src, limits[chosen[-1]])
        for number, ids in zip(chosen, written, strict=True):
            said[number] = tgt_vocab.decode(ids[: limits[number]])
    return said


def _source_lengths(texts: Sequence[str], vocab: AnyVocab, max_len: int) -> list[int]:
    """The tokens of each text, with <eos>; none may be longer than the model can read."""
    if isinstance(texts, str):
        raise TypeError("texts must be a sequence of str, got one str; try [text]")
    lengths = [len(vocab.encode(text)) + 1 for text in texts]
    for number, length in enumerate(lengths):
        if length > max_len:
            raise ValueError(
                f"texts[{number}] has {length} tokens with <eos>, "
                f"but the model's max_len is {max_len}"
            )
    return lengths


def evaluate(
    model: Transformer,
    pairs: Sequence[Pair],
    src_vocab: AnyVocab,
    tgt_vocab: AnyVocab,
    decode: Decoder,
    max_len: int | None = None,
    batch_size: int = 100,
) -> Scores:
    """Score what the model writes for the sources of the pairs; the targets are only compared.

    Exact match, BLEU and chrF compare texts, so a word that the vocabulary lacks is an error.
    token_accuracy is the share of the target's tokens, <eos> among them, that stand at the same
    place in what was written.
    """
    if not pairs:
        raise ValueError("pairs must not be empty")
    sources, targets = zip(*pairs, strict=True)
    said = translate(model, sources, src_vocab, tgt_vocab, decode, max_len, batch_size)
    right = total = 0
    for text, target in zip(said, targets, strict=True):
        wanted, came = ([*tgt_vocab.encode(one), EOS] for one in (target, text))
        right += sum(a == b != UNK for a, b in zip(came, wanted, strict=False))
        total += len(wanted)
    return Scores(
        exact_match=sum(a == b for a, b in zip(said, targets, strict=True)) / len(pairs),
        token_accuracy=right / total,
        bleu=sacrebleu.corpus_bleu(
            said, [targets], tokenize=bleu_tokenizer(targets), force=True
        ).score,
        chrf=sacrebleu.corpus_chrf(said, [targets]).score,
        teacher_forced=_teacher_forced(model, pairs, src_vocab, tgt_vocab, batch_size),
    )


def bleu_tokenizer(texts: Sequence[str]) -> str:
    """Name sacrebleu's tokenizer for texts: "zh" where there are CJK characters, else "13a"."""
    return "zh" if any(re.search(f"[{CJK}]", text) for text in texts) else "13a"


@torch.no_grad()
def _teacher_forced(
    model: Transformer, pairs: Sequence[Pair], src_vocab: AnyVocab, tgt_vocab: AnyVocab, size: int
) -> float:
    """The share of right tokens when the decoder reads the right ones before them."""
    device = next(model.parameters()).device
    right = total = 0
    with put_back_modes(model):
        model.eval()
        for start in range(0, len(pairs), size):
            batch = encode_pairs(pairs[start : start + size], src_vocab, tgt_vocab)
            src, tgt_in, tgt_out = batch.to(device)
            best = model(src, tgt_in).argmax(dim=-1)
            real = tgt_out != PAD
            right += ((best == tgt_out) & real & (tgt_out != UNK)).sum().item()
            total += real.sum().item()
    return right / total
