"""The decoder against torch's; no look ahead, no look at pads, and a cache that changes nothing."""

from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch_weights import copy_weights

from tutorial_transformer.add_norm import LayerNorm
from tutorial_transformer.attention_maps import record_attention
from tutorial_transformer.decoder import Decoder, DecoderLayer, LayerCache
from tutorial_transformer.masks import causal_mask
from tutorial_transformer.multi_head import KVCache

BATCH, TGT_LEN, SRC_LEN, HEADS, D_MODEL, D_FF, LAYERS = 3, 4, 5, 2, 18, 7, 2
SIZES = (D_MODEL, HEADS, D_FF)
BUILD = {"layer": DecoderLayer, "stack": lambda *sizes: Decoder(LAYERS, *sizes)}
both_orders = pytest.mark.parametrize("norm_first", [False, True])
both_modes = pytest.mark.parametrize("train", [False, True])
both_kinds = pytest.mark.parametrize("kind", ["layer", "stack"])
both_ways = pytest.mark.parametrize("recorded", [False, True])


def build(kind="stack", norm_first=False, dropout=0.0):
    """A float64 module whose every parameter is random, so that a mix-up of two shows."""
    module = BUILD[kind](*SIZES, dropout, norm_first).double()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.4)
    return module


def build_torch(ours, kind, norm_first):
    """torch's module with our weights."""
    theirs = nn.TransformerDecoderLayer(
        D_MODEL, HEADS, D_FF, dropout=0.0, batch_first=True, norm_first=norm_first
    )
    if kind == "stack":
        theirs = nn.TransformerDecoder(
            theirs, LAYERS, nn.LayerNorm(D_MODEL) if norm_first else None
        )
    theirs = theirs.double()
    copy_weights(ours, theirs)
    return theirs


def run(model, recorded, *arguments):
    """One forward pass, through the fused kernel or the readable attention."""
    if not recorded:
        return model(*arguments)
    with record_attention(model):
        return model(*arguments)


