"""What the commands of `python -m tutorial_transformer` do, each from its parsed options."""

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from tutorial_transformer.attention_maps import record_attention
from tutorial_transformer.check import grade_file
from tutorial_transformer.checkpoints import read_json, save_vocabs, write_json
from tutorial_transformer.data import (
    AnyVocab,
    Pair,
    date_pairs,
    encode_pairs,
    make_batches,
    number_pairs,
    numbered_pairs,
)
from tutorial_transformer.decoding import beam_search, greedy_decode, sample
from tutorial_transformer.evaluation import bleu_tokenizer, evaluate, translate
from tutorial_transformer.training import load_checkpoint, train
from tutorial_transformer.transformer import Transformer, TransformerConfig
from tutorial_transformer.vocab import SPECIAL, UNK, SubwordVocab, Vocab

PROGRAM = "python -m tutorial_transformer"
DEFAULTS = {
    "steps": 1000, "seed": 0, "tokens": "word", "vocab_size": 4000, "batch_size": 64,
    "d_model": 128, "layers": 2, "heads": 4, "dropout": 0.1, "max_len": 512, "norm_first": False,
    "max_lr": 1e-3, "warmup": 100, "label_smoothing": 0.0, "precision": "full",
    "checkpoint_every": 100, "micro_batches": 1, "device": None, "mix_lengths": False,
}  # fmt: skip
DATES = {"steps": 600, "d_model": 64, "dropout": 0.0, "max_lr": 5e-3, "warmup": 60}
NUMBERS = {
    "steps": 1000, "batch_size": 32, "d_model": 64, "dropout": 0.0, "max_lr": 2e-3, "warmup": 30,
    "norm_first": True, "mix_lengths": True,
}  # fmt: skip
NUM_PAIRS = {"dates": 38_400, "numbers": 8_000}  # drawn to train on
NUM_TEST_PAIRS = 1000
TASKS: dict[str, tuple[Callable[..., list[Pair]], dict]] = {
    **{f"dates-{to}": (partial(date_pairs, target=to), DATES) for to in ("zh", "de", "fr", "ja")},
    **{f"numbers-{to}": (partial(number_pairs, target=to), NUMBERS) for to in ("de", "fr")},
}
MAY_CHANGE = {"steps", "checkpoint_every", "micro_batches", "device", "out", "resume", "pairs"}


def run_train(args: Namespace) -> None:
    """Train on a file or a task; everything about the run stands in its folder."""
    options = _options(args)
    first = int(os.environ.get("RANK", 0)) == 0
    say = print if first else lambda *text: None
    pairs, numbers = _training_pairs(options)
    src_vocab, tgt_vocab = (_vocab([pair[side] for pair in pairs], options) for side in (0, 1))
    limit = f"--max-len is {options['max_len']}"
    name = options.get("pairs", options.get("task"))
    _check_lengths(name, pairs, numbers, (src_vocab, tgt_vocab), options["max_len"], limit)
    batches = make_batches(
        pairs, src_vocab, tgt_vocab, options["batch_size"], options["seed"],
        by_length=not options["mix_lengths"],
    )  # fmt: skip
    config = TransformerConfig(
        len(src_vocab), len(tgt_vocab), d_model=options["d_model"], num_heads=options["heads"],
        num_layers=options["layers"], d_ff=4 * options["d_model"], dropout=options["dropout"],
        max_len=options["max_len"], norm_first=options["norm_first"],
    )  # fmt: skip
    torch.manual_seed(options["seed"])
    model = Transformer(config).to(_device(options["device"]))
    count = sum(parameter.numel() for parameter in model.parameters())
    say(f"{len(pairs):,} pairs, {len(src_vocab):,} source and {len(tgt_vocab):,} target tokens,")
    say(f"{count:,} parameters, {options['steps']:,} steps of {options['batch_size']} pairs")
    if first:
        save_vocabs(args.out, src_vocab, tgt_vocab)
        write_json(args.out / "options.json", options)
    args.how_to_go_on = f"; go on with: {PROGRAM} train --out {args.out} --resume"
    train(
        model, batches, options["steps"], options["warmup"], options["max_lr"],
        options["label_smoothing"], seed=options["seed"], precision=options["precision"],
        micro_batches=options["micro_batches"], folder=args.out, resume=args.resume,
        checkpoint_every=options["checkpoint_every"],
    )  # fmt: skip
    if "task" in options and first:
        test = _unseen(options["task"])
        scores = evaluate(model, test, src_vocab, tgt_vocab, greedy_decode)
        say(f"{scores.exact_match:.1%} of {len(test):,} unseen ones are translated exactly")
    say(f"the model is in {args.out}; use it with: {PROGRAM} translate --model {args.out} TEXT")


