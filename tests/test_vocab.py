"""Vocabularies: ids that go back to text, special ids that no text can write."""

import itertools
import json
import unicodedata

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tutorial_transformer.vocab import (
    BOS,
    EOS,
    PAD,
    SPECIAL,
    UNK,
    SubwordVocab,
    Vocab,
    tokenize,
    vocab_from_json,
)

few = settings(max_examples=30, deadline=None, derandomize=True)
ANY = "Sat, 10 Sept 1983 → 1983年9月10日星期六, le 1er août_2 ٣x\r\n\u2028"
TEXTS = ["the cat sat on the mat", "the cat, the hat: 9月10日", "<eos> <pad>", "that's that"] * 2
CHARACTERS = Vocab(TEXTS, unit="character")
SUBWORDS = SubwordVocab(TEXTS, vocab_size=280)
ALL = [Vocab(TEXTS), CHARACTERS, SUBWORDS]
each_unit = pytest.mark.parametrize("vocab", ALL, ids=lambda vocab: vocab.unit)


def kind(token):
    """What a token is, by Unicode category instead of a regular expression."""
    if "\u3040" <= token <= "\u30ff\uffff" or "\u3400" <= token <= "\u9fff\uffff":
        return "cjk"
    categories = {unicodedata.category(letter)[0:2] for letter in token}
    if categories == {"Nd"}:
        return "number"
    return "word" if token.isalnum() else "other"


@few
@given(st.text())
@example(ANY)
def test_tokens_join_to_the_text_they_were_cut_from(text):
    tokens = tokenize(text)
    assert "".join(tokens) == text
    kinds = [kind(token) for token in tokens]
    for token, its_kind in zip(tokens, kinds, strict=True):
        assert len(token) == 1 or its_kind in ("number", "word")
        assert tokenize(token) == [token]
    for pair in itertools.pairwise(kinds):
        assert pair not in {("number", "number"), ("word", "word")}  # cut as late as possible


@pytest.mark.parametrize(("unit", "split"), [("word", tokenize), ("character", list)])
@few
@given(st.text(min_size=1), st.text())
@example("aab", "ab c")
def test_a_vocabulary_knows_its_texts_and_nothing_else(unit, split, text, other):
    vocab = Vocab([text], unit=unit)
    ids = vocab.encode(text)
    assert vocab.decode(ids) == vocab.decode(torch.tensor(ids)) == text
    assert vocab.split(text) == split(text)
    assert vocab.tokens == SPECIAL + sorted(set(split(text))) and len(vocab) == len(vocab.tokens)
    assert set(ids) == set(range(4, len(vocab)))
    for token, number in zip(split(other), vocab.encode(other), strict=True):
        assert (number == UNK) == (token not in split(text))


def test_words_and_characters_cut_the_same_text_at_different_places():
    assert Vocab(["the cat"]).tokens == [*SPECIAL, " ", "cat", "the"]
    assert Vocab(["the cat"]).tokens == Vocab(["cat the", "the"]).tokens
    assert Vocab(["the cat"], unit="character").tokens == [*SPECIAL, *" aceht"]
    words, characters, subwords = (len(vocab.encode("the cat sat")) for vocab in ALL)
    assert words == 5 and characters == 11 and words < subwords + 3 < characters


STRANGE = [
    "", "a", " ", "  a\t\tb\n", "é", "e\u0301\u0323", "🙂👩\u200d👧", "日本語", "مرحبا بالعالم",
    "<eos>", "<pad><unk> <bos>", "\x00\ufeff", ANY,
]  # fmt: skip


@pytest.mark.parametrize("text", STRANGE)
def test_subwords_write_texts_that_they_never_saw(text):
    ids = SUBWORDS.encode(text)
    assert SUBWORDS.decode(ids) == SUBWORDS.decode(torch.tensor(ids).long()) == text
    assert all(UNK < number < len(SUBWORDS) for number in ids)
    assert UNK in Vocab(["the cat"]).encode(text) or not text.strip(" ")  # words cannot


