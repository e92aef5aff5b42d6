"""Evaluation: scores of what the model writes by itself, and the targets never help it."""

import pytest
import sacrebleu
import torch
import torch.nn.functional as F

from tutorial_transformer.data import date_pairs, encode_pairs, make_batches
from tutorial_transformer.decoding import greedy_decode
from tutorial_transformer.evaluation import bleu_tokenizer, evaluate, translate
from tutorial_transformer.training import train
from tutorial_transformer.transformer import Transformer, TransformerConfig
from tutorial_transformer.vocab import BOS, EOS, PAD, UNK, Vocab


def a_model(src_vocab, tgt_vocab, kind=Transformer, **changes):
    sizes = {"d_model": 8, "num_heads": 2, "num_layers": 1, "d_ff": 16}
    config = TransformerConfig.tiny(len(src_vocab), len(tgt_vocab), **(sizes | changes))
    return kind(config).double()


def saying(answers, src_vocab, tgt_vocab):
    """A decoder that looks the source up in a dictionary; it stands for a trained model."""

    def decode(model, src, max_len):
        rows = [[*tgt_vocab.encode(answers[src_vocab.decode(ids)]), EOS, PAD] for ids in src]
        longest = max(map(len, rows))
        return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])

    return decode


def score(pairs, said, tgt_vocab=None):
    """The scores when `said` is written for the sources of the pairs, in their order."""
    src_vocab = Vocab(source for source, _ in pairs)
    tgt_vocab = tgt_vocab or Vocab([target for _, target in pairs] + said)
    answers = {source: text for (source, _), text in zip(pairs, said, strict=True)}
    decode = saying(answers, src_vocab, tgt_vocab)
    return evaluate(a_model(src_vocab, tgt_vocab), pairs, src_vocab, tgt_vocab, decode)


ENGLISH = [("eins", "The cat sat on the mat."), ("zwei", "A dog ran home, and slept; so did I.")]
CHINESE = [("one", "2024年5月17日星期五"), ("two", "1998年6月19日")]


@pytest.mark.parametrize(
    ("pairs", "said", "tokenizer"),
    [
        (ENGLISH, ["The cat sat on a mat.", "A dog ran home and slept; so did I!"], "13a"),
        (ENGLISH, ["The cat sat on the mat.", ""], "13a"),
        (CHINESE, ["2024年5月18日星期五", "1998年6月19日"], "zh"),
        (CHINESE, ["2024年", "1998年16月19日"], "zh"),
    ],
)
def test_bleu_and_chrf_are_sacrebleus_on_whole_texts(pairs, said, tokenizer):
    targets = [target for _, target in pairs]
    assert bleu_tokenizer(targets) == tokenizer
    scores = score(pairs, said)
    bleu = sacrebleu.metrics.BLEU(tokenize=tokenizer, force=True).corpus_score(said, [targets])
    chrf = sacrebleu.metrics.CHRF().corpus_score(said, [targets])
    assert scores.bleu == pytest.approx(bleu.score, abs=1e-12)
    assert scores.chrf == pytest.approx(chrf.score, abs=1e-12)
    assert 0 < scores.chrf < 100
    other = sacrebleu.metrics.BLEU(tokenize="none", force=True).corpus_score(said, [targets])
    assert other.score != pytest.approx(bleu.score)  # the tokenizer matters here
    assert score(pairs, targets)[:4] == pytest.approx((1, 1, 100, 100))


@pytest.mark.parametrize("text", ["年", "カ", "ひ", "a 猫 b"])
def test_one_cjk_character_is_enough_for_the_chinese_tokenizer(text):
    assert bleu_tokenizer(["no", text]) == "zh"
    assert bleu_tokenizer(["no", "Größe, naïve №5", ""]) == "13a"


@pytest.mark.parametrize(
    ("said", "exact", "tokens"),
    [
        (["a b", "c"], 1.0, 6 / 6),
        (["a c", "c"], 0.5, 5 / 6),
        (["a", "c"], 0.5, 3 / 6),  # one place right, <eos> stands too early; and both of c
        (["a b b", "c"], 0.5, 5 / 6),  # <eos> comes too late
        (["", ""], 0.0, 0 / 6),
        (["b a", "b"], 0.0, 3 / 6),  # the space, and both <eos>
        (["c", "a b"], 0.0, 0 / 6),
    ],
)
def test_a_token_counts_at_its_place_and_a_text_when_all_of_it_is_right(said, exact, tokens):
    found = score([("one", "a b"), ("two", "c")], said)
    assert (found.exact_match, found.token_accuracy) == pytest.approx((exact, tokens))


