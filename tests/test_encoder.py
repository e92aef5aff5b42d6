"""The encoder against torch's, and by what it must not notice: pads, order, batch mates."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch_weights import copy_weights

from tutorial_transformer.add_norm import LayerNorm
from tutorial_transformer.attention_maps import record_attention
from tutorial_transformer.encoder import Encoder, EncoderLayer
from tutorial_transformer.masks import causal_mask

BATCH, LENGTH, HEADS, D_MODEL, D_FF, LAYERS = 3, 5, 2, 18, 7, 2
SIZES = (D_MODEL, HEADS, D_FF)
BUILD = {"layer": EncoderLayer, "stack": lambda *sizes: Encoder(LAYERS, *sizes)}
both_orders = pytest.mark.parametrize("norm_first", [False, True])
both_modes = pytest.mark.parametrize("train", [False, True])
both_kinds = pytest.mark.parametrize("kind", ["layer", "stack"])


def build(kind="stack", norm_first=False, dropout=0.0):
    """A float64 module whose every parameter is random, so that a mix-up of two shows."""
    module = BUILD[kind](*SIZES, dropout, norm_first).double()
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.4)
    return module


def build_torch(ours, kind, norm_first):
    """torch's module with our weights."""
    theirs = nn.TransformerEncoderLayer(
        D_MODEL, HEADS, D_FF, dropout=0.0, batch_first=True, norm_first=norm_first
    )
    if kind == "stack":
        norm = nn.LayerNorm(D_MODEL) if norm_first else None
        theirs = nn.TransformerEncoder(theirs, LAYERS, norm, enable_nested_tensor=False)
    theirs = theirs.double()
    copy_weights(ours, theirs)
    return theirs


