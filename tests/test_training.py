"""Training: the loss counts real tokens only, the rate is the paper's, a run can be repeated."""

import copy
import io
import itertools
import math
import signal
import sys
import threading

import pytest
import torch
import torch.nn.functional as F
from tiny_runs import (
    BATCHES,
    TGT_VOCAB,
    a_model,
    files_of,
    press_ctrl_c,
    random_batches,
    same,
    weights,
)
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.testing import assert_close

from tutorial_transformer.checkpoints import load_checkpoint, load_state
from tutorial_transformer.data import Batch
from tutorial_transformer.training import sequence_loss, train, warmup_schedule

BATCH, TGT_LEN, VOCAB = 3, 5, TGT_VOCAB


def logits_and_targets(dtype=torch.float64, pad_id=0, num_pads=4):
    logits = torch.randn(BATCH, TGT_LEN, VOCAB, dtype=dtype).requires_grad_()
    tgt_out = torch.randint(4, VOCAB, (BATCH, TGT_LEN))
    tgt_out.view(-1)[torch.randperm(BATCH * TGT_LEN)[:num_pads]] = pad_id
    return logits, tgt_out


# The loss.


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.4])
@pytest.mark.parametrize("pad_id", [0, 3, -100])
@pytest.mark.parametrize("num_pads", [0, 4, BATCH * TGT_LEN - 1])
def test_the_loss_is_the_mean_cross_entropy_of_the_real_tokens(
    dtype, label_smoothing, pad_id, num_pads
):
    logits, tgt_out = logits_and_targets(dtype, pad_id, num_pads)
    loss = sequence_loss(logits, tgt_out, pad_id, label_smoothing)
    (gradient,) = torch.autograd.grad(loss, logits)
    wide = torch.promote_types(dtype, torch.float32)
    theirs = F.cross_entropy(
        logits.to(wide).flatten(0, 1),
        tgt_out.flatten(),
        ignore_index=pad_id,
        label_smoothing=label_smoothing,
    )
    assert_close(loss, theirs)
    assert_close(gradient, torch.autograd.grad(theirs, logits)[0])
    assert (gradient[tgt_out == pad_id] == 0).all()
    assert (gradient[tgt_out != pad_id] != 0).any(dim=-1).all()
    nats = []  # and the definition, token by token
    for row, target in zip(logits.detach().double().flatten(0, 1), tgt_out.flatten(), strict=True):
        if target != pad_id:
            log_p = [float(x - row.exp().sum().log()) for x in row]
            smooth = -label_smoothing / VOCAB * sum(log_p)
            nats.append(smooth - (1 - label_smoothing) * log_p[target])
    assert loss.item() == pytest.approx(sum(nats) / len(nats), rel=1e-5)


def test_perfect_logits_cost_nothing_and_equal_logits_cost_ln_v():
    _, tgt_out = logits_and_targets()
    perfect = 50.0 * F.one_hot(tgt_out, VOCAB).double()
    assert sequence_loss(perfect, tgt_out) < 1e-6
    assert sequence_loss(perfect.softmax(-1), tgt_out) > 1  # a softmax too many would show
    for constant in (0.0, -30.0, 1e4):
        flat = torch.full_like(perfect, constant)
        assert sequence_loss(flat, tgt_out).item() == pytest.approx(math.log(VOCAB))


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_a_constant_added_to_the_logits_changes_nothing(label_smoothing):
    logits, tgt_out = logits_and_targets()
    loss = sequence_loss(logits, tgt_out, 0, label_smoothing)
    shift = 100 * torch.randn(BATCH, TGT_LEN, 1).double()
    assert_close(sequence_loss(logits + shift, tgt_out, 0, label_smoothing), loss)
    assert not torch.isclose(sequence_loss(2 * logits, tgt_out, 0, label_smoothing), loss)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("pads", [(0, 1), (0, 7), (3, 0), (0, 0, 0, 2), (1, 2, 1, 0)])
