"""Wrong and right masks, as learners write them; each key begins with its grader."""

import numpy as np
import torch

from tutorial_transformer import masks


def hides_with_true(q_len, k_len=None):
    """A01: True = hide, as nn.MultiheadAttention wants it."""
    k_len = k_len or q_len
    return torch.triu(torch.ones(1, q_len, k_len), diagonal=1 + k_len - q_len).bool()


def sees_the_future(q_len, k_len=None):
    """B01: triu where tril was meant."""
    k_len = k_len or q_len
    return torch.triu(torch.ones(1, q_len, k_len), diagonal=k_len - q_len).bool()


def strictly_past(q_len, k_len=None):
    """C01: a query does not see itself, so the first one sees nothing."""
    k_len = q_len if k_len is None else k_len
    rows = torch.arange(k_len - q_len, k_len)
    return (torch.arange(k_len)[None, :] < rows[:, None])[None]


def off_by_one(q_len, k_len=None):
    """B01: the diagonal above the main one is visible too."""
    k_len = q_len if k_len is None else k_len
    table = [[j <= i + k_len - q_len + 1 for j in range(k_len)] for i in range(q_len)]
    return torch.tensor([table])


def top_left(q_len, k_len=None):
    """B12, B13: with more keys the triangle starts at the first key."""
    k_len = q_len if k_len is None else k_len
    return torch.arange(q_len)[:, None] >= torch.arange(k_len)[None, :]


def square_always(q_len, k_len=None):
    """I13: the cache is forgotten, the mask has as many columns as rows."""
    return torch.from_numpy(np.tril(np.ones((1, q_len, q_len))) == 1)


def all_ones(q_len, k_len=None):
    """B08: nothing is hidden."""
    mask = torch.ones(1, q_len, k_len or q_len).bool()
    mask.tril()
    return mask


def additive(q_len, k_len=None):
    """A23: numbers to add instead of a mask."""
    k_len = k_len or q_len
    return torch.full((q_len, k_len), float("-inf")).triu(1 + k_len - q_len)


def pads_are_true(ids, pad_id=0):
    """A03, A07: True where the padding is."""
    return ids.eq(pad_id).unsqueeze(1)


def pads_as_rows(ids, pad_id=0):
    """A08, A09: the new axis is the last one, so queries are hidden."""
    return (ids != pad_id).unsqueeze(-1)


def pads_as_rows_of_a_table(ids, pad_id=0):
    """A09: a whole table for each sentence, padding on the query axis."""
    length = ids.size(1)
    return (ids != pad_id).unsqueeze(1).unsqueeze(3).expand(-1, 1, length, length)


def zero_is_the_pad(ids, pad_id=0):
    """I16: another pad id is ignored."""
    return ids.bool()[:, None, :]


def bigger_ids(ids, pad_id=0):
    """I16: every id below the pad id counts as padding."""
    return torch.gt(ids, pad_id)[:, None]


def counted_from_the_left(ids, pad_id=0):
    """I16: as many places from the left as there are words."""
    mask = torch.zeros(ids.shape[0], 1, ids.shape[1], dtype=torch.bool)
    for row, sentence in enumerate(ids):
        mask[row, 0, : int((sentence != pad_id).sum())] = True
    return mask


def pads_see_nothing(ids, pad_id=0):
    """A13: padding hidden as a query too."""
    real = (ids != pad_id).float()
    return torch.einsum("bq,bk->bqk", real, real) > 0


def first_sentence_for_all(ids, pad_id=0):
    """I16: the batch shares the first sentence's padding."""
    return torch.stack([ids[0] != pad_id] * len(ids)).unsqueeze(1)


def causal_only(ids, pad_id=0):
    """A08: the target's padding is visible."""
    n = ids.shape[1]
    return torch.tril(torch.ones(len(ids), n, n, dtype=torch.bool))


def padding_only(ids, pad_id=0):
    """B01: the target's future is visible."""
    return (ids != pad_id)[:, None, :].expand(-1, ids.shape[1], -1)


def joined_with_or(ids, pad_id=0):
    """A12: two may-attend masks joined with |."""
    return masks.padding_mask(ids, pad_id) | masks.causal_mask(ids.shape[1])


def hide_and_hide(ids, pad_id=0):
    """A12: two hide masks joined with &."""
    hide_pad = (ids == pad_id)[:, None]
    hide_future = torch.ones(ids.shape[1], ids.shape[1]).triu(1).bool()
    return torch.logical_not(hide_pad & hide_future)


