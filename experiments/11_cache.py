"""How long does one token take to write, with and without a key-value cache?

Greedy decoding by the package on a model that was not trained (what it says does not matter, so
<eos> is never chosen): float32, one thread, width 256, 4 heads, 4 + 4 layers, batch 1, source of
16 ids. `cached` and `uncached` are milliseconds a token, averaged over a text of `length` tokens,
the best of three rounds in turns; processor time, which a busy machine disturbs less. Times belong
to the machine that measured them: read the shape of the curves, not the digits.

    python experiments/11_cache.py            about 1 minute on one thread
    python experiments/11_cache.py --quick    seconds, to see that it runs
"""

import argparse
import csv
import time
from pathlib import Path

import torch

from tutorial_transformer.decoding import greedy_decode
from tutorial_transformer.transformer import Transformer, TransformerConfig


def silent_about_the_end(vocab_size: int) -> Transformer:
    """Make a model that never says <eos>, so that every text is as long as asked for."""
    sizes = {"d_model": 256, "num_heads": 4, "num_layers": 4, "d_ff": 1024}
    model = Transformer(TransformerConfig.base(vocab_size, vocab_size, **sizes))
    model.output_proj.bias.data[model.config.eos_id] = -1e4
    return model


def milliseconds(model: Transformer, src: torch.Tensor, length: int, use_cache: bool) -> float:
    """Time greedy decoding of `length` tokens; returns the time a token."""
    start = time.process_time()
    ids = greedy_decode(model, src, length, use_cache=use_cache)
    assert ids.shape == (1, length)
    return 1000 * (time.process_time() - start) / length


def main() -> None:
    """Time every length and write the CSV."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round, two short lengths")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = silent_about_the_end(vocab_size=100)
    src = torch.randint(4, 100, (1, 16))
    lengths, rounds = ((4, 8), 1) if options.quick else ((16, 32, 64, 128, 256), 3)
    with options.out.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["length", "cached", "uncached"])
        for length in lengths:
            turns = [
                [milliseconds(model, src, length, use_cache) for use_cache in (True, False)]
                for _ in range(rounds)
            ]
            row = [length, *(f"{min(times):.2f}" for times in zip(*turns, strict=True))]
            table.writerow(row)
            print(*row)
            file.flush()


if __name__ == "__main__":
    main()
