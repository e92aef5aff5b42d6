"""Models for the graders of decoders: one says what its script says, one is small and real."""

import torch
from torch import Tensor

from tutorial_transformer.transformer import DecodingCache, Transformer, TransformerConfig

VOCAB = 20
PAD, BOS, EOS = 0, 1, 2
Script = dict[tuple[int, ...], dict[int, float]]


def paths(*sentences: tuple[int, list[int], float]) -> Script:
    """A script of (source, words, p): each word follows the words before it with probability p."""
    script: Script = {}
    for source, words, p in sentences:
        for length, word in enumerate(words):
            script.setdefault((source, *words[:length]), {}).setdefault(word, p)
    return script


# Each source, named by its first id, has its words; the number is the probability of each.
SCRIPT = {(4,): {5: 0.6, 6: 0.4}, (4, 5): {7: 0.4, 8: 0.3, 9: 0.3}, (4, 6): {7: 0.9, 10: 0.1}}
SCRIPT |= {(4, *words): {2: 1.0} for words in ((5, 7, 12), (5, 8), (5, 9), (6, 7), (6, 10))}
SCRIPT |= {(4, 5, 7): {12: 1.0}}
SCRIPT |= paths(
    (5, [9, 2], 0.9),
    (6, [5, 6, 5, 7, 8, 2], 0.8),
    (7, [8, 9, 2], 0.9),
    (8, [10, 5, 11, 2], 0.9),
    (9, [5, 6, 7, 8, 9, 10, 11], 0.9),
)
SCRIPT |= {(10,): {0: 0.5, 1: 0.3, 5: 0.19}, (10, 5): {1: 0.5, 0: 0.3, 2: 0.19}}  # tempting pads
SCRIPT |= {(11,): {5: 0.5, 6: 0.45}, (11, 5): {2: 0.9}, (11, 6): {8: 0.95}, (11, 6, 8): {9: 0.95}}
SCRIPT |= {(11, 6, 8, 9): {2: 0.95}}  # 11 has a short text, and a long one almost as likely
SCRIPT |= {(12,): {5: 0.6, 6: 0.3}, (12, 5): {7: 0.5, 8: 0.45}, (12, 6): {11: 0.7}}
SCRIPT |= {(12, 5, 7): {9: 0.4, 10: 0.4}, (12, 5, 8): {2: 0.9}, (12, 6, 11): {2: 1.0}}
SCRIPT |= {(13,): {5: 0.5, 6: 0.4}, (13, 5): {2: 0.3, 7: 0.65}, (13, 6): {8: 0.3, 9: 0.3}}
SCRIPT |= {(13, 5, 7): {2: 0.95}}  # a text that ends early is overtaken
SCRIPT |= {(12, 5, 7, 9): {2: 1.0}, (12, 5, 7, 10): {2: 1.0}}  # the best two share a beginning


class Scripted(Transformer):
    """A Transformer in all that can be asked of it, whose next word stands in a script.

    The key is (first id of the source, words so far without <bos>), the value {next word:
    probability}. Off the script it mumbles: words that depend on all that it has read, never
    the end. In training mode dropout takes the whole script away. Logits have a constant added.
    """

    def __init__(self, script: Script) -> None:
        with torch.random.fork_rng(devices=[]):
            super().__init__(TransformerConfig(VOCAB, VOCAB, 4, 1, 1, 4, max_len=32))
        self.encoder = self.decoder = None  # what they would say stands in the script
        self.script, self.known = script, {}
        self.forget = torch.nn.Dropout(1.0)

    def encode(self, src: Tensor) -> tuple[Tensor, Tensor]:
        """Remember the first id of each row, at every position."""
        self._check_src(src)
        first = src[:, :1, None].expand(-1, src.shape[1], 4)
        return first.to(self.output_proj.weight.dtype), (src != PAD)[:, None]

    def new_cache(self, memory=None, max_len=None) -> DecodingCache:
        """Make a cache that remembers the ids themselves."""
        return _Ids([], max_len)

    def decode(self, tgt_in: Tensor, memory: Tensor, src_mask, cache=None) -> Tensor:
        """Read the script at each position; of the other arguments only the first id counts."""
        self._check_tgt(tgt_in, memory, src_mask, cache)
        ids, earlier = tgt_in, 0
        if cache is not None:
            ids = tgt_in if cache.ids is None else torch.cat([cache.ids, tgt_in], dim=1)
            earlier, cache.ids, cache.visible = cache.length, ids, (ids != PAD)[:, None]
        scripted = self.forget(torch.ones(1)).item() == 1
        keys = [(int(key), *row) for key, row in zip(memory[:, 0, 0], ids.tolist(), strict=True)]
        places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
        rows = [
            [self._logits(key[:end], scripted) for end in range(earlier + 2, len(key) + 1)]
            for key in places
        ]
        found = torch.stack([torch.stack(row) for row in rows]).to(memory.dtype)
        return found[torch.tensor([places[key] for key in keys])]

    def _logits(self, key: tuple[int, ...], scripted: bool) -> Tensor:
        if (key, scripted) not in self.known:
            source, first, *words = key
            follow = self.script.get((source, *words)) if scripted and first == BOS else None
            self.known[key, scripted] = _next(
                follow, sum(i * word for i, word in enumerate(key, 1))
            )
        return self.known[key, scripted]


def _next(follow: dict[int, float] | None, turn: int) -> Tensor:
    """The logits of what may follow; the rest of the probability, or all of it, is mumbled."""
    mumble = torch.cos(1.7 * turn + 2.3 * torch.arange(VOCAB, dtype=torch.float64))
    mumble[[PAD, BOS, EOS]] = -9.0
    if follow is None:
        return mumble + turn % 5
    rest = max(1.0 - sum(follow.values()), 1e-6)
    probs = rest * mumble.softmax(0)
    probs[list(follow)] = torch.tensor(list(follow.values()), dtype=torch.float64)
    return probs.log() + turn % 5


class _Ids(DecodingCache):
    """The cache of a scripted model."""

    ids: Tensor | None = None

    def select(self, rows: Tensor) -> None:
        """Let each row go on from another one."""
        super().select(rows)
        if self.ids is not None:
            self.ids = self.ids.index_select(0, rows)


def real_model(seed: int, **changes) -> Transformer:
    """A tiny model with random weights, large enough that its words depend on the source."""
    sizes = {"d_model": 8, "num_heads": 2, "num_layers": 1, "d_ff": 16, "max_len": 32}
    with torch.random.fork_rng(devices=[]):
        model = Transformer(TransformerConfig.tiny(9, 8, **(sizes | changes)))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            if "norm" not in name:
                large = 1.0 if "attn" in name or "output" in name else 0.5
                numbers = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.copy_(numbers * large * (1.0 if parameter.ndim > 1 else 0.2))
        model.output_proj.bias[[model.config.pad_id, model.config.bos_id]] = -20.0  # never likely
    return model.eval()
