"""Settings of an index that is changed, or that leaves rows out. Free of FAISS."""

from collections.abc import Mapping
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.stage import Inputs
from stages.lineage.indexes import LEARNED, NEIGHBORS
from stages.search.config import IndexConfig, check_probe

PART_BYTES = 64 << 20
"""Bytes of stored keys in one part."""


def why_not(previous: Artifact, datastore: Artifact) -> str:
    """Reason why it cannot, and what to do."""
    if previous.config["index"] == "flat":
        return "a flat index is a copy of the keys: leave --update out"
    if datastore.config["forget"]:
        return "what it learned of forgotten keys cannot be taken out of it: leave --update out, and it is built anew"
    return "its kind does not take more keys: leave --update out, and it is built anew"


def settings_as_before(config: IndexConfig, before: Mapping[str, Any]) -> IndexConfig:
    """Settings of a changed index: learned parts stay; the number of probed lists, and of queries
    to measure, may change."""
    probe = before["probe"] if config.probe in ("auto", None) else config.probe
    assert isinstance(probe, int)
    check_probe(probe, before["lists"], before["index"])
    learned = {name: before[name] for name in ("index", *LEARNED)}
    return config.model_copy(update={**learned, "probe": probe})


def leaves_out(config: IndexConfig, inputs: Inputs) -> bool:
    """Whether an index holds only some of the rows, which stand for the others."""
    return config.keep < 1 or NEIGHBORS in inputs
