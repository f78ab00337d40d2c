"""The journals of training of the models that were read."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from stages.charts.training import Journal
from stages.errors import ArtifactError
from stages.pages.lineage import Member

JOURNAL = "training.jsonl"


def read_journals(members: Sequence[Member]) -> list[Journal]:
    """Of every model whose `training.jsonl` is there; one that is alone needs no name."""
    read = [(member, records) for member in members if (records := _records(member))]
    return [Journal("" if len(read) == 1 else member.label, member.reference, records) for member, records in read]


def _records(member: Member) -> Sequence[Mapping[str, Any]]:
    """None where the file is missing or damaged."""
    if member.artifact is None or member.kind != "model":
        return []
    try:
        text = member.artifact.file(JOURNAL).read_text("utf-8")
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ArtifactError, OSError, ValueError):
        return []
