"""Graders of chapter 11: what is written, word after word."""

import contextlib
from collections.abc import Callable

import torch

from tutorial_transformer import decoding as right
from tutorial_transformer.check._beams import WRONG_BEAMS
from tutorial_transformer.check._calling import by_position
from tutorial_transformer.check._decoders import WRONG_GREEDY
from tutorial_transformer.check._grade import Case, grade
from tutorial_transformer.check._report import Report
from tutorial_transformer.check._scripted import SCRIPT, Scripted, real_model
from tutorial_transformer.check._trial import NotAttemptedError, UnusableError, call
from tutorial_transformer.check._watch import ids, ids_and_scores, name_draws, watched

MODE = "dropout is off while it writes, and the model's mode is put back"

DROPS = "dropout is on while it writes: call model.eval() first"


def greedy_decode(function: object) -> Report:
    """Grade greedy_decode(model, src, max_len) -> ids (batch, at most max_len).

    model is the course's Transformer. ids are without <bos>, <eos> is kept, pads follow it; each
    row stops on its own; pad and <bos> are never chosen. Special ids come from model.config;
    dropout is off, and the model's mode is put back. Lists of ids, and pads to max_len, are taken.
    """
    report = Report(
        "greedy_decode",
        "greedy_decode(model, src, max_len) -> ids (batch, at most max_len): no <bos>, <eos> kept, "
        f"pads behind it, never pad or <bos> chosen (ids in model.config); {MODE}",
        "chapter 11, 1. Write one word a pass, and stop",
    )
    model = Scripted(SCRIPT).eval()
    cases = [
        _case(model, "the first word is the most probable one after <bos>", [4], 1),
        _case(model, "a row ends with <eos>", [5], 4),
        _case(model, "each word follows from all the words before it", [6], 8),
        _case(model, "the most probable word is taken at each step", [4, 4, 4, 4], 5),
        _case(model, "rows read their own source and stop on their own", [7, 6, 5, 8], 8),
        _case(model, "max_len ends a row that does not say <eos>", [9], 3),
        _case(model, "pad and <bos> are never chosen", [10], 4),
        *real_cases(5, says="max_len 5"),
        *_mode_cases(4),
    ]
    wrong = {name: watched(decode, ids) for name, decode in WRONG_GREEDY.items()}
    learner = watched(by_position(function, "model", "src", "max_len"), ids)
    reference = watched(right.greedy_decode, ids)
    grade(report, learner, cases, reference, wrong)
    return name_draws(report, learner, cases[3])


def beam_search(function: object) -> Report:
    """Grade beam_search(model, src, max_len, beam_size, length_penalty) -> (ids, scores).

    ids are the best text of each row, as greedy_decode's. scores, one a row, are the sum of log p
    over ((5 + n) / 6) ** length_penalty, and n counts <eos>. A finished text keeps its score; one
    that max_len cuts off is scored as it is.
    """
    report = Report(
        "beam_search",
        "beam_search(model, src, max_len, beam_size, length_penalty) -> (ids, scores): the best "
        "text of each row as greedy_decode gives it, and sum of log p / ((5 + n) / 6)^penalty, "
        f"where n counts <eos>; {MODE}",
        "chapter 11, 2. Search wider than the best next word",
    )
    model = Scripted(SCRIPT).eval()
    cases = [
        _case(model, "one beam says what greedy search says", [4], 5, 1, 0.0, view=_texts),
        _case(model, "two beams find the better text", [4], 5, 2, 0.0, view=_texts),
        _case(model, "the continuations of all beams compete", [12], 6, 2, 0.0, view=_texts),
        _case(model, "a live text may overtake a finished one", [13], 4, 2, 0.0, view=_texts),
        _case(model, "without a penalty the score is the sum of log p", [4], 5, 2, 0.0),
        _case(model, "without a penalty the more probable text wins", [11], 6, 2, 0.0, view=_texts),
        _case(model, "the penalty lets the longer text win", [11], 6, 2, 1.0, view=_texts),
        _case(model, "the score is divided by ((5 + n) / 6)^penalty", [11], 6, 2, 1.0),
        _case(model, "rows read their own source and stop on their own", [7, 6, 5, 11], 8, 2, 0.6),
        _case(model, "max_len ends a text that does not say <eos>", [9], 3, 2, 0.6),
        _case(model, "pad and <bos> are never chosen", [10], 4, 2, 0.0, view=_texts),
        *real_cases(4, 3, 0.6, says=_told(4, 3, 0.6)),
        *_mode_cases(5, 2, 0.0),
    ]
    wrong = {name: watched(search, ids_and_scores) for name, search in WRONG_BEAMS.items()}
    names = "model", "src", "max_len", "beam_size", "length_penalty"
    learner = watched(by_position(function, *names), ids_and_scores)
    reference = watched(right.beam_search, ids_and_scores)
    grade(report, learner, cases, reference, wrong, tolerance=1e-4)
    first = next((item.name for item in report.properties if not item.passed), "")
    if report.diagnosis.startswith("this does not hold") and "score" in first:
        with contextlib.suppress(UnusableError, NotAttemptedError):
            report.diagnosis = _scores(learner, cases) or report.diagnosis
    return name_draws(report, learner, cases[4])


