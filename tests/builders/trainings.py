"""Training of small models."""

from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.reporting import Silent
from stages.train import Train
from stages.training.config import TrainConfig

SMALL = {
    "model": {"layers": 1, "width": 8, "heads": 2, "ffn_width": 16},
    "segment_length": 8,
    "batch_tokens": 16,
    "steps": 6,
    "valid_every": 2,
    "log_every": 3,
    "precision": "fp32",
}


def train(store, tokens, references=None, reporter=None, **settings):
    references = {"source": tokens.reference} | (references or {})
    execution = Execution(device="cpu", reporter=reporter or Silent())
    return make(
        Train(), TrainConfig.model_validate(SMALL | settings), references, store, execution
    ).artifact