def target_pads_as_rows(ids, pad_id=0):
    """A08, A09: target padding on the query axis."""
    n = ids.shape[1]
    return (ids != pad_id)[:, None, :, None] & torch.tril(torch.ones((n, n))).bool()


def target_hides_with_true(ids, pad_id=0):
    """A01, A12: the exact negation."""
    hide = torch.zeros(len(ids), ids.shape[1], ids.shape[1], dtype=torch.bool)
    for b in range(len(ids)):
        for i in range(ids.shape[1]):
            for j in range(ids.shape[1]):
                hide[b, i, j] = bool(ids[b, j] == pad_id) or j > i
    return hide


def pad_half_inverted(ids, pad_id=0):
    """A23: a hide mask for padding meets a may-attend mask for the future."""
    return (ids == pad_id)[:, None] & masks.causal_mask(ids.shape[1])


def target_without_itself(ids, pad_id=0):
    """A14: the mask is made for the unshifted target, one position late."""
    n = ids.shape[1]
    return (ids != pad_id)[:, None] & torch.ones(n, n).tril(-1).bool()


def target_with_pad_zero(ids, pad_id=0):
    """I16: the padding half forgets pad_id."""
    return masks.padding_mask(ids) & masks.causal_mask(ids.shape[1])


def square_of_keys(q_len, k_len=None):
    """I13: a row for each key."""
    n = k_len or q_len
    return torch.ones(1, n, n, dtype=torch.bool).tril()


def behind_the_first_pad(ids, pad_id=0):
    """I16: all that follows a pad is taken for padding."""
    return (ids != pad_id).long().cumprod(1)[:, None]


def future_hidden_too(ids, pad_id=0):
    """A12: a padding mask that is causal as well."""
    n = ids.shape[1]
    return (ids != pad_id)[:, None] & torch.ones(n, n, dtype=torch.bool).tril()


def padding_of_any_row(ids, pad_id=0):
    """I16: what one row pads, all rows hide."""
    return (ids != pad_id).all(dim=0)[None, None]


def first_key_always(ids, pad_id=0):
    """A08: the first key stays visible, so that no row is empty."""
    mask = masks.target_mask(ids, pad_id).clone()
    mask[..., 0] = True
    return mask


def rows_for_columns(q_len, k_len=None):
    """The table is filled with keys as rows."""
    return masks.causal_mask(q_len, k_len).transpose(-2, -1)


def keys_as_rows(q_len, k_len=None):
    """Positions are compared the other way round, without the shift."""
    return torch.arange(q_len) >= torch.arange(k_len or q_len)[:, None]


FAULTS = {
    "causal_mask: rows for columns": (rows_for_columns, "rows and columns are exchanged"),
    "causal_mask: keys as rows": (keys_as_rows, "columns are exchanged: rows are queries"),
    "causal_mask: k by k": (square_of_keys, "k_len × k_len"),
    "padding_mask: behind the first pad": (behind_the_first_pad, "behind the first pad"),
    "padding_mask: future too": (future_hidden_too, "the future is hidden as well"),
    "padding_mask: any row": (padding_of_any_row, "hidden in all rows"),
    "target_mask: first key always": (first_key_always, "padding) is visible, wanted hidden"),
    "causal_mask: True hides": (hides_with_true, "inverted"),
    "causal_mask: triu": (sees_the_future, "upside down"),
    "causal_mask: strictly past": (strictly_past, "diagonal is hidden"),
    "causal_mask: off by one": (off_by_one, "off by one"),
    "causal_mask: top left": (top_left, "top-left"),
    "causal_mask: square": (square_always, "k_len is ignored"),
    "causal_mask: all ones": (all_ones, "nothing is hidden"),
    "causal_mask: additive": (additive, "to add to the scores"),
    "padding_mask: pads are True": (pads_are_true, "inverted"),
    "padding_mask: pads as rows": (pads_as_rows, "query axis"),
    "padding_mask: pads as rows of a table": (pads_as_rows_of_a_table, "query axis"),
    "padding_mask: zero is the pad": (zero_is_the_pad, "pad_id is ignored"),
    "padding_mask: bigger ids": (bigger_ids, "above pad_id"),
    "padding_mask: counted from the left": (counted_from_the_left, "right end only"),
    "padding_mask: pads see nothing": (pads_see_nothing, "as a query too"),
    "padding_mask: first sentence for all": (first_sentence_for_all, "one row's padding"),
    "target_mask: causal only": (causal_only, "padding stays visible"),
    "target_mask: padding only": (padding_only, "future stays visible"),
    "target_mask: or": (joined_with_or, "with &"),
    "target_mask: hide and hide": (hide_and_hide, "with |"),
    "target_mask: pads as rows": (target_pads_as_rows, "query axis"),
    "target_mask: True hides": (target_hides_with_true, "inverted"),
    "target_mask: pad half inverted": (pad_half_inverted, "padding half is inverted"),
    "target_mask: strictly past": (target_without_itself, "diagonal is hidden"),
    "target_mask: pad zero": (target_with_pad_zero, "pad_id is ignored"),
}


