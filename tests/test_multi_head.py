"""Multi-head attention and its cache: a loop over heads, torch's own module, and algebra."""

import contextlib
import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing import assert_close

from tutorial_transformer.attention_maps import record_attention
from tutorial_transformer.masks import causal_mask, padding_mask, target_mask, to_torch_attn_mask
from tutorial_transformer.multi_head import KVCache, MultiHeadAttention, merge_heads, split_heads

BATCH, HEADS, Q_LEN, K_LEN, D_MODEL, D_K = 2, 3, 5, 7, 12, 4  # all different
KINDS = ["none", "random", "for all queries", "empty row", "empty batch row", "per head", "hidden"]
PRECISIONS = {  # dtype, dtype of autocast, tolerance
    "float64": (torch.float64, None, 1e-10),
    "float32": (torch.float32, None, 1e-5),
    "bfloat16": (torch.bfloat16, None, 0.1),
    "float16": (torch.float16, None, 0.02),
    "autocast": (torch.float32, torch.bfloat16, 0.1),
}


def make_mask(kind):
    random = torch.rand(BATCH, Q_LEN, K_LEN) < 0.6
    random[..., 3] = True
    empty_row, empty_batch_row = random.clone(), random.clone()
    per_head = random[:, None].repeat(1, HEADS, 1, 1)
    empty_row[1, 2] = empty_batch_row[0] = per_head[1, 2] = per_head[0, 0, 4] = False
    return {
        "none": None,
        "random": random,
        "for all queries": random[:, :1],
        "causal": causal_mask(Q_LEN, K_LEN),
        "empty row": empty_row,
        "empty batch row": empty_batch_row,
        "per head": per_head,
        "hidden": torch.zeros(1, 1, K_LEN, dtype=torch.bool),
    }[kind]


def make_inputs(dtype=torch.float64):
    """Query, key and value, as for cross-attention over two different things."""
    return [torch.randn(BATCH, n, D_MODEL, dtype=dtype) for n in (Q_LEN, K_LEN, K_LEN)]


def make_attention(dtype=torch.float64, **options):
    return MultiHeadAttention(D_MODEL, HEADS, **options).to(dtype)


def weights_of(attention, *arguments, **more):
    with record_attention(attention) as maps:
        attention(*arguments, **more)
    return maps["attention"]


PATHS = {
    "fused": lambda attention: contextlib.nullcontext(),
    "torch's plain": lambda attention: sdpa_kernel(SDPBackend.MATH),
    "readable": record_attention,
}


def results(attention, inputs, mask, path, direction, autocast=None):
    """The output and the gradients of inputs and parameters, computed on one of the PATHS."""
    inputs = [x.detach().requires_grad_() for x in inputs]
    with (
        torch.autocast("cpu", autocast or torch.bfloat16, enabled=autocast is not None),
        PATHS[path](attention),
    ):
        output = attention(*inputs, mask)
    loss = (output.to(direction.dtype) * direction).sum()
    return [output, *torch.autograd.grad(loss, inputs + list(attention.parameters()))]


@settings(max_examples=30, deadline=None, derandomize=True)
@given(*[st.integers(1, 4)] * 4)
def test_split_moves_pieces_and_merge_undoes_it(batch, length, heads, d_k):
    x = torch.arange(batch * length * heads * d_k, dtype=torch.float32)
    x = x.view(batch, length, heads * d_k)
    split = split_heads(x, heads)
    assert split.shape == (batch, heads, length, d_k)
    for b, h, t in itertools.product(range(batch), range(heads), range(length)):
        assert torch.equal(split[b, h, t], x[b, t, h * d_k : (h + 1) * d_k])
    assert torch.equal(merge_heads(split), x)


def test_heads_are_laid_side_by_side_again():
    x = torch.arange(8.0).view(1, 4, 2).view(1, 2, 2, 2)  # (batch, heads, length, d_k)
    assert merge_heads(x).tolist() == [[[0, 1, 4, 5], [2, 3, 6, 7]]]
    assert x.reshape(1, 2, 4).tolist() == [[[0, 1, 2, 3], [4, 5, 6, 7]]]  # a scramble, visibly


