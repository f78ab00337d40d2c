"""Pretrained models and tokenizers: locating them, and converting them to memlm's own files."""
