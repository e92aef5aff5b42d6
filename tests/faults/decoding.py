"""What learners hand in for chapter 11: wrong decoders and filters, and right ones.

FAULTS holds, under grader: name, a wrong implementation and a piece of the sentence that names its
mistake; RIGHT holds right implementations.
"""

import functools

import torch
import torch.nn.functional as F
from torch import nn

from tutorial_transformer import decoding

# greedy_decode


def without_special(model, logits):
    """Take pad and <bos> out of the choice."""
    logits = logits.detach().clone()
    logits[:, [model.config.pad_id, model.config.bos_id]] = float("-inf")
    return logits


def begin(model, src):
    """Memory, mask, first ids, and nobody has ended."""
    memory, src_mask = model.encode(src)
    ids = torch.full((src.size(0), 1), model.config.bos_id)
    return memory, src_mask, ids, torch.zeros(src.size(0), dtype=torch.bool)


def in_eval(decode):
    """Switch dropout off around a decoder, and put the mode back."""

    @functools.wraps(decode)
    def around(model, *args, **named):
        training = model.training
        model.eval()
        try:
            with torch.no_grad():
                return decode(model, *args, **named)
        finally:
            model.train(training)

    return around


@in_eval
def never_stops(model, src, max_len):
    """It writes max_len words, whatever happens (I08)."""
    memory, src_mask, ids, _ = begin(model, src)
    for _ in range(max_len):
        logits = without_special(model, model.decode(ids, memory, src_mask)[:, -1])
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
    return ids[:, 1:]


@in_eval
def writes_behind_eos(model, src, max_len):
    """A row goes on behind its <eos> until all rows have one (I08)."""
    memory, src_mask, ids, done = begin(model, src)
    while ids.shape[1] <= max_len and not done.all():
        logits = without_special(model, model.decode(ids, memory, src_mask)[:, -1])
        word = logits.argmax(-1)
        done |= word == model.config.eos_id
        ids = torch.cat([ids, word[:, None]], dim=1)
    return ids[:, 1:]


@in_eval
def first_row_decides(model, src, max_len):
    """The loop was written for one row."""
    memory, src_mask, ids, _ = begin(model, src)
    for _ in range(max_len):
        logits = without_special(model, model.decode(ids, memory, src_mask)[:, -1])
        ids = torch.cat([ids, logits.argmax(-1, keepdim=True)], dim=1)
        if ids[0, -1].item() == model.config.eos_id:
            break
    return ids[:, 1:]


@in_eval
def any_row_decides(model, src, max_len):
    """The loop ends with the first row that ends."""
    memory, src_mask, ids, _ = begin(model, src)
    for _ in range(max_len):
        logits = without_special(model, model.decode(ids, memory, src_mask)[:, -1])
        word = logits.argmax(-1)
        ids = torch.cat([ids, word[:, None]], dim=1)
        if (word == model.config.eos_id).any():
            break
    return ids[:, 1:]


@in_eval
def no_limit(model, src, max_len):
    """max_len is not looked at."""
    memory, src_mask, ids, done = begin(model, src)
    while not done.all() and ids.shape[1] < 15:
        word = without_special(model, model.decode(ids, memory, src_mask)[:, -1]).argmax(-1)
        word[done] = model.config.pad_id
        ids = torch.cat([ids, word[:, None]], dim=1)
        done |= word == model.config.eos_id
    return ids[:, 1:]


def a_greedy(bos=None, read=None, length=0, cut=1, cache=False, mask=True, pads="pad_id", ban=True):
    """A right greedy decoder, with places to spoil it."""

    def decode(model, src, max_len):
        config = model.config
        memory, src_mask, ids, done = begin(model, src)
        if bos is not None:
            ids = torch.full_like(ids, bos)
        state = model.new_cache(memory) if cache else None
        for _ in range(max_len + length):
            seen = ids[:, -1:] if cache or read == "last" else ids
            logits = model.decode(seen, memory, src_mask if mask else None, state)[:, -1]
            word = (without_special(model, logits) if ban else logits).argmax(-1)
            word = torch.where(done, getattr(config, pads), word)
            ids = torch.cat([ids, word[:, None]], dim=1)
            done = done | (word == config.eos_id)
            if done.all():
                break
        return ids[:, cut:]

    return in_eval(decode)


@in_eval
def fresh_cache(model, src, max_len):
    """Each step begins with an empty cache, so that all words stand at position 0 (F07, I11)."""
    memory, src_mask, ids, done = begin(model, src)
    for _ in range(max_len):
        cache = model.new_cache(memory)
        logits = model.decode(ids[:, -1:], memory, src_mask, cache)[:, -1]
        word = without_special(model, logits).argmax(-1).masked_fill(done, model.config.pad_id)
        ids = torch.cat([ids, word[:, None]], dim=1)
        done |= word == model.config.eos_id
        if done.all():
            break
    return ids[:, 1:]