def test_an_unknown_word_is_never_right_whoever_writes_it():
    src_vocab, tgt_vocab = Vocab(["one"]), Vocab(["a b"])
    pairs = [("one", "a zebra")]
    right = tgt_vocab.encode("a zebra")
    assert right[-1] == UNK and UNK not in tgt_vocab.encode("a b")
    model = a_model(src_vocab, tgt_vocab, Oracle)
    model.answer = torch.tensor([[BOS, *right, EOS]])
    found = evaluate(
        model, pairs, src_vocab, tgt_vocab, lambda *_: torch.tensor([[*right, EOS, PAD]])
    )
    assert found.exact_match == 0
    assert found.token_accuracy == 2 / 4  # a and the space; what follows is spelled "<unk>"
    assert found.teacher_forced == 3 / 4  # a, the space, <eos>
    known = Vocab(["a zebra"])
    model = a_model(src_vocab, known, Oracle)
    model.answer = torch.tensor([[BOS, *known.encode("a zebra"), EOS]])
    found = evaluate(model, pairs, src_vocab, known, lambda *_: model.answer[:, 1:])
    assert (found.exact_match, found.token_accuracy, found.teacher_forced) == (1, 1, 1)


class Oracle(Transformer):
    """A cheat: says the ids of its own decoder input, shifted, without having learned a thing."""

    answer = None

    def decode(self, tgt_in, memory, src_mask, cache=None):
        ids = tgt_in.roll(-1, dims=1) if self.answer is None else self.answer[:, 1:]
        return F.one_hot(ids, self.config.tgt_vocab_size).double()


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_model_that_copies_its_decoder_input_scores_nothing(use_cache):
    pairs = [("one", "aaaa"), ("two", "aaaaaaaa"), ("three", "aaaaaa")]
    vocabs = Vocab(source for source, _ in pairs), Vocab(["a"], "character")
    model = a_model(*vocabs, Oracle)
    found = evaluate(
        model, pairs, *vocabs, lambda model, src, limit: greedy_decode(model, src, limit, use_cache)
    )
    assert found.teacher_forced == 20 / 21  # all but <eos> of the longest, which no pad follows
    assert found[:4] == (0, 0, 0, 0)


def test_the_targets_never_change_what_is_written():
    pairs = date_pairs(6, seed=0)
    vocabs = Vocab(source for source, _ in pairs), Vocab(target for _, target in pairs)
    model, asked = a_model(*vocabs), []

    def decode(model, src, max_len):
        asked.append((src, max_len, greedy_decode(model, src, max_len)))
        return asked[-1][-1]

    written = translate(model, [source for source, _ in pairs], *vocabs, decode)
    flattered = [(source, text) for (source, _), text in zip(pairs, written, strict=True)]
    swapped = [
        (source, target) for (source, _), (_, target) in zip(pairs, pairs[::-1], strict=True)
    ]
    long = [(source, target * 5) for source, target in pairs]
    scores = [evaluate(model, some, *vocabs, decode) for some in (pairs, flattered, swapped, long)]
    for src, max_len, ids in asked[1:]:
        assert torch.equal(src, asked[0][0]) and torch.equal(ids, asked[0][2])
        assert max_len == asked[0][1]
    assert [found.exact_match for found in scores] == [0, 1, 0, 0]
    assert scores[1].bleu == pytest.approx(100) and scores[0].bleu < 50
    assert len({found.teacher_forced for found in scores}) > 1


@pytest.mark.parametrize("batch_size", [1, 2, 3, 100])
def test_texts_come_back_in_their_order_whatever_stands_beside_them(batch_size):
    texts = [source for source, _ in date_pairs(7, seed=1)] + ["May", "May", ""]
    vocabs = Vocab(texts), Vocab(["年月日星期一二三"], "character")
    model, sizes = a_model(*vocabs), []

    def decode(model, src, max_len):  # never stops before its limit; each source has its token
        sizes.append(len(src))
        return (4 + src.sum(dim=1, keepdim=True) % 9).expand(-1, max_len)

    alone = [translate(model, [text], *vocabs, decode)[0] for text in texts]
    assert len({len(text) for text in alone}) > 2
    sizes.clear()
    assert translate(model, texts, *vocabs, decode, batch_size=batch_size) == alone
    assert max(sizes) == min(batch_size, 10) and sum(sizes) == 10
    assert translate(model, texts[::-1], *vocabs, decode, batch_size=batch_size) == alone[::-1]
    assert len(set(alone)) > 2 and alone[7] == alone[8]
    assert translate(model, [], *vocabs, decode) == []


@pytest.mark.parametrize(
    ("max_len", "model_max_len", "wanted"),
    [(None, 256, 54), (None, 30, 30), (7, 256, 7), (99, 256, 99), (99, 30, 30)],
)
def test_a_text_may_become_fifty_tokens_longer_unless_the_model_is_shorter(
    max_len, model_max_len, wanted
):
    vocabs, asked = (Vocab(["a b"]), Vocab(["x"])), []
    model = a_model(*vocabs, max_len=model_max_len)
    x = vocabs[1].encode("x")

    def endless(model, src, limit):
        asked.append((limit, src.shape))
        return torch.tensor([x * limit])

    (said,) = translate(model, ["a b"], *vocabs, endless, max_len)
    assert asked == [(wanted, (1, 4))]  # a, space, b, <eos>
    assert said == "x" * wanted


