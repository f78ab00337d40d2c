"""The kinds of artifacts: the command that makes each, and the format that this version writes and reads."""

from collections.abc import Container
from typing import NamedTuple


class Kind(NamedTuple):
    """One kind of artifact."""

    command: str
    format_version: int


KINDS = {
    "tokens": Kind("tokenize", 2),
    "model": Kind("train", 1),
    "datastore": Kind("build-datastore", 1),
    "index": Kind("build-index", 2),
    "neighbors": Kind("precompute-neighbors", 1),
    "batches": Kind("pack-batches", 1),
    "report": Kind("evaluate", 4),
}

PREVIOUS, ADDED = "previous", "added"
USED_UP = frozenset({PREVIOUS, ADDED})
"""Roles of inputs of which what was made from them holds all it needs: they may go, and nothing keeps them."""
UPDATES = {"datastore": "update-datastore"}
"""Commands that make an artifact by changing another one of its kind, by kind."""


def command_of(kind: str, roles: Container[str]) -> str:
    """The command that makes an artifact of a kind with inputs in these roles."""
    return UPDATES.get(kind, KINDS[kind].command) if PREVIOUS in roles else KINDS[kind].command
