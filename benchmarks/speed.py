"""Measure in one process, as ratios, how fast the package trains and decodes.

Run with `make bench`, or one measurement alone with `--only NAME`:

    step      our training step against torch.nn.Transformer's
    matmul    the share of this machine's matrix-multiply rate that our step reaches
    cache     greedy decoding with a cache against without
    marian    greedy decoding against transformers' MarianMTModel, where that package is installed
    lengths   training on batches of like lengths against random ones, in real tokens per second

What is compared takes turns, round by round, and medians are compared, so that a busy machine
slows both. Sizes: float32, 2 threads, d_model 256, 8 heads, 3+3 layers, d_ff 1024, vocabulary
1000, batch 32, lengths about 48 and 40. A step is forward, loss, backward, clipping and fused
Adam, as in training.train.
"""

import argparse
import math
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from tutorial_transformer.data import AnyVocab, Batch, Pair, date_pairs, encode_pairs, make_batches
from tutorial_transformer.decoding import greedy_decode
from tutorial_transformer.embeddings import PositionalEncoding, TokenEmbedding
from tutorial_transformer.masks import causal_mask, to_torch_attn_mask
from tutorial_transformer.training import sequence_loss, train
from tutorial_transformer.transformer import Transformer, TransformerConfig
from tutorial_transformer.vocab import Vocab

SIZES = {"d_model": 256, "num_heads": 8, "num_layers": 3, "d_ff": 1024, "max_len": 256}
VOCAB, BATCH, SRC_LEN, TGT_LEN, NEW_TOKENS = 1000, 32, 48, 40, 128
SQUARE = 2048  # side of the matrices whose product sets the machine's rate
NUM_PAIRS = 256


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

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
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


def random_ids(length: int, generator: torch.Generator) -> Tensor:
    """Draw ids with up to eight pads on the right of each row."""
    ids = torch.randint(4, VOCAB, (BATCH, length), generator=generator)
    lengths = torch.randint(length - 8, length + 1, (BATCH, 1), generator=generator)
    return ids.masked_fill(torch.arange(length) >= lengths, 0)


def random_batch(seed: int = 0) -> Batch:
    """Draw one batch of sources and targets."""
    generator = torch.Generator().manual_seed(seed)
    src, tgt = random_ids(SRC_LEN, generator), random_ids(TGT_LEN + 1, generator)
    return Batch(src, tgt[:, :-1], tgt[:, 1:])


def step_of(model: nn.Module, batch: Batch) -> Callable[[], None]:
    """Make a function that runs one full step: forward, loss, backward, clip, Adam."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        sequence_loss(model(batch.src, batch.tgt_in), batch.tgt_out).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def seconds(run: Callable[[], object]) -> float:
    """Time one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def in_turns(*runs: Callable[[], object], rounds: int) -> list[tuple[float, ...]]:
    """Time all runs `rounds` times, in turns; return the seconds of each run."""
    return list(zip(*([seconds(run) for run in runs] for _ in range(rounds)), strict=True))


def report(name: str, fast: Sequence[float], slow: Sequence[float]) -> None:
    """Print the ratio of two medians, and the medians."""
    fast, slow = statistics.median(fast), statistics.median(slow)
    print(
        f"{name:52s} {slow / fast:6.2f} times as fast  ({fast * 1e3:.0f} ms, {slow * 1e3:.0f} ms)",
        flush=True,
    )


def measure_step(rounds: int) -> None:
    """Our training step against that of nn.Transformer, with the default dropout and without."""
    for dropout in (0.1, 0.0):
        config = TransformerConfig(VOCAB, VOCAB, dropout=dropout, **SIZES)
        steps = [step_of(kind(config), random_batch()) for kind in (Transformer, TorchTransformer)]
        in_turns(*steps, rounds=1)  # warm-up
        times = in_turns(*steps, rounds=rounds)
        report(f"step: ours / nn.Transformer, dropout {dropout}", *times)


