"""Settings of the source `external`: the nearest entries of a datastore, found through an index."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from stages.artifacts.artifact import Artifact
from stages.errors import ArtifactError, UsageError
from stages.lineage.neighbors import require_neighbors, stored_splits
from stages.lineage.sources import own_splits
from stages.memory.hyperparameter import Choice, Count, Hyperparameter, doubling_cutoffs
from stages.methods.defaults import default_similarity, is_own_datastore
from stages.retrieval.sources.settings import SourceSettings

if TYPE_CHECKING:
    from stages.retrieval.reading import Reading

MOST_NEIGHBORS = 1024
"""Neighbours read unless set otherwise."""
FEWER = "--memory external:k="
"""The option that has fewer read."""
SIMILARITIES = {"l2": "l2", "ip": "dot"}
"""Similarity of a search, by its metric."""


class ExternalSettings(SourceSettings):
    """How many neighbours, and which distances."""

    word: ClassVar[str] = "datastore"
    means: ClassVar[str] = "the k nearest entries of the datastore"
    amount: ClassVar[str] = "k"
    reported_as: ClassVar[Mapping[str, str]] = {"exact": "exact_distances"}
    reads_datastore: ClassVar[bool] = True
    k: Annotated[Choice[Count] | None, Hyperparameter("k", "neighbours read", "neighbours, k")] = None
    """Neighbours read; None: 1,024 or as many as there are."""
    exact: bool = False
    """Whether distances are recomputed from the stored keys."""
    searched: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the tuning split's tokens that are searched for, those where the memory is expected to gain most."""
    pointers: Count | None = None
    """Fewest rows behind the last neighbours that are read in place of a search; None: every token is searched for."""

    def resolve(self, reading: "Reading", read: Mapping[str, Artifact], splits: tuple[str, ...]) -> "Reading":
        if "datastore" not in read:
            raise UsageError(_without_datastore(reading, read["model"]))
        datastore = read["datastore"]
        if reading.key not in (None, datastore.config["key"]):
            raise ArtifactError(
                f"{datastore.reference} has keys {datastore.config['key']!r}, not {reading.key!r}; "
                f"build another: "
                + datastore.advise("build-datastore", "--key", str(reading.key), read["encoder"].reference)
            )
        if self.pointers is not None and ("neighbors" in read or "examples" in read["tokens"].metrics):
            raise UsageError(f"{reading.spelled}: pointers save searches of an index in running text: leave them out.")
        numbers = _numbers(self.k, read, splits)
        if self.pointers is not None and self.pointers > max(numbers):
            raise UsageError(
                f"{reading.spelled}: no token has {self.pointers} rows to follow where {max(numbers)} neighbours are "
                f"read, so every token would be searched for: give at most pointers={max(numbers)}."
            )
        compared = default_similarity(read["encoder"], SIMILARITIES[read["index"].config["metric"]])
        reading = reading.changed(
            {
                "key": datastore.config["key"],
                "similarity": reading.similarity or compared,
                "k": numbers,
            }
        )
        if len(reading.sources) > 1:
            _require_one_stream(reading, read, splits)
        return reading


def _without_datastore(reading: "Reading", model: Artifact) -> str:
    made = ("build-datastore", model.reference), ("build-index",), ("evaluate", "--memory", reading.shortest)
    return (
        f"{reading.shortest} reads a datastore: evaluate an index or neighbors ("
        f"{' | '.join(model.advise(*words) for words in made)}), or name one with --index or --neighbors."
    )


def _require_one_stream(reading: "Reading", read: Mapping[str, Artifact], splits: tuple[str, ...]) -> None:
    """Refuse unions whose parts do not have the same keys, or would both hold the same positions.

    Raises: ArtifactError for the datastore of another model; UsageError for the datastore's own split.
    """
    datastore, model = read["datastore"], read["model"]
    if not is_own_datastore(read):
        raise ArtifactError(
            f"{reading.shortest} compares recent positions with the keys of {datastore.reference}, which "
            f"{read['encoder'].reference} made, not {model.reference}; read external by itself on top of the "
            f"others, or build another datastore: {model.advise('build-datastore', model.reference)}"
        )
    own = own_splits(datastore, read["tokens"])
    twice = next((split for split in splits if split in own), None)
    if twice is not None:
        instead = "evaluate another split" if twice == splits[0] else "name another split with --tune-split"
        raise UsageError(
            f"{reading.shortest} would read recent positions of {twice!r} twice: they are in {datastore.reference} "
            f"too; {instead}, or read external by itself on top of the others."
        )


def _numbers(asked: Any, read: Mapping[str, Artifact], splits: tuple[str, ...]) -> tuple[int, ...]:
    """Numbers of neighbours to read, each at most the rows that there are: beyond, nothing is found."""
    most = min(MOST_NEIGHBORS, _available(read, splits))
    if asked == "tune":
        return doubling_cutoffs(most)
    if asked is None:
        return (most,)
    if "neighbors" in read:
        for split in splits:
            require_neighbors(read["neighbors"], split, max(asked), FEWER)
    rows = int(read["datastore"].metrics["rows"])
    return tuple(sorted({min(k, rows) for k in asked}))


def _available(read: Mapping[str, Artifact], splits: tuple[str, ...]) -> int:
    rows = int(read["datastore"].metrics["rows"])
    if "neighbors" not in read:
        return rows
    for split in splits:
        require_neighbors(read["neighbors"], split, 1, FEWER)
    stored: dict[str, Any] = stored_splits(read["neighbors"])
    return min(rows, *(stored[split] for split in splits))
