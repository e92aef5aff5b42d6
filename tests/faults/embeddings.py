"""Wrong and right embeddings and positions as learners write them; keys begin with the grader."""

import functools
import math

import numpy as np
import torch
from torch import nn

from tutorial_transformer import embeddings as ours


def table_by_loop(length, d_model):
    """Right: number by number."""
    table = torch.zeros(length, d_model)
    for pos in range(length):
        for column in range(d_model):
            angle = pos / 10000 ** ((column - column % 2) / d_model)
            table[pos, column] = math.cos(angle) if column % 2 else math.sin(angle)
    return table


def table_by_exp(length, d_model):
    """Right: as most code does."""
    pos = torch.arange(length).unsqueeze(1).float()
    rate = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
    table = torch.zeros(length, d_model)
    table[:, 0::2] = torch.sin(pos * rate)
    table[:, 1::2] = torch.cos(pos * rate)[:, : d_model // 2]
    return table


def table_by_numpy(length, d_model):
    """Right: in NumPy."""
    column = np.arange(d_model)
    angle = np.arange(length)[:, None] / np.power(10000, 2 * (column // 2) / d_model)
    angle[:, 0::2], angle[:, 1::2] = np.sin(angle[:, 0::2]), np.cos(angle[:, 1::2])
    return angle


def doubled(length, d_model):
    """F02: 2i of an i that is 2i already."""
    table = torch.zeros(length, d_model)
    for pos in range(length):
        for i in range(0, d_model, 2):
            table[pos, i] = math.sin(pos / 10000 ** (2 * i / d_model))
            if i + 1 < d_model:
                table[pos, i + 1] = math.cos(pos / 10000 ** (2 * (i + 1) / d_model))
    return table


def by_column(length, d_model):
    """F03: sine and cosine do not share a frequency."""
    column = torch.arange(d_model)
    angle = torch.arange(length)[:, None] / 10000 ** (column / d_model)
    return torch.where(column % 2 == 0, angle.sin(), angle.cos())


def whole_numbers(length, d_model):
    """F04: integer division."""
    table = torch.zeros(length, d_model)
    for i in range(d_model):
        angle = torch.arange(length) / 10000 ** (2 * (i // 2) // d_model)
        table[:, i] = angle.cos() if i % 2 else angle.sin()
    return table


def halves(length, d_model):
    """F02: all sines, then all cosines."""
    rate = 10000 ** -(torch.arange(0, d_model, 2) / d_model)
    angle = torch.outer(torch.arange(length).float(), rate)
    return torch.cat([angle.sin(), angle.cos()[:, : d_model // 2]], dim=1)


def even_only(length, d_model):
    """F01: odd d_model crashes."""
    table = torch.zeros(length, d_model)
    rate = 10000 ** -(torch.arange(0, d_model, 2) / d_model)
    table[:, 0::2] = torch.sin(torch.arange(length)[:, None] * rate)
    table[:, 1::2] = torch.cos(torch.arange(length)[:, None] * rate)
    return table


def from_one(length, d_model):
    """F05: positions count from 1."""
    return table_by_exp(length + 1, d_model)[1:]


def cosine_first(length, d_model):
    """F05: cosines in even columns."""
    table = torch.zeros(length, d_model)
    rate = 10000 ** -(torch.arange(0, d_model, 2) / d_model)
    table[:, 0::2] = torch.cos(torch.arange(length)[:, None] * rate)
    table[:, 1::2] = torch.sin(torch.arange(length)[:, None] * rate)[:, : d_model // 2]
    return table


def wrong_way(length, d_model):
    """F02: multiplies by the wavelength."""
    angle = torch.arange(length)[:, None] * 10000 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.stack([angle.sin(), angle.cos()], dim=2).reshape(length, -1)[:, :d_model]


def half_precision(length, d_model):
    """C09: positions in bfloat16."""
    pos = torch.arange(length, dtype=torch.bfloat16)[:, None].float()
    angle = pos / 10000 ** (torch.arange(0, d_model, 2) / d_model)
    return torch.stack([angle.sin(), angle.cos()], dim=2).reshape(length, -1)[:, :d_model]


class Positions(nn.Module):
    """Right: a buffer that is not saved."""

    def __init__(self, d_model, max_len=5000):
        super().__init__()
        self.register_buffer("pe", table_by_exp(max_len, d_model)[None], persistent=False)

    def forward(self, x):
        if x.shape[1] > self.pe.shape[1]:
            raise IndexError("too long")
        return x + self.pe[:, : x.shape[1]]


class WithOffset(Positions):
    """Right: with a start, and dropout."""

    def __init__(self, d_model, dropout=0.1, max_len=5000):
        super().__init__(d_model, max_len)
        self.drop = nn.Dropout(dropout)

    def forward(self, x, start_pos=0):
        return self.drop(x + self.pe[:, start_pos : start_pos + x.size(1)].expand_as(x))


class OnTheFly(nn.Module):
    """Right: computed at each call, for any length."""

    def __init__(self, d_model, dropout):
        super().__init__()
        self.d_model = d_model

    def forward(self, x):
        return x + table_by_loop(x.shape[1], self.d_model).to(x)


class Saved(Positions):
    """Right, with a remark (F10): a buffer in the checkpoint."""

    def __init__(self, d_model, max_len=5000):
        super().__init__(d_model, max_len)
        self.register_buffer("pe", self.pe, persistent=True)


class Attribute(nn.Module):
    """F11: a plain attribute."""

    def __init__(self, d_model, max_len=5000):
        super().__init__()
        self.pe = table_by_exp(max_len, d_model)

    def forward(self, x):
        return x + self.pe[: x.shape[1]]


class Trained(Positions):
    """F19: the waves are a parameter."""

    def __init__(self, d_model, max_len=5000):
        nn.Module.__init__(self)
        self.pe = nn.Parameter(table_by_exp(max_len, d_model)[None])


class BySample(Positions):
    """F06: made for (length, batch, d_model)."""

    def forward(self, x):
        return x + self.pe[0, : x.shape[0]].unsqueeze(1)


class NoOffset(Positions):
    """F07: the offset is not used."""

    def forward(self, x, offset=0):
        return super().forward(x)


class TableAlone(Positions):
    """F12: x is not added."""

    def forward(self, x):
        return self.pe[:, : x.shape[1]].repeat(len(x), 1, 1)


class ScalesX(Positions):
    """F12: √d_model here, too."""

    def forward(self, x):
        return super().forward(x * math.sqrt(x.shape[-1]))


class WritesIntoX(Positions):
    """F12: adds in place."""

    def forward(self, x):
        x += self.pe[:, : x.shape[1]]
        return x


class Clamps(Positions):
    """F09: past the end the last row is repeated."""

    def forward(self, x):
        at = torch.arange(x.shape[1]).clamp(max=self.pe.shape[1] - 1)
        return x + self.pe[:, at]


class LowPrecision(nn.Module):
    """C09: angles in the dtype of x."""

    def __init__(self, d_model, max_len=5000):
        super().__init__()
        self.d_model = d_model

    def forward(self, x):
        pos = torch.arange(x.shape[1], dtype=x.dtype)[:, None]
        angle = pos / 10000 ** (torch.arange(0, self.d_model, 2) / self.d_model).to(x.dtype)
        table = torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1)
        return x + table[:, : self.d_model]


class Tokens(nn.Module):
    """Right: nn.Embedding times √d_model."""

    def __init__(self, vocab_size, d_model, pad_id=0):
        super().__init__()
        self.lut = nn.Embedding(vocab_size, d_model, padding_idx=pad_id)
        self.scale = math.sqrt(d_model)

    def forward(self, ids):
        return self.lut(ids) * self.scale


class Masked(nn.Module):
    """Right: a bare table; pads are multiplied by 0."""

    def __init__(self, n_vocab, width, padding_idx=0):
        super().__init__()
        self.pad, self.table = padding_idx, nn.Parameter(torch.randn(n_vocab, width))

    def forward(self, ids):
        return self.table[ids] * (ids != self.pad)[..., None] * self.table.shape[1] ** 0.5


class OneHot(Masked):
    """Right: a product with one-hot rows; the table lies on its side."""

    def __init__(self, n_vocab, width, padding_idx=0):
        super().__init__(n_vocab, width, padding_idx)
        self.table = nn.Parameter(torch.randn(width, n_vocab))

    def forward(self, ids):
        one_hot = nn.functional.one_hot(ids, self.table.shape[1]).to(self.table.dtype)
        real = (ids != self.pad).unsqueeze(-1)
        return one_hot @ self.table.T * math.sqrt(len(self.table)) * real


class OtherOrder(Tokens):
    """Right: d_model first, and said so."""

    def __init__(self, d_model, vocab, pad_id=0):
        super().__init__(vocab, d_model, pad_id)


class NoPadArgument(Tokens):
    """Right: pad is always 0."""

    def __init__(self, vocab_size, d_model):
        super().__init__(vocab_size, d_model)


class Unscaled(Tokens):
    """F12: no factor."""

    def forward(self, ids):
        return self.lut(ids)


class ScaledByWidth(Tokens):
    """F12: d_model in the place of its root."""

    def forward(self, ids):
        return self.lut(ids) * self.lut.embedding_dim


class Divided(Tokens):
    """F13: divides."""

    def forward(self, ids):
        return self.lut(ids) / self.scale


class ByVocabulary(Tokens):
    """F12: the wrong size."""

    def forward(self, ids):
        return self.lut(ids) * self.lut.num_embeddings**0.5


class Overwritten(Tokens):
    """F14: the init overwrites the pad row."""

    def __init__(self, vocab_size, d_model, pad_id=0):
        super().__init__(vocab_size, d_model, pad_id)
        nn.init.xavier_uniform_(self.lut.weight)


class PadOnlyAtFirst(Tokens):
    """F14: zero, but trained."""

    def __init__(self, vocab_size, d_model, pad_id=0):
        super().__init__(vocab_size, d_model, pad_id)
        self.lut.padding_idx = None


class PadAlwaysZero(Tokens):
    """F14: pad_id is ignored."""

    def __init__(self, vocab_size, d_model, pad_id=0):
        super().__init__(vocab_size, d_model, 0)


class Frozen(Tokens):
    """9: no gradient."""

    def forward(self, ids):
        return super().forward(ids).detach().requires_grad_()


class GrowsEachCall(Tokens):
    """F12: scales the table itself, at each call."""

    def forward(self, ids):
        self.lut.weight.data *= self.scale
        return self.lut(ids)


def log_of_ten(length, d_model):
    """F02: the logarithm to base 10 in the place of the natural one."""
    rate = torch.exp(torch.arange(0, d_model, 2) * -(math.log10(10000.0) / d_model))
    angle = torch.arange(length)[:, None] * rate
    table = torch.zeros(length, d_model)
    table[:, 0::2], table[:, 1::2] = angle.sin(), angle.cos()[:, : d_model // 2]
    return table


class Learned(nn.Module):
    """F19: positions are looked up in a table that starts at random."""

    def __init__(self, d_model, max_len=5000):
        super().__init__()
        self.table = nn.Embedding(max_len, d_model)

    def forward(self, x):
        return x + self.table(torch.arange(x.shape[1]))


class LastForAll(Positions):
    """F07: the row of the last position is added everywhere."""

    def forward(self, x):
        return x + self.pe[:, x.shape[1] - 1 : x.shape[1]]


class WithBias(nn.Module):
    """F12: a linear map of one-hot vectors, with its bias."""

    def __init__(self, vocab_size, d_model, pad_id=0):
        super().__init__()
        self.map, self.scale = nn.Linear(vocab_size, d_model), math.sqrt(d_model)

    def forward(self, ids):
        one_hot = nn.functional.one_hot(ids, self.map.in_features)
        return self.map(one_hot.to(self.map.weight.dtype)) * self.scale


class Exchanged(Tokens):
    """D04: length comes before batch."""

    def forward(self, ids):
        return super().forward(ids).transpose(0, 1)


class EndsTooEarly(Positions):
    """From the offset to the length; one token then gets an empty slice."""

    def forward(self, x, offset=0):
        return x + self.pe[:, offset : x.shape[1]]


def too_narrow(length, d_model):
    """F01: an odd width loses its last column."""
    return table_by_exp(length, d_model)[:, : d_model // 2 * 2]


def one_cosine_too_many(length, d_model):
    """F01: an odd width has fewer cosines than sines."""
    table, pair = torch.zeros(length, d_model), torch.arange(0, d_model, 2)
    angle = torch.arange(length)[:, None] / 10000 ** (pair / d_model)
    table[:, 0::2], table[:, 1::2] = angle.sin(), angle.cos()
    return table


FAULTS = {
    "positional_encoding: ends too early": (
        EndsTooEarly,
        "its shape is (1, 0, 4), wanted (1, 1, 4)",
    ),
    "positional_encoding: too narrow": (too_narrow, "its shape is (4, 4), wanted (4, 5)"),
    "positional_encoding: a cosine too many": (one_cosine_too_many, "[length 4, d_model 5]"),
    "positional_encoding: log of ten": (log_of_ten, "the base is 54.6"),
    "positional_encoding: learned": (Learned, "learned parameters"),
    "positional_encoding: last for all": (LastForAll, "the last position"),
    "token_embedding: with bias": (WithBias, "beside its table"),
    "token_embedding: exchanged": (Exchanged, "first and the second axis"),
    "positional_encoding: doubled": (doubled, "doubled twice"),
    "positional_encoding: by column": (by_column, "frequency of their own"),
    "positional_encoding: whole numbers": (whole_numbers, "all frequencies are equal"),
    "positional_encoding: halves": (halves, "left half"),
    "positional_encoding: even only": (even_only, "raises RuntimeError"),
    "positional_encoding: from one": (from_one, "start at 1"),
    "positional_encoding: cosine first": (cosine_first, "changed places"),
    "positional_encoding: wrong way": (wrong_way, "divide by it"),
    "positional_encoding: half precision": (half_precision, "low precision"),
    "positional_encoding: attribute": (Attribute, "plain attribute"),
    "positional_encoding: trained": (Trained, "table is trained"),
    "positional_encoding: by sample": (BySample, "each sample"),
    "positional_encoding: no offset": (NoOffset, "offset has no effect"),
    "positional_encoding: table alone": (TableAlone, "add x"),
    "positional_encoding: scales x": (ScalesX, "embedding's part"),
    "positional_encoding: in place": (WritesIntoX, "in place"),
    "positional_encoding: clamps": (Clamps, "past max_len"),
    "positional_encoding: low precision": (LowPrecision, "bfloat16"),
    "token_embedding: unscaled": (Unscaled, "not multiplied by √d_model"),
    "token_embedding: by width": (ScaledByWidth, "wanted its root"),
    "token_embedding: divided": (Divided, "multiply"),
    "token_embedding: by vocabulary": (ByVocabulary, "vocabulary"),
    "token_embedding: overwritten": (Overwritten, "pad is not zero"),
    "token_embedding: pad trained": (PadOnlyAtFirst, "training moves"),
    "token_embedding: pad_id ignored": (PadAlwaysZero, "pad_id is not obeyed"),
    "token_embedding: frozen": (Frozen, "does not move"),
    "token_embedding: grows": (GrowsEachCall, "two calls"),
    "token_embedding: no pad": (lambda v, d: Scaled(nn.Embedding(v, d)), "pad is not zero"),
}


class Scaled(nn.Module):
    """A scaled table, whatever it is."""

    def __init__(self, table):
        super().__init__()
        self.table = table

    def forward(self, ids):
        return self.table(ids) * self.table.embedding_dim**0.5


class PadMustBeGiven(Tokens):
    """pad_id has no default, and everything goes by name."""

    def __init__(self, *, vocab_size, d_model, pad_id):
        super().__init__(vocab_size, d_model, pad_id)


class LengthFirst(Positions):
    """max_len stands first."""

    def __init__(self, max_len, d_model):
        super().__init__(d_model, max_len)


RIGHT = {
    "positional_encoding: d_model first": lambda d_model, length: table_by_exp(length, d_model),
    "positional_encoding: length first": LengthFirst,
    "token_embedding: pad must be given": PadMustBeGiven,
    "positional_encoding: saved": Saved,
    "positional_encoding: ours": ours.sinusoidal_positions,
    "positional_encoding: our module": ours.PositionalEncoding,
    "positional_encoding: loop": table_by_loop,
    "positional_encoding: exp": table_by_exp,
    "positional_encoding: numpy": table_by_numpy,
    "positional_encoding: with batch axis": lambda n, d: table_by_loop(n, d)[None],
    "positional_encoding: buffer": Positions,
    "positional_encoding: offset": WithOffset,
    "positional_encoding: on the fly": OnTheFly,
    "positional_encoding: partial": functools.partial(ours.PositionalEncoding, dropout=0.1),
    "token_embedding: ours": ours.TokenEmbedding,
    "token_embedding: nn.Embedding": Tokens,
    "token_embedding: masked": Masked,
    "token_embedding: one-hot": OneHot,
    "token_embedding: other order": OtherOrder,
    "token_embedding: no pad argument": NoPadArgument,
    "token_embedding: factory": lambda v, d, p=0: Scaled(nn.Embedding(v, d, padding_idx=p)),
}
