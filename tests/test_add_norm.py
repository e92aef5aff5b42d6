"""LayerNorm against a loop and nn.LayerNorm; the residual wrapper against its two formulas."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from tutorial_transformer.add_norm import AddNorm, LayerNorm

BATCH, LENGTH, D_MODEL = 2, 3, 8
ROWS = {  # what people feed a norm, and where home-made ones go wrong
    "ordinary": lambda: torch.randn(BATCH, LENGTH, D_MODEL),
    "constant": lambda: torch.full((BATCH, LENGTH, D_MODEL), 3.25),
    "zero": lambda: torch.zeros(BATCH, LENGTH, D_MODEL),
    "variance near eps": lambda: torch.randn(BATCH, LENGTH, D_MODEL) * 1e-5**0.5,
    "far from zero": lambda: torch.randn(BATCH, LENGTH, D_MODEL) + 100.0,
    "large": lambda: torch.randn(BATCH, LENGTH, D_MODEL) * 1000.0,  # squares overflow float16
}


def layer_norm_spec(x, weight, bias, eps):
    """The definition for one vector: biased variance, eps inside the root."""
    mean = sum(x) / len(x)
    variance = sum((v - mean) ** 2 for v in x) / len(x)
    return [
        w * (v - mean) / math.sqrt(variance + eps) + b
        for v, w, b in zip(x, weight, bias, strict=True)
    ]


def randomise(module):
    """Give gains and biases values that a mix-up would show."""
    for parameter in module.parameters():
        nn.init.normal_(parameter)
    return module


def random_norm(eps=1e-5):
    return randomise(LayerNorm(D_MODEL, eps))


@pytest.mark.parametrize("eps", [1e-5, 1e-2])
@pytest.mark.parametrize("rows", ROWS)
def test_each_vector_gets_what_the_loop_gives(rows, eps):
    norm, x = random_norm(eps).double(), ROWS[rows]().double()
    output = norm(x)
    for b in range(BATCH):
        for t in range(LENGTH):
            lists = (values.tolist() for values in (x[b, t], norm.weight, norm.bias))
            expected = torch.tensor(layer_norm_spec(*lists, eps), dtype=torch.float64)
            assert_close(output[b, t], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "x, expected",
    [
        ([1.0, 2.0, 3.0, 4.0], [-1.3416, -0.4472, 0.4472, 1.3416]),  # unbiased: 1.1619, 0.3873
        ([1.0, 0.0, 0.0, 0.0], [1.7320, -0.5773, -0.5773, -0.5773]),  # unbiased: 1.5, -0.5
    ],
)
def test_vectors_that_can_be_checked_by_hand(x, expected):
    assert_close(LayerNorm(4)(torch.tensor(x)), torch.tensor(expected), rtol=0, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("eps", [1e-5, 1e-2])
@pytest.mark.parametrize("rows", ROWS)
def test_equals_torchs_layer_norm_in_values_and_gradients(rows, eps, dtype):
    ours, theirs = random_norm(eps).to(dtype), nn.LayerNorm(D_MODEL, eps).to(dtype)
    theirs.load_state_dict(ours.state_dict())
    x = ROWS[rows]().to(dtype).requires_grad_()
    seed = torch.randn_like(x)
    assert_close(ours(x), theirs(x))
    assert ours(x).dtype == dtype and ours(x).isfinite().all()
    ours_grads = torch.autograd.grad(ours(x), [x, *ours.parameters()], seed)
    assert_close(ours_grads, torch.autograd.grad(theirs(x), [x, *theirs.parameters()], seed))
    assert all(grad.isfinite().all() for grad in ours_grads)


@pytest.mark.parametrize("dtype, tolerance", [(torch.bfloat16, 0.05), (torch.float16, 0.01)])
@pytest.mark.parametrize("rows", ["ordinary", "far from zero", "large"])
def test_half_precision_stays_close_to_float64(rows, dtype, tolerance):
    norm, x = LayerNorm(D_MODEL).to(dtype), ROWS[rows]().to(dtype)
    half, exact = norm(x).double(), norm.double()(x.double())
    assert_close(half, exact, rtol=tolerance, atol=tolerance)


def test_a_fresh_norm_gives_mean_0_and_variance_1_to_each_vector():
    norm, x = LayerNorm(D_MODEL).double(), 5 * torch.randn(BATCH, LENGTH, D_MODEL).double() + 2
    output = norm(x)
    one = torch.ones(BATCH, LENGTH, dtype=torch.float64)
    assert_close(output.mean(-1), 0 * one, rtol=0, atol=1e-12)
    assert_close(output.var(-1, correction=0), one, rtol=0, atol=1e-4)
    assert output.mean(1).abs().max() > 0.1  # over the length it does not hold
    assert_close(norm(3 * x + 7), output, rtol=0, atol=1e-4)  # scale and shift drop out
    assert not torch.allclose(norm(x**3), output, rtol=0, atol=1e-2)


def test_neighbours_and_batch_mates_do_not_matter():
    norm, x = random_norm(), torch.randn(BATCH, LENGTH, D_MODEL)
    changed = x.clone()
    changed[0, 1:], changed[1] = 50.0, torch.randn(LENGTH, D_MODEL)
    assert torch.equal(norm(x)[0, 0], norm(changed)[0, 0])
    assert not torch.equal(norm(x)[0, 1], norm(changed)[0, 1])
    assert_close(norm(x[0, 0]), norm(x)[0, 0])  # without any leading axis


def test_states_move_between_ours_and_torchs():
    ours, theirs = random_norm(), randomise(nn.LayerNorm(D_MODEL))
    assert {name: p.shape for name, p in ours.named_parameters()} == {
        "weight": (D_MODEL,),
        "bias": (D_MODEL,),
    }
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(BATCH, D_MODEL)
    assert_close(ours(x), theirs(x))


def linear_sublayer():
    return nn.Linear(D_MODEL, D_MODEL).double()


def wrapper(norm_first, dropout=0.0):
    return randomise(AddNorm(D_MODEL, dropout, norm_first).double())


@pytest.mark.parametrize("train", [True, False])
def test_post_norm_and_pre_norm_are_the_two_formulas(train):
    f, x = linear_sublayer(), torch.randn(BATCH, LENGTH, D_MODEL).double()
    results = []
    for norm_first in (False, True):
        wrap = wrapper(norm_first).train(train)
        norm = nn.LayerNorm(D_MODEL).double()
        norm.load_state_dict(wrap.norm.state_dict())
        expected = x + f(norm(x)) if norm_first else norm(x + f(x))
        assert_close(wrap(x, f), expected)
        results.append(wrap(x, f))
    assert not torch.allclose(*results)


def test_post_norm_is_the_default():
    x = torch.randn(BATCH, LENGTH, D_MODEL)
    assert_close(AddNorm(D_MODEL)(x, torch.zeros_like), LayerNorm(D_MODEL)(x))


@pytest.mark.parametrize("train", [True, False])
def test_a_silent_sublayer_leaves_the_identity_in_pre_norm_and_the_norm_in_post_norm(train):
    x = torch.randn(BATCH, LENGTH, D_MODEL).double().requires_grad_()
    pre, post = wrapper(True).train(train), wrapper(False).train(train)
    assert torch.equal(pre(x, torch.zeros_like), x)
    (gradient,) = torch.autograd.grad(pre(x, torch.zeros_like).sum(), x)
    assert torch.equal(gradient, torch.ones_like(x))  # nothing stands in the way of the gradient
    assert torch.equal(post(x, torch.zeros_like), post.norm(x))
    assert not torch.allclose(post(x, torch.zeros_like), x)


def test_a_constant_sublayer_is_added_to_x():
    x, constant = torch.randn(BATCH, LENGTH, D_MODEL).double(), torch.arange(8.0).double()
    assert_close(wrapper(True)(x, lambda v: constant.expand_as(v)), x + constant)
    post = wrapper(False)
    assert_close(post(x, lambda v: constant.expand_as(v)), post.norm(x + constant))


@pytest.mark.parametrize("norm_first", [False, True])
def test_the_sublayer_sees_the_normalised_x_only_in_pre_norm(norm_first):
    seen, wrap = [], wrapper(norm_first)
    x = torch.randn(BATCH, LENGTH, D_MODEL).double()
    kept = x.clone()
    wrap(x, lambda v: seen.append(v) or v)
    assert len(seen) == 1
    assert torch.equal(seen[0], wrap.norm(x) if norm_first else x)
    assert torch.equal(x, kept)


@pytest.mark.parametrize("dropout", [0.0, 0.25, 0.5])
def test_dropout_acts_on_what_the_sublayer_returns(dropout):
    wrap = wrapper(True, dropout)
    assert [m.p for m in wrap.modules() if isinstance(m, nn.Dropout)] == [dropout]
    x, ones = torch.randn(20, 30, D_MODEL).double(), torch.ones(20, 30, D_MODEL).double()
    assert_close(wrap.eval()(x, torch.ones_like), x + 1)
    added = wrap.train()(x, torch.ones_like) - x  # x itself is never dropped
    dropped = added.abs() < 1e-9
    assert_close(added, (ones / (1 - dropout)).masked_fill(dropped, 0.0))
    assert dropped.double().mean().item() == pytest.approx(dropout, abs=0.03)
    post = AddNorm(D_MODEL, dropout).double().train()
    first, second = post(x, torch.ones_like), post(x, torch.ones_like)
    assert torch.equal(first, second) == (dropout == 0)
    assert first.mean(-1).abs().max() < 1e-9  # the norm comes last, nothing is dropped behind it
    assert torch.equal(post.eval()(x, torch.ones_like), post(x, torch.ones_like))


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize(
    "sublayer, error, message",
    [
        (lambda v: v[:1], ValueError, r"keep the shape \(2, 3, 8\), it returned \(1, 3, 8\)"),
        (lambda v: v[:, :1], ValueError, r"keep the shape \(2, 3, 8\), it returned \(2, 1, 8\)"),
        (lambda v: v.sum(), ValueError, r"keep the shape \(2, 3, 8\), it returned \(\)"),
        (lambda v: None, TypeError, "Tensor"),
        ("attention", TypeError, "sublayer"),
    ],
)
def test_a_sublayer_that_would_be_broadcast_or_is_none_is_refused(
    sublayer, error, message, norm_first
):
    with pytest.raises(error, match=message):
        AddNorm(D_MODEL, norm_first=norm_first)(torch.zeros(BATCH, LENGTH, D_MODEL), sublayer)


@pytest.mark.parametrize(
    "build, error, message",
    [
        (lambda: LayerNorm(0), ValueError, "d_model must be at least 1, got 0"),
        (lambda: LayerNorm(8.0), TypeError, "d_model"),
        (lambda: LayerNorm(8, 0.0), ValueError, "eps must be positive, got 0.0"),
        (lambda: LayerNorm(8, -1e-5), ValueError, "eps must be positive, got -1e-05"),
        (lambda: LayerNorm(8, float("nan")), ValueError, "eps must be positive, got nan"),
        (lambda: AddNorm(0), ValueError, "d_model must be at least 1, got 0"),
        (lambda: AddNorm(8, 1.0), ValueError, r"dropout must lie in \[0, 1\), got 1.0"),
        (lambda: AddNorm(8, -0.1), ValueError, r"dropout must lie in \[0, 1\), got -0.1"),
        (lambda: AddNorm(8, "much"), TypeError, "dropout"),
    ],
)
def test_bad_arguments_are_refused(build, error, message):
    with pytest.raises(error, match=message):
        build()


@pytest.mark.parametrize("module", [LayerNorm(D_MODEL), AddNorm(D_MODEL)])
@pytest.mark.parametrize(
    "x, error, message",
    [
        (torch.zeros(2, 3, 7), ValueError, r"x must have last axis 8, got 7: \(2, 3, 7\)"),
        (torch.zeros(0, 3, 8), ValueError, r"x must not be empty, got shape \(0, 3, 8\)"),
        (torch.zeros(2, 0, 8), ValueError, r"x must not be empty, got shape \(2, 0, 8\)"),
        (torch.zeros(2, 3, 8, dtype=torch.int64), TypeError, "x must be a floating-point tensor"),
        ("x", TypeError, "x"),
    ],
)
def test_bad_vectors_are_refused(module, x, error, message):
    arguments = (x, torch.zeros_like) if isinstance(module, AddNorm) else (x,)
    with pytest.raises(error, match=message):
        module(*arguments)