def _options(args: Namespace) -> dict:
    """What was given, before what a resumed run began with, before the defaults."""
    names = {*DEFAULTS, "pairs", "task"}
    given = {name: value for name, value in vars(args).items() if name in names}
    stored, path = {}, args.out / "options.json"
    if (args.out / "training.safetensors").exists() and not args.resume:
        raise ValueError(f"{args.out} holds a training run; go on with --resume, or change --out")
    if args.resume and path.exists():
        stored = read_json(path)
        for name, value in given.items():
            if name not in MAY_CHANGE and stored.get(name) != value:
                option = f"--{name.replace('_', '-')}"
                raise ValueError(
                    f"the run in {args.out} has {option} {stored.get(name)}, not {value}"
                )
    options = stored | given
    if ("pairs" in options) == ("task" in options):
        raise ValueError("give --pairs FILE or --task NAME, one of the two")
    task = TASKS[options["task"]][1] if "task" in options else {}
    return DEFAULTS | task | options


def _training_pairs(options: dict) -> tuple[list[Pair], list[int]]:
    """The pairs to train on, and the line of each in the user's file."""
    if "pairs" in options:
        numbers, pairs = zip(*numbered_pairs(options["pairs"]), strict=True)
        return list(pairs), list(numbers)
    count = NUM_PAIRS[options["task"].split("-")[0]]
    pairs = TASKS[options["task"]][0](count, seed=options["seed"], part="train")
    return pairs, list(range(1, count + 1))


def _check_lengths(
    file: str,
    pairs: Sequence[Pair],
    numbers: Sequence[int],
    vocabs: tuple[AnyVocab, AnyVocab],
    max_len: int,
    limit: str,
) -> None:
    """Refuse a line that the model could not read or write whole."""
    for pair, number in zip(pairs, numbers, strict=True):
        for side, text, vocab in zip(("source", "target"), pair, vocabs, strict=True):
            length = len(vocab.encode(text)) + 1
            if length > max_len:
                raise ValueError(
                    f"{file}, line {number}: the {side} has {length} tokens with <eos>, {limit}"
                )


def _vocab(texts: list[str], options: dict) -> AnyVocab:
    if options["tokens"] == "subword":
        return SubwordVocab(texts, options["vocab_size"])
    return Vocab(texts, options["tokens"])


def _device(name: str | None) -> torch.device:
    if name is None:
        name = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"--device {name} cannot be used: {str(error).splitlines()[0]}") from error


def _loaded(args: Namespace) -> tuple[Transformer, AnyVocab, AnyVocab]:
    model, src_vocab, tgt_vocab, _ = load_checkpoint(args.model, _device(args.device))
    if src_vocab is None:
        raise FileNotFoundError(f"there is no {args.model / 'vocab.json'}")
    return model, src_vocab, tgt_vocab


def _decoder(args: Namespace) -> Callable[[Transformer, Tensor, int], Tensor]:
    """The decoder that the options ask for."""
    if args.sample:
        generator = torch.Generator(_device(args.device)).manual_seed(args.seed)
        how = {"temperature": args.temperature, "top_k": args.top_k, "top_p": args.top_p}
        return lambda model, src, max_len: sample(model, src, max_len, generator=generator, **how)
    if args.beam:
        return lambda model, src, max_len: beam_search(model, src, max_len, args.beam)[0]
    return greedy_decode


