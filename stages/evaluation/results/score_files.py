"""`scores.zarr` of a report: one row a scored token, in the order of the split."""

from collections.abc import Mapping, Sequence

import numpy as np

from stages.artifacts.draft import Draft, DraftArray

COLUMNS = ("target", "logp", "logp_lm", "log_z")
"""Numbers that every scored token has; probes may have more."""
ROW_BYTES = 4


class ScoreFiles:
    """The arrays that shards of a split write their tokens' scores to.

    Where every token is scored, a shard of the split is one of the arrays. Where few are, shards
    leave theirs in scratch files, and the arrays are written at the end, in one piece.
    """

    def __init__(
        self, draft: Draft, tokens: int, readings: int, tokens_per_shard: int | None, probed: Sequence[str] = ()
    ) -> None:
        """Make, or open, the arrays.

        Args:
            tokens: that are scored.
            readings: memory readings of the row that is kept.
            tokens_per_shard: of the split's shards; None: few tokens are scored.
            probed: columns of probes.
        """
        self._draft, self._whole = draft, tokens_per_shard is None
        rows = tokens if tokens_per_shard is None else tokens_per_shard
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys((*COLUMNS, *probed), (tokens,))
        if readings:
            shapes["logp_memory"] = (tokens, readings)
        self._arrays: dict[str, DraftArray] = {
            name: draft.array(f"scores.zarr/{name}", shape, np.int32 if name == "target" else np.float32, rows)
            for name, shape in shapes.items()
        }

    @property
    def output_bytes(self) -> int:
        """Size of all arrays."""
        return sum(ROW_BYTES * int(np.prod(array.array.shape)) for array in self._arrays.values())

    def write(self, number: int, scores: Mapping[str, np.ndarray]) -> None:
        """Let the unit under way write the scores of shard `number`."""
        for name, array in self._arrays.items():
            if self._whole:
                np.save(self._draft.add(_part(name, number)), scores[name])
            else:
                array.write(number, scores[name])

    def finish(self, numbers: Sequence[int]) -> None:
        """Put together what all shards left apart."""
        if not self._whole:
            return
        for name, array in self._arrays.items():
            parts = [np.load(self._draft.path / _part(name, number)) for number in numbers]
            array.write(0, np.concatenate(parts))


def _part(name: str, number: int) -> str:
    return f"scratch/scores-{name}-{number:06d}.npy"
