"""What counting alone gives on the scored tokens: what a model, and a gain on top of it, is held against."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.evaluation.results.ngram import Ngrams
from stages.metrics import finite, perplexity
from stages.text.tokens import start_id

COUNTED = "train"
MOST_TOKENS = 10_000_000
"""Of the text that is counted, and of what is scored: 6 s and 0.6 GB at most."""
TOKENS_AT_ONCE = 1 << 18
LENGTH = 3


def trigram_control(
    read: Mapping[str, Artifact], split: str, score: str, reset: str, outside: np.ndarray | None
) -> dict[str, Any] | None:
    """A trigram of the text that a model learned, on the tokens of a split; JSON.

    Args:
        read: what an evaluation reads, by role.
        split, score, reset: its settings.
        outside: bool [T], the tokens of the split in no paragraph that was read before; None: that is not known.
    Returns: None where it would say nothing or cost much: of a model that learned elsewhere, of its own training
        text, of the last words of passages, of documents that are read alone, of more than MOST_TOKENS tokens.
    """
    learned, tokens = read["model"].input("tokens"), read["tokens"]
    sizes = learned.metrics["splits"], tokens.metrics["splits"]
    if _elsewhere(read["model"]) or COUNTED not in sizes[0] or (score, reset) != ("all", "none"):
        return None
    counted, scored = sizes[0][COUNTED]["tokens"], sizes[1][split]["tokens"]
    if max(counted, scored) > MOST_TOKENS or not scored or (split == COUNTED and learned.reference == tokens.reference):
        return None
    start, vocabulary = start_id(learned.metrics), int(learned.metrics["vocabulary_size"])
    ngrams = Ngrams.count(_ids(learned, COUNTED)[:], LENGTH, start, vocabulary)
    nll = _nll(ngrams, _ids(tokens, split)[:])
    new = nll if outside is None else nll[outside]
    return {
        "corpus": learned.reference,
        "split": COUNTED,
        "tokens": counted,
        "nll": finite(float(nll.mean())),
        "perplexity": perplexity(float(nll.sum()), scored),
        "perplexity_on_new_text": perplexity(float(new.sum()), len(new)),
    }


def _elsewhere(model: Artifact) -> bool:
    """Whether a model was imported, so that its tokens say nothing of what it learned."""
    return bool(model.manifest.outside_files)


def _ids(tokens: Artifact, split: str) -> Any:
    group: Any = tokens.zarr("tokens.zarr")
    return group[f"{split}/ids"]


def _nll(ngrams: Ngrams, ids: np.ndarray) -> np.ndarray:
    """Of each token of a split, nats, float64 [T]; some are looked up at a time, whose contexts reach further back."""
    return -np.concatenate(
        [
            ngrams.log_p(ids[start : start + TOKENS_AT_ONCE], ids[max(0, start - LENGTH) : start])
            for start in range(0, len(ids), TOKENS_AT_ONCE)
        ]
    )
