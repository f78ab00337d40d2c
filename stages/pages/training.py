"""The journals of training of the models that were read."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from stages.charts.training import Journal
from stages.pages.lineage import Member

JOURNAL = "training.jsonl"


def read_journals(members: Sequence[Member]) -> list[Journal]:
    """Read the journal of every model whose `training.jsonl` is there; a single one needs no name."""
    read = [(member, records) for member in members if (records := _records(member))]
    return [Journal("" if len(read) == 1 else member.label, member.reference, records) for member, records in read]


def _records(member: Member) -> Sequence[Mapping[str, Any]]:
    """None of a model whose file is missing or damaged."""
    journal = member.file(JOURNAL) if member.kind == "model" else None
    try:
        text = "" if journal is None else journal.read_text("utf-8")
        records = [json.loads(line) for line in text.splitlines() if line.strip()]
    except (OSError, ValueError, RecursionError):
        return []
    return records if all(isinstance(record, dict) for record in records) else []
