"""Token embeddings against a lookup loop, positions against the paper's formula."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from tutorial_transformer.embeddings import (
    PositionalEncoding,
    TokenEmbedding,
    sinusoidal_positions,
)

BATCH, LENGTH, D_MODEL, VOCAB = 2, 3, 5, 11


def position_spec(pos, d_model):
    """Section 3.5, one column at a time."""
    row = []
    for column in range(d_model):
        angle = pos / 10000 ** (2 * (column // 2) / d_model)
        row.append(math.cos(angle) if column % 2 else math.sin(angle))
    return row


@settings(max_examples=30, deadline=None, derandomize=True)
@given(length=st.integers(1, 300), d_model=st.integers(1, 17), data=st.data())
def test_the_table_is_the_papers_formula_at_any_size(length, d_model, data):
    table = sinusoidal_positions(length, d_model)
    assert table.shape == (length, d_model)
    pos = data.draw(st.integers(0, length - 1))
    assert_close(table[pos], torch.tensor(position_spec(pos, d_model)), rtol=0, atol=1e-6)
    assert torch.equal(sinusoidal_positions(pos + 1, d_model), table[: pos + 1])


@pytest.mark.parametrize(
    "pos, row",
    [
        (0, [0.0, 1.0, 0.0, 1.0]),
        (1, [0.84147, 0.54030, 0.0099998, 0.99995]),
        (3, [0.14112, -0.98999, 0.07529, 0.99716, 0.00189]),  # odd: the last cosine is missing
        (0, [0.0, 1.0, 0.0, 1.0, 0.0, 1.0]),
    ],
)
def test_rows_that_can_be_checked_by_hand(pos, row):
    table = sinusoidal_positions(4, len(row))
    assert_close(table[pos], torch.tensor(row), rtol=0, atol=1e-5)


def test_the_two_columns_of_a_pair_share_a_frequency_and_pairs_do_not():
    table = sinusoidal_positions(200, 6).double()
    for pair in range(3):
        squares = table[:, 2 * pair] ** 2 + table[:, 2 * pair + 1] ** 2
        assert_close(squares, torch.ones_like(squares), rtol=0, atol=1e-6)
    mixed = table[:, 1] ** 2 + table[:, 2] ** 2
    assert (mixed - 1).abs().max() > 0.5  # columns of two pairs do not add up
    sign_changes = (table[1:] * table[:-1] < 0).sum(0)[::2]
    assert all(faster > slower for faster, slower in pairwise(sign_changes.tolist()))


def test_a_shift_is_the_same_rotation_everywhere():
    table, shift = sinusoidal_positions(40, 4).double(), 7
    for pair, frequency in enumerate([1.0, 1 / 100]):
        angle = torch.tensor(shift * frequency, dtype=torch.float64)
        turn = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()]).view(2, 2)
        here = table[:, 2 * pair : 2 * pair + 2]
        assert_close(here[:-shift] @ turn, here[shift:], rtol=0, atol=1e-6)


@pytest.mark.parametrize("default", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_table_is_never_made_below_float32(default):
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        table, module = sinusoidal_positions(300, 4), PositionalEncoding(4, max_len=300)
    finally:
        torch.set_default_dtype(before)
    wanted = torch.float64 if default == torch.float64 else torch.float32
    assert table.dtype == module.table.dtype == wanted
    spec = torch.tensor([position_spec(pos, 4) for pos in range(300)], dtype=torch.float64)
    assert_close(table.double(), spec, rtol=0, atol=1e-12 if wanted == torch.float64 else 1e-6)


@pytest.mark.parametrize("dtype, pos", [(torch.bfloat16, 256), (torch.float16, 2048)])
def test_half_precision_still_tells_neighbours_apart(dtype, pos):
    assert torch.tensor(float(pos), dtype=dtype) == torch.tensor(pos + 1.0, dtype=dtype)  # the trap
    pe = PositionalEncoding(8, max_len=pos + 2).to(dtype)
    assert pe.table.dtype == dtype
    rows = pe(torch.zeros(1, 2, 8, dtype=dtype), offset=pos)[0]
    assert not torch.equal(rows[0], rows[1])
    for k in range(2):
        exact = torch.tensor(position_spec(pos + k, 8))
        assert_close(rows[k].float(), exact, rtol=0, atol=5e-3)


def test_zeros_become_the_positions_in_every_row_of_the_batch():
    table = sinusoidal_positions(LENGTH, D_MODEL)
    output = PositionalEncoding(D_MODEL)(torch.zeros(BATCH, LENGTH, D_MODEL))
    assert torch.equal(output[0], table) and torch.equal(output[1], table)
    assert all(not torch.equal(a, b) for a, b in pairwise(output[0]))  # time steps differ
    assert output.std() > 0.1


def test_an_offset_places_a_piece_where_it_stands_in_the_whole():
    pe = PositionalEncoding(D_MODEL, max_len=8)
    x = torch.randn(BATCH, 8, D_MODEL)
    whole = pe(x)
    for start in range(8):
        for stop in range(start + 1, 9):
            assert torch.equal(pe(x[:, start:stop], offset=start), whole[:, start:stop])
    assert not torch.equal(pe(x[:, 2:4], offset=1), whole[:, 2:4])  # one off is seen


def test_max_len_is_reached_and_not_passed():
    pe = PositionalEncoding(D_MODEL, max_len=8)
    assert pe(torch.zeros(1, 8, D_MODEL)).shape == (1, 8, D_MODEL)
    assert pe(torch.zeros(1, 3, D_MODEL), offset=5).shape == (1, 3, D_MODEL)
    with pytest.raises(ValueError, match=r"length 9.*max_len is 8"):
        pe(torch.zeros(1, 9, D_MODEL))
    with pytest.raises(ValueError, match=r"positions 6 to 8 .*max_len is 8"):
        pe(torch.zeros(1, 3, D_MODEL), offset=6)


def test_the_table_is_neither_trained_nor_saved_but_follows_the_module():
    pe = PositionalEncoding(D_MODEL, max_len=8)
    assert not pe.state_dict() and not list(pe.parameters())
    assert [name for name, _ in pe.named_buffers()] == ["table"]
    longer = PositionalEncoding(D_MODEL, max_len=20)
    longer.load_state_dict(pe.state_dict())
    assert longer.table.shape == (20, D_MODEL)
    assert pe.double().table.dtype == torch.float64
    assert pe.to("meta").table.device.type == "meta"


@pytest.mark.parametrize("dropout", [0.0, 0.25, 0.5])
def test_dropout_acts_on_the_sum_in_train_mode_only(dropout):
    pe = PositionalEncoding(8, dropout, max_len=60)
    assert [m.p for m in pe.modules() if isinstance(m, nn.Dropout)] == [dropout]
    x = torch.randn(4, 60, 8)
    total = x + pe.table
    assert torch.equal(pe.eval()(x), total)
    output = pe.train()(x)
    dropped = output == 0
    assert_close(output, (total / (1 - dropout)).masked_fill(dropped, 0.0))
    assert dropped.float().mean().item() == pytest.approx(dropout, abs=0.03)
    assert torch.equal(output, pe(x)) == (dropout == 0)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("pad_id", [0, 4])
def test_each_id_gets_its_row_times_the_root_of_d_model(pad_id, dtype):
    embedding = TokenEmbedding(VOCAB, D_MODEL, pad_id)
    ids = torch.randint(VOCAB, (BATCH, LENGTH), dtype=dtype)
    vectors = embedding(ids)
    for b in range(BATCH):
        for t in range(LENGTH):
            row = embedding.weight[ids[b, t].item()]
            assert_close(vectors[b, t], row * math.sqrt(D_MODEL))
    torchs = nn.Embedding(VOCAB, D_MODEL, padding_idx=pad_id)
    torchs.load_state_dict(embedding.state_dict())
    assert_close(vectors, torchs(ids) * math.sqrt(D_MODEL))


def test_rows_start_at_one_over_the_root_and_come_out_at_size_one():
    embedding = TokenEmbedding(2000, 16)
    assert embedding.weight[1:].std().item() == pytest.approx(16**-0.5, rel=0.02)
    assert embedding.weight[1:].mean().item() == pytest.approx(0, abs=0.01)
    assert embedding(torch.arange(1, 2000)[None]).std().item() == pytest.approx(1, rel=0.02)


@pytest.mark.parametrize("pad_id", [0, 4])
def test_the_pad_row_is_zero_at_the_start_and_after_a_step(pad_id):
    embedding = TokenEmbedding(VOCAB, D_MODEL, pad_id)
    before = embedding.weight.detach().clone()
    assert before[pad_id].abs().max() == 0
    optimizer = torch.optim.Adam(embedding.parameters(), lr=0.1)
    vectors = embedding(torch.tensor([[3, pad_id, pad_id]]))
    vectors.sum().backward()
    assert embedding.weight.grad[pad_id].abs().max() == 0
    assert_close(embedding.weight.grad[3], torch.full((D_MODEL,), math.sqrt(D_MODEL)))
    optimizer.step()
    assert embedding.weight[pad_id].abs().max() == 0
    assert not torch.equal(embedding.weight[3], before[3])  # the step did something
    embedding.reset_parameters()
    assert embedding.weight[pad_id].abs().max() == 0
    assert not torch.equal(embedding.weight, before)


def test_the_scale_is_on_the_embedding_and_not_on_the_positions():
    embedding, pe = TokenEmbedding(VOCAB, D_MODEL), PositionalEncoding(D_MODEL)
    ids = torch.tensor([[3, 8, 6, 1]])
    assert_close(pe(embedding(ids)) - embedding(ids), sinusoidal_positions(4, D_MODEL)[None])
    nn.init.zeros_(embedding.weight)
    assert torch.equal(pe(embedding(ids))[0], sinusoidal_positions(4, D_MODEL))


@pytest.mark.parametrize(
    "ids, error, message",
    [
        (torch.tensor([[1, 11]]), ValueError, "id 11, but the vocabulary has 11 entries"),
        (torch.tensor([[1, -1]]), ValueError, "id -1, but the vocabulary has 11 entries"),
        (torch.tensor([1, 2]), ValueError, r"shape \(batch, length\).*got \(2,\)"),
        (torch.zeros(0, 3, dtype=torch.int64), ValueError, r"neither of them 0, got \(0, 3\)"),
        (torch.zeros(2, 0, dtype=torch.int64), ValueError, r"neither of them 0, got \(2, 0\)"),
        (torch.zeros(2, 3), TypeError, "ids must hold integer ids, got torch.float32"),
        (torch.zeros(2, 3, dtype=torch.bool), TypeError, "integer ids, got torch.bool"),
        (torch.zeros(2, 3, dtype=torch.int16), TypeError, "int64 or int32 .*got torch.int16"),
        (torch.zeros(2, 3, dtype=torch.uint8), TypeError, "int64 or int32 .*got torch.uint8"),
        ([[1, 2]], TypeError, "ids"),
    ],
)
def test_bad_ids_are_refused(ids, error, message):
    with pytest.raises(error, match=message):
        TokenEmbedding(VOCAB, D_MODEL)(ids)


@pytest.mark.parametrize(
    "build, error, message",
    [
        (lambda: TokenEmbedding(0, 5), ValueError, "vocab_size must be at least 1, got 0"),
        (lambda: TokenEmbedding(11, 0), ValueError, "d_model must be at least 1, got 0"),
        (lambda: TokenEmbedding(11, 5, 11), ValueError, "pad_id=11 .* vocabulary of 11"),
        (lambda: TokenEmbedding(11, 5, -1), ValueError, "pad_id=-1 .* vocabulary of 11"),
        (lambda: TokenEmbedding(11, 5, 1.0), TypeError, "pad_id"),
        (lambda: TokenEmbedding("11", 5), TypeError, "vocab_size"),
        (lambda: sinusoidal_positions(0, 5), ValueError, "length must be at least 1, got 0"),
        (lambda: sinusoidal_positions(3, -5), ValueError, "d_model must be at least 1, got -5"),
        (lambda: sinusoidal_positions(2.0, 5), TypeError, "length"),
        (lambda: PositionalEncoding(0), ValueError, "d_model must be at least 1, got 0"),
        (lambda: PositionalEncoding(5, max_len=0), ValueError, "max_len must be at least 1, got 0"),
        (lambda: PositionalEncoding(5, 1.0), ValueError, r"dropout must lie in \[0, 1\), got 1.0"),
        (
            lambda: PositionalEncoding(5, -0.5),
            ValueError,
            r"dropout must lie in \[0, 1\), got -0.5",
        ),
    ],
)
def test_bad_arguments_are_refused(build, error, message):
    with pytest.raises(error, match=message):
        build()


@pytest.mark.parametrize(
    "x, offset, error, message",
    [
        (torch.zeros(2, 3, 6), 0, ValueError, r"x must have last axis 5, got 6"),
        (torch.zeros(3, 5), 0, ValueError, r"x must have 3 axes, got shape \(3, 5\)"),
        (torch.zeros(2, 0, 5), 0, ValueError, r"x must not be empty, got shape \(2, 0, 5\)"),
        (torch.zeros(2, 3, 5, dtype=torch.int64), 0, TypeError, "x must be a floating-point"),
        (torch.zeros(2, 3, 5), -1, ValueError, "offset must not be negative, got -1"),
        (torch.zeros(2, 3, 5), 1.0, TypeError, "offset"),
        (torch.zeros(2, 3, 5), True, TypeError, "offset"),
    ],
)
def test_bad_vectors_and_offsets_are_refused(x, offset, error, message):
    with pytest.raises(error, match=message):
        PositionalEncoding(D_MODEL)(x, offset)
