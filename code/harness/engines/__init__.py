"""Engines compose the stages: how reading, decoding and the forward pass overlap, or do not."""
