"""Tokens of a split that stand word for word in the text that a model or a datastore was made of."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.lineage.corpus import array_digests
from stages.lineage.evaluation import datastores_read

HASHES = "paragraph_hashes"


@dataclass(frozen=True)
class KnownText:
    """A split that a model learned or a datastore holds: `read_by`, `model`, `datastore` or both."""

    corpus: Artifact
    split: str
    read_by: tuple[str, ...]

    @property
    def digests(self) -> Mapping[str, str]:
        """What its paragraphs are told by."""
        return array_digests(self.corpus, f"{self.split}/{HASHES}")


def known_texts(read: Mapping[str, Artifact]) -> list[KnownText]:
    """The texts that the answers may stand in, each once: what the model learned, then what its datastores hold.

    Args:
        read: artifacts by role, as `stages.lineage.evaluation` finds them.
    """
    learned = read["model"].input("tokens")
    texts = [KnownText(learned, "train", ("model",))] if "train" in learned.metrics["splits"] else []
    for datastore, _ in datastores_read(read):
        held = KnownText(datastore.input("corpus"), datastore.config["split"], ("datastore",))
        same = next((n for n, text in enumerate(texts) if text.digests == held.digests), None)
        if same is None:
            texts.append(held)
        elif "datastore" not in texts[same].read_by:
            texts[same] = KnownText(texts[same].corpus, texts[same].split, ("model", "datastore"))
    return texts


def repeated_tokens(scored: Artifact, split: str, known: Artifact, known_split: str) -> np.ndarray:
    """Whether each token of a split lies in a paragraph that `known_split` has too, bool [T].

    Compares the hashes of whole paragraphs (maximal runs of lines that are not blank).
    """
    hashes = _read(scored, split, HASHES)
    repeated = np.isin(hashes, _read(known, known_split, HASHES))
    ends = _read(scored, split, "paragraph_ends")
    return np.repeat(repeated, np.diff(ends, prepend=0))


def _read(tokens: Artifact, split: str, name: str) -> np.ndarray:
    array: Any = tokens.zarr("tokens.zarr")[f"{split}/{name}"]
    return np.asarray(array[:])
