"""Readings of memory, completed with what the artifacts decide. Free of torch."""

from collections.abc import Mapping
from itertools import accumulate, repeat
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.errors import ArtifactError, UsageError
from stages.lineage.corpus import own_splits, require_key
from stages.lineage.neighbors import require_neighbors, stored_splits
from stages.memory import READERS
from stages.methods.defaults import default_key, default_similarity, is_own_datastore, trained_temperature
from stages.retrieval.reading import Reading

MOST_NEIGHBORS = 1024
"""Neighbours read unless told otherwise."""
FEWER = "--memory external:k="
"""The option that has fewer read."""

SIMILARITIES = {"l2": "l2", "ip": "dot"}
"""What a search in a metric compares by."""

JOINT_TEMPERATURES = (0.7, 0.85, 1, 1.1, 1.2, 1.3, 1.5, 1.75, 2, 2.5, 3, 4, 6, 10, 20, 50)
"""τ that `temperature=tune` chooses from where a joint softmax compares as in training, in units of the model's
own, which the best lie near; models trained without memory are best, and flat, at the far end."""

SIZES = (50, 100, 200, 500, 1000, 2000, 5000, 10_000)
"""Positions back that `size=tune` chooses from, as Grave et al. 2017 do."""


def resolve_reading(reading: Reading, read: Mapping[str, Artifact], splits: tuple[str, ...]) -> Reading:
    """A reading with the similarity, key and numbers of entries that these artifacts give it.

    Args:
        read: what the evaluation reads, by role.
        splits: the one that is scored, then the one that is tuned on, if any.
    Raises: UsageError without a datastore to read, or where the model has no such key; ArtifactError
        if the stored neighbours or keys are not those that the reading asks for.
    """
    reading = _with_weights(reading)
    if "external" in reading.sources:
        reading = _complete_external(reading, read, splits)
        if len(reading.sources) > 1:
            _require_one_stream(reading, read, splits)
    return _with_temperatures(_complete_recent(reading, read, splits), read["model"])


def _with_weights(reading: Reading) -> Reading:
    """The reading with the default grid of its reader spelled out where λ or α is to be tuned."""
    if reading.reader_weight != "tune":
        return reading
    reader = READERS.load(reading.reader)
    field = {"lambda": "weight", "alpha": "alpha"}[reader.hyperparameter]
    return reading.model_copy(update={field: reader.default_grid})


def _with_temperatures(reading: Reading, model: Artifact) -> Reading:
    """A reading of known similarity with τ to choose from spelled out where they are not measured in a sample."""
    if (reading.temperature, reading.reader, reading.similarity) != ("tune", "joint", "scaled-dot"):
        return reading
    unit = trained_temperature(model)
    return reading.model_copy(update={"temperature": tuple(float(f"{t * unit:.10g}") for t in JOINT_TEMPERATURES)})


def _complete_recent(reading: Reading, read: Mapping[str, Artifact], splits: tuple[str, ...]) -> Reading:
    """What a datastore has not decided: the keys of recent positions, how they compare, and how many are read."""
    model = read["model"]
    key = reading.key or default_key(model)
    if reading.sources != ("external",):
        require_key(model, key)
    longest = max(read["tokens"].metrics["splits"][split]["tokens"] for split in splits)
    sizes = SIZES if reading.size == "tune" else reading.size
    return reading.model_copy(
        update={
            "key": key,
            "similarity": reading.similarity or default_similarity(model, "dot"),
            "size": None if sizes is None else tuple(sorted({min(size, longest) for size in sizes})),
        }
    )


def _require_one_stream(reading: Reading, read: Mapping[str, Artifact], splits: tuple[str, ...]) -> None:
    """Refuse unions whose parts do not have the same keys, or would both hold the same positions.

    Raises: ArtifactError for the datastore of another model; UsageError for the datastore's own split.
    """
    datastore, model = read["datastore"], read["model"]
    if not is_own_datastore(read):
        raise ArtifactError(
            f"{reading.spelled} compares recent positions with the keys of {datastore.reference}, which "
            f"{read['encoder'].reference} made, not {model.reference}; read external by itself on top of the "
            f"others, or build another datastore: memlm build-datastore {model.reference}"
        )
    own = own_splits(datastore, read["tokens"])
    twice = next((split for split in splits if split in own), None)
    if twice is not None:
        instead = "evaluate another split" if twice == splits[0] else "name another split with --tune-split"
        raise UsageError(
            f"{reading.spelled} would read recent positions of {twice!r} twice: they are in {datastore.reference} "
            f"too; {instead}, or read external by itself on top of the others."
        )


def _complete_external(reading: Reading, read: Mapping[str, Artifact], splits: tuple[str, ...]) -> Reading:
    if "datastore" not in read:
        raise UsageError(
            f"{reading.spelled} reads a datastore: evaluate an index or neighbors, or name one with "
            "--index or --neighbors."
        )
    datastore = read["datastore"]
    if reading.key not in (None, datastore.config["key"]):
        raise ArtifactError(
            f"{datastore.reference} has keys {datastore.config['key']!r}, not {reading.key!r}; "
            f"build another: memlm build-datastore --key {reading.key} {read['encoder'].reference}"
        )
    return reading.model_copy(
        update={
            "key": datastore.config["key"],
            "similarity": reading.similarity
            or default_similarity(read["encoder"], SIMILARITIES[read["index"].config["metric"]]),
            "k": _numbers(reading, read, splits),
        }
    )


def doubling_cutoffs(k: int) -> tuple[int, ...]:
    """1, 2, 4, … up to k, and k itself."""
    powers = accumulate(repeat(2, k.bit_length() - 1), int.__mul__, initial=1)
    return tuple(sorted({*powers, k}))


def is_recomputed(reading: Reading, metric: str, lossless: bool) -> bool:
    """Whether a completed reading's scores must come from the stored keys.

    Args:
        metric: of the index.
        lossless: whether distances as they are found are those of the stored keys.
    """
    comparable = {"l2": ("l2",), "ip": ("dot", "scaled-dot")}[metric]
    return reading.similarity not in comparable or (reading.exact and not lossless)


def _numbers(reading: Reading, read: Mapping[str, Artifact], splits: tuple[str, ...]) -> tuple[int, ...]:
    """Numbers of neighbours to read, each at most the rows that there are: beyond, nothing is found."""
    most = min(MOST_NEIGHBORS, _available(read, splits))
    if reading.k == "tune":
        return doubling_cutoffs(most)
    if reading.k is None:
        return (most,)
    if "neighbors" in read:
        for split in splits:
            require_neighbors(read["neighbors"], split, max(reading.k), FEWER)
    rows = int(read["datastore"].metrics["rows"])
    return tuple(sorted({min(k, rows) for k in reading.k}))


def _available(read: Mapping[str, Artifact], splits: tuple[str, ...]) -> int:
    rows = int(read["datastore"].metrics["rows"])
    if "neighbors" not in read:
        return rows
    for split in splits:
        require_neighbors(read["neighbors"], split, 1, FEWER)
    stored: dict[str, Any] = stored_splits(read["neighbors"])
    return min(rows, *(stored[split] for split in splits))
