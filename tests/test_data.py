"""Data: true dates and numbers, nothing of the test part in training, batches of few pads."""

import functools
import itertools
import re
from collections import Counter
from datetime import datetime

import pytest
import torch
from babel.dates import format_date
from num2words import num2words

from tutorial_transformer.data import (
    Vocab,
    date_pairs,
    encode_pairs,
    make_batches,
    number_pairs,
    read_pairs,
)
from tutorial_transformer.vocab import BOS, EOS, PAD, UNK

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
    for part in (train[0], test[0]):  # both parts come from all the years
        assert {date[:3] for date in part} >= {"197", "206"}


def test_a_seed_names_its_pairs_and_leaves_other_random_numbers_alone():
    state = torch.get_rng_state()
    for draw in (date_pairs, number_pairs):
        assert draw(7, seed=3) == draw(7, seed=3) != draw(7, seed=4)
    assert torch.equal(torch.get_rng_state(), state)


ENGLISH = [num2words(number) for number in range(20)]
TENS = [num2words(number) for number in range(20, 100, 10)]
GERMAN = {num2words(number, lang="de") for number in [*range(20), *range(20, 100, 10)]}


def value(words):
    """Read an English number: the second opinion about what num2words wrote."""
    total = part = 0
    for word in re.findall("[a-z]+", words):
        if word == "thousand":
            total, part = part * 1000, 0
        elif word == "hundred":
            part *= 100
        elif word != "and":
            part += ENGLISH.index(word) if word in ENGLISH else 20 + 10 * TENS.index(word)
    return total + part


@functools.cache
def drawn(target):
    return number_pairs(4000, seed=0, target=target)


@pytest.mark.parametrize("target", ["de", "fr", "es"])
def test_a_pair_spells_the_same_number_twice_as_num2words_does(target):
    for source, translation in drawn(target):
        assert num2words(value(source), lang="en") == source
        joined = translation.replace(" ", "") if target == "de" else translation
        assert joined == num2words(value(source), lang=target)
    assert [source for source, _ in drawn(target)] == [source for source, _ in drawn("de")]


def test_german_words_fall_into_32_parts():
    assert {part for _, words in drawn("de") for part in words.split(" ")} == (
        GERMAN | {"ein", "und", "hundert", "tausend"}
    )
    assert dict(drawn("de"))["one hundred and seventy-six"] == "ein hundert sechs und siebzig"


@pytest.mark.parametrize(("target", "crosses"), [("de", True), ("fr", False)])
def test_the_ones_come_before_the_tens_in_german_and_after_them_in_french(target, crosses):
    words = dict(drawn(target))
    tens = TENS if crosses else TENS[:5]  # from seventy on, French counts in twenties
    for ten, one in itertools.product(tens, ENGLISH[1:10]):
        said = re.split("[ -]", words[f"{ten}-{one}"])
        digit = "ein" if words[one] == "eins" else words[one]
        assert (said.index(digit) < said.index(words[ten])) == crosses, said


def test_small_numbers_are_drawn_although_they_are_few():
    digits = Counter(len(str(value(source))) for source, _ in drawn("de"))
    assert digits[1] == 10 and digits[2] > 80 and digits[3] > 600 and digits[5] > 1000
    assert len(set(drawn("de"))) == 4000  # none twice
    first, last = (
        sum(value(source) for source, _ in part)
        for part in (drawn("de")[:2000], drawn("de")[2000:])
    )
    assert 0.9 < first / last < 1.1  # in any order, not small ones first


def test_training_and_test_parts_share_no_number_whatever_the_seeds():
    def numbers(part, seed):
        return {source for source, _ in number_pairs(700, seed, part=part)}

    train = [numbers("train", seed) for seed in (0, 1)]
    test = [numbers("test", seed) for seed in (0, 2)]
    assert set.union(*train).isdisjoint(set.union(*test))
    assert train[0] & train[1] and test[0] & test[1]  # two draws do share numbers
    assert train[0] != train[1] and test[0] != test[1]
    assert numbers(None, 0) & train[0] and numbers(None, 0) & test[0]
    for part in (train[0], test[0]):  # both parts come from everywhere
        assert min(map(value, part)) < 100 and max(map(value, part)) > 90_000


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


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"count": 0}, ValueError, "count must be at least 1, got 0"),
        ({"count": 100_001}, ValueError, "count=100001 is more than the 100000 pairs"),
        ({"count": 10_001, "part": "test"}, ValueError, "count=10001 is more than the 10000"),
        ({"count": 90_001, "part": "train"}, ValueError, "count=90001 is more than the 90000"),
        ({"count": True}, TypeError, "count must be an int, got True"),
        ({"seed": 0.5}, TypeError, "seed"),
        ({"target": "klingon"}, ValueError, "target must be a language .* got 'klingon'"),
        ({"target": "am"}, ValueError, "target must be a language .* got 'am'"),
        ({"target": "DE"}, ValueError, "target must be a language .* got 'DE'"),
        ({"target": None}, (TypeError, ValueError), "target"),
        ({"part": "dev"}, ValueError, "part must be 'train', 'test' or None, got 'dev'"),
    ],
)
def test_number_pairs_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        number_pairs(**({"count": 2, "seed": 0} | arguments))


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


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: encode_pairs([], *VOCABS), ValueError, "pairs must not be empty"),
        (lambda: make_batches([], *VOCABS, 2), ValueError, "pairs must not be empty"),
        (lambda: make_batches(PAIRS, *VOCABS, 0), ValueError, "batch_size must be .* got 0"),
        (lambda: make_batches(PAIRS, *VOCABS, 2.0), TypeError, "batch_size"),
    ],
)
def test_bad_batches_are_refused(build, error, message):
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


def test_mixed_batches_hold_every_pair_once_and_all_lengths():
    pairs = number_pairs(200, seed=0)
    vocabs = [Vocab(pair[side] for pair in pairs) for side in (0, 1)]
    mixed, grouped = (
        make_batches(pairs, *vocabs, batch_size=20, by_length=by_length)
        for by_length in (False, True)
    )
    texts = [
        [vocabs[0].decode(ids) for batch in batches for ids in batch.src]
        for batches in (mixed, grouped)
    ]
    assert sorted(texts[0]) == sorted(texts[1]) == sorted(source for source, _ in pairs)
    spread = [
        min(float((batch.src != PAD).sum(1).double().std()) for batch in batches)
        for batches in (mixed, grouped)
    ]
    assert spread[0] > 1 > spread[1]