def flops_of(step: Callable[[], None]) -> int:
    """Count the floating-point operations of all matrix products of a step, pads included.

    FlopCounterMode sees those of the linear maps, forward and backward, but does not know the
    CPU's fused attention. That is counted by formula: two products forward, four backward; the
    product that the kernel computes again in the backward pass is not counted.
    """

    def forward(query: Sequence[int], key: Sequence[int], *_, **__) -> int:
        return 2 * 2 * math.prod(query) * key[-2]  # shapes (batch, heads, length, d_k)

    def backward(grad_output: Sequence[int], query: Sequence[int], key, *_, **__) -> int:
        return 2 * forward(query, key)

    formulas = {
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: forward,
        torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: backward,
    }
    with FlopCounterMode(display=False, custom_mapping=formulas) as counter:
        step()
    return counter.get_total_flops()


def measure_matmul(rounds: int) -> None:
    """The rate of our step's matrix products against the best rate of one large torch.mm."""
    step = step_of(Transformer(TransformerConfig(VOCAB, VOCAB, **SIZES)), random_batch())
    a, b, product = (torch.randn(SQUARE, SQUARE) for _ in range(3))
    flops = flops_of(step)  # a warm-up too
    torch.mm(a, b, out=product)
    step_times, mm_times = in_turns(step, lambda: torch.mm(a, b, out=product), rounds=rounds)
    rate, best = flops / statistics.median(step_times), 2 * SQUARE**3 / min(mm_times)
    print(
        f"{'matmul: share of the rate of torch.mm, dropout 0.1':52s} {rate / best:6.2f}"
        f"                ({rate / 1e9:.0f} of {best / 1e9:.0f} GFLOP/s)"
    )
    print("matmul: where the step's time goes:", largest_shares(step), flush=True)


def largest_shares(step: Callable[[], None], count: int = 5) -> str:
    """Name the operations that take most of a step's time, with their shares."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # no messages of the profiler's own
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        step(), step()
    times = {event.key: event.self_cpu_time_total for event in profiler.key_averages()}
    total = sum(times.values())
    largest = sorted(times, key=times.get, reverse=True)[:count]
    return ", ".join(f"{name.split('::')[-1]} {times[name] / total:.0%}" for name in largest)


def endless_writer() -> Transformer:
    """A model that never says <eos>, so that every row writes all the tokens asked for."""
    model = Transformer(TransformerConfig(VOCAB, VOCAB, **SIZES))
    with torch.no_grad():
        model.output_proj.bias[model.config.eos_id] = -1e4
    return model


def measure_cache(rounds: int) -> None:
    """Greedy decoding with a cache against decoding that computes all positions at each step."""
    model, src = endless_writer(), random_batch().src
    for batch in (1, BATCH):

        def with_cache(length: int = NEW_TOKENS, rows: Tensor = src[:batch]) -> Tensor:
            return greedy_decode(model, rows, length)

        def without(length: int = NEW_TOKENS, rows: Tensor = src[:batch]) -> Tensor:
            return greedy_decode(model, rows, length, use_cache=False)

        with_cache(3), without(3)
        times = in_turns(with_cache, without, rounds=max(1, rounds // 3))
        report(f"cache: {NEW_TOKENS} tokens, cache / no cache, batch {batch}", *times)


def marian_model() -> nn.Module:
    """transformers' MarianMTModel of our size, with random weights, that never says <eos>."""
    from transformers import MarianConfig, MarianMTModel

    sides = ("encoder", "decoder")
    config = MarianConfig(
        vocab_size=VOCAB,
        d_model=SIZES["d_model"],
        max_position_embeddings=SIZES["max_len"],
        activation_function="relu",
        scale_embedding=True,
        tie_word_embeddings=False,
        share_encoder_decoder_embeddings=False,
        decoder_vocab_size=VOCAB,
        pad_token_id=0,
        decoder_start_token_id=1,
        eos_token_id=2,
        forced_eos_token_id=None,
        **{f"{side}_layers": SIZES["num_layers"] for side in sides},
        **{f"{side}_attention_heads": SIZES["num_heads"] for side in sides},
        **{f"{side}_ffn_dim": SIZES["d_ff"] for side in sides},
    )
    model = MarianMTModel(config).eval()
    model.final_logits_bias[0, [0, 1, 2]] = -1e4  # what greedy_decode never writes, and <eos>
    return model


