"""Whom memlm is compared with."""

from tests.peers import (
    dynamic_evaluation,
    engram,
    in_context_ralm,
    knn_transformers,
    memory_decoder,
    nanogpt,
    pointer,
    sru_plus_plus,
    transformer_xl,
    trime,
)

PEERS = {
    module.PEER.name: module
    for module in (
        trime,
        transformer_xl,
        sru_plus_plus,
        pointer,
        nanogpt,
        knn_transformers,
        engram,
        dynamic_evaluation,
        memory_decoder,
        in_context_ralm,
    )
}
"""Each has `PEER`, and `comparisons` of the folder with its code."""
