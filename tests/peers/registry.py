"""Whom memlm is compared with."""

from tests.peers import knn_transformers, nanogpt, pointer, transformer_xl, trime

PEERS = {module.PEER.name: module for module in (trime, transformer_xl, pointer, nanogpt, knn_transformers)}
"""Each has `PEER`, and `comparisons` of the folder with its code."""