def vectors(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def inputs():
    return vectors(BATCH, TGT_LEN, D_MODEL), vectors(BATCH, SRC_LEN, D_MODEL)


def visible(lengths, length):
    """(batch, 1, length): the first so many positions of each row are real."""
    return torch.arange(length) < torch.tensor(lengths)[:, None, None]


PADDED = visible([4, 2, 3], TGT_LEN) & causal_mask(TGT_LEN)
TGT_MASKS = {"none": None, "causal": causal_mask(TGT_LEN), "causal and padding": PADDED}
SRC_MASKS = {"none": None, "padding": visible([5, 2, 4], SRC_LEN)}


def for_torch(mask, k_len):
    """(batch * heads, tgt_len, k_len), True = hide."""
    if mask is None:
        return None
    return ~mask[:, None].expand(BATCH, HEADS, TGT_LEN, k_len).flatten(0, 1)


@both_kinds
@both_orders
@both_modes
@pytest.mark.parametrize("tgt", TGT_MASKS)
@pytest.mark.parametrize("src", SRC_MASKS)
def test_equals_torch_in_outputs_and_input_gradients(kind, norm_first, train, tgt, src):
    ours = build(kind, norm_first).train(train)
    theirs = build_torch(ours, kind, norm_first).train(train)
    x, memory = (v.requires_grad_() for v in inputs())
    tgt_mask, src_mask, seed = TGT_MASKS[tgt], SRC_MASKS[src], vectors(BATCH, TGT_LEN, D_MODEL)
    output = ours(x, memory, tgt_mask, src_mask)
    hide = {"tgt_mask": for_torch(tgt_mask, TGT_LEN), "memory_mask": for_torch(src_mask, SRC_LEN)}
    expected = theirs(x, memory, **hide)
    assert_close(output, expected)
    ours_grads = torch.autograd.grad(output, [x, memory], seed)
    assert_close(ours_grads, torch.autograd.grad(expected, [x, memory], seed))
    assert torch.allclose(output, ours(x, memory)) == (tgt == src == "none")  # masks are used


@both_kinds
@both_orders
@both_modes
@both_ways
@pytest.mark.parametrize("tgt", ["causal", "causal and padding"])
def test_the_future_cannot_leak_into_the_past(kind, norm_first, train, recorded, tgt):
    model, (x, memory) = build(kind, norm_first).train(train), inputs()
    masks = (TGT_MASKS[tgt], SRC_MASKS["padding"])
    before = run(model, recorded, x, memory, *masks)
    for t in range(TGT_LEN - 1):
        changed = x.clone()
        changed[:, t + 1 :] = vectors(BATCH, TGT_LEN - t - 1, D_MODEL)
        after = run(model, recorded, changed, memory, *masks)
        assert torch.equal(after[:, : t + 1], before[:, : t + 1])
        assert not torch.allclose(after[:, t + 1 :], before[:, t + 1 :])
    assert not torch.allclose(model(changed, memory)[:, :-1], model(x, memory)[:, :-1])


@both_kinds
@both_orders
@both_modes
@both_ways
def test_no_gradient_flows_from_the_past_to_the_future(kind, norm_first, train, recorded):
    model, (x, memory) = build(kind, norm_first).train(train), inputs()
    x.requires_grad_()
    output = run(model, recorded, x, memory, causal_mask(TGT_LEN))
    for t in range(TGT_LEN):
        (grad,) = torch.autograd.grad(output[:, t].sum(), x, retain_graph=True)
        reached = grad.abs().amax(-1) > 0
        assert reached[:, : t + 1].all() and not reached[:, t + 1 :].any()


@both_kinds
@both_modes
@both_ways
def test_pads_change_nothing_in_target_or_source(kind, train, recorded):
    model, (x, memory) = build(kind).train(train), inputs()
    tgt_real, src_real = visible([4, 2, 3], TGT_LEN)[:, 0], visible([5, 2, 4], SRC_LEN)[:, 0]
    masks = (PADDED, SRC_MASKS["padding"])
    before = run(model, recorded, x, memory, *masks)
    noisy_x = torch.where(tgt_real[..., None], x, vectors(*x.shape))
    noisy_memory = torch.where(src_real[..., None], memory, vectors(*memory.shape))
    after = run(model, recorded, noisy_x, noisy_memory, *masks)
    assert torch.equal(after[tgt_real], before[tgt_real])
    assert not torch.allclose(after[~tgt_real], before[~tgt_real])
    assert not torch.allclose(model(x, noisy_memory)[tgt_real], model(x, memory)[tgt_real])


@both_kinds
@both_orders
@pytest.mark.parametrize("side, pads", [("right", 0), ("left", 1), ("right", 7), ("left", 7)])
def test_the_number_of_pads_changes_no_real_vector_and_no_gradient(kind, norm_first, side, pads):
    model = build(kind, norm_first)
    x, memory, seed = vectors(1, TGT_LEN, D_MODEL), vectors(1, SRC_LEN, D_MODEL), vectors(1, 1, 18)

    def pad(v, mate):
        """Beside a longer batch mate: the padded row, the mate, and who is real in both."""
        row = [v, vectors(1, pads, D_MODEL)]
        real = [torch.ones(1, 1, v.shape[1]) > 0, torch.zeros(1, 1, pads) > 0]
        order = -1 if side == "left" else 1
        row, real = torch.cat(row[::order], 1), torch.cat(real[::order], 2)
        return torch.cat([row, mate]), torch.cat([real, torch.ones_like(real)])

    def outcome(x, memory, tgt_real, src_real, where):
        tgt_mask = tgt_real & causal_mask(x.shape[1])
        output = model(x, memory, tgt_mask, src_real)[:1, where]
        return output, torch.autograd.grad(output, model.parameters(), seed.expand_as(output))

    real = [torch.ones(1, 1, length) > 0 for length in (TGT_LEN, SRC_LEN)]
    alone = outcome(x, memory, *real, slice(None))
    padded_x, tgt_real = pad(x, vectors(1, TGT_LEN + pads, D_MODEL))
    padded_memory, src_real = pad(memory, vectors(1, SRC_LEN + pads, D_MODEL))
    where = slice(-TGT_LEN, None) if side == "left" else slice(TGT_LEN)
    padded = outcome(padded_x, padded_memory, tgt_real, src_real, where)
    assert_close(padded, alone, rtol=0, atol=1e-12)
    if pads:
        careless = outcome(padded_x, padded_memory, tgt_real, torch.ones_like(src_real), where)
        assert not torch.allclose(careless[0], alone[0])


def test_cross_attention_looks_at_real_source_positions_only():
    model, (x, memory) = build("stack"), inputs()
    with record_attention(model) as maps:
        model(x, memory, causal_mask(TGT_LEN), SRC_MASKS["padding"])
    for layer in range(LAYERS):
        weights = maps[f"{layer}.cross_attn"]
        assert weights.shape == (BATCH, HEADS, TGT_LEN, SRC_LEN)
        hidden = ~SRC_MASKS["padding"][:, None].expand_as(weights)
        assert (weights[hidden] == 0).all() and (weights[~hidden] > 0).all()
        assert (maps[f"{layer}.self_attn"].triu(1) == 0).all()


@both_kinds
@both_orders
@both_ways
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_rows_that_see_nothing_are_finite_and_harm_no_other(kind, norm_first, recorded, dtype):
    model = build(kind, norm_first).to(dtype)
    x, memory = (v.to(dtype).requires_grad_() for v in inputs())
    blind_tgt, blind_src = PADDED.clone(), SRC_MASKS["padding"].clone()
    blind_tgt[1], blind_src[2] = False, False
    before = run(model, recorded, x, memory, PADDED, SRC_MASKS["padding"])
    after = run(model, recorded, x, memory, blind_tgt, blind_src)
    assert after.isfinite().all()
    assert torch.equal(after[0], before[0])
    assert not torch.equal(after[1], before[1]) and not torch.equal(after[2], before[2])
    grads = torch.autograd.grad(after.sum(), [x, memory, *model.parameters()])
    assert all(grad.isfinite().all() for grad in grads)


@both_orders
@both_ways
@pytest.mark.parametrize("with_memory, max_len", [(False, None), (True, TGT_LEN)])
@pytest.mark.parametrize("split", [(4,), (1, 3), (2, 1, 1), (1, 1, 1, 1)])
def test_a_cache_changes_nothing(norm_first, recorded, with_memory, max_len, split):
    model, (x, memory) = build("stack", norm_first), inputs()
    full = model(x, memory, PADDED, SRC_MASKS["padding"])
    cache = model.new_cache(memory if with_memory else None, max_len)
    assert [len(c.cross_attn) for c in cache] == [SRC_LEN * with_memory] * LAYERS
    edges = [sum(split[:i]) for i in range(len(split) + 1)]
    pieces = []
    with torch.no_grad():
        for start, stop in pairwise(edges):
            tgt_mask = PADDED[:, start:stop, :stop]
            masks = (tgt_mask, SRC_MASKS["padding"], cache)
            pieces.append(run(model, recorded, x[:, start:stop], memory, *masks))
            lengths = [(len(c.self_attn), len(c.cross_attn)) for c in cache]
            assert lengths == [(stop, SRC_LEN)] * LAYERS
        assert_close(torch.cat(pieces, 1), full, rtol=0, atol=1e-10)
        assert not torch.allclose(model(x[:, -1:], memory), full[:, -1:])  # the past is needed


def test_one_layer_works_with_a_cache_of_its_own():
    layer, (x, memory) = build("layer"), inputs()
    cache = LayerCache(KVCache(), KVCache(fixed=True))
    with torch.no_grad():
        pieces = [layer(x[:, t : t + 1], memory, cache=cache) for t in range(TGT_LEN)]
    assert_close(torch.cat(pieces, 1), layer(x, memory, causal_mask(TGT_LEN)))


@both_kinds
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_dropout_follows_each_sublayer_and_only_in_train_mode(kind, dropout):
    model, (x, memory) = build(kind, dropout=dropout), inputs()
    rates = [m.p for m in model.modules() if isinstance(m, nn.Dropout)]
    assert rates == [dropout] * 3 * (LAYERS if kind == "stack" else 1)
    calm = model.eval()(x, memory)
    assert torch.equal(model(x, memory), calm)
    assert torch.equal(model.train()(x, memory), calm) == (dropout == 0)
    assert torch.equal(model(x, memory), model(x, memory)) == (dropout == 0)


@both_orders
def test_layers_start_different_and_share_nothing(norm_first):
    stack = Decoder(3, *SIZES, norm_first=norm_first)
    states = [layer.state_dict() for layer in stack.layers]
    for name, first in states[0].items():
        for other in states[1:]:
            assert torch.equal(first, other[name]) == (".norm." in name)  # norms start at 1 and 0
    for name, value in stack.layers[0].self_attn.state_dict().items():
        assert not torch.equal(value, stack.layers[0].cross_attn.state_dict()[name])
    storages = [p.data_ptr() for p in stack.parameters()]
    assert len(set(storages)) == len(storages)
    norms = [m for m in stack.modules() if isinstance(m, LayerNorm)]
    assert len(norms) == 3 * 3 + norm_first


@both_orders
def test_every_parameter_is_needed(norm_first):
    model, (x, memory) = build("stack", norm_first), inputs()
    (model(x, memory, PADDED) * vectors(*x.shape)).sum().backward()
    for name, parameter in model.named_parameters():
        size = parameter.grad.abs().max()
        # A key bias adds the same to all scores of a query, and softmax does not notice.
        assert size < 1e-10 if name.endswith("w_k.bias") else size > 1e-6, name


@both_orders
def test_parameters_are_counted_in_closed_form(norm_first):
    with torch.device("meta"):
        layer = DecoderLayer(512, 8, 2048, norm_first=norm_first)
        stacks = [Decoder(n, 512, 8, 2048, norm_first=norm_first) for n in (1, 6)]
    attention, feed_forward = 4 * (512 * 512 + 512), 512 * 2048 + 2048 + 2048 * 512 + 512
    counts = [sum(p.numel() for p in module.parameters()) for module in (layer, *stacks)]
    assert counts[0] == 2 * attention + feed_forward + 3 * 2 * 512 == 4_204_032
    assert counts[1:] == [n * 4_204_032 + 1024 * norm_first for n in (1, 6)]


@both_kinds
@pytest.mark.parametrize(
    "x, memory, tgt_mask, src_mask, message",
    [
        ((3, 4, 17), (3, 5, 18), None, None, r"x must have last axis 18, got 17"),
        ((4, 18), (3, 5, 18), None, None, r"x must have 3 axes, got shape \(4, 18\)"),
        ((0, 4, 18), (0, 5, 18), None, None, r"x must not be empty, got shape \(0, 4, 18\)"),
        ((3, 4, 18), (3, 5, 17), None, None, r"memory must have last axis 18, got 17"),
        ((3, 4, 18), (5, 18), None, None, r"memory must have 3 axes, got shape \(5, 18\)"),
        ((3, 4, 18), (3, 0, 18), None, None, r"memory must not be empty, got shape \(3, 0, 18\)"),
        ((3, 4, 18), (2, 5, 18), None, None, "x has batch 3, memory has batch 2"),
        ((3, 4, 18), (3, 5, 18), (2, 4, 4), None, "mask has 2 in its batch axis, wanted 3"),
        ((3, 4, 18), (3, 5, 18), (1, 4, 5), None, "mask has 5 in its k_len axis, wanted 4"),
        ((3, 4, 18), (3, 5, 18), None, (3, 1, 4), "mask has 4 in its k_len axis, wanted 5"),
        ((3, 4, 18), (3, 5, 18), None, (3, 5, 4), "mask has 5 in its q_len axis, wanted 4"),
    ],
)
def test_vectors_and_masks_that_do_not_fit_are_refused(
    kind, x, memory, tgt_mask, src_mask, message
):
    masks = [m if m is None else torch.ones(m, dtype=torch.bool) for m in (tgt_mask, src_mask)]
    with pytest.raises(ValueError, match=message):
        build(kind)(vectors(*x), vectors(*memory), *masks)


@both_kinds
def test_what_is_no_vector_or_no_bool_mask_is_refused(kind):
    model, (x, memory) = build(kind), inputs()
    for arguments, name in [
        ((x.long(), memory), "x must be a floating-point"),
        ((x, memory.long()), "memory must be a floating-point"),
        ((x, None), "memory"),
        ((x, memory, torch.ones(1, TGT_LEN, TGT_LEN)), "mask"),
        ((x, memory, None, torch.ones(BATCH, 1, SRC_LEN).long()), "mask"),
    ]:
        with pytest.raises(TypeError, match=name):
            model(*arguments)


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"num_layers": 0}, ValueError, "num_layers must be at least 1, got 0"),
        ({"num_layers": 1.5}, TypeError, "num_layers"),
        ({"num_heads": 4}, ValueError, "d_model=18 must be divisible by num_heads=4"),
        ({"d_ff": 0}, ValueError, "d_ff must be at least 1, got 0"),
        ({"dropout": 1.0}, ValueError, r"dropout must lie in \[0, 1\), got 1.0"),
    ],
)
def test_bad_arguments_are_refused(arguments, error, message):
    sizes = {"num_layers": 2, "d_model": D_MODEL, "num_heads": HEADS, "d_ff": D_FF}
    with pytest.raises(error, match=message):
        Decoder(**sizes | arguments)


def test_a_cache_of_another_decoder_or_memory_is_refused():
    model, (x, memory) = build("stack"), inputs()
    with pytest.raises(ValueError, match="cache has 1 layers, the decoder has 2"):
        model(x, memory, cache=Decoder(1, *SIZES).double().new_cache(None, None))
    with pytest.raises(ValueError, match="memory"):
        model(x, memory, cache=model.new_cache(memory + 1, None))
    with pytest.raises(ValueError, match=r"max_len=3 positions, 4 are needed"):
        model(x, memory, cache=model.new_cache(memory, 3))