@pytest.mark.parametrize("kind", [*KINDS, "causal"])
def test_each_head_attends_with_its_own_slice_of_the_projections(kind):
    attention, (query, key, value), mask = make_attention(), make_inputs(), make_mask(kind)
    visible = torch.ones(1, 1, K_LEN, dtype=torch.bool) if mask is None else mask
    visible = visible if visible.ndim == 4 else visible[:, None]
    visible = visible.expand(BATCH, HEADS, Q_LEN, K_LEN)
    heads, maps = [], []
    for h in range(HEADS):
        own = slice(h * D_K, (h + 1) * D_K)
        q, k, v = (
            x @ w.weight[own].T + w.bias[own]
            for x, w in zip(
                (query, key, value), (attention.w_q, attention.w_k, attention.w_v), strict=True
            )
        )
        exps = torch.einsum("bqd,bkd->bqk", q / math.sqrt(D_K), k).exp() * visible[:, h]
        maps.append(exps / exps.sum(-1, keepdim=True).clamp(min=1e-300))  # an empty row is 0
        heads.append(maps[-1] @ v)
    expected = torch.cat(heads, dim=-1) @ attention.w_o.weight.T + attention.w_o.bias
    assert_close(attention(query, key, value, mask), expected, atol=1e-10, rtol=0)
    recorded = weights_of(attention, query, key, value, mask)
    assert_close(recorded, torch.stack(maps, dim=1), atol=1e-10, rtol=0)
    assert recorded[~visible].eq(0).all()


def copy_into_torch(attention):
    """nn.MultiheadAttention with the weights of ours."""
    torchs = nn.MultiheadAttention(D_MODEL, HEADS, batch_first=True, dtype=torch.float64)
    three = [attention.w_q, attention.w_k, attention.w_v]
    with torch.no_grad():
        torchs.in_proj_weight.copy_(torch.cat([w.weight for w in three]))
        torchs.in_proj_bias.copy_(torch.cat([w.bias for w in three]))
        torchs.out_proj.load_state_dict(attention.w_o.state_dict())
    return torchs


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("kind", ["none", "random", "causal", "pads", "pads and causal"])
def test_outputs_weights_and_gradients_are_those_of_torchs_module(kind, train):
    attention = make_attention().train(train)
    torchs = copy_into_torch(attention).train(train)
    ids = torch.tensor([[5, 6, 7, 8, 0, 0, 0], [5, 6, 7, 8, 9, 3, 2]])
    mask, hide, hide_keys = None, None, None
    if kind == "random":
        mask = make_mask("random")
        hide = to_torch_attn_mask(mask).repeat_interleave(HEADS, dim=0)
    if "causal" in kind:
        mask, hide = causal_mask(Q_LEN, K_LEN), to_torch_attn_mask(causal_mask(Q_LEN, K_LEN))[0]
    if "pads" in kind:
        mask = padding_mask(ids) if mask is None else mask & padding_mask(ids)
        hide_keys = to_torch_attn_mask(padding_mask(ids))[:, 0]
    inputs = make_inputs()
    ours, theirs = ([x.clone().requires_grad_() for x in inputs] for _ in range(2))
    output = attention(*ours, mask)
    torch_output, torch_weights = torchs(
        *theirs, attn_mask=hide, key_padding_mask=hide_keys, average_attn_weights=False
    )
    assert_close(output, torch_output)
    assert_close(weights_of(attention, *ours, mask), torch_weights)
    (output.square().sum() + torch_output.square().sum()).backward()
    three = (attention.w_q, attention.w_k, attention.w_v)
    for our, their in [
        *((ours[i].grad, theirs[i].grad) for i in range(3)),
        (torch.cat([w.weight.grad for w in three]), torchs.in_proj_weight.grad),
        (torch.cat([w.bias.grad for w in three]), torchs.in_proj_bias.grad),
        (attention.w_o.weight.grad, torchs.out_proj.weight.grad),
        (attention.w_o.bias.grad, torchs.out_proj.bias.grad),
    ]:
        assert_close(our, their)


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_fused_and_the_readable_path_are_one_attention(precision, kind, train):
    dtype, autocast, tolerance = PRECISIONS[precision]
    attention, mask = make_attention(dtype, dropout=0.0 if train else 0.5), make_mask(kind)
    attention.train(train)  # in eval mode a dropout of 0.5 must not be felt
    inputs, direction = make_inputs(dtype), torch.randn(BATCH, Q_LEN, D_MODEL, dtype=dtype)
    ways = [results(attention, inputs, mask, path, direction, autocast) for path in PATHS]
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=bool(autocast)):
        assert_close(attention(*inputs, mask), ways[0][0], atol=tolerance, rtol=0)
    for same in zip(*ways, strict=True):
        assert all(x.isfinite().all() for x in same)
        for other in same[1:]:
            assert_close(other, same[0], atol=tolerance, rtol=tolerance)
    assert any(x.ne(0).any() for x in ways[0][1:])


