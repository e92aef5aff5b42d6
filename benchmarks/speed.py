"""Measure two ratios in one process: our training step against torch's, and decoding with a cache
against decoding without.

Run with `make bench`. The two sides of a ratio take turns, round by round, and their medians are
compared, so that a busy machine slows both. Sizes: float32, 2 threads, d_model 256, 8 heads,
3+3 layers, d_ff 1024, batch 32, lengths about 48 and 40.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from tutorial_transformer.decoding import greedy_decode
from tutorial_transformer.embeddings import PositionalEncoding, TokenEmbedding
from tutorial_transformer.masks import causal_mask, to_torch_attn_mask
from tutorial_transformer.training import sequence_loss
from tutorial_transformer.transformer import Transformer, TransformerConfig

VOCAB, BATCH, SRC_LEN, TGT_LEN = 1000, 32, 48, 40


class TorchTransformer(nn.Module):
    """torch.nn.Transformer between the same embeddings and output projection as ours."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.src_embedding = TokenEmbedding(config.src_vocab_size, config.d_model)
        self.tgt_embedding = TokenEmbedding(config.tgt_vocab_size, config.d_model)
        self.positions = PositionalEncoding(config.d_model, config.dropout, config.max_len)
        self.transformer = nn.Transformer(
            config.d_model,
            config.num_heads,
            config.num_layers,
            config.num_layers,
            config.d_ff,
            config.dropout,
            batch_first=True,
        )
        self.output_proj = nn.Linear(config.d_model, config.tgt_vocab_size)

    def forward(self, src: torch.Tensor, tgt_in: torch.Tensor) -> torch.Tensor:
        """Return logits, with the same masks as ours, in torch's convention."""
        output = self.transformer(
            self.positions(self.src_embedding(src)),
            self.positions(self.tgt_embedding(tgt_in)),
            tgt_mask=to_torch_attn_mask(causal_mask(tgt_in.shape[1]))[0],
            src_key_padding_mask=src == 0,
            tgt_key_padding_mask=tgt_in == 0,
            memory_key_padding_mask=src == 0,
        )
        return self.output_proj(output)


def random_ids(length: int, generator: torch.Generator) -> torch.Tensor:
    """Draw ids with up to eight pads on the right of each row."""
    ids = torch.randint(4, VOCAB, (BATCH, length), generator=generator)
    lengths = torch.randint(length - 8, length + 1, (BATCH, 1), generator=generator)
    return ids.masked_fill(torch.arange(length) >= lengths, 0)


def training_step(model: nn.Module, seed: int) -> Callable[[], None]:
    """Make a function that runs one full step: forward, loss, backward, Adam."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    generator = torch.Generator().manual_seed(seed)
    src, tgt = random_ids(SRC_LEN, generator), random_ids(TGT_LEN + 1, generator)

    def step() -> None:
        optimizer.zero_grad()
        sequence_loss(model(src, tgt[:, :-1]), tgt[:, 1:]).backward()
        optimizer.step()

    return step


def seconds(run: Callable[[], None]) -> float:
    """Time one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def compare(fast: Callable[[], None], slow: Callable[[], None], rounds: int) -> tuple[float, float]:
    """Return the median seconds of both, measured in turns after one warm-up each."""
    fast(), slow()
    times = [(seconds(fast), seconds(slow)) for _ in range(rounds)]
    return statistics.median(f for f, _ in times), statistics.median(s for _, s in times)


def report(name: str, fast: float, slow: float) -> None:
    """Print one ratio with the two medians it is made of."""
    print(
        f"{name:48s} {slow / fast:6.2f} times as fast  ({fast * 1e3:.0f} ms, {slow * 1e3:.0f} ms)"
    )


def main() -> None:
    """Measure and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    sizes = {"d_model": 256, "num_heads": 8, "num_layers": 3, "d_ff": 1024, "max_len": 256}
    for dropout in (0.1, 0.0):
        config = TransformerConfig(VOCAB, VOCAB, dropout=dropout, **sizes)
        ours, theirs = Transformer(config), TorchTransformer(config)
        times = compare(training_step(ours, 0), training_step(theirs, 0), args.rounds)
        report(f"training step, ours / nn.Transformer, dropout {dropout}", *times)
    with torch.no_grad():
        ours.output_proj.bias[config.eos_id] = -1e4  # so that every row writes all the tokens
    src = random_ids(SRC_LEN, torch.Generator().manual_seed(0))
    for batch in (1, BATCH):
        times = compare(
            lambda: greedy_decode(ours, src[:batch], 128),  # noqa: B023
            lambda: greedy_decode(ours, src[:batch], 128, use_cache=False),  # noqa: B023
            max(1, args.rounds // 5),
        )
        report(f"128 new tokens, cache / no cache, batch {batch}", *times)


if __name__ == "__main__":
    main()
