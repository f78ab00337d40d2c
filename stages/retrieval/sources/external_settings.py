"""Settings of the source `external`: the nearest entries of a datastore, found through an index.
Free of torch.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from stages.artifacts.artifact import Artifact
from stages.errors import ArtifactError, UsageError
from stages.lineage.indexes import require_all
from stages.lineage.neighbors import require_neighbors
from stages.lineage.sources import own_splits
from stages.memory.hyperparameter import Choice, Count, Hyperparameter, doubling_cutoffs
from stages.methods.defaults import default_similarity, is_own_datastore
from stages.retrieval.grammar import shortest
from stages.retrieval.reading import Reading, SourceSettings

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
    finds_neighbors: ClassVar[bool] = True
    searches: ClassVar[bool] = True
    k: Annotated[Choice[Count] | None, Hyperparameter("k", "neighbours read", "neighbours, k")] = (
        None
    )
    """Neighbours read; None: 1,024 or as many as there are."""
    exact: bool = False
    """Whether distances are recomputed from the stored keys."""
    searched: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the tuning split's tokens that are searched for, those where the memory is expected
    to gain most.
    """
    pointers: Count | None = None
    """Fewest rows behind the last neighbours that are read in place of a search; None: every token
    is searched for.
    """

    @property
    def searched_share(self) -> float:
        return self.searched

    @property
    def skips_searches(self) -> bool:
        return self.searched < 1 or self.pointers is not None

    @property
    def hides_rows(self) -> bool:
        # A pointer leads to a row without a search, which would leave hidden ones out.
        return self.pointers is None

    @property
    def searches_steps(self) -> bool:
        return self.pointers is None

    def check(self, reading: Reading) -> None:
        is_planned = reading.weight_rule.plans_searches and len(reading.sources) == 1
        if self.searched < 1 and not is_planned:
            raise ValueError(
                f"searched is of external alone, with {reading.weight_name}=learned: both are learned together"
            )
        if self.pointers is not None and (self.searched < 1 or len(reading.sources) > 1):
            raise ValueError(
                "pointers are of external alone, without searched: both say when to search"
            )

    def reason_alone(self) -> str | None:
        if not self.skips_searches:
            return None
        return "a reading that leaves searches out (searched, pointers) stands alone"

    @classmethod
    def amounts(cls, read: Mapping[str, Artifact], split: str) -> Mapping[str, int]:
        if "neighbors" in read:
            return {"k": read["neighbors"].config["k"]}
        return {"k": read["datastore"].metrics["rows"] if "datastore" in read else 0}

    def resolve(
        self, reading: Reading, read: Mapping[str, Artifact], splits: tuple[str, ...]
    ) -> Reading:
        if "datastore" not in read:
            raise UsageError(_without_datastore(reading, read["model"]))
        datastore = read["datastore"]
        key = reading.comparison.key
        if key not in (None, datastore.config["key"]):
            raise ArtifactError(
                f"{datastore.reference} has keys {datastore.config['key']!r}, not {key!r}; build another: "
                + datastore.advise("build-datastore", "--key", str(key), read["encoder"].reference)
            )
        if self.pointers is not None and (
            "neighbors" in read or "examples" in read["tokens"].metrics
        ):
            raise UsageError(
                f"{reading.spelled}: pointers save searches of an index in running text: leave them out."
            )
        _require_all_rows(reading, read, splits)
        numbers = _numbers(self.k, read, splits)
        if self.pointers is not None and self.pointers > max(numbers):
            raise UsageError(
                f"{reading.spelled}: no token has {self.pointers} rows to follow where {max(numbers)} neighbours are "
                f"read, so every token would be searched for: give at most pointers={max(numbers)}."
            )
        compared = default_similarity(read["encoder"], SIMILARITIES[read["index"].config["metric"]])
        similarity = reading.comparison.similarity or compared
        reading = reading.changed(
            {"key": datastore.config["key"], "similarity": similarity, "k": numbers}
        )
        if len(reading.sources) > 1:
            _require_one_stream(reading, read, splits)
        return reading


def _require_all_rows(
    reading: Reading, read: Mapping[str, Artifact], splits: tuple[str, ...]
) -> None:
    """Refuse readings that an index with merged rows cannot serve: pointers, and exclusion of the
    token's own row.
    """
    if reading.value("pointers") is not None:
        require_all(read["index"], f"{reading.spelled}, whose pointers are to the row behind,")
    if not own_splits(read["datastore"], read["tokens"]).isdisjoint(splits):
        require_all(read["index"], "a split whose own rows are left out")


def _without_datastore(reading: Reading, model: Artifact) -> str:
    steps = (
        ("build-datastore", model.reference),
        ("build-index",),
        ("evaluate", "--memory", shortest(reading)),
    )
    return (
        f"{shortest(reading)} reads a datastore: evaluate an index or neighbors ("
        f"{' | '.join(model.advise(*words) for words in steps)}), or name one with --index or --neighbors."
    )


def _require_one_stream(
    reading: Reading, read: Mapping[str, Artifact], splits: tuple[str, ...]
) -> None:
    """Refuse unions whose parts have different keys, or would hold the same positions twice.

    Raises: ArtifactError for the datastore of another model; UsageError for the datastore's own
    split.
    """
    datastore = read["datastore"]
    model = read["model"]
    if not is_own_datastore(read):
        raise ArtifactError(
            f"{shortest(reading)} compares recent positions with the keys of {datastore.reference}, which "
            f"{read['encoder'].reference} made, not {model.reference}; read external by itself on top of the "
            f"others, or build another datastore: {model.advise('build-datastore', model.reference)}"
        )
    splits_of_datastore = own_splits(datastore, read["tokens"])
    twice = next((split for split in splits if split in splits_of_datastore), None)
    if twice is not None:
        instead = (
            "evaluate another split"
            if twice == splits[0]
            else "name another split with --tune-split"
        )
        raise UsageError(
            f"{shortest(reading)} would read recent positions of {twice!r} twice: they are in {datastore.reference} "
            f"too; {instead}, or read external by itself on top of the others."
        )


def _numbers(
    setting: Any, read: Mapping[str, Artifact], splits: tuple[str, ...]
) -> tuple[int, ...]:
    """Numbers of neighbours to read, each at most the number of rows."""
    rows = int(read["datastore"].metrics["rows"])
    max_neighbors = min(MOST_NEIGHBORS, rows)
    if "neighbors" in read:
        needed = max(setting) if isinstance(setting, tuple) else 1
        for split in splits:
            require_neighbors(read["neighbors"], split, needed, FEWER)
        max_neighbors = min(max_neighbors, int(read["neighbors"].config["k"]))

    if setting == "tune":
        return doubling_cutoffs(max_neighbors)
    if setting is None:
        return (max_neighbors,)
    return tuple(sorted({min(k, rows) for k in setting}))
