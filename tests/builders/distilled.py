"""Models that learned labels of neighbours."""

from typing import Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.train import Train
from stages.training.config import TrainConfig

SMALL = {
    "model": {"layers": 1, "width": 8, "heads": 2, "ffn_width": 16, "dropout": 0.1},
    "segment_length": 8,
    "batch_tokens": 16,
    "steps": 6,
    "valid_every": 2,
    "precision": "fp32",
}


def trained(
    store: Store, source: Artifact, init: Artifact | None = None, **settings: Any
) -> Artifact:
    config = TrainConfig.model_validate(SMALL | {"method": "memory-decoder"} | settings)
    execution = Execution(device="cpu", checkpoint_seconds=0.0)
    references = {"source": source.reference}
    if init is not None:
        references["init_from"] = init.reference
        config = config.model_copy(update={"model": TrainConfig().model})
    return make(Train(), config, references, store, execution).artifact
