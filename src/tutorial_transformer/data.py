"""Pairs of texts, and how they become batches of ids.

The course's own data are dates: real CLDR formats, from the babel package. An English date in
one of many formats is translated to the full form of another language, where year, month, day
and weekday stand in another order.
"""

import datetime
import random
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from babel import Locale, UnknownLocaleError
from babel.dates import format_date, format_skeleton
from jaxtyping import Int
from torch import Tensor, nn

from tutorial_transformer import _checks as check

Pair = tuple[str, str]  # (source text, target text)

PAD, BOS, EOS, UNK = range(4)
SPECIAL = ["<pad>", "<bos>", "<eos>", "<unk>"]

# No two of these write different dates in the same way: en_GB's 03/04/1985 has zeros and four
# year digits, en_US's 4/3/85 has neither. Names of CLDR styles are lower case, skeletons are not.
ENGLISH_FORMATS = [
    ("en_US", "full"), ("en_US", "long"), ("en_US", "medium"), ("en_US", "short"),
    ("en_GB", "full"), ("en_GB", "long"), ("en_GB", "medium"), ("en_GB", "short"),
    ("en_CA", "short"), ("en_ZA", "short"), ("en_US", "yMMMEd"), ("en_GB", "yMMMEd"),
]  # fmt: skip
FIRST_DAY = datetime.date(1970, 1, 1)  # 100 years, so that two year digits are unambiguous
NUM_DAYS = (datetime.date(2070, 1, 1) - FIRST_DAY).days


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
    check.size(count=count)
    if not isinstance(seed, int):
        raise TypeError(f"seed must be an int, got {seed!r}")
    days = _days(part)
    total = len(days) * len(ENGLISH_FORMATS)
    if count > total:
        raise ValueError(f"count={count} is more than the {total} pairs there are")
    try:
        locale = Locale.parse(target)
    except (UnknownLocaleError, ValueError, TypeError) as error:
        raise ValueError(f"target must be a CLDR locale such as 'zh', got {target!r}") from error
    drawn = random.Random(seed).sample(range(total), count)
    return [
        _date_pair(days[number // len(ENGLISH_FORMATS)], number % len(ENGLISH_FORMATS), locale)
        for number in drawn
    ]


def _days(part: str | None) -> list[int]:
    """The days of a part: a fixed tenth of them is for testing."""
    if part not in (None, "train", "test"):
        raise ValueError(f"part must be 'train', 'test' or None, got {part!r}")
    days = list(range(NUM_DAYS))
    if part is None:
        return days
    random.Random(0).shuffle(days)  # not the caller's seed: the parts are the same for everybody
    return days[: NUM_DAYS // 10] if part == "test" else days[NUM_DAYS // 10 :]


def _date_pair(day: int, which: int, locale: Locale) -> Pair:
    date, (english, style) = FIRST_DAY + datetime.timedelta(day), ENGLISH_FORMATS[which]
    if style.islower():
        source = format_date(date, style, locale=english)
    else:
        source = format_skeleton(style, date, locale=english)
    names_weekday = style == "full" or "E" in style
    return source, format_date(date, "full" if names_weekday else "long", locale=locale)


def read_pairs(path: str | Path) -> list[Pair]:
    """Read a UTF-8 file of lines "source<TAB>target"; blank lines are skipped, nothing else is.

    Raises ValueError with the line number for a line without exactly one tab, with an empty
    side, or with bytes that are not UTF-8, and for a file without any pair.
    """
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
        pairs.append((columns[0], columns[1]))
    if not pairs:
        raise ValueError(f"{path} holds no pairs")
    return pairs


CJK = r"\u3040-\u30ff\u3400-\u9fff"
TOKEN = re.compile(rf"\d+|[{CJK}]|(?:(?![{CJK}\d_])\w)+|.", re.DOTALL)


def tokenize(text: str) -> list[str]:
    """Cut a text into numbers, words, single CJK characters, and single other characters.

    Spaces are tokens too, so that joining the tokens gives the text back.

    >>> tokenize("May 17, 2024"), tokenize("5月17日")
    (['May', ' ', '17', ',', ' ', '2024'], ['5', '月', '17', '日'])
    """
    if not isinstance(text, str):
        raise TypeError(f"text must be a str, got {type(text).__name__}")
    return TOKEN.findall(text)


class Vocab:
    """The tokens of the training texts, numbered; ids 0 to 3 are <pad>, <bos>, <eos>, <unk>.

    >>> vocab = Vocab(["the cat sat"])
    >>> vocab.encode("the cat ate")
    [7, 4, 5, 4, 3]
    >>> vocab.decode([7, 4, 5])
    'the cat'
    """

    def __init__(self, texts: Iterable[str]) -> None:
        if isinstance(texts, str):
            raise TypeError("texts must be an iterable of str, got one str; try Vocab([text])")
        self.tokens = SPECIAL + sorted({token for text in texts for token in tokenize(text)})
        if len(self.tokens) == len(SPECIAL):
            raise ValueError("texts must hold at least one token")
        self._ids = {token: number for number, token in enumerate(self.tokens)}

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str) -> list[int]:
        """Turn a text into ids; a token that the training texts lack becomes <unk>."""
        return [self._ids.get(token, UNK) for token in tokenize(text)]

    def decode(self, ids: Iterable[int] | Tensor) -> str:
        """Turn ids into the text up to <eos>, leaving out <pad> and <bos>.

        Raises ValueError for an id that the vocabulary does not have.
        """
        if isinstance(ids, Tensor) and ids.ndim != 1:
            raise ValueError(f"ids must have one axis, got shape {tuple(ids.shape)}")
        text = ""
        for number in ids.tolist() if isinstance(ids, Tensor) else ids:
            if not 0 <= number < len(self.tokens):
                raise ValueError(f"ids holds {number}, but the vocabulary has {len(self)} entries")
            if number == EOS:
                break
            if number not in (PAD, BOS):
                text += self.tokens[number]
        return text


class Batch(NamedTuple):
    """One step's ids, padded on the right with <pad>.

    The target stands twice, one step apart: tgt_in is what the decoder reads and begins with
    <bos>, tgt_out what it should say and ends with <eos>.
    """

    src: Int[Tensor, "batch src_len"]
    tgt_in: Int[Tensor, "batch tgt_len"]
    tgt_out: Int[Tensor, "batch tgt_len"]


def encode_pairs(pairs: Sequence[Pair], src_vocab: Vocab, tgt_vocab: Vocab) -> Batch:
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
    pairs: Sequence[Pair], src_vocab: Vocab, tgt_vocab: Vocab, batch_size: int, seed: int = 0
) -> list[Batch]:
    """Group pairs of about the same length into batches, so that little padding is computed.

    Pairs of equal lengths are shuffled, then the batches; every pair is in exactly one batch,
    and the last batch may be smaller.
    """
    check.size(batch_size=batch_size)
    if not pairs:
        raise ValueError("pairs must not be empty")
    shuffled = random.Random(seed).sample(pairs, len(pairs))
    shuffled.sort(key=lambda pair: (len(tokenize(pair[1])), len(tokenize(pair[0]))))
    batches = [
        encode_pairs(shuffled[start : start + batch_size], src_vocab, tgt_vocab)
        for start in range(0, len(shuffled), batch_size)
    ]
    random.Random(seed).shuffle(batches)
    return batches
