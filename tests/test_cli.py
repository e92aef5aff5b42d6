"""The command line: a user's file in, translations out, and one line for every mistake."""

import io
import json
import subprocess
import sys

import matplotlib.image
import pytest
import torch

from tutorial_transformer import _commands
from tutorial_transformer.__main__ import main
from tutorial_transformer.training import load_checkpoint, train

PAIRS = [
    ("the cat sat", "die Katze saß"),
    ("the dog ran", "der Hund lief"),
    ("a cat", "eine Katze"),
]
TINY = "--d-model 16 --layers 1 --heads 2 --batch-size 4 --warmup 5 --max-lr 0.02 --dropout 0"


@pytest.fixture(autouse=True)
def no_news(monkeypatch):
    """Few test pairs, so that scoring a task takes no time."""
    monkeypatch.setattr(_commands, "NUM_PAIRS", {"dates": 40, "numbers": 40})
    monkeypatch.setattr(_commands, "NUM_TEST_PAIRS", 9)


def file_of(tmp_path, text=None):
    path = tmp_path / "my.tsv"
    text = "".join(f"{a}\t{b}\n" for a, b in PAIRS) if text is None else text
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def command(text, *more):
    return main([*text.split(), *map(str, more)])


def trained(tmp_path, *more, steps=60):
    out = tmp_path / "run"
    path = file_of(tmp_path)
    assert command(f"train {TINY} --steps {steps} --pairs", path, "--out", out, *more) == 0
    return out


@pytest.mark.parametrize("tokens", ["word", "character", "subword"])
def test_a_model_learns_a_file_by_heart_and_translates_it(tokens, tmp_path, capsys):
    out = trained(tmp_path, "--tokens", tokens, steps=120)
    capsys.readouterr()
    for how in ([], ["--beam", 3], ["--sample", "--temperature", 0], ["--sample", "--top-k", 1]):
        assert command("translate --model", out, *how, *(source for source, _ in PAIRS)) == 0
        assert capsys.readouterr().out.splitlines() == [target for _, target in PAIRS]
    assert command("evaluate --model", out, "--pairs", tmp_path / "my.tsv") == 0
    said = capsys.readouterr().out
    assert "exact match" in said and "100.0%" in said and "BLEU (sacrebleu, 13a)" in said
    assert {path.name for path in out.iterdir()} == {
        "config.json", "vocab.json", "model.safetensors", "training.safetensors", "options.json",
    }  # fmt: skip


def test_every_line_of_standard_input_has_its_line_of_output(tmp_path, capsys, monkeypatch):
    out = trained(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO("a cat\r\n\nthe dog ran\nthe dog ran\n"))
    capsys.readouterr()
    assert command("translate --model", out) == 0
    lines = capsys.readouterr().out.split("\n")
    assert len(lines) == 5 and lines[1] == lines[4] == "" and lines[2] == lines[3] != lines[0]


def test_an_unknown_word_is_named_and_a_text_that_is_too_long_refused(tmp_path, capsys):
    out = trained(tmp_path, "--max-len", 12, steps=3)
    capsys.readouterr()
    assert command("translate --model", out, "the horse sat") == 0
    assert capsys.readouterr().err == "note: never seen in training: horse\n"
    assert command("translate --model", out, "the cat " * 20) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: text 1 has 81 tokens") and "max_len is 12" in error
    path = file_of(tmp_path, "\nthe cat\tdie Katze\n" + "the cat " * 9 + "\tdie Katze\n")
    assert command("evaluate --model", out, "--pairs", path) == 1
    assert f"{path}, line 3: the source has 36 tokens" in capsys.readouterr().err
    path = file_of(tmp_path, "the cat\t" + "die Katze " * 9 + "\n")
    assert command("evaluate --model", out, "--pairs", path) == 1
    assert f"{path}, line 1: the target has 36 tokens" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["the cat sat", "a cat"])
def test_the_attention_of_one_text_is_drawn(text, tmp_path, capsys):
    out = trained(tmp_path, steps=3)
    picture = tmp_path / "map.png"
    assert command("translate --model", out, "--attention", picture, text) == 0
    assert len(set(matplotlib.image.imread(picture)[..., 0].ravel().tolist())) > 10
    assert command("translate --model", out, "--attention", picture, text, text) == 1
    assert "--attention draws one text that is not empty, got 2" in capsys.readouterr().err
    assert command("translate --model", out, "--attention", picture, " ") == 1
    assert "not empty, got 0" in capsys.readouterr().err