@in_eval
def draws_words(model, src, max_len):
    """It draws where it should choose."""
    return decoding.sample(model, src, max_len)


def drops_eos(model, src, max_len):
    """<eos> is cut off with the rest."""
    ids = a_greedy()(model, src, max_len)
    return torch.where(ids == model.config.eos_id, model.config.pad_id, ids)


def leaves_eval(model, src, max_len):
    """The model stays in eval mode."""
    model.eval()
    return a_greedy()(model, src, max_len)


def with_dropout(model, src, max_len):
    """Dropout stays on."""
    memory, src_mask, ids, done = begin(model, src)
    for _ in range(max_len):
        word = without_special(model, model.decode(ids, memory, src_mask)[:, -1]).argmax(-1)
        word = word.masked_fill(done, model.config.pad_id)
        ids = torch.cat([ids, word[:, None]], dim=1)
        done |= word == model.config.eos_id
        if done.all():
            break
    return ids[:, 1:]


def first_source(model, src, max_len):
    """All rows are written from row 0's source."""
    return a_greedy()(model, src[:1].expand_as(src), max_len)


@in_eval
def greedy_by_rows(model, src, max_len):
    """One row after the other, as lists of ids."""
    rows = []
    for row in src:
        said = [model.config.bos_id]
        while len(said) <= max_len and said[-1] != model.config.eos_id:
            logits = model(row[None], torch.tensor([said]))
            said.append(without_special(model, logits[:, -1]).argmax().item())
        rows.append(said[1:])
    return rows


@in_eval
def greedy_in_a_buffer(model, src, max_len):
    """A buffer of max_len pads, which is filled; the log-probabilities come along."""
    config = model.config
    memory, src_mask = model.encode(src)
    said = torch.full((len(src), max_len + 1), config.pad_id, dtype=torch.int32)
    said[:, 0] = config.bos_id
    live, total = torch.ones(len(src), dtype=torch.bool), torch.zeros(len(src))
    for step in range(max_len):
        log_p = model.decode(said[:, : step + 1], memory, src_mask)[:, step].log_softmax(-1)
        log_p[:, [config.pad_id, config.bos_id]] = -torch.inf
        best, word = log_p.max(-1)
        said[live, step + 1] = word[live].int()
        total = total + best * live
        live = live & (word != config.eos_id)
    return said[:, 1:], total


class Greedy(nn.Module):
    """A module, with a cache of two words at first, then word by word."""

    def forward(self, model, src, max_len, **unused):
        return a_greedy(cache=True)(model, src, max_len)


@in_eval
def greedy_without_ended(model, src, max_len):
    """Rows that have ended leave the batch."""
    config = model.config
    memory, src_mask = model.encode(src)
    answer = torch.full((len(src), max_len), config.pad_id)
    rows = torch.arange(len(src))
    ids = torch.full((len(src), 1), config.bos_id)
    for step in range(max_len):
        logits = model.decode(ids, memory[rows], src_mask[rows])[:, -1]
        word = without_special(model, logits).topk(1, dim=-1).indices
        answer[rows, step] = word[:, 0]
        ids, stay = torch.cat([ids, word], dim=1), word[:, 0] != config.eos_id
        ids, rows = ids[stay], rows[stay]
        if not len(rows):
            break
    return answer


# beam_search


