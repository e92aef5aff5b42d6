"""How large should tokens and positions be? A small encoder learns to reverse 12 digits.

    python experiments/05_scale.py [--quick] [--out FILE]

Writes one row for each 25 steps of each run: part, setting, seed, step, accuracy.

part "grid"    standard deviation of the table × (with or without the factor √d_model)
part "norm"    the setting that fails, in a pre-norm encoder
part "gain"    the sinusoids multiplied by a gain, tokens of size 1
part "learned" a trained table of positions instead of the sinusoids
"""

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tutorial_transformer.embeddings import TokenEmbedding, sinusoidal_positions
from tutorial_transformer.encoder import Encoder

D_MODEL, LENGTH, DIGITS = 64, 12, 10
GRID = {
    "N(0,1) × √d": (1.0, True),
    "N(0,1)": (1.0, False),
    "N(0,1/d) × √d": (D_MODEL**-0.5, True),
    "N(0,1/d)": (D_MODEL**-0.5, False),
}


class Reverser(nn.Module):
    """Embed, add positions, encode, classify every position; ids are 1 to 10, 0 is the pad."""

    def __init__(
        self,
        std: float = D_MODEL**-0.5,
        scaled: bool = True,
        gain: float = 1.0,
        learned: bool = False,
        norm_first: bool = False,
    ) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(DIGITS + 1, D_MODEL)  # multiplies by √d_model
        nn.init.normal_(self.embedding.weight, std=std)
        self.factor = 1.0 if scaled else D_MODEL**-0.5
        table = gain * sinusoidal_positions(LENGTH, D_MODEL)
        self.positions = nn.Parameter(torch.randn(LENGTH, D_MODEL) if learned else table)
        self.positions.requires_grad_(learned)
        self.encoder = Encoder(2, D_MODEL, num_heads=4, d_ff=128, norm_first=norm_first)
        self.output_proj = nn.Linear(D_MODEL, DIGITS + 1)

    def forward(self, ids: Tensor) -> Tensor:
        """Return logits (batch, length, 11)."""
        return self.output_proj(self.encoder(self.embedding(ids) * self.factor + self.positions))


def train(model: Reverser, seed: int, steps: int) -> Iterator[tuple[int, float]]:
    """Yield (step, accuracy on fresh digits) every 25 steps."""
    digits = torch.Generator().manual_seed(seed)
    test = torch.randint(1, DIGITS + 1, (500, LENGTH), generator=digits)
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(1, steps + 1):
        ids = torch.randint(1, DIGITS + 1, (32, LENGTH), generator=digits)
        loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flip(1).flatten())
        adam.zero_grad()
        loss.backward()
        adam.step()
        if step % 25 == 0:
            with torch.no_grad():
                yield step, (model(test).argmax(-1) == test.flip(1)).double().mean().item()


def settings() -> Iterator[tuple[str, str, int, dict]]:
    """Yield all runs: part, setting, seed, arguments of the model."""
    for seed in (0, 1):
        for name, (std, scaled) in GRID.items():
            yield "grid", name, seed, {"std": std, "scaled": scaled}
        yield "norm", "N(0,1) × √d, pre-norm", seed, {"std": 1.0, "norm_first": True}
        yield "learned", "learned", seed, {"learned": True}
    for gain in (0, 0.03, 0.1, 0.3, 1, 3, 10, 30):
        yield "gain", str(gain), 0, {"gain": float(gain)}


def main() -> None:
    """Run everything and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="25 steps a run, to see that it works")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    rows = []
    for part, setting, seed, options in settings():
        if arguments.quick and (seed or part == "gain"):
            continue
        torch.manual_seed(seed)
        for step, accuracy in train(Reverser(**options), seed, 25 if arguments.quick else 400):
            rows.append((part, setting, seed, step, f"{accuracy:.3f}"))
        print(*rows[-1], flush=True)
    with arguments.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("part", "setting", "seed", "step", "accuracy"))
        writer.writerows(rows)


if __name__ == "__main__":
    main()
