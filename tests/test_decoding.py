"""Decoding: cached or not, alone or in a batch, the model writes the same words."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from tutorial_transformer.data import BOS, EOS, PAD, Vocab, encode_pairs
from tutorial_transformer.decoding import greedy_decode
from tutorial_transformer.transformer import Transformer, TransformerConfig

MAX_LEN = 11
SRC = torch.tensor([[5, 6, 7, 2, 0], [3, 2, 0, 0, 0], [8, 7, 6, 5, 2], [4, 4, 2, 0, 0]])


def a_model(seed=0, **changes):
    """A small untrained model whose words depend on the source, and are <eos> now and then."""
    torch.manual_seed(seed)
    sizes = {"d_model": 8, "num_heads": 2, "num_layers": 1, "d_ff": 16, "max_len": MAX_LEN}
    model = Transformer(TransformerConfig.tiny(9, 7, **(sizes | changes))).double()
    with torch.no_grad():
        model.output_proj.weight.normal_()
        for layer in (*model.encoder.layers, *model.decoder.layers):
            for name, parameter in layer.named_parameters():
                if "attn.w_" in name and name.endswith("weight"):
                    parameter.mul_(2)
    return model


def sources(batch=6, length=5, seed=0):
    """Random sources of random lengths, padded on the right."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, 9, (batch, length), generator=generator)
    lengths = torch.randint(1, length + 1, (batch, 1), generator=generator)
    return ids.masked_fill(torch.arange(length) >= lengths, PAD)


def greedy_spec(model, row, max_len):
    """The definition: one row, all words from the start at each step, the best one is next."""
    said = [model.config.bos_id]
    for _ in range(max_len):
        with torch.no_grad():
            log_p = model(row[None], torch.tensor([said]))[0, -1].log_softmax(-1).tolist()
        banned = (model.config.pad_id, model.config.bos_id)
        said.append(max((i for i in range(len(log_p)) if i not in banned), key=log_p.__getitem__))
        if said[-1] == model.config.eos_id:
            break
    return said[1:]


@pytest.mark.parametrize(
    ("seed", "changes"), [(0, {}), (3, {"norm_first": True, "pad_id": 3, "bos_id": 6, "eos_id": 4})]
)
def test_every_row_of_a_batch_is_written_as_it_would_be_alone(seed, changes):
    model = a_model(seed, **changes)
    pad = model.config.pad_id
    src = sources(seed=seed)
    src = src.masked_fill((src == pad) & (src != PAD), 8).masked_fill(src == PAD, pad)
    rows = [row[: int((row != pad).sum())] for row in src]
    expected = [greedy_spec(model, row, MAX_LEN) for row in rows]
    assert len({len(ids) for ids in expected}) > 2  # rows do stop on their own
    for max_len in (1, 4, MAX_LEN):
        wanted = [ids[:max_len] for ids in expected]
        width = max(map(len, wanted))
        padded = torch.tensor([ids + [pad] * (width - len(ids)) for ids in wanted])
        for use_cache in (True, False):
            assert torch.equal(greedy_decode(model, src, max_len, use_cache), padded)
    for row, ids in zip(rows, expected, strict=True):
        assert greedy_decode(model, row[None], MAX_LEN).tolist() == [ids]


@pytest.mark.parametrize("use_cache", [True, False])
def test_the_second_call_says_what_the_first_said(use_cache):
    for seed in range(3):
        model, src = a_model(seed), sources(seed=seed)
        said = greedy_decode(model, src, 6, use_cache)
        greedy_decode(model, sources(2, 3, seed=9), 4, use_cache)  # another batch in between
        assert torch.equal(greedy_decode(model, src, 6, use_cache), said)
        for row in said.tolist():
            end = row.index(EOS) if EOS in row else len(row)
            assert not {PAD, BOS} & set(row[:end]) and set(row[end + 1 :]) <= {PAD}


@pytest.mark.parametrize("norm_first", [True, False])
def test_each_cached_step_gives_the_logits_of_the_full_pass(norm_first):
    model = a_model(norm_first=norm_first).eval()
    tgt = torch.tensor(
        [[1, 3, 4, 5, 6, 2], [1, 6, 2, 0, 0, 0], [1, 5, 5, 3, 2, 0], [1, 4, 3, 3, 3, 3]]
    )
    memory, src_mask = model.encode(SRC)
    full = model.decode(tgt, memory, src_mask)
    splits = [[1] * 6, *([first, 6 - first] for first in range(1, 6))]  # one by one, or in two
    for number, split in enumerate(splits):
        cache, steps = model.new_cache(memory if number % 2 else None), []
        for piece in tgt.split(split, dim=1):
            steps.append(model.decode(piece, memory, src_mask, cache))
            assert len(cache) == sum(step.shape[1] for step in steps)
        assert_close(torch.cat(steps, dim=1), full, rtol=0, atol=1e-10)
    changed = model.decode(tgt.where(tgt != 5, 6), memory, src_mask)
    assert not torch.isclose(changed, full, rtol=0, atol=1e-10).all()


