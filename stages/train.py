"""Stage train: tokens, packed batches of them, or the neighbours of each -> model.

Runs a method's training loop in the draft's scratch folder, with its checkpoints. Publishes the
best and the last weights.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from stages.artifacts.stage import Execution, Inputs, Job, SerialStage
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.errors import UsageError
from stages.lineage.corpus import require_split
from stages.machine import multiplies_bf16
from stages.methods.config import TRAIN
from stages.models.devices import device_type, resolve_precision
from stages.reporting import first_process
from stages.training.config import MODEL, SAID_OTHERWISE, TrainConfig

if TYPE_CHECKING:
    from stages.training.loop import Trainer

DONE = "training"


class Train(SerialStage[TrainConfig]):
    """Train a language model on the `train` split of tokens, watching the `valid` split if there is
    one.
    """

    name: ClassVar[str] = "train"
    kind: ClassVar[str] = "model"
    Config: ClassVar[type[StageConfig]] = TrainConfig
    schema = MODEL

    def inputs(self, config: TrainConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        """`source`: the input that the method learns from; `init_from`: an initial model, which
        gives the sizes.
        """
        from stages.training.sources import KINDS, fitting_init, learnt_from

        artifacts = learnt_from(config, store.get(references["source"], *KINDS))
        tokens = artifacts["tokens"]
        require_split(tokens, TRAIN)
        if references.get("init_from"):
            artifacts["init"] = fitting_init(
                config, store.get(references["init_from"], "model"), tokens
            )
        elif (reason := config.method_settings.continues) is not None:
            raise UsageError(f"{reason}: name that with --init-from.")
        return Inputs(artifacts)

    def resolve(self, config: TrainConfig, inputs: Inputs, execution: Execution) -> TrainConfig:
        """Fill in the vocabulary, the positions, the memory, the number of steps and the precision."""
        from stages.training import resolve

        tokens = inputs["tokens"]
        model = resolve.fitted_model(config, inputs)
        resolve.require_examples(config, model, tokens)
        precision = resolve_precision(config.precision, device_type(execution.device))
        update = {
            "model": model,
            "order": resolve.task_order(config, tokens),
            "memory": resolve.resolved_memory(config, model, inputs),
            "precision": precision,
            **SAID_OTHERWISE,
        }
        resolved = config.model_copy(update=update)
        whole = resolved.model_copy(
            update=resolve.resolved_length(resolved, config.epochs, inputs, execution)
        )
        resolve.require_documents_near(whole, tokens)
        return whole

    def run(self, job: Job[TrainConfig]) -> dict[str, Any]:
        from stages.training.ranks import world_size
        from stages.training.warnings import training_warnings

        done = job.draft.done(DONE)
        for warning in training_warnings(job.config, job.inputs):
            job.reporter.warning(warning)
        if not done:
            from stages.training.outputs import bytes_to_write, metrics, write_outputs

            _require(job.config, job.inputs, job.execution)
            job.draft.expect(bytes_to_write(job))
        if (
            not done or world_size() > 1
        ):  # with several ranks even if done: the others wait for this one
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
    from stages.training.resolve import require_memory

    require_memory(config, inputs["tokens"], execution)
    device = device_type(execution.device)
    if config.precision == "bf16" and device == "cpu" and not multiplies_bf16():
        execution.reporter.warning(
            "this processor has no products in bf16; on another without them a training took 2.7 times as long as with "
            "--precision fp32."
        )
    if config.compile:
        from stages.training.compiling import require_compiler

        require_compiler(device)


def _fit(
    config: TrainConfig,
    inputs: Inputs,
    execution: Execution,
    folder: Path | None,
    logs: Path | None = None,
) -> "Trainer":
    """Train to the last step, with checkpoints in `folder`."""
    from stages.training.loop import Trainer
    from stages.training.training_data import open_run

    trainer = Trainer(open_run(config, inputs, execution, folder, logs))
    trainer.train()
    return trainer
