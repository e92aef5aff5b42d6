"""Pairs of texts, and how they become batches of ids.

The course's own data are dates and numbers. Dates are real CLDR formats, from the babel package:
an English date in one of many formats is translated to the full form of another language, where
year, month, day and weekday stand in another order. Numbers are written in words, by the
num2words package: forty-two is zwei und vierzig, two-and-forty.
"""

import datetime
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from babel import Locale, UnknownLocaleError
from babel.dates import format_date, format_skeleton
from jaxtyping import Int
from num2words import CONVERTER_CLASSES, num2words
from torch import Tensor, nn

from tutorial_transformer import _checks as check
from tutorial_transformer.vocab import BOS, EOS, PAD, SubwordVocab, Vocab

Pair = tuple[str, str]  # (source text, target text)
AnyVocab = Vocab | SubwordVocab

# No two of these write different dates in the same way: en_GB's 03/04/1985 has zeros and four
# year digits, en_US's 4/3/85 has neither. Names of CLDR styles are lower case, skeletons are not.
ENGLISH_FORMATS = [
    ("en_US", "full"), ("en_US", "long"), ("en_US", "medium"), ("en_US", "short"),
    ("en_GB", "full"), ("en_GB", "long"), ("en_GB", "medium"), ("en_GB", "short"),
    ("en_CA", "short"), ("en_ZA", "short"), ("en_US", "yMMMEd"), ("en_GB", "yMMMEd"),
]  # fmt: skip
FIRST_DAY = datetime.date(1970, 1, 1)  # 100 years, so that two year digits are unambiguous
NUM_DAYS = (datetime.date(2070, 1, 1) - FIRST_DAY).days

NUM_NUMBERS = 100_000  # 101,000 would be "einhunderteinstausend", which is no German
GERMAN_JOINTS = re.compile("(hundert|tausend|und)")