def test_pad_and_bos_are_never_said_however_likely_and_eos_ends_a_row():
    model = a_model()
    with torch.no_grad():
        model.output_proj.bias[[PAD, BOS]] = 1e3
    likely = model(SRC, torch.ones(4, 1, dtype=torch.int64)).argmax(dim=-1)
    assert ((likely == PAD) | (likely == BOS)).all()
    said = greedy_decode(model, SRC, 6)
    assert not (said == BOS).any() and torch.equal(said, greedy_decode(a_model(), SRC, 6))
    with torch.no_grad():
        model.output_proj.bias[EOS] = 2e3
    assert greedy_decode(model, SRC, 6).tolist() == [[EOS]] * 4
    with torch.no_grad():
        model.output_proj.bias[EOS] = -1e3
    said = greedy_decode(model, SRC, 6)
    assert said.shape == (4, 6) and said.min() > EOS  # nothing stops it but max_len


def test_the_first_word_is_asked_for_as_in_training_and_keeps_no_graph(monkeypatch):
    model, asked = a_model(), []
    decode = model.decode

    def look(ids, *rest):
        asked.append(ids)
        logits = decode(ids, *rest)
        assert not logits.requires_grad
        return logits

    monkeypatch.setattr(model, "decode", look)
    greedy_decode(model, SRC, 3)
    vocab = Vocab(["a b"])
    batch = encode_pairs([("a", "b")] * 4, vocab, vocab)
    assert torch.equal(asked[0], batch.tgt_in[:, :1]) and (asked[0] == BOS).all()
    assert all(ids.shape == (4, 1) for ids in asked)  # with a cache only the new ids are computed
    asked.clear()
    greedy_decode(model, SRC, 3, use_cache=False)
    assert [ids.shape[1] for ids in asked] == [1, 2, 3][: len(asked)] and len(asked) > 1


def test_dropout_is_off_while_a_model_in_train_mode_decodes():
    model = a_model(dropout=0.5).train()
    ids = torch.tensor([[1, 4, 5]] * 4)
    assert not torch.equal(model(SRC, ids), model(SRC, ids))  # dropout is on in the model
    expected, state = greedy_decode(a_model().eval(), SRC, 6), torch.get_rng_state()
    for _ in range(3):
        assert torch.equal(greedy_decode(model, SRC, 6), expected)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("fails", [None, "encode", "decode"])
def test_modes_and_gradients_are_put_back_as_they_were_even_after_an_error(fails, monkeypatch):
    model = a_model(dropout=0.1).train()
    model.encoder.eval()  # a frozen half keeps its own mode
    model.encoder.requires_grad_(False)

    def state():
        modes = [module.training for module in model.modules()]
        return modes, [p.requires_grad for p in model.parameters()], torch.is_grad_enabled()

    before, weights = state(), [p.clone() for p in model.parameters()]
    if fails:
        monkeypatch.setattr(model, fails, lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            greedy_decode(model, SRC, 3)
    else:
        assert not greedy_decode(model, SRC, 3).requires_grad
        assert model(SRC, SRC.clamp(max=6)).requires_grad
    assert state() == before and before[0] != [True] * len(before[0])
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(p, w) for p, w in zip(model.parameters(), weights, strict=True))
    model.eval()
    assert state() != before  # the comparison can see a mode


def test_a_source_is_left_as_it_was_and_decides_what_is_said():
    model, src = a_model(), SRC.clone()
    said = greedy_decode(model, src, 6)
    assert torch.equal(src, SRC)
    padded = F.pad(src, (0, 3))
    assert torch.equal(greedy_decode(model, padded, 6), said)
    assert not torch.equal(greedy_decode(model, src.flip(0), 6), said)
    assert torch.equal(greedy_decode(model, src.int(), 6), said.int())
    only_pads = greedy_decode(model, torch.cat([src, torch.zeros_like(src[:1])]), 6)
    assert torch.equal(only_pads[:4, : said.shape[1]], said)  # a row without words harms no other


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize(
    ("src", "max_len", "error", "message"),
    [
        (SRC, 0, ValueError, "max_len must be at least 1, got 0"),
        (SRC, -3, ValueError, "max_len must be at least 1, got -3"),
        (SRC, 2.0, TypeError, "max_len"),
        (SRC, 12, ValueError, "max_len=12 is beyond the model's max_len=11"),
        (SRC + 4, 3, ValueError, "src holds id 9, but the vocabulary has 9 entries"),
        (SRC - 1, 3, ValueError, "src holds id -1, but the vocabulary has 9 entries"),
        (SRC.double(), 3, TypeError, "src must hold integer ids, got torch.float64"),
        (SRC[0], 3, ValueError, r"src must have shape \(batch, length\), .* got \(5,\)"),
        (SRC[:0], 3, ValueError, r"src must have shape .* got \(0, 5\)"),
        (SRC[:, :0], 3, ValueError, r"src must have shape .* got \(4, 0\)"),
        (SRC.repeat(1, 3).clamp(min=4), 3, ValueError, "length 15, but max_len is 11"),
        (SRC.flip(1), 3, ValueError, r"src has a pad \(id 0\) before a real id"),
        ([[4, 5]], 3, TypeError, "src"),
    ],
)
def test_decoding_refuses(src, max_len, error, message, use_cache):
    model = a_model()
    with pytest.raises(error, match=message):
        greedy_decode(model, src, max_len, use_cache)
    assert model.training and greedy_decode(model, SRC, MAX_LEN).shape[1] <= MAX_LEN
