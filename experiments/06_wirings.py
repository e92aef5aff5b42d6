"""Train an encoder to reverse eight digits, under five wirings of the sub-layer, at four depths.

A toy: width 32, 4 heads, 32 sequences a step, Adam at a constant rate of 2e-3 without warm-up,
300 steps, Xavier's uniform matrices, float64, two seeds. One row of the CSV is one training.

    python experiments/06_wirings.py            about 4 minutes on one thread
    python experiments/06_wirings.py --quick    seconds, to see that it runs
"""

import argparse
import csv
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from tutorial_transformer.add_norm import LayerNorm
from tutorial_transformer.embeddings import PositionalEncoding, TokenEmbedding
from tutorial_transformer.feed_forward import FeedForward
from tutorial_transformer.multi_head import MultiHeadAttention

WIRINGS = {
    "pre-norm": lambda x, sublayer, norm: x + sublayer(norm(x)),
    "post-norm": lambda x, sublayer, norm: norm(x + sublayer(x)),
    "shortcut only": lambda x, sublayer, norm: x + sublayer(x),
    "norm only": lambda x, sublayer, norm: norm(sublayer(x)),
    "neither": lambda x, sublayer, norm: sublayer(x),
}
LENGTH, D_MODEL, NUM_HEADS, D_FF, NUM_DIGITS, BATCH = 8, 32, 4, 64, 10, 32


class Reverser(nn.Module):
    """Embed digits, run num_layers wired layers, and classify every position.

    norm_input puts one more LayerNorm before the first layer: on the "sum" of tokens and
    positions, or on the "tokens" alone. table_std is the spread of the token vectors' entries.
    """

    def __init__(
        self, wiring: str, num_layers: int, norm_input: str = "none", table_std: float = 1.0
    ) -> None:
        super().__init__()
        self.wire, self.norm_input = WIRINGS[wiring], norm_input
        self.embed = TokenEmbedding(NUM_DIGITS + 1, D_MODEL)  # id 0 is the pad, never used here
        self.positions = PositionalEncoding(D_MODEL, max_len=LENGTH)
        self.norm_first = LayerNorm(D_MODEL)
        self.attentions = nn.ModuleList(
            MultiHeadAttention(D_MODEL, NUM_HEADS) for _ in range(num_layers)
        )
        self.feed_forwards = nn.ModuleList(FeedForward(D_MODEL, D_FF) for _ in range(num_layers))
        self.norms = nn.ModuleList(LayerNorm(D_MODEL) for _ in range(2 * num_layers))
        self.norm_last = LayerNorm(D_MODEL) if wiring == "pre-norm" else nn.Identity()
        with torch.no_grad():
            self.embed.weight *= table_std
        for parameter in self.parameters():
            if parameter.ndim == 2 and parameter is not self.embed.weight:
                nn.init.xavier_uniform_(parameter)
        self.output_proj = nn.Linear(D_MODEL, NUM_DIGITS)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return logits (batch, length, digits)."""
        tokens = self.embed(ids)  # (batch, length, D_MODEL)
        x = self.positions(self.norm_first(tokens) if self.norm_input == "tokens" else tokens)
        x = self.norm_first(x) if self.norm_input == "sum" else x
        layers = zip(self.attentions, self.feed_forwards, strict=True)
        for number, (attention, feed_forward) in enumerate(layers):
            x = self.wire(x, lambda x, a=attention: a(x, x, x), self.norms[2 * number])
            x = self.wire(x, feed_forward, self.norms[2 * number + 1])
        return self.output_proj(self.norm_last(x))


def train(
    model: Reverser, steps: int, lr: float, seed: int, warmup: int = 0, halt: float = 2.0
) -> tuple[float, int]:
    """Train; return the accuracy on fresh digits and the number of steps that were run.

    Training halts when the mean accuracy of the last 20 batches reaches `halt`.
    """
    generator = torch.Generator().manual_seed(1000 + seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, fused=True)
    recent: list[float] = []
    for step in range(1, steps + 1):
        optimizer.param_groups[0]["lr"] = lr * min(1.0, step / max(warmup, 1))
        ids = torch.randint(1, NUM_DIGITS + 1, (BATCH, LENGTH), generator=generator)
        logits, wanted = model(ids), ids.flip(1) - 1
        loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recent.append((logits.argmax(-1) == wanted).double().mean().item())
        if step >= 20 and sum(recent[-20:]) / 20 >= halt:
            break
    ids = torch.randint(1, NUM_DIGITS + 1, (200, LENGTH), generator=generator)
    with torch.no_grad():
        accuracy = (model(ids).argmax(-1) == ids.flip(1) - 1).double().mean().item()
    return accuracy, step


def main() -> None:
    """Train every wiring at every depth and write the CSV."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two depths, three steps")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    depths, seeds, steps = ((1, 2), (0,), 3) if options.quick else ((1, 2, 6, 12), (0, 1), 300)
    with options.out.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["wiring", "depth", "seed", "accuracy"])
        for wiring in WIRINGS:
            for depth in depths:
                for seed in seeds:
                    torch.manual_seed(seed)
                    accuracy, _ = train(Reverser(wiring, depth), steps, 2e-3, seed, halt=0.999)
                    rows.writerow([wiring, depth, seed, f"{accuracy:.3f}"])
                    file.flush()


if __name__ == "__main__":
    main()
