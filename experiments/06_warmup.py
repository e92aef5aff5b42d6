"""Ask what a norm allows: high rates, no warm-up, large inputs. The toy is that of 06_wirings.py.

Each row of the CSV is one training of at most 600 steps (400 for the question "rate"), halted once
the mean accuracy of the last 20 batches is .99. The rate rises in a line for `warmup` steps and
then stays. norm_input is where one more LayerNorm stands before the first layer; table_std is the
size of the entries of the token vectors.

    python experiments/06_warmup.py            about 5 minutes on one thread
    python experiments/06_warmup.py --quick    seconds, to see that it runs
"""

import argparse
import csv
import importlib
from pathlib import Path

import torch

wirings = importlib.import_module("06_wirings")

NAMES = ["question", "wiring", "depth", "lr", "warmup", "norm_input", "table_std", "seed"]


def runs(seed: int) -> list[tuple]:
    """List the trainings of one seed, in the order of NAMES."""
    rows = []
    for wiring in ("post-norm", "pre-norm"):
        for depth in (4, 6):
            for lr in (3e-3, 1e-2):
                for warmup in (0, 200):
                    rows.append(("warmup", wiring, depth, lr, warmup, "none", 1.0, seed))
    for depth in (2, 6):
        rows.append(("slip", "post-norm", depth, 2e-3, 0, "sum", 1.0, seed))
    for wiring, std in (("post-norm", 1.0), ("pre-norm", 1.0), ("post-norm", 32**0.5)):
        for norm_input in ("none", "sum") if std == 1 else ("none", "sum", "tokens"):
            rows.append(("input", wiring, 2, 2e-3, 0, norm_input, std, seed))
    if seed == 0:
        for wiring in ("pre-norm", "shortcut only"):
            for depth in (2, 6):
                for lr in (1e-3, 3e-3, 1e-2):
                    rows.append(("rate", wiring, depth, lr, 0, "none", 1.0, seed))
    return rows


def main() -> None:
    """Train them all and write the CSV."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="four trainings of three steps")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    with options.out.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow([*NAMES, "accuracy", "steps"])
        for row in runs(0)[:4] if options.quick else runs(0) + runs(1):
            question, wiring, depth, lr, warmup, norm_input, std, seed = row
            torch.manual_seed(seed)
            model = wirings.Reverser(wiring, depth, norm_input, std)
            limit = 3 if options.quick else {"rate": 400}.get(question, 600)
            accuracy, steps = wirings.train(model, limit, lr, seed, warmup, halt=0.99)
            table.writerow([*row[:6], f"{std:.2f}", seed, f"{accuracy:.3f}", steps])
            file.flush()


if __name__ == "__main__":
    main()
