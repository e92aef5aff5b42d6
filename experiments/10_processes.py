"""Train on the same batches alone, or shared among the processes of torchrun.

Five steps of a small model in float64. Every process calls `train` with the same batches; `train`
finds the others by itself and computes its share of each batch. The first process prints the loss
of every step and writes the CSV, and both are the same however many processes there were.

    python experiments/10_processes.py                                  seconds
    torchrun --nproc-per-node=2 experiments/10_processes.py             the same numbers
    python experiments/10_processes.py --quick                          one step
"""

import argparse
import csv
import os
from pathlib import Path

import torch

from tutorial_transformer.data import date_pairs, make_batches
from tutorial_transformer.training import train
from tutorial_transformer.transformer import Transformer, TransformerConfig
from tutorial_transformer.vocab import Vocab


def main() -> None:
    """Train for five steps; the first process reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one step")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    pairs = date_pairs(125, seed=0)
    src_vocab, tgt_vocab = (Vocab(pair[side] for pair in pairs) for side in (0, 1))
    batches = make_batches(pairs, src_vocab, tgt_vocab, batch_size=25)  # 25 rows: unequal shares
    torch.manual_seed(0)
    model = Transformer(TransformerConfig.tiny(len(src_vocab), len(tgt_vocab)))
    history = train(model, batches, 1 if options.quick else 5, warmup_steps=5, progress="none")
    if os.environ.get("RANK", "0") != "0":
        return
    with options.out.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["step", "loss"])
        for step, loss in enumerate(history.loss, start=1):
            print(f"{loss:.12f}")
            table.writerow([step, f"{loss:.6f}"])


if __name__ == "__main__":
    main()
