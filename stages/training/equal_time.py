"""Updates that take as long as a memory took. Free of torch."""

from stages.artifacts.artifact import Artifact
from stages.errors import UsageError
from stages.lineage.making import MEMORY, parts
from stages.metrics import FORWARDS


def memory_seconds(report: Artifact) -> float:
    """Seconds that a report took, with the datastores, indexes and neighbours that it reads."""
    made = {part.reference: part for part in parts(report, MEMORY)}
    return report.manifest.seconds + sum(part.manifest.seconds for part in made.values())


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
    context = report.config["context"]
    stride = report.config["stride"]
    forward = speed * (context / stride if context and stride else 1.0)
    return max(1, int(memory_seconds(report) * forward / FORWARDS / update_tokens))
