"""The token scores of a report."""

import shlex
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.artifacts.artifact import Artifact
from stages.comparison.settings import Reading
from stages.errors import ArtifactError

GROUP = "scores.zarr"
ARRAYS = {"final": "logp", "model": "logp_lm"}
NAMED = ("tune_split", "context", "stride", "mem_length", "gate_k", "score", "reset")
"""Settings of an evaluation that say what is read and what counts, and stand in options of their names."""


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
    gate: Any | None
    """float32 [n], means over dimensions; None where the model has none."""

    @property
    def split(self) -> str:
        return str(self.report.config["split"])

    @property
    def counted(self) -> str:
        """Which tokens count: `all` or `last-word`."""
        return str(self.report.config["score"])

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


def open_scores(report: Artifact, reading: Reading) -> TokenScores:
    """The scores of a report's first memory row (`final`), or of the model alone.

    Raises: ArtifactError if the report was made without them.
    """
    if f"{GROUP}/zarr.json" not in report.manifest.files:
        raise ArtifactError(
            f"{report.reference} has no token scores; make a report that has: {evaluation_command(report)}"
        )
    group: Any = report.zarr(GROUP)
    rows = [row["row"] for row in report.metrics["rows"]]
    return TokenScores(
        report,
        report.input("tokens"),
        reading,
        rows[1] if reading == "final" and len(rows) > 1 else rows[0],
        group["target"],
        group[ARRAYS[reading]],
        group.get("gate"),
    )


def evaluation_command(report: Artifact) -> str:
    """The command that makes a report again, with token scores."""
    inputs, config = report.manifest.inputs, report.config
    read = {role: f"{record.kind}/{record.id}" for role, record in inputs.items()}
    memory = next((role for role in ("neighbors", "index") if role in read), None)
    named = {"tokens": read["tokens"], "split": config["split"]}
    if "gate_neighbors" in read:
        named["neighbors"] = read["gate_neighbors"]
    own = memory is not None and inputs["encoder"] == inputs["model"]
    if memory is not None and not own:
        named[memory] = read[memory]
    named |= {name: _option(config[name]) for name in NAMED if config.get(name) is not None}
    words = ["memlm", "evaluate", read[memory] if memory is not None and own else read["model"]]
    words += [word for name, value in named.items() for word in (f"--{name.replace('_', '-')}", value)]
    words += [word for reading in config["memory"] or ("none",) for word in ("--memory", reading)]
    return shlex.join([*words, "--save-token-scores"])


def _option(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
