"""Reports of several seeds, taken together."""

from types import SimpleNamespace
from typing import Any

import pytest

from stages.errors import ArtifactError
from stages.evaluation.figures import seed_groups


def test_a_row_without_a_finite_perplexity_has_no_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seed_groups, "seed_of", lambda report: report.seed)
    rows = [{"row": "plain", "perplexity": None}]
    reports: Any = [
        SimpleNamespace(seed=seed, reference="report/a", metrics={"rows": rows}) for seed in (0, 1)
    ]
    with pytest.raises(ArtifactError, match="report/a"):
        seed_groups._row("plain", reports, reports, 0.95)
