"""Ask how long a warm-up should be, and whether clipping can take its place.

The toy of 06_wirings.py: six post-norm layers, width 32, reverse eight digits. At most 600 steps of
Adam, halted once the mean accuracy of the last 20 batches is .99, float64. The rate rises in a line
for `warmup` steps to 3e-3 and then stays. Gradients longer than `clip` are shortened ("none": they
are not). One row of the CSV is one training: the accuracy of its last 20 batches, the steps it was
given, and the shares of steps whose gradient was longer than 1 and than 5 before clipping.

    python experiments/10_warmup.py            about 3 minutes on one thread
    python experiments/10_warmup.py --quick    seconds, to see that it runs
"""

import argparse
import csv
import importlib
import math
from pathlib import Path

import torch
import torch.nn.functional as F

wirings = importlib.import_module("06_wirings")

LR = 3e-3
SETTINGS = [(warmup, "none") for warmup in (0, 20, 50, 100, 200, 400)] + [(0, "1"), (0, "5")]


def train(warmup: int, clip: str, seed: int, steps: int) -> tuple[float, int, float, float]:
    """Train six post-norm layers on fresh digits; return what the last four columns say."""
    torch.manual_seed(seed)
    model = wirings.Reverser("post-norm", num_layers=6)
    generator = torch.Generator().manual_seed(1000 + seed)
    adam = torch.optim.Adam(model.parameters(), lr=LR, fused=True)
    longest = math.inf if clip == "none" else float(clip)
    accuracies, norms = [], []
    while len(norms) < steps and (len(norms) < 20 or sum(accuracies[-20:]) < 20 * 0.99):
        adam.param_groups[0]["lr"] = LR * min(1.0, (len(norms) + 1) / max(warmup, 1))
        ids = torch.randint(1, 11, (wirings.BATCH, wirings.LENGTH), generator=generator)
        logits, wanted = model(ids), ids.flip(1) - 1
        adam.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), wanted.flatten()).backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), longest).item())
        adam.step()
        accuracies.append((logits.argmax(-1) == wanted).double().mean().item())
    above = [sum(norm > bound for norm in norms) / len(norms) for bound in (1, 5)]
    return sum(accuracies[-20:]) / len(accuracies[-20:]), len(norms), *above


def main() -> None:
    """Train with every warm-up and every clip, and write the CSV."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two settings, one seed, three steps")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    with options.out.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["warmup", "clip", "seed", "accuracy", "steps", "above_1", "above_5"])
        for warmup, clip in SETTINGS[-2:] if options.quick else SETTINGS:
            for seed in (0,) if options.quick else (0, 1, 2):
                accuracy, steps, *above = train(warmup, clip, seed, 3 if options.quick else 600)
                shares = (f"{share:.3f}" for share in above)
                table.writerow([warmup, clip, seed, f"{accuracy:.3f}", steps, *shares])
                file.flush()


if __name__ == "__main__":
    main()
