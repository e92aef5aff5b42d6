"""Checkpoints: what comes back is what went in, whole or not at all, and no file can run code."""

import ast
import io
import json
import pickle
import runpy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_runs import BATCHES, SRC_VOCAB, TGT_VOCAB, a_model, files_of, same, weights

import tutorial_transformer
from tutorial_transformer import checkpoints
from tutorial_transformer.checkpoints import (
    load_checkpoint,
    load_state,
    save_checkpoint,
    save_vocabs,
)
from tutorial_transformer.training import train
from tutorial_transformer.transformer import Transformer, TransformerConfig
from tutorial_transformer.vocab import SubwordVocab, Vocab

ROOT = Path(__file__).parent.parent
FILES = ["config.json", "vocab.json", "model.safetensors", "training.safetensors"]


def two_vocabs(src="abcde", tgt="xyz"):
    return Vocab([src], "character"), Vocab([tgt], "character")  # as large as the tiny model's


def train_in(folder, model=None, num_steps=2, resume=False):
    model = a_model(dtype=torch.float32, dropout=0.3) if model is None else model
    train(model, BATCHES, num_steps, 3, progress="none", folder=folder, resume=resume)
    return model


@pytest.fixture
def run_folder(tmp_path):
    """A folder with all four files."""
    save_vocabs(tmp_path, *two_vocabs())
    train_in(tmp_path)
    assert sorted(files_of(tmp_path)) == sorted(FILES)
    return tmp_path


# There and back.


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "changes", [{}, {"tie_embeddings": True, "tgt_vocab": 9, "dropout": 0.3}, {"norm_first": True}]
)
def test_a_model_comes_back_bit_for_bit_in_eval_mode(tmp_path, dtype, changes):
    model = a_model(dtype=dtype, **changes)
    before = weights(model)
    save_checkpoint(tmp_path / "deep" / "folder", model)
    assert same(weights(model), before) and model.training
    random_state = torch.get_rng_state()
    found, src_vocab, tgt_vocab, state = load_checkpoint(str(tmp_path / "deep" / "folder"))
    assert torch.equal(torch.get_rng_state(), random_state)
    assert (src_vocab, tgt_vocab, state) == (None, None, None)
    assert found.config == model.config and same(weights(found), before)
    assert {parameter.dtype for parameter in found.parameters()} == {dtype}
    assert not any(module.training for module in found.modules()) and model.training
    assert torch.equal(found(*BATCHES[0][:2]), model.eval()(*BATCHES[0][:2]))
    tied = changes.get("tie_embeddings", False)
    assert (found.output_proj.weight is found.src_embedding.weight) == tied
    torch.set_default_dtype(torch.float64)
    try:
        assert same(weights(load_checkpoint(tmp_path / "deep" / "folder").model), before)
    finally:
        torch.set_default_dtype(torch.float32)
    names = load_file(tmp_path / "deep" / "folder" / "model.safetensors").keys()
    assert ("tgt_embedding.weight" in names) != tied  # a tied matrix is on the disk once
    assert not same(before, weights(a_model(dtype=dtype, **changes)))


@pytest.mark.parametrize(
    "vocabs",
    [
        (Vocab(["the cat sat"]), Vocab(["猫 坐了"])),
        (Vocab(["naïve ☃"], "character"), Vocab(['\n\t\\"'], "character")),
        (SubwordVocab(["the cat sat"] * 3, 262), SubwordVocab(["die Katze"] * 3, 264)),
        (Vocab(["the cat"]), SubwordVocab(["猫"] * 3, 262)),
    ],
    ids=["word", "character", "subword", "mixed"],
)
def test_vocabularies_come_back_as_they_were(tmp_path, vocabs):
    sizes = {"d_model": 8, "num_heads": 2, "num_layers": 1, "d_ff": 16}
    model = Transformer(TransformerConfig.tiny(*map(len, vocabs), **sizes))
    save_checkpoint(tmp_path, model, *vocabs)
    for found, vocab in zip(load_checkpoint(tmp_path)[1:3], vocabs, strict=True):
        assert type(found) is type(vocab) and found.unit == vocab.unit
        assert found.tokens == vocab.tokens
        for text in ("the cat", "Katze 猫☃", ""):
            assert found.encode(text) == vocab.encode(text)


def test_a_state_comes_back_as_it_was_and_can_be_saved_elsewhere(run_folder, tmp_path):
    _, src_vocab, tgt_vocab, state = load_checkpoint(run_folder)
    assert state.step == 2 and state.settings["warmup_steps"] == 3
    other = a_model(dtype=torch.float32, dropout=0.3)  # whose weights the state does not take
    save_checkpoint(tmp_path / "copy", other, src_vocab, tgt_vocab, state)
    again = load_checkpoint(tmp_path / "copy")
    assert (again.state.step, again.state.settings) == (state.step, state.settings)
    assert again.state.tensors.keys() == state.tensors.keys()
    assert all(
        torch.equal(again.state.tensors[name], state.tensors[name]) for name in state.tensors
    )
    assert same(weights(again.model), weights(other))


