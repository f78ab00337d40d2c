"""Means over seeds, where reports on a page differ by the seed of training alone."""

from collections.abc import Sequence
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.errors import ArtifactError
from stages.evaluation.results.seed_groups import compare_groups, seed_groups, text_of

CONFIDENCE = 0.95


def seed_tables(reports: Sequence[Artifact]) -> list[dict[str, Any]]:
    """What `compare_groups` finds on each text; none where no model was trained with several seeds."""
    texts: dict[tuple[str, str, str], list[Artifact]] = {}
    try:
        for report in reports:
            texts.setdefault(text_of(report), []).append(report)
        return [
            compare_groups(held, CONFIDENCE)
            for held in texts.values()
            if any(len(group) > 1 for group in seed_groups(held))
        ]
    except ArtifactError:  # models or tokens are gone: the page says so, and shows what is left
        return []
