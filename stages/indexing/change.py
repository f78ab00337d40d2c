"""Indexes changed from that of the previous datastore: whether they can be, and whether their lists
still fit.
"""

from collections.abc import Mapping
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.kinds import PREVIOUS
from stages.artifacts.stage import Job
from stages.lineage.indexes import described_keys
from stages.search.change import LearnedLists, can_change, no_longer_fits
from stages.search.config import IndexConfig


def can_become(previous: Artifact, datastore: Artifact) -> bool:
    """Whether the index of the previous datastore can be changed into that of `datastore`."""
    keys = described_keys(datastore)
    config = IndexConfig(**previous.config)
    return can_change(config, keys.dim, keys.dtype, removes=bool(datastore.config["forget"]))


def compared(
    job: Job[IndexConfig], merge: str, recall: Mapping[str, float], error: Mapping[str, float]
) -> dict[str, Any]:
    """Comparison of a changed index with the one whose lists were learned; empty for an index built
    anew.

    Args:
        merge: key of the shard whose record has the evenness of the lists.
        recall: share of the results of exact search that is found, by k.
        error: standard errors of these shares.
    """
    if PREVIOUS not in job.inputs:
        return {}
    datastore = job.inputs["datastore"]
    before = job.inputs[PREVIOUS].metrics
    lists = job.draft.record(merge)
    # The previous index was changed too, or its lists are those that were learned.
    if "learned" in before:
        learned = LearnedLists(**before["learned"])
    else:
        learned = LearnedLists(before["rows"], before.get("recall", {}), lists["imbalance_before"])

    rows = described_keys(datastore).rows
    reason = no_longer_fits(learned, rows, recall, error, lists["imbalance"])
    if reason is not None:
        advice = datastore.advise("build-index", datastore.reference, "--update", "none")
        job.reporter.warning(
            f"The lists of this index were learned of {learned.rows:,} keys, and no longer fit: {reason}. "
            f"Learn new ones: {advice}"
        )
    errors = {"recall_error": dict(error)} if error else {}
    return {**errors, "learned": learned._asdict(), "imbalance": lists["imbalance"]}
