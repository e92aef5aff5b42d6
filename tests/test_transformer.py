"""The whole model: against nn.Transformer, and by leaks, pads, caches, counts and first losses."""

import dataclasses
import io
import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close
from torch_weights import copy_weights

from tutorial_transformer.attention_maps import record_attention
from tutorial_transformer.embeddings import sinusoidal_positions
from tutorial_transformer.masks import causal_mask, padding_mask
from tutorial_transformer.multi_head import MultiHeadAttention
from tutorial_transformer.transformer import Transformer, TransformerConfig

SRC_VOCAB, TGT_VOCAB, HEADS, D_MODEL, LAYERS = 11, 13, 2, 18, 2
TINY = {"d_model": D_MODEL, "num_heads": HEADS, "num_layers": LAYERS, "d_ff": 7, "dropout": 0.0}
SRC = torch.tensor([[5, 6, 7, 8, 9], [9, 4, 3, 0, 0], [10, 0, 0, 0, 0]])  # 5, 3 and 1 real
TGT = torch.tensor([[1, 4, 5, 6], [1, 12, 2, 0], [1, 7, 0, 11]])  # pads behind and between
both_orders = pytest.mark.parametrize("norm_first", [False, True])
both_modes = pytest.mark.parametrize("train", [False, True])
both_ways = pytest.mark.parametrize("recorded", [False, True])
both_ties = pytest.mark.parametrize("tied", [False, True])


def build(norm_first=False, tied=False, src_vocab=SRC_VOCAB, **changes):
    """A tiny float64 model, its weights large enough that every path is visible in the logits."""
    sizes = (TGT_VOCAB if tied else src_vocab, TGT_VOCAB)
    changes = TINY | {"norm_first": norm_first, "tie_embeddings": tied, "max_len": 30} | changes
    model = Transformer(TransformerConfig.tiny(*sizes, **changes)).double()
    for name, parameter in model.named_parameters():
        if "embedding" not in name:
            nn.init.normal_(parameter, std=0.4)
    return model


def run(model, recorded, *arguments):
    """One forward pass, through the fused kernel or the readable attention."""
    if not recorded:
        return model(*arguments)
    with record_attention(model):
        return model(*arguments)


def build_torch(ours, norm_first):
    """nn.Transformer with our weights; its post-norm stacks end in norms that the paper lacks."""
    layer = nn.TransformerEncoderLayer(D_MODEL, HEADS, 7, 0.0, batch_first=True)
    layer.norm_first = norm_first
    norm = nn.LayerNorm(D_MODEL) if norm_first else None
    encoder = nn.TransformerEncoder(layer, LAYERS, norm, enable_nested_tensor=False)
    sizes = {"num_decoder_layers": LAYERS, "dim_feedforward": 7, "dropout": 0.0}
    theirs = nn.Transformer(
        D_MODEL, HEADS, **sizes, batch_first=True, norm_first=norm_first, custom_encoder=encoder
    ).double()
    if not norm_first:
        theirs.decoder.norm = None
    copy_weights(ours.encoder, theirs.encoder)
    copy_weights(ours.decoder, theirs.decoder)
    return theirs


@both_orders
@both_modes
@both_ties
def test_equals_torchs_transformer_in_logits_and_gradients(norm_first, train, tied):
    ours = build(norm_first, tied).train(train)
    theirs = build_torch(ours, norm_first).train(train)
    tgt = TGT.clone()
    tgt[2] = torch.tensor([1, 7, 0, 0])

    def embed(ids, table):
        return table[ids] * math.sqrt(D_MODEL) + sinusoidal_positions(ids.shape[1], D_MODEL)

    output = theirs(
        embed(SRC, ours.src_embedding.weight),
        embed(tgt, ours.tgt_embedding.weight),
        tgt_mask=~causal_mask(4)[0],
        src_key_padding_mask=SRC == 0,
        tgt_key_padding_mask=tgt == 0,
        memory_key_padding_mask=SRC == 0,
    )
    expected = output @ ours.output_proj.weight.T + ours.output_proj.bias
    assert_close(ours(SRC, tgt), expected)
    seed = torch.randn_like(expected).masked_fill((tgt == 0)[..., None], 0.0)
    kept = [p for name, p in ours.named_parameters() if name.startswith(("src_emb", "output"))]
    ours_grads = torch.autograd.grad(ours(SRC, tgt), kept, seed)
    theirs_grads = torch.autograd.grad(expected, kept, seed)
    for ours_grad, theirs_grad in zip(ours_grads, theirs_grads, strict=True):
        assert_close(ours_grad, theirs_grad)