@few
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_subwords_write_every_text(text):
    ids = SUBWORDS.encode(text)
    assert SUBWORDS.decode(ids) == text and min(ids, default=4) > UNK


def merged(text, merges):
    """Glue the bytes of one word, pair by pair in the order in which the pairs were learned."""
    pieces = list(text)
    for left, right in merges:
        at = 0
        while at < len(pieces) - 1:
            if pieces[at : at + 2] == [left, right]:
                pieces[at : at + 2] = [left + right]
            at += 1
    return pieces


@pytest.mark.parametrize("word", ["the", "that", "cat", "hat", "mattheth", "x", "tha"])
def test_a_word_is_cut_by_the_merges_in_their_order(word):
    assert [SUBWORDS.tokens[number] for number in SUBWORDS.encode(word)] == merged(
        word, SUBWORDS.merges
    )
    assert len(SUBWORDS.encode("the")) == 1 < len(SUBWORDS.encode("eht"))


@pytest.mark.parametrize("vocab_size", [260, 261, 270, 280, 5000])
def test_subwords_keep_to_their_size_and_are_learned_the_same_every_time(vocab_size):
    vocab = SubwordVocab(iter(TEXTS), vocab_size)
    assert len(vocab) == len(vocab.tokens) == len(set(vocab.tokens))
    assert len(vocab) == vocab_size or vocab_size == 5000 > len(vocab)  # so few texts give few
    assert vocab.tokens[:4] == SPECIAL
    assert vocab.tokens[260:] == [left + right for left, right in vocab.merges]
    assert vocab.merges == SubwordVocab(TEXTS, vocab_size).merges
    assert vocab.merges[:2] == SUBWORDS.merges[: min(2, vocab_size - 260)]  # the best come first
    assert vocab.decode(vocab.encode(ANY)) == ANY


@each_unit
def test_special_ids_are_no_part_of_a_text_and_no_text_can_write_them(vocab):
    for text in ("<pad>", "<eos> <pad>", "the <bos>"):
        assert not {PAD, BOS, EOS} & set(vocab.encode(text))
    assert vocab.decode(vocab.encode("<eos> <pad>")) == "<eos> <pad>"
    t, a = vocab.encode("the")[-1], vocab.encode("cat")[-1]
    text = vocab.decode([t, a])
    assert len(text) > 1
    assert vocab.decode([BOS, t, PAD, a, EOS, t, PAD]) == vocab.decode([t, a, EOS]) == text
    assert vocab.decode([t, UNK]) == vocab.decode([t]) + "<unk>"
    assert vocab.decode([]) == vocab.decode([EOS, t]) == ""


@each_unit
@pytest.mark.parametrize("kind_of_ids", [list, tuple, torch.tensor])
def test_an_id_outside_the_vocabulary_is_named(vocab, kind_of_ids):
    size = len(vocab)
    for number in (-1, -5, size, size + 9):
        with pytest.raises(ValueError, match=f"holds {number}, but the vocabulary has {size} ent"):
            vocab.decode(kind_of_ids([4, number]))
    assert vocab.decode(kind_of_ids([4, size - 1])).startswith(vocab.decode([4]))


@each_unit
def test_a_vocabulary_goes_through_json(vocab):
    description = json.loads(json.dumps(vocab.to_json()))
    again = vocab_from_json(description)
    assert type(again) is type(vocab) and again.unit == vocab.unit
    assert again.tokens == vocab.tokens and again.to_json() == vocab.to_json() == description
    for text in (*TEXTS, ANY, "<eos>"):
        ids = vocab.encode(text)
        assert again.encode(text) == ids and again.decode(ids) == vocab.decode(ids)
    for values in description.values():  # a copy, on both ways
        if isinstance(values, list):
            values.clear()
    vocab.to_json().popitem()[1].clear()
    assert again.tokens == vocab.tokens and vocab.encode("the") == again.encode("the") != []


