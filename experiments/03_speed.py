"""Which is faster? Ratios of CPU times for four ways to write multi-head attention.

    python experiments/03_speed.py            # writes experiments/03_speed.csv, under a minute
    python experiments/03_speed.py --quick    # one length, about two seconds

loop / batched    eight heads in a Python loop over heads against all at once, by length
h heads / 1 head  the same layer of width 512 cut into h heads, 256 tokens, by number of heads
dots / matmul     64 x 64 dot products in a Python loop against one matrix product
three / fused     three linear maps for Q, K and V against one map of three times the width

Each time is the smallest of many, all rivals in turn, on one thread. The numbers are those of
one machine: another processor, and above all a GPU, gives others.
"""

import argparse
import csv
import time
from collections.abc import Callable
from pathlib import Path

import torch

from tutorial_transformer.attention import scaled_dot_product_attention
from tutorial_transformer.multi_head import MultiHeadAttention, split_heads

BATCH, WIDTH, HEADS = 2, 512, 8


@torch.no_grad()
def ratio(first: Callable, second: Callable, rounds: int) -> float:
    """How many times as long `first` takes as `second`: smallest time by smallest time."""
    best = [float("inf"), float("inf")]
    for _ in range(rounds + 1):
        for which, run in enumerate((first, second)):
            start = time.thread_time()
            run()
            best[which] = min(best[which], time.thread_time() - start)
    return best[0] / best[1]


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The readable attention, which keeps its weights."""
    return scaled_dot_product_attention(q, k, v)[0]


def loop_against_batch(length: int, rounds: int) -> float:
    """Compare a loop over heads with one call for all of them."""
    q, k, v = (split_heads(torch.randn(BATCH, length, WIDTH), HEADS) for _ in range(3))
    loop = lambda: torch.stack([attend(q[:, h], k[:, h], v[:, h]) for h in range(HEADS)], 1)  # noqa: E731
    return ratio(loop, lambda: attend(q, k, v), rounds)


def heads_against_one(num_heads: int, rounds: int) -> float:
    """Compare a whole layer of num_heads heads, which keeps its weights, with one of one head."""
    x = torch.randn(BATCH, 256, WIDTH)
    many, one = MultiHeadAttention(WIDTH, num_heads), MultiHeadAttention(WIDTH, 1)
    many.on_weights = one.on_weights = lambda attn_weights: None
    return ratio(lambda: many(x, x, x), lambda: one(x, x, x), rounds)


def dots_against_matmul(rounds: int) -> float:
    """Compare 64 x 64 dot products, one at a time, with one matrix product."""
    a, b = torch.randn(2, 64, 64)
    return ratio(lambda: [[(r * s).sum() for s in b] for r in a], lambda: a @ b.T, rounds)


def three_against_fused(rounds: int) -> float:
    """Compare three projections with one of three times the width."""
    x, weights = torch.randn(BATCH, 256, WIDTH), torch.randn(3, WIDTH, WIDTH)
    fused = weights.flatten(0, 1)
    return ratio(lambda: [x @ w.T for w in weights], lambda: x @ fused.T, rounds)


def main() -> None:
    """Measure all ratios and write the CSV."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one length only")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    lengths, heads = ((16,), (8,)) if options.quick else ((16, 64, 128, 256, 512), (8, 64))
    rows = [("loop / batched", n, loop_against_batch(n, 10_000 // n)) for n in lengths]
    rounds = 3 if options.quick else 30
    rows += [("h heads / 1 head", h, heads_against_one(h, rounds)) for h in heads]
    rows += [("dots / matmul", 64, dots_against_matmul(rounds))]
    rows += [("three / fused", 256, three_against_fused(rounds))]
    with options.out.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["comparison", "size", "ratio"])
        writer.writerows([name, size, f"{value:.2f}"] for name, size, value in rows)


if __name__ == "__main__":
    main()
