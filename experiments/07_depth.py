"""How many layers does a task want? An encoder of 1 to 8 layers on a simple and a harder task.

compare    ten digits: is the first one larger than the last? 128 or 512 training examples
hops       six digits from 0 to 5, place j holds the digit f(j): say f(f(f(j))) at every place;
           fresh examples at every step (written as 0 examples)

A toy: width 32, 4 heads, batch 64, 200 steps of Adam at a constant rate (hops: 300), float64.
One row of the CSV is one training: the accuracy on 1000 fresh examples, and on the training
examples (on other fresh ones for hops). Settings with the same seed share their data.

    python experiments/07_depth.py            about 5 minutes on one thread
    python experiments/07_depth.py --quick    seconds, to see that it runs
"""

import argparse
import csv
import itertools
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from tutorial_transformer.embeddings import PositionalEncoding, TokenEmbedding
from tutorial_transformer.encoder import Encoder

LENGTHS, NUM_ANSWERS = {"compare": 10, "hops": 6}, {"compare": 2, "hops": 6}
D_MODEL, NUM_HEADS, D_FF, BATCH, NUM_TEST = 32, 4, 64, 64, 1000
BOTH = ("post-norm", "pre-norm")
SETTINGS = [  # task, training examples, steps, orders, seeds
    ("compare", 128, 200, BOTH, 3),
    ("compare", 512, 200, BOTH, 2),
    ("hops", 0, 300, BOTH[1:], 2),
]


class Reader(nn.Module):
    """Embed the digits, encode them, and read an answer off every position."""

    def __init__(self, task: str, num_layers: int, norm_first: bool) -> None:
        super().__init__()
        self.embed = TokenEmbedding(LENGTHS[task] + 1, D_MODEL)  # id 0 is the pad, never used here
        self.positions = PositionalEncoding(D_MODEL, max_len=LENGTHS[task])
        self.encoder = Encoder(num_layers, D_MODEL, NUM_HEADS, D_FF, norm_first=norm_first)
        self.output_proj = nn.Linear(D_MODEL, NUM_ANSWERS[task])

    def forward(self, digits: torch.Tensor) -> torch.Tensor:
        """Return logits (batch, length, num_answers)."""
        return self.output_proj(self.encoder(self.positions(self.embed(digits + 1))))


def answers(task: str, digits: torch.Tensor) -> torch.Tensor:
    """Return what each position must say; -100 where nothing is asked."""
    if task == "hops":
        twice = digits.gather(1, digits)  # f(f(j))
        return digits.gather(1, twice)  # f(f(f(j)))
    wanted = torch.full_like(digits, -100)
    wanted[:, 0] = digits[:, 0] > digits[:, -1]
    return wanted


def accuracy(model: Reader, task: str, digits: torch.Tensor) -> float:
    """Return the share of right answers where one is asked."""
    wanted = answers(task, digits)
    with torch.no_grad():
        right = model(digits).argmax(-1) == wanted
    return right[wanted != -100].double().mean().item()


def train(
    task: str, num_train: int, steps: int, num_layers: int, norm_first: bool, seed: int, lr: float
) -> tuple[float, float]:
    """Train one encoder; return its accuracy on fresh and on training examples."""
    torch.manual_seed(seed)
    length = LENGTHS[task]  # digits go from 0 to length - 1
    test = torch.randint(length, (NUM_TEST, length))
    pool = torch.randint(length, (num_train or NUM_TEST, length))
    model = Reader(task, num_layers, norm_first)
    adam = torch.optim.Adam(model.parameters(), lr=lr, fused=True)
    for _ in range(steps):
        digits = torch.randint(length, (BATCH, length))
        if num_train:
            digits = pool[torch.randint(num_train, (BATCH,))]
        loss = F.cross_entropy(model(digits).flatten(0, 1), answers(task, digits).flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
    return accuracy(model, task, test), accuracy(model, task, pool)


def main() -> None:
    """Train every setting and write the CSV."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two depths, one seed, three steps")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    depths = (1, 2) if options.quick else (1, 2, 4, 8)
    with options.out.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["task", "examples", "order", "layers", "seed", "accuracy", "on_training"])
        for task, num_train, steps, orders, num_seeds in SETTINGS:
            if options.quick:
                steps, num_seeds = 3, 1
            for order, num_layers, seed in itertools.product(orders, depths, range(num_seeds)):
                norm_first = order == "pre-norm"
                scores = train(task, num_train, steps, num_layers, norm_first, seed, options.lr)
                row = [task, num_train, order, num_layers, seed]
                table.writerow(row + [f"{score:.3f}" for score in scores])
                file.flush()


if __name__ == "__main__":
    main()