def test_saving_again_replaces_and_another_model_or_vocabulary_is_refused(run_folder):
    newer = a_model(dtype=torch.float32, dropout=0.3)
    assert not same(weights(load_checkpoint(run_folder).model), weights(newer))
    save_checkpoint(run_folder, newer, *two_vocabs())
    assert same(weights(load_checkpoint(run_folder).model), weights(newer))
    files = files_of(run_folder)
    for changes in ({"num_heads": 4}, {"d_ff": 8}, {"dropout": 0.2}, {"tgt_vocab": 8}):
        other = a_model(**({"dtype": torch.float32, "dropout": 0.3} | changes))
        with pytest.raises(ValueError, match=r"holds a model with another config\.json"):
            save_checkpoint(run_folder, other)
    for vocabs in (two_vocabs("abcdf"), two_vocabs(tgt="xyw")):
        with pytest.raises(ValueError, match=r"holds a model with another vocab\.json"):
            save_checkpoint(run_folder, newer, *vocabs)
        with pytest.raises(ValueError, match=r"holds a model with another vocab\.json"):
            save_vocabs(run_folder, *vocabs)
    assert files_of(run_folder) == files
    (run_folder / "model.safetensors").unlink()  # a run alone must not be lost either
    with pytest.raises(ValueError, match=r"holds a model with another config\.json"):
        save_checkpoint(run_folder, other)


def test_vocabularies_can_be_added_and_are_kept_when_only_the_model_is_saved(tmp_path):
    model = train_in(tmp_path)
    save_checkpoint(tmp_path, model, *two_vocabs())
    assert load_checkpoint(tmp_path).src_vocab.tokens == two_vocabs()[0].tokens
    save_checkpoint(tmp_path, model)
    assert load_checkpoint(tmp_path).tgt_vocab.tokens == two_vocabs()[1].tokens


def test_vocabularies_of_another_size_are_refused_before_anything_is_written(tmp_path):
    src_vocab, tgt_vocab = two_vocabs()
    for vocabs, message in (
        ((tgt_vocab, src_vocab), f"src_vocab has {TGT_VOCAB} entries, the model has {SRC_VOCAB}"),
        ((src_vocab, src_vocab), f"tgt_vocab has {SRC_VOCAB} entries, the model has {TGT_VOCAB}"),
        ((src_vocab, None), "go together"),
        ((None, tgt_vocab), "go together"),
    ):
        with pytest.raises(ValueError, match=message):
            save_checkpoint(tmp_path / "new", a_model(), *vocabs)
        assert not (tmp_path / "new").exists()


# Files that are not ours, or not whole.


