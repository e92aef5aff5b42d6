"""Ask what label smoothing does when some labels are wrong, and when all are right.

A toy: the pre-norm encoder of 06_wirings.py with 2 layers reverses eight digits. It sees the same
400 sequences again and again, 600 steps of 40, Adam at a constant rate of 2e-3, float64. In half of
the runs every fifth label, drawn once, is a wrong digit. One row of the CSV is one training,
measured on 1000 fresh sequences with right labels: accuracy, the plain cross entropy in nats (no
smoothing), and the mean probability of the digit that was chosen; "learned" is the share of the
training labels that the model gives back, wrong ones included.

    python experiments/10_smoothing.py            about 1 minute on one thread
    python experiments/10_smoothing.py --quick    seconds, to see that it runs
"""

import argparse
import csv
import importlib
from pathlib import Path

import torch

from tutorial_transformer.training import sequence_loss

wirings = importlib.import_module("06_wirings")

NUM_TRAIN, NUM_TEST, BATCH, NO_PAD = 400, 1000, 40, -1


def sequences(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw sequences of digits, and what the model should say: the same from back to front."""
    ids = torch.randint(1, wirings.NUM_DIGITS + 1, (count, wirings.LENGTH))
    return ids, ids.flip(1) - 1


def train(wrong: float, smoothing: float, seed: int, steps: int) -> list[float]:
    """Train one encoder; return what the columns after the seed say."""
    torch.manual_seed(seed)
    (ids, right), (test_ids, test_right) = sequences(NUM_TRAIN), sequences(NUM_TEST)
    shift = torch.randint(1, wirings.NUM_DIGITS, right.shape)  # never 0: another digit
    labels = torch.where(torch.rand(right.shape) < wrong, (right + shift) % 10, right)
    model = wirings.Reverser("pre-norm", num_layers=2)
    adam = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
    for _ in range(steps):
        chosen = torch.randint(NUM_TRAIN, (BATCH,))
        loss = sequence_loss(model(ids[chosen]), labels[chosen], NO_PAD, smoothing)
        adam.zero_grad()
        loss.backward()
        adam.step()
    with torch.no_grad():
        learned = (model(ids).argmax(-1) == labels).double().mean().item()
        logits = model(test_ids)
    sure, said = logits.softmax(-1).max(-1)
    accuracy = (said == test_right).double().mean().item()
    nats = sequence_loss(logits, test_right, NO_PAD).item()
    return [learned, accuracy, nats, sure.mean().item()]


def main() -> None:
    """Train with and without wrong labels and smoothing, and write the CSV."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed, three steps")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    seeds, steps = ((0,), 3) if options.quick else ((0, 1, 2), 600)
    with options.out.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        names = ["wrong", "smoothing", "seed", "learned", "accuracy", "nats", "confidence"]
        table.writerow(names)
        for wrong in (0.0, 0.2):
            for smoothing in (0.0, 0.1):
                for seed in seeds:
                    measured = train(wrong, smoothing, seed, steps)
                    table.writerow([wrong, smoothing, seed, *(f"{x:.3f}" for x in measured)])
                    file.flush()


if __name__ == "__main__":
    main()