@pytest.mark.parametrize("kind", ["none", "random"])
def test_torchs_kernel_computes_as_long_as_nobody_looks_at_the_weights(kind, monkeypatch):
    attention, inputs, calls = make_attention(), make_inputs(), []
    kernel = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(
        "torch.nn.functional.scaled_dot_product_attention",
        lambda *arguments: calls.append(1) or kernel(*arguments),
    )
    attention(*inputs, make_mask(kind))
    weights_of(attention, *inputs, make_mask(kind))
    assert len(calls) == 1
    attention(*inputs, make_mask(kind))
    assert len(calls) == 2


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_query_that_sees_nothing_gives_zero_before_w_o(dtype, path):
    attention, inputs = make_attention(dtype), make_inputs(dtype)
    with PATHS[path](attention):
        output = attention(*inputs, make_mask("empty row"))
    bias = attention.w_o.bias.expand_as(output)
    equals_bias = output.eq(bias).all(-1)
    assert equals_bias[1, 2]
    assert equals_bias.sum() == 1
    weights = weights_of(attention, *inputs, make_mask("empty row"))
    assert weights[1, :, 2].eq(0).all()


def test_long_rows_whose_first_blocks_are_hidden_stay_equal_on_both_paths():
    attention, dtype = make_attention(torch.float32), torch.float32
    inputs = [torch.randn(1, n, D_MODEL, dtype=dtype) for n in (40, 1100, 1100)]
    mask = torch.rand(1, 40, 1100) < 0.5
    mask[0, 3] = mask[0, 4, :700] = mask[0, 5, 600:] = mask[0, 6, 1:] = False
    direction = torch.randn(1, 40, D_MODEL)
    fused, plain = (results(attention, inputs, mask, p, direction) for p in ("fused", "readable"))
    for our, their in zip(fused, plain, strict=True):
        assert our.isfinite().all()
        assert_close(our, their, atol=1e-4, rtol=1e-4)


def make_identity():
    """An attention whose four projections change nothing."""
    attention = make_attention(bias=False)
    for w in attention.children():
        if isinstance(w, nn.Linear):
            nn.init.eye_(w.weight)
    return attention


def test_with_identity_projections_a_token_that_sees_only_itself_stays_itself():
    attention, x = make_identity(), torch.randn(BATCH, Q_LEN, D_MODEL, dtype=torch.float64)
    only_itself = torch.eye(Q_LEN, dtype=torch.bool)[None]
    assert_close(attention(x, x, x, only_itself), x)
    assert not torch.allclose(attention(x, x, x), x)


def test_rows_of_a_batch_and_tokens_without_a_mask_can_be_reordered():
    attention, x = make_attention(), torch.randn(4, Q_LEN, D_MODEL, dtype=torch.float64)
    output, rows, tokens = attention(x, x, x), torch.tensor([2, 0, 3, 1]), torch.randperm(Q_LEN)
    assert_close(attention(x[rows], x[rows], x[rows]), output[rows])
    assert_close(attention(x[2:3], x[2:3], x[2:3]), output[2:3])
    shuffled = x[:, tokens]
    assert_close(attention(shuffled, shuffled, shuffled), output[:, tokens])
    assert not torch.allclose(attention(x[rows], x, x), output[rows])


def test_the_order_of_the_heads_does_not_matter():
    attention, inputs, mask = make_attention(), make_inputs(), make_mask("random")
    before = attention(*inputs, mask)
    order = torch.arange(D_MODEL).view(HEADS, D_K)[[2, 0, 1]].flatten()
    with torch.no_grad():
        for w in (attention.w_q, attention.w_k, attention.w_v):
            w.weight.copy_(w.weight[order])
            w.bias.copy_(w.bias[order])
        assert not torch.allclose(attention(*inputs, mask), before)
        attention.w_o.weight.copy_(attention.w_o.weight[:, order])
    assert_close(attention(*inputs, mask), before)


