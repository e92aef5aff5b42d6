"""Attention maps: the weights of an ordinary forward pass, under the name of their module."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from tutorial_transformer import multi_head
from tutorial_transformer.attention_maps import record_attention
from tutorial_transformer.decoding import greedy_decode
from tutorial_transformer.encoder import Encoder
from tutorial_transformer.multi_head import MultiHeadAttention
from tutorial_transformer.transformer import Transformer, TransformerConfig

BATCH, HEADS, SRC_LEN, TGT_LEN = 2, 4, 5, 3
SRC = torch.tensor([[5, 6, 7, 3, 2], [4, 8, 2, 0, 0]])
TGT_IN = torch.tensor([[1, 4, 5], [1, 6, 0]])
MAPS = {
    "encoder.0.self_attn": (SRC_LEN, SRC_LEN),
    "encoder.1.self_attn": (SRC_LEN, SRC_LEN),
    "decoder.0.self_attn": (TGT_LEN, TGT_LEN),
    "decoder.0.cross_attn": (TGT_LEN, SRC_LEN),
    "decoder.1.self_attn": (TGT_LEN, TGT_LEN),
    "decoder.1.cross_attn": (TGT_LEN, SRC_LEN),
}


def a_model(**changes):
    config = TransformerConfig.tiny(9, 7, d_model=8, num_heads=HEADS, d_ff=16, **changes)
    return Transformer(config).double()


def attentions(model):
    return [module for module in model.modules() if isinstance(module, MultiHeadAttention)]


@pytest.fixture
def paths(monkeypatch):
    """Count which of the two attentions is computed."""
    counts = {"fused": 0, "readable": 0}

    def counted(name, function):
        def count(*args, **kwargs):
            counts[name] += 1
            return function(*args, **kwargs)

        return count

    fused = torch.nn.functional.scaled_dot_product_attention
    readable = multi_head.scaled_dot_product_attention
    monkeypatch.setattr(multi_head.F, fused.__name__, counted("fused", fused))
    monkeypatch.setattr(multi_head, readable.__name__, counted("readable", readable))
    return counts


def weights_by_hand(attention, query, key, mask):
    """softmax(q·k / √d_k) over the visible keys, one head at a time."""
    d_k = attention.w_q.out_features // attention.num_heads
    q, k = attention.w_q(query), attention.w_k(key)
    heads = []
    for h in range(attention.num_heads):
        part = slice(h * d_k, (h + 1) * d_k)
        exps = (q[..., part] @ k[..., part].transpose(1, 2) / math.sqrt(d_k)).exp() * mask
        heads.append(exps / exps.sum(dim=-1, keepdim=True))
    return torch.stack(heads, dim=1)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_maps_are_the_weights_of_the_same_forward_pass(norm_first, training, dropout):
    model = a_model(norm_first=norm_first, dropout=dropout).train(training)
    inputs = {}
    handles = [
        module.register_forward_pre_hook(lambda module, args: inputs.update({module: args}))
        for module in attentions(model)
    ]
    torch.manual_seed(1)
    with record_attention(model) as maps:
        logits = model(SRC, TGT_IN)
    assert {name: tuple(weights.shape) for name, weights in maps.items()} == {
        name: (BATCH, HEADS, *shape) for name, shape in MAPS.items()
    }
    for (name, weights), module in zip(maps.items(), attentions(model), strict=True):
        query, key, _, mask, *_ = inputs[module]
        assert_close(weights, weights_by_hand(module, query, key, mask), msg=name)
        assert (weights.masked_select(~mask[:, None]) == 0).all() and not weights.requires_grad
    for handle in handles:
        handle.remove()
    torch.manual_seed(1)
    assert_close(model(SRC, TGT_IN), logits)  # the fused pass with the same dropout says the same
    assert (
        logits.requires_grad
        and not torch.isclose(logits, model(SRC.flip(1).clamp(min=3), TGT_IN)).all()
    )


@pytest.mark.parametrize("training", [True, False])
def test_rows_sum_to_one_before_dropout(training):
    attention = MultiHeadAttention(12, 3, dropout=0.5).double().train(training)
    x, memory = torch.randn(2, 4, 12).double(), torch.randn(2, 7, 12).double()
    mask = torch.ones(2, 1, 7, dtype=torch.bool)
    mask[1, 0, 5:] = False
    with record_attention(attention) as maps:
        output = attention(x, memory, memory, mask)
    weights = maps["attention"]
    assert_close(weights.sum(dim=-1), torch.ones(2, 3, 4).double())
    assert_close(weights, weights_by_hand(attention, x, memory, mask).detach())
    undropped = attention.eval()(x, memory, memory, mask)
    assert torch.allclose(output, undropped) != training  # dropout did act on the output


def test_the_fused_kernel_is_used_unless_somebody_looks(paths):
    model = a_model()
    model(SRC, TGT_IN)
    assert paths == {"fused": 6, "readable": 0}
    with record_attention(model):
        model(SRC, TGT_IN)
        assert paths == {"fused": 6, "readable": 6}
    model(SRC, TGT_IN)
    assert paths == {"fused": 12, "readable": 6}


def test_after_an_error_nobody_looks_any_more(paths):
    model, seen = a_model(), []
    attentions(model)[2].on_weights = seen.append  # somebody else was looking before
    before = [attention.on_weights for attention in attentions(model)]
    with pytest.raises(ZeroDivisionError), record_attention(model) as maps:
        model(SRC, TGT_IN)
        assert not seen and all(attention.on_weights for attention in attentions(model))
        raise ZeroDivisionError
    assert [attention.on_weights for attention in attentions(model)] == before
    kept = {name: weights.clone() for name, weights in maps.items()}
    model(SRC.flip(0), TGT_IN)
    assert paths == {"fused": 5, "readable": 7} and len(seen) == 1
    assert set(kept) == set(MAPS) and all(torch.equal(maps[name], kept[name]) for name in kept)


def test_recordings_can_be_nested(paths):
    model = a_model()
    with record_attention(model) as outer:
        with record_attention(model.decoder) as inner:
            model(SRC, TGT_IN)
        assert set(inner) == {"0.self_attn", "0.cross_attn", "1.self_attn", "1.cross_attn"}
        kept = {name: weights.clone() for name, weights in inner.items()}
        model(SRC.flip(0), TGT_IN)
        assert all(torch.equal(inner[name], kept[name]) for name in kept)
        assert set(outer) == set(MAPS)
        assert not torch.equal(outer["decoder.0.cross_attn"], inner["0.cross_attn"])
    model(SRC, TGT_IN)
    assert paths == {"fused": 6, "readable": 12}


def test_each_forward_pass_replaces_the_maps_of_the_one_before():
    model = a_model()
    with record_attention(model) as maps:
        assert maps == {}
        model(SRC, TGT_IN)
        first = dict(maps)
        model(SRC[:1], TGT_IN[:1, :2])
    assert maps["decoder.1.cross_attn"].shape == (1, HEADS, 2, SRC_LEN)
    assert first["decoder.1.cross_attn"].shape == (BATCH, HEADS, TGT_LEN, SRC_LEN)


def test_looking_changes_no_word_and_a_cached_step_looks_at_all_keys():
    model = a_model()
    with torch.no_grad():
        model.output_proj.bias[2] = -1e3  # no <eos>
    said = greedy_decode(model, SRC, 4)
    with record_attention(model) as maps:
        assert torch.equal(greedy_decode(model, SRC, 4), said)
    assert maps["decoder.0.self_attn"].shape == (BATCH, HEADS, 1, 4)
    assert maps["decoder.0.cross_attn"].shape == (BATCH, HEADS, 1, SRC_LEN)
    with record_attention(model) as maps:
        greedy_decode(model, SRC, 4, use_cache=False)
    assert maps["decoder.0.self_attn"].shape == (BATCH, HEADS, 4, 4)


def test_names_are_paths_from_the_model_that_is_recorded():
    assert set(MAPS) == {
        name.replace(".layers.", ".")
        for name, module in a_model().named_modules()
        if isinstance(module, MultiHeadAttention)
    }
    encoder = Encoder(3, 8, 2, 16)
    with record_attention(nn.ModuleDict({"reader": encoder})) as maps:
        encoder(torch.randn(2, 5, 8))
    assert list(maps) == ["reader.0.self_attn", "reader.1.self_attn", "reader.2.self_attn"]


def test_a_model_without_attention_is_refused():
    with (
        pytest.raises(ValueError, match="model has no MultiHeadAttention, got Linear"),
        record_attention(nn.Linear(2, 3)),
    ):
        raise AssertionError("the block must not run")
