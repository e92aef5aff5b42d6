"""What stands around the steps: progress, Ctrl-C, modes, and several processes as one."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading

import pytest
import torch
from tiny_runs import a_model, random_batches, same, weights
from torch.testing import assert_close

from tutorial_transformer._running import (
    Progress,
    finish_the_step,
    join_processes,
    put_back_modes,
)
from tutorial_transformer.checkpoints import load_checkpoint, load_state
from tutorial_transformer.training import train

# Progress.


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("kind", ["auto", "bar", "lines", "none"])
def test_progress_goes_on_where_the_run_does(kind, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Progress(kind, 20, done=13) as report:
        for step in range(14, 21):
            report(step, step / 8)
    out, bar = capsys.readouterr().out, sys.stderr.getvalue()
    assert out.splitlines() == (
        [f"step {step:5d}   loss {step / 8:.3f}" for step in (14, 16, 18, 20)]
        if kind == "lines"
        else []
    )
    assert bool(bar) == (kind in ("auto", "bar"))
    if bar:
        assert "13/20" in bar and "20/20" in bar and "0/20 " not in bar.replace("20/20", "")
        assert "loss=2.500" in bar


def test_progress_refuses_an_unknown_kind():
    with pytest.raises(ValueError, match=r"progress must be 'auto', .* got 'loud'"):
        Progress("loud", 3)


# Ctrl-C.


@pytest.fixture
def ctrl_c_raises():
    """Python's own handler, which a process started in the background does not have."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_waits_and_the_handler_comes_back(ctrl_c_raises):
    before = signal.getsignal(signal.SIGINT)
    with finish_the_step() as came:
        assert not came()
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert came()
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError), finish_the_step() as came:
        assert not came()  # the last one is forgotten
        raise ZeroDivisionError
    assert signal.getsignal(signal.SIGINT) is before


def test_another_thread_leaves_the_handler_alone():
    seen = []

    def work():
        with finish_the_step() as came:
            seen.extend([signal.getsignal(signal.SIGINT), came()])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT), False]


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
def test_each_module_gets_its_own_mode_back(error):
    model = a_model()
    model.eval()
    model.encoder.train()
    modes = [module.training for module in model.modules()]
    for change in (model.train, model.eval):
        with pytest.raises(error), put_back_modes(model):
            change()
            raise error
        assert [module.training for module in model.modules()] == modes
    assert True in modes and False in modes


# Several processes.


