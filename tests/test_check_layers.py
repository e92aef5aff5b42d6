"""The graders of chapters 04 to 08: mistakes are named, right code passes."""

import jaxtyping
import pytest
import torch
from faults import add_norm, decoder, embeddings, encoder, feed_forward
from grading import (
    assert_accepted,
    assert_harmless,
    assert_rejected,
    assert_stopped,
    assert_told,
    changing,
    headings,
    loud,
)
from torch import nn

from tutorial_transformer.check._adding_mistakes import ADDING
from tutorial_transformer.check._decoder_mistakes import LAYER as DECODER
from tutorial_transformer.check._encoder_mistakes import LAYER as ENCODER
from tutorial_transformer.check._network_mistakes import CONVOLUTION, NETWORK
from tutorial_transformer.check._norm_mistakes import NORMING
from tutorial_transformer.check._position_mistakes import ADDED, BUFFER, TOKENS
from tutorial_transformer.check._table_checks import CHECKS
from tutorial_transformer.check._wave_mistakes import TABLES
from tutorial_transformer.check.add_norm import add_norm as wrapper
from tutorial_transformer.check.add_norm import layer_norm
from tutorial_transformer.check.decoder import decoder_layer
from tutorial_transformer.check.embeddings import positional_encoding, token_embedding
from tutorial_transformer.check.encoder import encoder_layer
from tutorial_transformer.check.feed_forward import feed_forward as network

GRADERS = {
    "feed_forward": network,
    "positional_encoding": positional_encoding,
    "token_embedding": token_embedding,
    "layer_norm": layer_norm,
    "add_norm": wrapper,
    "encoder_layer": encoder_layer,
    "decoder_layer": decoder_layer,
}


@pytest.fixture(autouse=True)
def unchecked():
    """Shapes are checked for right answers in float32 only: the checks take most of the time."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def module_of(forward):
    """A class whose modules answer with this function, whatever they are built with."""

    def build(self, *_, **__):
        nn.Module.__init__(self)
        self.table = nn.Parameter(torch.ones(7, 4))

    members = {"__init__": build, "forward": lambda self, *inputs: forward(*inputs)}
    return type("Theirs", (nn.Module,), members)


@pytest.mark.parametrize("name", GRADERS)
def test_stubs_errors_and_nonsense_are_told(name):
    assert_told(GRADERS[name], module_of)


@pytest.mark.parametrize("name", ["positional_encoding", "layer_norm"])
def test_functions_are_told_too(name):
    assert_told(GRADERS[name])


def test_an_endless_loop_is_stopped():
    assert_stopped(decoder_layer, module_of)


def wrapped(code, wrap):
    """A class whose forward is wrapped."""

    def forward(self, *inputs):
        return wrap(super(theirs, self).forward)(*inputs)

    theirs = type("Theirs", (code,), {"forward": forward})
    return theirs


PLAIN = {
    "feed_forward": feed_forward.Plain,
    "token_embedding": embeddings.Tokens,
    "positional_encoding": embeddings.Positions,
    "add_norm": add_norm.Wrapper,
    "encoder_layer": encoder.Layer,
    "decoder_layer": decoder.Layer,
}


@pytest.mark.parametrize("name", ["feed_forward", "add_norm", "encoder_layer", "decoder_layer"])
def test_the_grader_leaves_no_trace(name, capsys):
    assert_harmless(GRADERS[name], wrapped(PLAIN[name], loud), capsys)


@pytest.mark.parametrize("name", PLAIN)
def test_inputs_that_are_changed_are_told(name):
    word = "two calls" if name == "token_embedding" else "in place"  # it asks twice
    assert_rejected(GRADERS[name](wrapped(PLAIN[name], changing)), word)


def test_a_report_says_whether_it_saw_a_class_or_a_function():
    for code, word in ((embeddings.table_by_exp, "function"), (embeddings.Positions, "class")):
        assert word in positional_encoding(code).properties[0].name


def test_what_no_mistake_gives_may_name_a_section_too():
    report = positional_encoding(embeddings.EndsTooEarly)
    assert report.reread == BUFFER and report.reread in headings()
    for code in (feed_forward.ReshapesBack, feed_forward.ReshapesBoth, feed_forward.ReshapesThere):
        assert network(code).reread == CONVOLUTION


def test_a_saved_table_is_no_mistake_but_remarked():
    remarks = [
        [item.name for item in positional_encoding(code).properties if "remark" in item.name]
        for code in (embeddings.Saved, embeddings.Positions)
    ]
    assert "another max_len" in remarks[0][0] and not remarks[1]


def test_the_shortcut_of_code_without_gradients_is_not_judged():
    class NoGradient(add_norm.Wrapper):
        @torch.no_grad()
        def forward(self, x, sublayer):
            return super().forward(x, sublayer)

    assert_accepted(wrapper(NoGradient))


def test_a_module_without_numbers_is_told():
    class Meta(nn.Linear):
        def __init__(self, d_model, d_ff):
            super().__init__(d_model, d_ff, device="meta")

    assert_rejected(network(Meta), "meta device")


def test_a_module_in_the_place_of_its_class_is_told():
    assert_rejected(network(feed_forward.Plain(4, 10)), "the class itself")
    assert_rejected(encoder_layer(encoder.Layer(8, 2, 12)), "the class itself")


def test_every_mistake_names_a_section():
    tables = (NETWORK, TABLES, ADDED, TOKENS, NORMING, ADDING, ENCODER, DECODER)
    assert {mistake.reread for table in tables for mistake in table.values()} <= headings()
    assert {reread for *_, reread in CHECKS.values()} <= headings()


@pytest.mark.parametrize(
    "grader, table",
    [(layer_norm, NORMING), (positional_encoding, TABLES)],
    ids=["layer_norm", "positional_encoding"],
)
def test_every_mistake_is_named_as_itself(grader, table):
    for says, mistake in table.items():
        report = grader(mistake.rule)
        assert report.diagnosis == says and report.reread == mistake.reread
