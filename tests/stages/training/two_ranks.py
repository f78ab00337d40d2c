"""One rank of a small training: `torchrun … two_ranks.py STORE TOKENS BACKBONE`; prints the model's reference."""

import os
import sys
from pathlib import Path

from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.train import Train
from stages.training.config import TrainConfig

MODELS = {
    "transformer": {"layers": 1, "width": 8, "heads": 2, "ffn_width": 16, "dropout": 0.0},
    "lstm": {"backbone": "lstm", "width": 8, "dropout": 0.0, "initial_range": 1.0},
}
SETTINGS = {
    "optimizer": {"name": "sgd", "lr": 0.1},
    "segment_length": 8,
    "batch_tokens": 32,
    "steps": 6,
    "valid_every": 2,
    "log_every": 3,
    "precision": "fp32",
}


def settings(backbone: str) -> TrainConfig:
    return TrainConfig.model_validate(SETTINGS | {"model": MODELS[backbone]})


def main() -> None:
    store = Store(Path(sys.argv[1]))
    outcome = make(Train(), settings(sys.argv[3]), {"source": sys.argv[2]}, store, Execution(device="cpu"))
    if os.environ.get("RANK", "0") == "0":
        print(outcome.artifact.reference)


if __name__ == "__main__":
    main()
