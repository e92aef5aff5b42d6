"""Data: true dates, nothing of the test part in training, and ids that go back to text."""

import itertools
import re
import unicodedata
from collections import Counter
from datetime import datetime

import pytest
import torch
from babel.dates import format_date
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tutorial_transformer.data import (
    BOS,
    EOS,
    PAD,
    SPECIAL,
    UNK,
    Vocab,
    date_pairs,
    encode_pairs,
    make_batches,
    read_pairs,
    tokenize,
)

few = settings(max_examples=30, deadline=None, derandomize=True)

# How a reader takes each English format apart; Python's strptime is the second opinion.
READINGS = [
    "%A, %B %d, %Y", "%B %d, %Y", "%b %d, %Y", "%m/%d/%y",
    "%A, %d %B %Y", "%d %B %Y", "%d %b %Y", "%d/%m/%Y",
    "%Y-%m-%d", "%Y/%m/%d", "%a, %b %d, %Y", "%a, %d %b %Y",
]  # fmt: skip
WEEKDAY = {
    "zh": "星期.$",
    "de": "^(Mon|Diens|Donners|Frei|Sams|Sonn)tag|^Mittwoch",
    "fr": "^(lun|mar|mercre|jeu|vendre|same)di |^dimanche ",
    "ja": "曜日$",
}


def read_english(text):
    """Every (day, format) that a reader could find in the text."""
    found = []
    for reading in READINGS:
        try:
            moment = datetime.strptime(text.replace("Sept ", "Sep "), reading)
        except ValueError:
            continue
        found.append((moment.replace(year=moment.year + 100 * (moment.year < 1970)), reading))
    return found


@pytest.mark.parametrize("target", ["zh", "de", "fr", "ja"])
def test_a_pair_says_the_same_date_twice_as_babel_writes_it(target):
    seen = set()
    for source, translation in date_pairs(500, seed=5, target=target):
        readings = read_english(source)
        assert len({moment for moment, _ in readings}) == 1, source  # one date only
        moment, reading = readings[0]
        named = reading.startswith(("%A", "%a"))
        assert source.startswith(moment.strftime("%A" if "%A" in reading else "%a")) == named
        assert 1970 <= moment.year < 2070
        assert translation == format_date(moment, "full" if named else "long", locale=target)
        assert bool(re.search(WEEKDAY[target], translation)) == named, (source, translation)
        seen.add(reading)
    assert seen == set(READINGS)  # every format occurs


def test_no_source_text_has_two_translations():
    pairs = date_pairs(20_000, seed=1)
    again = {pair for pair, drawn in Counter(pairs).items() if drawn > 1}
    assert all("May" in source for source, _ in again)  # its short name is its long name
    translations = {}
    for source, target in pairs:
        assert translations.setdefault(source, target) == target
    american = {re.sub(r"^0?(\d+)/0?(\d+)/(19|20)", r"\1/\2/", s): t for s, t in pairs}
    assert len(american) < len(translations)  # without zeros and centuries some would be the same


def test_training_and_test_parts_share_no_date_whatever_the_seeds():
    def days(part, seed):
        return {t.split("日")[0] for _, t in date_pairs(3000, seed, part=part)}

    train = [days("train", seed) for seed in (0, 1, 2)]
    test = [days("test", seed) for seed in (0, 1, 3)]
    assert set.union(*train).isdisjoint(set.union(*test))
    assert train[0] & train[1] and test[0] & test[1]  # two draws do share dates
    everything = days(None, 0)
    assert everything & train[0] and everything & test[0]


def test_a_seed_names_its_pairs_and_leaves_other_random_numbers_alone():
    state = torch.get_rng_state()
    assert date_pairs(7, seed=3) == date_pairs(7, seed=3) != date_pairs(7, seed=4)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"count": 0}, ValueError, "count must be at least 1, got 0"),
        ({"count": 438_301}, ValueError, "count=438301 is more than the 438300 pairs"),
        ({"count": 43_825, "part": "test"}, ValueError, "count=43825 is more than the 43824"),
        ({"count": 394_477, "part": "train"}, ValueError, "count=394477 is more than the 394476"),
        ({"count": 2.5}, TypeError, "count"),
        ({"seed": "a"}, TypeError, "seed"),
        ({"target": "klingon"}, ValueError, "target must be a CLDR locale .* got 'klingon'"),
        ({"target": ""}, ValueError, "target must be a CLDR locale .* got ''"),
        ({"part": "dev"}, ValueError, "part must be 'train', 'test' or None, got 'dev'"),
    ],
)
def test_date_pairs_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        date_pairs(**({"count": 2, "seed": 0} | arguments))


