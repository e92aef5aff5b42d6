"""The graders of chapter 03 and of the cache: mistakes are named, right code passes."""

import pytest
import torch
from faults.multi_head import Base, FourInAList, Lists
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

from tutorial_transformer import multi_head as ours
from tutorial_transformer.check._cache_mistakes import CACHE
from tutorial_transformer.check._layer import Layer
from tutorial_transformer.check._multi_head_mistakes import MULTI_HEAD
from tutorial_transformer.check._roles import Map, possible_roles
from tutorial_transformer.check._split_mistakes import MERGING, SPLITTING
from tutorial_transformer.check.kv_cache import kv_cache
from tutorial_transformer.check.multi_head import merge_heads, multi_head, split_heads

GRADERS = {
    "split_heads": split_heads,
    "merge_heads": merge_heads,
    "multi_head": multi_head,
    "kv_cache": kv_cache,
}


def module_of(forward):
    """A class whose modules answer with this function."""
    return type("Theirs", (Base,), {"forward": lambda self, *inputs: forward(*inputs)})


def cache_of(append):
    """A class of caches that append with this function."""
    return type("Theirs", (Lists,), {"append": lambda self, *inputs: append(*inputs)})


def itself(function):
    return function


WRAPS = {
    "split_heads": itself,
    "merge_heads": itself,
    "multi_head": module_of,
    "kv_cache": cache_of,
}


@pytest.mark.parametrize("name", GRADERS)
def test_stubs_errors_and_nonsense_are_told(name):
    assert_told(GRADERS[name], WRAPS[name])


def test_an_endless_loop_is_stopped():
    assert_stopped(multi_head, module_of)


class Loud(Base):
    def forward(self, *inputs):
        return loud(super().forward)(*inputs)


class LoudLists(Lists):
    def append(self, *inputs):
        return loud(super().append)(*inputs)


LOUD = {
    "split_heads": loud(ours.split_heads),
    "merge_heads": loud(ours.merge_heads),
    "multi_head": Loud,
    "kv_cache": LoudLists,
}


@pytest.mark.parametrize("name", GRADERS)
def test_the_grader_leaves_no_trace(name, capsys):
    assert_harmless(GRADERS[name], LOUD[name], capsys)


class Changing(Base):
    def forward(self, *inputs):
        return changing(super().forward)(*inputs)


def test_inputs_that_are_changed_are_told_and_put_back():
    assert_rejected(split_heads(changing(ours.split_heads)), "in place")
    assert_rejected(merge_heads(changing(ours.merge_heads)), "in place")
    assert_rejected(multi_head(Changing), "in place")


def test_names_do_not_matter_where_another_assignment_makes_it_right():
    class Misnamed(Base):
        def __init__(self, d_model, num_heads):
            super().__init__(d_model, num_heads)
            self.w_q, self.w_k, self.w_v = self.w_v, self.w_q, self.w_k

        def forward(self, query, key, value, mask=None):
            self.w_q, self.w_o = self.w_o, self.w_q
            output = super().forward(query, key, value, mask)
            self.w_q, self.w_o = self.w_o, self.w_q
            return output

    assert_accepted(multi_head(Misnamed))


def test_names_decide_before_the_order():
    class Reversed(nn.Module):
        def __init__(self):
            super().__init__()
            self.dense, self.W_V = nn.Linear(8, 8), nn.Linear(8, 8)
            self.key_proj, self.linearQ = nn.Linear(8, 8), nn.Linear(8, 8)

    made = Reversed()
    roles = next(possible_roles(made, 8, 2))
    wanted = {"q": made.linearQ, "k": made.key_proj, "v": made.W_V, "o": made.dense}
    assert all(torch.equal(roles[role].weight, one.weight) for role, one in wanted.items())


def test_the_dropout_of_the_learner_is_off():
    assert_accepted(multi_head(lambda d_model, num_heads: FourInAList(d_model, num_heads, 0.5)))


def test_a_module_in_the_place_of_its_class_is_told():
    assert_rejected(multi_head(Base(8, 2)), "the class itself")
    assert_rejected(multi_head(lambda d_model, num_heads: torch.relu), "nn.Module")


def test_what_a_cache_lacks_is_told():
    class NoAppend:
        pass

    class OnlyKeys(Lists):
        def append(self, new_keys, new_values):
            return super().append(new_keys, new_values)[0]

    assert_rejected(kv_cache(NoAppend), "no method append")
    assert_rejected(kv_cache(OnlyKeys), "must return (keys, values)")
    assert_rejected(kv_cache(lambda: Untold()), "cannot tell its length")


class Untold:
    """A right cache without a length."""

    def __init__(self):
        self.lists = Lists()

    def append(self, new_keys, new_values):
        return self.lists.append(new_keys, new_values)


def test_a_factory_and_a_method_named_update_are_taken():
    class Updated(Lists):
        append = None

        def update(self, new_keys, new_values):
            return Lists.append(self, new_keys, new_values)

    assert_accepted(kv_cache(lambda: Updated()))


@pytest.mark.parametrize(
    "grader, table",
    [(split_heads, SPLITTING), (merge_heads, MERGING)],
    ids=["split_heads", "merge_heads"],
)
def test_every_mistake_is_named_as_itself(grader, table):
    for says, mistake in table.items():
        report = grader(mistake.rule)
        assert report.diagnosis == says and report.reread == mistake.reread


@pytest.mark.parametrize("says", MULTI_HEAD)
def test_every_mistake_of_a_layer_is_named_as_itself(says):
    class Mistaken(Base):
        def forward(self, query, key, value, mask=None):
            maps = {"q": self.w_q, "k": self.w_k, "v": self.w_v, "o": self.w_o}
            roles = {role: Map(one.weight, one.bias) for role, one in maps.items()}
            inputs = (Layer(roles, self.h), query, key, value, mask, self.training)
            return MULTI_HEAD[says].rule(*inputs)

    report = multi_head(Mistaken)
    assert report.diagnosis == says and report.reread == MULTI_HEAD[says].reread


def test_every_mistake_names_a_section():
    for table in (SPLITTING, MERGING, MULTI_HEAD, CACHE):
        assert {mistake.reread for mistake in table.values()} <= headings()
