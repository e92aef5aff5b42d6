"""The graders by the names under which people write the components."""

from collections.abc import Callable

from tutorial_transformer.check._report import Report
from tutorial_transformer.check.accumulation import accumulate_gradients
from tutorial_transformer.check.add_norm import add_norm, layer_norm
from tutorial_transformer.check.attention import attention, masked_softmax
from tutorial_transformer.check.decoder import decoder_layer
from tutorial_transformer.check.decoding import beam_search, greedy_decode
from tutorial_transformer.check.embeddings import positional_encoding, token_embedding
from tutorial_transformer.check.encoder import encoder_layer
from tutorial_transformer.check.feed_forward import feed_forward
from tutorial_transformer.check.filters import top_k, top_p
from tutorial_transformer.check.kv_cache import kv_cache
from tutorial_transformer.check.masks import causal_mask, padding_mask, target_mask
from tutorial_transformer.check.multi_head import merge_heads, multi_head, split_heads
from tutorial_transformer.check.sampling import sample
from tutorial_transformer.check.schedule import warmup_schedule
from tutorial_transformer.check.smoothing import smoothed_targets
from tutorial_transformer.check.training import sequence_loss

GRADERS: dict[str, Callable[[Callable], Report]] = {
    grader.__name__: grader
    for grader in (
        causal_mask, padding_mask, target_mask, attention, masked_softmax, split_heads,
        merge_heads, multi_head, feed_forward, positional_encoding, token_embedding, layer_norm,
        add_norm, encoder_layer, decoder_layer, sequence_loss, smoothed_targets, warmup_schedule,
        accumulate_gradients, greedy_decode, beam_search, sample, top_k, top_p, kv_cache,
    )
}  # fmt: skip
ALIASES = {
    "scaled_dot_product_attention": "attention",
    "multi_head_attention": "multi_head",
    "mha": "multi_head",
    "position_wise_feed_forward": "feed_forward",
    "ffn": "feed_forward",
    "sinusoidal_positions": "positional_encoding",
    "embedding": "token_embedding",
    "label_smoothing": "smoothed_targets",
    "beam": "beam_search",
    "greedy": "greedy_decode",
    "nucleus": "top_p",
}
_BY_LETTERS = {name.replace("_", ""): name for name in (*GRADERS, *ALIASES)}


def recognised(name: str) -> str | None:
    """The grader for a name: causal_mask for my_causal_mask, CausalMask and causal_mask_2 too."""
    letters = "".join(filter(str.isalpha, name)).lower()
    found = _BY_LETTERS.get(letters) or _BY_LETTERS.get(letters.removeprefix("my"))
    return ALIASES.get(found, found)
