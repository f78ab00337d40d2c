"""Training runs on arrays of tokens, without a store."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from stages.examples.cutting import WindowSettings
from stages.examples.examples import Task
from stages.examples.streams import Streams
from stages.methods.method import Method
from stages.models.language_model import LanguageModel
from stages.reporting import Reporter
from stages.training.config import TrainConfig
from stages.training.loop import Trainer
from stages.training.ranks import make_fabric
from stages.training.training_data import Run


@dataclass(frozen=True)
class Splits:
    """Token ids of two splits, and where their documents start; None: each is one."""

    train: np.ndarray
    valid: np.ndarray | None
    eos: int
    documents: np.ndarray | None = None
    valid_documents: np.ndarray | None = None


def streams(config: TrainConfig, splits: Splits) -> tuple[Streams, Streams | None]:
    """Both splits as a run reads them."""
    cutting = config.model.cutting(WindowSettings(config.segment_length, config.segment_length))
    train = Streams(splits.train, splits.eos, cutting, splits.documents)
    valid = (
        None
        if splits.valid is None
        else Streams(splits.valid, splits.eos, cutting, splits.valid_documents)
    )
    return train, valid


def trainer_of(
    config: TrainConfig,
    method: Method,
    splits: Splits,
    folder: Path,
    reporter: Reporter,
    checkpoint_seconds: float = 1e9,
    model: LanguageModel | None = None,
) -> Trainer:
    """A trainer on the CPU; a model that is not given is drawn by the seed."""
    torch.manual_seed(config.seed)
    model = LanguageModel(config.model) if model is None else model
    train, valid = streams(config, splits)
    fabric, tasks = make_fabric(torch.device("cpu")), [Task("train", train)]
    return Trainer(
        Run(fabric, config, model, method, tasks, valid, folder, reporter, checkpoint_seconds)
    )
