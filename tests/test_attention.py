"""Attention: against a slow loop, against torch's function, and against algebra."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing import assert_close

from tutorial_transformer.attention import (
    attention_scores,
    masked_softmax,
    scaled_dot_product_attention,
)
from tutorial_transformer.masks import causal_mask

BATCH, HEADS, Q_LEN, K_LEN, D_K, D_V = 2, 3, 5, 7, 8, 4  # all different: no swapped axis can hide
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.05, torch.float16: 0.01}
KINDS = ["none", "random", "for all queries", "causal", "two axes"]
EMPTY_KINDS = ["empty row", "empty batch row", "per head", "all hidden"]


def make_mask(kind):
    """A mask that fits scores of shape (BATCH, HEADS, Q_LEN, K_LEN), or None."""
    random = torch.rand(BATCH, 1, Q_LEN, K_LEN) < 0.6
    random[..., 3] = True
    empty_row, empty_batch_row = random.clone(), random.clone()
    per_head = random.repeat(1, HEADS, 1, 1)
    empty_row[1, 0, 2] = empty_batch_row[0] = per_head[1, 2] = per_head[0, 0, 4] = False
    return {
        "none": None,
        "random": random,
        "for all queries": random[:1, :, :1],
        "causal": causal_mask(Q_LEN, K_LEN),
        "two axes": random[1, 0],
        "empty row": empty_row,
        "empty batch row": empty_batch_row,
        "per head": per_head,
        "all hidden": torch.zeros(1, 1, 1, K_LEN, dtype=torch.bool),
    }[kind]


def make_inputs(dtype=torch.float64, d_v=D_V, grad=False):
    shapes = (Q_LEN, D_K), (K_LEN, D_K), (K_LEN, d_v)
    return [torch.randn(BATCH, HEADS, *s, dtype=dtype, requires_grad=grad) for s in shapes]


def written_out(mask):
    mask = torch.ones(1, dtype=torch.bool) if mask is None else mask
    return mask.expand(BATCH, HEADS, Q_LEN, K_LEN)


def assert_same(these, those):
    assert all(torch.equal(a, b) for a, b in zip(these, those, strict=True))


def attention_spec(query, key, value, mask):
    """The definition, one query and one key at a time. Slow, and hard to get wrong."""
    output = torch.zeros(BATCH, HEADS, Q_LEN, D_V, dtype=query.dtype)
    weights = torch.zeros(BATCH, HEADS, Q_LEN, K_LEN, dtype=query.dtype)
    for b, h, i in itertools.product(range(BATCH), range(HEADS), range(Q_LEN)):
        visible = [j for j in range(K_LEN) if mask[b, h, i, j]]
        exps = [math.exp(query[b, h, i] @ key[b, h, j] / math.sqrt(D_K)) for j in visible]
        for e, j in zip(exps, visible, strict=True):
            weights[b, h, i, j] = e / sum(exps)
            output[b, h, i] += e / sum(exps) * value[b, h, j]
    return output, weights


@pytest.mark.parametrize("kind", KINDS + EMPTY_KINDS)
def test_attention_is_its_definition(kind):
    inputs, mask = make_inputs(), make_mask(kind)
    expected = attention_spec(*inputs, written_out(mask))
    assert_close(scaled_dot_product_attention(*inputs, mask), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
@pytest.mark.parametrize("kind", KINDS + EMPTY_KINDS)
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_output_and_gradients_are_those_of_torch_in_every_dtype(dtype, kind, backend):
    inputs, mask, tolerance = make_inputs(dtype, D_K, True), make_mask(kind), TOLERANCE[dtype]
    ours, weights = scaled_dot_product_attention(*inputs, mask)
    visible = written_out(mask)
    with sdpa_kernel(backend):
        theirs = F.scaled_dot_product_attention(*inputs, None if mask is None else visible)
    direction = torch.randn_like(ours)
    for our, their in zip(
        (ours, *torch.autograd.grad(ours, inputs, direction)),
        (theirs, *torch.autograd.grad(theirs, inputs, direction)),
        strict=True,
    ):
        assert our.dtype == dtype
        assert our.isfinite().all()
        assert_close(our, their, atol=tolerance, rtol=tolerance)
    assert weights[~visible].eq(0).all()
    assert ours[~visible.any(-1)].eq(0).all()
    row_sums = weights.sum(-1, dtype=torch.float64)
    assert_close(row_sums, visible.any(-1).double(), atol=tolerance, rtol=0)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_an_empty_row_leaves_the_other_rows_alone(dtype):
    inputs, mask = make_inputs(dtype, grad=True), make_mask("random")
    emptied = mask.clone()
    emptied[1, 0, 2] = False
    before, after = (scaled_dot_product_attention(*inputs, m)[0] for m in (mask, emptied))
    changed = (before != after).any(-1)
    assert changed[1, :, 2].all()
    assert changed.sum() == HEADS
    direction = torch.randn_like(before)
    direction[1, :, 2] = 0  # a loss that does not look at the empty row
    grads = (torch.autograd.grad(output, inputs, direction) for output in (before, after))
    assert_same(*grads)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_no_step_of_the_backward_pass_makes_a_nan(dtype):
    with torch.autograd.set_detect_anomaly(True):
        inputs, mask = make_inputs(dtype, grad=True), make_mask("empty row")
        scaled_dot_product_attention(*inputs, mask)[0].sum().backward()
        with pytest.raises(RuntimeError, match="returned nan"):  # what -inf would do
            filled = attention_scores(*inputs[:2]).masked_fill(~mask, -torch.inf)
            filled.softmax(-1).masked_fill(~mask, 0.0).sum().backward()


@pytest.mark.parametrize("d_k", [4, 64, 512])
def test_scores_of_random_vectors_have_spread_1_at_any_width(d_k):
    query, key = torch.randn(300, d_k), torch.randn(200, d_k)
    assert attention_scores(query, key).std().item() == pytest.approx(1, abs=0.05)


def test_half_precision_scores_do_not_overflow_before_they_are_scaled():
    ones = torch.full((2, 64), 64.0, dtype=torch.float16)  # 64 · 64 · 64 > 65504
    assert attention_scores(ones, ones).eq(64 * 64 * 64 / 8).all()


def test_rows_sum_to_1_not_columns():
    assert_close(masked_softmax(torch.zeros(2, 3)), torch.full((2, 3), 1 / 3))
    weights = masked_softmax(torch.randn(2, 5, 7))
    assert_close(weights.sum(-1), torch.ones(2, 5))
    assert not torch.allclose(weights.sum(-2), torch.ones(2, 7))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("low", [-2e4, -6e4, -1e9, -1e30])
def test_the_only_visible_key_wins_however_low_its_score(low, dtype):
    low = max(low, torch.finfo(dtype).min / 2)
    scores = torch.tensor([[low, 0.0, 6e4], [low, low, 6e4]], dtype=dtype)
    mask = torch.tensor([[True, False, False], [True, True, False]])
    assert masked_softmax(scores, mask).tolist() == [[1, 0, 0], [0.5, 0.5, 0]]
    assert masked_softmax(scores).tolist() == [[0, 0, 1], [0, 0, 1]]


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    leading=st.lists(st.integers(1, 3), max_size=3),
    q_len=st.integers(1, 4),
    k_len=st.integers(1, 4),
    data=st.data(),
)
def test_any_mask_that_broadcasts_means_the_same_as_written_out(leading, q_len, k_len, data):
    shape = (*leading, q_len, k_len)
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    scores = torch.randn(shape, generator=generator)
    mask_shape = [data.draw(st.sampled_from([1, n])) for n in shape[:-1]] + [k_len]
    if all(n == 1 for n in mask_shape[:-2]) and data.draw(st.booleans()):
        mask_shape = mask_shape[-2:]
    mask = torch.rand(mask_shape, generator=generator) < 0.6
    weights = masked_softmax(scores, mask)
    expected = torch.zeros(shape)
    for row, visible, out in zip(
        scores.view(-1, k_len),
        mask.expand(shape).reshape(-1, k_len),
        expected.view(-1, k_len),
        strict=True,
    ):
        out[visible] = row[visible].softmax(-1)
    assert_close(weights, expected)


@pytest.mark.parametrize("leading", [(), (2,), (2, 3), (3, 2, 2)])
def test_leading_axes_are_computed_apart(leading):
    query, key, value = (torch.randn(*leading, n, D_K) for n in (Q_LEN, K_LEN, K_LEN))
    whole = scaled_dot_product_attention(query, key, value)
    for at in itertools.product(*map(range, leading)):
        one = scaled_dot_product_attention(query[at], key[at], value[at])
        assert_close(tuple(x[at] for x in whole), one)


@pytest.mark.parametrize("kind", ["random", "empty row", "per head"])
def test_the_order_of_keys_does_not_matter_and_the_order_of_queries_carries_over(kind):
    (query, key, value), mask = make_inputs(), make_mask(kind)
    output, _ = scaled_dot_product_attention(query, key, value, mask)
    keys, queries = torch.randperm(K_LEN), torch.randperm(Q_LEN)
    shuffled, _ = scaled_dot_product_attention(
        query, key[..., keys, :], value[..., keys, :], mask[..., keys]
    )
    assert_close(shuffled, output)
    wrong, _ = scaled_dot_product_attention(query, key[..., keys, :], value, mask[..., keys])
    assert not torch.allclose(wrong, output)
    carried, _ = scaled_dot_product_attention(
        query[..., queries, :], key, value, mask[..., queries, :]
    )
    assert_close(carried, output[..., queries, :])


@pytest.mark.parametrize("with_pads", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_future_cannot_leak_into_the_past(dtype, with_pads):
    query, key, value = (torch.randn(BATCH, 6, D_K, dtype=dtype) for _ in range(3))
    mask = causal_mask(6).repeat(BATCH, 1, 1)
    if with_pads:
        mask[1, :, :2] = False  # padded on the left: the first two rows are empty
    key.requires_grad_(), value.requires_grad_()
    output, _ = scaled_dot_product_attention(query, key, value, mask)
    for t in range(5):
        new_key, new_value = key.detach().clone(), value.detach().clone()
        new_key[:, t + 1 :], new_value[:, t + 1 :] = 100 * torch.randn(2, BATCH, 5 - t, D_K)
        changed, _ = scaled_dot_product_attention(query, new_key, new_value, mask)
        assert torch.equal(output[:, : t + 1], changed[:, : t + 1])
        assert not torch.allclose(output[:, t + 1], changed[:, t + 1])
        for grad in torch.autograd.grad(output[:, t].sum(), (key, value), retain_graph=True):
            assert grad[:, t + 1 :].eq(0).all()
            assert grad[0, : t + 1].ne(0).any() or t == 0  # with one key its score is irrelevant


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_what_stands_at_a_hidden_key_makes_no_difference(dtype):
    query, key, value = make_inputs(dtype)
    mask = torch.ones(BATCH, 1, 1, K_LEN, dtype=torch.bool)
    mask[0, ..., 4:] = mask[1, ..., :2] = False  # right and left padding
    before = scaled_dot_product_attention(query, key, value, mask)
    hidden = ~mask.squeeze(2).expand(BATCH, HEADS, K_LEN)
    key[hidden], value[hidden] = 30 * torch.randn_like(key[hidden]), torch.tensor(1e4, dtype=dtype)
    assert_same(before, scaled_dot_product_attention(query, key, value, mask))
    value[0, 0, 1] += 1
    assert not torch.equal(before[0], scaled_dot_product_attention(query, key, value, mask)[0])


def test_one_new_query_averages_all_cached_values():
    query, key = torch.zeros(1, 1, 2), torch.zeros(1, 4, 2)
    value = torch.tensor([1.0, 2, 3, 4]).view(1, 4, 1)
    output, _ = scaled_dot_product_attention(query, key, value, causal_mask(1, 4))
    assert output.item() == 2.5


def test_dropout_acts_on_the_mixing_and_not_on_the_shown_weights():
    (query, key, value), mask = make_inputs(d_v=K_LEN), make_mask("empty row")
    value = torch.eye(K_LEN, dtype=value.dtype).expand_as(value)  # the output shows the mixing
    dropout = nn.Dropout(0.5)
    mixing, weights = scaled_dot_product_attention(query, key, value, mask, dropout)
    _, expected = scaled_dot_product_attention(query, key, value, mask)
    assert torch.equal(weights, expected)
    dropped = mixing == 0
    assert_close(mixing, torch.where(dropped, 0, 2 * weights))
    assert 0.3 < dropped[weights > 0].double().mean() < 0.7
    mixing, _ = scaled_dot_product_attention(query, key, value, mask, dropout.eval())
    assert_close(mixing, weights)


def test_arguments_are_not_changed():
    inputs, mask = make_inputs(), make_mask("empty row")
    scores, kept = attention_scores(*inputs[:2]), [x.clone() for x in (*inputs, mask)]
    kept_scores = scores.clone()
    masked_softmax(scores, mask)
    scaled_dot_product_attention(*inputs, mask, nn.Dropout(0.5))
    assert_same((*inputs, mask, scores), (*kept, kept_scores))


def test_memory_layout_does_not_matter():
    inputs = make_inputs()
    strided = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in inputs]
    assert not any(x.is_contiguous() for x in strided)
    outputs = (scaled_dot_product_attention(*x, make_mask("causal")) for x in (inputs, strided))
    assert_close(*outputs)


ROWS = torch.randn(BATCH, Q_LEN, D_K)  # stands for any well-formed argument


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2, 5, 8), (2, 7, 6), (2, 7, 4)), "same width, got 8 and 6"),
        (((2, 5, 8), (3, 7, 8), (3, 7, 4)), r"leading axes, got \(2, 5, 8\) and \(3, 7, 8\)"),
        (((2, 3, 5, 8), (2, 7, 8), (2, 7, 4)), r"got \(2, 3, 5, 8\) and \(2, 7, 8\)"),
        (((2, 5, 8), (2, 7, 8), (2, 6, 4)), r"key and value.*\(2, 7, 8\) and \(2, 6, 4\)"),
        (((8,), (7, 8), (7, 4)), r"query must have shape \(\*batch, length, d_k\), got \(8,\)"),
        (((0, 5, 8), (0, 7, 8), (0, 7, 4)), r"query must not be empty, got shape \(0, 5, 8\)"),
        (((2, 5, 8), (2, 0, 8), (2, 0, 4)), r"key must not be empty, got shape \(2, 0, 8\)"),
        (((2, 5, 8), (2, 7, 8), (2, 7, 0)), r"value must not be empty, got shape \(2, 7, 0\)"),
    ],
)
def test_attention_refuses_shapes_that_do_not_fit(shapes, message):
    with pytest.raises(ValueError, match=message):
        scaled_dot_product_attention(*(torch.randn(shape) for shape in shapes))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: attention_scores(ROWS.long(), ROWS), r"query must be a floating.*torch\.int64"),
        (lambda: attention_scores(ROWS, ROWS > 0), r"key must be a floating.*torch\.bool"),
        (lambda: masked_softmax(ROWS.int()), r"scores must be a floating.*torch\.int32"),
        (lambda: scaled_dot_product_attention(ROWS, ROWS, ROWS.int()), "value must be a floating"),
        (lambda: attention_scores([[1.0]], ROWS), "query"),
        (lambda: masked_softmax(ROWS, [[True]]), "mask"),
        (lambda: scaled_dot_product_attention(ROWS, ROWS, ROWS, None, 0.1), "dropout"),
    ],
)
def test_attention_refuses_other_types(call, message):
    with pytest.raises(TypeError, match=message):
        call()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.uint8])
def test_only_boolean_masks_are_masks(dtype):
    numbers = causal_mask(Q_LEN, K_LEN).to(dtype)
    for call in (
        lambda: masked_softmax(torch.zeros(BATCH, Q_LEN, K_LEN), numbers),
        lambda: scaled_dot_product_attention(*make_inputs(), numbers),
    ):
        with pytest.raises(TypeError, match=f"mask must be a bool tensor.*got {dtype}"):
            call()


@pytest.mark.parametrize(
    "shape",
    [
        (K_LEN, Q_LEN),
        (BATCH, 1, K_LEN, Q_LEN),
        (BATCH, Q_LEN, K_LEN),  # would be read as (heads, q_len, k_len)
        (HEADS, Q_LEN, K_LEN),
        (HEADS, BATCH, Q_LEN, K_LEN),
        (4, 1, Q_LEN, K_LEN),
        (BATCH, 1, Q_LEN, 1),
        (K_LEN,),
        (1, 1, 1, Q_LEN, K_LEN),
    ],
)
def test_a_mask_that_does_not_fit_is_refused_with_both_shapes(shape):
    mask = torch.ones(shape, dtype=torch.bool)
    numbers = rf"mask of shape \({shape[0]}.*scores of shape \(2, 3, 5, 7\)"
    with pytest.raises(ValueError, match=numbers):
        scaled_dot_product_attention(*make_inputs(), mask)
    with pytest.raises(ValueError, match=numbers):
        masked_softmax(torch.zeros(BATCH, HEADS, Q_LEN, K_LEN), mask)