def vectors(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def some_mask(shape):
    """A mask that hides about half, but leaves every query its first key."""
    mask = torch.rand(shape) < 0.5
    mask[..., 0] = True
    return mask


MASKS = {
    "none": lambda: None,
    "padding": lambda: torch.arange(LENGTH) < torch.tensor([5, 2, 4])[:, None, None],
    "shared": lambda: causal_mask(LENGTH),
    "per row": lambda: some_mask((BATCH, LENGTH, LENGTH)),
    "per head": lambda: some_mask((BATCH, HEADS, LENGTH, LENGTH)),
}


def for_torch(mask):
    """(batch * heads, q_len, k_len), True = hide."""
    if mask is None:
        return None
    mask = mask if mask.ndim == 4 else mask[:, None]
    return ~mask.expand(BATCH, HEADS, LENGTH, LENGTH).flatten(0, 1)


@both_kinds
@both_orders
@both_modes
@pytest.mark.parametrize("mask_name", MASKS)
def test_equals_torch_in_outputs_and_input_gradients(kind, norm_first, train, mask_name):
    ours = build(kind, norm_first).train(train)
    theirs = build_torch(ours, kind, norm_first).train(train)
    x, mask, seed = vectors(BATCH, LENGTH, D_MODEL), MASKS[mask_name](), vectors(1, 1, D_MODEL)
    x.requires_grad_()
    output, expected = ours(x, mask), theirs(x, for_torch(mask))
    assert_close(output, expected)
    seed = seed.expand_as(x)
    grads = [torch.autograd.grad(out, x, seed)[0] for out in (output, expected)]
    assert_close(*grads)
    if mask is not None:
        assert not torch.allclose(output, ours(x))  # the mask is used


@both_kinds
@both_orders
@both_modes
@pytest.mark.parametrize("side, pads", [("right", 0), ("left", 1), ("right", 7), ("left", 7)])
def test_padding_changes_no_real_vector_and_no_gradient(kind, norm_first, train, side, pads):
    model = build(kind, norm_first).train(train)
    x, mate, seed = vectors(1, LENGTH, D_MODEL), vectors(1, 12, D_MODEL), vectors(LENGTH, D_MODEL)

    def run(noise, extra=0, mask_on=True):
        """The real row padded, beside a longer row if extra; real outputs and all gradients."""
        real = torch.ones(1, LENGTH, dtype=torch.bool)
        row, hidden = [x, noise], [real, torch.zeros(1, noise.shape[1], dtype=torch.bool)]
        order = -1 if side == "left" else 1
        row, mask = torch.cat(row[::order], 1), torch.cat(hidden[::order], 1)
        if extra:
            row = torch.cat([row, mate[:, : row.shape[1]]])
            mask = torch.cat([mask, torch.ones_like(mask)])
        where = slice(-LENGTH, None) if side == "left" else slice(LENGTH)
        output = model(row, mask[:, None] if mask_on else None)[0, where]
        return output, torch.autograd.grad(output, model.parameters(), seed)

    alone = run(vectors(1, 0, D_MODEL))
    noise, other = vectors(1, pads, D_MODEL), vectors(1, pads, D_MODEL)
    padded = run(noise)
    assert_close(padded, alone, rtol=0, atol=1e-12)
    assert_close(run(noise, extra=1), alone, rtol=0, atol=1e-12)
    changed = run(other)
    assert torch.equal(changed[0], padded[0])
    assert all(map(torch.equal, changed[1], padded[1]))
    assert torch.equal(run(noise, mask_on=False)[0], run(other, mask_on=False)[0]) == (pads == 0)


@both_kinds
@both_modes
@pytest.mark.parametrize("recorded", [False, True])
def test_under_a_causal_mask_the_future_cannot_leak_into_the_past(kind, train, recorded):
    model, x = build(kind).train(train), vectors(BATCH, LENGTH, D_MODEL)

    def run(x, mask):
        if not recorded:
            return model(x, mask)
        with record_attention(model):
            return model(x, mask)

    before = run(x, causal_mask(LENGTH))
    for t in range(LENGTH - 1):
        changed = x.clone()
        changed[:, t + 1 :] = vectors(BATCH, LENGTH - t - 1, D_MODEL)
        after = run(changed, causal_mask(LENGTH))
        assert torch.equal(after[:, : t + 1], before[:, : t + 1])
        assert not torch.allclose(after[:, t + 1 :], before[:, t + 1 :])
    assert not torch.allclose(run(changed, None)[:, :-1], run(x, None)[:, :-1])


@both_kinds
def test_without_positions_order_and_batch_mates_do_not_matter(kind):
    model, x = build(kind), vectors(BATCH, LENGTH, D_MODEL)
    output, order = model(x), torch.tensor([3, 0, 4, 2, 1])
    assert_close(model(x[:, order]), output[:, order])
    assert_close(model(x[[2, 0, 1]]), output[[2, 0, 1]])
    assert_close(model(x[1:2]), output[1:2])
    assert not torch.allclose(model(x[:, order]), output)  # a vector goes where its position goes


@both_kinds
@both_orders
@both_modes
@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_row_that_sees_nothing_is_finite_and_harms_no_other(
    kind, norm_first, train, recorded, dtype
):
    model = build(kind, norm_first).to(dtype).train(train)
    x = vectors(BATCH, LENGTH, D_MODEL).to(dtype).requires_grad_()
    seeing = MASKS["padding"]()
    blind = seeing.clone()
    blind[1] = False
    outputs = {}
    for name, mask in {"seeing": seeing, "blind": blind}.items():
        if recorded:
            with record_attention(model) as maps:
                outputs[name] = model(x, mask)
            sums = torch.stack([weights.sum(-1) for weights in maps.values()])
            assert (sums[:, 1] == 0).all() == (name == "blind")
        else:
            outputs[name] = model(x, mask)
    assert outputs["blind"].isfinite().all()
    assert torch.equal(outputs["blind"][[0, 2]], outputs["seeing"][[0, 2]])
    assert not torch.equal(outputs["blind"][1], outputs["seeing"][1])
    grads = torch.autograd.grad(outputs["blind"].sum(), [x, *model.parameters()])
    assert all(grad.isfinite().all() for grad in grads)


@both_kinds
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_dropout_follows_each_sublayer_and_only_in_train_mode(kind, dropout):
    model, x = build(kind, dropout=dropout), vectors(BATCH, LENGTH, D_MODEL)
    rates = [m.p for m in model.modules() if isinstance(m, nn.Dropout)]
    assert rates == [dropout] * 2 * (LAYERS if kind == "stack" else 1)
    assert torch.equal(model.eval()(x), model(x))
    calm = model(x)
    assert torch.equal(model.train()(x), calm) == (dropout == 0)
    assert torch.equal(model(x), model(x)) == (dropout == 0)


@both_orders
def test_layers_start_different_and_share_nothing(norm_first):
    stack = Encoder(3, *SIZES, norm_first=norm_first)
    states = [layer.state_dict() for layer in stack.layers]
    for name, first in states[0].items():
        for other in states[1:]:
            assert torch.equal(first, other[name]) == (".norm." in name)  # norms start at 1 and 0
    storages = [p.data_ptr() for p in stack.parameters()]
    assert len(set(storages)) == len(storages)
    assert len({id(m) for m in stack.modules()}) == len(list(stack.modules()))
    norms = [m for m in stack.modules() if isinstance(m, LayerNorm)]
    assert len(norms) == 2 * 3 + norm_first


@both_orders
def test_every_parameter_is_needed(norm_first):
    model = build("stack", norm_first)
    (model(vectors(BATCH, LENGTH, D_MODEL)) * vectors(BATCH, LENGTH, D_MODEL)).sum().backward()
    for name, parameter in model.named_parameters():
        size = parameter.grad.abs().max()
        # A key bias adds the same to all scores of a query, and softmax does not notice.
        assert size < 1e-10 if name.endswith("w_k.bias") else size > 1e-6, name


@both_orders
def test_parameters_are_counted_in_closed_form(norm_first):
    def count(module):
        return sum(p.numel() for p in module.parameters())

    with torch.device("meta"):
        layer = EncoderLayer(512, 8, 2048, norm_first=norm_first)
        stacks = [Encoder(n, 512, 8, 2048, norm_first=norm_first) for n in (1, 6)]
    attention, feed_forward = 4 * (512 * 512 + 512), 512 * 2048 + 2048 + 2048 * 512 + 512
    assert count(layer) == attention + feed_forward + 2 * 2 * 512 == 3_152_384
    assert [count(s) for s in stacks] == [n * 3_152_384 + 1024 * norm_first for n in (1, 6)]


@pytest.mark.parametrize("module", [Encoder, EncoderLayer])
@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"num_heads": 4}, ValueError, "d_model=18 must be divisible by num_heads=4"),
        ({"num_heads": 0}, ValueError, "num_heads must be at least 1, got 0"),
        ({"d_ff": 0}, ValueError, "d_ff must be at least 1, got 0"),
        ({"d_model": 18.0}, TypeError, "d_model"),
        ({"dropout": 1.0}, ValueError, r"dropout must lie in \[0, 1\), got 1.0"),
    ],
)
def test_bad_arguments_are_refused(module, arguments, error, message):
    layers = {"num_layers": 2} if module is Encoder else {}
    with pytest.raises(error, match=message):
        module(**layers | {"d_model": D_MODEL, "num_heads": HEADS, "d_ff": D_FF} | arguments)


