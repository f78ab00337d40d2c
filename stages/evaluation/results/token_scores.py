"""The token scores of a report."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.errors import ArtifactError
from stages.evaluation.results.row_names import SHUT
from stages.evaluation.results.score_files import COLUMNS

Reading = Literal["final", "model"]
GROUP = "scores.zarr"
ARRAYS = {"final": "logp", "model": "logp_lm"}
KNOWN = {*COLUMNS, "logp_memory"}
"""Arrays of every report; all others are columns of probes."""


@dataclass(frozen=True)
class TokenScores:
    """Scores of the n tokens of a split that count, each array read as it is sliced."""

    report: Artifact
    tokens: Artifact
    reading: Reading
    row: str
    """The row of the report that the probabilities belong to."""
    targets: Any
    """int32 [n]."""
    log_p: Any
    """float32 [n], natural log."""
    probed: Mapping[str, Any]
    """float32 [n] each, by name: what probes say of every token."""

    @property
    def split(self) -> str:
        return str(self.report.config["split"])

    @property
    def counted(self) -> str:
        """Which tokens count: `all` or `last-word`."""
        return str(self.report.config["score"])

    @property
    def unknown_rate(self) -> float:
        """Share of the split's tokens that are `<unk>`."""
        return float(self.tokens.metrics["splits"][self.split]["unknown_rate"])

    def __len__(self) -> int:
        return int(self.targets.shape[0])

    def nll(self, start: int, stop: int) -> np.ndarray:
        """Negative log-likelihoods of scored tokens [start, stop), nats, float64.

        Raises: ArtifactError if one is not finite, so that no mean exists.
        """
        nll = -np.asarray(self.log_p[start:stop], np.float64)
        infinite = np.flatnonzero(~np.isfinite(nll))
        if len(infinite):
            raise ArtifactError(
                f"{self.report.reference} gives the scored token {start + int(infinite[0])} of {self.split} no "
                f"probability (row {self.row}), so its mean is not finite: there is nothing to compare. Read it "
                "with another --reading, or evaluate with other settings."
            )
        return nll


def has_scores(report: Artifact) -> bool:
    """Whether a report was made with `--save-token-scores`."""
    return f"{GROUP}/zarr.json" in report.manifest.files


def open_scores(report: Artifact, reading: Reading) -> TokenScores:
    """The scores of a report's first memory row (`final`), or of the model alone.

    Raises: ArtifactError if the report was made without them.
    """
    if not has_scores(report):
        raise ArtifactError(
            f"{report.reference} has no token scores; make a report that has, with --save-token-scores."
        )
    group: Any = report.zarr(GROUP)
    rows = [row["row"] for row in report.metrics["rows"] if row["row"] != SHUT]
    return TokenScores(
        report,
        report.input("tokens"),
        reading,
        rows[1] if reading == "final" and len(rows) > 1 else rows[0],
        group["target"],
        group[ARRAYS[reading]],
        {name: group[name] for name in sorted(set(group.array_keys()) - KNOWN)},
    )
