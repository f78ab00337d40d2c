"""Updates that take as long as a memory took. Free of torch."""

from collections.abc import Iterator

from stages.artifacts.artifact import Artifact
from stages.errors import UsageError

FORWARDS = 3.0
"""Time of a token in training, in units of scoring it: the way back takes two ways forth (Kaplan et
al. 2020, arXiv:2001.08361, section 2.1).
"""
MEMORY = ("datastore", "index", "neighbors")
"""Kinds of artifacts that are made for a memory alone."""


def memory_seconds(report: Artifact) -> float:
    """Seconds that a report took, with the datastores, indexes and neighbours that it reads."""
    parts = {part.reference: part for part in _parts(report)}
    return report.manifest.seconds + sum(part.manifest.seconds for part in parts.values())


def updates_of_equal_time(report: Artifact, update_tokens: int) -> int:
    """Number of updates that take about as long as a report and its memory.

    Args:
        update_tokens: tokens that the model reads in an update.
    Raises: UsageError if the report does not say how fast its model read.
    """
    plain = report.metrics["rows"][0]
    speed = plain.get("tokens_per_second")
    if not speed:
        raise UsageError(
            f"--time-of: {report.reference} does not say how fast its model read: give --steps."
        )
    # Windows that overlap read more tokens than they score.
    context, stride = report.config["context"], report.config["stride"]
    forward = speed * (context / stride if context and stride else 1.0)
    return max(1, int(memory_seconds(report) * forward / FORWARDS / update_tokens))


def _parts(artifact: Artifact) -> Iterator[Artifact]:
    """Artifacts that a memory of a report was made of, without its models and texts."""
    for role in artifact.manifest.inputs:
        part = artifact.input(role)
        if part.kind in MEMORY:
            yield part
            yield from _parts(part)
