"""Inputs of a training run, opened."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lightning_fabric import Fabric

from stages.examples.examples import Examples, Task
from stages.methods.method import Method
from stages.models.language_model import LanguageModel
from stages.reporting import Reporter, Silent
from stages.training.config import TrainConfig


@dataclass(frozen=True)
class Run:
    """A model, what it learns from, and the folder that keeps its checkpoints."""

    fabric: Fabric
    config: TrainConfig
    model: LanguageModel
    method: Method
    tasks: Sequence[Task]
    """Learnt one after another; a corpus is a stream of one."""
    valid: Examples | None
    folder: Path
    listener: Reporter
    checkpoint_seconds: float

    @property
    def keeps_tasks(self) -> bool:
        """Whether the weights after each task are kept."""
        return self.config.order is not None and self.fabric.is_global_zero

    @property
    def reporter(self) -> Reporter:
        """The reporter of the first process; the others say nothing."""
        return self.listener if self.fabric.is_global_zero else Silent()
