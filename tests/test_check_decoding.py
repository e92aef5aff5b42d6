"""The graders of chapter 11: wrong decoders and filters are named, right ones pass."""

import jaxtyping
import pytest
import torch
from faults.decoding import FAULTS, a_beam
from grading import (
    assert_accepted,
    assert_harmless,
    assert_rejected,
    assert_stopped,
    assert_told,
    changing,
    loud,
)

from tutorial_transformer import decoding as ours
from tutorial_transformer.check._beams import WRONG_BEAMS, Beam
from tutorial_transformer.check._decoders import WRONG_GREEDY, greedy
from tutorial_transformer.check._scripted import SCRIPT, Scripted, real_model
from tutorial_transformer.check.decoding import beam_search, greedy_decode

GRADERS = {"greedy_decode": greedy_decode, "beam_search": beam_search}
CODE = {"greedy_decode": ours.greedy_decode, "beam_search": ours.beam_search}


@pytest.fixture(autouse=True)
def unchecked():
    """Shapes are checked for right answers in float32 only: the checks take most of the time."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize("name", GRADERS)
def test_stubs_errors_and_nonsense_are_told(name):
    assert_told(GRADERS[name])


def test_an_endless_loop_is_stopped():
    assert_stopped(greedy_decode)


@pytest.mark.parametrize("name", GRADERS)
def test_the_grader_leaves_no_trace(name, capsys):
    assert_harmless(GRADERS[name], loud(CODE[name]), capsys)


@pytest.mark.parametrize("name", GRADERS)
def test_inputs_that_are_changed_are_told_and_put_back(name):
    assert_rejected(GRADERS[name](changing(CODE[name])), "in place")
    assert_accepted(GRADERS[name](CODE[name]))


def test_weights_that_are_changed_are_told_and_put_back():
    def bans_for_ever(model, src, max_len):
        with torch.no_grad():
            model.output_proj.bias[0] = -1e4
        return ours.greedy_decode(model, src, max_len)

    assert_rejected(greedy_decode(bans_for_ever), "changes the weights")


def test_the_right_searches_behind_the_suspects_are_right():
    assert_accepted(greedy_decode(greedy()))
    assert_accepted(beam_search(Beam()))


def test_every_mistake_is_named_as_itself():
    for grader, table in (("greedy_decode", WRONG_GREEDY), ("beam_search", WRONG_BEAMS)):
        words = [FAULTS[name][1] for name in FAULTS if name.startswith(grader)]
        for says, wrong in table.items():  # those that no fault above stands for
            if not any(word in says for word in words):
                assert GRADERS[grader](wrong).diagnosis == says


def test_answers_in_other_forms_are_taken():
    def unpadded_rows(model, src, max_len):
        rows, pad = ours.greedy_decode(model, src, max_len), model.config.pad_id
        return [row[row != pad] for row in rows]

    def to_the_end(model, src, max_len):
        ids = ours.greedy_decode(model, src, max_len)
        full = torch.full((len(src), max_len), model.config.pad_id)
        full[:, : ids.shape[1]] = ids
        return full, torch.zeros(len(src))

    def scores_as_list(*args):
        ids, scores = a_beam()(*args)
        return ids.tolist(), scores.tolist()

    for form in (unpadded_rows, to_the_end):
        assert_accepted(greedy_decode(form))
    assert_accepted(beam_search(scores_as_list))


def test_ids_alone_are_no_answer_of_a_beam_search():
    report = beam_search(lambda *args: ours.beam_search(*args)[0])
    assert_rejected(report, "(ids, scores)")


@pytest.mark.parametrize("use_cache", [True, False])
def test_the_scripted_model_offers_all_that_a_transformer_does(use_cache):
    model = Scripted(SCRIPT).eval()
    src = torch.tensor([[6, 2, 0], [7, 3, 2], [4, 2, 0]])
    said = ours.greedy_decode(model, src, 8, use_cache=use_cache)
    assert said.tolist() == [[5, 6, 5, 7, 8, 2], [8, 9, 2, 0, 0, 0], [5, 7, 12, 2, 0, 0]]
    wide, scores = ours.beam_search(model, src, 8, 3, 0.0, use_cache=use_cache)
    assert wide[2].tolist()[:3] == [6, 7, 2]
    torch.testing.assert_close(scores[2].exp(), torch.tensor(0.36))
    tgt_in = torch.cat([torch.ones(3, 1, dtype=torch.int64), said[:, :-1]], dim=1)
    assert (model(src, tgt_in).argmax(-1) == said)[said != 0].all()
    with pytest.raises(ValueError, match="length 33"):
        model(src, torch.ones(3, 33, dtype=torch.int64))
    model.train()
    assert not torch.equal(model(src, tgt_in), model.eval()(src, tgt_in))


def test_real_models_are_the_same_each_time_and_clear_in_what_they_say():
    state = torch.get_rng_state()
    for changes in ({}, {"pad_id": 3, "bos_id": 6, "eos_id": 4}):
        model, again = real_model(7, **changes), real_model(7, **changes)
        assert all(map(torch.equal, model.parameters(), again.parameters()))
    assert torch.equal(torch.get_rng_state(), state)