@pytest.mark.parametrize("path", ["fused", "readable", "cached"])
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("ids", [[4, 5, 6, 7, 8, 9], [4, 5, 6, 7, 0, 0], [0, 0, 6, 7, 8, 9]])
def test_the_future_cannot_leak_into_the_past(ids, train, path):
    attention, mask = make_attention().train(train), target_mask(torch.tensor([ids]))

    def attend(x):
        with PATHS["readable" if path == "readable" else "fused"](attention):
            return attention(x, x, x, mask, KVCache() if path == "cached" else None)

    x = torch.randn(1, 6, D_MODEL, dtype=torch.float64, requires_grad=True)
    output = attend(x)
    for t in range(5):
        changed = x.detach().clone()
        changed[:, t + 1 :] = 100 * torch.randn(1, 5 - t, D_MODEL)
        assert torch.equal(attend(changed)[:, : t + 1], output[:, : t + 1])
        assert not torch.equal(attend(changed)[:, t + 1 :], output[:, t + 1 :])
        (grad,) = torch.autograd.grad(output[:, t].sum(), x, retain_graph=True)
        assert grad[:, t + 1 :].eq(0).all()
        assert grad[:, : t + 1].ne(0).any() == mask[0, t].any()


@pytest.mark.parametrize("left", [0, 1, 7])
@pytest.mark.parametrize("right", [0, 1, 7])
@pytest.mark.parametrize("train", [True, False])
def test_pads_change_neither_real_outputs_nor_gradients(left, right, train):
    attention = make_attention().train(train)
    real = torch.randn(1, Q_LEN, D_MODEL, dtype=torch.float64, requires_grad=True)
    mate = torch.randn(1, left + Q_LEN + right, D_MODEL, dtype=torch.float64)

    def outputs_and_gradients(left, right, mates=0, hide=True, noise=1.0):
        pads = [noise * torch.randn(1, n, D_MODEL, dtype=torch.float64) for n in (left, right)]
        x = torch.cat([torch.cat([pads[0], real, pads[1]], dim=1), *[mate] * mates])
        mask = torch.ones(1 + mates, 1, x.shape[1], dtype=torch.bool)
        mask[0, 0, :left] = mask[0, 0, left + Q_LEN :] = not hide
        output = attention(x, x, x, mask)[:1, left : left + Q_LEN]
        grads = torch.autograd.grad(output.square().sum(), [real, *attention.parameters()])
        return [output, *grads]

    alone, padded = outputs_and_gradients(0, 0), outputs_and_gradients(left, right)
    beside = outputs_and_gradients(left, right, mates=2)
    noisy = outputs_and_gradients(left, right, noise=100.0)
    for ours, *others in zip(alone, padded, beside, noisy, strict=True):
        for other in others:
            assert_close(other, ours, atol=1e-12, rtol=1e-12)
    assert all(torch.equal(a, b) for a, b in zip(padded, noisy, strict=True))
    if left + right:
        assert not torch.allclose(outputs_and_gradients(left, right, hide=False)[0], alone[0])


@pytest.mark.parametrize("bias", [True, False])
def test_there_are_four_square_matrices_with_the_names_of_the_paper(bias):
    attention = MultiHeadAttention(512, 8, bias=bias)
    assert sum(p.numel() for p in attention.parameters()) == 4 * 512 * 512 + bias * 4 * 512
    names = [f"w_{x}.{part}" for x in "qkvo" for part in ["weight", "bias"][: 1 + bias]]
    assert list(attention.state_dict()) == names


def test_every_parameter_learns_except_the_bias_of_the_keys():
    attention, inputs = make_attention(), make_inputs()
    attention(*inputs, make_mask("random")).square().sum().backward()
    for name, parameter in attention.named_parameters():
        # A constant added to all keys shifts a whole row of scores, and softmax ignores that.
        assert (parameter.grad.abs().max() > 1e-6) == (name != "w_k.bias")


def test_two_attentions_start_different_until_weights_are_loaded():
    one, other, inputs = make_attention(), make_attention(), make_inputs()
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        assert not torch.equal(a, b)
    assert not torch.allclose(one(*inputs), other(*inputs))
    other.load_state_dict(one.state_dict())
    assert torch.equal(one(*inputs), other(*inputs))


