"""The work of train: a method's training loop in the draft's scratch folder, with its checkpoints.

Publishes the best and the last weights.
"""

from pathlib import Path
from typing import Any

from stages.artifacts.stage import Execution, Inputs, Job, SerialWork
from stages.machine import multiplies_bf16
from stages.models.devices import device_type
from stages.reporting import first_process
from stages.training.compiling import require_compiler
from stages.training.config import TrainConfig
from stages.training.loop import Trainer
from stages.training.outputs import bytes_to_write, metrics, write_outputs
from stages.training.ranks import world_size
from stages.training.resolve import require_memory
from stages.training.training_data import open_run
from stages.training.warnings import draws_of_memory, training_warnings

DONE = "training"


class TrainWork(SerialWork[TrainConfig]):
    """Trains in one process, or in one on each device under torchrun."""

    def run(self, job: Job[TrainConfig]) -> dict[str, Any]:
        done = job.draft.done(DONE)
        for warning in training_warnings(job.config, job.inputs):
            job.reporter.warning(warning)
        if (draws := draws_of_memory(job.config, job.inputs)) is not None:
            job.reporter.info(draws)
        if not done:
            _require(job.config, job.inputs, job.execution)
            job.draft.expect(bytes_to_write(job))
        # Several ranks fit even if the work is done: the others wait for this one.
        if not done or world_size() > 1:
            trainer = _fit(job.config, job.inputs, job.execution, job.draft.scratch, job.logs)
        if not done:
            write_outputs(job, trainer)
            job.draft.count_seconds(trainer.earlier_seconds)
            job.draft.commit(DONE, metrics(job, trainer))
            job.draft.flush()
        return job.draft.record(DONE)

    def follow(self, config: TrainConfig, inputs: Inputs, execution: Execution) -> bool:
        """Under torchrun, on all ranks but the first: do this rank's share of the work, without
        writing.

        Returns: whether this process is such a rank; the first one then makes the artifact.
        """
        if first_process():
            return False
        _require(config, inputs, execution)
        _fit(config, inputs, execution, None)
        return True


def _require(config: TrainConfig, inputs: Inputs, execution: Execution) -> None:
    """Raises: ResourceError if memory does not suffice; UsageError if compilation is asked for and
    impossible.
    """
    require_memory(config, inputs["tokens"], execution)
    device = device_type(execution.device)
    if config.precision == "bf16" and device == "cpu" and not multiplies_bf16():
        execution.reporter.warning(
            "this processor has no products in bf16; on another without them a training took 2.7 times as long as with "
            "--precision fp32."
        )
    if config.compile:
        require_compiler(device)


def _fit(
    config: TrainConfig,
    inputs: Inputs,
    execution: Execution,
    folder: Path | None,
    logs: Path | None = None,
) -> Trainer:
    """Train to the last step, with checkpoints in `folder`."""
    trainer = Trainer(open_run(config, inputs, execution, folder, logs))
    trainer.train()
    return trainer
