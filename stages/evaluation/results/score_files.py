"""`scores.zarr` of a report: one row a scored token, in the order of the split."""

from collections.abc import Mapping, Sequence

import numpy as np

from stages.array_files import save_arrays
from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.draft import Draft
from stages.artifacts.output import ShardOutput

COLUMNS = ("target", "logp", "logp_lm", "log_z")
"""Numbers that every scored token has; probes may have more."""


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