@pytest.mark.parametrize("path", ["fused", "readable"])
def test_dropout_drops_whole_weights_in_train_mode_only(path):
    attention = make_identity()
    attention.dropout = make_attention(dropout=0.5).dropout
    x = torch.randn(64, Q_LEN, D_MODEL, dtype=torch.float64)
    only_itself = torch.eye(Q_LEN, dtype=torch.bool)[None]  # one weight of 1 in each row
    with PATHS[path](attention):
        kept = split_heads(attention(x, x, x, only_itself), HEADS) / split_heads(x, HEADS)
        assert not torch.equal(attention(x, x, x), attention(x, x, x))
        attention.eval()
        assert_close(attention(x, x, x, only_itself), x)
        assert torch.equal(attention(x, x, x), attention(x, x, x))
    dropped = kept[..., 0] == 0
    assert_close(kept, torch.where(dropped, 0.0, 2.0).double()[..., None].expand_as(kept))
    assert 0.4 < dropped.double().mean() < 0.6


@pytest.mark.parametrize("train", [True, False])
def test_shown_weights_are_those_before_dropout(train):
    attention, inputs = make_attention(dropout=0.5).train(train), make_inputs()
    weights = weights_of(attention, *inputs, make_mask("random"))
    assert_close(weights.sum(-1), torch.ones(BATCH, HEADS, Q_LEN, dtype=torch.float64))
    assert not torch.equal(weights, weights_of(attention, *inputs))


@pytest.mark.parametrize("rate", [0.0, 0.25])
def test_the_dropout_rate_is_the_one_asked_for(rate):
    attention, inputs = make_attention(dropout=rate), make_inputs()
    assert [m.p for m in attention.modules() if isinstance(m, nn.Dropout)] == [rate] * (rate > 0)
    assert torch.equal(attention(*inputs), attention(*inputs)) == (rate == 0)


@pytest.mark.parametrize("path", PATHS)
def test_arguments_are_not_changed(path):
    attention, inputs, mask = make_attention(dropout=0.5), make_inputs(), make_mask("empty row")
    kept = [x.clone() for x in (*inputs, mask)]
    with PATHS[path](attention):
        attention(*inputs, mask, KVCache())
    assert all(torch.equal(a, b) for a, b in zip(kept, (*inputs, mask), strict=True))


def test_memory_layout_and_device_are_the_callers_choice():
    attention, inputs = make_attention(), make_inputs()
    strided = [x.transpose(0, 1).contiguous().transpose(0, 1) for x in inputs]
    assert not strided[0].is_contiguous()
    assert_close(attention(*strided), attention(*inputs))
    elsewhere = [x.to("meta") for x in inputs]
    assert attention.to("meta")(*elsewhere, make_mask("random").to("meta")).device.type == "meta"


def step_by_step(attention, x, mask, cuts, cache):
    """Outputs of x fed in pieces that end at `cuts`, each piece seeing its rows of the mask."""
    outputs = []
    for start, stop in itertools.pairwise([0, *cuts, x.shape[1]]):
        piece, rows = x[:, start:stop], None if mask is None else mask[:, start:stop, :stop]
        outputs.append(attention(piece, piece, piece, rows, cache))
        assert len(cache) == cache.length == cache.keys.shape[2] == cache.values.shape[2] == stop
    return torch.cat(outputs, dim=1)


@pytest.mark.parametrize("path", ["fused", "readable"])
@pytest.mark.parametrize("max_len", [None, 6, 9])
@pytest.mark.parametrize(
    "ids", [[[4, 5, 6, 7, 8, 9]] * 2, [[0, 0, 5, 6, 7, 8], [4, 5, 6, 7, 0, 0]]]
)
def test_every_split_through_the_cache_equals_the_full_call(ids, max_len, path):
    attention, x = make_attention(), torch.randn(2, 6, D_MODEL, dtype=torch.float64)
    mask = target_mask(torch.tensor(ids))
    full = attention(x, x, x, mask)
    assert not torch.allclose(full, attention(x, x, x))
    for cuts in (c for n in range(6) for c in itertools.combinations(range(1, 6), n)):
        with PATHS[path](attention):
            pieces = step_by_step(attention, x, mask, cuts, KVCache(max_len))
        assert_close(pieces, full, atol=1e-10, rtol=0)