def a_beam(**spoilt):
    """A right beam search over a batch, with places to spoil it."""
    how = {"alive": 1, "log": True, "order": "interleave", "power": "gnmt", "n": 0} | spoilt
    how = {"ends": True, "pick": "best", "rows": 1, "told": True, "cache": False} | how

    def length_term(n, penalty):
        terms = {
            "gnmt": lambda: ((5 + n) / 6) ** penalty,
            "plain": lambda: n**penalty,
            "mean": lambda: n,
            "none": lambda: torch.ones_like(n),
            "inverse": lambda: ((5 + n) / 6) ** -penalty,
        }
        return terms[how["power"]]()

    def search(model, src, max_len, beam_size, length_penalty):
        config, batch = model.config, len(src)
        memory, src_mask = model.encode(src)
        if how["order"] == "interleave":
            spread = torch.arange(batch).repeat_interleave(beam_size)
        else:
            spread = torch.arange(batch).repeat(beam_size)
        memory, src_mask = memory[spread], src_mask[spread]
        ids = torch.full((batch * beam_size, 1), config.bos_id)
        sums = torch.full((batch, beam_size), float("-inf"))
        sums[:, : how["alive"] or beam_size] = 0.0
        lengths, done = torch.zeros(batch, beam_size), torch.zeros(batch, beam_size).bool()
        cache = model.new_cache(memory) if how["cache"] else None
        for _ in range(max_len):
            seen = ids[:, -1:] if how["cache"] else ids
            log_p = model.decode(seen, memory, src_mask, cache)[:, -1].detach()
            if how["log"]:
                log_p = log_p.log_softmax(-1)
            log_p[:, [config.pad_id, config.bos_id]] = float("-inf")
            vocab = log_p.shape[-1]
            log_p = log_p.view(batch, beam_size, vocab)
            if how["ends"]:
                only_pad = torch.full((vocab,), float("-inf"))
                only_pad[config.pad_id] = 0.0
                log_p = torch.where(done[..., None], only_pad, log_p)
            grown = (lengths + ~done) if how["ends"] else lengths + 1
            total = sums[..., None] + log_p
            if how["power"] == "now":
                rated = total
            else:
                rated = total / length_term(grown + how["n"], length_penalty)[..., None]
            best = rated.view(batch, -1).topk(beam_size, dim=-1).indices
            slot, word = best // vocab, best % vocab
            sums = total.view(batch, -1).gather(1, best)
            lengths, done = grown.gather(1, slot), done.gather(1, slot)
            source = (slot + beam_size * torch.arange(batch)[:, None]).flatten()
            ids = torch.cat([ids[source], word.view(-1, 1)], dim=1)
            if cache is not None and not how.get("forget"):
                cache.select(source)
            done = done | (word == config.eos_id)
            if (done.any(1) if how["rows"] == 0 else done).all():
                break
        if how["power"] == "now":
            scores = sums / ((4 + ids.shape[1]) / 6) ** length_penalty
        else:
            scores = sums / length_term(lengths + how["n"], length_penalty)
        if how["rows"] == 0:
            scores = scores.masked_fill(~done, float("-inf"))
        winner = scores.argmax(-1) if how["pick"] == "best" else torch.full((batch,), beam_size - 1)
        rows = torch.arange(batch)
        answer = ids.view(batch, beam_size, -1)[rows, winner][:, 1:]
        return answer, (scores if how["told"] else sums)[rows, winner]

    return in_eval(search)


def only_greedy(model, src, max_len, beam_size, length_penalty):
    """It is greedy search with a score."""
    return a_beam()(model, src, max_len, 1, length_penalty)


def beam_with_dropout(model, src, max_len, beam_size, length_penalty):
    """Dropout stays on."""
    training, model.eval = model.training, lambda: model
    try:
        return a_beam()(model, src, max_len, beam_size, length_penalty)
    finally:
        del model.eval
        model.train(training)


def beam_leaves_eval(model, src, max_len, beam_size, length_penalty):
    """The model stays in eval mode."""
    model.eval()
    return a_beam()(model, src, max_len, beam_size, length_penalty)


def beam_with_bos(model, src, max_len, beam_size, length_penalty):
    """<bos> stands in front."""
    ids, scores = a_beam()(model, src, max_len, beam_size, length_penalty)
    return F.pad(ids, (1, 0), value=model.config.bos_id), scores


def positive_score(model, src, max_len, beam_size, length_penalty):
    """The score is a cost."""
    ids, scores = a_beam()(model, src, max_len, beam_size, length_penalty)
    return ids, -scores


def all_beams(model, src, max_len, beam_size, length_penalty):
    """All beams come back, with one axis more."""
    ids, scores = a_beam()(model, src, max_len, beam_size, length_penalty)
    return ids[:, None].expand(-1, beam_size, -1), scores[:, None].expand(-1, beam_size)


@in_eval
def beam_with_endings(model, src, max_len, beam_size, length_penalty):
    """Texts as lists; finished ones leave the beam and wait."""
    config, texts, scores = model.config, [], []

    def rate(text):
        return text[0] / ((5 + len(text[1])) / 6) ** length_penalty

    for row in src:
        live, ended = [(0.0, [])], []
        for _ in range(max_len):
            tgt_in = torch.tensor([[config.bos_id, *words] for _, words in live])
            log_p = model(row.expand(len(live), -1), tgt_in)[:, -1].log_softmax(-1)
            log_p[:, [config.pad_id, config.bos_id]] = float("-inf")
            longer = [
                (total + gain, [*words, word])
                for (total, words), gains in zip(live, log_p.tolist(), strict=True)
                for word, gain in enumerate(gains)
                if gain > float("-inf")
            ]
            longer.sort(key=lambda text: text[0], reverse=True)
            ended += [text for text in longer[:beam_size] if text[1][-1] == config.eos_id]
            live = [text for text in longer if text[1][-1] != config.eos_id][:beam_size]
        best = max(ended + live, key=rate)
        texts.append(best[1])
        scores.append(rate(best))
    return texts, torch.tensor(scores)


