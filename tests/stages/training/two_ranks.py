"""Small trainings by two ranks, as torchrun starts them: `two_ranks.py RUNS`; prints the models'
references.

Ranks are forks of one process, which has imported what they need.
RUNS is JSON: [case, store, {role: reference of what is learnt from}] of each training, which the
ranks do one after the other. The last is stopped in its middle: its ranks save after every step,
and end without another word behind step STOPPED. Those that are then started print the steps of the
checkpoints that they find, and go on.
"""

import json
import os
import sys
from pathlib import Path

from safetensors import safe_open
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

import tests.stages.small_store  # noqa: F401
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.methods.method import Carried
from stages.train import Train
from stages.training import validate
from stages.training.checkpoint import CHECKPOINT, Saver
from stages.training.config import TrainConfig
from stages.training.journal import Journal, Progress

MODELS = {
    "transformer": {"layers": 1, "width": 8, "heads": 2, "ffn_width": 16, "dropout": 0.0},
    "lstm": {"backbone": "lstm", "width": 8, "dropout": 0.0, "initial_range": 1.0},
}
KEYS = {"name": "product-keys", "heads": 2, "sub_keys": 4, "neighbors": 2}
REMEMBERING = {
    "compressive": {"long_length": 6},
    "memorizing": {"long_length": 12, "neighbors": 3},
}
MODELS["product-keys"] = MODELS["transformer"] | {"feed_forward": KEYS}
MODELS["slots that learn fast"] = MODELS["transformer"] | {
    "feed_forward": KEYS | {"value_lr": 10.0}
}
MODELS["transformer-xl"] = MODELS["transformer"] | {"backbone": "transformer-xl", "mem_length": 12}
MODELS |= {
    name: MODELS["transformer-xl"] | {"mem_length": 8, "attention": {"name": name} | settings}
    for name, settings in REMEMBERING.items()
}
CASES = {
    "lm": ("lm", None, "transformer"),
    "trime-long": ("trime-long", {"consecutive": 2}, "transformer"),
    "trime-long of an lstm": ("trime-long", {}, "lstm"),
    "trime-ext, whose memory is constant": (
        "trime-ext",
        {"local_dropout": 0.5, "groups": 1, "backpropagate": False},
        "transformer",
    ),
    "trime-ext": ("trime-ext", {"local_dropout": 0.5, "groups": 1}, "transformer"),
    "trime-ext in groups": ("trime-ext", {"local_dropout": 0.5, "groups": 2}, "transformer"),
    "lm of a transformer-xl": ("lm", None, "transformer-xl"),
    "lm with product keys": ("lm", None, "product-keys"),
    **{f"lm of {name} attention": ("lm", None, name) for name in REMEMBERING},
    "sparse-memory": ("sparse-memory", {"slots": 2, "background": 3}, "slots that learn fast"),
    "spalm": ("spalm", {"k": 2, "neighbor_dropout": 0.0}, "transformer"),
    "the gate alone of a transformer-xl": ("spalm", {"k": 2, "only_gate": True}, "transformer-xl"),
}
"""Name -> method, memory and backbone."""
STOPPED = 3
VALIDATED = 16
"""Tokens that a rank reads in one piece when it validates, so that there are some to share."""
SETTINGS = {
    "optimizer": {"name": "sgd", "lr": 0.1},
    "segment_length": 8,
    "batch_tokens": 32,
    "steps": 6,
    "valid_every": 2,
    "log_every": 3,
    "precision": "fp32",
}


def settings(case: str) -> TrainConfig:
    method, memory, backbone = CASES[case]
    return TrainConfig.model_validate(
        SETTINGS | {"method": method, "memory": memory, "model": MODELS[backbone]}
    )


def stop_at(step: int) -> None:
    """End this process when the checkpoint of a step is written."""
    save = Saver.save

    def then_stop(
        saver: Saver, progress: Progress, journal: Journal | None, carried: Carried
    ) -> None:
        save(saver, progress, journal, carried)
        if progress.step == step:
            os._exit(1)

    Saver.save = then_stop  # type: ignore[method-assign]


def rank(runs: list[tuple[str, str, dict[str, str]]]) -> None:
    """What each rank does."""
    first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    said = print if os.environ["RANK"] == "0" else lambda *line: None
    validate.READ_TOGETHER = VALIDATED
    if not first:
        said(*map(step_of, Path(runs[-1][1]).rglob(CHECKPOINT)))
    for case, store, references in runs:
        last = store == runs[-1][1]
        if last and first:
            stop_at(STOPPED)
        execution = Execution(device="cpu", checkpoint_seconds=0 if last else 60)
        said(
            make(
                Train(), settings(case), references, Store(Path(store)), execution
            ).artifact.reference
        )


def step_of(checkpoint: Path) -> int:
    with safe_open(checkpoint, "pt") as file:
        return json.loads(file.metadata()["progress"])["step"]  # type: ignore[no-any-return]


def main() -> None:
    fork = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=2,
        run_id="two-ranks",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=1,
        start_method="fork",
    )
    elastic_launch(fork, rank)(json.loads(sys.argv[1]))


if __name__ == "__main__":
    main()