@both_orders
def test_forward_is_encode_then_decode_and_returns_logits(norm_first):
    model = build(norm_first)
    memory, src_mask = model.encode(SRC)
    assert memory.shape == (3, 5, D_MODEL)
    assert torch.equal(src_mask, padding_mask(SRC)) and src_mask.shape == (3, 1, 5)
    embedded = model.positions(model.src_embedding(SRC))
    assert_close(memory, model.encoder(embedded, src_mask))
    logits = model(SRC, TGT)
    assert logits.shape == (3, 4, TGT_VOCAB)
    assert torch.equal(logits, model.decode(TGT, memory, src_mask))
    assert logits.logsumexp(-1).abs().max() > 0.1  # neither probabilities nor their logarithms
    assert (logits < 0).any() and (logits > 0).any()
    assert torch.equal(model(SRC.int(), TGT.int()), logits)


def test_what_is_a_pad_is_read_from_the_ids_and_not_from_the_vectors():
    model = build(pad_id=3, src_vocab=12)
    nn.init.zeros_(model.src_embedding.weight)
    src = torch.tensor([[4, 0, 5, 3, 3]])
    assert model.encode(src)[1].tolist() == [[[True, True, True, False, False]]]
    model.src_embedding.weight.data.normal_()
    assert model.encode(src)[1].tolist() == [[[True, True, True, False, False]]]


@both_orders
@both_modes
@both_ways
def test_no_logit_depends_on_a_later_target(norm_first, train, recorded):
    model = build(norm_first).train(train)
    before = run(model, recorded, SRC, TGT)
    for t in range(3):
        changed = TGT.clone()
        changed[:, t + 1 :] = torch.tensor([8, 3, 9])[: 3 - t]
        after = run(model, recorded, SRC, changed)
        assert torch.equal(after[:, : t + 1], before[:, : t + 1])
        assert not torch.allclose(after[:, t + 1 :], before[:, t + 1 :])
    other_source = run(model, recorded, SRC.where(SRC == 0, 2), TGT)
    assert ((other_source - before).abs().amax(-1) > 1e-6).all()  # the source reaches all of them


@both_orders
@both_modes
@both_ways
def test_no_gradient_flows_from_a_logit_to_a_later_target(norm_first, train, recorded):
    model, seen = build(norm_first).train(train), []
    hook = model.tgt_embedding.register_forward_hook(lambda *call: seen.append(call[-1]))
    logits = run(model, recorded, SRC[:1], TGT[:1])
    hook.remove()
    for t in range(4):
        (grad,) = torch.autograd.grad(logits[:, t].sum(), seen[0], retain_graph=True)
        reached = grad.abs().amax(-1)[0] > 0
        assert reached.tolist() == [True] * (t + 1) + [False] * (3 - t)


def outcome(model, src, tgt, rows=slice(None), recorded=False):
    """The logits that count, their loss, and the gradients of all parameters."""
    tgt_in = tgt[:, :-1]
    tgt_out = tgt[:, 1:].masked_fill(tgt_in == 0, 0)  # nobody asks what a pad is followed by
    logits = run(model, recorded, src, tgt_in)
    loss = F.cross_entropy(logits[rows].flatten(0, 1), tgt_out[rows].flatten(), ignore_index=0)
    grads = torch.autograd.grad(loss, model.parameters())
    return logits[rows][tgt_out[rows] != 0], loss, grads