def test_pads_appended_before_behind_and_as_rows_leave_the_loss_alone(pads, label_smoothing):
    logits, tgt_out = logits_and_targets()
    loss = sequence_loss(logits, tgt_out, 0, label_smoothing)
    longer = F.pad(logits, (0, 0, *pads), value=9.0)
    more_pads, real = (F.pad(tgt_out, pads, value=value) for value in (0, 5))
    assert_close(sequence_loss(longer, more_pads, 0, label_smoothing), loss, rtol=1e-14, atol=0)
    assert not torch.isclose(sequence_loss(longer, real, 0, label_smoothing), loss)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_a_batch_of_pads_only_has_loss_zero_and_a_zero_gradient(dtype, label_smoothing):
    logits, tgt_out = logits_and_targets(dtype, num_pads=BATCH * TGT_LEN)
    loss = sequence_loss(logits, tgt_out, 0, label_smoothing)
    loss.backward()
    assert loss.item() == 0 and torch.equal(logits.grad, torch.zeros_like(logits))
    assert sequence_loss(logits, tgt_out.fill_(4), 0, label_smoothing) > 0


def test_smoothing_puts_its_mass_on_all_classes():
    logits = torch.arange(5.0).view(1, 1, 5).requires_grad_()
    loss = sequence_loss(logits, torch.tensor([[2]]), label_smoothing=0.4)
    loss.backward()
    target = logits.softmax(-1) - logits.grad  # the gradient is softmax minus target
    assert_close(target.flatten(), torch.tensor([0.08, 0.08, 0.68, 0.08, 0.08]))
    assert loss.item() == pytest.approx(2.45191, abs=1e-5)
    assert sequence_loss(logits, torch.tensor([[2]]).int(), label_smoothing=0.4) == loss
    assert sequence_loss(logits, torch.tensor([[4]]), label_smoothing=0.4) != loss


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_micro_batches_weighted_by_their_tokens_equal_one_batch(label_smoothing):
    model, (src, tgt_in, tgt_out) = a_model(), random_batches((6, 5, 4))[0]
    for row, length in enumerate([4, 1, 2, 2, 3, 4]):
        src[row, length + 1 :], tgt_in[row, length:], tgt_out[row, length:] = 0, 0, 0

    def loss_of(rows, length):
        logits = model(src[rows, : length + 1], tgt_in[rows, :length])
        return sequence_loss(logits, tgt_out[rows, :length], 0, label_smoothing)

    parts = [(slice(0, 1), 4), (slice(1, 4), 2), (slice(4, 6), 4)]  # each as short as it can be
    losses = torch.stack([loss_of(rows, length) for rows, length in parts])
    tokens = torch.tensor([(tgt_out[rows] != 0).sum().item() for rows, _ in parts]).double()
    weighted = (losses * tokens).sum() / tokens.sum()
    whole = loss_of(slice(0, 6), 4)
    assert_close(weighted, whole)
    for ours, theirs in zip(
        torch.autograd.grad(weighted, model.parameters(), retain_graph=True),
        torch.autograd.grad(whole, model.parameters()),
        strict=True,
    ):
        assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    assert not torch.isclose(losses.mean(), whole)  # tokens, not batches, have equal weight


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
@pytest.mark.parametrize("cuts", [(0, 6), (0, 3, 6), (0, 1, 5, 6), (0, 1, 2, 3, 4, 5, 6)])
def test_parts_divided_by_the_tokens_of_the_whole_add_up_to_it(cuts, label_smoothing):
    logits = torch.randn(6, TGT_LEN, VOCAB, dtype=torch.float64).requires_grad_()
    tgt_out = torch.randint(4, VOCAB, (6, TGT_LEN))
    for row, length in enumerate([5, 1, 2, 0, 3, 4]):
        tgt_out[row, length:] = 0
    whole = sequence_loss(logits, tgt_out, 0, label_smoothing)

    def added_up(*num_tokens):
        pieces = [slice(*cut) for cut in itertools.pairwise(cuts)]
        return sum(
            sequence_loss(logits[piece], tgt_out[piece], 0, label_smoothing, *num_tokens)
            for piece in pieces
        )

    parts = added_up(15)
    assert_close(parts, whole, rtol=1e-12, atol=0)
    ours, theirs = (torch.autograd.grad(loss, logits)[0] for loss in (parts, whole))
    assert_close(ours, theirs, rtol=0, atol=1e-12)
    assert_close(added_up(30), whole / 2)
    assert len(cuts) == 2 or not torch.isclose(added_up() / (len(cuts) - 1), whole)