@pytest.mark.parametrize("num_layers, error", [(0, ValueError), (-1, ValueError), (1.5, TypeError)])
def test_a_stack_has_at_least_one_layer(num_layers, error):
    with pytest.raises(error, match="num_layers"):
        Encoder(num_layers, *SIZES)


@both_kinds
@pytest.mark.parametrize(
    "x, mask, error, message",
    [
        ((3, 5, 17), None, ValueError, r"x must have last axis 18, got 17: \(3, 5, 17\)"),
        ((5, 18), None, ValueError, r"x must have 3 axes, got shape \(5, 18\)"),
        ((0, 5, 18), None, ValueError, r"x must not be empty, got shape \(0, 5, 18\)"),
        ((3, 0, 18), None, ValueError, r"x must not be empty, got shape \(3, 0, 18\)"),
        ((3, 5, 18), (2, 1, 5), ValueError, "mask has 2 in its batch axis, wanted 3"),
        ((3, 5, 18), (3, 5, 1), ValueError, "mask has 1 in its k_len axis, wanted 5"),
        ((3, 5, 18), (3, 4, 5), ValueError, "mask has 4 in its q_len axis, wanted 5"),
    ],
)
def test_vectors_and_masks_that_do_not_fit_are_refused(kind, x, mask, error, message):
    mask = None if mask is None else torch.ones(mask, dtype=torch.bool)
    with pytest.raises(error, match=message):
        build(kind)(vectors(*x), mask)


@both_kinds
def test_what_is_no_vector_or_no_bool_mask_is_refused(kind):
    model, x = build(kind), vectors(BATCH, LENGTH, D_MODEL)
    with pytest.raises(TypeError, match="mask"):
        model(x, torch.ones(BATCH, 1, LENGTH))
    with pytest.raises(TypeError, match="x must be a floating-point tensor"):
        model(x.long())
    with pytest.raises(TypeError, match="x"):
        model([[1.0]])
