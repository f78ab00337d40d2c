"""States on disk, a file a shard: of a large one, only what the state before it does not hold."""

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from stages.artifacts.output import ShardOutput

LARGE = 1 << 20
"""Bytes from which on a tensor is written as a difference."""
LONGEST = 16
"""Files that reading one state may take; beyond these it is written whole."""


@dataclass(frozen=True)
class _Header:
    """Header of a state file."""

    before: str | None
    """The shard whose state its tensors begin with, in part; None: all of them are whole."""
    kept: dict[str, int]
    """By tensor, the latest entries of the state before that it begins with."""
    own: dict[str, int]
    """By tensor, the entries behind them, which stand in the file."""


class StateFiles:
    """Writes, reads and discards the states of shards. Entries of a tensor are along its last axis but one.

    Of a memory of 65,536 positions, to which a shard adds 8,192, only these 8,192 are written. The other 57,344 are the
    last entries of the state before it. Comparing the two states shows that, so no layer has to say it.
    """

    def __init__(self, folder: Path) -> None:
        """`folder`: the draft's."""
        self._folder = folder
        self._headers: dict[str, _Header] = {}
        self._idle: set[str] = set()
        self._discarded: set[str] = set()
        self._latest: tuple[str, dict[str, Tensor]] | None = None
        # All that an earlier run left count as needed, also those that this one never reads.
        for path in folder.glob(_file("*")):
            with suppress(SafetensorError):  # one that was being written when that run ended
                self._header(path.stem.removeprefix("state-"))

    def write(self, output: ShardOutput, shard: str, tensors: dict[str, Tensor]) -> None:
        """Write the state past a shard, on the CPU."""
        before, kept = None, dict[str, int]()
        if self._latest is not None and len(self._needed(self._latest[0])) < LONGEST:
            before, earlier = self._latest
            kept = {name: n for name, t in tensors.items() if (n := _overlap(earlier.get(name), t))}
        own = {
            name: t.narrow(-2, kept[name], t.shape[-2] - kept[name]) if name in kept else t
            for name, t in tensors.items()
        }
        header = {"before": before, "kept": json.dumps(kept)} if before is not None and kept else None
        output.add(_file(shard)).write_bytes(save({name: t.contiguous() for name, t in own.items()}, header))
        self._headers[shard] = _Header(before if kept else None, kept, {n: _entries(t.shape) for n, t in own.items()})
        self._latest = shard, tensors

    def read(self, shard: str) -> dict[str, Tensor] | None:
        """The state past a shard, on the CPU; None where it, or a file that it needs, is not there."""
        header = self._header(shard)
        if header is None:
            return None
        with safe_open(self._folder / _file(shard), "pt") as file:
            tensors = {name: file.get_tensor(name) for name in header.own}
        for name, count in header.kept.items():
            earlier = self._last(header.before, name, count)
            if earlier is None:
                return None
            tensors[name] = torch.cat((earlier, tensors[name]), -2)
        self._latest = shard, tensors
        return tensors

    def discard(self, output: ShardOutput, shard: str) -> None:
        """Let a state go that no run begins with any more, and those before it, once `output` is committed.

        A file that a later state needs goes with the first commit that no longer does.
        """
        at: str | None = shard
        while at is not None and (header := self._header(at)) is not None:
            self._idle.add(at)
            at = header.before
        needed = set[str]().union(*map(self._needed, self._headers.keys() - self._idle))
        for idle in sorted(self._idle - needed):
            output.discard(_file(idle))
            self._idle.remove(idle)
            del self._headers[idle]
            self._discarded.add(idle)

    def _last(self, shard: str | None, name: str, count: int) -> Tensor | None:
        """The last `count` entries of a tensor of the state past a shard."""
        pieces = list[Tensor]()
        while count:
            header = None if shard is None else self._header(shard)
            if shard is None or header is None:
                return None
            with safe_open(self._folder / _file(shard), "pt") as file:
                own = file.get_tensor(name)
            taken = min(count, own.shape[-2])
            pieces.insert(0, own.narrow(-2, own.shape[-2] - taken, taken))
            count, shard = count - taken, header.before
        return torch.cat(pieces, -2)

    def _needed(self, shard: str) -> set[str]:
        """The shards whose files reading a state takes, its own among them."""
        header, needed = self._header(shard), {shard}
        for name, count in (header.kept if header is not None else {}).items():
            at = header.before if header is not None else None
            while count > 0 and at is not None and (earlier := self._header(at)) is not None:
                needed.add(at)
                count, at = count - earlier.own[name], earlier.before
        return needed

    def _header(self, shard: str) -> _Header | None:
        if shard not in self._headers:
            path = self._folder / _file(shard)
            if shard in self._discarded or not path.exists():
                return None
            with safe_open(path, "pt") as file:
                said = file.metadata() or {}
                own = {name: _entries(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            self._headers[shard] = _Header(said.get("before"), json.loads(said.get("kept", "{}")), own)
        return self._headers[shard]


def _overlap(old: Tensor | None, new: Tensor) -> int:
    """The largest number of last entries of an earlier tensor with which a large one begins; 0: there are none."""
    if old is None or new.nbytes < LARGE or new.dim() < 2 or 0 in new.shape or old.dtype != new.dtype:
        return 0
    if (old.shape[:-2], old.shape[-1]) != (new.shape[:-2], new.shape[-1]):
        return 0
    first = (old == new.narrow(-2, 0, 1)).movedim(-2, 0).flatten(1).all(1).nonzero().flatten().tolist()
    for place in first[:LONGEST]:
        count = old.shape[-2] - place
        if count <= new.shape[-2] and torch.equal(old.narrow(-2, place, count), new.narrow(-2, 0, count)):
            return int(count)
    return 0


def _entries(shape: "list[int] | torch.Size") -> int:
    return int(shape[-2]) if len(shape) > 1 else 0


def _file(shard: str) -> str:
    return f"scratch/state-{shard}.safetensors"
