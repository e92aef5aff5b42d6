"""The benchmark script runs, at a size too small to say anything about speed."""

import importlib.util
import math
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from tutorial_transformer.decoding import greedy_decode
from tutorial_transformer.transformer import Transformer, TransformerConfig

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "speed.py"
SIZES = {"d_model": 8, "num_heads": 2, "num_layers": 1, "d_ff": 16, "max_len": 90}
SMALL = {"VOCAB": 11, "BATCH": 3, "SRC_LEN": 10, "TGT_LEN": 9, "NEW_TOKENS": 5, "SQUARE": 4}


@pytest.fixture
def speed(monkeypatch):
    """The script as a module, with small sizes and as few threads as the other tests."""
    spec = importlib.util.spec_from_file_location("speed", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, size in (SMALL | {"SIZES": SIZES, "NUM_PAIRS": 13}).items():
        monkeypatch.setattr(module, name, size)
    monkeypatch.setattr(module.torch, "set_num_threads", lambda count: None)
    monkeypatch.setitem(sys.modules, "transformers", None)  # None: the import fails
    return module


@pytest.fixture
def marian(speed, monkeypatch):
    """A stand-in for the package transformers, which keeps what it is asked for."""
    asked = []

    class MarianMTModel(nn.Module):
        def __init__(self, config):
            super().__init__()
            asked.append(config)
            self.final_logits_bias = torch.zeros(1, config["vocab_size"])

        def generate(self, src, **options):
            asked.append((src, options))
            time.sleep(0.002)  # so that the ratio does not round to zero
            return torch.ones(len(src), 1 + options["max_new_tokens"], dtype=torch.long)

    package = SimpleNamespace(MarianConfig=dict, MarianMTModel=MarianMTModel)
    monkeypatch.setitem(sys.modules, "transformers", package)
    return asked


def both_models(speed, **changes):
    config = TransformerConfig(speed.VOCAB, speed.VOCAB, **(SIZES | changes))
    return Transformer(config), speed.TorchTransformer(config)


def ratio_of(line):
    ratio = float(re.search(r" ([\d.]+) times as fast", line)[1])
    assert math.isfinite(ratio) and ratio > 0
    return ratio


def test_both_sides_compute_the_same_function_of_the_same_size(speed):
    ours, theirs = both_models(speed, dropout=0.0)
    final_norms = 2 * 2 * SIZES["d_model"]  # nn.Transformer ends each stack in one more LayerNorm
    count = [sum(p.numel() for p in model.parameters()) for model in (ours, theirs)]
    assert count[0] + final_norms == count[1]
    generator = torch.Generator().manual_seed(0)
    src, tgt = speed.random_ids(10, generator), speed.random_ids(9, generator)
    for model in (ours, theirs):
        logits = model(src, tgt)
        assert logits.shape == (3, 9, 11) and logits.isfinite().all()
        moved = model(src, tgt.roll(1, dims=0).where(torch.arange(9) >= 4, tgt))
        real = (tgt[:, :4] != 0).all(dim=1)
        assert torch.allclose(moved[real, :4], logits[real, :4], atol=1e-5)  # both causal
        assert not torch.allclose(moved, logits, atol=1e-5)


def test_a_random_batch_holds_real_words_with_up_to_eight_pads_behind_them(speed):
    batch = speed.random_batch()
    assert batch.src.shape == (3, 10)
    assert batch.tgt_in.shape == batch.tgt_out.shape == (3, 9)
    assert torch.equal(batch.tgt_in[:, 1:], batch.tgt_out[:, :-1])  # one step apart
    for ids in (batch.src, batch.tgt_in):
        real = ids != 0
        assert (ids[real] >= 4).all() and (ids < 11).all() and (~real).any()
        assert (real.sum(dim=1) >= 2).all() and not (~real[:, :-1] & real[:, 1:]).any()
    assert torch.equal(speed.random_batch().src, batch.src)
    assert not torch.equal(speed.random_batch(seed=1).src, batch.src)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_training_step_is_a_full_step_on_either_side(speed, dropout):
    for model in both_models(speed, dropout=dropout):
        step = speed.step_of(model, speed.random_batch())
        before = [parameter.detach().clone() for parameter in model.parameters()]
        step()
        gradients = [parameter.grad.flatten() for parameter in model.parameters()]
        assert torch.cat(gradients).isfinite().all() and torch.cat(gradients).norm() < 1.001
        assert model.training
        moved = [not torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True)]
        assert sum(moved) > 0.9 * len(moved)


