"""One rank of a small training: `torchrun … two_ranks.py STORE TOKENS`; prints the model's reference."""

import os
import sys
from pathlib import Path

from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.train import Train
from stages.training.config import TrainConfig

SETTINGS = {
    "model": {"layers": 1, "width": 8, "heads": 2, "ffn_width": 16, "dropout": 0.0},
    "optimizer": {"name": "sgd", "lr": 0.1},
    "segment_length": 8,
    "batch_tokens": 32,
    "steps": 6,
    "valid_every": 2,
    "log_every": 3,
    "precision": "fp32",
}


def main() -> None:
    store = Store(Path(sys.argv[1]))
    config = TrainConfig.model_validate(SETTINGS)
    outcome = make(Train(), config, {"source": sys.argv[2]}, store, Execution(device="cpu"))
    if os.environ.get("RANK", "0") == "0":
        print(outcome.artifact.reference)


if __name__ == "__main__":
    main()