def run_translate(args: Namespace) -> None:
    """Translate the given texts, or the lines of standard input, a line for a line."""
    model, src_vocab, tgt_vocab = _loaded(args)
    texts = args.texts or [line.rstrip("\r\n") for line in sys.stdin]
    full = [text for text in texts if text.strip()]  # an empty line stays an empty line
    if args.attention and (len(texts), len(full)) != (1, 1):
        raise ValueError(f"--attention draws one text that is not empty, got {len(full)}")
    for number, text in enumerate(texts, start=1):
        ids = src_vocab.encode(text)
        if len(ids) + 1 > model.config.max_len:
            raise ValueError(
                f"text {number} has {len(ids) + 1} tokens with <eos>, "
                f"but the model's max_len is {model.config.max_len}"
            )
        if UNK in ids:
            tokens = zip(src_vocab.split(text), ids, strict=True)
            unknown = " ".join(token for token, number in tokens if number == UNK)
            print(f"note: never seen in training: {unknown}", file=sys.stderr)
    said = translate(model, full, src_vocab, tgt_vocab, _decoder(args), args.max_len)
    waiting = iter(said)
    for text in texts:
        print(next(waiting) if text.strip() else "")
    if args.attention:
        _draw_attention(model, (texts[0], said[0]), src_vocab, tgt_vocab, args.attention)


def _draw_attention(
    model: Transformer, pair: Pair, src_vocab: AnyVocab, tgt_vocab: AnyVocab, path: Path
) -> None:
    """Save a heatmap: which source token the decoder looked at when it wrote each target token."""
    from tutorial_transformer import plotting  # here: the rest runs without matplotlib

    batch = encode_pairs([pair], src_vocab, tgt_vocab)
    src, tgt_in, tgt_out = batch.to(next(model.parameters()).device)
    with torch.no_grad(), record_attention(model) as maps:
        model(src, tgt_in)
    last = maps[f"decoder.{model.config.num_layers - 1}.cross_attn"][0].mean(dim=0)
    rows, columns = (
        [SPECIAL[i] if i < len(SPECIAL) else vocab.decode([i]) for i in ids[0].tolist()]
        for ids, vocab in ((tgt_out, tgt_vocab), (src, src_vocab))
    )
    plotting.use_house_style()
    ax = plotting.plot_attention(
        last, plotting.drawable(rows), plotting.drawable(columns), "What it looked at, last layer"
    )
    ax.set(xlabel="source token looked at", ylabel="about to write")
    ax.figure.savefig(path)


def run_evaluate(args: Namespace) -> None:
    """Score the model on a file or on a task's unseen pairs, and print the scores."""
    model, src_vocab, tgt_vocab = _loaded(args)
    pairs = _test_pairs(args, (src_vocab, tgt_vocab), model.config.max_len)
    scores = evaluate(model, pairs, src_vocab, tgt_vocab, _decoder(args), args.max_len)
    tokenizer = bleu_tokenizer([target for _, target in pairs])
    print(f"pairs                          {len(pairs):8,}")
    print("what it writes by itself:")
    print(f"  exact match                  {scores.exact_match:8.1%}")
    print(f"  tokens right at their place  {scores.token_accuracy:8.1%}")
    print(f"  BLEU (sacrebleu, {tokenizer})".ljust(31) + f"{scores.bleu:7.1f}")
    print(f"  chrF (sacrebleu)             {scores.chrf:7.1f}")
    print("with the right answer before its eyes (teacher forcing), to compare:")
    print(f"  tokens right                 {scores.teacher_forced:8.1%}")


def run_check(args: Namespace) -> None:
    """Grade each component that the file defines; ends with exit code 1 unless all pass."""
    reports = []
    for report in grade_file(args.file, args.only or ()):
        print(report, end="\n\n", flush=True)
        reports.append(report)
    passed = sum(report.passed for report in reports)
    print(f"{passed} of {len(reports)} passed")
    args.exit_code = 0 if passed == len(reports) else 1


def _test_pairs(args: Namespace, vocabs: tuple[AnyVocab, AnyVocab], max_len: int) -> list[Pair]:
    if args.pairs is None:
        return _unseen(args.task)
    numbers, pairs = zip(*numbered_pairs(args.pairs), strict=True)
    _check_lengths(args.pairs, pairs, numbers, vocabs, max_len, f"the model's max_len is {max_len}")
    return list(pairs)


def _unseen(task: str) -> list[Pair]:
    """Pairs of a task that no training ever sees."""
    return TASKS[task][0](NUM_TEST_PAIRS, seed=1, part="test")
