"""Graders for what you write yourself: they look at what it does, never at its text.

`check.attention(my_attention)` gives a Report: whether it passed, each property by name, the
smallest input that fails, what the mistake probably is, and which section to reread.
"""

from tutorial_transformer.check._report import Property, Report
from tutorial_transformer.check.accumulation import accumulate_gradients
from tutorial_transformer.check.add_norm import add_norm, layer_norm
from tutorial_transformer.check.attention import attention, masked_softmax
from tutorial_transformer.check.decoder import decoder_layer
from tutorial_transformer.check.decoding import beam_search, greedy_decode
from tutorial_transformer.check.embeddings import positional_encoding, token_embedding
from tutorial_transformer.check.encoder import encoder_layer
from tutorial_transformer.check.exercises import agreement, bug, counterexample, prediction
from tutorial_transformer.check.feed_forward import feed_forward
from tutorial_transformer.check.files import grade_file
from tutorial_transformer.check.filters import top_k, top_p
from tutorial_transformer.check.kv_cache import kv_cache
from tutorial_transformer.check.masks import causal_mask, padding_mask, target_mask
from tutorial_transformer.check.multi_head import merge_heads, multi_head, split_heads
from tutorial_transformer.check.names import ALIASES, GRADERS
from tutorial_transformer.check.sampling import sample
from tutorial_transformer.check.schedule import warmup_schedule
from tutorial_transformer.check.smoothing import smoothed_targets
from tutorial_transformer.check.training import sequence_loss

__all__ = [
    "ALIASES",
    "GRADERS",
    "Property",
    "Report",
    "accumulate_gradients",
    "add_norm",
    "agreement",
    "attention",
    "beam_search",
    "bug",
    "causal_mask",
    "counterexample",
    "decoder_layer",
    "encoder_layer",
    "feed_forward",
    "grade_file",
    "greedy_decode",
    "kv_cache",
    "layer_norm",
    "masked_softmax",
    "merge_heads",
    "multi_head",
    "padding_mask",
    "positional_encoding",
    "prediction",
    "sample",
    "sequence_loss",
    "smoothed_targets",
    "split_heads",
    "target_mask",
    "token_embedding",
    "top_k",
    "top_p",
    "warmup_schedule",
]
