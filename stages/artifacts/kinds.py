"""The kinds of artifacts: the command that makes each, and the format that this version writes and reads."""

from typing import NamedTuple


class Kind(NamedTuple):
    """One kind of artifact."""

    command: str
    format_version: int


KINDS = {
    "tokens": Kind("tokenize", 1),
    "model": Kind("train", 1),
    "datastore": Kind("build-datastore", 1),
    "index": Kind("build-index", 1),
    "neighbors": Kind("precompute-neighbors", 1),
    "batches": Kind("pack-batches", 1),
    "report": Kind("evaluate", 2),
}
