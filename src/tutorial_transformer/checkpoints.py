"""A model on disk: weights in safetensors, all else in JSON; loading never runs code from a file.

    config.json           the sizes of the model
    vocab.json            the two vocabularies, if there are any
    model.safetensors     the weights: with the two above all that translating needs
    training.safetensors  weights, Adam's averages, history and step of a run that may go on

Every file is written under another name and then renamed, so that a kill at any moment leaves
the old one or the new one whole. The last two hold the weights each for themselves: a kill
between them leaves an older model beside a newer run, and both can be used.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from tutorial_transformer import _checks as check
from tutorial_transformer.transformer import Transformer, TransformerConfig
from tutorial_transformer.vocab import SubwordVocab, Vocab, vocab_from_json

AVERAGES = ("exp_avg", "exp_avg_sq")  # Adam's two, for every parameter


@dataclass
class TrainingState:
    """What a stopped run needs to go on: its step, its settings, and tensors by name.

    The tensors are the weights ("model.name"), Adam's averages ("exp_avg.name") and the history
    ("history.loss"). The random numbers of a step depend on settings["seed"] and the step only,
    so these two are the whole random state.
    """

    step: int
    settings: dict
    tensors: dict[str, Tensor]


class Checkpoint(NamedTuple):
    """What load_checkpoint found in a folder; what is not there is None."""

    model: Transformer
    src_vocab: Vocab | SubwordVocab | None
    tgt_vocab: Vocab | SubwordVocab | None
    state: TrainingState | None


def save_checkpoint(
    folder: str | Path,
    model: Transformer,
    src_vocab: Vocab | SubwordVocab | None = None,
    tgt_vocab: Vocab | SubwordVocab | None = None,
    state: TrainingState | None = None,
) -> None:
    """Write the model, and what else is given, into a folder; an older checkpoint is replaced.

    Raises ValueError if the folder holds a model of another configuration or vocabulary, which
    would be lost, or if a vocabulary has another size than the model's.
    """
    folder = Path(folder)
    _check_sizes(model.config, src_vocab, tgt_vocab)
    folder.mkdir(parents=True, exist_ok=True)
    _write_once(folder, "config.json", asdict(model.config))
    if src_vocab is not None and tgt_vocab is not None:
        save_vocabs(folder, src_vocab, tgt_vocab)
    if state is not None:
        header = {"step": str(state.step), "settings": json.dumps(plain(state.settings))}
        _write_tensors(folder / "training.safetensors", state.tensors, header)
    _write_tensors(folder / "model.safetensors", dict(model.named_parameters()), {})


def save_vocabs(
    folder: str | Path, src_vocab: Vocab | SubwordVocab, tgt_vocab: Vocab | SubwordVocab
) -> None:
    """Write vocab.json into a folder; a run's own checkpoints leave it as it is."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    _write_once(folder, "vocab.json", {"src": src_vocab.to_json(), "tgt": tgt_vocab.to_json()})


def load_checkpoint(folder: str | Path, device: str | torch.device = "cpu") -> Checkpoint:
    """Read what save_checkpoint wrote; the model is in eval mode, in the dtype it was saved in.

    Raises FileNotFoundError where there is no checkpoint, and ValueError, naming the file, for
    one that is cut, foreign, or does not fit the others.
    """
    folder = Path(folder)
    config_path, weights_path = folder / "config.json", folder / "model.safetensors"
    try:
        config = TransformerConfig(**read_json(config_path))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{config_path} is no configuration of this model: {error}") from error
    tensors, _ = _read_tensors(weights_path)
    with torch.random.fork_rng(devices=[]):  # the random start is thrown away at once
        model = Transformer(config)
    dtype = next(iter(tensors.values()), torch.empty(0)).dtype
    if dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        model.to(dtype)
    parameters = dict(model.named_parameters())
    _check_fit(weights_path, tensors, parameters)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[name])
    src_vocab = tgt_vocab = None
    if (folder / "vocab.json").exists():
        both = read_json(folder / "vocab.json")
        try:
            src_vocab, tgt_vocab = (vocab_from_json(both[side]) for side in ("src", "tgt"))
            _check_sizes(config, src_vocab, tgt_vocab)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{folder / 'vocab.json'} does not fit: {error}") from error
    return Checkpoint(model.to(device).eval(), src_vocab, tgt_vocab, load_state(folder))


def load_state(folder: str | Path) -> TrainingState | None:
    """Read training.safetensors; None if the folder holds no run that could go on."""
    path = Path(folder) / "training.safetensors"
    if not path.exists():
        return None
    tensors, header = _read_tensors(path)
    try:
        step, settings = int(header["step"]), dict(json.loads(header["settings"]))
        check.size(step=step)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not the state of a training run ({error!r})") from error
    return TrainingState(step, settings, tensors)


