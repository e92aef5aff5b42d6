"""From text to numbered tokens and back: words, characters, or subwords learned from the text."""

import json
import re
from collections.abc import Iterable
from typing import Any

import tokenizers
from torch import Tensor

from tutorial_transformer import _checks as check

PAD, BOS, EOS, UNK = range(4)
SPECIAL = ["<pad>", "<bos>", "<eos>", "<unk>"]

BYTES = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())

CJK = r"\u3040-\u30ff\u3400-\u9fff"
TOKEN = re.compile(rf"\d+|[{CJK}]|(?:(?![{CJK}\d_])\w)+|.", re.DOTALL)


def tokenize(text: str) -> list[str]:
    """Cut a text into numbers, words, single CJK characters, and single other characters.

    Spaces are tokens too, so that joining the tokens gives the text back.

    >>> tokenize("May 17, 2024"), tokenize("5月17日")
    (['May', ' ', '17', ',', ' ', '2024'], ['5', '月', '17', '日'])
    """
    _check_text(text)
    return TOKEN.findall(text)


def _check_text(text: str) -> None:
    if not isinstance(text, str):
        raise TypeError(f"text must be a str, got {type(text).__name__}")


def _check_texts(texts: Iterable[str]) -> list[str]:
    if isinstance(texts, str):
        raise TypeError("texts must be an iterable of str, got one str; try Vocab([text])")
    texts = list(texts)
    for text in texts:
        if not isinstance(text, str):
            raise TypeError(f"texts must hold str, got {type(text).__name__}")
    if not any(texts):
        raise ValueError("texts must hold at least one token")
    return texts


def _plain_ids(ids: Iterable[int] | Tensor, vocab_size: int) -> list[int]:
    """The ids up to <eos>, without <pad> and <bos>; all of them must be in the vocabulary."""
    if isinstance(ids, Tensor) and ids.ndim != 1:
        raise ValueError(f"ids must have one axis, got shape {tuple(ids.shape)}")
    kept = []
    for number in ids.tolist() if isinstance(ids, Tensor) else ids:
        if not 0 <= number < vocab_size:
            raise ValueError(f"ids holds {number}, but the vocabulary has {vocab_size} entries")
        if number == EOS:
            break
        if number not in (PAD, BOS):
            kept.append(number)
    return kept


class Vocab:
    """The tokens of the training texts, numbered; ids 0 to 3 are <pad>, <bos>, <eos>, <unk>.

    unit is "word" (see tokenize) or "character".

    >>> vocab = Vocab(["the cat sat"])
    >>> vocab.encode("the cat ate")
    [7, 4, 5, 4, 3]
    >>> vocab.decode([7, 4, 5])
    'the cat'
    """

    def __init__(self, texts: Iterable[str], unit: str = "word") -> None:
        if unit not in ("word", "character"):
            raise ValueError(f"unit must be 'word' or 'character', got {unit!r}")
        self.unit = unit
        tokens = {token for text in _check_texts(texts) for token in self.split(text)}
        self._number(SPECIAL + sorted(tokens))

    def split(self, text: str) -> list[str]:
        """Cut a text into tokens, known or not."""
        _check_text(text)
        return tokenize(text) if self.unit == "word" else list(text)

    def _number(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self._ids = {token: number for number, token in enumerate(tokens)}

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str) -> list[int]:
        """Turn a text into ids; a token that the training texts lack becomes <unk>."""
        return [self._ids.get(token, UNK) for token in self.split(text)]

    def decode(self, ids: Iterable[int] | Tensor) -> str:
        """Turn ids into the text up to <eos>, leaving out <pad> and <bos>.

        Raises ValueError for an id that the vocabulary does not have.
        """
        return "".join(self.tokens[number] for number in _plain_ids(ids, len(self)))

    def to_json(self) -> dict:
        """Describe the vocabulary in values that JSON can hold."""
        return {"unit": self.unit, "tokens": list(self.tokens)}


class SubwordVocab:
    """Subwords by byte-pair encoding (the tokenizers library), learned from the training texts.

    A text begins as bytes; then the merges, the pairs that were most frequent in training, are
    glued one after another. Frequent words become whole, rare ones stay in pieces, and every text
    can be written, so nothing ever becomes <unk>. vocab_size is an upper limit and at least 260:
    four special tokens and 256 bytes.

    >>> vocab = SubwordVocab(["the cat sat on the mat"] * 2, vocab_size=262)
    >>> vocab.merges, vocab.decode(vocab.encode("théâtre, 猫"))
    ([('a', 't'), ('h', 'e')], 'théâtre, 猫')
    """

    unit = "subword"

    def __init__(self, texts: Iterable[str], vocab_size: int = 4000) -> None:
        check.size(vocab_size=vocab_size)
        if vocab_size < len(SPECIAL) + len(BYTES):
            raise ValueError(f"vocab_size must be at least 260, got {vocab_size}")
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=vocab_size - len(SPECIAL), initial_alphabet=BYTES, show_progress=False
        )
        trained = _byte_level(tokenizers.models.BPE())
        trained.train_from_iterator(_check_texts(texts), trainer)
        self._use(json.loads(trained.to_str())["model"]["merges"])

    def _use(self, merges: Iterable[Iterable[str]]) -> None:
        self.merges = [(left, right) for left, right in merges]
        made = [left + right for left, right in self.merges]
        self.tokens = list(dict.fromkeys([*SPECIAL, *BYTES, *made]))  # two merges can make the same
        ids = {token: number for number, token in enumerate(self.tokens)}
        self._model = _byte_level(tokenizers.models.BPE(ids, self.merges))

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str) -> list[int]:
        """Turn a text into the ids of its subwords."""
        _check_text(text)
        return self._model.encode(text).ids

    def decode(self, ids: Iterable[int] | Tensor) -> str:
        """Turn ids into the text up to <eos>, leaving out <pad> and <bos>.

        Raises ValueError for an id that the vocabulary does not have.
        """
        return self._model.decode(_plain_ids(ids, len(self)))

    def to_json(self) -> dict:
        """Describe the vocabulary in values that JSON can hold: its merges say everything."""
        return {"unit": self.unit, "merges": [list(pair) for pair in self.merges]}


def _byte_level(model: tokenizers.models.BPE) -> tokenizers.Tokenizer:
    """Write every byte as one visible letter, so that subwords can be shown: " " is "Ġ"."""
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer


def vocab_from_json(description: Any) -> Vocab | SubwordVocab:
    """Make the vocabulary that to_json described; anything else is a ValueError."""
    try:
        if description["unit"] == "subword":
            vocab = SubwordVocab.__new__(SubwordVocab)
            vocab._use(description["merges"])
        else:
            vocab = Vocab(["any"], description["unit"])
            vocab._number(list(description["tokens"]))
    except Exception as error:  # the library raises bare Exception for merges it cannot use
        raise ValueError(f"not a vocabulary: {error!r}") from error
    if vocab.tokens[:4] != SPECIAL or len(set(vocab.tokens)) < len(vocab):
        raise ValueError(f"not a vocabulary: it must begin with {SPECIAL}, each token once")
    if not all(isinstance(token, str) for token in vocab.tokens):
        raise ValueError("not a vocabulary: every token must be a str")
    return vocab
