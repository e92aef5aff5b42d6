"""The benchmark script runs, at a size too small to say anything about speed."""

import importlib.util
import math
import re
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from tutorial_transformer.decoding import greedy_decode
from tutorial_transformer.transformer import Transformer, TransformerConfig

SCRIPT = Path(__file__).parent.parent / "benchmarks" / "speed.py"
SIZES = {"d_model": 8, "num_heads": 2, "num_layers": 1, "d_ff": 16, "max_len": 20}


@pytest.fixture
def speed(monkeypatch):
    """The script as a module, with small sizes and as few threads as the other tests."""
    spec = importlib.util.spec_from_file_location("speed", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, size in {"VOCAB": 11, "BATCH": 3, "SRC_LEN": 10, "TGT_LEN": 9}.items():
        monkeypatch.setattr(module, name, size)
    monkeypatch.setattr(module.torch, "set_num_threads", lambda count: None)
    return module


def both_models(speed, **changes):
    config = TransformerConfig(speed.VOCAB, speed.VOCAB, **(SIZES | changes))
    return Transformer(config), speed.TorchTransformer(config)


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


def test_random_ids_are_real_words_with_up_to_eight_pads_behind_them(speed):
    ids = speed.random_ids(10, torch.Generator().manual_seed(0))
    assert ids.shape == (3, 10)
    real = ids != 0
    assert (ids[real] >= 4).all() and (ids < 11).all() and (~real).any()
    assert (real.sum(dim=1) >= 2).all() and not (~real[:, :-1] & real[:, 1:]).any()
    assert torch.equal(speed.random_ids(10, torch.Generator().manual_seed(0)), ids)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_training_step_is_a_full_step_on_either_side(speed, dropout):
    for model in both_models(speed, dropout=dropout):
        step = speed.training_step(model, seed=0)
        before = [parameter.detach().clone() for parameter in model.parameters()]
        step()
        assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
        assert model.training
        moved = [not torch.equal(p, b) for p, b in zip(model.parameters(), before, strict=True)]
        assert sum(moved) > 0.9 * len(moved)


def test_a_comparison_gives_two_finite_positive_times_taken_in_turns(speed, capsys):
    calls = []
    times = speed.compare(lambda: calls.append("fast"), lambda: calls.append("slow"), rounds=3)
    assert calls == ["fast", "slow"] * 4  # one warm-up each
    assert len(times) == 2 and all(math.isfinite(time) and time > 0 for time in times)
    assert speed.seconds(lambda: None) > 0
    speed.report("this / that", 0.002, 0.005)
    assert re.fullmatch(
        r"this / that +2\.50 times as fast +\(2 ms, 5 ms\)\n", capsys.readouterr().out
    )


def test_the_whole_script_prints_a_ratio_for_each_comparison(speed, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["speed.py", "--rounds", "1", "--threads", "1"])
    monkeypatch.setattr(
        speed,
        "TransformerConfig",
        lambda src, tgt, dropout, **_: TransformerConfig(src, tgt, dropout=dropout, **SIZES),
    )
    lengths = []

    def decode(model, src, max_len, use_cache=True):
        assert max_len == 128
        said = greedy_decode(model, src, 5, use_cache)
        lengths.append((use_cache, *said.shape))
        return said

    monkeypatch.setattr(speed, "greedy_decode", decode)
    speed.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    for line, words in zip(
        lines, ["dropout 0.1", "dropout 0.0", "batch 1", "batch 3"], strict=True
    ):
        assert words in line
        ratio = float(re.search(r"([\d.]+) times as fast", line)[1])
        assert math.isfinite(ratio) and ratio > 0
    assert {length[1:] for length in lengths} == {(1, 5), (3, 5)}  # every row writes all the words
    assert {length[0] for length in lengths} == {True, False}
    assert isinstance(speed.TorchTransformer(TransformerConfig(5, 5, **SIZES)), nn.Module)