@in_eval
def beam_by_exhaustion(model, src, max_len, beam_size, length_penalty):
    """A much wider beam, when several are asked for."""
    wide = beam_size if beam_size == 1 else 2 * beam_size
    ids, scores = decoding.beam_search(model, src, max_len, wide, length_penalty)
    return F.pad(ids, (0, 2), value=model.config.pad_id), scores[:, None]


# top_k and top_p


def k_plus_one(logits, k):
    """The threshold is the next smaller one."""
    if k >= logits.shape[-1]:
        return logits
    threshold = logits.sort(dim=-1, descending=True).values[:, k]
    return logits.masked_fill(logits < threshold[:, None], float("-inf"))


def k_strict(logits, k):
    """The k-th largest is removed too."""
    threshold = logits.topk(min(k, logits.shape[-1])).values[:, -1:]
    return logits.masked_fill(logits <= threshold, float("-inf"))


def k_smallest(logits, k):
    """The smallest stay."""
    threshold = logits.topk(min(k, logits.shape[-1]), largest=False).values[:, -1:]
    return logits.masked_fill(logits > threshold, float("-inf"))


def k_zeroed(logits, k):
    """Removed logits become 0 (I24)."""
    out = torch.zeros_like(logits)
    values, places = logits.topk(min(k, logits.size(-1)), dim=-1)
    return out.scatter(-1, places, values)


def k_typo(logits, k):
    """1e-10 in place of -1e10 (I24)."""
    threshold = logits.topk(min(k, logits.shape[-1])).values[:, -1:]
    return torch.where(logits < threshold, torch.full_like(logits, 1e-10), logits)


def k_first_row(logits, k):
    """One threshold for the batch."""
    threshold = logits[0].topk(min(k, logits.shape[-1])).values[-1]
    return logits.masked_fill(logits < threshold, float("-inf"))


def k_lost(logits, k):
    """masked_fill's result is thrown away."""
    threshold = logits.topk(min(k, logits.shape[-1])).values[:, -1:]
    logits.masked_fill(logits < threshold, float("-inf"))
    return logits


def k_probs(logits, k):
    """Probabilities come back."""
    return decoding.filter_logits(logits, top_k=k).softmax(-1)


def k_values(logits, k):
    """Only the k values come back."""
    return torch.topk(logits, min(k, logits.shape[-1]), dim=-1).values


def k_in_place(logits, k):
    """The caller's logits are changed."""
    threshold = logits.topk(min(k, logits.shape[-1])).values[:, -1:]
    logits[logits < threshold] = -float("inf")
    return logits


def k_by_loop(logits, k):
    rows = []
    for row in logits.tolist():
        best = sorted(range(len(row)), key=lambda i: -row[i])[:k]
        rows.append([x if i in best else -float("inf") for i, x in enumerate(row)])
    return torch.tensor(rows, dtype=logits.dtype)


def k_by_threshold(logits, k):
    threshold = logits.topk(min(k, logits.size(-1)), dim=-1).values[..., -1, None]
    return torch.where(logits < threshold, torch.finfo(logits.dtype).min, logits)


def k_by_scatter(logits, k):
    values, places = logits.topk(min(k, logits.size(-1)), dim=-1)
    return torch.full_like(logits, -torch.inf).scatter_(-1, places, values)


def nucleus(keep, probs=None, back=True, fill=-torch.inf, descending=True):
    """A nucleus filter whose decision is handed in."""

    def top_p(logits, p):
        weights = logits.softmax(-1) if probs is None else probs(logits)
        ordered, order = weights.sort(dim=-1, descending=descending)
        kept = keep(ordered, ordered.cumsum(-1), p)
        if back:
            kept = torch.zeros_like(kept).scatter(-1, order, kept)
        return logits.masked_fill(~kept, fill)

    return top_p


def at_least_one(kept):
    return torch.cat([torch.ones_like(kept[:, :1]), kept[:, 1:]], dim=-1)


def p_textbook(logits, p):
    """cumsum > p, then shifted: one too many where the sum is exactly p (I19)."""
    ordered, order = torch.sort(logits, descending=True)
    remove = F.softmax(ordered, dim=-1).cumsum(dim=-1) > p
    remove[..., 1:] = remove[..., :-1].clone()
    remove[..., 0] = False
    return logits.masked_fill(remove.scatter(-1, order, remove), float("-inf"))


def p_threshold(logits, p):
    """Each probability is compared with p."""
    probs = logits.softmax(-1)
    return logits.masked_fill(probs < p, float("-inf"))


