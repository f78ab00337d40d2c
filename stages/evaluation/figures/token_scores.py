"""The token scores of a report: `scores.zarr` as shards write it, one row a scored token, and as it is read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from stages.array_files import save_arrays
from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.artifact import Artifact
from stages.artifacts.draft import Draft
from stages.artifacts.output import ShardOutput
from stages.errors import ArtifactError
from stages.evaluation.fields import SHUT

Reading = Literal["final", "model"]
GROUP = "scores.zarr"
ARRAYS = {"final": "logp", "model": "logp_lm"}
COLUMNS = ("target", "logp", "logp_lm", "log_z")
"""Numbers that every scored token has; probes may have more."""
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


class ScoreFiles:
    """The arrays that shards of a split write their tokens' scores to.

    Where every token is scored, a shard of the split is one of the arrays. Where few are, shards
    leave theirs in scratch files, and the arrays are written at the end, in one piece.
    """

    def __init__(self, tokens: int, readings: int, tokens_per_shard: int | None, probed: Sequence[str] = ()) -> None:
        """Lay out the arrays.

        Args:
            tokens: that are scored.
            readings: memory readings of the row that is kept.
            tokens_per_shard: of the split's shards; None: few tokens are scored.
            probed: columns of probes.
        """
        # tokens that count may be few in each shard of work: then no shard is one of Zarr's
        self._whole = tokens_per_shard is None
        rows = tokens if tokens_per_shard is None else tokens_per_shard
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys((*COLUMNS, *probed), (tokens,))
        if readings:
            shapes["logp_memory"] = (tokens, readings)
        self.arrays = {
            name: ArrayLayout(f"scores.zarr/{name}", shape, np.int32 if name == "target" else np.float32, rows)
            for name, shape in shapes.items()
        }

    def write(self, output: ShardOutput, number: int, scores: Mapping[str, np.ndarray]) -> None:
        """Let shard `number` write its scores."""
        for name, array in self.arrays.items():
            if self._whole:
                save_arrays(output.add(_part(name, number)), scores[name])
            else:
                output.write(array, number, scores[name])

    def finish(self, draft: Draft, numbers: Sequence[int]) -> None:
        """Put together what all shards left apart."""
        if not self._whole:
            return
        for name, array in self.arrays.items():
            parts = [np.load(draft.path / _part(name, number)) for number in numbers]
            draft.write(array, 0, np.concatenate(parts))


def _part(name: str, number: int) -> str:
    return f"scratch/scores-{name}-{number:06d}.npy"
