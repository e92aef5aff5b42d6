"""English number words to German and French ones: does a tiny model learn to spell the unseen?

A width of 64, 2 + 2 layers, pre-norm, word tokens (spaces are tokens too), float32. It trains on
8,000 numbers below 100,000, in batches of 32, and is asked for 1,000 others, which no seed ever
trains on: greedy decoding, compared with the whole text. Batches mix long numbers with short ones:
in batches of one length, as make_batches builds them to save padding, the score is less steady.

One row of the first table is one score: the mean loss of the 100 steps before it, the share of
numbers spelled exactly, and the CPU-seconds of training so far (without the scores). The second
table is the cross-attention of the last decoder layer, averaged over its heads, while the model of
seed 0 spells one unseen number: row by row what it says, column by column the English tokens that
it looks at.

    python experiments/10_numbers.py            about 5 minutes on one thread
    python experiments/10_numbers.py --quick    seconds, to see that it runs
"""

import argparse
import csv
import itertools
import time
from pathlib import Path

import torch

from tutorial_transformer.attention_maps import record_attention
from tutorial_transformer.data import Pair, encode_pairs, number_pairs
from tutorial_transformer.decoding import greedy_decode
from tutorial_transformer.training import train
from tutorial_transformer.transformer import Transformer, TransformerConfig
from tutorial_transformer.vocab import BOS, Vocab

SHOWN = "eighty-four thousand, three hundred and twenty-six"  # of the test part
BATCH, MAX_LEN, SCORE_EVERY = 32, 24, 100  # the longest number has 21 tokens and <eos>


class Speller:
    """A model with its two vocabularies."""

    def __init__(self, pairs: list[Pair], seed: int) -> None:
        self.src_vocab = Vocab(source for source, _ in pairs)
        self.tgt_vocab = Vocab(target for _, target in pairs)
        sizes = len(self.src_vocab), len(self.tgt_vocab)
        torch.manual_seed(seed)
        self.model = Transformer(TransformerConfig.tiny(*sizes, norm_first=True))

    def exact_match(self, pairs: list[Pair]) -> float:
        """Return the share of targets that greedy decoding writes exactly."""
        src = encode_pairs(pairs, self.src_vocab, self.tgt_vocab).src
        said = [
            self.tgt_vocab.decode(ids)
            for rows in src.split(250)
            for ids in greedy_decode(self.model, rows, MAX_LEN)
        ]
        return sum(text == target for text, (_, target) in zip(said, pairs, strict=True)) / len(src)

    def cross_attention(self, source: str) -> list[list]:
        """Return rows (place said, token said, place read, token read, weight)."""
        src = encode_pairs([(source, "")], self.src_vocab, self.tgt_vocab).src
        tgt_out = greedy_decode(self.model, src, MAX_LEN)
        tgt_in = torch.cat([torch.tensor([[BOS]]), tgt_out[:, :-1]], dim=1)
        with record_attention(self.model) as maps, torch.no_grad():
            self.model(src, tgt_in)
        said = [self.tgt_vocab.tokens[number] for number in tgt_out[0]]
        read = [self.src_vocab.tokens[number] for number in src[0]]
        last = f"decoder.{self.model.config.num_layers - 1}.cross_attn"
        attn_weights = maps[last][0].mean(dim=0).tolist()
        return [
            [i, token, j, other, f"{attn_weights[i][j]:.3f}"]
            for (i, token), (j, other) in itertools.product(enumerate(said), enumerate(read))
        ]


def run(target: str, seed: int, num_steps: int, num_pairs: int) -> tuple[Speller, list[list]]:
    """Train one model; return it and the rows (step, loss, exact match, CPU-seconds)."""
    pairs = number_pairs(num_pairs, seed, target, part="train")
    test = number_pairs(min(1000, num_pairs), 0, target, part="test")
    speller = Speller(pairs, seed)
    batches = [
        encode_pairs(pairs[start : start + BATCH], speller.src_vocab, speller.tgt_vocab)
        for start in range(0, num_pairs, BATCH)
    ]
    seconds, scoring, start = [], 0.0, time.process_time()

    def score(model: Transformer) -> float:
        nonlocal scoring
        before = time.process_time()
        seconds.append(before - start - scoring)
        exact = speller.exact_match(test)
        scoring += time.process_time() - before
        return exact

    history = train(
        speller.model,
        batches,
        num_steps,
        warmup_steps=30,
        max_lr=2e-3,
        seed=seed,
        progress="none",
        score=score,
        score_every=min(SCORE_EVERY, num_steps),
    )
    rows = []
    for step, exact, spent in zip(history.scored_at, history.scores, seconds, strict=True):
        losses = history.loss[max(0, step - SCORE_EVERY) : step]
        rows.append([step, f"{sum(losses) / len(losses):.4f}", f"{exact:.3f}", f"{spent:.1f}"])
    return speller, rows


def main() -> None:
    """Train every setting and write the two tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="German, one seed, three steps")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    targets = ("de",) if options.quick else ("de", "fr")
    num_seeds, num_steps, num_pairs = (1, 3, 300) if options.quick else (3, 1000, 8_000)
    attention = options.out.with_name(options.out.stem + "_attention.csv")
    with (
        options.out.open("w", newline="", encoding="utf-8") as file,
        attention.open("w", newline="", encoding="utf-8") as attention_file,
    ):
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["target", "seed", "step", "loss", "exact_match", "cpu_seconds"])
        maps = csv.writer(attention_file, lineterminator="\n")
        maps.writerow(["target", "row", "said", "column", "read", "weight"])
        for target, seed in itertools.product(targets, range(num_seeds)):
            speller, rows = run(target, seed, num_steps, num_pairs)
            table.writerows([target, seed, *row] for row in rows)
            if seed == 0:
                maps.writerows([target, *row] for row in speller.cross_attention(SHOWN))
            file.flush()


if __name__ == "__main__":
    main()
