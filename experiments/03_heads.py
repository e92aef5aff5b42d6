"""How many heads? Steps until a toy task is learned, for 1 to 32 heads in a model of width 32.

    python experiments/03_heads.py            # writes experiments/03_heads.csv, about 2 minutes
    python experiments/03_heads.py --quick    # two settings, a few seconds, to see that it runs

Two tasks on ten random digits, one attention layer without feed-forward network:
retrieve   say two digits at every place: the one before and the one three places before
reverse    say the sentence backwards
Starts: "independent" as the package makes them, "cloned" with four equal linear maps, "equal"
with equal heads. Equal heads have equal gradients; what can part them is round-off.
"""

import argparse
import copy
import csv
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from tutorial_transformer.multi_head import MultiHeadAttention

LENGTH, DIGITS, WIDTH, BATCH, EVERY, MOST = 10, 10, 32, 32, 20, 600
TASKS = {
    "retrieve": lambda ids: torch.stack([ids.roll(1, 1), ids.roll(3, 1)], -1),
    "reverse": lambda ids: ids.flip(1)[..., None],
}


class Toy(nn.Module):
    """Embed digits and places, attend once, read the answers off with one linear map."""

    def __init__(self, num_heads: int, answers: int, start: str) -> None:
        super().__init__()
        self.token = nn.Embedding(DIGITS, WIDTH)
        self.place = nn.Embedding(LENGTH, WIDTH)
        self.attn = MultiHeadAttention(WIDTH, num_heads)
        self.readout = nn.Linear(WIDTH, answers * DIGITS)
        if start == "cloned":
            for name in ("w_k", "w_v", "w_o"):
                setattr(self.attn, name, copy.deepcopy(self.attn.w_q))
        if start == "equal":
            d_k = WIDTH // num_heads
            for w in (self.attn.w_q, self.attn.w_k, self.attn.w_v):
                w.weight.data = w.weight.data[:d_k].repeat(num_heads, 1)
                w.bias.data = w.bias.data[:d_k].repeat(num_heads)
            self.attn.w_o.weight.data = self.attn.w_o.weight.data[:, :d_k].repeat(1, num_heads)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return logits (batch, LENGTH, answers, DIGITS)."""
        x = self.token(ids) + self.place.weight
        return self.readout(self.attn(x, x, x)).unflatten(-1, (-1, DIGITS))


def steps_to_learn(task: str, num_heads: int, start: str, seed: int, most: int) -> tuple:
    """Train until 200 fresh sentences are answered right at 99 % of the places, or give up.

    Returns (steps, accuracy at the end); steps is empty when `most` steps were not enough.
    """
    answer = TASKS[task]
    torch.manual_seed(seed)
    test = torch.randint(DIGITS, (200, LENGTH))
    model = Toy(num_heads, answer(test).shape[-1], start)
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(1, most + 1):
        ids = torch.randint(DIGITS, (BATCH, LENGTH))
        loss = F.cross_entropy(model(ids).flatten(0, 2), answer(ids).flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
        if step % EVERY == 0:
            with torch.no_grad():
                right = (model(test).argmax(-1) == answer(test)).all(-1)
            accuracy = right.double().mean().item()
            if accuracy >= 0.99:
                return step, accuracy
    return "", accuracy


def main() -> None:
    """Run all settings and write the CSV."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two settings only")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    heads = (2, 4) if options.quick else (1, 2, 4, 8, 16, 32)
    settings = [("retrieve", h, "independent") for h in heads]
    if not options.quick:
        settings += [("reverse", h, "independent") for h in heads]
        settings += [("retrieve", h, "cloned") for h in (2, 4, 8)]
        settings += [("retrieve", h, "equal") for h in (2, 4)]
    most, seeds = (60, 1) if options.quick else (MOST, 3)
    with options.out.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["task", "start", "num_heads", "seed", "steps", "accuracy"])
        for task, num_heads, start in settings:
            for seed in range(seeds):
                steps, accuracy = steps_to_learn(task, num_heads, start, seed, most)
                writer.writerow([task, start, num_heads, seed, steps, f"{accuracy:.3f}"])


if __name__ == "__main__":
    main()