class Bomb:
    """Unpickling this writes a file."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return Path.write_text, (self.marker, "boom")


def pickled(content):
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


@pytest.mark.parametrize("dump", [pickle.dumps, pickled], ids=["pickle", "torch"])
@pytest.mark.parametrize("name", FILES)
def test_loading_never_unpickles(run_folder, tmp_path, name, dump):
    marker = tmp_path / "marker"
    (run_folder / name).write_bytes(dump(Bomb(marker)))
    with pytest.raises(ValueError, match=name):
        load_checkpoint(run_folder)
    if name.startswith("training"):
        with pytest.raises(ValueError, match=name):
            train_in(run_folder, resume=True)
    assert not marker.exists()
    with (run_folder / name).open("rb") as file:  # it is a bomb: torch would set it off
        pickle.load(file) if dump is pickle.dumps else torch.load(file, weights_only=False)
    assert marker.exists()


def test_no_module_can_unpickle():
    for path in Path(tutorial_transformer.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = {alias.name for alias in getattr(node, "names", []) if hasattr(alias, "name")}
            assert not names & {"pickle", "dill", "joblib", "cloudpickle", "shelve", "marshal"}
            assert getattr(node, "module", None) != "pickle"
            if isinstance(node, ast.Attribute) and node.attr in ("load", "save"):
                assert ast.unparse(node.value) != "torch", path
            if isinstance(node, ast.Call):
                assert getattr(node.func, "id", "") not in ("eval", "exec", "__import__")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kept", [0.0, 1, 8, 0.3, 0.6, 0.95, -1])
def test_a_cut_file_is_refused_by_name(run_folder, name, kept):
    content = (run_folder / name).read_bytes()
    (run_folder / name).write_bytes(content[: int(kept * len(content)) if kept < 1 else kept])
    if kept == -1:
        (run_folder / name).write_bytes(content[:-1])
    with pytest.raises(ValueError, match=name):
        load_checkpoint(run_folder)
    (run_folder / name).write_bytes(content)
    load_checkpoint(run_folder)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named_and_only_two_of_the_four_are_needed(run_folder, name):
    (run_folder / name).unlink()
    if name in ("config.json", "model.safetensors"):
        with pytest.raises(FileNotFoundError, match=name):
            load_checkpoint(run_folder)
    else:
        found = load_checkpoint(run_folder)
        assert (found.state is None) == (name == "training.safetensors")
        assert (found.src_vocab is None) == (found.tgt_vocab is None) == (name == "vocab.json")
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        load_checkpoint(run_folder / "nowhere")


def json_with(path, **changes):
    return json.dumps(json.loads(path.read_text(encoding="utf-8")) | changes)


@pytest.mark.parametrize("name", FILES[:2])
@pytest.mark.parametrize(
    "text", ["[1, 2]", "null", "3", '"a"', "hello", "\ufeff{}", "{}", "[" * 99_999, '{"a": 1}']
)
def test_other_json_and_other_text_are_refused(run_folder, name, text):
    (run_folder / name).write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=name):
        load_checkpoint(run_folder)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"d_modle": 8}, "config.json.*d_modle"),
        ({"d_model": "8"}, "(?s)config.json.*d_model"),
        ({"d_model": 8.0}, "(?s)config.json.*d_model"),
        ({"dropout": 1.5}, "config.json.*dropout"),
        ({"num_heads": 3}, "config.json.*num_heads"),
        ({"tie_embeddings": True}, "config.json.*tie_embeddings"),
        ({"d_model": 16}, "model.safetensors.*wanted"),
        ({"num_layers": 2}, "model.safetensors.*lacks"),
        ({"norm_first": True}, "model.safetensors.*lacks"),
        ({"tgt_vocab_size": 8}, "model.safetensors.*wanted"),
    ],
)
def test_a_configuration_of_another_model_is_refused(run_folder, changes, names):
    path = run_folder / "config.json"
    path.write_text(json_with(path, **changes), encoding="utf-8")
    with pytest.raises(ValueError, match=names):
        load_checkpoint(run_folder)


def test_swapped_or_foreign_vocabularies_are_refused(run_folder):
    path = run_folder / "vocab.json"
    both = json.loads(path.read_text(encoding="utf-8"))
    for content in (
        {"src": both["tgt"], "tgt": both["src"]},
        {"src": both["src"]},
        both | {"src": both["src"] | {"unit": "sentence"}},
        both | {"src": {"unit": "character", "tokens": list("abcdefghi")}},  # right in number
        both | {"src": {"unit": "subword", "merges": [["a"]]}},
        both | {"tgt": 3},
    ):
        path.write_text(json.dumps(content), encoding="utf-8")
        with pytest.raises(ValueError, match=r"vocab\.json"):
            load_checkpoint(run_folder)


def foreign(tensors, how):
    name = sorted(tensors)[0]
    if how == "dtypes":
        return {key: tensor.long() for key, tensor in tensors.items()}
    if how == "complex":
        return {key: tensor.to(torch.complex64) for key, tensor in tensors.items()}
    changed = {
        "empty": {},
        "name": {("x" if key == name else key): tensor for key, tensor in tensors.items()},
        "missing": {key: tensor for key, tensor in tensors.items() if key != name},
        "more": tensors | {"more": torch.zeros(3)},
        "shape": tensors | {name: torch.zeros(3, 4, 5)},
        "dtype": tensors | {name: tensors[name].double()},
    }
    return changed[how]


HOWS = ["empty", "name", "missing", "more", "shape", "dtype", "dtypes", "complex"]


@pytest.mark.parametrize("how", HOWS)
def test_foreign_weights_are_refused(run_folder, how):
    path = run_folder / "model.safetensors"
    save_file(foreign(load_file(path), how), path)
    with pytest.raises(ValueError, match=r"model\.safetensors does not fit the model"):
        load_checkpoint(run_folder)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("part", ["model.", "exp_avg.", "exp_avg_sq.", "history."])
def test_a_foreign_run_is_refused_and_the_model_left_alone(run_folder, part, how):
    path, state = run_folder / "training.safetensors", load_state(run_folder)
    chosen = {name: tensor for name, tensor in state.tensors.items() if name.startswith(part)}
    rest = {name: tensor for name, tensor in state.tensors.items() if name not in chosen}
    if how == "dtype" and part == "history.":
        chosen = {name: tensor.float() for name, tensor in chosen.items()}
    state.tensors = rest | foreign(chosen, how)
    header = {"step": "2", "settings": json.dumps(state.settings)}
    save_file(state.tensors, path, header)
    model = a_model(dtype=torch.float32, dropout=0.3)
    before = weights(model)
    with pytest.raises(ValueError, match=r"training\.safetensors does not fit the model"):
        train_in(run_folder, model, resume=True)
    assert same(weights(model), before)


def test_a_run_of_other_steps_than_its_history_is_refused(run_folder):
    path, settings = run_folder / "training.safetensors", load_state(run_folder).settings
    for step in ("1", "3", "1" + "0" * 15):
        save_file(load_file(path), path, {"step": step, "settings": json.dumps(settings)})
        with pytest.raises(ValueError, match=r"num_steps=2|history.* wanted"):
            train_in(run_folder, resume=True)


@pytest.mark.parametrize(
    "header",
    [None, {}, {"step": "2"}, {"step": "two", "settings": "{}"},
     {"step": "0", "settings": "{}"}, {"step": "-3", "settings": "{}"},
     {"step": "2", "settings": "{"},
     {"step": "2", "settings": "[1]"}, {"step": "2", "settings": "null"}],
)  # fmt: skip
def test_a_run_without_its_header_is_refused(run_folder, header):
    path = run_folder / "training.safetensors"
    save_file(load_file(path), path, header)
    for load in (load_checkpoint, load_state, lambda folder: train_in(folder, resume=True)):
        with pytest.raises(ValueError, match=r"training\.safetensors is not the state"):
            load(run_folder)


# Kills.

OPERATIONS = [("os", "replace"), ("os", "fsync"), (None, "save_file")]


@pytest.mark.parametrize("before_it", [True, False])
@pytest.mark.parametrize("call", [1, 2, 3])
@pytest.mark.parametrize(("module", "name"), OPERATIONS)
def test_a_kill_between_any_two_operations_leaves_old_or_new(
    run_folder, monkeypatch, module, name, call, before_it
):
    class Killed(BaseException):
        pass

    owner, calls = getattr(checkpoints, module) if module else checkpoints, []
    real = getattr(owner, name)

    def dying(*arguments):
        calls.append(arguments)
        if len(calls) == call and before_it:
            if name == "save_file":  # a file that is being written is not whole
                Path(arguments[1]).write_bytes(b"half")
            raise Killed
        real(*arguments)
        if len(calls) == call:
            raise Killed

    old = weights(load_checkpoint(run_folder).model)
    newer = a_model(dtype=torch.float32, dropout=0.3)
    monkeypatch.setattr(owner, name, dying)
    killed = False
    try:
        train_in(run_folder, newer, num_steps=3, resume=True)
    except Killed:
        killed = True
    monkeypatch.undo()
    assert killed == (call < 3)  # two files are written: training and model
    model, _, _, state = load_checkpoint(run_folder)
    new = weights(newer)
    assert same(weights(model), old) or same(weights(model), new)
    assert not same(new, old) and state.step in (2, 3)
    (run_folder / "model.safetensors.tmp").write_bytes(b"left over")
    (run_folder / "config.json.tmp").write_bytes(b"left over")
    last = train_in(run_folder, num_steps=3, resume=True)
    assert same(weights(last), new)
    assert load_checkpoint(run_folder).state.step == 3


@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_kill_in_the_very_first_checkpoint_loses_nothing_but_it(tmp_path, monkeypatch, call):
    calls, real = [], checkpoints.os.replace

    def dying(*arguments):
        calls.append(arguments)
        if len(calls) == call:
            raise SystemExit
        real(*arguments)

    torch.manual_seed(1)
    wanted = train_in(tmp_path / "whole", num_steps=4)
    torch.manual_seed(1)
    monkeypatch.setattr(checkpoints.os, "replace", dying)
    with pytest.raises(SystemExit):
        train_in(tmp_path / "cut", num_steps=2)
    monkeypatch.undo()
    with pytest.raises(FileNotFoundError):
        load_checkpoint(tmp_path / "cut")
    torch.manual_seed(1)
    assert same(weights(train_in(tmp_path / "cut", num_steps=4, resume=True)), weights(wanted))
    assert same(weights(load_checkpoint(tmp_path / "cut").model), weights(wanted))


def test_a_process_that_is_killed_for_good_loses_only_its_last_steps(tmp_path):
    script = runpy.run_path(str(ROOT / "experiments" / "10_kill.py"))
    rows = script["kill_again_and_again"](tmp_path / "run", kills=2, longest=0.3, seed=1)
    assert len(rows) == 2 and all(row[2:] == [True, True] for row in rows)
    assert rows[-1][1] > 0
