"""Stage train: tokens, or packed batches of them -> model.

Runs a method's training loop in the draft's scratch folder, where its checkpoints live, and publishes
the best and the last weights.
"""

import json
import math
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from stages.artifacts.artifact import Artifact
from stages.artifacts.draft import Draft
from stages.artifacts.stage import Execution, Inputs, Job, Stage
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.errors import ArtifactError, DataError, UsageError, did_you_mean
from stages.methods import METHODS
from stages.methods.config import MEMORY_CONFIGS, MemoryConfig
from stages.models.config import ModelConfig, parse_model
from stages.training.config import TrainConfig

if TYPE_CHECKING:
    import numpy as np

    from stages.models.language_model import LanguageModel
    from stages.training.loop import Trainer
    from stages.training.progress import Splits

DONE = "training"
CHECKPOINTED = 3
"""Size of a checkpoint in sizes of the weights: these, and two moments of their gradients at most."""


class Train(Stage[TrainConfig]):
    """Train a language model on the `train` split of tokens, watching the `valid` split if there is one."""

    kind: ClassVar[str] = "model"
    Config: ClassVar[type[StageConfig]] = TrainConfig

    def inputs(self, config: TrainConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        """`source`: tokens or batches; `init_from`: a model to start from, whose architecture is taken over."""
        if config.method not in METHODS:
            raise UsageError(f"There is no method {config.method!r}; {did_you_mean(config.method, METHODS.names())}")
        artifacts = _source(config, store.get(references["source"], "tokens", "batches"))
        tokens = artifacts["tokens"]
        if "train" not in tokens.metrics["splits"]:
            raise DataError(f"{tokens.reference} has no split 'train'; make one: memlm tokenize --train FILE.")
        if references.get("init_from"):
            artifacts["init"] = _fitting_init(store.get(references["init_from"], "model"), tokens)
        return Inputs(artifacts)

    def resolve(self, config: TrainConfig, inputs: Inputs, execution: Execution) -> TrainConfig:
        """Fill in the vocabulary, the positions, the memory, the number of steps and the precision."""
        from stages.models.devices import resolve_device, resolve_precision

        tokens = inputs["tokens"]
        model = parse_model(inputs["init"].config["model"]) if "init" in inputs else _sized_model(config, tokens)
        precision = resolve_precision(config.precision, resolve_device(execution.device))
        update = {
            "model": model,
            "memory": _resolved_memory(config, model, _segments(config, tokens)),
            "precision": precision,
            "steps": _steps(config, tokens),
            "epochs": None,
        }
        return config.model_copy(update=update)

    def device(self, execution: Execution) -> str:
        from stages.models.devices import device_name

        return device_name(execution.device)

    def run(self, job: Job[TrainConfig]) -> dict[str, Any]:
        from stages.training.ranks import world_size

        done = job.draft.done(DONE)
        if not done:
            job.draft.expect(_bytes_to_write(job))
        if not done or world_size() > 1:  # even then: the other ranks wait for this one
            trainer = _fit(job.config, job.inputs, job.execution, job.draft.scratch)
        if not done:
            _write_outputs(job, trainer)
            job.draft.commit(DONE, _metrics(trainer))
            job.draft.flush()
        return job.draft.record(DONE)

    def follow(self, config: TrainConfig, inputs: Inputs, execution: Execution) -> bool:
        """Under torchrun, on all ranks but the first: do this rank's share of the work and write nothing.

        Returns: whether this process is such a rank; then the artifact is made by the first.
        """
        if os.environ.get("RANK", "0") == "0" or os.environ.get("WORLD_SIZE", "1") == "1":
            return False
        _fit(config, inputs, execution, None)
        return True


def _source(config: TrainConfig, source: Artifact) -> dict[str, Artifact]:
    """What is learnt from: tokens, and the batches into which they are packed if these were given."""
    if source.kind == "tokens":
        return {"tokens": source}
    if config.memory is None or not config.memory.takes_batches:
        able = [name for name, settings in MEMORY_CONFIGS.items() if settings.takes_batches]
        raise ArtifactError(
            f"{source.reference} is packed for --method {', '.join(able)}; give that, or its tokens to method "
            f"{config.method!r}: memlm train {source.input('tokens').reference}"
        )
    if source.config["segment_length"] != config.segment_length:
        tokens, length = source.input("tokens").reference, config.segment_length
        raise ArtifactError(
            f"{source.reference} has segments of {source.config['segment_length']} tokens, but training is to use "
            f"{length}; pack others: memlm pack-batches {tokens} --segment-length {length}, "
            f"or train with --segment-length {source.config['segment_length']}."
        )
    return {"tokens": source.input("tokens"), "batches": source}


def _fitting_init(init: Artifact, tokens: Artifact) -> Artifact:
    size = init.config["model"]["vocab_size"]
    if size != tokens.metrics["vocabulary_size"]:
        raise ArtifactError(
            f"{init.reference} has a vocabulary of {size}, but {tokens.reference} one of "
            f"{tokens.metrics['vocabulary_size']}; tokenize with the tokenizer of the model's own tokens."
        )
    return init


def _sized_model(config: TrainConfig, tokens: Artifact) -> ModelConfig:
    """The model with the sizes that follow from the tokens and the segments."""
    size = tokens.metrics["vocabulary_size"]
    if config.model.vocab_size not in (None, size):
        raise UsageError(
            f"model.vocab_size is {config.model.vocab_size}, but {tokens.reference} has {size} types; leave it out."
        )
    return config.model.sized(size, config.segment_length)


def _steps(config: TrainConfig, tokens: Artifact) -> int:
    """Updates to make: those asked for, or those of so many epochs of whole batches."""
    if config.epochs is None:
        return config.steps
    batches = max(1, _segments(config, tokens) // config.batch_segments)
    return max(1, math.ceil(config.epochs * batches / config.accumulate))


def _segments(config: TrainConfig, tokens: Artifact) -> int:
    """Whole segments of the training split."""
    return int(tokens.metrics["splits"]["train"]["tokens"]) // config.segment_length


def _resolved_memory(config: TrainConfig, model: ModelConfig, segments: int) -> MemoryConfig | None:
    """The settings of memory with what follows from the backbone and the batches filled in.

    Raises: UsageError for a key that the backbone does not have, or a memory that does not fit the batches.
    """
    from stages.training.ranks import world_size

    if config.memory is None:
        return None
    key = config.memory.key or model.keys[0]
    if key not in model.keys:
        raise UsageError(
            f"memory.key: a model with backbone {model.backbone!r} has no key {key!r}; use {model.keys[0]!r}."
        )
    batch = max(1, min(config.batch_segments, segments))
    return config.memory.sized(key, batch, world_size(), model.carries_state)


def _bytes_to_write(job: Job[TrainConfig]) -> int:
    """Room that training still needs: the old and the new checkpoint, and the old and the new best weights."""
    import torch

    from stages.models.language_model import LanguageModel

    with torch.device("meta"):
        weights = 4 * sum(parameter.numel() for parameter in LanguageModel(job.config.model).parameters())
    written = sum(file.stat().st_size for file in job.draft.scratch.rglob("*") if file.is_file())
    return max(0, CHECKPOINTED * 2 * weights + 2 * weights - written)


def _fit(config: TrainConfig, inputs: Inputs, execution: Execution, folder: Path | None) -> "Trainer":
    """Train to the last step, with checkpoints in `folder`, which the first rank tells the others."""
    from stages.models.devices import resolve_device, tune_allocator
    from stages.training.loop import Trainer
    from stages.training.ranks import make_fabric

    tune_allocator()
    fabric = make_fabric(resolve_device(execution.device))
    splits = _read_splits(inputs["tokens"])
    trainer = Trainer(
        fabric,
        config,
        _make_model(config, inputs, splits, fabric.global_rank),
        METHODS.load(config.method)(config.memory, _packing(inputs)),
        splits,
        Path(fabric.broadcast(str(folder))),
        execution.reporter,
        execution.checkpoint_seconds,
    )
    trainer.run()
    return trainer


def _read_splits(tokens: Artifact) -> "Splits":
    import numpy as np
    import zarr

    from stages.training.progress import Splits

    arrays = tokens.zarr("tokens.zarr")
    train, valid = (
        np.asarray(cast(zarr.Array, arrays[f"{split}/ids"])[:]) if split in tokens.metrics["splits"] else None
        for split in ("train", "valid")
    )
    documents = np.asarray(cast(zarr.Array, arrays["train/doc_offsets"])[:])
    return Splits(cast(np.ndarray, train), valid, tokens.metrics["eos_id"], documents)


def _packing(inputs: Inputs) -> "np.ndarray | None":
    """The order of segments that given batches have."""
    import numpy as np

    if "batches" not in inputs:
        return None
    return np.asarray(cast(Any, inputs["batches"].zarr("batches.zarr"))["order"][:])


def _make_model(config: TrainConfig, inputs: Inputs, splits: "Splits", rank: int) -> "LanguageModel":
    """The model before the first step, the same on every rank; each rank then draws its own dropout."""
    import torch

    from stages.models.language_model import LanguageModel, load_model
    from stages.models.vocabulary import AdaptiveVocabulary

    torch.manual_seed(config.seed)
    if "init" in inputs:
        model = load_model(inputs["init"].path, "cpu")
    else:
        model = LanguageModel(config.model)
        if isinstance(model.vocabulary, AdaptiveVocabulary):
            model.vocabulary.sort_by(splits.token_counts(len(model.vocabulary.rank)))
    torch.manual_seed(config.seed + rank)
    return model


def _write_outputs(job: Job[TrainConfig], trainer: "Trainer") -> None:
    from stages.models.language_model import save_weights
    from stages.training.journal import LINES, LOGS
    from stages.training.loop import best_weights

    draft, progress = job.draft, trainer.progress
    save_weights(trainer.model, draft.add("last.safetensors"))
    best = "last.safetensors" if progress.valid_step is None else f"scratch/{best_weights(progress.valid_step)}"
    shutil.copyfile(draft.path / best, draft.add("model.safetensors"))
    _copy(draft, draft.scratch / LINES)
    for log in sorted((draft.scratch / LOGS).iterdir()):
        _copy(draft, log)
    training = job.config.canonical()
    architecture = training.pop("model")
    method, memory = training.pop("method"), training.pop("memory")
    settings = {"model": architecture, "method": method, "memory": memory, "training": training}
    draft.add("config.json").write_text(json.dumps(settings, indent=2) + "\n", "utf-8")


def _copy(draft: Draft, file: Path) -> None:
    shutil.copyfile(file, draft.add(file.relative_to(draft.scratch)))


def _metrics(trainer: "Trainer") -> dict[str, Any]:
    progress = trainer.progress
    tokens = progress.step * trainer.update_tokens
    valid = progress.valid_loss
    return {
        "parameters": sum(parameter.numel() for parameter in trainer.model.parameters()),
        "steps": progress.step,
        "tokens": tokens,
        "train_loss": progress.train_loss,
        "valid_loss": valid,
        "valid_perplexity": None if valid is None else math.exp(valid),
        "valid_step": progress.valid_step,
        "tokens_per_second": round(tokens / progress.seconds, 1) if progress.seconds else None,
    }