ZEROS, ONES = torch.zeros(2, 3, VOCAB), torch.ones(2, 3, dtype=torch.int64)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((ZEROS, ONES[:, :2]), ValueError, r"tgt_out of shape \(2, 3\), got \(2, 2\)"),
        ((ZEROS, ONES[:1]), ValueError, r"tgt_out of shape \(2, 3\), got \(1, 3\)"),
        ((ZEROS[0], ONES), ValueError, r"logits must have 3 axes, got shape \(3, 7\)"),
        ((ZEROS[:0], ONES), ValueError, r"logits must not be empty, got shape \(0, 3, 7\)"),
        ((ZEROS, ONES[:, :0]), ValueError, r"tgt_out must have shape .* got \(2, 0\)"),
        ((ZEROS.long(), ONES), TypeError, "logits must be a floating-point tensor"),
        ((ZEROS, ONES.double()), TypeError, "tgt_out must hold integer ids"),
        ((ZEROS, ONES * 7), ValueError, "tgt_out holds id 7, but the vocabulary has 7 entries"),
        ((ZEROS, -ONES), ValueError, "tgt_out holds id -1, but the vocabulary has 7 entries"),
        ((ZEROS, ONES, 0, 1.0), ValueError, r"label_smoothing must lie in \[0, 1\), got 1.0"),
        ((ZEROS, ONES, 0, 0.0, 0), ValueError, "num_tokens must be at least 1, got 0"),
        ((ZEROS, ONES, 0, -0.1), ValueError, r"label_smoothing must lie in \[0, 1\), got -0.1"),
    ],
)
def test_the_loss_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        sequence_loss(*arguments)


# The learning rate.


