"""Attention with routed memory: a fixed number of slots per head that a model learns to write, blend and read."""