def p_probs(logits, p):
    """Probabilities come back."""
    probs = decoding.filter_logits(logits, top_p=p).softmax(-1)
    return probs / probs.sum(-1, keepdim=True)


def p_by_loop(logits, p):
    out = torch.full_like(logits, float("-inf"))
    for row, probs in enumerate(logits.softmax(-1)):
        mass = 0.0
        for word in probs.argsort(descending=True):
            out[row, word] = logits[row, word]
            mass += probs[word].item()
            if mass >= p - 1e-6:
                break
    return out


def p_ascending(logits, p):
    ordered, order = logits.sort(dim=-1)
    remove = ordered.softmax(-1).cumsum(-1) <= 1 - p + 1e-6
    remove[..., -1] = False
    return logits.masked_fill(remove.scatter(-1, order, remove), -float("inf"))


def p_by_threshold(logits, p):
    """The smallest logit that stays is the threshold; log-probabilities come back."""
    ordered = logits.sort(dim=-1, descending=True).values
    count = (ordered.softmax(-1).cumsum(-1) < p - 1e-6).sum(-1, keepdim=True)
    threshold = ordered.gather(-1, count.clamp(max=logits.shape[-1] - 1))
    return logits.masked_fill(logits < threshold, -float("inf")).log_softmax(-1)


# sample


def a_sample(draw, live=True):
    """A sampler whose draw is handed in."""

    @in_eval
    def sample(model, src, max_len, temperature=1.0):
        memory, src_mask, ids, done = begin(model, src)
        for _ in range(max_len):
            word = draw(
                without_special(model, model.decode(ids, memory, src_mask)[:, -1]), temperature
            )
            if live:
                word = word.masked_fill(done, model.config.pad_id)
            ids = torch.cat([ids, word[:, None]], dim=1)
            done |= word == model.config.eos_id
            if done.all():
                break
        return ids[:, 1:]

    return sample


def drawn(probs):
    return torch.multinomial(probs, 1).squeeze(-1)


def careful(logits, temperature):
    return drawn((logits / temperature).softmax(-1)) if temperature else logits.argmax(-1)


def gumbel(logits, temperature):
    noise = -torch.log(-torch.log(torch.rand_like(logits.double()).clamp(1e-12, 1 - 1e-12)))
    return (logits + temperature * noise).argmax(-1)


def refuses_zero(model, src, max_len, temperature):
    if temperature <= 0:
        raise ValueError("temperature must be above 0")
    return a_sample(careful)(model, src, max_len, temperature)


def by_categorical(logits, temperature):
    shifted = (logits - logits.amax(-1, keepdim=True)) / max(temperature, 1e-6)
    return torch.distributions.Categorical(logits=shifted, validate_args=False).sample()


# what other readers have found


def leaves_training(model, src, max_len):
    """model.train() at the end, whatever it was."""
    ids = a_greedy()(model, src, max_len)
    model.train()
    return ids


@in_eval
def forgets_the_end(model, src, max_len):
    """Whether a row has ended is asked of its last word only."""
    memory, src_mask, ids, done = begin(model, src)
    for _ in range(max_len):
        word = without_special(model, model.decode(ids, memory, src_mask)[:, -1]).argmax(-1)
        word = word.masked_fill(done, model.config.pad_id)
        ids, done = torch.cat([ids, word[:, None]], dim=1), word == model.config.eos_id
        if done.all():
            break
    return ids[:, 1:]


@in_eval
def second_best(model, src, max_len):
    """The second word of topk."""
    memory, src_mask, ids, done = begin(model, src)
    for _ in range(max_len):
        logits = without_special(model, model.decode(ids, memory, src_mask)[:, -1])
        word = logits.topk(2).indices[:, 1].masked_fill(done, model.config.pad_id)
        ids, done = torch.cat([ids, word[:, None]], dim=1), done | (word == model.config.eos_id)
        if done.all():
            break
    return ids[:, 1:]


@in_eval
def greedy_by_name(model, src, *, max_len):
    return decoding.greedy_decode(model, src, max_len).numpy()