def pack_state(
    model: nn.Module, optimizer: torch.optim.Adam, history: object, step: int, settings: dict
) -> TrainingState:
    """Take down a run after a step: weights, averages of what is trained, history."""
    tensors = {f"model.{name}": parameter for name, parameter in model.named_parameters()}
    for name, parameter in _trained(model).items():
        tensors |= {f"{kind}.{name}": optimizer.state[parameter][kind] for kind in AVERAGES}
    for name, values in vars(history).items():
        tensors[f"history.{name}"] = torch.tensor(values, dtype=torch.float64)
    return TrainingState(step, settings, tensors)


@torch.no_grad()
def unpack_state(
    state: TrainingState,
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Adam,
    history: object,
) -> None:
    """Put model, optimizer and history where the run was; if a tensor does not fit, none moves."""
    weights, trained = dict(model.named_parameters()), _trained(model)
    num_scores = state.tensors.get("history.scores", torch.empty(0)).numel()
    lengths = dict.fromkeys(vars(history), state.step)
    lengths |= {"scored_at": num_scores, "scores": num_scores}
    wanted = {f"model.{name}": parameter for name, parameter in weights.items()}
    wanted |= {f"{kind}.{name}": value for name, value in trained.items() for kind in AVERAGES}
    for name, length in lengths.items():
        wanted[f"history.{name}"] = torch.empty(length, dtype=torch.float64, device="meta")
    _check_fit(path, state.tensors, wanted)
    for name, parameter in weights.items():
        parameter.copy_(state.tensors[f"model.{name}"])
    for name, parameter in trained.items():
        kept = {kind: state.tensors[f"{kind}.{name}"] for kind in AVERAGES}
        kept["step"] = torch.tensor(state.step, dtype=torch.float32)  # as Adam counts
        optimizer.state[parameter] = {
            key: value.to(parameter.device) for key, value in kept.items()
        }
    for name, values in vars(history).items():
        kept = state.tensors[f"history.{name}"].tolist()
        values[:] = [int(value) for value in kept] if name == "scored_at" else kept


def _trained(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that are not frozen, by name, a tied one once."""
    return {name: value for name, value in model.named_parameters() if value.requires_grad}


def _check_fit(path: Path, tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    for name in sorted(wanted.keys() ^ tensors.keys()):
        where = "lacks" if name in wanted else "holds, but the model lacks,"
        raise ValueError(f"{path} does not fit the model: it {where} {name}")
    for name, like in wanted.items():
        came = tensors[name]
        if (came.shape, came.dtype) != (like.shape, like.dtype):
            raise ValueError(
                f"{path} does not fit the model: {name} is {came.dtype} {tuple(came.shape)}, "
                f"wanted {like.dtype} {tuple(like.shape)}"
            )


def _read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read a safetensors file: its tensors and its header."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}")
    try:
        with safe_open(path, "pt") as file:  # clone: what it gives may be a view of the file
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
            return tensors, file.metadata() or {}
    except SafetensorError as error:
        raise ValueError(f"{path} is not a whole safetensors file ({error})") from error


def read_json(path: Path) -> dict:
    """Read a JSON object; a missing file is a FileNotFoundError, anything else a ValueError."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not whole JSON ({error})") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a JSON object, got a {type(content).__name__}")
    return content


def write_json(path: Path, content: dict) -> None:
    """Write a JSON file so that a kill leaves the old or the new one."""
    text = json.dumps(plain(content), ensure_ascii=False, indent=1)
    _replace(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def plain(content: dict) -> dict:
    """The same content as it comes back from JSON, where a number is an int or a float."""
    return json.loads(json.dumps(content, default=float))


def _write_once(folder: Path, name: str, content: dict) -> None:
    """Write a JSON file that never changes while there are weights that rely on it."""
    path, weights = folder / name, ("model.safetensors", "training.safetensors")
    if path.exists():
        if read_json(path) == plain(content):
            return
        if any((folder / file).exists() for file in weights):
            raise ValueError(f"{folder} holds a model with another {name}; choose another folder")
    write_json(path, content)


def _write_tensors(path: Path, tensors: dict[str, Tensor], header: dict[str, str]) -> None:
    whole = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    _replace(path, lambda temporary: save_file(whole, temporary, header))


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Write under another name, wait for the disk, rename."""
    temporary = path.with_name(path.name + ".tmp")
    write(temporary)
    with temporary.open("rb+") as file:
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _check_sizes(config: TransformerConfig, src_vocab: object, tgt_vocab: object) -> None:
    if (src_vocab is None) != (tgt_vocab is None):
        raise ValueError("src_vocab and tgt_vocab go together, got only one of them")
    if src_vocab is None:
        return
    wanted = {"src_vocab": config.src_vocab_size, "tgt_vocab": config.tgt_vocab_size}
    for (name, size), vocab in zip(wanted.items(), (src_vocab, tgt_vocab), strict=True):
        if len(vocab) != size:
            raise ValueError(f"{name} has {len(vocab)} entries, the model has {size}")