@pytest.mark.parametrize(("d_model", "warmup"), [(512, 4000), (64, 400), (7, 3), (5, 1)])
def test_the_schedule_is_the_papers_formula(d_model, warmup):
    for step in (1, 2, warmup, 4 * warmup):
        rising, falling = step / warmup / math.sqrt(warmup), 1 / math.sqrt(step)
        paper = min(rising, falling) / math.sqrt(d_model)
        assert warmup_schedule(step, d_model, warmup) == pytest.approx(paper, rel=1e-12)
        assert paper > 0
    peak = warmup_schedule(warmup, d_model, warmup)
    assert peak == pytest.approx((d_model * warmup) ** -0.5)
    assert warmup_schedule(4 * warmup, d_model, warmup) == pytest.approx(peak / 2)
    around = (max(1, warmup // 2), warmup, warmup + 1, 9 * warmup)
    assert max(around, key=lambda step: warmup_schedule(step, d_model, warmup)) == warmup


def test_the_schedule_in_numbers():
    rates = [warmup_schedule(step, 512) for step in (1, 2, 4000, 16000)]
    assert rates == pytest.approx([1.7469e-7, 3.4939e-7, 6.9877e-4, 3.4939e-4], rel=1e-4)


@pytest.mark.parametrize("name", ["step", "d_model", "warmup_steps"])
def test_the_schedule_refuses_step_zero_and_a_warm_up_of_zero(name):
    right = {"step": 1, "d_model": 8, "warmup_steps": 4}
    for value in (0, -2):
        with pytest.raises(ValueError, match=f"{name} must be at least 1, got {value}"):
            warmup_schedule(**(right | {name: value}))
    with pytest.raises(TypeError, match=name):
        warmup_schedule(**(right | {name: 1.5}))


# The loop.


def run(model, num_steps=4, **changes):
    return train(model, BATCHES, num_steps, **({"progress": "none", "warmup_steps": 3} | changes))


@pytest.mark.parametrize(("clip_norm", "max_lr"), [(1.0, None), (0.1, 0.02), (1e9, 0.01)])
def test_training_is_adam_on_the_clipped_gradient_at_the_scheduled_rate(clip_norm, max_lr):
    model, batch = a_model(), BATCHES[:1]
    by_hand = copy.deepcopy(model)
    history = train(model, batch, 5, 3, max_lr, 0.1, clip_norm, progress="none")
    adam = torch.optim.Adam(by_hand.parameters(), betas=(0.9, 0.98), eps=1e-9)
    scale = 1 if max_lr is None else max_lr / (8 * 3) ** -0.5
    for step in range(1, 6):
        adam.zero_grad()
        loss = sequence_loss(by_hand(*batch[0][:2]), batch[0].tgt_out, 0, 0.1)
        loss.backward()
        norm = math.sqrt(sum(float(p.grad.square().sum()) for p in by_hand.parameters()))
        for parameter in by_hand.parameters():
            parameter.grad *= min(1, clip_norm / norm)
        adam.param_groups[0]["lr"] = lr = scale * warmup_schedule(step, 8, 3)
        adam.step()
        seen = (
            history.loss[step - 1],
            history.learning_rate[step - 1],
            history.grad_norm[step - 1],
        )
        assert seen == pytest.approx((loss.item(), lr, norm), rel=1e-6) and lr > 0
    assert max_lr is None or max(history.learning_rate) == pytest.approx(max_lr)
    for ours, theirs in zip(model.parameters(), by_hand.parameters(), strict=True):
        assert_close(ours, theirs, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("clip_norm", "applied"), [(1.0, [0.6, 0.8]), (10.0, [3.0, 4.0])])
def test_a_gradient_of_3_and_4_is_clipped_to_the_length_asked_for(clip_norm, applied):
    model, at_step = a_model(), []
    for name, parameter in model.named_parameters():
        wanted = torch.zeros_like(parameter)
        if name == "output_proj.bias":
            wanted[3:5] = torch.tensor([3.0, 4.0])
        parameter.register_hook(lambda _, wanted=wanted: wanted)

    def look(optimizer, *_):
        at_step.append((optimizer.param_groups[0]["lr"], model.output_proj.bias.grad[3:5].clone()))

    handle = register_optimizer_step_pre_hook(look)
    try:
        before = weights(model)
        history = run(model, 1, clip_norm=clip_norm)
    finally:
        handle.remove()
    [(lr, gradient)] = at_step
    assert_close(gradient, torch.tensor(applied).double(), rtol=0, atol=2e-6)
    assert history.grad_norm == [5.0]
    assert lr == history.learning_rate[0] == warmup_schedule(1, 8, 3) > 0
    assert not same(weights(model), before)  # the first step is not lost


def test_a_seed_repeats_the_run_and_the_callers_random_numbers_go_on_undisturbed():
    models = [a_model(dropout=0.3)]
    models += [copy.deepcopy(models[0]) for _ in range(3)]
    state = torch.get_rng_state()
    first = run(models[0], seed=5)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(3)  # whatever the caller drew before
    assert run(models[1], seed=5) == first and same(weights(models[0]), weights(models[1]))
    assert run(models[2], seed=6) != first and not same(weights(models[0]), weights(models[2]))
    assert train(models[3], BATCHES, 4, 3, progress="none") != first
    with pytest.raises(ZeroDivisionError):
        state = torch.get_rng_state()
        run(models[0], score=lambda model: 1 / 0, score_every=1)
    assert torch.equal(torch.get_rng_state(), state)


def test_every_batch_comes_once_a_round_in_a_new_order_and_in_train_mode():
    model, seen = a_model(), []
    lengths = [batch.src.shape[1] for batch in BATCHES]

    def look(module, arguments):
        assert module.training and module.encoder.training
        seen.append(arguments[0].shape[1])

    model.register_forward_pre_hook(look)
    model.eval()
    run(model, 15)
    rounds = [seen[start : start + 3] for start in range(0, 15, 3)]
    assert all(sorted(one) == sorted(lengths) for one in rounds)
    assert len({tuple(one) for one in rounds}) > 1
    assert not any(module.training for module in model.modules())  # the mode is put back


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_loss_or_gradient_that_is_not_finite_never_reaches_the_weights(bad, where):
    model, calls = a_model(), []
    clean = copy.deepcopy(model)
    run(clean, 2)

    def spoil(*arguments):
        calls.append(1)
        return arguments[-1] * bad if len(calls) == 3 else None

    if where == "loss":
        model.register_forward_hook(spoil)
    else:
        model.output_proj.weight.register_hook(spoil)
    state = torch.get_rng_state()
    with pytest.raises(FloatingPointError, match=rf"{where}.* is (nan|inf) at step 3"):
        run(model, 5)
    assert same(weights(model), weights(clean))
    assert torch.equal(torch.get_rng_state(), state)
    assert not same(weights(model), weights(a_model()))


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("progress", ["none", "lines", "bar", "auto"])
@pytest.mark.parametrize("terminal", [True, False])
def test_progress_goes_where_it_can_be_read(progress, terminal, monkeypatch, capsys):
    stderr = Terminal() if terminal else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stderr)
    run(a_model(), 13, progress=progress)
    out, bar = capsys.readouterr().out, stderr.getvalue()
    shown = ("bar" if terminal else "lines") if progress == "auto" else progress
    assert bool(bar) == (shown == "bar") and bool(out) == (shown == "lines")
    assert "13/13" in bar or shown != "bar"


@pytest.mark.parametrize("num_steps", [1, 7, 8, 9, 17, 41])
def test_lines_are_one_to_ten_and_each_names_step_and_loss(num_steps, capsys):
    history = run(a_model(), num_steps, progress="lines")
    lines = capsys.readouterr().out.splitlines()
    assert 1 <= len(lines) <= 10
    for line in lines:
        word, step, name, loss = line.split()
        assert (word, name) == ("step", "loss") and loss == f"{history.loss[int(step) - 1]:.3f}"


def test_the_score_is_asked_for_every_so_many_steps_of_the_model_as_it_then_is():
    model, calls = a_model(), []

    def score(scored):
        assert scored is model
        scored.eval()  # whatever it does to the mode, training goes on in train mode
        calls.append(float(scored.output_proj.bias.detach().sum()))
        return calls[-1]

    history = run(model, 8, score=score, score_every=3)
    assert history.scored_at == [3, 6] and history.scores == calls
    assert len(set(calls)) == 2 and len(history.loss) == 8 and model.training


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"batches": []}, ValueError, "batches must not be empty"),
        ({"num_steps": 0}, ValueError, "num_steps must be at least 1, got 0"),
        ({"num_steps": 2.0}, TypeError, "num_steps"),
        ({"warmup_steps": 0}, ValueError, "warmup_steps must be at least 1, got 0"),
        ({"score_every": 0}, ValueError, "score_every must be at least 1, got 0"),
        ({"clip_norm": 0.0}, ValueError, "clip_norm must be positive, got 0.0"),
        ({"clip_norm": math.nan}, ValueError, "clip_norm must be positive, got nan"),
        ({"max_lr": -0.1}, ValueError, "max_lr must be positive, got -0.1"),
        ({"max_lr": math.inf}, ValueError, "max_lr must be positive, got inf"),
        ({"seed": "two"}, TypeError, "seed"),
        ({"micro_batches": 0}, ValueError, "micro_batches must be at least 1, got 0"),
        ({"checkpoint_every": 0}, ValueError, "checkpoint_every must be at least 1, got 0"),
        ({"precision": "half"}, ValueError, "precision must be 'full' or 'bfloat16', got 'half'"),
        ({"precision": "bfloat16"}, ValueError, "needs float32 weights, the model has .*float64"),
        ({"resume": True}, ValueError, "resume=True needs the folder"),
        ({"label_smoothing": 1.0}, ValueError, r"label_smoothing must lie in \[0, 1\), got 1.0"),
        ({"progress": "loud"}, ValueError, "progress must be 'auto', .* got 'loud'"),
    ],
)
def test_training_refuses_and_leaves_the_weights_alone(changes, error, message):
    model = a_model()
    before = weights(model)
    with pytest.raises(error, match=message):
        train(model, **({"batches": BATCHES, "num_steps": 2} | changes))
    assert same(weights(model), before)


