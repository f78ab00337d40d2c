"""Sentences translated token by token: decoders, beam search, and memory that is read at every step."""
