"""Readings of memory, completed with what the artifacts decide. Free of torch."""

from collections.abc import Mapping

from stages.artifacts.artifact import Artifact
from stages.lineage.corpus import require_key
from stages.methods.defaults import default_key, default_similarity, trained_temperature
from stages.retrieval.reading import Reading


def resolve_reading(reading: Reading, read: Mapping[str, Artifact], splits: tuple[str, ...]) -> Reading:
    """A reading with the similarity, key and numbers of entries that these artifacts give it.

    Args:
        read: what the evaluation reads, by role.
        splits: the one that is scored, then the one that is tuned on, if any.
    Raises: UsageError without a datastore to read, or where the model has no such key; ArtifactError
        if the stored neighbours or keys are not those that the reading asks for.
    """
    for settings in reading.source_settings:
        reading = settings.resolve(reading, read, splits)
    reading = _with_weights(reading)
    return _with_temperatures(_with_comparison(reading, read["model"]), read["model"])


def _with_weights(reading: Reading) -> Reading:
    """The reading with the default grid of its reader spelled out where λ or α is to be tuned."""
    name, number = next(iter(reading.reader_settings.hyperparameters().items()))
    return reading.changed({name: number.grid}) if reading.value(name) == "tune" else reading


def _with_comparison(reading: Reading, model: Artifact) -> Reading:
    """Fill in what no datastore has decided: the model's keys that are compared, and how."""
    if not reading.compares_keys:
        return reading
    key = reading.key or default_key(model)
    if not all(settings.reads_datastore for settings in reading.source_settings):
        require_key(model, key)
    return reading.changed({"key": key, "similarity": reading.similarity or default_similarity(model, "dot")})


def _with_temperatures(reading: Reading, model: Artifact) -> Reading:
    """A reading of known similarity with τ to choose from spelled out where they are not measured in a sample."""
    tried = reading.reader_settings.temperatures
    if not tried or (reading.temperature, reading.similarity) != ("tune", "scaled-dot"):
        return reading
    unit = trained_temperature(model)
    return reading.changed({"temperature": tuple(float(f"{t * unit:.10g}") for t in tried)})
