"""Whom memlm is compared with."""

from tests.peers import nanogpt, pointer, transformer_xl, trime

PEERS = {module.PEER.name: module for module in (trime, transformer_xl, pointer, nanogpt)}
"""Each has `PEER`, and `comparisons` of the folder with its code."""
