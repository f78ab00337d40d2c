"""Every scored token of two reports with both log-probabilities, as CSV."""

import csv
from collections.abc import Iterator
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.artifacts.durable import replacing
from stages.comparison.comparability import same_tokens
from stages.comparison.settings import ComparisonSettings
from stages.comparison.token_rows import token_rows
from stages.errors import UsageError
from stages.evaluation.figures.places import scored_places
from stages.evaluation.figures.token_scores import open_scores
from stages.reporting import Progress, unheard

TOKENS_AT_ONCE = 1 << 14


def write_token_table(
    path: Path, a: Artifact, b: Artifact, settings: ComparisonSettings, progress: Progress = unheard
) -> int:
    """Write a line a token, in the order of the split; returns how many.

    Columns: `token` (its number in the split), `document`, `position` (in the document), `log_p_a`, `log_p_b`,
    `difference` (log_p_a - log_p_b, so negative where B is better), what probes tell (`NAME_a`, `NAME_b`), and
    `name` (of the document), `before`, `text`, `after`.

    Raises: UsageError if tokens are not the same; as `stages.comparison.compare.compare`; OSError.
    """
    scores_a, scores_b = (open_scores(report, settings.reading) for report in (a, b))
    if not same_tokens(scores_a, scores_b):
        raise UsageError("Tokens of two tokenizers do not line up: there is no table of them (--csv).")
    places = scored_places(scores_a.tokens, scores_a.split, scores_a.counted)

    def lines() -> Iterator[dict[str, Any]]:
        for start in range(0, len(places), TOKENS_AT_ONCE):
            rows = np.arange(start, min(start + TOKENS_AT_ONCE, len(places)))
            yield from token_rows(scores_a, scores_b, rows, places, settings.around)
            progress(start + len(rows), len(places), "tokens written")

    with replacing(path) as file:
        text = TextIOWrapper(file, "utf-8", newline="")
        written = lines()
        first = next(written)
        writer = csv.DictWriter(text, list(first))
        writer.writeheader()
        writer.writerows(chain([first], written))
        text.detach()
    return len(places)