def _scores(learner: Callable, cases: list[Case]) -> str:
    """Set the learner's score beside the sum of log p where the text is right."""
    told = []
    for case in cases[4], cases[7]:
        (texts, scores), _ = call(learner, *case.args)
        (wanted, right_scores), _ = watched(right.beam_search, ids_and_scores)(*case.args)
        if texts.shape != wanted.shape or not torch.equal(texts, wanted):
            return ""
        n, power = texts.shape[1], case.args[-1]
        total, score = float(right_scores) * ((5 + n) / 6) ** power, float(scores)
        told.append(f"{score:.4g} with penalty {power:g} for {n} words and a sum of {total:.4g}")
    return f"the score is {', and '.join(told)}; wanted sum / ((5 + n) / 6)^penalty"


def _answer(pair: tuple) -> object:
    return pair[0]


def _texts(pair: tuple) -> object:
    return pair[0][0]


def _case(model: Scripted, name: str, sources: list[int], *told, view=_answer) -> Case:
    """A case of a scripted model; each source is its name and <eos>."""
    src = torch.tensor([[source, 2] for source in sources])
    return Case(
        name, f"a scripted model, sources {sources}, {_told(*told)}", (model, src, *told), view=view
    )


def real_cases(*told, says: str) -> list[Case]:
    """Cases of real models, whose rows are padded; the second one has other special ids."""
    src = torch.tensor([[3, 2, 0, 0], [8, 7, 6, 5]])
    other = torch.tensor([[5, 6, 7, 2], [8, 2, 3, 3]])
    model, second = real_model(22), real_model(7, pad_id=3, bos_id=6, eos_id=4)
    text = f"a tiny model with random weights, {says}"
    padded, special = (
        "it works on a real model with padded sources",
        "the special ids are those of model.config",
    )
    return [
        Case(padded, text, (model, src, *told), view=_answer),
        Case(
            special, f"{text}, pad_id 3, bos_id 6, eos_id 4", (second, other, *told), view=_answer
        ),
    ]


def _mode_cases(*told) -> list[Case]:
    """Cases of a model in training mode, whose dropout takes everything away, and in eval mode."""
    train, still = Scripted(SCRIPT).train(), Scripted(SCRIPT).eval()
    kept = "the model's mode is put back"
    cases = [
        _case(train, "dropout is off while it writes", [4], *told),
        _case(train, kept, [4], *told, view=lambda pair: pair[1]),
        _case(still, kept, [4], *told, view=lambda pair: pair[1]),
    ]
    cases[0].says = DROPS
    for case in cases[:2]:
        case.example += ", the model in training mode"
    return cases


def _told(max_len: int, beam_size: int = 0, length_penalty: float = 0.0) -> str:
    beam = f", beam_size {beam_size}, length_penalty {length_penalty:g}" if beam_size else ""
    return f"max_len {max_len}{beam}"
