"""Graders of chapter 11: what is written, word after word."""

from collections.abc import Callable

import torch

from tutorial_transformer import decoding as right
from tutorial_transformer.check._beams import WRONG_BEAMS
from tutorial_transformer.check._decoders import WRONG_GREEDY
from tutorial_transformer.check._grade import Case, grade
from tutorial_transformer.check._report import Report
from tutorial_transformer.check._scripted import Scripted, paths, real_model
from tutorial_transformer.check._watch import ids, ids_and_scores, name_draws, watched

# Each source, named by its first id, has its words; the number is the probability of each.
SCRIPT = {(4,): {5: 0.6, 6: 0.4}, (4, 5): {7: 0.4, 8: 0.3, 9: 0.3}, (4, 6): {7: 0.9, 10: 0.1}}
SCRIPT |= {(4, *words): {2: 1.0} for words in ((5, 7, 12), (5, 8), (5, 9), (6, 7), (6, 10))}
SCRIPT |= {(4, 5, 7): {12: 1.0}}
SCRIPT |= paths(
    (5, [9, 2], 0.9),
    (6, [5, 6, 5, 7, 8, 2], 0.8),
    (7, [8, 9, 2], 0.9),
    (8, [10, 5, 11, 2], 0.9),
    (9, [5, 6, 7, 8, 9, 10, 11], 0.9),
)
SCRIPT |= {(10,): {0: 0.5, 1: 0.3, 5: 0.19}, (10, 5): {1: 0.5, 0: 0.3, 2: 0.19}}  # tempting pads
SCRIPT |= {(11,): {5: 0.5, 6: 0.45}, (11, 5): {2: 0.9}, (11, 6): {8: 0.95}, (11, 6, 8): {9: 0.95}}
SCRIPT |= {(11, 6, 8, 9): {2: 0.95}}  # 11 has a short text, and a long one almost as likely
MODE = "dropout is off while it writes, and the model's mode is put back"


def greedy_decode(function: Callable) -> Report:
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
        *_real_cases(5),
        *_mode_cases(4),
    ]
    wrong = {name: watched(decode, ids) for name, decode in WRONG_GREEDY.items()}
    learner, reference = watched(function, ids), watched(right.greedy_decode, ids)
    grade(report, learner, cases, reference, wrong)
    return name_draws(report, learner, cases[3])


def beam_search(function: Callable) -> Report:
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
        _case(model, "without a penalty the score is the sum of log p", [4], 5, 2, 0.0),
        _case(model, "without a penalty the more probable text wins", [11], 6, 2, 0.0, view=_texts),
        _case(model, "the penalty lets the longer text win", [11], 6, 2, 1.0, view=_texts),
        _case(model, "the score is divided by ((5 + n) / 6)^penalty", [11], 6, 2, 1.0),
        _case(model, "rows read their own source and stop on their own", [7, 6, 5, 11], 8, 2, 0.6),
        _case(model, "max_len ends a text that does not say <eos>", [9], 3, 2, 0.6),
        _case(model, "pad and <bos> are never chosen", [10], 4, 2, 0.0, view=_texts),
        *_real_cases(4, 3, 0.6),
        *_mode_cases(5, 2, 0.0),
    ]
    wrong = {name: watched(search, ids_and_scores) for name, search in WRONG_BEAMS.items()}
    learner, reference = (
        watched(function, ids_and_scores),
        watched(right.beam_search, ids_and_scores),
    )
    grade(report, learner, cases, reference, wrong, tolerance=1e-4)
    return name_draws(report, learner, cases[2])


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


def _real_cases(*told) -> list[Case]:
    """Cases of real models, whose rows are padded; the second one has other special ids."""
    src = torch.tensor([[3, 2, 0, 0], [8, 7, 6, 5]])
    other = torch.tensor([[5, 6, 7, 2], [8, 2, 3, 3]])
    model, second = real_model(22), real_model(7, pad_id=3, bos_id=6, eos_id=4)
    text = f"a tiny model with random weights, {_told(*told)}"
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
    """Cases of a model in training mode, whose dropout takes everything away."""
    model = Scripted(SCRIPT).train()
    cases = [
        _case(model, "dropout is off while it writes", [4], *told),
        _case(model, "the model's mode is put back", [4], *told, view=lambda pair: pair[1]),
    ]
    for case in cases:
        case.example += ", the model in training mode"
    return cases


def _told(max_len: int, beam_size: int = 0, length_penalty: float = 0.0) -> str:
    beam = f", beam_size {beam_size}, length_penalty {length_penalty:g}" if beam_size else ""
    return f"max_len {max_len}{beam}"
