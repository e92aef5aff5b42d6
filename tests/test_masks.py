"""Masks: True = may attend, rows are queries, columns are keys, no head axis."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from tutorial_transformer.attention import masked_softmax, scaled_dot_product_attention
from tutorial_transformer.attention_maps import record_attention
from tutorial_transformer.masks import (
    causal_mask,
    from_torch_attn_mask,
    padding_mask,
    target_mask,
    to_torch_attn_mask,
)
from tutorial_transformer.multi_head import MultiHeadAttention

IDS = torch.tensor([[5, 7, 2, 0, 0], [3, 0, 0, 0, 0], [4, 6, 8, 9, 2]])  # batch 3, length 5
HEADS, WIDTH = 2, 4
few = settings(max_examples=30, deadline=None, derandomize=True)


@few
@given(
    batch=st.integers(1, 4),
    length=st.integers(1, 6),
    pad_id=st.integers(0, 3),
    dtype=st.sampled_from([torch.int64, torch.int32, torch.int16]),
    seed=st.integers(0, 99),
)
def test_masks_built_from_ids_are_their_definition_cell_by_cell(batch, length, pad_id, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 4, (batch, length), generator=generator).to(dtype)
    kept = ids.clone()
    padding, target = padding_mask(ids, pad_id), target_mask(ids, pad_id)
    assert padding.shape == (batch, 1, length)
    assert target.shape == (batch, length, length)
    assert padding.dtype == target.dtype == torch.bool
    for b in range(batch):
        for key in range(length):
            real = ids[b, key].item() != pad_id
            assert padding[b, 0, key].item() == real
            for query in range(length):
                assert target[b, query, key].item() == (real and key <= query)
    assert torch.equal(ids, kept)


@pytest.mark.parametrize("k_len", range(1, 7))
def test_a_causal_query_sees_itself_and_the_past(k_len):
    for q_len in range(1, k_len + 1):
        mask = causal_mask(q_len, k_len)
        assert mask.shape == (1, q_len, k_len)
        assert mask.dtype == torch.bool
        for query in range(q_len):
            for key in range(k_len):
                its_position = k_len - q_len + query  # queries are the last positions
                assert mask[0, query, key].item() == (key <= its_position)
        assert torch.equal(mask, causal_mask(k_len)[:, -q_len:])
    assert torch.equal(causal_mask(k_len), causal_mask(k_len, k_len))


def test_one_new_query_sees_the_whole_cache():
    assert causal_mask(1, 100).sum() == 100
    assert causal_mask(2, 6).int().tolist() == [[[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1]]]


def test_a_target_mask_hides_pads_and_future_and_its_negation_hides_pads_or_future():
    keep = target_mask(torch.tensor([[4, 6, 0]]))
    assert keep.int().tolist() == [[[1, 0, 0], [1, 1, 0], [1, 1, 0]]]
    hide = ~padding_mask(torch.tensor([[4, 6, 0]])) | ~causal_mask(3)
    assert torch.equal(to_torch_attn_mask(keep), hide)


def test_padding_hides_columns_and_never_rows():
    left_padded = target_mask(torch.tensor([[0, 0, 4, 6]]))
    assert left_padded.int().tolist() == [[[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]]
    right_padded = padding_mask(torch.tensor([[4, 6, 0, 0]])).expand(1, 4, 4)
    assert right_padded[0, 3].tolist() == [True, True, False, False]  # a pad query still looks


def test_another_pad_id_hides_another_token():
    assert padding_mask(IDS, pad_id=2)[0, 0].tolist() == [True, True, False, True, True]
    assert not torch.equal(target_mask(IDS, pad_id=2), target_mask(IDS))


def equal_scores_weights(mask, attention):
    """The weights that `attention` gives each of 3 keys when all scores are equal."""
    zeros, values = torch.zeros(1, 3, 3), torch.eye(3)[None]  # output = weights
    if attention == "masked_softmax":
        return masked_softmax(zeros, mask)[0]
    if attention == "ours":
        return scaled_dot_product_attention(zeros, zeros, values, mask)[0][0]
    if attention == "torch function":
        return F.scaled_dot_product_attention(zeros, zeros, values, mask)[0]
    if attention == "multi-head":
        module = MultiHeadAttention(3, 1)
        with record_attention(module) as maps:
            module(zeros, zeros, zeros, mask)
        return maps["attention"][0, 0]
    torch_module = nn.MultiheadAttention(3, 1, batch_first=True)
    return torch_module(zeros, zeros, zeros, attn_mask=to_torch_attn_mask(mask)[0])[1][0]


ATTENTIONS = ["masked_softmax", "ours", "torch function", "multi-head", "torch module"]


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_true_means_visible_for_every_attention(attention):
    causal = [[1, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]]
    assert_close(equal_scores_weights(causal_mask(3), attention), torch.tensor(causal))
    backwards = to_torch_attn_mask(causal_mask(3)) | torch.eye(3, dtype=torch.bool)
    assert_close(equal_scores_weights(backwards, attention), torch.tensor(causal).flip(0, 1))


@pytest.mark.parametrize("build", [padding_mask, target_mask, lambda ids: causal_mask(5)])
def test_every_mask_fits_every_attention(build):
    mask = build(IDS)
    x = torch.randn(3, 5, WIDTH)
    ours, theirs = MultiHeadAttention(WIDTH, HEADS), nn.MultiheadAttention(WIDTH, HEADS)
    _, plain = scaled_dot_product_attention(x, x, x, mask)
    with record_attention(ours) as maps:
        ours(x, x, x, mask)
    hide = to_torch_attn_mask(mask).expand(3, 5, 5)
    first = x.transpose(0, 1)  # torch's layout: length first
    _, torchs = theirs(first, first, first, attn_mask=hide.repeat_interleave(HEADS, dim=0))
    for weights in (plain, maps["attention"].mean(dim=1), torchs):
        assert weights[hide].eq(0).all()
        assert weights[~hide].gt(0).all()
        assert_close(weights.sum(dim=-1), torch.ones(3, 5))
    fused = F.scaled_dot_product_attention(x, x, x, mask)
    assert_close(fused, plain @ x)


def test_the_two_translations_undo_each_other_and_leave_their_argument_alone():
    mask = target_mask(IDS)
    kept = mask.clone()
    hide = to_torch_attn_mask(mask)
    assert torch.equal(hide, mask.logical_not())
    assert not torch.equal(hide, mask)
    assert torch.equal(from_torch_attn_mask(hide), mask)
    assert torch.equal(mask, kept)


@pytest.mark.parametrize("length", [1, 2, 5])
def test_torchs_own_causal_mask_is_the_translation_of_ours(length):
    additive = nn.Transformer.generate_square_subsequent_mask(length)
    assert torch.equal(to_torch_attn_mask(causal_mask(length))[0], additive == -torch.inf)


def test_masks_stay_on_the_device_of_the_ids():
    ids = torch.ones(2, 3, dtype=torch.long, device="meta")
    for build in (padding_mask, target_mask):
        assert build(ids).device.type == "meta"
        assert build(IDS).device.type == "cpu"


def test_docstrings_say_what_true_means():
    translations = (to_torch_attn_mask, from_torch_attn_mask)
    attentions = (masked_softmax, scaled_dot_product_attention, MultiHeadAttention.forward)
    assert all("True" in function.__doc__ for function in translations + attentions)


@pytest.mark.parametrize("build", [padding_mask, target_mask])
@pytest.mark.parametrize(
    ("ids", "error", "message"),
    [
        ([[5, 0]], TypeError, "ids"),
        (torch.ones(2, 3), TypeError, r"integer ids, got torch\.float32"),
        (torch.ones(2, 3, dtype=torch.bool), TypeError, r"integer ids, got torch\.bool"),
        (IDS[0], ValueError, r"ids must have shape \(batch, length\).*got \(5,\)"),
        (IDS[None], ValueError, r"got \(1, 3, 5\)"),
        (IDS[:0], ValueError, r"neither of them 0, got \(0, 5\)"),
        (IDS[:, :0], ValueError, r"neither of them 0, got \(3, 0\)"),
    ],
)
def test_masks_refuse_anything_but_a_table_of_ids(build, ids, error, message):
    with pytest.raises(error, match=message):
        build(ids)


@pytest.mark.parametrize("build", [padding_mask, target_mask])
@pytest.mark.parametrize("pad_id", ["0", None, 0.5, True])
def test_masks_refuse_a_pad_id_that_is_no_id(build, pad_id):
    with pytest.raises(TypeError, match="pad_id"):
        build(IDS, pad_id)


@pytest.mark.parametrize(
    ("lengths", "error", "message"),
    [
        ((0,), ValueError, "q_len must be at least 1, got 0"),
        ((-2, 3), ValueError, "q_len must be at least 1, got -2"),
        ((2, 0), ValueError, "k_len must be at least 1, got 0"),
        ((5, 3), ValueError, "k_len=3 must be at least q_len=5"),
        ((2.0,), TypeError, "q_len"),
        ((2, 3.5), TypeError, "k_len"),
        ((True,), TypeError, "q_len must be an int, got True"),
    ],
)
def test_a_causal_mask_refuses_impossible_lengths(lengths, error, message):
    with pytest.raises(error, match=message):
        causal_mask(*lengths)


@pytest.mark.parametrize("translate", [to_torch_attn_mask, from_torch_attn_mask])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
def test_numbers_are_not_translated_as_masks(translate, dtype):
    with pytest.raises(TypeError, match=f"mask must be a bool tensor.*got {dtype}"):
        translate(torch.ones(1, 3, 3, dtype=dtype))
    with pytest.raises(TypeError, match="mask"):
        translate([[True]])
