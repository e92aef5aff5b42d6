"""Models and batches that train in milliseconds, shared by the tests of training."""

import itertools
import signal

import torch

from tutorial_transformer.data import EOS, Batch
from tutorial_transformer.transformer import Transformer, TransformerConfig

SRC_VOCAB, TGT_VOCAB = 9, 7


def a_model(tgt_vocab=TGT_VOCAB, dtype=torch.float64, **changes):
    sizes = {"d_model": 8, "num_heads": 2, "num_layers": 1, "d_ff": 16, "max_len": 12}
    return Transformer(TransformerConfig.tiny(SRC_VOCAB, tgt_vocab, **(sizes | changes))).to(dtype)


def random_batches(*sizes, seed=0):
    """Batches of random ids, one for each (batch, src_len, tgt_len), with one padded row."""
    generator = torch.Generator().manual_seed(seed)
    batches = []
    for batch, src_len, tgt_len in sizes:
        src = torch.randint(3, SRC_VOCAB, (batch, src_len), generator=generator)
        tgt = torch.randint(3, TGT_VOCAB, (batch, tgt_len + 1), generator=generator)
        src[0, -1], tgt[0, -2:], tgt[:, 0] = 0, torch.tensor([EOS, 0]), 1
        batches.append(Batch(src, tgt[:, :-1], tgt[:, 1:]))
    return batches


BATCHES = random_batches((3, 5, 4), (2, 4, 6), (4, 3, 2))


def weights(model):
    return [parameter.detach().clone() for parameter in model.parameters()]


def same(some, others):
    return all(torch.equal(a, b) for a, b in zip(some, others, strict=True))


def press_ctrl_c(at):
    """A score that presses Ctrl-C the at-th time it is asked for."""
    calls = itertools.count(1)

    def score(model):
        if next(calls) == at:
            signal.raise_signal(signal.SIGINT)
        return 0.5

    return score


def files_of(folder):
    """The bytes of all files in a folder, by name."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