def a_list_beam(lonely=False, lost=False, bare=False):
    """A right beam search over lists of one row, with places to spoil it."""

    @in_eval
    def search(model, src, max_len, *, beam_size, length_penalty):
        config, texts, scores = model.config, [], []
        for row in src:
            memory, src_mask = model.encode(row[None])
            live, ended = [([config.bos_id], 0.0)], []
            for _ in range(max_len):
                longer = []
                for ids, total in live:
                    logits = model.decode(torch.tensor([ids]), memory, src_mask)[0, -1]
                    gains = logits.log_softmax(-1)
                    gains[[config.pad_id, config.bos_id]] = -1e9
                    count = 1 if lonely and len(ids) > 1 else beam_size
                    best = zip(*gains.topk(count), strict=True)
                    longer += [([*ids, int(w)], total + float(gain)) for gain, w in best]
                longer.sort(key=lambda text: -text[1])
                ended += [] if lost else [t for t in longer if t[0][-1] == config.eos_id]
                live = [t for t in longer if t[0][-1] != config.eos_id][:beam_size]
                if not live:
                    break

            def rate(text):
                return text[1] / ((4 + len(text[0])) / 6) ** length_penalty

            pool = ended + live or longer
            best = max(pool, key=(lambda text: text[1]) if bare else rate)
            texts.append(best[0][1:])
            scores.append(rate(best))
        return texts, scores

    return search


def warm_sample(model, src, max_len, temperature):
    """Dropout stays on."""
    training = model.training
    model.eval = lambda: model
    try:
        return a_sample(careful)(model, src, max_len, temperature)
    finally:
        del model.eval
        model.train(training)


def sample_leaves_eval(model, src, max_len, temperature):
    """The model stays in eval mode."""
    model.eval()
    return a_sample(careful)(model, src, max_len, temperature)


@in_eval
def sample_says_pads(model, src, max_len, temperature):
    """Pads are drawn like words."""
    memory, src_mask, ids, done = begin(model, src)
    for _ in range(max_len):
        word = careful(model.decode(ids, memory, src_mask)[:, -1], temperature)
        word = word.masked_fill(done, model.config.pad_id)
        ids, done = torch.cat([ids, word[:, None]], dim=1), done | (word == model.config.eos_id)
        if done.all():
            break
    return ids[:, 1:]


def top_three(logits, temperature):
    logits = logits.masked_fill(logits < logits.topk(3).values[:, -1:], -torch.inf)
    return careful(logits, temperature)


@in_eval
def sample_by_rows(model, src, max_len, *, temperature=1.0):
    assert temperature > 0
    rows = []
    for row in src:
        (memory, src_mask), said = model.encode(row[None]), [model.config.bos_id]
        while len(said) <= max_len and said[-1] != model.config.eos_id:
            logits = model.decode(torch.tensor([said]), memory, src_mask)[:, -1]
            said.append(careful(without_special(model, logits), temperature).item())
        rows.append(said[1:])
    return rows


def k_kthvalue(logits, k):
    """torch.kthvalue counts from the smallest."""
    threshold = logits.kthvalue(min(k, logits.shape[-1]), dim=-1, keepdim=True).values
    return logits.masked_fill(logits < threshold, -torch.inf)


def k_times_infinity(logits, k):
    """0 · (-inf) is NaN."""
    threshold = logits.topk(min(k, logits.shape[-1])).values[:, -1:]
    return logits + (logits < threshold) * -torch.inf


def greedy_with(fill, words, first):
    """Greedy search: the logits of pad and <bos>, the words beyond max_len, what is cut off."""

    def decode(model, src, max_len):
        was, config = model.training, model.config
        model.eval()
        memory, mask = model.encode(src)
        ids = torch.full((len(src), 1), config.bos_id)
        while ids.shape[1] < max_len + words and not (ids == config.eos_id).any(1).all():
            logits = model.decode(ids, memory, mask)[:, -1].clone()
            logits[:, [config.pad_id, config.bos_id]] = fill
            ended = (ids == config.eos_id).any(1)
            word = torch.where(ended, config.pad_id, logits.argmax(-1))
            ids = torch.cat([ids, word[:, None]], 1)
        model.train(was)
        return ids[:, first:]

    return decode


bans_with_zero = greedy_with(0.0, 1, 1)
bos_for_the_last = greedy_with(-torch.inf, 0, 0)


def stays_sorted(logits, p):
    """The right logits, the largest in front."""
    ordered = logits.sort(-1, descending=True).values
    before = ordered.softmax(-1).cumsum(-1) - ordered.softmax(-1)
    cut = before >= p - 1e-6
    cut[:, 0] = False
    return ordered.masked_fill(cut, -torch.inf)


