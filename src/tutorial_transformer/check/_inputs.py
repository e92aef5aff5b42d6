"""Inputs for the graders of attention, the same at every call, and the answers' usual forms."""

import torch
from torch import Tensor

from tutorial_transformer.check._grade import Case
from tutorial_transformer.check._trial import UnusableError

SOME = torch.tensor([[[True, True, False], [True, False, False]]])
NONE = torch.tensor([[[True, True, False], [False, False, False]]])  # row 1 may see nothing
LAST = torch.tensor([[[False, False, True], [False, True, True]]])


def numbers(size: tuple[int, ...], seed: int = 0) -> Tensor:
    """Random numbers that do not touch torch's own random state."""
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)) * 2


def triple(
    batch: int, q_len: int, k_len: int, d_k: int, d_v: int, seed: int = 0
) -> tuple[Tensor, ...]:
    """Query, key and value."""
    sizes = ((batch, q_len, d_k), (batch, k_len, d_k), (batch, k_len, d_v))
    return tuple(numbers(size, seed + 10 * place) for place, size in enumerate(sizes))


def until(*lengths: int) -> Tensor:
    """A padding mask (batch, 1, k_len) for sentences of these lengths."""
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None, None]


def causal(q_len: int, k_len: int) -> Tensor:
    """A mask (1, q_len, k_len) that hides the upper triangle."""
    return torch.ones(1, q_len, k_len, dtype=torch.bool).tril()


def rows(mask: Tensor) -> str:
    """A mask as text, for the example of a case."""
    return f"mask {mask[0].int().tolist()}"


def attention_cases() -> list[Case]:
    """The smallest input first; all sizes differ, so that swapped axes show."""
    small, batch = triple(1, 2, 3, 4, 5), triple(2, 3, 5, 4, 6, seed=1)
    query, key, value = small
    far, double = (query * 1e7, key, value), tuple(x.double() for x in small)
    whole = torch.tensor([[[2.0], [4.0], [9.0]]])  # exact in float16, as are its averages
    half = tuple(x.half() for x in (query[:, :1] * 0, key * 0, whole))
    return [
        Case("equal keys share the weight equally", "all keys 0", (query, key * 0, value)),
        Case("scores are divided by √d_k, softmax runs over the keys", "d_k 4", small),
        Case("it works in batches, all sizes different", "batch 2, q_len 3, k_len 5", batch),
        Case("hidden keys weigh 0, the rest sums to 1", rows(SOME), (*small, SOME)),
        Case("a padding mask hides keys in all rows", "lengths 3, 5", (*batch, until(3, 5))),
        Case("a mask for one sentence serves the batch", "batch 2", (*batch, causal(3, 5))),
        Case("a query that may see nothing gets zeros", rows(NONE), (*small, NONE)),
        Case("large scores do not overflow", "query × 1000", (query * 1000, key, value)),
        Case("large scores do not overflow", "late keys only", (query * 1000, key, value, LAST)),
        Case("no fill is too high", "query × 10⁷", (*far, causal(2, 3))),
        Case("no fill is too high", "query × 10⁷, late keys only", (*far, LAST)),
        Case("it works in float16", "all keys 0", (*half, SOME[:, :1])),
        Case("it works in float64", "double inputs", double),
    ]


def output_of(answer: object) -> Tensor:
    """The output, whether or not the weights come with it."""
    output = answer[0] if isinstance(answer, tuple | list) and answer else answer
    if not isinstance(output, Tensor):
        raise UnusableError(
            f"it must return a tensor or (output, attn_weights), got {type(answer).__name__}"
        )
    return output


def weights_of(answer: object) -> Tensor:
    """The weights that came with the output."""
    if not isinstance(answer, tuple | list) or not isinstance(answer[-1], Tensor):
        raise UnusableError("it returns weights for some inputs, for others none")
    return answer[-1]
