"""Kill a training run at random moments and go on: is anything lost but the last few steps?

A real process trains a tiny model and writes a checkpoint every 1 to 3 steps, so that many kills
hit it while it writes. SIGKILL cannot be caught: the process simply ends. One row of the CSV is
one kill: when it came, in seconds after the first finished step, at which step the checkpoint
found afterwards stands, whether its weights, those for translating too, are bit for bit those of
a run that was never killed, and whether the next process went on from there. The script fails if
the last weights differ from those of the run that was never killed.

    python experiments/10_kill.py            about 3 minutes on one thread
    python experiments/10_kill.py --quick    one kill
"""

import argparse
import csv
import hashlib
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from tutorial_transformer.checkpoints import load_checkpoint, load_state
from tutorial_transformer.data import date_pairs, make_batches
from tutorial_transformer.training import train
from tutorial_transformer.transformer import Transformer, TransformerConfig
from tutorial_transformer.vocab import Vocab

FOREVER = 10**9  # steps


def run(
    folder: Path | None, num_steps: int, every: int, look: Callable[[Transformer], float]
) -> Transformer:
    """Train on a few dates, or go on with it; look at the model after every step."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    pairs = date_pairs(50, seed=0)
    vocabs = Vocab(source for source, _ in pairs), Vocab(target for _, target in pairs)
    batches = make_batches(pairs, *vocabs, batch_size=8)
    sizes = {"d_model": 32, "num_layers": 1, "d_ff": 64, "dropout": 0.1}
    model = Transformer(TransformerConfig.tiny(len(vocabs[0]), len(vocabs[1]), **sizes))
    train(
        model, batches, num_steps, score=look, score_every=1, progress="none",
        folder=folder, resume=folder is not None, checkpoint_every=every,
    )  # fmt: skip
    return model


def digest(weights: dict[str, Tensor]) -> str:
    """Return a short name for all bits of the weights."""
    sha = hashlib.sha256()
    for name in sorted(weights):
        sha.update(weights[name].detach().numpy().tobytes())
    return sha.hexdigest()


def digest_of(model: Transformer) -> str:
    """Return the digest of a model's weights."""
    return digest(dict(model.named_parameters()))


def start(folder: Path, num_steps: int, every: int) -> tuple[subprocess.Popen, str]:
    """Start a process that trains in the folder; return it and the digest after its first step."""
    command = [sys.executable, __file__, "--child", str(folder), str(num_steps), str(every)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    first = child.stdout.readline().strip()
    if not first:
        raise RuntimeError(f"the process ended with {child.wait()} before its first step")
    return child, first


def kill_after(child: subprocess.Popen, moment: float) -> None:
    """Kill a process that trains forever after so many seconds."""
    try:
        child.communicate(timeout=moment)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()


def found_in(folder: Path) -> tuple[int, str, str]:
    """Return the step of the checkpoint, and the digests for going on and for translating."""
    state = load_state(folder)
    if state is None:
        return 0, "", ""
    weights = {name: tensor for name, tensor in state.tensors.items() if name.startswith("model.")}
    try:
        return state.step, digest(weights), digest_of(load_checkpoint(folder).model)
    except FileNotFoundError:  # the very first checkpoint: its second file was not there yet
        return state.step, digest(weights), ""


def kill_again_and_again(folder: Path, kills: int, longest: float, seed: int = 0) -> list[list]:
    """Return a row for each kill; raise RuntimeError if the last weights are not the right ones."""
    rng, found, firsts = random.Random(seed), [], []
    for number in range(kills):
        moment = rng.uniform(0, longest)
        child, first = start(folder, FOREVER, 1 + number % 3)
        kill_after(child, moment)
        found.append((moment, *found_in(folder)))
        firsts.append(first)
    num_steps = found[-1][1] + 5
    child, first = start(folder, num_steps, every=3)
    child.communicate()
    digests = [""]  # after 0, 1, 2, ... steps of a run that is never killed
    run(None, num_steps, 1, lambda model: digests.append(digest_of(model)) or 0.0)
    if digest_of(load_checkpoint(folder).model) != digests[-1]:
        raise RuntimeError("the weights differ from those of a run that was never killed")
    rows, after = [], [*firsts[1:], first]
    for (moment, step, to_go_on, to_translate), next_one in zip(found, after, strict=True):
        whole = to_go_on == digests[step] and to_translate in digests[max(0, step - 3) : step + 1]
        rows.append([f"{moment:.3f}", step, whole, next_one == digests[step + 1]])
    return rows


def main() -> None:
    """Kill as often as asked and write the CSV."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one kill, after a moment")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        folder, num_steps, every = options.child
        run(
            Path(folder),
            int(num_steps),
            int(every),
            lambda model: print(digest_of(model), flush=True) or 0.0,
        )
        return
    kills, longest = (1, 0.3) if options.quick else (options.kills, 1.0)
    with tempfile.TemporaryDirectory() as folder:
        rows = kill_again_and_again(Path(folder) / "run", kills, longest)
    with options.out.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["kill", "moment", "step", "whole", "resumed"])
        table.writerows([number, *row] for number, row in enumerate(rows, start=1))


if __name__ == "__main__":
    main()