def test_a_single_new_query_without_a_mask_sees_all_keys_so_far():
    attention, x = make_attention(), torch.randn(2, 100, D_MODEL, dtype=torch.float64)
    causal = attention(x, x, x, causal_mask(100))
    steps = step_by_step(attention, x, None, range(1, 100), KVCache())
    assert_close(steps, causal, atol=1e-10, rtol=0)
    cache = KVCache()
    attention(x[:, :99], x[:, :99], x[:, :99], causal_mask(99), cache)
    weights = weights_of(attention, *[x[:, 99:]] * 3, causal_mask(1, 100), cache)
    assert weights.shape == (2, HEADS, 1, 100)
    assert weights.gt(0).all()


@pytest.mark.parametrize(("max_len", "most_moves"), [(100, 0), (None, 3)])
def test_a_cache_keeps_everything_and_hardly_ever_moves(max_len, most_moves):
    cache, keys, values = KVCache(max_len), *torch.randn(2, BATCH, HEADS, 100, D_K)
    places = []
    for t in range(100):
        cache.append(keys[:, :, t : t + 1], values[:, :, t : t + 1])
        assert torch.equal(cache.keys, keys[:, :, : t + 1])
        assert torch.equal(cache.values, values[:, :, : t + 1])
        places.append((cache.keys.data_ptr(), cache.values.data_ptr()))
    moves = sum(before != after for before, after in itertools.pairwise(places))
    assert moves == 0 if max_len else 1 <= moves <= most_moves


def test_a_new_cache_starts_afresh_and_a_used_one_goes_on():
    attention, x = make_attention(), torch.randn(1, 4, D_MODEL, dtype=torch.float64)
    cache = KVCache()
    first = attention(x, x, x, None, cache)
    assert not torch.allclose(attention(x, x, x[:, [3, 2, 1, 0]], None, cache), first)
    assert torch.equal(attention(x, x, x, None, KVCache()), first)


def test_a_full_cache_refuses_more_and_stays_as_it_was():
    attention, x = make_attention(), torch.randn(1, 4, D_MODEL, dtype=torch.float64)
    cache = KVCache(max_len=5)
    attention(x, x, x, None, cache)
    kept = cache.keys.clone()
    with pytest.raises(ValueError, match="max_len=5 positions, 8 are needed"):
        attention(x, x, x, None, cache)
    assert len(cache) == 4
    assert torch.equal(cache.keys, kept)
    one = x[:, :1]
    attention(one, one, one, None, cache)  # the fifth fits
    assert len(cache) == 5


def test_a_fixed_cache_projects_the_memory_once():
    attention, (query, memory, _), mask = make_attention(), make_inputs(), make_mask("random")
    cache, projections = KVCache(fixed=True), []
    attention.w_k.register_forward_hook(lambda *_: projections.append(1))
    expected = attention(query, memory, memory, mask)
    for same in (memory, memory, memory.clone()):
        assert torch.equal(attention(query, same, same, mask, cache), expected)
        assert len(cache) == K_LEN
    assert len(projections) == 2  # one without the cache, one into it
    for other in (memory + 1, memory[:, 1:]):
        with pytest.raises(ValueError, match="not the memory that this cache was filled from"):
            attention(query, other, other, None, cache)


@pytest.mark.parametrize("max_len", [9, None])
@pytest.mark.parametrize("rows", [[1, 0], [1, 1], [0], [1, 0, 0, 1, 1], [0, 1]])
@torch.no_grad()
def test_a_selected_row_goes_on_as_if_it_had_always_stood_there(rows, max_len):
    attention, x = make_attention(), torch.randn(BATCH, 5, D_MODEL, dtype=torch.float64)
    rows, cache, last = torch.tensor(rows), KVCache(max_len), x[:, 4:]
    attention(x[:, :4], x[:, :4], x[:, :4], causal_mask(4), cache)
    kept = cache.keys, cache.values, cache.keys.clone(), cache.values.clone()
    cache.select(rows)
    assert torch.equal(cache.keys, kept[2][rows]) and torch.equal(cache.values, kept[3][rows])
    assert torch.equal(kept[0], kept[2]) and torch.equal(kept[1], kept[3])  # no other row is lost
    place = cache.keys.data_ptr()
    output = attention(last[rows], last[rows], last[rows], None, cache)
    assert_close(output, attention(x, x, x, causal_mask(5))[rows, 4:], rtol=0, atol=1e-10)
    assert len(cache) == 5 and cache.keys.data_ptr() == place  # the reserved room is still there
    if len(rows) == BATCH and rows.tolist() != [0, 1]:
        assert not torch.allclose(output, attention(x, x, x, causal_mask(5))[:, 4:])