BOM = b"\xef\xbb\xbf"


@pytest.mark.parametrize(
    ("content", "pairs"),
    [
        (b"a\tb\nc d\te f\n", [("a", "b"), ("c d", "e f")]),
        (b"a\tb", [("a", "b")]),  # no newline at the end
        (BOM + b"a\tb\n", [("a", "b")]),
        (b"a\tb\r\nc\td\r\n", [("a", "b"), ("c", "d")]),
        (b"\n\na\tb\n  \n\r\nc\td\n\n", [("a", "b"), ("c", "d")]),
        (b" a \t b \n", [("a", "b")]),
        ("a\u2028b\tc\u2029d\x85e\n".encode(), [("a\u2028b", "c\u2029d\x85e")]),
        (b"a\x0bb\tc\x0cd\x1ce\rf\n", [("a\x0bb", "c\x0cd\x1ce\rf")]),
        ("日期\té 🙂\n".encode(), [("日期", "é 🙂")]),
    ],
)
def test_a_file_of_pairs_is_read_as_it_was_written(tmp_path, content, pairs):
    path = tmp_path / "pairs.tsv"
    path.write_bytes(content)
    assert read_pairs(path) == read_pairs(str(path)) == pairs


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\tb\na b\n", "line 2: wanted source<TAB>target, found 0 tabs"),
        (b"\na\tb\tc\n", "line 2: wanted source<TAB>target, found 2 tabs"),
        (b"a\tb\n\n\tb\n", "line 3: the source or the target is empty"),
        (b"a\t \n", "line 1: the source or the target is empty"),
        (b"a\tb\n\t\n", "line 2: the source or the target is empty"),
        (b"a\tb\nc\td\n\xff\te\n", "line 3: not UTF-8"),
        (BOM + b"a\tb\n\xe9\tb\n", "line 2: not UTF-8"),
        (b"", "pairs.tsv holds no pairs"),
        (BOM + b"\r\n  \n", "pairs.tsv holds no pairs"),
    ],
)
def test_a_faulty_line_is_named_by_its_number(tmp_path, content, message):
    path = tmp_path / "pairs.tsv"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_pairs(path)


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
@example("Sat, 10 Sept 1983 → 1983年9月10日星期六, le 1er août_2 ٣x\r\n\u2028")
def test_tokens_join_to_the_text_they_were_cut_from(text):
    tokens = tokenize(text)
    assert "".join(tokens) == text
    kinds = [kind(token) for token in tokens]
    for token, its_kind in zip(tokens, kinds, strict=True):
        assert len(token) == 1 or its_kind in ("number", "word")
        assert tokenize(token) == [token]
    for pair in itertools.pairwise(kinds):
        assert pair not in {("number", "number"), ("word", "word")}  # cut as late as possible


@few
@given(st.text(min_size=1), st.text())
def test_a_vocabulary_knows_its_texts_and_nothing_else(text, other):
    vocab = Vocab([text])
    ids = vocab.encode(text)
    assert vocab.decode(ids) == vocab.decode(torch.tensor(ids)) == text
    assert vocab.tokens[:4] == SPECIAL and len(vocab) == 4 + len(set(tokenize(text)))
    assert set(ids) == set(range(4, len(vocab)))
    for token, number in zip(tokenize(other), vocab.encode(other), strict=True):
        assert (number == UNK) == (token not in tokenize(text))


def test_special_ids_are_no_part_of_a_decoded_text_and_no_text_can_write_them():
    vocab = Vocab(iter(["the cat", "<pad> sat"]))  # any iterable, read once
    assert vocab.encode("<pad><bos>")[0] > UNK
    assert min(vocab.encode("<pad>")) > UNK and vocab.decode(vocab.encode("<pad>")) == "<pad>"
    the, cat = vocab.encode("the")[0], vocab.encode("cat")[0]
    assert vocab.decode([BOS, the, PAD, UNK, cat, EOS, the, PAD]) == "the<unk>cat"
    assert vocab.decode([]) == vocab.decode([EOS, the]) == ""
    assert (
        Vocab(["the cat"]).tokens
        == Vocab(["cat the", "the"]).tokens
        == [*SPECIAL, " ", "cat", "the"]
    )