FAULTS = {
    "greedy_decode: leaves training": (leaves_training, "left in training mode"),
    "greedy_decode: forgets the end": (forgets_the_end, "once done, it stays done"),
    "greedy_decode: second best": (second_best, "second most probable"),
    "beam_search: lonely beams": (a_list_beam(lonely=True), "goes on by itself"),
    "beam_search: endings lost": (a_list_beam(lost=True), "thrown away"),
    "beam_search: bare winner": (a_list_beam(bare=True), "chosen by the bare sum"),
    "sample: with dropout": (warm_sample, "dropout is on"),
    "sample: leaves eval": (sample_leaves_eval, "left in eval mode"),
    "sample: says pads": (sample_says_pads, "pad or <bos> is written"),
    "sample: top three": (a_sample(top_three), "never drawn"),
    "sample: root of temperature": (
        a_sample(lambda x, t: careful(x, t**0.5)),
        "at temperature 0.5 it draws as if at",
    ),
    "top_k: kthvalue": (k_kthvalue, "k-th smallest"),
    "top_k: times infinity": (k_times_infinity, "NaN"),
    "top_p: the other share": (
        nucleus(lambda q, sums, p: at_least_one(sums - q < 1 - p - 1e-6)),
        "not 1 - p",
    ),
    "greedy_decode: never stops": (never_stops, "never stops at <eos>"),
    "greedy_decode: writes behind eos": (writes_behind_eos, "behind its <eos>"),
    "greedy_decode: first row decides": (first_row_decides, "row 0 only"),
    "greedy_decode: any row decides": (any_row_decides, "first row of the batch ends"),
    "greedy_decode: no limit": (no_limit, "does not stop at max_len"),
    "greedy_decode: begins with pad": (a_greedy(bos=0), "begins with <pad>"),
    "greedy_decode: begins with eos": (a_greedy(bos=2), "begins with <eos>"),
    "greedy_decode: reads the last word": (a_greedy(read="last"), "reads only the last word"),
    "greedy_decode: fresh cache": (fresh_cache, "reads only the last word"),
    "greedy_decode: returns bos": (a_greedy(cut=0), "<bos> stands in front"),
    "greedy_decode: loses the first word": (a_greedy(cut=2), "first word is lost"),
    "greedy_decode: one word too few": (a_greedy(length=-1), "one word too few"),
    "greedy_decode: one word too many": (a_greedy(length=1), "one word too many"),
    "greedy_decode: eos again and again": (a_greedy(pads="eos_id"), "more <eos>"),
    "greedy_decode: bans with 0": (bans_with_zero, "a logit of 0"),
    "greedy_decode: bos for the last word": (bos_for_the_last, "in place of the last word"),
    "top_p: stays sorted": (stays_sorted, "scatter back"),
    "greedy_decode: says pad": (a_greedy(ban=False), "pad or <bos> is written"),
    "greedy_decode: sees pads": (a_greedy(mask=False), "padding of the source"),
    "greedy_decode: draws": (draws_words, "drawn"),
    "greedy_decode: drops eos": (drops_eos, "<eos> is missing"),
    "greedy_decode: leaves eval": (leaves_eval, "left in eval mode"),
    "greedy_decode: with dropout": (with_dropout, "dropout is on"),
    "greedy_decode: first source": (first_source, "source of row 0"),
    "beam_search: equal beams": (a_beam(alive=None), "all beams are equal"),
    "beam_search: only greedy": (only_greedy, "greedy"),
    "beam_search: raw logits": (a_beam(log=False), "log_softmax is missing"),
    "beam_search: repeat": (a_beam(order="tile"), "wrong sources"),
    "beam_search: plain length": (a_beam(power="plain"), "n^penalty"),
    "beam_search: mean": (a_beam(power="mean"), "always divided by the length"),
    "beam_search: no penalty": (a_beam(power="none"), "length_penalty has no effect"),
    "beam_search: multiplied": (a_beam(power="inverse"), "multiplied"),
    "beam_search: current length": (a_beam(power="now"), "current step's length"),
    "beam_search: without eos": (a_beam(n=-1), "<eos> counts too"),
    "beam_search: counts bos": (a_beam(n=1), "<bos> does not count"),
    "beam_search: goes on": (a_beam(ends=False), "goes on"),
    "beam_search: first ending": (a_beam(rows=0), "first finished"),
    "beam_search: last beam": (a_beam(pick="last"), "last beam"),
    "beam_search: bare sum": (a_beam(told=False), "bare sum"),
    "beam_search: cache not moved": (a_beam(cache=True, forget=True), "cache"),
    "beam_search: with dropout": (beam_with_dropout, "dropout is on"),
    "beam_search: leaves eval": (beam_leaves_eval, "left in eval mode"),
    "beam_search: returns bos": (beam_with_bos, "<bos> stands in front"),
    "beam_search: positive": (positive_score, "sign"),
    "beam_search: all beams": (all_beams, "all beams"),
    "top_k: one too many": (k_plus_one, "one too many"),
    "top_k: one too few": (k_strict, "one too few"),
    "top_k: smallest": (k_smallest, "smallest"),
    "top_k: zeroed": (k_zeroed, "set to 0"),
    "top_k: typo": (k_typo, "near it"),
    "top_k: first row": (k_first_row, "first row"),
    "top_k: lost": (k_lost, "nothing is removed"),
    "top_k: probabilities": (k_probs, "returns probabilities"),
    "top_k: values": (k_values, "same shape"),
    "top_k: in place": (k_in_place, "changes its argument"),
    "top_p: crossing word dropped": (nucleus(lambda q, sums, p: sums <= p + 1e-6), "crosses p"),
    "top_p: crossing word dropped but one": (
        nucleus(lambda q, sums, p: at_least_one(sums <= p + 1e-6)),
        "crosses p",
    ),
    "top_p: textbook": (p_textbook, "exactly"),
    "top_p: empty at 0": (nucleus(lambda q, sums, p: sums - q < p - 1e-7), "p = 0"),
    "top_p: threshold": (p_threshold, "at least p"),
    "top_p: ascending": (
        nucleus(lambda q, sums, p: at_least_one(sums - q < p - 1e-6), descending=False),
        "sort from the largest",
    ),
    "top_p: not scattered back": (
        nucleus(lambda q, sums, p: at_least_one(sums - q < p - 1e-6), back=False),
        "scatter",
    ),
    "top_p: no softmax": (
        nucleus(lambda q, sums, p: at_least_one(sums - q < p - 1e-6), probs=lambda x: x),
        "softmax is missing",
    ),
    "top_p: inverted": (
        nucleus(lambda q, sums, p: ~at_least_one(sums - q < p - 1e-6)),
        "inverted",
    ),
    "top_p: zeroed": (
        nucleus(lambda q, sums, p: at_least_one(sums - q < p - 1e-6), fill=0.0),
        "set to 0",
    ),
    "top_p: probabilities": (p_probs, "returns probabilities"),
    "sample: no temperature": (a_sample(lambda x, t: drawn(x.softmax(-1))), "no effect"),
    "sample: multiplied": (a_sample(lambda x, t: drawn((x * t).softmax(-1))), "multiplied"),
    "sample: takes the largest": (a_sample(lambda x, t: x.argmax(-1)), "same word"),
    "sample: one draw for all": (
        a_sample(lambda x, t: careful(x[:1], t).expand(len(x))),
        "same word",
    ),
    "sample: temperature behind softmax": (
        a_sample(lambda x, t: drawn((x.softmax(-1) / max(t, 1e-3)).softmax(-1))),
        "before softmax",
    ),
    "sample: even draw": (
        a_sample(lambda x, t: drawn((x > x.amax(-1, keepdim=True) - 8).double())),
        "equally probable",
    ),
    "sample: divides by 0": (a_sample(lambda x, t: drawn((x / t).softmax(-1))), "multinomial"),
    "sample: behind eos": (a_sample(careful, live=False), "stop on their own"),
}