def pad_to(ids, length):
    return F.pad(ids, (0, length - ids.shape[1]))


@both_orders
@both_modes
@pytest.mark.parametrize("src_pads, tgt_pads", [(0, 0), (0, 1), (1, 7), (7, 0)])
def test_padding_changes_neither_logits_nor_loss_nor_gradients(
    norm_first, train, src_pads, tgt_pads
):
    model = build(norm_first).train(train)
    src, tgt = torch.tensor([[5, 6, 7]]), torch.tensor([[1, 4, 5, 6, 2]])
    alone = outcome(model, src, tgt)
    padded_src, padded_tgt = pad_to(src, 3 + src_pads), pad_to(tgt, 5 + tgt_pads)
    assert_close(outcome(model, padded_src, padded_tgt), alone, rtol=0, atol=1e-12)
    longer_src = torch.full((1, 3 + src_pads), 8)
    longer_tgt = torch.full((1, 5 + tgt_pads), 9)
    beside = [torch.cat(pair) for pair in ((padded_src, longer_src), (padded_tgt, longer_tgt))]
    assert_close(outcome(model, *beside, rows=slice(1)), alone, rtol=0, atol=1e-12)
    if src_pads:  # a real word in their place would be seen
        seen = outcome(model, torch.cat([src, torch.full((1, src_pads), 4)], 1), tgt)
        assert not torch.allclose(seen[0], alone[0])


@both_orders
@both_modes
@both_ways
def test_what_the_pad_vectors_hold_does_not_matter_to_a_single_bit(norm_first, train, recorded):
    model = build(norm_first).train(train)
    tgt = pad_to(TGT, 6)
    before = outcome(model, SRC, tgt, recorded=recorded)
    for table in (model.src_embedding.weight, model.tgt_embedding.weight):
        table.data[0].normal_()
    after = outcome(model, SRC, tgt, recorded=recorded)
    assert torch.equal(after[0], before[0]) and torch.equal(after[1], before[1])
    assert all(map(torch.equal, after[2], before[2]))
    model.src_embedding.weight.data[9].normal_()
    assert not torch.allclose(outcome(model, SRC, tgt)[0], before[0])


def test_pads_stand_behind_the_words_of_a_source():
    model = build()
    for src in ([[5, 0, 6]], [[0, 5, 6]], [[5, 6, 7], [0, 0, 4]]):
        with pytest.raises(ValueError, match=r"src has a pad \(id 0\) before a real id"):
            model.encode(torch.tensor(src))
        with pytest.raises(ValueError, match=r"src has a pad \(id 0\) before a real id"):
            model(torch.tensor(src), TGT[: len(src)])
    assert model.encode(torch.tensor([[5, 6, 0]]))[0].isfinite().all()


@both_orders
@both_ways
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_rows_of_nothing_but_pads_are_finite_and_harm_no_other(norm_first, recorded, dtype):
    model = build(norm_first).to(dtype)
    before = run(model, recorded, SRC, TGT)
    src, tgt = SRC.clone(), TGT.clone()
    src[1], tgt[2] = 0, 0
    after = run(model, recorded, src, tgt)
    assert after.isfinite().all()
    assert torch.equal(after[0], before[0])
    assert not torch.equal(after[1], before[1]) and not torch.equal(after[2], before[2])
    grads = torch.autograd.grad(after.float().logsumexp(-1).sum(), model.parameters())
    assert all(grad.isfinite().all() for grad in grads)


def splits(length):
    """Every way to hand over so many ids in pieces: the edges between them."""
    for cuts in range(2 ** (length - 1)):
        yield [0, *(i for i in range(1, length) if cuts >> (i - 1) & 1), length]