WORDS = {"unit": "word", "tokens": [*SPECIAL, "a", "b"]}


@pytest.mark.parametrize(
    "description",
    [
        {},
        [],
        ["word", SPECIAL],
        None,
        "word",
        {"unit": "word"},
        {"tokens": SPECIAL},
        {"unit": "subword"},
        {"unit": "subword", "tokens": SPECIAL},
        WORDS | {"unit": "syllable"},
        WORDS | {"unit": ["word"]},
        WORDS | {"tokens": None},
        WORDS | {"tokens": []},
        WORDS | {"tokens": SPECIAL[:3]},
        WORDS | {"tokens": "<pad>"},
        WORDS | {"tokens": ["a", *SPECIAL]},
        WORDS | {"tokens": [*SPECIAL[::-1], "a"]},
        WORDS | {"tokens": [*SPECIAL, "a", "b", "a"]},
        WORDS | {"tokens": [*SPECIAL, "a", "<eos>"]},
        WORDS | {"tokens": [*SPECIAL, 5]},
        WORDS | {"tokens": [*SPECIAL, None]},
        WORDS | {"tokens": [*SPECIAL, ["a"]]},
        {"unit": "subword", "merges": None},
        {"unit": "subword", "merges": 5},
        {"unit": "subword", "merges": "the cat"},
        {"unit": "subword", "merges": [["a"]]},
        {"unit": "subword", "merges": [["a", "b", "c"]]},
        {"unit": "subword", "merges": [["a", 5]]},
        {"unit": "subword", "merges": [[5, 5]]},
        {"unit": "subword", "merges": [["a", "never learned"]]},
        {"unit": "subword", "merges": [["猫", "a"]]},
    ],
    ids=str,
)
def test_what_describes_no_vocabulary_is_refused(description):
    with pytest.raises(ValueError, match="not a vocabulary"):
        vocab_from_json(description)
    assert vocab_from_json(WORDS).decode([4, 5]) == "ab"
    assert vocab_from_json({"unit": "subword", "merges": [["a", "b"]]}).encode("ab") == [260]


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: Vocab("the cat"), TypeError, r"try Vocab\(\[text\]\)"),
        (lambda: Vocab("the cat", unit="character"), TypeError, r"try Vocab\(\[text\]\)"),
        (lambda: Vocab([]), ValueError, "texts must hold at least one token"),
        (lambda: Vocab(["", ""]), ValueError, "texts must hold at least one token"),
        (lambda: Vocab([5]), TypeError, "text"),
        (lambda: Vocab(["a"], "letter"), ValueError, "unit must be 'word' or .* got 'letter'"),
        (lambda: SubwordVocab("the cat"), TypeError, "one str"),
        (lambda: SubwordVocab([]), ValueError, "texts must hold at least one token"),
        (lambda: SubwordVocab(["a", None]), TypeError, "text"),
        (lambda: SubwordVocab(["a"], 259), ValueError, "vocab_size must be at least 260, got 259"),
        (lambda: SubwordVocab(["a"], 0), ValueError, "vocab_size must be at least 1, got 0"),
        (lambda: SubwordVocab(["a"], 300.0), TypeError, "vocab_size"),
        (lambda: tokenize(None), TypeError, "text"),
        (lambda: Vocab(["a"]).encode(5), TypeError, "text"),
        (lambda: CHARACTERS.encode(["t", "h"]), TypeError, "text"),
        (lambda: SUBWORDS.encode(b"the"), TypeError, "text"),
        (lambda: SUBWORDS.decode(torch.tensor([[4], [4]])), ValueError, r"got shape \(2, 1\)"),
        (lambda: Vocab(["a"]).decode(torch.tensor([[4], [4]])), ValueError, r"got shape \(2, 1\)"),
    ],
)
def test_bad_texts_and_sizes_are_refused(build, error, message):
    with pytest.raises(error, match=message):
        build()
