"""The feed-forward network against a loop over positions, torch's layers, and its own algebra."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from tutorial_transformer.feed_forward import FeedForward

BATCH, LENGTH, D_MODEL, D_FF = 2, 3, 5, 7
BENT = {
    "relu": lambda h: max(0.0, h),
    "gelu": lambda h: h * (1 + math.erf(h / math.sqrt(2))) / 2,
}


def feed_forward_spec(ffn, x):
    """The definition for one position, one hidden unit at a time."""
    bend = BENT[ffn.activation]
    hidden = [
        bend((sum(w * v for w, v in zip(row, x, strict=True)) + b).item())
        for row, b in zip(ffn.w_1.weight, ffn.w_1.bias, strict=True)
    ]
    return torch.stack(
        [
            sum(w * h for w, h in zip(row, hidden, strict=True)) + b
            for row, b in zip(ffn.w_2.weight, ffn.w_2.bias, strict=True)
        ]
    )


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_every_position_gets_what_the_loop_gives(activation, train):
    ffn = FeedForward(D_MODEL, D_FF, activation=activation).double().train(train)
    x = torch.randn(BATCH, LENGTH, D_MODEL, dtype=torch.float64)
    output = ffn(x)
    for b in range(BATCH):
        for t in range(LENGTH):
            assert_close(output[b, t], feed_forward_spec(ffn, x[b, t]))


@pytest.mark.parametrize("activation, bend", [("relu", nn.ReLU()), ("gelu", nn.GELU())])
def test_equals_two_torch_layers_in_values_and_gradients(activation, bend):
    ffn = FeedForward(D_MODEL, D_FF, activation=activation).double()
    torchs = nn.Sequential(nn.Linear(D_MODEL, D_FF), bend, nn.Linear(D_FF, D_MODEL)).double()
    torchs[0].load_state_dict(ffn.w_1.state_dict())
    torchs[2].load_state_dict(ffn.w_2.state_dict())
    x = torch.randn(BATCH, LENGTH, D_MODEL, dtype=torch.float64, requires_grad=True)
    seed = torch.randn_like(x)
    ours = torch.autograd.grad(ffn(x), [x, *ffn.parameters()], seed)
    theirs = torch.autograd.grad(torchs(x), [x, *torchs.parameters()], seed)
    assert_close(ffn(x), torchs(x))
    assert_close(ours, theirs)
    assert all(grad.abs().max() > 0 for grad in ours)


def test_a_hand_sized_network():
    ffn = FeedForward(d_model=2, d_ff=3)
    ffn.w_1.weight.data = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    ffn.w_1.bias.data = torch.tensor([0.0, -5.0, 1.0])
    ffn.w_2.weight.data = torch.tensor([[1.0, 10.0, 100.0], [2.0, 20.0, 200.0]])
    ffn.w_2.bias.data = torch.tensor([0.5, 0.0])
    # (3, 4): hidden (3, -1, -6) bends to (3, 0, 0); (-2, 0): hidden (-2, -5, 3) to (0, 0, 3)
    expected = torch.tensor([[3.5, 6.0], [300.5, 600.0]])
    assert_close(ffn(torch.tensor([[3.0, 4.0], [-2.0, 0.0]])), expected)


def test_gelu_is_the_exact_one():
    ffn = FeedForward(1, 1, activation="gelu")
    for linear in (ffn.w_1, ffn.w_2):
        nn.init.ones_(linear.weight)
        nn.init.zeros_(linear.bias)
    assert ffn(torch.ones(1)).item() == pytest.approx(0.841345, abs=1e-6)  # tanh form: 0.841192


def test_positions_do_not_see_each_other():
    ffn = FeedForward(D_MODEL, D_FF)
    x = torch.randn(BATCH, 4, D_MODEL)
    before = ffn(x)
    changed = x.clone()
    changed[:, 1] = 100.0
    after = ffn(changed)
    assert torch.equal(before[:, [0, 2, 3]], after[:, [0, 2, 3]])
    assert (before[:, 1] - after[:, 1]).abs().max() > 1  # the test can see a change
    order = torch.tensor([2, 0, 3, 1])
    assert_close(ffn(x[:, order]), before[:, order])


@pytest.mark.parametrize("leading", [(), (3,), (2, 3), (2, 3, 4)])
def test_any_leading_axes_are_kept(leading):
    ffn = FeedForward(D_MODEL, D_FF)
    x = torch.randn(*leading, D_MODEL)
    assert_close(ffn(x), ffn(x.reshape(1, -1, D_MODEL)).reshape(x.shape))


@pytest.mark.parametrize(
    "dtype, tolerance",
    [(torch.float64, 1e-12), (torch.float32, 1e-6), (torch.float16, 5e-3), (torch.bfloat16, 5e-2)],
)
def test_every_dtype_stays_close_to_float64(dtype, tolerance):
    ffn = FeedForward(D_MODEL, D_FF).to(dtype)
    x = torch.randn(BATCH, LENGTH, D_MODEL).to(dtype)
    output = ffn(x)
    assert output.dtype == dtype
    exact = ffn.double()(x.double())
    assert_close(output.double(), exact, rtol=0, atol=tolerance)


def test_parameters_are_two_matrices_and_two_biases():
    shapes = {name: tuple(p.shape) for name, p in FeedForward(D_MODEL, D_FF).named_parameters()}
    assert shapes == {
        "w_1.weight": (D_FF, D_MODEL),
        "w_1.bias": (D_FF,),
        "w_2.weight": (D_MODEL, D_FF),
        "w_2.bias": (D_MODEL,),
    }
    with torch.device("meta"):
        base = FeedForward(512, 2048)
    count = sum(p.numel() for p in base.parameters())
    assert count == 512 * 2048 + 2048 + 2048 * 512 + 512 == 2_099_712


@pytest.mark.parametrize("dropout", [0.25, 0.5])
def test_dropout_acts_between_the_two_maps_in_train_mode_only(dropout):
    ffn = FeedForward(D_MODEL, D_FF, dropout=dropout)
    ffn.w_2.weight.data = torch.eye(D_MODEL, D_FF)
    nn.init.ones_(ffn.w_2.bias)  # dropout behind w_2 would drop it too
    x = torch.randn(200, D_MODEL)
    hidden = torch.relu(ffn.w_1(x))[:, :D_MODEL]
    assert torch.equal(ffn.eval()(x), ffn(x))
    assert_close(ffn(x), hidden + 1)
    output = ffn.train()(x)
    dropped = output == 1
    assert_close(output - 1, (hidden / (1 - dropout)).masked_fill(dropped, 0.0))
    share = dropped[hidden > 0].float().mean().item()
    assert share == pytest.approx(dropout, abs=0.1)
    assert not torch.equal(output, ffn(x))


def test_without_dropout_there_is_no_dropout_module():
    with_it, without = FeedForward(D_MODEL, D_FF, dropout=0.25), FeedForward(D_MODEL, D_FF)
    rates = [[m.p for m in f.modules() if isinstance(m, nn.Dropout)] for f in (with_it, without)]
    assert rates == [[0.25], []]
    x = torch.randn(BATCH, D_MODEL)
    assert torch.equal(without.train()(x), without(x))


def test_the_input_is_left_alone():
    x = torch.randn(BATCH, LENGTH, D_MODEL)
    kept = x.clone()
    assert not torch.equal(FeedForward(D_MODEL, D_FF)(x), x)
    assert torch.equal(x, kept)


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"d_model": 0}, ValueError, "d_model must be at least 1, got 0"),
        ({"d_ff": -3}, ValueError, "d_ff must be at least 1, got -3"),
        ({"d_ff": 2.5}, TypeError, "d_ff"),
        ({"d_model": True}, TypeError, "d_model"),
        ({"dropout": 1.0}, ValueError, r"dropout must lie in \[0, 1\), got 1.0"),
        ({"dropout": -0.1}, ValueError, r"dropout must lie in \[0, 1\), got -0.1"),
        ({"dropout": float("nan")}, ValueError, "got nan"),
        ({"dropout": "0.1"}, TypeError, "dropout"),
        ({"activation": "swish"}, ValueError, r"one of \['relu', 'gelu'\], got 'swish'"),
    ],
)
def test_bad_arguments_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        FeedForward(**{"d_model": D_MODEL, "d_ff": D_FF} | arguments)


@pytest.mark.parametrize(
    "x, error, message",
    [
        (torch.zeros(2, 3, 6), ValueError, r"x must have last axis 5, got 6: \(2, 3, 6\)"),
        (torch.zeros(2, 0, 5), ValueError, r"x must not be empty, got shape \(2, 0, 5\)"),
        (torch.zeros(0, 3, 5), ValueError, r"x must not be empty, got shape \(0, 3, 5\)"),
        (torch.tensor(1.0), ValueError, "x must not be empty"),
        (torch.zeros(2, 3, 5, dtype=torch.int64), TypeError, "x must be a floating-point tensor"),
        ([[0.0] * 5], TypeError, "x"),
    ],
)
def test_bad_input_is_refused(x, error, message):
    with pytest.raises(error, match=message):
        FeedForward(D_MODEL, D_FF)(x)
