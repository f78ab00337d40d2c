"""Tokens of a split that stand word for word in the text that a model or a datastore was made of."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.lineage.corpus import array_digests
from stages.lineage.evaluation import datastores_read
from stages.lineage.rows import DatastoreRows

HASHES = "paragraph_hashes"


@dataclass(frozen=True)
class KnownText:
    """A split that a model learned or rows of a datastore are of: `read_by`, `model`, `datastore` or both.

    `corpus`: reference of its tokens; `digests`: what all its paragraphs are known by, None if only some are stored;
    `hashes`: reads those that are, uint64 [P].
    """

    corpus: str
    split: str
    digests: Mapping[str, str] | None
    hashes: Callable[[], np.ndarray]
    read_by: tuple[str, ...]


def known_texts(read: Mapping[str, Artifact]) -> list[KnownText]:
    """The texts that the answers may stand in, each once: what the model learned, then what its datastores hold.

    Args:
        read: artifacts by role, as `stages.lineage.evaluation` finds them.
    """
    learned = read["model"].input("tokens")
    texts = [_learned(learned)] if "train" in learned.metrics["splits"] else []
    for datastore, _ in datastores_read(read):
        for held in _held(datastore):
            same = next((n for n, text in enumerate(texts) if held.digests and text.digests == held.digests), None)
            if same is None:
                texts.append(held)
            elif "datastore" not in texts[same].read_by:
                texts[same] = replace(texts[same], read_by=("model", "datastore"))
    return texts


def _learned(tokens: Artifact) -> KnownText:
    digests = array_digests(tokens, f"train/{HASHES}")
    return KnownText(tokens.reference, "train", digests, partial(_read, tokens, "train", HASHES), ("model",))


def _held(datastore: Artifact) -> Iterator[KnownText]:
    """The text of each split that rows of a datastore are of."""
    rows = DatastoreRows(datastore)
    for number, source in enumerate(rows.sources):
        hashes = partial(rows.paragraph_hashes, number)
        yield KnownText(source.tokens.reference, source.split, source.paragraphs, hashes, ("datastore",))


def repeated_tokens(scored: Artifact, split: str, known: np.ndarray) -> np.ndarray:
    """Whether each token of a split lies in a paragraph whose hash is among those of a known text, bool [T].

    Compares the hashes of whole paragraphs: runs of lines that are not blank or, of longer runs, single lines (see
    `stages.text.documents.mark`).
    """
    repeated = np.isin(_read(scored, split, HASHES), known)
    ends = _read(scored, split, "paragraph_ends")
    return np.repeat(repeated, np.diff(ends, prepend=0))


def paragraphs_of(tokens: Artifact, split: str) -> int:
    """How many paragraphs a split has."""
    return len(_read(tokens, split, "paragraph_ends"))


def _read(tokens: Artifact, split: str, name: str) -> np.ndarray:
    array: Any = tokens.zarr("tokens.zarr")[f"{split}/{name}"]
    return np.asarray(array[:])
