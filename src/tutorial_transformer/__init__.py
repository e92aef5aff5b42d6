"""The tested code that the notebooks build: one module a chapter, imports only go down.

Read the modules in the order of the floors: masks, attention, feed_forward, embeddings and
add_norm stand on the ground; multi_head and data on them; then encoder and decoder,
transformer, and at the top training, decoding and attention_maps.
"""