@pytest.mark.parametrize("norm_first, tied", [(False, False), (True, True)])
@both_ways
@pytest.mark.parametrize("with_memory, max_len", [(False, None), (True, 4)])
@torch.no_grad()
def test_a_cache_changes_no_logit_for_any_split(norm_first, tied, recorded, with_memory, max_len):
    model = build(norm_first, tied)
    memory, src_mask = model.encode(SRC)
    full = model(SRC, TGT)
    for edges in splits(4):
        cache, pieces = model.new_cache(memory if with_memory else None, max_len), []
        assert len(cache) == cache.length == 0
        for start, stop in pairwise(edges):
            with record_attention(model) if recorded else torch.no_grad():
                pieces.append(model.decode(TGT[:, start:stop], memory, src_mask, cache))
            assert len(cache) == cache.length == stop
            assert all(len(layer.self_attn) == stop for layer in cache.layers)
            assert all(len(layer.cross_attn) == 5 for layer in cache.layers)
        assert_close(torch.cat(pieces, 1), full, rtol=0, atol=1e-10)
    for t in range(1, 5):
        assert_close(model.decode(TGT[:, :t], memory, src_mask), full[:, :t], rtol=0, atol=1e-10)
    forgotten = model.decode(TGT[:, 2:3], memory, src_mask)
    assert not torch.allclose(forgotten, full[:, 2:3])  # without a cache the past is missing


@torch.no_grad()
def test_a_cache_grows_past_its_first_buffer_and_two_caches_do_not_meet():
    model, tgt = build(max_len=40), torch.randint(3, TGT_VOCAB, (3, 35))
    memory, src_mask = model.encode(SRC)
    kept = [tensor.clone() for tensor in (memory, src_mask, tgt)]
    caches = [model.new_cache(memory), model.new_cache()]
    outputs = [[], []]
    for t in range(0, 35, 5):
        for row, cache, piece in zip(outputs, caches, (tgt, tgt.flip(1)), strict=True):
            row.append(model.decode(piece[:, t : t + 5], memory, src_mask, cache))
    assert_close(torch.cat(outputs[0], 1), model(SRC, tgt), rtol=0, atol=1e-10)
    assert_close(torch.cat(outputs[1], 1), model(SRC, tgt.flip(1)), rtol=0, atol=1e-10)
    assert all(map(torch.equal, kept, (memory, src_mask, tgt)))


@torch.no_grad()
def test_beginnings_that_change_places_go_on_as_without_a_cache():
    model, rows = build(max_len=9), torch.tensor([1, 1, 2, 0])
    memory, src_mask = (x[:1].repeat_interleave(4, dim=0) for x in model.encode(SRC))
    tgt = torch.tensor([[1, 3, 4], [1, 5, 0], [1, 6, 3], [1, 0, 6]])  # some of them with pads
    new = torch.tensor([[3], [4], [5], [6]])
    cache = model.new_cache(memory, max_len=9)
    cache.select(rows)  # nothing is there yet
    model.decode(tgt, memory, src_mask, cache)
    cache.select(rows)
    step = model.decode(new, memory, src_mask, cache)
    both = [torch.cat([ids, new], dim=1) for ids in (tgt[rows], tgt)]
    moved, stayed = (model.decode(ids, memory, src_mask)[:, -1:] for ids in both)
    assert_close(step, moved, rtol=0, atol=1e-10)
    assert not torch.allclose(step, stayed) and len(cache) == 4
    for wrong, error, message in [
        (rows[:3], ValueError, r"one row for each of the 4 in the cache, got shape \(3,\)"),
        (rows[None], ValueError, "rows"),
        (rows + 2, ValueError, r"rows must lie in the batch of 4, got \[3, 3, 4, 2\]"),
        (rows.double(), TypeError, "rows"),
        (rows.tolist(), TypeError, "rows"),
    ]:
        with pytest.raises(error, match=message):
            cache.select(wrong)
    again = model.decode(new, memory, src_mask, cache)  # a refused call moved nothing
    twice = torch.cat([both[0], new], dim=1)
    assert_close(again, model.decode(twice, memory, src_mask)[:, -1:], rtol=0, atol=1e-10)


