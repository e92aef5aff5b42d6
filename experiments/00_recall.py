"""Who remembers the first of L digits? One recurrent layer against one attention layer.

Each model reads L random digits and must name the first one after the last. Same width, same
optimiser, same number of steps; training stops early when the last 20 batches were 99 % right.
Writes one line per model and length: the steps it took (0 = not within the budget) and the
accuracy on 1000 fresh sequences. About 5 minutes on one thread.
"""

import argparse
import csv
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from tutorial_transformer.embeddings import PositionalEncoding, TokenEmbedding
from tutorial_transformer.multi_head import MultiHeadAttention

DIGITS, D_MODEL, BATCH, FORGET_BIAS = 10, 32, 32, 3.0
RECURRENT = {"tanh RNN": nn.RNN, "GRU": nn.GRU, "LSTM": nn.LSTM, "LSTM, forget bias +3": nn.LSTM}
MODELS = [*RECURRENT, "attention"]


class Reader(nn.Module):
    """Embed the digits, mix them with one layer, and classify what stands at the last position."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(DIGITS + 1, D_MODEL)  # id 0 is the pad
        self.positions = PositionalEncoding(D_MODEL) if kind == "attention" else None
        self.attention = MultiHeadAttention(D_MODEL, num_heads=4) if kind == "attention" else None
        self.recurrent = None
        if kind in RECURRENT:
            self.recurrent = RECURRENT[kind](D_MODEL, D_MODEL, batch_first=True)
        if "forget" in kind:  # gates are stacked: input, forget, cell, output
            with torch.no_grad():
                self.recurrent.bias_ih_l0[D_MODEL : 2 * D_MODEL] = FORGET_BIAS
        self.output_proj = nn.Linear(D_MODEL, DIGITS)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return logits over the digits, (batch, 10)."""
        x = self.embedding(ids)  # (batch, length, d_model)
        if self.recurrent is not None:
            return self.output_proj(self.recurrent(x)[0][:, -1])
        x = self.positions(x)
        return self.output_proj(self.attention(x[:, -1:], x, x)[:, 0])


def train(kind: str, length: int, num_steps: int, lr: float, seed: int) -> tuple[int, float]:
    """Return the steps until 20 batches in a row are 99 % right (0 = never), and the accuracy."""
    torch.manual_seed(seed)
    model = Reader(kind)
    adam = torch.optim.Adam(model.parameters(), lr=lr)
    right, took = [], 0
    for step in range(1, num_steps + 1):
        ids = torch.randint(1, DIGITS + 1, (BATCH, length))
        logits = model(ids)
        adam.zero_grad()
        F.cross_entropy(logits, ids[:, 0] - 1).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        right.append((logits.argmax(-1) == ids[:, 0] - 1).double().mean().item())
        if step >= 20 and sum(right[-20:]) / 20 >= 0.99:
            took = step
            break
    ids = torch.randint(1, DIGITS + 1, (1000, length))
    with torch.no_grad():
        accuracy = (model(ids).argmax(-1) == ids[:, 0] - 1).double().mean().item()
    return took, accuracy


def main() -> None:
    """Run the grid and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two steps, two lengths")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    num_steps, lengths = (2, (5, 10)) if args.quick else (args.steps, (10, 25, 50, 100))
    with args.out.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["model", "length", "steps", "accuracy"])
        for length in lengths:
            for kind in MODELS:
                took, accuracy = train(kind, length, num_steps, args.lr, args.seed)
                table.writerow([kind, length, took, f"{accuracy:.3f}"])
                print(f"{kind:20s} length {length:3d}: steps {took:3d}, accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