def test_a_process_without_torchrun_is_alone(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert join_processes(torch.device("cpu")) == (0, 1)
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert join_processes(torch.device("cpu")) == (0, 1)


# Unequal on purpose: the shares of two processes have other numbers of tokens, two batches have
# one row only, and one has as many rows as there can be parts.
SIZES = [(5, 5, 6), (1, 4, 6), (4, 3, 2), (1, 3, 4), (3, 6, 5)]

SCRIPT = """
import json, os, signal, sys
from pathlib import Path

import torch
import tutorial_transformer.checkpoints as checkpoints
from tiny_runs import a_model, press_ctrl_c, random_batches, weights
from tutorial_transformer.training import train

torch.set_num_threads(1)
folder, rank, seen = Path(sys.argv[1]), int(os.environ["RANK"]), {}
batches = random_batches(*json.loads(sys.argv[2]))
writes, replace = [], os.replace
checkpoints.os.replace = lambda *names: (writes.append(str(names[1])), replace(*names))


def run(name, num_steps=7, model=None, hook=None, **options):
    torch.manual_seed(0 if rank == 0 else 99)  # the first process's weights are everybody's
    model = model or a_model(dropout=options.pop("dropout", 0.0))
    if hook is not None:
        model.register_forward_hook(hook)
    options = {"folder": folder / name, "checkpoint_every": 3} | options
    try:
        history = vars(train(model, batches, num_steps, 3, 0.01, progress="bar", **options))
    except (FloatingPointError, KeyboardInterrupt) as error:
        history = f"{type(error).__name__} {error}"
    seen[name] = {"history": history, "weights": [weight.tolist() for weight in weights(model)]}


run("one")
run("two", micro_batches=2, label_smoothing=0.1)
run("many", micro_batches=9)
run("nan", hook=lambda _, arguments, output: output * float("nan") if rank == 1 else None)
seeds = []
run("whole", dropout=0.3, score=lambda model: seeds.append(torch.initial_seed()) or 0.5,
    score_every=1)
seen["seeds"] = seeds
stop = press_ctrl_c(3) if rank == 1 else lambda model: 0.5
run("cut", dropout=0.3, score=stop, score_every=1)
run("cut, and on", dropout=0.3, score=lambda model: 0.5, score_every=1,
    folder=folder / "cut", resume=True)
run("part", num_steps=4)
seen["writes"] = len(writes)
(folder / f"{rank}.json").write_text(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    """What two processes made, with the folder of their checkpoints."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "script.py").write_text(SCRIPT, encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    process = subprocess.Popen(
        [*command, str(folder / "script.py"), str(folder), json.dumps(SIZES)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        _, errors = process.communicate(timeout=240)
    finally:
        process.terminate()  # and its children with it
        process.wait()
    assert process.returncode == 0, errors
    ranks = [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]
    return folder, ranks, errors


MORE = {"warmup_steps": 3, "max_lr": 0.01, "progress": "none"}


def one_process(**options):
    torch.manual_seed(0)
    model = a_model()
    options = {"num_steps": 7} | options
    return model, vars(train(model, random_batches(*SIZES), **MORE, **options))


@pytest.mark.parametrize(
    ("name", "options"),
    [("one", {}), ("two", {"label_smoothing": 0.1}), ("many", {})],
)
def test_two_processes_learn_what_one_learns(two_processes, name, options):
    _, ranks, _ = two_processes
    model, history = one_process(**options)
    for rank in ranks:
        for kind in ("loss", "grad_norm", "learning_rate"):
            assert rank[name]["history"][kind] == pytest.approx(history[kind], rel=1e-10)
        for ours, theirs in zip(rank[name]["weights"], weights(model), strict=True):
            assert_close(torch.tensor(ours, dtype=torch.float64), theirs, rtol=0, atol=1e-10)
    assert ranks[0][name] == ranks[1][name]
    other, _ = one_process(**options, num_steps=6)
    assert not same(weights(other), weights(model))


def test_only_the_first_process_writes_and_speaks(two_processes):
    _, ranks, errors = two_processes
    assert ranks[0]["writes"] > 20 and ranks[1]["writes"] == 0
    assert "7/7" in errors and errors.count("| 0/7 ") <= 7  # a bar for each run, not for each rank


def test_what_is_not_finite_on_one_share_stops_both(two_processes):
    folder, ranks, _ = two_processes
    for rank in ranks:
        assert re.fullmatch(r"FloatingPointError the .* is nan at step 1", rank["nan"]["history"])
        for ours, theirs in zip(rank["nan"]["weights"], weights(start()), strict=True):
            assert_close(torch.tensor(ours, dtype=torch.float64), theirs, rtol=0, atol=0)
    assert not (folder / "nan").exists()


def start():
    torch.manual_seed(0)
    return a_model()


def test_ctrl_c_on_one_of_them_stops_both_after_the_same_step_and_they_go_on(two_processes):
    folder, ranks, _ = two_processes
    for rank in ranks:
        assert rank["cut"]["history"] == "KeyboardInterrupt "
        assert rank["cut"]["weights"] != rank["whole"]["weights"]
        assert rank["cut, and on"] == rank["whole"]
        assert rank["whole"]["history"]["scored_at"] == [1, 2, 3, 4, 5, 6, 7]
    assert ranks[0]["cut"] == ranks[1]["cut"]
    assert len({seed for rank in ranks for seed in rank["seeds"]}) == 14  # never the same dropout
    assert load_state(folder / "cut").step == 7
    stopped = torch.tensor(ranks[0]["whole"]["history"]["loss"]).double()
    assert_close(load_state(folder / "cut").tensors["history.loss"], stopped, rtol=1e-6, atol=0)


def test_one_process_goes_on_with_what_two_began(two_processes):
    folder, _, _ = two_processes
    assert load_state(folder / "part").step == 4
    torch.manual_seed(5)
    resumed = a_model()
    train(resumed, random_batches(*SIZES), 7, **MORE, folder=folder / "part", resume=True)
    model, _ = one_process()
    for ours, theirs in zip(weights(resumed), weights(model), strict=True):
        assert_close(ours, theirs, rtol=0, atol=1e-10)
    assert same(weights(load_checkpoint(folder / "part").model), weights(resumed))
