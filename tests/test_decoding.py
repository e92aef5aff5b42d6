"""Decoding: cached or not, alone or in a batch, the model writes the same words."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from tutorial_transformer.data import BOS, EOS, PAD, Vocab, encode_pairs
from tutorial_transformer.decoding import beam_search, filter_logits, greedy_decode, sample
from tutorial_transformer.transformer import DecodingCache, Transformer, TransformerConfig

MAX_LEN = 11
SRC = torch.tensor([[5, 6, 7, 2, 0], [3, 2, 0, 0, 0], [8, 7, 6, 5, 2], [4, 4, 2, 0, 0]])


def beam_ids(*args, **options):
    return beam_search(*args, **options)[0]


def seeded_sample(*args, **options):
    return sample(*args, generator=torch.Generator().manual_seed(5), **options)


each_decoder = pytest.mark.parametrize("decode", [greedy_decode, beam_ids, seeded_sample])


def a_model(seed=0, tgt_vocab=7, **changes):
    """A small untrained model whose words depend on the source, and are <eos> now and then."""
    torch.manual_seed(seed)
    sizes = {"d_model": 8, "num_heads": 2, "num_layers": 1, "d_ff": 16, "max_len": MAX_LEN}
    model = Transformer(TransformerConfig.tiny(9, tgt_vocab, **(sizes | changes))).double()
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


@each_decoder
@pytest.mark.parametrize("use_cache", [True, False])
def test_the_second_call_says_what_the_first_said(use_cache, decode):
    for seed in range(3):
        model, src = a_model(seed), sources(seed=seed)
        said = decode(model, src, 6, use_cache=use_cache)
        decode(model, sources(2, 3, seed=9), 4, use_cache=use_cache)  # another batch in between
        assert torch.equal(decode(model, src, 6, use_cache=use_cache), said)
        assert torch.equal(decode(model, src, 6, use_cache=not use_cache), said)
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


@each_decoder
def test_pad_and_bos_are_never_said_however_likely_and_eos_ends_a_row(decode):
    model = a_model()
    with torch.no_grad():
        model.output_proj.bias[[PAD, BOS]] = 1e3
    likely = model(SRC, torch.ones(4, 1, dtype=torch.int64)).argmax(dim=-1)
    assert ((likely == PAD) | (likely == BOS)).all()
    said = decode(model, SRC, 6)
    assert not (said == BOS).any()
    if decode is not beam_ids:  # its scores count what pad and <bos> take away
        assert torch.equal(said, decode(a_model(), SRC, 6))
    with torch.no_grad():
        model.output_proj.bias[EOS] = 2e3
    assert decode(model, SRC, 6).tolist() == [[EOS]] * 4
    with torch.no_grad():
        model.output_proj.bias[EOS] = -1e3
    said = decode(model, SRC, 6)
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


@each_decoder
def test_dropout_is_off_while_a_model_in_train_mode_decodes(decode):
    model = a_model(dropout=0.5).train()
    ids = torch.tensor([[1, 4, 5]] * 4)
    assert not torch.equal(model(SRC, ids), model(SRC, ids))  # dropout is on in the model
    expected, state = decode(a_model().eval(), SRC, 6), torch.get_rng_state()
    for _ in range(3):
        assert torch.equal(decode(model, SRC, 6), expected)
    assert torch.equal(torch.get_rng_state(), state)


@each_decoder
@pytest.mark.parametrize("fails", [None, "encode", "decode"])
def test_modes_and_gradients_come_back_as_they_were_even_after_an_error(fails, decode, monkeypatch):
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
            decode(model, SRC, 3)
    else:
        assert not decode(model, SRC, 3).requires_grad
        assert model(SRC, SRC.clamp(max=6)).requires_grad
    assert state() == before and before[0] != [True] * len(before[0])
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(p, w) for p, w in zip(model.parameters(), weights, strict=True))
    model.eval()
    assert state() != before  # the comparison can see a mode


@each_decoder
def test_a_source_is_left_as_it_was_and_decides_what_is_said(decode):
    model, src = a_model(), SRC.clone()
    said = decode(model, src, 6)
    assert torch.equal(src, SRC)
    padded = F.pad(src, (0, 3))
    assert torch.equal(decode(model, padded, 6), said)
    assert not torch.equal(decode(model, src.flip(0), 6), said)
    assert torch.equal(decode(model, src.int(), 6), said.int())
    if decode is not seeded_sample:  # where one more row takes some of the draws
        only_pads = decode(model, torch.cat([src, torch.zeros_like(src[:1])]), 6)
        assert torch.equal(only_pads[:4, : said.shape[1]], said)  # an empty row harms no other


@each_decoder
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
def test_decoding_refuses(src, max_len, error, message, decode, use_cache):
    model = a_model()
    with pytest.raises(error, match=message):
        decode(model, src, max_len, use_cache=use_cache)
    assert model.training and decode(model, SRC, 1).shape == (4, 1)


def test_only_a_transformer_decodes_and_use_cache_is_a_switch():
    for model in (None, torch.nn.Linear(2, 3)):
        with pytest.raises(
            TypeError, match=f"model must be a Transformer, got {type(model).__name__}"
        ):
            greedy_decode(model, SRC, 3)
    for decode in (greedy_decode, beam_search, sample):
        with pytest.raises(TypeError, match="use_cache must be True or False, got 1"):
            decode(a_model(), SRC, 3, use_cache=1)


def test_eight_pairs_learned_by_heart_are_said_again_by_every_decoder():
    model = a_model(d_model=32, d_ff=64, tgt_vocab=9).float()
    src, tgt = sources(8, 5), F.pad(sources(8, 5, seed=1).clamp(max=8), (1, 1))
    tgt = tgt.where(tgt != EOS, 3)
    tgt[:, 0] = BOS
    tgt[torch.arange(8), (tgt != PAD).sum(dim=1)] = EOS
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(80):
        logits = model(src, tgt[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    wanted = tgt[:, 1:]
    for decode in (greedy_decode, beam_ids, lambda *args: seeded_sample(*args, top_p=0.5)):
        said = decode(model, src, 8)
        assert torch.equal(F.pad(said, (0, 6 - said.shape[1])), wanted)


# beam search


def log_p_of(model, row, texts):
    """The log probability of each text, from one plain forward pass."""
    ids = padded(texts, model.config.pad_id)
    tgt_in = F.pad(ids[:, :-1], (1, 0), value=model.config.bos_id)
    with torch.no_grad():
        log_p = model(row.expand(len(texts), -1), tgt_in).log_softmax(dim=-1)
    log_p = log_p.gather(-1, ids[..., None])[..., 0].masked_fill(ids == model.config.pad_id, 0)
    return log_p.sum(dim=-1).tolist()


def score_of(total, length, penalty):
    return total / ((5 + length) / 6) ** penalty


def words_of(config):
    return [i for i in range(config.tgt_vocab_size) if i not in (config.pad_id, config.bos_id)]


def beam_spec(model, row, max_len, beam_size, penalty):
    """The definition, one source at a time, up to max_len without a break."""
    eos, beams, best = model.config.eos_id, [(0.0, [])], (-math.inf, [])

    def score(hypothesis):
        return score_of(hypothesis[0], len(hypothesis[1]), penalty)

    for step in range(1, max_len + 1):
        candidates = [beam for beam in beams if beam[1][-1:] == [eos]]
        live = [beam for beam in beams if beam[1][-1:] != [eos]]
        if live:
            tgt_in = torch.tensor([[model.config.bos_id, *ids] for _, ids in live])
            with torch.no_grad():
                log_p = model(row.expand(len(live), -1), tgt_in)[:, -1].log_softmax(dim=-1)
            for (total, ids), its_log_p in zip(live, log_p.tolist(), strict=True):
                candidates += [(total + its_log_p[i], [*ids, i]) for i in words_of(model.config)]
        beams = sorted(candidates, key=score, reverse=True)[:beam_size]
        ended = [beam for beam in beams if step == max_len or beam[1][-1] == eos]
        best = max([best, *((score(beam), beam[1]) for beam in ended)])
    return best[1], best[0]


def padded(rows, pad=PAD):
    width = max(map(len, rows))
    return torch.tensor([ids + [pad] * (width - len(ids)) for ids in rows])


@pytest.mark.parametrize("penalty", [-1, 0, 0.6, 2.0])
@pytest.mark.parametrize("beam_size", [1, 2, 3, 20])
def test_each_row_of_a_batch_gets_the_beams_of_the_definition(beam_size, penalty):
    special = {"pad_id": 3, "bos_id": 6, "eos_id": 4} if beam_size == 2 else {}
    model = a_model(seed=beam_size, **special)
    pad = model.config.pad_id
    if beam_size > 1:
        with torch.no_grad():  # long targets, so that beams change places on the way
            model.output_proj.bias[model.config.eos_id] -= 2
    src = sources(3, seed=beam_size).clamp(min=4).index_fill(1, torch.tensor([4]), pad)
    src[1, 2:] = pad
    rows = [row[row != pad] for row in src]
    expected = [beam_spec(model, row, 5, beam_size, penalty) for row in rows]
    wanted = torch.tensor([score for _, score in expected], dtype=torch.float64)
    for use_cache in (True, False):
        ids, scores = beam_search(model, src, 5, beam_size, penalty, use_cache)
        assert torch.equal(ids, padded([row for row, _ in expected], pad))
        assert_close(scores, wanted, rtol=0, atol=1e-10)
    for row, (written, score) in zip(rows, expected, strict=True):  # rescored, and alone
        again = score_of(log_p_of(model, row, [written])[0], len(written), penalty)
        assert abs(again - score) < 1e-10
        alone, its_score = beam_search(model, row[None], 5, beam_size, penalty)
        assert alone.tolist() == [written] and abs(its_score.item() - score) < 1e-10


@pytest.mark.parametrize("penalty", [-2.0, 0.0, 0.6, 1, 3.0])
def test_a_wide_beam_finds_the_best_of_all_targets(penalty):
    for seed in range(3):
        model, src = a_model(seed, tgt_vocab=5), sources(3, 4, seed)
        endings = [[*w, EOS] for n in range(4) for w in itertools.product((3, 4), repeat=n)]
        endings += [list(w) for w in itertools.product((3, 4), repeat=4)]
        ids, scores = beam_search(model, src, 4, beam_size=31, length_penalty=penalty)
        for b, row in enumerate(src):
            log_p = log_p_of(model, row, endings)
            ranked = sorted(
                (score_of(total, len(ending), penalty), ending)
                for total, ending in zip(log_p, endings, strict=True)
            )
            best_score, best = ranked[-1]
            assert ranked[-2][0] < best_score - 1e-6  # no tie: one target is the right one
            assert ids[b, : len(best)].tolist() == best and (ids[b, len(best) :] == PAD).all()
            assert abs(scores[b].item() - best_score) < 1e-10


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_one_beam_is_greedy_decoding(dtype):
    for seed, penalty in enumerate((-1.0, 0.6, 2)):
        model, src = a_model(seed).to(dtype), sources(seed=seed)
        ids, scores = beam_search(model, src, 6, beam_size=1, length_penalty=penalty)
        assert torch.equal(ids, greedy_decode(model, src, 6))
        assert scores.dtype == torch.promote_types(dtype, torch.float32)
    assert not torch.equal(ids, greedy_decode(model, src.flip(0), 6))
    with torch.no_grad():
        model.output_proj.weight.zero_()  # all words equally good: the first of them, both times
    assert torch.equal(beam_ids(model, src, 6, 1), greedy_decode(model, src, 6))


def test_the_scores_of_a_half_precision_model_are_added_up_in_float32():
    model, row = a_model(1).bfloat16(), SRC[2:3]
    ids, scores = beam_search(model, row, 6, 3, 0.0, use_cache=False)
    logits = model(row, F.pad(ids[:, :-1], (1, 0), value=BOS))
    exact, coarse = (
        x.log_softmax(dim=-1).gather(-1, ids[..., None]) for x in (logits.float(), logits)
    )
    assert ids.shape[1] > 2 and abs(exact.sum() - scores) < 1e-4 < abs(coarse.sum() - scores)


def script(monkeypatch, table, tgt_vocab):
    """A model whose next-word probabilities after each prefix stand in a table, the rest is pad."""
    model = a_model(tgt_vocab=tgt_vocab)

    def decode(tgt_in, memory, src_mask, cache=None):
        probs = torch.zeros(*tgt_in.shape, tgt_vocab, dtype=torch.float64)
        for b, ids in enumerate(tgt_in.tolist()):
            for word, p in table.get(tuple(ids[1:]), {}).items():
                probs[b, -1, word] = p
        probs[..., PAD] = 1e-12 + 1 - probs.sum(dim=-1)
        return probs.clamp(min=1e-12).log()

    monkeypatch.setattr(model, "decode", decode)
    return lambda *args: beam_search(model, SRC[:1], *args, use_cache=False), model


def test_two_beams_leave_the_trap_of_the_greedy_first_word(monkeypatch):
    a, b, c = 3, 4, 5
    table = {
        (): {a: 0.6, b: 0.4},
        (a,): {EOS: 0.4, b: 0.3, c: 0.3},
        (b,): {EOS: 0.9, a: 0.1},
    }
    search, model = script(monkeypatch, table, 6)
    assert greedy_decode(model, SRC[:1], 2, use_cache=False).tolist() == [[a, EOS]]  # 0.6 * 0.4
    for beam_size, best, probability in ((1, [a, EOS], 0.24), (2, [b, EOS], 0.36)):
        ids, scores = search(2, beam_size, 0.0)
        assert ids.tolist() == [best] and abs(scores.item() - math.log(probability)) < 1e-9
        _, scores = search(2, beam_size, 1.0)
        assert abs(scores.item() - math.log(probability) / (7 / 6)) < 1e-9


@pytest.mark.parametrize(
    ("penalty", "best", "score"),
    [(0.0, "A", -2.0), (0.6, "A", -1.472), (1.0, "B", -2.4 / (13 / 6))],
)
def test_the_length_penalty_counts_eos_and_stops_with_its_hypothesis(
    monkeypatch, penalty, best, score
):
    texts = {"A": [3, 5, 5, 5, EOS], "B": [4, 5, 5, 5, 5, 5, 5, EOS]}
    table = {(): {3: math.exp(-2.0), 4: math.exp(-2.4)}}
    for ids in texts.values():
        table |= {tuple(ids[:n]): {ids[n]: 1.0} for n in range(1, len(ids))}
    search, _ = script(monkeypatch, table, 6)
    ids, scores = search(10, 3, penalty)
    assert ids.tolist() == [texts[best]] and abs(scores.item() - score) < 1e-3


def test_an_ending_that_was_pushed_out_of_the_beam_still_wins(monkeypatch):
    a, b, c = 3, 4, 5
    table = {(): {a: 0.4, EOS: 0.35, b: 0.25}, (a,): {b: 0.5, c: 0.5}}
    table |= {(a, b): {a: 0.01, EOS: 0.01}, (a, c): {a: 0.01, EOS: 0.01}}
    assert math.log(0.2) / (7 / 6) ** 4 > math.log(0.35)  # two better beginnings, and no way on
    search, _ = script(monkeypatch, table, 6)
    ids, scores = search(3, 2, 4.0)
    assert ids.tolist() == [[EOS]] and abs(scores.item() - math.log(0.35)) < 1e-9


def test_slots_without_a_way_on_do_not_disturb_the_others(monkeypatch):
    model = a_model(tgt_vocab=5)

    def decode(tgt_in, *_):  # <bos> says 3 or 4, 4 says <eos>, and after 3 no word is possible
        logits = torch.full((*tgt_in.shape, 5), -torch.inf, dtype=torch.float64)
        logits[..., 3][tgt_in == BOS] = 1.0
        logits[..., 4][tgt_in == BOS] = logits[..., EOS][tgt_in == 4] = 0.0
        return logits

    monkeypatch.setattr(model, "decode", decode)
    for beam_size in (2, 4, 30):
        ids, scores = beam_search(model, SRC[:2], 3, beam_size, 0.0)
        assert ids.tolist() == [[4, EOS]] * 2
        assert_close(scores, torch.tensor([-math.log(1 + math.e)] * 2, dtype=torch.float64))


def test_a_row_goes_on_exactly_as_long_as_a_beam_can_still_win(monkeypatch):
    table = {(): {EOS: 0.5, 3: 0.45}, (3,): {3: 0.99}, (3, 3): {3: 0.99}, (3, 3, 3): {EOS: 0.9}}
    search, model = script(monkeypatch, table, 5)
    decode, asked = model.decode, []
    monkeypatch.setattr(model, "decode", lambda *args: asked.append(1) or decode(*args))
    #  log 0.45 = -0.80 is never better than log 0.5 = -0.69, but -0.80 / (9 / 6) is, four words on
    for penalty, max_len, steps, best in (
        (0.0, 8, 1, [EOS]),
        (1.0, 4, 4, [3, 3, 3, EOS]),
        (-1.0, 8, 1, [EOS]),
    ):
        asked.clear()
        ids, _ = search(max_len, 2, penalty)
        assert ids.tolist() == [best] and len(asked) == steps


def test_beams_differ_from_the_first_step_on_and_keep_to_their_own_source(monkeypatch):
    model, asked, moves = a_model().eval(), [], []
    memory, _ = model.encode(SRC)
    first = model(SRC, torch.full((4, 1), BOS))[:, -1].index_fill(1, torch.tensor([PAD, BOS]), -99)
    decode, select = model.decode, DecodingCache.select

    def look(ids, memory, *rest):
        asked.append((ids, memory))
        return decode(ids, memory, *rest)

    def follow(cache, rows):
        moves.append(rows)
        select(cache, rows)

    monkeypatch.setattr(model, "decode", look)
    monkeypatch.setattr(DecodingCache, "select", follow)
    beam_search(model, SRC, 6, beam_size=3)
    assert torch.equal(asked[1][0].view(4, 3), first.topk(3).indices)
    for ids, seen in asked:
        assert ids.shape == (12, 1) and torch.equal(
            seen, memory[[0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]]
        )
    assert all(torch.equal(rows // 3, torch.arange(12) // 3) for rows in moves)
    assert any((rows != torch.arange(12)).any() for rows in moves[1:])  # beams do change places


def test_more_beams_than_words_and_a_shifted_output_change_nothing():
    for seed in range(3):
        model, src = a_model(seed), sources(seed=seed)
        ids, scores = beam_search(model, src, 3, beam_size=125, length_penalty=1.0)
        wider, same = beam_search(model, src, 3, beam_size=200, length_penalty=1.0)
        assert torch.equal(ids, wider) and torch.equal(scores, same) and scores.isfinite().all()
        ids, scores = beam_search(model, src, 6)
        with torch.no_grad():
            model.output_proj.bias += 3.7
        shifted, same = beam_search(model, src, 6)
        assert torch.equal(ids, shifted)
        assert_close(scores, same, rtol=0, atol=1e-10)
        with torch.no_grad():
            model.output_proj.bias[EOS] += 3.7
        assert not torch.allclose(beam_search(model, src, 6)[1], scores)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"beam_size": 0}, ValueError, "beam_size must be at least 1, got 0"),
        ({"beam_size": 2.0}, TypeError, "beam_size"),
        ({"length_penalty": "1"}, TypeError, "length_penalty must be a number, got '1'"),
        ({"length_penalty": True}, TypeError, "length_penalty must be a number, got True"),
        ({"length_penalty": math.nan}, ValueError, "length_penalty=nan must keep"),
        ({"length_penalty": math.inf}, ValueError, "length_penalty=inf must keep"),
        ({"length_penalty": -1e3}, ValueError, r"length_penalty=-1000.0 must .* max_len=5"),
    ],
)
def test_beam_search_refuses(options, error, message):
    with pytest.raises(error, match=message):
        beam_search(a_model(), SRC, 5, **options)


# filtering and sampling


def filter_spec(logits, top_k, top_p):
    """The definition, one word at a time, best first."""
    kept, mass = [], 0.0
    ranked = sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:top_k]
    weights = {i: math.exp(logits[i] - logits[ranked[0]]) for i in ranked}
    for i in ranked:
        if not kept or mass < top_p - 1e-14:
            kept.append(i)
            mass = math.fsum(weights[j] for j in kept) / math.fsum(weights.values())
    return [x if i in kept else -math.inf for i, x in enumerate(logits)]


numbers = st.sampled_from([-math.inf, -1.5, 0.0, 0.5, 2.0]) | st.floats(-9, 9)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    rows=st.lists(st.lists(numbers, min_size=6, max_size=6), min_size=1, max_size=4),
    top_k=st.integers(1, 8),
    top_p=st.sampled_from([0.0, 0.3, 0.9, 1.0]) | st.floats(0, 1),
)
def test_filtering_follows_the_definition_row_by_row(rows, top_k, top_p):
    rows = [row if max(row) > -math.inf else [*row[:-1], 0.0] for row in rows]
    logits = torch.tensor(rows, dtype=torch.float64)
    before = logits.clone()
    kept = filter_logits(logits, top_k, top_p)
    # top_p = 1 keeps even words whose probability is lost beside the others
    expected = [filter_spec(row, top_k, 2.0 if top_p == 1 else top_p) for row in rows]
    assert torch.equal(kept, torch.tensor(expected, dtype=torch.float64))
    assert torch.equal(
        filter_logits(logits.unflatten(0, (-1, 1, 1)), top_k, top_p).flatten(0, 2), kept
    )
    assert torch.equal(filter_logits(logits[0], top_k, top_p), kept[0])
    assert torch.equal(logits, before)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("probs", "cuts", "kept"),
    [
        ([0.5, 0.41, 0.09], {"top_p": 0.9}, 2),
        ([0.4, 0.3, 0.2, 0.1], {"top_p": 0.8}, 3),
        ([0.5, 0.25, 0.125, 0.125], {"top_p": 0.75}, 2),
        ([0.4, 0.3, 0.2, 0.1], {"top_p": 0.7}, 2),
        ([0.4, 0.3, 0.2, 0.1], {"top_p": 0.71}, 3),
        ([0.4, 0.3, 0.2, 0.1], {"top_p": 0.9}, 3),
        ([0.4, 0.3, 0.2, 0.1], {"top_k": 2, "top_p": 0.5}, 1),
        ([0.4, 0.3, 0.2, 0.1], {"top_p": 0.5}, 2),
        ([0.4, 0.3, 0.2, 0.1], {"top_p": 1.0}, 4),
        ([0.4, 0.3, 0.2, 0.1], {"top_p": 1}, 4),
        ([0.4, 0.3, 0.2, 0.1], {"top_p": 0}, 1),
        ([0.25, 0.25, 0.25, 0.25], {"top_k": 3}, 3),
        ([0.25, 0.25, 0.25, 0.25], {"top_p": 0.0}, 1),
        ([0.4, 0.3, 0.2, 0.1], {"top_k": 4}, 4),
        ([0.4, 0.3, 0.2, 0.1], {"top_k": 9}, 4),
        ([0.4, 0.3, 0.2, 0.1], {"top_k": 1}, 1),
        ([0.4, 0.3, 0.2, 0.1], {}, 4),
    ],
)
def test_filtering_keeps_what_a_hand_count_keeps(probs, cuts, kept, dtype):
    logits = torch.tensor(probs, dtype=torch.float64).log().to(dtype)
    if dtype.itemsize == 2 and cuts.get("top_p") in (0.7, 0.9) and len(probs) == 4:
        return  # half precision does not know these sums well enough to call them equal
    order = torch.tensor([2, 0, 3, 1][: len(probs)]).argsort().argsort()
    for shown in (logits, logits[order], logits[order] + 2):
        left = filter_logits(shown, **cuts)
        assert left.dtype == dtype and left is not shown
        assert (left > -torch.inf).sum() == kept
        assert torch.equal(left[left > -torch.inf], shown[left > -torch.inf])
        assert (left.softmax(dim=-1) == 0).sum() == len(probs) - kept  # exactly 0
        assert shown.topk(kept).values.equal(left.topk(kept).values)


def test_equal_float32_sums_count_as_equal_in_a_large_vocabulary():
    for count in (7, 50, 1000):
        logits = torch.full((count,), 1 / count).log()
        for kept in range(1, count, max(1, count // 9)):
            assert (filter_logits(logits, top_p=kept / count) > -torch.inf).sum() == kept


LOGITS = torch.tensor([[1.0, 2.0, 3.0], [0.0, -torch.inf, 1.0]])


@pytest.mark.parametrize(
    ("logits", "cuts", "error", "message"),
    [
        (LOGITS, {"top_k": 0}, ValueError, "top_k must be at least 1, got 0"),
        (LOGITS, {"top_k": -1}, ValueError, "top_k must be at least 1, got -1"),
        (LOGITS, {"top_k": 2.0}, TypeError, "top_k"),
        (LOGITS, {"top_p": 1.01}, ValueError, r"top_p must lie in \[0, 1\], got 1.01"),
        (LOGITS, {"top_p": -0.1}, ValueError, r"top_p must lie in \[0, 1\], got -0.1"),
        (LOGITS, {"top_p": math.nan}, ValueError, r"top_p must lie in \[0, 1\], got nan"),
        (LOGITS, {"top_p": "a"}, TypeError, "top_p must be a number, got 'a'"),
        (LOGITS, {"top_p": True}, TypeError, "top_p must be a number, got True"),
        (LOGITS * math.nan, {}, ValueError, "logits must be numbers or -inf, got NaN"),
        (LOGITS * -math.inf, {"top_k": 2}, ValueError, "logits must be numbers or -inf"),
        (LOGITS.where(LOGITS > 1, -torch.inf), {}, ValueError, "a row of nothing but -inf"),
        (LOGITS.int(), {}, TypeError, "logits must be a floating-point tensor, got torch.int32"),
        (LOGITS[:, :0], {}, ValueError, r"logits must not be empty, got shape \(2, 0\)"),
        (torch.tensor(1.0), {}, ValueError, "logits must not be empty"),
        ([1.0], {}, TypeError, "logits"),
    ],
)
def test_filtering_refuses(logits, cuts, error, message):
    with pytest.raises(error, match=message):
        filter_logits(logits, **cuts)
    if isinstance(logits, torch.Tensor) and torch.equal(logits, LOGITS):
        with pytest.raises(error, match=message):
            sample(a_model(), SRC, 3, **cuts)


@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 3, "top_k": 3},
        {"top_p": 0.6},
        {"temperature": 2.0, "top_k": 4, "top_p": 0.8},
    ],
)
def test_twenty_thousand_draws_fit_the_probabilities(options, use_cache):
    model, count = a_model(), 10_000
    src = SRC[[0, 2]].repeat_interleave(count, dim=0)
    generator = torch.Generator().manual_seed(3)
    said = sample(model, src, 1, **options, generator=generator, use_cache=use_cache).view(2, count)
    logits = model(SRC[[0, 2]], torch.full((2, 1), BOS))[:, -1] / options.pop("temperature", 1)
    logits[:, [PAD, BOS]] = -torch.inf
    probs = filter_logits(logits.detach(), **options).softmax(dim=-1)
    for drawn, p in zip(said, probs, strict=True):
        seen = drawn.bincount(minlength=7) / count
        assert ((seen - p).abs() <= 4 * (p * (1 - p) / count).sqrt()).all()  # exactly 0 where p is
    assert ((probs[0] - probs[1]).abs() > 0.05).any()  # the two rows are told apart


def test_draws_come_from_the_generator_alone_or_from_the_global_state():
    model = a_model()
    state = torch.get_rng_state()
    runs = [
        sample(model, SRC, 9, 3.0, generator=torch.Generator().manual_seed(n)) for n in (1, 1, 2)
    ]
    assert torch.equal(torch.get_rng_state(), state)
    assert runs[0].equal(runs[1]) and not runs[0].equal(runs[2])
    one = sample(model, SRC, 9, 3.0)
    assert not torch.equal(torch.get_rng_state(), state)
    torch.set_rng_state(state)
    assert torch.equal(sample(model, SRC, 9, 3.0), one)
    assert len({len([i for i in row if i != PAD]) for row in one.tolist()}) > 1  # rows stop alone


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_no_temperature_is_greedy_and_no_extreme_one_gives_nan(dtype):
    for seed in range(2):
        model, src = a_model(seed).to(dtype), sources(seed=seed)
        said = greedy_decode(model, src, 6)
        for options in ({"temperature": 0}, {"top_k": 1}, {"top_p": 0.0}, {"temperature": 0.0}):
            assert torch.equal(sample(model, src, 6, **options), said)
        if dtype != torch.bfloat16:  # where the best two may be equal
            for tiny in (1e-30, 1e-46, 5e-324):
                assert torch.equal(sample(model, src, 6, temperature=tiny), said)
        for huge in (1e38, 1e300, math.inf):
            drawn = sample(model, src.repeat(40, 1), 1, temperature=huge)
            assert set(drawn.flatten().tolist()) == {2, 3, 4, 5, 6}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"temperature": -0.5}, ValueError, "temperature must be 0 or more, got -0.5"),
        ({"temperature": math.nan}, ValueError, "temperature must be 0 or more, got nan"),
        ({"temperature": "1"}, TypeError, "temperature must be a number, got '1'"),
        ({"temperature": False}, TypeError, "temperature must be a number, got False"),
        ({"generator": 7}, TypeError, "generator must be a torch.Generator, got int"),
    ],
)
def test_sampling_refuses(options, error, message):
    with pytest.raises(error, match=message):
        sample(a_model(), SRC, 5, **options)