@torch.no_grad()
def test_a_fixed_cache_selects_its_memory_too():
    attention, (query, memory, _) = make_attention(), make_inputs()
    cache, rows = KVCache(fixed=True), torch.tensor([1, 0, 1], dtype=torch.int32)
    expected = attention(query, memory, memory, None, cache)[rows]
    cache.select(rows)
    query, memory = query[rows], memory[rows]
    assert_close(attention(query, memory, memory, None, cache), expected)
    with pytest.raises(ValueError, match="not the memory that this cache was filled from"):
        attention(query, memory.flip(0) + 1, memory, None, cache)


X = torch.randn(BATCH, Q_LEN, D_MODEL, dtype=torch.float64)
KEYS = torch.randn(BATCH, HEADS, 4, D_K)


def filled_cache():
    cache = KVCache()
    cache.append(KEYS, KEYS)
    return cache


@pytest.mark.parametrize(
    ("keys", "values", "message"),
    [
        (KEYS[:1], KEYS[:1], "the cache holds batch 2, key has 1"),
        (KEYS[:, :1], KEYS[:, :1], "the cache holds heads 3, key has 1"),
        (KEYS[..., :2], KEYS[..., :2], "the cache holds width 4, key has 2"),
    ],
)
def test_a_cache_refuses_what_does_not_fit_behind_the_earlier_keys(keys, values, message):
    cache = filled_cache()
    with pytest.raises(ValueError, match=message):
        cache.append(keys, values)
    assert torch.equal(cache.keys, KEYS)


@pytest.mark.parametrize("values", [KEYS[:1], KEYS[:, :, :2], KEYS[..., :2]])
def test_a_cache_refuses_values_that_do_not_match_their_keys(values):
    cache = KVCache()
    with pytest.raises((ValueError, TypeError), match="values"):
        cache.append(KEYS, values)
    assert len(cache) == 0


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        (torch.tensor([0, 2]), ValueError, r"rows must lie in the batch of 2, got \[0, 2\]"),
        (torch.tensor([-1, 0]), ValueError, r"rows must lie in the batch of 2, got \[-1, 0\]"),
        (
            torch.tensor([0.0]),
            TypeError,
            "rows must hold int64 or int32 numbers, got torch.float32",
        ),
        (torch.tensor([True, False]), TypeError, "rows must hold .* got torch.bool"),
        (torch.tensor([[0, 1]]), ValueError, r"rows must have shape .* got \(1, 2\)"),
        (torch.tensor([], dtype=torch.int64), ValueError, r"rows must have shape .* got \(0,\)"),
        ([0, 1], TypeError, "rows"),
    ],
)
def test_a_cache_selects_nothing_but_its_rows(rows, error, message):
    cache = filled_cache()
    with pytest.raises(error, match=message):
        cache.select(rows)
    assert torch.equal(cache.keys, KEYS) and torch.equal(cache.values, KEYS)
    KVCache().select(torch.tensor([0, 1]))  # nothing is there yet, nothing has to move


