"""The keys of a forward batch that each of its positions reads.

Shapes: N queries, K keys; key j belongs to position j of the batch, and `own` is the key of a
query's own position.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int64
from torch import Tensor


@dataclass(frozen=True)
class Visible:
    """Bounds of the keys that each query reads: [start, stop) without the hole [hole_start,
    hole_stop); int64 [N].

    The hole is empty if `hole_start` equals `hole_stop`. A query reads nothing if `stop` is not
    above `start`.
    """

    start: Int64[Tensor, " N"]
    stop: Int64[Tensor, " N"]
    hole_start: Int64[Tensor, " N"]
    hole_stop: Int64[Tensor, " N"]

    def __len__(self) -> int:
        return len(self.start)

    def __getitem__(self, rows: slice) -> "Visible":
        """Select some of the queries."""
        return Visible(
            self.start[rows], self.stop[rows], self.hole_start[rows], self.hole_stop[rows]
        )

    def to(self, device: torch.device | str) -> "Visible":
        """Move the bounds to a device."""
        return Visible(*(bound.to(device) for bound in self._bounds))

    def within(self, first: Int64[Tensor, " N"], stop: Int64[Tensor, " N"]) -> "Visible":
        """Restrict each query's range to the keys [first, stop); int64 [N] each."""
        return Visible(
            torch.maximum(self.start, first),
            torch.minimum(self.stop, stop),
            self.hole_start,
            self.hole_stop,
        )

    def hides(self, keys: slice) -> Bool[Tensor, "N {keys.stop-keys.start}"]:
        """Mask of the keys [keys.start, keys.stop) that each query does not read; bool [N, keys].

        Takes 2 bytes for each cell during the computation. Bounds are compared as int32, which is
        faster.
        """
        num_keys = keys.stop - keys.start
        key = torch.arange(num_keys, device=self.start.device, dtype=torch.int32)

        # Bounds [N, 1] counted from the first of these keys.
        relative = [bound.sub(keys.start).clamp_(0, num_keys) for bound in self._bounds]
        start, stop, hole_start, hole_stop = (bound.int()[:, None] for bound in relative)
        in_hole = (key >= hole_start).logical_and_(key < hole_stop)
        return in_hole.logical_or_(key < start).logical_or_(key >= stop)

    def counts(
        self, starts: Int64[Tensor, " B"], stops: Int64[Tensor, " B"]
    ) -> Int64[Tensor, "N B"]:
        """Number of keys that each query reads in each of B ranges, int64 [N, B]; starts, stops
        int64 [B].

        Two positions see keys 0 to 3 without their own. The ranges are [0, 2) and [2, 4):

        >>> n = torch.tensor
        >>> Visible(n([0, 0]), n([4, 4]), n([0, 3]), n([1, 4])).counts(n([0, 2]), n([2, 4])).tolist()
        [[1, 2], [2, 1]]
        """
        start, stop, hole_start, hole_stop = (bound[:, None] for bound in self._bounds)
        # Only the part of the hole inside of [start, stop) hides keys.
        hidden_start = torch.maximum(start, hole_start)
        hidden_stop = torch.minimum(stop, hole_stop)
        between = _shared(start, stop, starts, stops)
        hidden = _shared(hidden_start, hidden_stop, starts, stops)
        return between - hidden

    def cuts(self, keys: int) -> list[int]:
        """Increasing keys; between two of them, rows that all have the same bounds read every key
        or none.
        """
        bounds = torch.stack(self._bounds).clamp(0, keys)  # [4, N]
        # Where the rows differ in a bound, it has two cuts: the least and the largest of it.
        lowest = bounds.amin(1).tolist()
        highest = bounds.amax(1).tolist()
        return sorted({*lowest, *highest})

    @property
    def _bounds(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.start, self.stop, self.hole_start, self.hole_stop


def earlier(start: Int64[Tensor, " N"], position: Int64[Tensor, " N"]) -> Visible:
    """The keys [start, position): local memory if `start` is the start of the segment, long memory
    if it is earlier.

    Args: int64 [N] each.
    Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674), section 3.2.

    Two segments of two positions; each position reads the earlier ones of its segment (1: hidden):

    >>> earlier(torch.tensor([0, 0, 2, 2]), torch.arange(4)).hides(slice(0, 4)).int()
    tensor([[1, 1, 1, 1],
            [0, 1, 1, 1],
            [1, 1, 1, 1],
            [1, 1, 0, 1]], dtype=torch.int32)
    """
    return Visible(start, position, start, start)


def others(
    segment_starts: Int64[Tensor, " N"],
    segment_stops: Int64[Tensor, " N"],
    position: Int64[Tensor, " N"],
    keys: int,
    local: bool | Bool[Tensor, " N"],
) -> Visible:
    """All keys outside of the query's own segment; with `local`, also the earlier ones of that
    segment.

    Args:
        segment_starts, segment_stops: bounds of each query's own segment among the keys, int64 [N].
        position: the query's own key, int64 [N].
        keys: K.
        local: one value for all queries, or bool [N].
    Source: Zhong et al. 2022 (TRIME, arXiv:2205.12674), section 4.3.

    The segments of `earlier`; each position reads the other segment and, with `local`, the past of
    its own:

    >>> bounds = torch.tensor([0, 0, 2, 2]), torch.tensor([2, 2, 4, 4])
    >>> others(*bounds, position=torch.arange(4), keys=4, local=True).hides(slice(0, 4)).int()
    tensor([[1, 1, 0, 0],
            [0, 1, 0, 0],
            [0, 0, 1, 1],
            [0, 0, 0, 1]], dtype=torch.int32)
    """
    # With `local` the hole begins at the query's own key, which the query must not read either.
    is_local = torch.as_tensor(local, device=position.device)
    hole_start = torch.where(is_local, position, segment_starts)
    return Visible(
        start=torch.zeros_like(position),
        stop=torch.full_like(position, keys),
        hole_start=hole_start,
        hole_stop=segment_stops,
    )


def _shared(start: Tensor, stop: Tensor, starts: Tensor, stops: Tensor) -> Tensor:
    """Length of the intersection of two ranges; shapes broadcast."""
    length = torch.minimum(stop, stops) - torch.maximum(start, starts)
    return length.clamp_(min=0)
