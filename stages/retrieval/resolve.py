"""Settings of readings that follow from artifacts. Free of torch."""

from collections.abc import Iterable, Mapping

from stages.artifacts.artifact import Artifact
from stages.lineage.corpus import require_key
from stages.methods.defaults import default_key, default_similarity, trained_temperature
from stages.retrieval.grammar import require_few_points
from stages.retrieval.reading import Reading


def resolve_reading(
    reading: Reading, read: Mapping[str, Artifact], splits: tuple[str, ...]
) -> Reading:
    """A reading with similarity, key and numbers of entries filled in from the artifacts.

    Args:
        read: what the evaluation reads, by role.
        splits: the scored split, then the tuning split, if any.
    Raises: UsageError without a datastore to read, or if the model has no such key; ArtifactError
        if the stored neighbours or keys are not those that the reading needs.
    """
    for settings in reading.source_settings:
        reading = settings.resolve(reading, read, splits)
    if reading.weight == "tune":
        reading = reading.with_tuned_weight()
    reading = _with_temperatures(_with_comparison(reading, read["model"]), read["model"])
    reading.weight_rule.check_resolved(reading)
    # Default grids are spelled out only here, and may be too large together.
    require_few_points(reading)
    return reading


def reading_warnings(readings: Iterable[Reading], read: Mapping[str, Artifact]) -> list[str]:
    """Warnings of all sources of completed readings about what they read, by role."""
    warnings = list[str]()
    for reading in readings:
        for settings in reading.source_settings:
            warnings += settings.warnings(read)
    return warnings


def _with_comparison(reading: Reading, model: Artifact) -> Reading:
    """Fill in the key and the similarity from the model, if no datastore decided them."""
    if not reading.compares_keys:
        return reading
    key = reading.comparison.key or default_key(model)
    similarity = reading.comparison.similarity
    if not all(settings.reads_datastore for settings in reading.source_settings):
        require_key(model, key)
    return reading.changed(
        {"key": key, "similarity": similarity or default_similarity(model, "dot")}
    )


def _with_temperatures(reading: Reading, model: Artifact) -> Reading:
    """A reading of known similarity with the grid of τ spelled out, unless a sample determines it."""
    tried = reading.reader_settings.temperatures
    if not tried or (reading.comparison.temperature, reading.comparison.similarity) != (
        "tune",
        "scaled-dot",
    ):
        return reading
    unit = trained_temperature(model)
    return reading.changed({"temperature": tuple(float(f"{t * unit:.10g}") for t in tried)})
