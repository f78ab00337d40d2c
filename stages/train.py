"""Stage train: tokens, packed batches of them, or the neighbours of each -> model.

`stages.training.work` does it.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from stages.artifacts.stage import Execution, Inputs, Stage
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.errors import UsageError
from stages.lineage.corpus import require_split
from stages.methods.config import TRAIN
from stages.models.devices import device_type, resolve_precision
from stages.training import resolve
from stages.training.config import MODEL, RESOLVED_ELSEWHERE, TrainConfig
from stages.training.sources import require_init, source_kinds, training_inputs


class Train(Stage[TrainConfig]):
    """Train a language model on the `train` split of tokens, watching the `valid` split if there is
    one.
    """

    name: ClassVar[str] = "train"
    kind: ClassVar[str] = "model"
    Config: ClassVar[type[StageConfig]] = TrainConfig
    schema = MODEL

    def inputs(self, config: TrainConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        """`source`: the input that the method learns from; `init_from`: an initial model, which
        gives the sizes; `time_of`: a report, whose time gives the number of updates.
        """
        artifacts = training_inputs(config, store.get(references["source"], *source_kinds()))
        tokens = artifacts["tokens"]
        require_split(tokens, TRAIN)
        if references.get("init_from"):
            artifacts["init"] = require_init(
                config, store.get(references["init_from"], "model"), tokens
            )
        elif (reason := config.method_settings.continues) is not None:
            raise UsageError(f"{reason}: name that with --init-from.")
        if references.get("time_of"):
            artifacts["time_of"] = store.get(references["time_of"], "report")
        return Inputs(artifacts)

    def resolve(self, config: TrainConfig, inputs: Inputs, execution: Execution) -> TrainConfig:
        """Fill in the vocabulary, the positions, the memory, the number of steps and the precision."""
        tokens = inputs["tokens"]
        model = resolve.fitted_model(config, inputs)
        resolve.require_examples(config, model, tokens)
        precision = resolve_precision(config.precision, device_type(execution.device))
        update = {
            "model": model,
            "order": resolve.task_order(config, tokens),
            "memory": resolve.resolved_memory(config, model, inputs),
            "precision": precision,
            **RESOLVED_ELSEWHERE,
        }
        resolved = config.model_copy(update=update)
        whole = resolved.model_copy(
            update=resolve.resolved_length(resolved, config.epochs, inputs, execution)
        )
        resolve.require_documents(whole, tokens)
        return whole