def test_empty_texts_are_texts_and_no_pairs_are_an_error():
    found = score([("one", ""), ("two", "")], ["", ""], Vocab(["x"]))
    assert (found.exact_match, found.token_accuracy) == (1, 1)
    assert score([("one", ""), ("two", "x")], ["x", ""]).exact_match == 0
    vocabs = Vocab(["a b"]), Vocab(["x"])
    model = a_model(*vocabs)
    assert len(translate(model, ["", "a"], *vocabs, greedy_decode)) == 2
    with pytest.raises(ValueError, match="pairs must not be empty"):
        evaluate(model, [], *vocabs, greedy_decode)


def test_bad_input_is_refused_before_anything_is_decoded():
    vocabs, calls = (Vocab(["a b"]), Vocab(["x"])), []
    model = a_model(*vocabs, max_len=6)

    def decode(*asked):
        calls.append(asked)
        return greedy_decode(*asked)

    too_long = r"texts\[1\] has 8 tokens with <eos>, but the model's max_len is 6"
    with pytest.raises(ValueError, match=too_long):
        translate(model, ["a", "a b a b", "a a"], *vocabs, decode, batch_size=1)
    with pytest.raises(ValueError, match=too_long):
        evaluate(model, [("a", "x"), ("a b a b", "x")], *vocabs, decode)
    with pytest.raises(TypeError, match="texts"):
        translate(model, "a b", *vocabs, decode)
    for name in ("max_len", "batch_size"):
        with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
            translate(model, ["a"], *vocabs, decode, **{name: 0})
        with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
            evaluate(model, [("a", "x")], *vocabs, decode, **{name: 0})
    assert not calls
    assert translate(model, ["a b a"], *vocabs, decode) and len(calls) == 1  # the longest fits


@pytest.mark.parametrize("error", [None, ZeroDivisionError])
def test_dropout_is_off_and_every_mode_is_put_back(error):
    vocabs = Vocab(["a b"]), Vocab(["x"])
    model = a_model(*vocabs, dropout=0.5)
    model.encoder.eval()
    modes = [module.training for module in model.modules()]

    def decode(model, src, max_len):
        assert not any(module.training for module in model.modules())
        if error:
            raise error
        return greedy_decode(model, src, max_len)

    def seen():
        return evaluate(model, [("a b", "x")], *vocabs, decode)

    if error:
        with pytest.raises(error):
            seen()
    else:
        assert seen() == seen() and all(not p.grad_fn for p in model.parameters())
    assert [module.training for module in model.modules()] == modes


def test_teacher_forcing_is_the_argmax_of_one_pass_over_the_right_answer():
    pairs = [("a", "xyyx"), ("b a", ""), ("b", "yxxyxy"), ("a a", "x"), ("b b b", "yy")]
    vocabs = Vocab(["a b"]), Vocab(["xy"], "character")
    model = a_model(*vocabs, dropout=0.5)
    with torch.no_grad():
        model.output_proj.bias[4:] += 0.3  # it says x and y only
    right = total = 0
    for pair in pairs:  # one by one: no padding at all
        src, tgt_in, tgt_out = encode_pairs([pair], *vocabs)
        right += (model.eval()(src, tgt_in).argmax(-1) == tgt_out).sum().item()
        total += tgt_out.numel()
    for batch_size in (1, 3, 100):
        found = evaluate(model.train(), pairs, *vocabs, greedy_decode, 5, batch_size)
        assert found.teacher_forced == right / total
    assert 0 < right < total


def test_eight_pairs_learned_by_heart_are_written_word_for_word():
    pairs = date_pairs(8, seed=0)
    vocabs = Vocab(source for source, _ in pairs), Vocab(target for _, target in pairs)
    batches = make_batches(pairs, *vocabs, batch_size=3)
    model = a_model(*vocabs, d_model=32, d_ff=256, num_heads=4).float()
    sources = [source for source, _ in pairs]
    assert evaluate(model, pairs, *vocabs, greedy_decode).exact_match == 0
    train(model, batches, 100, warmup_steps=20, max_lr=5e-3, progress="none")
    for use_cache in (True, False):
        decode = lambda model, src, limit: greedy_decode(model, src, limit, use_cache)  # noqa: E731, B023
        assert translate(model, sources, *vocabs, decode) == [target for _, target in pairs]
    assert evaluate(model, pairs, *vocabs, greedy_decode) == pytest.approx((1, 1, 100, 100, 1))
