"""Who repeats itself: a small character model goes on with a text, greedily and by sampling.

The text is Python's own help (pydoc_data.topics): as it is, with indented examples and ruled
lines ("indented"), or without rules and with one blank for each run of white space ("words"). It
differs from one version of Python to the next, and the CSV's digits with it.

The model has a decoder's self-attention and no source: our encoder layers under a causal mask
(width 96, 4 heads, 2 layers, float64), which read the last 64 characters and say the next. It
goes on from 16 places of the text, 300 characters each. One row of the CSV is one way to choose:

loops       share of the texts that end in a loop: their last 50 characters stood there before
distinct_8  share of different ones among all strings of 8 characters in a text, on average
sample      the end of the first text

    python experiments/11_repetition.py            about 4 minutes on one thread
    python experiments/11_repetition.py --quick    seconds, to see that it runs
"""

import argparse
import csv
import re
from pathlib import Path
from pydoc_data.topics import topics

import torch
import torch.nn.functional as F
from torch import nn

from tutorial_transformer.decoding import filter_logits
from tutorial_transformer.embeddings import PositionalEncoding, TokenEmbedding
from tutorial_transformer.encoder import Encoder
from tutorial_transformer.masks import causal_mask
from tutorial_transformer.vocab import SPECIAL, Vocab

WINDOW, D_MODEL, NUM_HEADS, NUM_LAYERS, BATCH, PROMPTS = 64, 96, 4, 2, 32, 16
WAYS = {  # how the next character is chosen
    "greedy": {"top_k": 1},
    "nucleus p=0.1": {"top_p": 0.1},
    "nucleus p=0.9": {"top_p": 0.9},
    "top-k k=10": {"top_k": 10},
    "plain": {},
}


class Writer(nn.Module):
    """Say the next character after each one of a window."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__()
        self.embed = TokenEmbedding(vocab_size, D_MODEL)
        self.positions = PositionalEncoding(D_MODEL, max_len=WINDOW)
        self.stack = Encoder(NUM_LAYERS, D_MODEL, NUM_HEADS, 4 * D_MODEL, norm_first=True)
        self.output_proj = nn.Linear(D_MODEL, vocab_size)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return logits (batch, length, vocab)."""
        x = self.positions(self.embed(ids))
        return self.output_proj(self.stack(x, causal_mask(ids.shape[1])))


def learn(ids: torch.Tensor, vocab_size: int, steps: int) -> Writer:
    """Train a writer on random windows of the text."""
    torch.manual_seed(0)
    model = Writer(vocab_size)
    adam = torch.optim.Adam(model.parameters(), fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(adam, max_lr=4e-3, total_steps=steps)
    for _ in range(steps):
        starts = torch.randint(len(ids) - WINDOW - 1, (BATCH, 1))
        window = ids[starts + torch.arange(WINDOW + 1)]
        loss = F.cross_entropy(model(window[:, :-1]).flatten(0, 1), window[:, 1:].flatten())
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        schedule.step()
    print(f"last loss: {loss.item():.2f} nats a character")
    return model


@torch.no_grad()
def go_on(model: Writer, prompts: torch.Tensor, length: int, **keep: float) -> torch.Tensor:
    """Write `length` more characters; keep is what filter_logits leaves to draw from."""
    generator = torch.Generator().manual_seed(0)
    ids = prompts
    for _ in range(length):
        logits = model(ids[:, -WINDOW:])[:, -1]
        logits[:, : len(SPECIAL)] = -torch.inf
        probs = filter_logits(logits, **keep).softmax(-1)
        ids = torch.cat([ids, torch.multinomial(probs, 1, generator=generator)], dim=1)
    return ids[:, prompts.shape[1] :]


def ends_in_a_loop(text: str) -> bool:
    """Have the last 50 characters been written before?"""
    return text.find(text[-50:]) < len(text) - 50


def distinct(text: str, size: int = 8) -> float:
    """Return the share of different strings among all of this size."""
    pieces = [text[start : start + size] for start in range(len(text) - size + 1)]
    return len(set(pieces)) / len(pieces)


def main() -> None:
    """Train on both texts, go on in every way and write the CSV."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="two steps, 12 characters")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".csv"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    steps, length = (2, 12) if options.quick else (500, 300)
    indented = "\n".join(topics.values())
    words = " ".join(re.sub(r"([^\w\s])\1{3,}", "", indented).split())  # rules are ====
    with options.out.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["text", "way", "loops", "distinct_8", "sample"])
        for name, text in {"words": words, "indented": indented}.items():
            vocab = Vocab([text], unit="character")
            ids = torch.tensor(vocab.encode(text))
            model = learn(ids, len(vocab), steps)
            starts = torch.linspace(0, len(ids) - WINDOW, PROMPTS).long()
            prompts = ids[starts[:, None] + torch.arange(WINDOW)]
            for way, keep in WAYS.items():
                texts = [vocab.decode(row) for row in go_on(model, prompts, length, **keep)]
                loops = sum(map(ends_in_a_loop, texts)) / PROMPTS
                variety = sum(map(distinct, texts)) / PROMPTS
                sample = texts[0][-100:].replace("\n", "↵")
                table.writerow([name, way, f"{loops:.3f}", f"{variety:.3f}", sample])
                print(name, way, f"{loops:.3f}", f"{variety:.3f}", sample)
                file.flush()


if __name__ == "__main__":
    main()