# Batches, whole and in parts.


def test_a_batch_moves_to_another_device_whole():
    batch = BATCHES[0]
    there = batch.to("meta")
    assert isinstance(there, Batch) and {ids.device.type for ids in there} == {"meta"}
    assert [ids.shape for ids in there] == [ids.shape for ids in batch]
    assert same(batch.to(torch.device("cpu")), batch) and batch.src.device.type == "cpu"


@pytest.mark.parametrize("pad_id", [0, 5])
@pytest.mark.parametrize("parts", [1, 2, 3, 4, 7])
def test_the_parts_of_a_batch_hold_every_row_once_and_no_part_is_empty(parts, pad_id):
    (batch,) = random_batches((4, 5, 3))
    before = [ids.clone() for ids in batch]
    shares = batch.split(parts, pad_id)
    assert len(shares) == parts and all(isinstance(share, Batch) for share in shares)
    for side in range(3):
        rows = [tuple(row.tolist()) for share in shares[:4] for row in share[side]]
        assert sorted(rows) == sorted(tuple(row.tolist()) for row in batch[side])
    sizes = [len(share.src) for share in shares]
    assert max(sizes[:4]) - min(sizes[:4]) <= 1 and sizes[4:] == [1] * (parts - 4)
    for filler in shares[4:]:  # something to compute that adds nothing
        assert (filler.tgt_out == pad_id).all() and filler.tgt_in.shape == (1, 3)
        assert same(filler[:2], (batch.src[:1], batch.tgt_in[:1]))
    assert same(batch, before)
    with pytest.raises(ValueError, match="parts must be at least 1, got 0"):
        batch.split(0)