def test_times_are_taken_in_turns_and_medians_are_reported(speed, capsys):
    calls = []
    times = speed.in_turns(lambda: calls.append("a"), lambda: calls.append("b"), rounds=3)
    assert calls == ["a", "b"] * 3
    assert [len(side) for side in times] == [3, 3] and all(t > 0 for side in times for t in side)
    speed.report("this / that", (0.002, 9.0, 0.001), (0.005, 0.004, 9.0))
    assert re.fullmatch(
        r"this / that +2\.50 times as fast +\(2 ms, 5 ms\)\n", capsys.readouterr().out
    )


def test_the_training_step_is_compared_with_and_without_dropout(speed, capsys):
    speed.measure_step(rounds=1)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and "dropout 0.1" in lines[0] and "dropout 0.0" in lines[1]
    assert all(ratio_of(line) for line in lines)


def test_the_operations_of_a_step_are_those_of_the_formula(speed):
    ours, _ = both_models(speed)
    batch, src_len, tgt_len, d, ff = 3, 10, 9, SIZES["d_model"], SIZES["d_ff"]
    encoder = src_len * (4 * d * d + 2 * d * ff)
    decoder = tgt_len * (6 * d * d + 2 * d * ff) + src_len * 2 * d * d
    linear = encoder + decoder + tgt_len * d * speed.VOCAB
    attention = 2 * d * (src_len**2 + tgt_len**2 + tgt_len * src_len)
    products = batch * (linear + attention)  # one multiplication and one addition each
    assert speed.flops_of(speed.step_of(ours, speed.random_batch())) == 3 * 2 * products


def test_the_share_of_the_matmul_rate_is_what_the_times_say(speed, monkeypatch, capsys):
    monkeypatch.setattr(speed, "flops_of", lambda step: 6e9)
    monkeypatch.setattr(speed, "in_turns", lambda *runs, rounds: [(2.0, 1.0, 3.0), (4e-9, 8e-9)])
    speed.measure_matmul(rounds=3)  # 3 GFLOP/s against 2 · 4³ in 4 ns
    rate, where = capsys.readouterr().out.splitlines()
    assert re.search(r"dropout 0\.1 +0\.09 +\(3 of 32 GFLOP/s\)$", rate)
    shares = [int(share) for share in re.findall(r"[\w#.]+ (\d+)%", where)]
    assert len(shares) == 5 and shares == sorted(shares, reverse=True) and 0 < sum(shares) <= 100


def test_the_largest_shares_of_time_are_found(speed):
    a = torch.randn(200, 200)
    assert speed.largest_shares(lambda: [a @ a for _ in range(9)], count=1).startswith("mm ")
    assert speed.largest_shares(lambda: [a.sqrt() for _ in range(9)], 1).startswith("sqrt ")


def test_decoding_is_compared_with_and_without_a_cache(speed, monkeypatch, capsys):
    lengths = []

    def decode(model, src, max_len, use_cache=True):
        said = greedy_decode(model, src, max_len, use_cache)
        assert (said >= 2).all() and said.shape == (len(src), max_len)  # nobody stops early
        lengths.append((use_cache, *said.shape))
        return said

    monkeypatch.setattr(speed, "greedy_decode", decode)
    speed.measure_cache(rounds=1)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and "batch 1" in lines[0] and "batch 3" in lines[1]
    assert all(ratio_of(line) for line in lines)
    full = [length for length in lengths if length[2] == speed.NEW_TOKENS]
    assert full == [(True, 1, 5), (False, 1, 5), (True, 3, 5), (False, 3, 5)]


