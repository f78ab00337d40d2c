"""Translations of two reports, compared by BLEU."""

import json
from dataclasses import asdict
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.comparison.settings import ComparisonSettings
from stages.evaluation.config import BleuSettings
from stages.evaluation.figures.bleu import bleu_difference, require_sacrebleu
from stages.evaluation.figures.translated import TRANSLATIONS


def compare_translations(a: Artifact, b: Artifact, settings: ComparisonSettings) -> dict[str, Any] | None:
    """BLEU of the compared rows of two reports, with a paired bootstrap over sentences; JSON.

    Returns: None where one has no translations, or they are of other sentences, or counted otherwise.
    """
    if not all(TRANSLATIONS in report.manifest.files for report in (a, b)):
        return None
    configs = (a.config, b.config)
    how = [BleuSettings(lowercase=c.get("bleu_lowercase", False), tokenize=c.get("bleu_tokenize")) for c in configs]
    lines = [_lines(report) for report in (a, b)]
    pairs = [[(line["source"], line["reference"]) for line in some] for some in lines]
    if pairs[0] != pairs[1] or how[0] != how[1]:
        return None
    require_sacrebleu(how[0])
    rows = [list(some[0]["rows"])[: 1 if settings.reading == "model" else 2][-1] for some in lines]
    first, second = ([line["rows"][row]["text"] for line in some] for some, row in zip(lines, rows, strict=True))
    found = bleu_difference(first, second, [reference for _, reference in pairs[0]], how[0], settings.bootstrap)
    return {"rows": rows, **asdict(found), "difference": found.difference}


def _lines(report: Artifact) -> list[dict[str, Any]]:
    """The sentences of a report; `str.splitlines` would cut at characters that stand in a text, such as U+2028."""
    with report.file(TRANSLATIONS).open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]