def measure_marian(rounds: int) -> None:
    """Greedy decoding, both with a cache, against MarianMTModel.generate."""
    try:
        theirs = marian_model()
    except ImportError:
        print("marian: not measured, the package transformers is not installed")
        return
    ours, src = endless_writer(), random_batch().src
    for batch in (1, BATCH):

        def we_write(rows: Tensor = src[:batch]) -> Tensor:
            return greedy_decode(ours, rows, NEW_TOKENS)

        def they_write(rows: Tensor = src[:batch]) -> Tensor:
            return theirs.generate(
                rows,
                attention_mask=(rows != 0).long(),
                max_new_tokens=NEW_TOKENS,
                num_beams=1,
                do_sample=False,
                use_cache=True,
            )

        lengths = we_write().shape[1], they_write().shape[1] - 1  # theirs begins with <bos>
        assert lengths == (NEW_TOKENS, NEW_TOKENS), lengths
        times = in_turns(we_write, they_write, rounds=max(1, rounds // 2))
        report(f"marian: {NEW_TOKENS} tokens, ours / MarianMTModel, batch {batch}", *times)


def uneven_pairs(count: int, seed: int = 0) -> list[Pair]:
    """Draw pairs of very different lengths: texts of one to six dates."""
    rng, dates = random.Random(seed), date_pairs(count, seed)
    texts = [rng.choices(dates, k=rng.randint(1, 6)) for _ in range(count)]
    return [("; ".join(s for s, _ in text), "；".join(t for _, t in text)) for text in texts]


def random_batches(pairs: Sequence[Pair], src_vocab: AnyVocab, tgt_vocab: AnyVocab) -> list[Batch]:
    """Cut the pairs into batches as they come, whatever their lengths."""
    shuffled = random.Random(0).sample(pairs, len(pairs))
    starts = range(0, len(shuffled), BATCH)
    return [encode_pairs(shuffled[i : i + BATCH], src_vocab, tgt_vocab) for i in starts]


def real_share(batches: Sequence[Batch]) -> tuple[int, float]:
    """Count the real tokens, sources and targets, and their share of all that is computed."""
    sides = [ids for batch in batches for ids in (batch.src, batch.tgt_out)]
    real = sum((ids != 0).sum().item() for ids in sides)
    return real, real / sum(ids.numel() for ids in sides)


def measure_lengths(rounds: int) -> None:
    """One pass over the same pairs, from text to updated weights: like lengths against random."""
    pairs = uneven_pairs(NUM_PAIRS)
    vocabs = [Vocab(side) for side in zip(*pairs, strict=True)]
    model = Transformer(TransformerConfig(*map(len, vocabs), **SIZES))

    def like_lengths() -> list[Batch]:
        return make_batches(pairs, *vocabs, BATCH)

    def any_lengths() -> list[Batch]:
        return random_batches(pairs, *vocabs)

    def one_pass(make: Callable[[], list[Batch]]) -> None:
        batches = make()
        train(model, batches, len(batches), progress="none")

    train(model, like_lengths(), 1, progress="none")  # warm-up
    times = in_turns(
        lambda: one_pass(like_lengths), lambda: one_pass(any_lengths), rounds=max(1, rounds // 2)
    )
    (real, share), (_, random_share) = real_share(like_lengths()), real_share(any_lengths())
    grouped, mixed = (real / statistics.median(side) for side in times)
    print(
        f"{'lengths: like lengths / random batches':52s} {grouped / mixed:6.2f} times as fast  "
        f"({grouped:.0f}, {mixed:.0f} real tokens/s; {share:.0%}, {random_share:.0%} are real)"
    )


MEASUREMENTS = {
    "step": measure_step,
    "matmul": measure_matmul,
    "cache": measure_cache,
    "marian": measure_marian,
    "lengths": measure_lengths,
}


def main() -> None:
    """Measure and print the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9, help="turns of each training step")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", choices=MEASUREMENTS, help="make this measurement alone")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for name, measure in MEASUREMENTS.items():
        if args.only in (None, name):
            torch.manual_seed(0)
            measure(args.rounds)


if __name__ == "__main__":
    main()