@torch.no_grad()
def test_a_cache_refuses_what_does_not_belong_to_it():
    model = build(max_len=6)
    memory, src_mask = model.encode(SRC)
    cache = model.new_cache(memory, max_len=3)
    model.decode(TGT[:, :2], memory, src_mask, cache)
    for arguments, message in [
        ((TGT[:, :2], memory, src_mask), "tgt_in has length 4, but max_len is 3"),
        ((TGT[:1, :1], memory[:1], src_mask[:1]), "tgt_in has batch 1, the cache 3"),
        ((TGT[:, :1], memory[:2], src_mask[:2]), "tgt_in has batch 3, memory has batch 2"),
        ((TGT[:, :1], memory + 1, src_mask), "not the memory"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.decode(*arguments, cache)
    last = model.decode(TGT[:, 2:3], memory, src_mask, cache)  # a refused call left no trace
    assert_close(last, model(SRC, TGT)[:, 2:3])
    with pytest.raises(ValueError, match="not the memory"):
        model.decode(TGT[:, :1], memory + 1, src_mask, model.new_cache(memory))
    with pytest.raises(TypeError, match="cache"):
        model.decode(TGT, memory, src_mask, [])
    open_end = model.new_cache(memory)
    model.decode(TGT, memory, src_mask, open_end)
    with pytest.raises(ValueError, match="tgt_in has length 7, but max_len is 6"):
        model.decode(TGT[:, :3], memory, src_mask, open_end)


@pytest.mark.parametrize("dropout", [0, 0.3])
def test_dropout_has_the_configured_rate_at_the_papers_places(dropout):
    model = build(dropout=dropout)
    modules = {n: m.p for n, m in model.named_modules() if isinstance(m, nn.Dropout)}
    assert set(modules.values()) == {dropout}
    assert len(modules) == 1 + (2 + 3) * LAYERS  # after the positions, and after each sub-layer
    calm = model.eval()(SRC, TGT)
    assert torch.equal(model(SRC, TGT), calm)
    model.train()
    assert torch.equal(model(SRC, TGT), calm) == (dropout == 0)
    assert torch.equal(model(SRC, TGT), model(SRC, TGT)) == (dropout == 0)


@both_orders
@pytest.mark.parametrize("vocab, d_model", [(85, 64), (1000, 32), (20, 128)])
def test_the_first_loss_is_that_of_a_fair_guess(norm_first, vocab, d_model):
    losses = {}
    for tied in (False, True):
        sizes = {"d_model": d_model, "norm_first": norm_first, "tie_embeddings": tied}
        model = Transformer(TransformerConfig.tiny(vocab, vocab, **sizes))
        src, tgt_in, tgt_out = torch.randint(3, vocab, (3, 16, 9))
        with torch.no_grad():
            logits = model(src, tgt_in)
        losses[tied] = F.cross_entropy(logits.flatten(0, 1), tgt_out.flatten()).item()
    assert losses[False] == pytest.approx(math.log(vocab), abs=0.1)
    assert losses[True] > math.log(vocab) + 0.1  # a tied table cannot start small


@both_orders
def test_no_two_parts_of_an_untied_model_share_or_copy_weights(norm_first):
    model = Transformer(TransformerConfig.tiny(SRC_VOCAB, SRC_VOCAB, norm_first=norm_first))
    modules = list(model.modules())
    assert len({id(m) for m in modules}) == len(modules) > 40
    storages = [p.data_ptr() for p in model.parameters()]
    assert len(set(storages)) == len(storages)
    attentions = [m for m in modules if isinstance(m, MultiHeadAttention)]
    assert len(attentions) == 3 * 2
    parts = [getattr(a, f"w_{x}") for a in attentions for x in "qkvo"]
    for part, other in ((a, b) for i, a in enumerate(parts) for b in parts[:i]):
        assert not torch.equal(part.weight, other.weight)
        assert not torch.equal(part.bias, other.bias)
    assert not torch.equal(model.src_embedding.weight, model.tgt_embedding.weight)


def test_tied_tensors_are_one_tensor_and_counted_once():
    model = Transformer(TransformerConfig.tiny(TGT_VOCAB, TGT_VOCAB, tie_embeddings=True))
    assert model.src_embedding.weight is model.tgt_embedding.weight is model.output_proj.weight
    untied = Transformer(TransformerConfig.tiny(TGT_VOCAB, TGT_VOCAB))
    assert count(untied) - count(model) == 2 * TGT_VOCAB * 64
    assert model.src_embedding.weight[0].abs().max() == 0
    model(SRC, TGT).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    assert torch.equal(model.src_embedding.weight, model.output_proj.weight)


@both_orders
@both_ties
def test_every_parameter_gets_a_gradient(norm_first, tied):
    model = build(norm_first, tied)
    F.cross_entropy(model(SRC, TGT).flatten(0, 1), TGT.flatten().flip(0)).backward()
    for name, parameter in model.named_parameters():
        size = parameter.grad.abs().max()
        # A key bias adds the same to all scores of a query, and softmax does not notice.
        assert size < 1e-13 if name.endswith("w_k.bias") else size > 1e-8, name
    if not tied:
        tables = (model.src_embedding, model.tgt_embedding)
        assert all(table.weight.grad[0].abs().max() == 0 for table in tables)


def count(module):
    return sum(p.numel() for p in module.parameters())


def test_parameters_are_counted_against_the_paper():
    d, d_ff, vocab = 512, 2048, 37_000
    attention, feed_forward, norm = 4 * (d * d + d), 2 * d * d_ff + d_ff + d, 2 * d
    assert (attention, feed_forward) == (1_050_624, 2_099_712)
    encoder, decoder = attention + feed_forward + 2 * norm, 2 * attention + feed_forward + 3 * norm
    assert (encoder, decoder) == (3_152_384, 4_204_032)
    with torch.device("meta"):
        assert count(MultiHeadAttention(d, 8)) == attention
        models = {
            (norm_first, tied): Transformer(
                TransformerConfig.base(vocab, vocab, norm_first=norm_first, tie_embeddings=tied)
            )
            for norm_first in (False, True)
            for tied in (False, True)
        }
        torchs = nn.Transformer(batch_first=True)
    post, tied_post = models[False, False], models[False, True]
    assert count(post.encoder.layers[5]) == encoder and count(post.decoder.layers[5]) == decoder
    stacks = 6 * (encoder + decoder)
    assert count(post.encoder) + count(post.decoder) == stacks == 44_138_496
    assert count(torchs) == stacks + 2 * norm == 44_140_544  # two norms that the paper lacks
    assert count(models[True, False].encoder) + count(models[True, False].decoder) == count(torchs)
    assert count(tied_post) == stacks + vocab * d + vocab == 63_082_496 + 37_000
    assert count(post) == stacks + 3 * vocab * d + vocab
    assert count(models[True, True]) == count(tied_post) + 2 * norm


@both_orders
@both_ties
def test_a_saved_model_loads_into_another_and_says_the_same(norm_first, tied):
    model, file = build(norm_first, tied), io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = build(norm_first, tied, max_len=12)
    assert not torch.allclose(other(SRC, TGT), model(SRC, TGT))
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(SRC, TGT), model(SRC, TGT))
    assert (other.output_proj.weight is other.src_embedding.weight) == tied


def test_the_positional_table_is_not_saved_but_follows_the_model():
    model = Transformer(TransformerConfig.tiny(SRC_VOCAB, TGT_VOCAB))
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}
    assert dict(model.named_buffers())["positions.table"].dtype == torch.float32
    assert model.double().positions.table.dtype == torch.float64
    assert model(SRC, TGT).dtype == torch.float64
    half = model.bfloat16().positions.table
    assert half.dtype == torch.bfloat16 and not torch.equal(half[254], half[255])
    assert model.to("meta").positions.table.device.type == "meta"


