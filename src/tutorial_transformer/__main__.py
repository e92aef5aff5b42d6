"""Train a Transformer on your own parallel text, use it, score it; grade code of your own.

python -m tutorial_transformer train --pairs my.tsv --out run/
python -m tutorial_transformer translate --model run/ "a text"
python -m tutorial_transformer evaluate --model run/ --pairs test.tsv
python -m tutorial_transformer check my_file.py
"""

import os
import sys
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path

from tutorial_transformer import _commands as commands


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns 0, 1 for an error or a failed check, 130 for Ctrl-C."""
    args = _parser().parse_args(arguments)
    try:
        args.run(args)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read our output has seen enough: `... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, OSError, FloatingPointError) as error:
        known = isinstance(error, OSError) and error.filename is not None
        text = f"{error.filename}: {error.strerror}" if known else str(error)
        print("error:", text, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"\nstopped{getattr(args, 'how_to_go_on', '')}", file=sys.stderr)
        return 130
    return getattr(args, "exit_code", 0)


def _parser() -> ArgumentParser:
    """All commands with their options; training options that are not given are left out."""
    parser = ArgumentParser(
        commands.PROGRAM, description=__doc__, formatter_class=RawDescriptionHelpFormatter
    )
    subparsers = parser.add_subparsers(metavar="command", required=True)
    _add_train(subparsers)
    use = ArgumentParser(add_help=False)
    use.add_argument("--model", type=Path, required=True, metavar="DIR", help="a folder of train's")
    use.add_argument("--beam", type=_count, metavar="N", help="beam search of this width")
    use.add_argument("--sample", action="store_true", help="draw the words instead of the best")
    use.add_argument("--temperature", type=float, default=1.0, metavar="T", help="of the draw")
    use.add_argument("--top-k", type=int, metavar="K", help="draw from the K best words")
    use.add_argument("--top-p", type=float, metavar="P", help="draw from the nucleus of mass P")
    use.add_argument("--seed", type=int, default=0, metavar="S", help="of the draw")
    use.add_argument("--max-len", type=_count, metavar="N", help="tokens at most (source + 50)")
    use.add_argument("--device", metavar="NAME", help="cpu, cuda, ... (the first GPU if any)")
    command = subparsers.add_parser(
        "translate",
        parents=[use],
        help="translate texts, or the lines of standard input",
        formatter_class=RawDescriptionHelpFormatter,
        epilog=f"""examples:
  {commands.PROGRAM} translate --model run/ "Friday, May 17, 2024"
  {commands.PROGRAM} translate --model run/ --beam 4 < texts.txt > translations.txt
  {commands.PROGRAM} translate --model run/ --attention map.png "May 17, 2024"\n""",
    )
    command.add_argument("texts", nargs="*", metavar="TEXT")
    command.add_argument("--attention", type=Path, metavar="PNG", help="save a heatmap of one text")
    command.set_defaults(run=commands.run_translate)
    command = subparsers.add_parser("evaluate", parents=[use], help="score a model on pairs")
    _add_source(command)
    command.set_defaults(run=commands.run_evaluate, pairs=None, task=None)
    command = subparsers.add_parser("check", help="grade the components that a file defines")
    command.add_argument("file", type=Path, metavar="FILE", help="Python code, which is run")
    command.add_argument("--only", action="append", metavar="NAME", help="grade this one only")
    command.set_defaults(run=commands.run_check)
    return parser


def _add_train(subparsers) -> None:
    command = subparsers.add_parser(
        "train",
        argument_default=SUPPRESS,
        help="train a model",
        formatter_class=RawDescriptionHelpFormatter,
        epilog=f"""examples:
  {commands.PROGRAM} train --task dates-zh --out run/
  {commands.PROGRAM} train --pairs my.tsv --tokens subword --steps 5000 --out run/
  {commands.PROGRAM} train --out run/ --resume
  torchrun --nproc-per-node=2 -m tutorial_transformer train --pairs my.tsv --out run/""",
    )
    _add_source(command)
    command.add_argument("--out", type=Path, required=True, metavar="DIR", help="where it is kept")
    command.add_argument("--resume", action="store_true", default=False, help="go on with the run")
    for name, kind, what in (
        ("steps", _count, "updates in all"), ("seed", int, "fixes every random choice"),
        ("checkpoint-every", _count, "steps"), ("vocab-size", _count, "for --tokens subword"),
        ("batch-size", _count, "pairs a step"), ("micro-batches", _count, "parts of a batch"),
        ("d-model", _count, "width"), ("layers", _count, "on each side"),
        ("heads", _count, "of each attention"), ("dropout", float, "from 0 to below 1"),
        ("max-len", _count, "tokens of the longest text"), ("max-lr", float, "peak of the rate"),
        ("warmup", _count, "steps up to the peak"), ("label-smoothing", float, "0.1 in the paper"),
    ):  # fmt: skip
        default = commands.DEFAULTS[name.replace("-", "_")]
        help = f"{what} ({default}, unless the task has its own)"
        command.add_argument(f"--{name}", type=kind, metavar="N", help=help)
    command.add_argument("--norm-first", action="store_true", help="pre-norm, not post-norm")
    command.add_argument("--mix-lengths", action="store_true", help="batches of mixed lengths")
    command.add_argument("--tokens", choices=("word", "character", "subword"), help="word")
    command.add_argument("--precision", choices=("full", "bfloat16"), help="full")
    command.add_argument("--device", metavar="NAME", help="cpu, cuda, ... (a GPU if there is one)")
    command.set_defaults(run=commands.run_train)


def _add_source(command: ArgumentParser) -> None:
    source = command.add_mutually_exclusive_group(required=command.argument_default is None)
    source.add_argument("--pairs", metavar="FILE", help="lines of source<TAB>target, UTF-8")
    source.add_argument("--task", choices=commands.TASKS, help="pairs that need no file")


def _count(text: str) -> int:
    """A whole number from 1 upwards, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"must be a whole number from 1 upwards, got {text!r}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