def test_without_the_package_transformers_one_line_says_so(speed, capsys):
    speed.measure_marian(rounds=1)
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["marian: not measured, the package transformers is not installed"]


def test_marian_gets_our_sizes_and_must_write_as_many_tokens(speed, marian, capsys):
    speed.measure_marian(rounds=1)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and "batch 1" in lines[0] and "batch 3" in lines[1]
    assert all(ratio_of(line) for line in lines)
    config, *calls = marian
    for side in ("encoder", "decoder"):
        assert (config[f"{side}_layers"], config[f"{side}_ffn_dim"]) == (1, 16)
        assert config[f"{side}_attention_heads"] == 2
    assert (config["d_model"], config["vocab_size"], config["decoder_vocab_size"]) == (8, 11, 11)
    assert [len(src) for src, _ in calls] == [1, 1, 3, 3]  # a warm-up and one round each
    for src, options in calls:
        assert torch.equal(options["attention_mask"], (src != 0).long())
        assert options["max_new_tokens"] == 5 and options["use_cache"] is True
        assert options["num_beams"] == 1 and options["do_sample"] is False


def test_marian_never_says_what_ours_cannot_say(speed, marian):
    bias = speed.marian_model().final_logits_bias[0]
    assert (bias[:3] == -1e4).all() and (bias[3:] == 0).all()  # pad, bos, eos


def test_both_kinds_of_batches_hold_the_same_pairs_and_one_kind_pads_less(speed):
    pairs = speed.uneven_pairs(60)
    assert pairs == speed.uneven_pairs(60) and len(pairs) == 60
    vocabs = [speed.Vocab(side) for side in zip(*pairs, strict=True)]
    lengths = {len(vocabs[0].encode(source)) for source, _ in pairs}
    assert max(lengths) > 4 * min(lengths)

    def texts(batches):
        rows = [row for batch in batches for row in zip(batch.src, batch.tgt_out, strict=True)]
        return sorted((vocabs[0].decode(src), vocabs[1].decode(tgt)) for src, tgt in rows)

    like = speed.make_batches(pairs, *vocabs, speed.BATCH)
    mixed = speed.random_batches(pairs, *vocabs)
    assert len(like) == len(mixed) == 20
    assert texts(like) == texts(mixed) == sorted(pairs)
    (real, share), (same, random_share) = speed.real_share(like), speed.real_share(mixed)
    words = [len(v.encode(t)) + 1 for pair in pairs for v, t in zip(vocabs, pair, strict=True)]
    assert real == same == sum(words)
    assert 1 > share > 0.9 > random_share > 0


def test_training_on_like_lengths_is_compared_with_random_ones(speed, monkeypatch, capsys):
    trained, real_train = [], speed.train

    def train(model, batches, num_steps, progress):
        trained.append((len(batches), num_steps))
        return real_train(model, batches, num_steps, progress=progress)

    monkeypatch.setattr(speed, "train", train)
    speed.measure_lengths(rounds=1)
    [line] = capsys.readouterr().out.splitlines()
    assert ratio_of(line) and "real tokens/s" in line
    assert trained == [(5, 1), (5, 5), (5, 5)]  # a warm-up step, then every batch once


def test_the_whole_script_makes_every_measurement_or_only_one(speed, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["speed.py", "--rounds", "1", "--threads", "1"])
    speed.main()
    names = [line.split(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert names == ["step"] * 2 + ["matmul"] * 2 + ["cache"] * 2 + ["marian", "lengths"]
    monkeypatch.setattr(sys, "argv", ["speed.py", "--only", "marian", "--rounds", "1"])
    speed.main()
    assert capsys.readouterr().out.startswith("marian: not measured")
    monkeypatch.setattr(sys, "argv", ["speed.py", "--only", "nothing"])
    with pytest.raises(SystemExit):
        speed.main()
    assert "invalid choice: 'nothing'" in capsys.readouterr().err
