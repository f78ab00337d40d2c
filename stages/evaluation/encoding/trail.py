"""Where the history of a shard comes from: the shard before it, or what that left on disk."""

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from stages.artifacts.draft import Draft
from stages.evaluation.encoding.history import History
from stages.models.language_model import State

STATE, ENCODER_STATE = "state/", "encoder-state/"


class Trail:
    """Hands the history from shard to shard, and keeps on disk the states that a run that goes on begins with.

    Keys of earlier positions are not kept: the tokens they belong to are read again.
    """

    def __init__(self, draft: Draft, device: torch.device) -> None:
        self._draft, self._device = draft, device
        self._latest: tuple[str, History] | None = None

    def after(self, shard: str) -> History | None:
        """The history behind a shard, if it was the latest of this run."""
        return self._latest[1] if self._latest is not None and self._latest[0] == shard else None

    def keep(self, shard: str, after: History) -> None:
        """Note the history behind a shard; its states, if there are any, belong to the unit under way."""
        self._latest = shard, after
        tensors = {f"{STATE}{i}": part for i, part in enumerate(after.state or ())}
        tensors |= {f"{ENCODER_STATE}{i}": part for i, part in enumerate(after.encoder_state or ())}
        if tensors:
            stored = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
            self._draft.add(_file(shard)).write_bytes(save(stored))

    def before(self, shard: str | None, start: int) -> History:
        """The history of token `start`, behind a shard; of an earlier run's, without its positions."""
        latest = None if shard is None else self.after(shard)
        return self.restart(shard, start) if latest is None else latest

    def restart(self, shard: str | None, start: int) -> History:
        """A history of token `start` that has the states behind a shard, which ended there, and no positions.

        Args:
            shard: None: where a split starts.
        """
        path = None if shard is None else self._draft.path / _file(shard)
        tensors = load_file(path, device=str(self._device)) if path is not None and path.exists() else {}
        return History(start, _state(tensors, STATE), _state(tensors, ENCODER_STATE))


def _state(tensors: dict[str, Tensor], prefix: str) -> State:
    number = sum(name.startswith(prefix) for name in tensors)
    return tuple(tensors[f"{prefix}{i}"] for i in range(number)) or None


def _file(shard: str) -> str:
    return f"scratch/state-{shard}.safetensors"
