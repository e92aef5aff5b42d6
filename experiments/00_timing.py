"""How long does one layer take to train on a sequence: nn.LSTM against attention, as ratios.

Forward and backward, float32, one thread, width 128, batch 8. The four contestants take turns,
round by round, and the best round of each counts, so that a busy machine disturbs them less.
Written as ratios: time of nn.LSTM / time of the other; above 1 the other is faster. The LSTM
loop is the same LSTM written step by step in Python. Times differ from machine to machine; the
notebook reads the order of the ratios, not their digits. About 2 minutes on one thread.
"""

import argparse
import csv
import time
from pathlib import Path

import torch
from torch import nn

from tutorial_transformer.multi_head import MultiHeadAttention

D_MODEL, HEADS, BATCH = 128, 4, 8


class LSTMLoop(nn.Module):
    """An nn.LSTMCell, called once a position."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(D_MODEL, D_MODEL)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return all hidden states, (batch, length, d_model)."""
        state, states = None, []
        for x_t in x.unbind(1):
            state = self.cell(x_t, state)
            states.append(state[0])
        return torch.stack(states, dim=1)


class SelfAttention(nn.Module):
    """Our layer: with torch's fused kernel, or readable, so that the weights can be looked at."""

    def __init__(self, readable: bool) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(D_MODEL, HEADS)
        self.attention.on_weights = (lambda attn_weights: None) if readable else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Let every position read all positions."""
        return self.attention(x, x, x)


class LSTM(nn.LSTM):
    """nn.LSTM that returns its outputs only."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return all hidden states, (batch, length, d_model)."""
        return super().forward(x)[0]


def seconds(layer: nn.Module, x: torch.Tensor) -> float:
    """Time one forward and backward pass."""
    start = time.perf_counter()
    layer(x).sum().backward()
    return time.perf_counter() - start


def main() -> None:
    """Time the grid and write the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round, two short lengths")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = {
        "lstm": LSTM(D_MODEL, D_MODEL, batch_first=True),
        "lstm_loop": LSTMLoop(),
        "attention_readable": SelfAttention(readable=True),
        "attention_fused": SelfAttention(readable=False),
    }
    lengths, rounds = ((8, 16), 1) if args.quick else ((16, 32, 64, 128, 256, 512, 1024), 7)
    with args.out.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["length", *list(layers)[1:]])
        for length in lengths:
            x = torch.randn(BATCH, length, D_MODEL)
            turns = [[seconds(layer, x) for layer in layers.values()] for _ in range(rounds + 1)]
            lstm, *others = (min(times) for times in zip(*turns[1:], strict=True))  # first: warm-up
            row = [length, *(f"{lstm / other:.2f}" for other in others)]
            table.writerow(row)
            print(*row)


if __name__ == "__main__":
    main()
