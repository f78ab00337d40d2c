"""Writing and reading of the token scores of a report: `scores.zarr`, with one row for each scored
token.
"""

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
from stages.reports.fields import COMPARED

Reading = Literal["final", "model"]
GROUP = "scores.zarr"
ARRAYS = {"final": "logp", "model": "logp_lm"}
BOOK_COLUMNS = ("passage", "passage_document", "passage_score", "logp_shorter", "logp_plain")
"""Beside an open book: the best passage and its document by their numbers in the book, -1 where
there is none; its score; log p of the rows beside the book.
"""
INTEGERS = frozenset({"target", *BOOK_COLUMNS[:2]})
"""Columns of int32; all others are float32."""
COLUMNS = ("target", "logp", "logp_lm", "log_z")
"""Figures of every scored token; probes may add more."""
KNOWN_COLUMNS = {*COLUMNS, "logp_memory"}
"""Arrays that any report may have; all others are columns of probes."""


@dataclass(frozen=True)
class TokenScores:
    """Scores of the n counted tokens of a split; arrays are read when sliced."""

    report: Artifact
    tokens: Artifact
    reading: Reading
    row: str
    """Name of the row with these probabilities."""
    targets: Any
    """int32 [n]."""
    log_p: Any
    """float32 [n], natural log."""
    probed: Mapping[str, Any]
    """float32 [n] each, by name: columns of probes."""

    @property
    def split(self) -> str:
        return str(self.report.config["split"])

    @property
    def counted(self) -> str:
        """Name of the counted tokens: `all` or `last-word`."""
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
    """Whether a report keeps the scores of its tokens."""
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
    rows = [row["row"] for row in report.metrics["rows"] if row["row"] not in COMPARED]
    return TokenScores(
        report,
        report.input("tokens"),
        reading,
        rows[1] if reading == "final" and len(rows) > 1 else rows[0],
        group["target"],
        group[ARRAYS[reading]],
        {name: group[name] for name in sorted(set(group.array_keys()) - KNOWN_COLUMNS)},
    )


class ScoreFiles:
    """The arrays to which shards of a split write the scores of their tokens.

    If every token is scored, each shard of the split is a shard of the arrays. If few are, shards
    write scratch files, and the arrays are written in one piece at the end.
    """

    def __init__(
        self, tokens: int, readings: int, tokens_per_shard: int | None, probed: Sequence[str] = ()
    ) -> None:
        """Lay out the arrays.

        Args:
            tokens: number of scored tokens.
            readings: number of memory readings of the saved row.
            tokens_per_shard: number of tokens in a shard of the split; None: few tokens are scored.
            probed: columns of probes.
        """
        # shards of work with few counted tokens would be too small as shards of Zarr
        self._whole = tokens_per_shard is None
        rows = tokens if tokens_per_shard is None else tokens_per_shard
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys((*COLUMNS, *probed), (tokens,))
        if readings:
            shapes["logp_memory"] = (tokens, readings)
        self.arrays = {
            name: ArrayLayout(
                f"scores.zarr/{name}", shape, np.int32 if name in INTEGERS else np.float32, rows
            )
            for name, shape in shapes.items()
        }

    def write(self, output: ShardOutput, number: int, scores: Mapping[str, np.ndarray]) -> None:
        """Write the scores of shard `number`."""
        for name, array in self.arrays.items():
            if self._whole:
                save_arrays(output.add(_part(name, number)), scores[name])
            else:
                output.write(array, number, scores[name])

    def finish(self, draft: Draft, numbers: Sequence[int]) -> None:
        """Join the scratch files of all shards, if there are any."""
        if not self._whole:
            return
        for name, array in self.arrays.items():
            parts = [np.load(draft.path / _part(name, number)) for number in numbers]
            draft.write(array, 0, np.concatenate(parts))


def _part(name: str, number: int) -> str:
    return f"scratch/scores-{name}-{number:06d}.npy"