GOOD = "the cat\tdie Katze\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (GOOD + "no tab here\n", ["line 2", "found 0 tabs"]),
        (GOOD + "a\tb\tc\n", ["line 2", "found 2 tabs"]),
        (GOOD + "\n\n" + "only source\t\n", ["line 4", "empty"]),
        (GOOD.encode() + b"caf\xe9\tKaffee\n", ["line 2", "not UTF-8"]),
        (GOOD.encode("utf-16"), ["line 1", "not UTF-8"]),
        (GOOD + "so " * 600 + "\tja\n", ["line 2", "source has 1200 tokens", "--max-len is 512"]),
        (GOOD + "ja\t" + "so " * 600 + "\n", ["line 2", "target has 1200 tokens"]),
        ("", ["holds no pairs"]),
        ("\n \n\r\n", ["holds no pairs"]),
    ],
)
def test_a_bad_line_is_named_by_its_number_and_nothing_is_left_behind(
    content, words, tmp_path, capsys
):
    path, out = file_of(tmp_path, content), tmp_path / "run"
    assert command("train --pairs", path, "--out", out) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and str(path) in error
    assert all(word in error for word in words)
    assert not out.exists()


@pytest.mark.parametrize(
    "content",
    [
        GOOD,
        GOOD.strip(),
        GOOD.replace("\n", "\r\n") * 2,
        "\ufeff" + GOOD,
        "\n\n" + GOOD + "\n",
        "кошка\tγάτα\nقطة\t猫\n😀 e\u0301\tमाँ\n",
        "one word " * 200 + "\tja\n",
    ],
    ids=["one line", "no newline", "CRLF", "BOM", "blank lines", "alphabets", "a long line"],
)
@pytest.mark.parametrize("tokens", ["word", "character", "subword"])
def test_odd_files_work(content, tokens, tmp_path, capsys):
    path, out = file_of(tmp_path, content), tmp_path / "run"
    more = f"train {TINY} --steps 2 --max-len 3000 --tokens {tokens} --pairs"
    assert command(more, path, "--out", out) == 0
    lines = [line for line in content.lstrip("\ufeff").splitlines() if line.strip()]
    assert f"{len(lines):,} pairs" in capsys.readouterr().out
    assert command("translate --model", out, "--max-len", 5, lines[0].split("\t")[0]) == 0
    assert "never seen" not in capsys.readouterr().err


def weights(out):
    return load_checkpoint(out).model.state_dict()


def test_ctrl_c_saves_says_how_to_go_on_and_loses_nothing(tmp_path, capsys, monkeypatch):
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    path = file_of(tmp_path)
    assert command(f"train {TINY} --dropout 0.2 --steps 9 --pairs", path, "--out", whole) == 0

    def impatient(*args, **options):
        def stop(model):
            import signal

            signal.raise_signal(signal.SIGINT)
            return 0.0

        return train(*args, **options, score=stop, score_every=4)

    monkeypatch.setattr(_commands, "train", impatient)
    options = f"train {TINY} --dropout 0.2 --steps 9 --pairs"
    assert command(options, path, "--out", stopped) == 130
    error = capsys.readouterr().err
    resume = f"train --out {stopped} --resume"
    assert f"stopped; go on with: python -m tutorial_transformer {resume}" in error
    monkeypatch.setattr(_commands, "train", train)
    assert load_checkpoint(stopped).state.step < 9
    assert command(resume) == 0
    for name, tensor in weights(whole).items():
        assert torch.equal(tensor, weights(stopped)[name]), name


def test_a_run_goes_on_with_its_own_options_and_no_others(tmp_path, capsys):
    out = trained(tmp_path, steps=3)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    path = tmp_path / "my.tsv"
    for more, message in (
        ([], "go on with --resume"),
        (["--resume", "--seed", 3], "has --seed 0, not 3"),
        (["--resume", "--tokens", "character"], "has --tokens word, not character"),
        (["--resume", "--task", "dates-zh"], "has --task None, not dates-zh"),
    ):
        assert command("train --out", out, *more) == 1
        assert message in capsys.readouterr().err
    assert before == {path.name: path.read_bytes() for path in out.iterdir()}
    assert command("train --out", out, "--resume", "--steps", 5, "--pairs", path) == 0
    assert load_checkpoint(out).state.step == 5
    assert json.loads((out / "options.json").read_text())["steps"] == 5
    file_of(tmp_path, GOOD)
    assert command("train --out", out, "--resume", "--steps", 7) == 1
    assert "another vocab.json" in capsys.readouterr().err


