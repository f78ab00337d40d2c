"""`scores.zarr` of a report: one row a scored token, in the order of the split."""

from collections.abc import Mapping, Sequence

import numpy as np

from stages.artifacts.draft import Draft, DraftArray

DTYPES = {
    **{"target": np.int32, "logp": np.float32, "logp_lm": np.float32, "log_z": np.float32},
    **{"gate": np.float32, "logp_memory": np.float32},
}
ROW_BYTES = 4


class ScoreFiles:
    """The arrays that shards of a split write their tokens' scores to.

    Where every token is scored, a shard of the split is one of the arrays. Where few are, shards
    leave theirs in scratch files, and the arrays are written at the end, in one piece.
    """

    def __init__(
        self, draft: Draft, tokens: int, readings: int, tokens_per_shard: int | None, *, gated: bool = False
    ) -> None:
        """Make, or open, the arrays.

        Args:
            tokens: that are scored.
            readings: memory readings of the row that is kept.
            tokens_per_shard: of the split's shards; None: few tokens are scored.
            gated: whether the model has a gate.
        """
        self._draft, self._whole = draft, tokens_per_shard is None
        rows = tokens if tokens_per_shard is None else tokens_per_shard
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("target", "logp", "logp_lm", "log_z"), (tokens,))
        if gated:
            shapes["gate"] = (tokens,)
        if readings:
            shapes["logp_memory"] = (tokens, readings)
        self._arrays: dict[str, DraftArray] = {
            name: draft.array(f"scores.zarr/{name}", shape, DTYPES[name], rows) for name, shape in shapes.items()
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