RIGHT = {
    "greedy_decode: by name, an array": greedy_by_name,
    "beam_search: lists, by name": a_list_beam(),
    "sample: by rows, by name": sample_by_rows,
    "top_k: an array": lambda x, k: k_by_loop(x, k).numpy(),
    "top_p: by name": lambda logits, *, p=0.9: p_by_loop(logits, p),
    "greedy_decode: ours": decoding.greedy_decode,
    "greedy_decode: uncached": lambda model, src, max_len: decoding.greedy_decode(
        model, src, max_len, use_cache=False
    ),
    "greedy_decode: by rows": greedy_by_rows,
    "greedy_decode: in a buffer": greedy_in_a_buffer,
    "greedy_decode: module": Greedy(),
    "greedy_decode: without ended": greedy_without_ended,
    "greedy_decode: plain": a_greedy(),
    "beam_search: ours": decoding.beam_search,
    "beam_search: batch": a_beam(),
    "beam_search: cached": a_beam(cache=True),
    "beam_search: with endings": beam_with_endings,
    "beam_search: wider": beam_by_exhaustion,
    "top_k: ours": decoding.filter_logits,
    "top_k: by loop": k_by_loop,
    "top_k: by threshold": k_by_threshold,
    "top_k: by scatter": k_by_scatter,
    "top_k: log probabilities": lambda x, k: k_by_scatter(x, k).log_softmax(-1),
    "top_p: ours": decoding.filter_logits,
    "top_p: by loop": p_by_loop,
    "top_p: ascending": p_ascending,
    "top_p: by threshold": p_by_threshold,
    "top_p: sums before": nucleus(lambda q, sums, p: at_least_one(sums - q < p - 1e-7)),
    "sample: ours": decoding.sample,
    "sample: multinomial": a_sample(careful),
    "sample: gumbel": a_sample(gumbel),
    "sample: refuses zero": refuses_zero,
    "sample: categorical": a_sample(by_categorical),
}