@pytest.mark.parametrize("task", list(_commands.TASKS))
def test_every_task_trains_and_is_scored_on_what_it_has_not_seen(task, tmp_path, capsys):
    out = tmp_path / "run"
    assert command(f"train {TINY} --steps 2 --task {task} --out", out) == 0
    assert "of 9 unseen ones are translated exactly" in capsys.readouterr().out
    draw, _ = _commands.TASKS[task]
    seen = dict(draw(40, seed=0, part="train"))
    assert not seen.keys() & dict(draw(9, seed=1, part="test")).keys()
    assert command("evaluate --model", out, "--task", task) == 0
    assert "pairs                                 9" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("train --out x", 1, "give --pairs FILE or --task NAME"),
        ("train --out x --resume", 1, "give --pairs FILE or --task NAME"),
        ("train --pairs none.tsv --out x", 1, "none.tsv: No such file"),
        ("train --task dates-zh --out x --d-model 10 --heads 4", 1, "d_model=10 must be divisible"),
        ("train --task dates-zh --out x --dropout 1.5", 1, "dropout must lie in [0, 1)"),
        ("train --task dates-zh --out x --max-lr 0", 1, "max_lr must be positive"),
        ("train --task dates-zh --out x --device abc", 1, "--device abc cannot be used"),
        ("train --task dates-zh --out x --max-len 3", 1, "--max-len is 3"),
        ("train --task dates-zh --out x --tokens subword --vocab-size 9", 1, "vocab_size must be"),
        ("translate --model none hi", 1, "none"),
        ("evaluate --model none --pairs none.tsv", 1, "none"),
        ("train --task dates-zh --out x --steps 0", 2, "must be a whole number from 1 upwards"),
        ("train --task dates-xx --out x", 2, "invalid choice"),
        ("train --task dates-zh", 2, "--out"),
        ("evaluate --model none", 2, "one of the arguments --pairs --task is required"),
        ("fly", 2, "invalid choice"),
        ("", 2, "command"),
    ],
)
def test_a_mistake_gets_one_line_and_an_exit_code(
    arguments, code, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    try:
        came = command(arguments)
    except SystemExit as stop:  # argparse
        came = stop.code
    said = capsys.readouterr().err
    assert came == code and message in said and "Traceback" not in said
    assert code == 2 or said.count("\n") == 1
    assert not (tmp_path / "x" / "model.safetensors").exists()


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "vocab.json"])
def test_a_damaged_model_is_named_by_its_file(name, tmp_path, capsys):
    out = trained(tmp_path, steps=2)
    whole = (out / name).read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"[]"):
        (out / name).write_bytes(damaged)
        assert command("translate --model", out, "a cat") == 1
        error = capsys.readouterr().err
        assert error.startswith("error: ") and name in error and error.count("\n") == 1
    (out / name).unlink()
    assert command("translate --model", out, "a cat") == 1
    assert name in capsys.readouterr().err


def test_help_shows_examples_and_the_module_runs_as_a_program(capsys):
    for arguments, word in (("", "evaluate"), ("train", "--resume"), ("translate", "--beam 4 <")):
        with pytest.raises(SystemExit) as stop:
            command(f"{arguments} --help")
        said = capsys.readouterr().out
        assert stop.value.code == 0 and word in said and f"tutorial_transformer {arguments}" in said
    run = [sys.executable, "-m", "tutorial_transformer", "translate", "--model", "none", "hi"]
    ended = subprocess.run(run, capture_output=True, text=True, check=False)
    assert ended.returncode == 1 and ended.stderr.startswith("error: there is no ")


def test_a_reader_who_has_seen_enough_is_no_error(tmp_path):
    out = trained(tmp_path, steps=2)
    run = [sys.executable, "-m", "tutorial_transformer", "translate", "--model", str(out), "a cat"]
    with subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as ended:
        ended.stdout.close()
        assert ended.stderr.read() == b"" and ended.wait() == 0