def date_pairs(count: int, seed: int, target: str = "zh", part: str | None = None) -> list[Pair]:
    """Draw `count` pairs (a date in some English format, the same date in `target`).

    target is a CLDR locale such as "zh", "de", "fr" or "ja". The translation is its full form
    (year, month, day, weekday) when the English names the weekday, else its long form, which
    is the full form without the weekday: a translator cannot know what is not said.

    part is "train", "test" or None for all days. Every day belongs to one part, whatever the
    seed, so that no date of the test part is ever seen in training, in any format.

    >>> date_pairs(2, seed=3)
    [('1998/06/19', '1998年6月19日'), ('Wed, Nov 21, 2040', '2040年11月21日星期三')]
    """
    days = _part(part, NUM_DAYS)
    total = len(days) * len(ENGLISH_FORMATS)
    _check_draw(count, seed, total)
    try:
        locale = Locale.parse(target)
    except (UnknownLocaleError, ValueError, TypeError) as error:
        raise ValueError(f"target must be a CLDR locale such as 'zh', got {target!r}") from error
    drawn = random.Random(seed).sample(range(total), count)
    return [
        _date_pair(days[number // len(ENGLISH_FORMATS)], number % len(ENGLISH_FORMATS), locale)
        for number in drawn
    ]


def _part(part: str | None, total: int) -> list[int]:
    """The members of a part among 0 .. total - 1: a fixed tenth of them is for testing."""
    if part not in (None, "train", "test"):
        raise ValueError(f"part must be 'train', 'test' or None, got {part!r}")
    members = list(range(total))
    if part is None:
        return members
    random.Random(0).shuffle(members)  # not the caller's seed: the same parts for everybody
    return members[: total // 10] if part == "test" else members[total // 10 :]


def _check_draw(count: int, seed: int, total: int) -> None:
    check.size(count=count)
    if not isinstance(seed, int):
        raise TypeError(f"seed must be an int, got {seed!r}")
    if count > total:
        raise ValueError(f"count={count} is more than the {total} pairs there are")


def _date_pair(day: int, which: int, locale: Locale) -> Pair:
    date, (english, style) = FIRST_DAY + datetime.timedelta(day), ENGLISH_FORMATS[which]
    if style.islower():
        source = format_date(date, style, locale=english)
    else:
        source = format_skeleton(style, date, locale=english)
    names_weekday = style == "full" or "E" in style
    return source, format_date(date, "full" if names_weekday else "long", locale=locale)


def number_pairs(count: int, seed: int, target: str = "de", part: str | None = None) -> list[Pair]:
    """Draw `count` pairs (a number from 0 to 99,999 in English words, the same in `target`).

    target is a language of num2words such as "de" or "fr". German writes a number as one word,
    which is given here in its parts, with spaces between them.

    part is "train", "test" or None for all numbers. Every number belongs to one part, whatever
    the seed, and is drawn at most once.

    >>> for pair in number_pairs(2, seed=5):
    ...     print(pair)
    ('eight thousand, eight hundred and forty-three', 'acht tausend acht hundert drei und vierzig')
    ('twenty-six', 'sechs und zwanzig')
    """
    numbers = _part(part, NUM_NUMBERS)
    _check_draw(count, seed, len(numbers))
    try:
        CONVERTER_CLASSES[target].to_cardinal(NUM_NUMBERS - 1)
    except (KeyError, TypeError) as error:  # TypeError: a language that cannot spell it
        message = f"target must be a language of num2words such as 'de', got {target!r}"
        raise ValueError(message) from error
    # A race: whoever waits shortest is drawn. Waiting as long as the number is large, on average,
    # gives numbers of every length a chance, where 99 of 100 even draws are above 1000.
    rng = random.Random(seed)
    numbers.sort(key=lambda number: rng.expovariate(1 / (number + 1)))
    return [_number_pair(number, target) for number in rng.sample(numbers[:count], count)]


def _number_pair(number: int, target: str) -> Pair:
    words = num2words(number, lang=target)
    if target == "de":
        words = " ".join(GERMAN_JOINTS.sub(r" \1 ", words).split())
    return num2words(number, lang="en"), words


def read_pairs(path: str | Path) -> list[Pair]:
    """Read a UTF-8 file of lines "source<TAB>target"; blank lines are skipped, nothing else is.

    Raises ValueError with the line number for a line without exactly one tab, with an empty
    side, or with bytes that are not UTF-8, and for a file without any pair.
    """
    return [pair for _, pair in numbered_pairs(path)]


def numbered_pairs(path: str | Path) -> list[tuple[int, Pair]]:
    """Read a file as read_pairs does, each pair with the number of its line."""
    pairs = []
    for number, raw in enumerate(Path(path).read_bytes().split(b"\n"), start=1):
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path}, line {number}: not UTF-8 ({error.reason})") from error
        columns = [column.strip() for column in line.split("\t")]
        if columns == [""]:
            continue
        if len(columns) != 2:
            raise ValueError(
                f"{path}, line {number}: wanted source<TAB>target, found {len(columns) - 1} tabs"
            )
        if not all(columns):
            raise ValueError(f"{path}, line {number}: the source or the target is empty")
        pairs.append((number, (columns[0], columns[1])))
    if not pairs:
        raise ValueError(f"{path} holds no pairs")
    return pairs


class Batch(NamedTuple):
    """One step's ids, padded on the right with <pad>.

    The target stands twice, one step apart: tgt_in is what the decoder reads and begins with
    <bos>, tgt_out what it should say and ends with <eos>.
    """

    src: Int[Tensor, "batch src_len"]
    tgt_in: Int[Tensor, "batch tgt_len"]
    tgt_out: Int[Tensor, "batch tgt_len"]

    def to(self, device: torch.device | str) -> "Batch":
        """The same ids on another device."""
        return Batch(*(ids.to(device) for ids in self))

    def split(self, parts: int, pad_id: int = PAD) -> list["Batch"]:
        """Share the rows out among this many parts.

        Where there are fewer rows than parts, the rest get a row whose targets are all pads:
        it adds nothing to a loss, but whoever gets it has something to compute.
        """
        check.size(parts=parts)
        filler = Batch(self.src[:1], self.tgt_in[:1], torch.full_like(self.tgt_out[:1], pad_id))
        shares = [Batch(*(ids[start::parts] for ids in self)) for start in range(parts)]
        return [share if len(share.src) else filler for share in shares]


def encode_pairs(pairs: Sequence[Pair], src_vocab: AnyVocab, tgt_vocab: AnyVocab) -> Batch:
    """Make one batch of all these pairs; each source ends in <eos>."""
    if not pairs:
        raise ValueError("pairs must not be empty")
    sources = [[*src_vocab.encode(source), EOS] for source, _ in pairs]
    tgt = _pad([[BOS, *tgt_vocab.encode(target), EOS] for _, target in pairs])
    return Batch(_pad(sources), tgt_in=tgt[:, :-1], tgt_out=tgt[:, 1:])


def _pad(rows: list[list[int]]) -> Int[Tensor, "batch length"]:
    tensors = [torch.tensor(row) for row in rows]
    return nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=PAD)


def make_batches(
    pairs: Sequence[Pair],
    src_vocab: AnyVocab,
    tgt_vocab: AnyVocab,
    batch_size: int,
    seed: int = 0,
    by_length: bool = True,
) -> list[Batch]:
    """Group pairs of about the same length into batches, so that little padding is computed.

    Pairs of equal lengths are shuffled, then the batches; every pair is in exactly one batch,
    and the last batch may be smaller. by_length=False mixes long pairs with short ones: more
    padding, but each batch is like the whole, which is steadier where length tells the kind.
    """
    check.size(batch_size=batch_size)
    if not pairs:
        raise ValueError("pairs must not be empty")
    shuffled = random.Random(seed).sample(pairs, len(pairs))
    if by_length:
        shuffled.sort(
            key=lambda pair: (len(tgt_vocab.encode(pair[1])), len(src_vocab.encode(pair[0])))
        )
    batches = [
        encode_pairs(shuffled[start : start + batch_size], src_vocab, tgt_vocab)
        for start in range(0, len(shuffled), batch_size)
    ]
    random.Random(seed).shuffle(batches)
    return batches