def test_the_named_sizes_are_those_of_table_3_and_can_be_changed():
    def sizes(config):
        return dataclasses.astuple(config)[:7]

    config = TransformerConfig
    assert sizes(config.base(11, 13)) == sizes(config(11, 13)) == (11, 13, 512, 8, 6, 2048, 0.1)
    assert sizes(config.big(11, 13)) == (11, 13, 1024, 16, 6, 4096, 0.3)
    assert sizes(config.tiny(11, 13)) == (11, 13, 64, 4, 2, 256, 0.0)
    assert dataclasses.astuple(config(11, 13))[7:] == (5000, False, False, 0, 1, 2)
    for make in (config.base, config.big, config.tiny):
        changed = make(11, 13, d_model=30, num_heads=3, dropout=0.5, max_len=17, norm_first=True)
        assert (changed.d_model, changed.num_heads, changed.dropout) == (30, 3, 0.5)
        assert changed.max_len == 17 and changed.norm_first
        assert changed == make(
            11, 13, d_model=30, num_heads=3, dropout=0.5, max_len=17, norm_first=True
        )
        assert changed.d_ff == make(11, 13).d_ff
        with pytest.raises(TypeError, match="n_heads"):
            make(11, 13, n_heads=3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.tiny(11, 13).d_model = 128


@pytest.mark.parametrize(
    "changes, error, message",
    [
        (
            {"d_model": 10, "num_heads": 3},
            ValueError,
            "d_model=10 must be divisible by num_heads=3",
        ),
        ({"tie_embeddings": True}, ValueError, "src_vocab_size=11 and tgt_vocab_size=13"),
        ({"src_vocab_size": 0}, ValueError, "src_vocab_size must be at least 1, got 0"),
        ({"tgt_vocab_size": -1}, ValueError, "tgt_vocab_size must be at least 1, got -1"),
        ({"num_layers": 0}, ValueError, "num_layers must be at least 1, got 0"),
        ({"num_heads": 0}, ValueError, "num_heads must be at least 1, got 0"),
        ({"d_model": 0}, ValueError, "d_model must be at least 1, got 0"),
        ({"d_ff": 0}, ValueError, "d_ff must be at least 1, got 0"),
        ({"max_len": 0}, ValueError, "max_len must be at least 1, got 0"),
        ({"dropout": 1.0}, ValueError, r"dropout must lie in \[0, 1\), got 1.0"),
        ({"dropout": -0.1}, ValueError, r"dropout must lie in \[0, 1\), got -0.1"),
        ({"eos_id": 13}, ValueError, "eos_id=13 .* vocabulary of 13"),
        ({"bos_id": -1}, ValueError, "bos_id=-1 .* vocabulary of 13"),
        ({"pad_id": 11}, ValueError, "pad_id=11 .* vocabulary of 11"),
        ({"eos_id": 1}, ValueError, "the special ids must differ"),
        ({"pad_id": 0.0}, TypeError, "pad_id"),
        ({"d_model": 64.0}, TypeError, "d_model"),
        ({"dropout": "0.1"}, TypeError, "dropout"),
        ({"norm_first": "no"}, TypeError, "norm_first"),
        ({"tie_embeddings": 0}, TypeError, "tie_embeddings"),
    ],
)
def test_a_configuration_with_a_wrong_value_is_refused(changes, error, message):
    sizes = {"src_vocab_size": 11, "tgt_vocab_size": 13}
    with pytest.raises(error, match=message):
        TransformerConfig(**sizes | changes)


def test_the_model_wants_a_configuration():
    with pytest.raises(TypeError, match="config"):
        Transformer({"d_model": 8})


NO_IDS = torch.zeros(3, 0, dtype=torch.int64)


@pytest.mark.parametrize(
    "src, tgt_in, error, message",
    [
        (SRC + 1, TGT, ValueError, "src holds id 11, but the vocabulary has 11 entries"),
        (SRC - 1, TGT, ValueError, "src holds id -1, but the vocabulary has 11 entries"),
        (SRC, TGT + 1, ValueError, "tgt_in holds id 13, but the vocabulary has 13 entries"),
        (SRC.repeat(1, 7), TGT, ValueError, "src has length 35, but max_len is 30"),
        (SRC, TGT.repeat(1, 8), ValueError, "tgt_in has length 32, but max_len is 30"),
        (SRC, TGT[:2], ValueError, "src has batch 3, tgt_in has batch 2"),
        (SRC[0], TGT, ValueError, r"src must have shape \(batch, length\).*got \(5,\)"),
        (SRC, TGT[0], ValueError, r"tgt_in must have shape \(batch, length\).*got \(4,\)"),
        (SRC[:0], TGT[:0], ValueError, r"src .*neither of them 0, got \(0, 5\)"),
        (NO_IDS, TGT, ValueError, r"src .*neither of them 0, got \(3, 0\)"),
        (SRC, NO_IDS, ValueError, r"tgt_in .*neither of them 0, got \(3, 0\)"),
        (SRC.double(), TGT, TypeError, "src must hold integer ids, got torch.float64"),
        (SRC, TGT > 1, TypeError, "tgt_in must hold integer ids, got torch.bool"),
        (SRC.short(), TGT, TypeError, "src must hold int64 or int32 ids"),
        ([[5, 6]], TGT, TypeError, "src"),
        (SRC, None, TypeError, "tgt_in"),
    ],
)
def test_bad_ids_are_refused(src, tgt_in, error, message):
    with pytest.raises(error, match=message):
        build()(src, tgt_in)


@pytest.mark.parametrize(
    "memory, src_mask, error, message",
    [
        (torch.zeros(3, 5, 17), None, ValueError, "memory must have last axis 18, got 17"),
        (torch.zeros(5, 18), None, ValueError, r"memory must have 3 axes, got shape \(5, 18\)"),
        (torch.zeros(3, 0, 18), None, ValueError, "memory must not be empty"),
        (torch.zeros(2, 5, 18), None, ValueError, "tgt_in has batch 3, memory has batch 2"),
        (SRC, None, TypeError, "memory must be a floating-point tensor"),
        ("memory", None, TypeError, "memory"),
        (torch.zeros(3, 5, 18), torch.ones(3, 1, 4) > 0, ValueError, r"src_mask .*\(3, 1, 4\)"),
        (torch.zeros(3, 5, 18), torch.ones(2, 1, 5) > 0, ValueError, r"src_mask .*\(2, 1, 5\)"),
        (torch.zeros(3, 5, 18), torch.ones(3, 5) > 0, ValueError, r"src_mask .*got \(3, 5\)"),
        (torch.zeros(3, 5, 18), torch.ones(3, 1, 5), TypeError, "src_mask must be a bool tensor"),
    ],
)
def test_bad_memory_and_source_masks_are_refused(memory, src_mask, error, message):
    model = build()
    with pytest.raises(error, match=message):
        model.decode(TGT, memory, src_mask)
    if src_mask is None and "batch" not in message:
        with pytest.raises(error, match=message):
            model.new_cache(memory)


@pytest.mark.parametrize("max_len, error", [(0, ValueError), (-2, ValueError), (2.5, TypeError)])
def test_a_cache_has_room_for_at_least_one_position(max_len, error):
    with pytest.raises(error, match="max_len"):
        build().new_cache(max_len=max_len)