@pytest.mark.parametrize("micro_batches", [2, 3, 50])
def test_micro_batches_change_nothing_but_the_memory(micro_batches):
    models = [a_model() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    whole = run(models[0], label_smoothing=0.1)
    rows = []
    models[1].register_forward_pre_hook(lambda _, arguments: rows.append(len(arguments[0])))
    parts = run(models[1], label_smoothing=0.1, micro_batches=micro_batches)
    for name, values in vars(whole).items():
        assert vars(parts)[name] == pytest.approx(values, rel=1e-10), name
    for ours, theirs in zip(weights(models[1]), weights(models[0]), strict=True):
        assert_close(ours, theirs, rtol=0, atol=1e-9)
    assert max(rows) == {2: 2, 3: 2, 50: 1}[micro_batches]
    assert len(rows) <= 4 * micro_batches and len(rows) <= 13  # no more parts than rows


def test_bfloat16_computes_in_half_and_keeps_everything_in_float32(tmp_path):
    full, half = a_model(dtype=torch.float32), a_model(dtype=torch.float32)
    half.load_state_dict(full.state_dict())
    wide, dtypes = run(full), set()
    half.output_proj.register_forward_hook(lambda *arguments: dtypes.add(arguments[-1].dtype))
    narrow = run(half, precision="bfloat16", folder=tmp_path)
    assert dtypes == {torch.bfloat16}
    assert narrow.loss == pytest.approx(wide.loss, rel=0.02) and narrow.loss != wide.loss
    found = load_checkpoint(tmp_path)
    for model in (half, found.model):
        assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
        assert {parameter.grad.dtype for parameter in half.parameters()} == {torch.float32}
    kept = {tensor.dtype for name, tensor in found.state.tensors.items() if "history" not in name}
    assert kept == {torch.float32}
    rounded = [weight.bfloat16().float() for weight in weights(half)]
    assert not same(rounded, weights(half))  # the weights have more digits than bfloat16


# Stop and go on.

VARIANTS = [
    {"dropout": 0.3},
    {"dropout": 0.3, "norm_first": True, "dtype": torch.float32},
    {"dropout": 0.1, "tie_embeddings": True, "tgt_vocab": 9},
]
STOPS = [(1,), (2,), (3,), (5,), (8,), (1, 3), (2, 6)]


def to_the_end(folder, model, num_steps=8, **changes):
    options = {"score": lambda model: 0.5, "score_every": 1, "folder": folder, "resume": True}
    return run(model, num_steps, **(options | changes))


@pytest.mark.parametrize(
    ("variant", "stops"),
    [(VARIANTS[0], stops) for stops in STOPS]
    + [(variant, stops) for variant in VARIANTS[1:] for stops in STOPS[1::3]],
)
def test_a_run_that_was_stopped_anywhere_ends_with_the_very_weights(tmp_path, stops, variant):
    untouched = a_model(**variant)
    start = copy.deepcopy(untouched.state_dict())
    wanted = to_the_end(tmp_path / "whole", untouched)
    done = 0
    for stop in stops:
        model = a_model(**variant)
        model.load_state_dict(start)
        with pytest.raises(KeyboardInterrupt):
            to_the_end(tmp_path / "cut", model, score=press_ctrl_c(stop - done))
        state, done = load_state(tmp_path / "cut"), stop
        assert state.step == stop and len(state.tensors["history.loss"]) == stop
        assert same(weights(load_checkpoint(tmp_path / "cut").model), weights(model))
        assert stop == 8 or not same(weights(model), weights(untouched))
    model = a_model(**variant)  # other weights: the file's count
    assert to_the_end(tmp_path / "cut", model) == wanted
    assert same(weights(model), weights(untouched))
    states = [load_state(tmp_path / name).tensors for name in ("whole", "cut")]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert any((states[0][name] != 0).any() for name in states[0] if "exp_avg" in name)


def test_a_run_goes_on_past_the_steps_first_asked_for_and_from_the_last_checkpoint(tmp_path):
    models = [a_model(dropout=0.3) for _ in range(4)]
    for model in models[1:]:
        model.load_state_dict(models[0].state_dict())
    wanted = to_the_end(None, models[0], resume=False)
    assert to_the_end(tmp_path / "new", models[1], 3).loss == wanted.loss[:3]  # nothing there yet
    assert to_the_end(tmp_path / "new", models[1], 8) == wanted
    assert to_the_end(tmp_path / "new", models[2], 8) == wanted  # nothing left to do
    assert all(same(weights(model), weights(models[0])) for model in models[:3])
    with pytest.raises(ValueError, match=r"num_steps=5, but .* holds 8 steps"):
        to_the_end(tmp_path / "new", models[3], 5)
    losses = iter([1, 1, 1, 1, 0])
    with pytest.raises(ZeroDivisionError):  # a crash in step 5 loses what came after step 4
        to_the_end(
            tmp_path / "crash", models[3], score=lambda _: 0.5 / next(losses), checkpoint_every=2
        )
    assert load_state(tmp_path / "crash").step == 4
    assert to_the_end(tmp_path / "crash", models[3], checkpoint_every=3) == wanted
    assert same(weights(models[3]), weights(models[0]))


def test_a_frozen_part_stays_frozen_and_a_wide_default_dtype_changes_nothing(tmp_path):
    model = a_model(dropout=0.3)
    model.src_embedding.weight.requires_grad_(False)
    start = copy.deepcopy(model)
    wanted = to_the_end(tmp_path / "whole", model)
    other = copy.deepcopy(start)
    to_the_end(tmp_path / "cut", other, 3)
    torch.set_default_dtype(torch.float64)
    try:
        assert to_the_end(tmp_path / "cut", other) == wanted
    finally:
        torch.set_default_dtype(torch.float32)
    assert same(weights(other), weights(model))
    assert torch.equal(model.src_embedding.weight, start.src_embedding.weight)


@pytest.mark.parametrize(
    ("changes", "variant", "message"),
    [
        ({"warmup_steps": 4}, {}, "another warmup_steps: 3, now 4"),
        ({"max_lr": 0.5}, {}, "another max_lr: None, now 0.5"),
        ({"label_smoothing": 0.1}, {}, "another label_smoothing: 0.0, now 0.1"),
        ({"clip_norm": 2.0}, {}, "another clip_norm: 1.0, now 2.0"),
        ({"seed": 1}, {}, "another seed: 0, now 1"),
        ({"precision": "bfloat16"}, {}, "another precision: full, now bfloat16"),
        ({"batches": BATCHES[:2]}, {}, "another batches"),
        ({"batches": BATCHES[::-1]}, {}, "another batches"),
        ({"batches": [BATCHES[0]._replace(src=BATCHES[0].src + 1), *BATCHES[1:]]}, {}, "batches"),
        ({}, {"d_model": 4}, "another d_model: 8, now 4"),
        ({}, {"num_heads": 4}, "another num_heads: 2, now 4"),
        ({}, {"num_layers": 2}, "another num_layers: 1, now 2"),
        ({}, {"dropout": 0.2}, "another dropout: 0.0, now 0.2"),
        ({}, {"norm_first": True}, "another norm_first: False, now True"),
        ({}, {"max_len": 13}, "another max_len: 12, now 13"),
        ({}, {"tgt_vocab": 8}, "another tgt_vocab_size: 7, now 8"),
        ({}, {"dtype": torch.float64}, "another dtype: torch.float32, now torch.float64"),
    ],
)
def test_a_run_does_not_go_on_as_another_one(tmp_path, changes, variant, message):
    options = {"batches": BATCHES, "num_steps": 2, "warmup_steps": 3, "progress": "none"}
    train(a_model(dtype=torch.float32), **options, folder=tmp_path)
    files, model = files_of(tmp_path), a_model(**({"dtype": torch.float32} | variant))
    before = weights(model)
    for resume, refusal in ((True, message), (False, "holds a training run; resume=True goes on")):
        with pytest.raises(ValueError, match=refusal):
            train(model, **(options | changes), folder=tmp_path, resume=resume)
        assert files_of(tmp_path) == files and same(weights(model), before)
    (tmp_path / "training.safetensors").unlink()
    with pytest.raises(ValueError, match="holds a model, but no run that could go on"):
        train(model, **(options | changes), folder=tmp_path, resume=True)


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, None])
@pytest.mark.parametrize("in_thread", [False, True])
def test_modes_and_the_ctrl_c_handler_are_put_back(error, in_thread):
    model, handler, came = a_model(), signal.getsignal(signal.SIGINT), []
    model.eval()
    model.decoder.train()
    modes = [module.training for module in model.modules()]

    def score(model):
        inside = signal.getsignal(signal.SIGINT)
        assert (inside is handler) == in_thread and model.encoder.training
        if error is not None:
            raise error
        return 0.5

    def work():
        try:
            run(model, 2, score=score, score_every=1)
        except BaseException as caught:
            came.append(type(caught))

    if in_thread:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    else:
        work()
    assert came == ([] if error is None else [error])
    assert [module.training for module in model.modules()] == modes
    assert signal.getsignal(signal.SIGINT) is handler


def test_ctrl_c_stops_a_run_without_a_folder_too():
    model, twin = a_model(), a_model()
    twin.load_state_dict(model.state_dict())
    with pytest.raises(KeyboardInterrupt):
        run(model, 9, score=press_ctrl_c(3), score_every=1)
    run(twin, 3)
    assert same(weights(model), weights(twin))  # the step was finished, and none begun


def test_the_bar_starts_at_the_step_of_the_checkpoint(tmp_path, monkeypatch):
    to_the_end(tmp_path, a_model(), 5)
    monkeypatch.setattr(sys, "stderr", Terminal())
    to_the_end(tmp_path, a_model(), progress="bar")
    bar = sys.stderr.getvalue()
    assert "5/8" in bar and "8/8" in bar and "0/8" not in bar and "4/8" not in bar
