"""How much memory an update of a Memformer takes, by segments T: through time, with checkpoints, by
memory replay.

    python -m tests.benchmarks.bench_replay [--width 128 --slots 64 --length 64 --timesteps 2 4 \\
        8 16 32]

One stream in batches of four. `through time` keeps all activations; `checkpoints` keeps what each
segment begins with, and computes a segment anew in the backward pass (torch.utils.checkpoint around
segment and loss); `replay` is `stages.training.replay`. The peak is that of the bytes of all
tensors that are alive at once, counted operation by operation, less weights and gradients;
processor time is that of an update, in turn. Gradients are compared, too.
"""

import argparse
import json
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from stages.examples.examples import Batch
from stages.methods.method import Carried, Loss, UpdateBatch
from stages.models.language_model import LanguageModel, new_model
from stages.training.loop import plain_step
from stages.training.replay import replay_step

ROWS, TYPES = 4, 257


class Alive(TorchDispatchMode):
    """Counts bytes of tensors that operations make, from when they are made to when nobody holds
    their storage.

    `there`: tensors from before, which are not counted where an operation changes and returns them.
    """

    def __init__(self, there: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known = {tensor.untyped_storage()._cdata for tensor in there}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor):
                parts = (tensor._indices(), tensor._values()) if tensor.is_sparse else (tensor,)
                for part in parts:
                    self._watch(part.untyped_storage())
        return made

    def _watch(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return
        self._known.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size


class OneUpdate:
    """An update of segments that follow each other, as the loop would make it."""

    keeps_graph = True

    def __init__(
        self, model: LanguageModel, batches: list[Batch], checkpoints: bool = False
    ) -> None:
        self.model, self._batches, self.accumulate = model, batches, len(batches)
        self._checkpoints = checkpoints
        self.carried = Carried()
        self.optimizer: Any = None

    def batches(self) -> Iterator[UpdateBatch]:
        for batch in self._batches:
            yield UpdateBatch(batch, self.carried, self.accumulate)

    def advance(self, part: UpdateBatch) -> None:
        with torch.no_grad():
            self.carried = Carried(self.model.advance(part.batch, part.before.state))

    def loss_from(self, batch: Batch, before: Carried) -> Loss:
        def timestep(state: Any) -> Any:
            encoding = self.model.read(batch, state)
            return self.model.loss(
                encoding.hidden.flatten(0, 1), batch.targets.flatten()
            ), encoding.state

        if not self._checkpoints:
            loss, state = timestep(before.state)
        else:
            loss, state = checkpoint(timestep, before.state, use_reentrant=False)  # type: ignore[no-untyped-call]
        return Loss(loss, Carried(state))

    def loss(self, part: UpdateBatch) -> Tensor:
        loss = self.loss_from(part.batch, part.before)
        self.carried = loss.carried
        return loss.mean

    def backward(self, loss: Tensor) -> None:
        loss.backward()

    def change_weights(self) -> None:
        """Keep the gradients, to be compared."""


WAYS: dict[str, tuple[Callable[[Any], Tensor], bool]] = {
    "through time": (plain_step, False),
    "checkpoints": (plain_step, True),
    "replay": (replay_step, False),
}


def measured(
    model: LanguageModel, batches: list[Batch], way: str
) -> tuple[int, float, list[Tensor]]:
    """Peak bytes, seconds of the processor, gradients."""
    step, checkpoints = WAYS[way]
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    started = time.process_time()
    step(OneUpdate(model, batches, checkpoints))
    seconds = time.process_time() - started
    gradients = [
        parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None
    ]
    model.zero_grad(set_to_none=False)
    with Alive() as alive:
        step(OneUpdate(model, batches, checkpoints))
    return alive.peak, seconds, gradients


def rows(sizes: dict[str, int], timesteps: list[int]) -> Iterator[dict[str, object]]:
    torch.manual_seed(0)
    length = sizes["length"]
    shape = {
        "width": sizes["width"],
        "ffn_width": 4 * sizes["width"],
        "slots": sizes["slots"],
        "dropout": 0.0,
    }
    model = new_model(TYPES, length, backbone="memformer", **shape).train()
    for number in timesteps:
        stream = torch.randint(TYPES, (ROWS, number * length + 1))
        pieces = [
            stream[:, start : start + length + 1] for start in range(0, number * length, length)
        ]
        batches = [
            Batch(inputs=piece[:, :-1], targets=piece[:, 1:], places=np.zeros(0))
            for piece in pieces
        ]
        found = {way: measured(model, batches, way) for way in WAYS}
        want = found["through time"][2]
        for way, (peak, seconds, gradients) in found.items():
            apart = max(
                float((a - b).abs().max() / b.abs().max())
                for a, b in zip(gradients, want, strict=True)
            )
            figures = {"MB": round(peak / 2**20, 2), "seconds": round(seconds, 3), "apart": apart}
            yield {"T": number, "way": way, **figures}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, size in (("width", 128), ("slots", 64), ("length", 64)):
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--timesteps", type=int, nargs="+", default=[2, 4, 8, 16, 32])
    given = vars(parser.parse_args())
    timesteps = given.pop("timesteps")
    torch.set_num_threads(1)
    for row in rows(given, timesteps):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