def causal_by_comparison(q_len, k_len=None):
    """Positions compared; no batch axis."""
    k_len = q_len if k_len is None else k_len
    return torch.arange(k_len - q_len, k_len)[:, None] >= torch.arange(k_len)


def causal_by_loop(q_len, k_len=None):
    """Row by row, in 0 and 1."""
    k_len = q_len if k_len is None else k_len
    mask = torch.zeros(1, q_len, k_len, dtype=torch.uint8)
    for i in range(q_len):
        mask[0, i, : k_len - q_len + i + 1] = 1
    return mask


def causal_by_numpy(q_len, k_len=None):
    """np.triu, compared with 0, with an axis for the heads."""
    k_len = k_len or q_len
    above = np.triu(np.ones((1, 1, q_len, k_len)), k=1 + k_len - q_len)
    return torch.from_numpy(above) == 0


def causal_by_cumsum(q_len, k_len=None, device=None):
    """Ones on a diagonal, summed from the right; float."""
    k_len = k_len or q_len
    eye = torch.eye(k_len, device=device)[k_len - q_len :]
    return eye.flip(-1).cumsum(-1).flip(-1)


def padding_two_axes(ids, pad_id=0):
    """(batch, k_len), as the key padding mask of torch has it."""
    return ids.ne(pad_id)


def padding_with_heads(ids, pad_id=0):
    """An axis for heads and one for queries."""
    return (ids != pad_id)[:, None, None, :]


def padding_as_table(ids, pad_id=0):
    """A row for every query, in whole numbers."""
    return (ids != pad_id).long()[:, None, :].repeat(1, ids.shape[1], 1)


def padding_by_loop(ids, pad_id=0):
    """Python lists."""
    return torch.tensor([[[token != pad_id for token in row]] for row in ids.tolist()])


def target_by_loop(ids, pad_id=0):
    """What the definition says, in a loop, as floats."""
    batch, length = ids.shape
    mask = torch.zeros(batch, length, length)
    for b, i in np.ndindex(batch, length):
        for j in range(i + 1):
            mask[b, i, j] = float(ids[b, j] != pad_id)
    return mask


def target_with_heads(ids, pad_id=0):
    """An axis for the heads."""
    n = ids.shape[1]
    return (ids != pad_id)[:, None, None] & torch.ones(n, n, dtype=torch.bool).tril()


def target_by_product(ids, pad_id=0):
    """0 and 1 multiplied."""
    n = ids.shape[1]
    return (ids != pad_id).int()[:, None, :] * torch.tril(torch.ones(n, n, dtype=torch.int))


def target_by_hiding(ids, pad_id=0):
    """De Morgan: hide what is padding or future."""
    n = ids.shape[1]
    return ~((ids == pad_id).unsqueeze(1) | torch.ones(n, n).triu(1).bool())


def padding_by_name(ids, *, pad_id=0):
    """pad_id goes by name only."""
    return ids.ne(pad_id).unsqueeze(1)


def target_as_array(ids, pad_id=0):
    """numpy inside and outside."""
    ids = ids.numpy()
    return (ids != pad_id)[:, None] & np.tri(ids.shape[1], dtype=bool)


RIGHT = {
    "padding_mask: by name": padding_by_name,
    "target_mask: array": target_as_array,
    "causal_mask: ours": masks.causal_mask,
    "causal_mask: comparison": causal_by_comparison,
    "causal_mask: loop": causal_by_loop,
    "causal_mask: numpy": causal_by_numpy,
    "causal_mask: cumsum": causal_by_cumsum,
    "padding_mask: ours": masks.padding_mask,
    "padding_mask: two axes": padding_two_axes,
    "padding_mask: heads": padding_with_heads,
    "padding_mask: table": padding_as_table,
    "padding_mask: loop": padding_by_loop,
    "target_mask: ours": masks.target_mask,
    "target_mask: loop": target_by_loop,
    "target_mask: heads": target_with_heads,
    "target_mask: product": target_by_product,
    "target_mask: hiding": target_by_hiding,
}