def test_a_cache_cannot_serve_two_different_attentions():
    cache = KVCache()
    make_attention()(X, X, X, None, cache)
    with pytest.raises(ValueError, match="the cache holds heads 3, key has 2"):
        MultiHeadAttention(D_MODEL, 2).double()(X, X, X, None, cache)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: MultiHeadAttention(10, 3), ValueError, "d_model=10 .* num_heads=3"),
        (lambda: MultiHeadAttention(0, 3), ValueError, "d_model must be at least 1, got 0"),
        (lambda: MultiHeadAttention(12, -3), ValueError, "num_heads must be at least 1, got -3"),
        (lambda: MultiHeadAttention(12.0, 3), TypeError, "d_model"),
        (lambda: MultiHeadAttention(12, "3"), TypeError, "num_heads"),
        (lambda: MultiHeadAttention(12, 3, 1.0), ValueError, r"dropout .*\[0, 1\), got 1\.0"),
        (lambda: MultiHeadAttention(12, 3, -0.1), ValueError, r"dropout .*got -0\.1"),
        (lambda: MultiHeadAttention(12, 3, float("nan")), ValueError, "dropout .*got nan"),
        (lambda: MultiHeadAttention(12, 3, "0.1"), TypeError, "dropout"),
        (lambda: split_heads(X, 5), ValueError, "d_model=12 .* num_heads=5"),
        (lambda: split_heads(X, 0), ValueError, "num_heads must be at least 1, got 0"),
        (lambda: split_heads(X[0], 3), ValueError, r"x must have 3 axes, got shape \(5, 12\)"),
        (lambda: split_heads(X.int(), 3), TypeError, r"x must be a floating.*torch\.int32"),
        (lambda: merge_heads(X), ValueError, r"x must have 4 axes, got shape \(2, 5, 12\)"),
        (lambda: KVCache(0), ValueError, "max_len must be at least 1, got 0"),
        (lambda: KVCache(2.5), TypeError, "max_len"),
    ],
)
def test_impossible_sizes_are_refused_by_name(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((X.long(), X, X), TypeError, r"query must be a floating.*torch\.int64"),
        ((X, X, X > 0), TypeError, r"value must be a floating.*torch\.bool"),
        ((None, X, X), TypeError, "query"),
        ((X[0], X, X), ValueError, r"query must have 3 axes, got shape \(5, 12\)"),
        ((X, X[..., :8], X), ValueError, "key must have last axis 12, got 8"),
        ((X, X, X[:, :4]), ValueError, "key has length 5, value has 4"),
        ((X, X[:1], X[:1]), ValueError, "query has batch 2, key has 1"),
        ((X[:0], X[:0], X[:0]), ValueError, r"query must not be empty, got shape \(0, 5, 12\)"),
        ((X, X[:, :0], X[:, :0]), ValueError, r"key must not be empty, got shape \(2, 0, 12\)"),
        ((X, X, X, None, "cache"), TypeError, "cache"),
        ((X[:1], X[:1], X[:1], None, filled_cache()), ValueError, "cache holds batch 2, key has 1"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_by_name(arguments, error, message):
    with pytest.raises(error, match=message):
        make_attention()(*arguments)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8])
def test_only_boolean_masks_are_masks(dtype):
    with pytest.raises(TypeError, match=f"mask must be a bool tensor.*got {dtype}"):
        make_attention()(*make_inputs(), causal_mask(Q_LEN, K_LEN).to(dtype))


@pytest.mark.parametrize("cached", [0, 4])
@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((3, 5, 7), "mask has 3 in its batch axis, wanted 2 or 1"),
        ((6, 5, 7), "mask has 6 in its batch axis, wanted 2 or 1"),  # torch's batch · heads
        ((2, 7, 5), "mask has 7 in its q_len axis, wanted 5 or 1"),
        ((2, 5, 5), "mask has 5 in its k_len axis, wanted {k_len} "),
        ((2, 5, 1), "mask has 1 in its k_len axis, wanted {k_len} "),
        ((2, 2, 5, 7), "mask has 2 in its heads axis, wanted 3 or 1"),
        ((3, 2, 5, 7), "mask has 3 in its batch axis, wanted 2 or 1"),
        ((2, 3, 7, 5), "mask has 7 in its q_len axis, wanted 5 or 1"),
        ((5, 7), r"mask must have 3 axes .* or 4 with heads, got shape \(5, 7\)"),
        ((7,), r"got shape \(7,\)"),
        ((1, 2, 3, 5, 7), r"got shape \(1, 2, 3, 5, 7\)"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused_with_both_numbers(shape, message, cached):
    query, key, value = make_inputs()
    cache = KVCache() if cached else None
    if cached:  # the k_len of a mask counts the keys in the cache too
        make_attention()(query, key[:, :cached], value[:, :cached], None, cache)
    with pytest.raises(ValueError, match=message.format(k_len=K_LEN + cached)):
        make_attention()(query, key, value, torch.ones(shape, dtype=torch.bool), cache)