@pytest.mark.parametrize("number", [-1, -5, 7, 99])
@pytest.mark.parametrize("kind_of_ids", [list, tuple, torch.tensor])
def test_an_id_outside_the_vocabulary_is_named(number, kind_of_ids):
    vocab = Vocab(["the cat"])
    with pytest.raises(ValueError, match=f"holds {number}, but the vocabulary has 7 entries"):
        vocab.decode(kind_of_ids([4, number]))
    assert vocab.decode(kind_of_ids([4, 6])) == " the"


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: Vocab("the cat"), TypeError, r"try Vocab\(\[text\]\)"),
        (lambda: Vocab([]), ValueError, "texts must hold at least one token"),
        (lambda: Vocab(["", ""]), ValueError, "texts must hold at least one token"),
        (lambda: Vocab([5]), TypeError, "text"),
        (lambda: tokenize(None), TypeError, "text"),
        (lambda: Vocab(["a"]).decode(torch.tensor([[4], [4]])), ValueError, r"got shape \(2, 1\)"),
        (lambda: encode_pairs([], *VOCABS), ValueError, "pairs must not be empty"),
        (lambda: make_batches([], *VOCABS, 2), ValueError, "pairs must not be empty"),
        (lambda: make_batches(PAIRS, *VOCABS, 0), ValueError, "batch_size must be .* got 0"),
        (lambda: make_batches(PAIRS, *VOCABS, 2.0), TypeError, "batch_size"),
    ],
)
def test_bad_texts_and_bad_batches_are_refused(build, error, message):
    with pytest.raises(error, match=message):
        build()


PAIRS = [("a", "A"), ("a?", "B:A"), ("", "B")]
VOCABS = Vocab(["a"]), Vocab(["A:B"])  # a and ":" "A" "B" are the ids from 4 on


def test_the_decoder_reads_what_it_should_have_said_one_step_before():
    batch = encode_pairs(PAIRS, *VOCABS)
    assert batch.src.tolist() == [[4, EOS, PAD], [4, UNK, EOS], [EOS, PAD, PAD]]
    assert batch.tgt_in.tolist() == [[BOS, 5, EOS, PAD], [BOS, 6, 4, 5], [BOS, 6, EOS, PAD]]
    assert batch.tgt_out.tolist() == [[5, EOS, PAD, PAD], [6, 4, 5, EOS], [6, EOS, PAD, PAD]]
    assert torch.equal(batch.tgt_in[:, 1:], batch.tgt_out[:, :-1])
    assert (batch.tgt_out != PAD).sum(dim=1).tolist() == [2, 4, 2]


@pytest.mark.parametrize("batch_size", [1, 32, 150, 1000])
def test_every_pair_is_in_exactly_one_batch(batch_size):
    pairs = date_pairs(150, seed=0)
    vocabs = Vocab(source for source, _ in pairs), Vocab(target for _, target in pairs)
    batches = make_batches(pairs, *vocabs, batch_size, seed=1)
    sizes = sorted(len(batch.src) for batch in batches)
    full, rest = divmod(150, batch_size)
    assert sizes == sorted([batch_size] * full + [rest] * (rest > 0))
    found = [
        (vocabs[0].decode(src), vocabs[1].decode(tgt_out))
        for batch in batches
        for src, tgt_out in zip(batch.src, batch.tgt_out, strict=True)
    ]
    assert sorted(found) == sorted(pairs) and pairs == date_pairs(150, seed=0)


def test_batches_hold_little_padding_and_change_with_the_seed():
    def pads(batches):
        return [
            torch.cat([getattr(batch, name).flatten() == PAD for batch in batches]).double().mean()
            for name in ("src", "tgt_out")
        ]

    pairs = date_pairs(600, seed=0)
    vocabs = Vocab(source for source, _ in pairs), Vocab(target for _, target in pairs)
    unsorted = [encode_pairs(pairs[i : i + 20], *vocabs) for i in range(0, 600, 20)]
    grouped = make_batches(pairs, *vocabs, batch_size=20)
    src_pads, tgt_pads = pads(grouped)
    assert src_pads < 0.05 < 0.2 < pads(unsorted)[0]
    assert tgt_pads < 0.02 < 0.1 < pads(unsorted)[1]
    first, again, other = (
        make_batches(pairs, *vocabs, batch_size=20, seed=seed)[0].src for seed in (0, 0, 1)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)
    lengths = [batch.src.shape[1] for batch in grouped]
    assert lengths != sorted(lengths)  # short and long batches take turns
