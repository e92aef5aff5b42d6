"""Do sinusoids carry a model past the lengths it was trained on? Two tasks, trained on 4 to 16.

    python experiments/05_extrapolation.py [--quick] [--out FILE]

Writes the accuracy of each trained encoder at many lengths: task, seed, length, accuracy.

task "reverse"   say the digits backwards
task "previous"  say, at each place, the digit before it (at the first place: 0)
"""

import argparse
import csv
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tutorial_transformer.embeddings import PositionalEncoding, TokenEmbedding
from tutorial_transformer.encoder import Encoder

D_MODEL, DIGITS, SHORTEST, LONGEST = 64, 10, 4, 16
LENGTHS = (4, 6, 8, 10, 12, 14, 15, 16, 17, 18, 19, 20, 22, 24, 28, 32, 40, 48, 64)
TASKS = {
    "previous": (lambda ids: F.pad(ids[:, :-1], (1, 0)), 600),  # what is wanted, training steps
    "reverse": (lambda ids: ids.flip(1), 2000),
}


def build_model() -> nn.ModuleDict:
    """A small encoder that says one id at every place; ids are 1 to 10, 0 is the pad."""
    return nn.ModuleDict({
        "embedding": TokenEmbedding(DIGITS + 1, D_MODEL),
        "positions": PositionalEncoding(D_MODEL, max_len=LENGTHS[-1]),
        "encoder": Encoder(2, D_MODEL, num_heads=4, d_ff=128),
        "output_proj": nn.Linear(D_MODEL, DIGITS + 1),
    })  # fmt: skip


def predict(model: nn.ModuleDict, ids: Tensor) -> Tensor:
    """Return logits (batch, length, 11)."""
    x = model["positions"](model["embedding"](ids))
    return model["output_proj"](model["encoder"](x))


def train(task: str, seed: int, steps: int) -> nn.ModuleDict:
    """Train on a random length between SHORTEST and LONGEST at each step."""
    torch.manual_seed(seed)
    model, wanted = build_model(), TASKS[task][0]
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    decay = torch.optim.lr_scheduler.LinearLR(adam, 1.0, 0.05, steps)
    for _ in range(steps):
        length = torch.randint(SHORTEST, LONGEST + 1, ()).item()
        ids = torch.randint(1, DIGITS + 1, (32, length))
        loss = F.cross_entropy(predict(model, ids).flatten(0, 1), wanted(ids).flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
        decay.step()
    return model


@torch.no_grad()
def accuracy(model: nn.ModuleDict, task: str, length: int) -> float:
    """Share of right digits on 300 fresh sequences."""
    ids = torch.randint(
        1, DIGITS + 1, (300, length), generator=torch.Generator().manual_seed(length)
    )
    return (predict(model, ids).argmax(-1) == TASKS[task][0](ids)).double().mean().item()


def main() -> None:
    """Train two seeds of each task and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="one seed, 5 steps, to see that it works"
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    rows, lengths = [], LENGTHS[:2] if arguments.quick else LENGTHS
    for task, (_, steps) in TASKS.items():
        for seed in (0,) if arguments.quick else (0, 1):
            model = train(task, seed, 5 if arguments.quick else steps)
            for length in lengths:
                rows.append((task, seed, length, f"{accuracy(model, task, length):.3f}"))
            print(task, seed, {row[2]: row[3] for row in rows[-len(lengths) :]}, flush=True)
    with arguments.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("task", "seed", "length", "accuracy"))
        writer.writerows(rows)


if __name__ == "__main__":
    main()
