"""Stage train: tokens, packed batches of them, or the neighbours of each -> model.

Runs a method's training loop in the draft's scratch folder, where its checkpoints live, and publishes
the best and the last weights.
"""

import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from stages.artifacts.artifact import Artifact
from stages.artifacts.draft import Draft
from stages.artifacts.stage import Execution, Inputs, Job, Stage
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.errors import UsageError
from stages.lineage.corpus import require_split
from stages.machine import multiplies_bf16
from stages.methods import METHODS
from stages.methods.config import TRAIN, Batches, MethodSettings, methods_for
from stages.metrics import perplexity
from stages.models import NAMED
from stages.models.config import BackboneConfig, model_of
from stages.models.layers.settings import asked_length, lengthened_layers
from stages.models.windows import WindowSettings
from stages.numbers import number, rate
from stages.reporting import first_process
from stages.text.tokens import require_segment
from stages.training.automatic import PASSES_OF_IMPORTED, validations, weights, worthwhile_passes
from stages.training.config import AUTO, TrainConfig
from stages.training.schema import MODEL
from stages.training.sources import IMPORTED, KINDS, fitting_init, learnt_from

if TYPE_CHECKING:
    from stages.models.language_model import LanguageModel
    from stages.training.loop import Trainer
    from stages.training.progress import Splits

DONE = "training"


class Train(Stage[TrainConfig]):
    """Train a language model on the `train` split of tokens, watching the `valid` split if there is one."""

    name: ClassVar[str] = "train"
    kind: ClassVar[str] = "model"
    Config: ClassVar[type[StageConfig]] = TrainConfig
    schema = MODEL

    def inputs(self, config: TrainConfig, references: Mapping[str, Any], store: Store) -> Inputs:
        """`source`: what the method learns from; `init_from`: a model to start from, whose sizes are taken over."""
        artifacts = learnt_from(config, store.get(references["source"], *KINDS))
        tokens = artifacts["tokens"]
        require_split(tokens, TRAIN)
        if references.get("init_from"):
            artifacts["init"] = fitting_init(config, store.get(references["init_from"], "model"), tokens)
        elif (reason := config.method_settings.continues) is not None:
            raise UsageError(f"{reason}: name that with --init-from.")
        return Inputs(artifacts)

    def resolve(self, config: TrainConfig, inputs: Inputs, execution: Execution) -> TrainConfig:
        """Fill in the vocabulary, the positions, the memory, the number of steps and the precision."""
        from stages.models.devices import device_type, resolve_precision

        tokens = inputs["tokens"]
        model = _fitted_model(config, inputs)
        require_segment(_train_tokens(tokens), config.segment_length)
        precision = resolve_precision(config.precision, device_type(execution.device))
        update = {
            "model": model,
            "memory": _resolved_memory(config, model, inputs),
            "precision": precision,
            "epochs": None,
            "long_length": None,
        }
        resolved = config.model_copy(update=update)
        return resolved.model_copy(update=_length(resolved, config.epochs, tokens, execution))

    def require(self, config: TrainConfig, inputs: Inputs, execution: Execution) -> None:
        """Raises: ResourceError for a model, or a batch, that memory cannot hold; UsageError if nothing can be compiled
        that is to be."""
        _require_room(config, inputs["tokens"], execution)
        _warn_of_bf16(config, execution)
        if config.compile:
            _require_compiler(execution.device)

    def memory(self, config: TrainConfig, inputs: Inputs) -> int | None:
        from stages.training.room import training_bytes

        return training_bytes(config, config.model, _segments(config, inputs["tokens"]))

    def device(self, execution: Execution) -> str:
        from stages.models.devices import device_name

        return device_name(execution.device)

    def run(self, job: Job[TrainConfig]) -> dict[str, Any]:
        from stages.training.journal import LINES
        from stages.training.ranks import world_size

        done = job.draft.done(DONE)
        _warn(job)
        if not done:
            job.draft.expect(_bytes_to_write(job))
        if not done or world_size() > 1:  # even then: the other ranks wait for this one
            trainer = _fit(job.config, job.inputs, job.execution, job.draft.scratch)
        if not done:
            _write_outputs(job, trainer)
            job.draft.count_seconds(trainer.earlier_seconds)
            job.draft.commit(DONE, _metrics(trainer, job.draft.scratch / LINES))
            job.draft.flush()
        return job.draft.record(DONE)

    def follow(self, config: TrainConfig, inputs: Inputs, execution: Execution) -> bool:
        """Under torchrun, on all ranks but the first: do this rank's share of the work and write nothing.

        Returns: whether this process is such a rank; then the artifact is made by the first.
        """
        if first_process():
            return False
        _fit(config, inputs, execution, None)
        return True


def _fitted_model(config: TrainConfig, inputs: Inputs) -> BackboneConfig:
    """The model that is trained: the one to start from or the one described, with what the method adds to it."""
    size = inputs["tokens"].metrics["vocabulary_size"]
    model = _taken_over(config, inputs["init"]) if "init" in inputs else _require_size(config.model, inputs["tokens"])
    model = config.method_settings.fitted(_lengthened(model.sized(size, config.segment_length), config))
    if config.lora is not None and model.backbone != IMPORTED:
        raise UsageError("--lora is for imported models (memlm import-model): train this one whole, without it.")
    if model.asks_for_neighbors and not config.method_settings.neighbors_read:
        able = methods_for("neighbors")
        raise UsageError(f"model.gate: method {config.method!r} reads no neighbours; use --method {able}.")
    return model


def _lengthened(model: BackboneConfig, config: TrainConfig) -> BackboneConfig:
    """The model with layers that remember as much as `long_length` asks. Raises: UsageError if none remembers."""
    if config.long_length is None:
        return model
    if model.lengths.long_length is None:
        able = " or ".join(backbone for backbone, name in NAMED.items() if name in lengthened_layers())
        raise UsageError(
            f"The model has no layer that remembers a number of slots or entries, as those of a {able} do: "
            "leave --long-length out."
        )
    windows = WindowSettings(config.segment_length, config.segment_length, model.lengths.mem_length, config.long_length)
    return model.reading(windows)


def _taken_over(config: TrainConfig, init: Artifact) -> BackboneConfig:
    """The architecture of a model to start from, with the segments and what else is left open as asked for."""
    model = model_of(init).reading_neighbors(config.model, init.reference)
    length, carried = config.segment_length, config.model.lengths.mem_length
    return model.reading(WindowSettings(length, length, carried, asked_length(config.model)))


def _require_size(model: BackboneConfig, tokens: Artifact) -> BackboneConfig:
    """Raises: UsageError for a vocabulary of another size than that of the tokens."""
    size = tokens.metrics["vocabulary_size"]
    if model.vocab_size not in (None, size):
        raise UsageError(
            f"model.vocab_size is {model.vocab_size}, but {tokens.reference} has {size} types; leave it out."
        )
    return model


def _length(config: TrainConfig, epochs: float | None, tokens: Artifact, execution: Execution) -> dict[str, int]:
    """Updates to make: those asked for, those of so many epochs of whole batches, or as many as are worth making."""
    if epochs is not None:
        return {"steps": _steps(config, tokens, epochs)}
    if config.steps != AUTO:
        return {}
    found = _passes(config, tokens, execution)
    steps = _steps(config, tokens, found)
    execution.reporter.info(
        f"{steps:,} steps, {number(found)} passes over the {_train_tokens(tokens):,} tokens of the text (--steps auto)"
    )
    return {"steps": steps} | ({} if "valid_every" in config.model_fields_set else {"valid_every": validations(steps)})


def _passes(config: TrainConfig, tokens: Artifact, execution: Execution) -> float:
    """Over the training split, where nobody says how many."""
    if config.model.backbone == IMPORTED:
        return PASSES_OF_IMPORTED
    return worthwhile_passes(_train_tokens(tokens), _weights(config, tokens, execution))


def _weights(config: TrainConfig, tokens: Artifact, execution: Execution) -> int:
    """How many numbers the model learns, as a trained one of the same settings says, if the store has one: so a command
    whose model is there loads no torch."""
    wanted = config.model_dump(mode="json", include={"model"})["model"]
    for model in tokens.store.artifacts("model"):
        if model.config.get("model") == wanted:
            return int(model.metrics["parameters"])
    _require_room(config, tokens, execution)
    return weights(config.model)


def _require_room(config: TrainConfig, tokens: Artifact, execution: Execution) -> None:
    from stages.models.devices import device_type
    from stages.training.room import require_room

    require_room(config, config.model, _segments(config, tokens), device_type(execution.device))


def _warn_of_bf16(config: TrainConfig, execution: Execution) -> None:
    from stages.models.devices import device_type

    if config.precision == "bf16" and device_type(execution.device) == "cpu" and not multiplies_bf16():
        execution.reporter.warning(
            "this processor has no products in bf16; on another without them a training took 2.7 times as long as with "
            "--precision fp32."
        )


def _require_compiler(device: str) -> None:
    from stages.models.devices import device_type
    from stages.training.compiling import require_compiler

    require_compiler(device_type(device))


def _steps(config: TrainConfig, tokens: Artifact, epochs: float) -> int:
    """Updates that so many epochs of whole batches take."""
    batches = max(1, _segments(config, tokens) // config.batch_segments)
    return max(1, math.ceil(epochs * batches / config.accumulate))


def _train_tokens(tokens: Artifact) -> int:
    return int(tokens.metrics["splits"][TRAIN]["tokens"])


def _segments(config: TrainConfig, tokens: Artifact) -> int:
    """Whole segments of the training split."""
    return _train_tokens(tokens) // config.segment_length


def _resolved_memory(config: TrainConfig, model: BackboneConfig, inputs: Inputs) -> MethodSettings | None:
    """The settings of memory with what follows from the backbone and the batches filled in."""
    return None if config.memory is None else config.memory.sized(model, _batches(config, inputs))


def _batches(config: TrainConfig, inputs: Inputs) -> Batches:
    from stages.training.ranks import world_size

    split = inputs["tokens"].metrics["splits"][TRAIN]
    segments = max(1, min(config.batch_segments, _segments(config, inputs["tokens"])))
    borders = (split["documents"] - 1) * config.segment_length / split["tokens"]
    same = inputs["batches"].metrics.get("same_document") if "batches" in inputs else None
    return Batches(segments, world_size(), config.accumulate, borders, same)


def _warn(job: Job[TrainConfig]) -> None:
    """Warn of settings, before the first step."""
    from stages.training.warnings import (
        cost_of_vocabulary,
        more_blocks_than_usual,
        random_segments,
        untrained_memory,
    )

    config = job.config
    model = config.model
    of_model = more_blocks_than_usual(model), cost_of_vocabulary(model)
    for warning in (random_segments(config, job.inputs), untrained_memory(config), *of_model):
        if warning is not None:
            job.reporter.warning(warning)


def _bytes_to_write(job: Job[TrainConfig]) -> int:
    """Room that training still needs: what it maps, and the old and the new of checkpoint and best weights."""
    from stages.training.materials import mapped_bytes, passing_bytes
    from stages.training.sizes import checkpoint_bytes

    weight_bytes = 4 * weights(job.config.model)
    written = sum(file.stat().st_size for file in job.draft.scratch.rglob("*") if file.is_file())
    saved = 2 * checkpoint_bytes(job.config, job.inputs, weight_bytes) + 2 * weight_bytes
    needed = mapped_bytes(job.inputs, job.config) + max(saved, passing_bytes(job.inputs))
    return max(0, needed - written)


def _fit(config: TrainConfig, inputs: Inputs, execution: Execution, folder: Path | None) -> "Trainer":
    """Train to the last step, with checkpoints in `folder`, which the first rank tells the others."""
    from stages.models.devices import resolve_device, tune_allocator
    from stages.training.loop import Trainer
    from stages.training.materials import open_side_inputs, read_splits
    from stages.training.ranks import make_fabric

    tune_allocator()
    fabric = make_fabric(resolve_device(execution.device))
    folder = Path(fabric.broadcast(str(folder)))
    with fabric.rank_zero_first():
        splits, side_inputs = read_splits(inputs["tokens"], folder), open_side_inputs(inputs, config, folder)
    trainer = Trainer(
        fabric,
        config,
        _make_model(config, inputs, splits, fabric.global_rank),
        METHODS.load(config.method)(config.method_settings, side_inputs),
        splits,
        folder,
        execution.reporter,
        execution.checkpoint_seconds,
    )
    trainer.run()
    return trainer


def _make_model(config: TrainConfig, inputs: Inputs, splits: "Splits", rank: int) -> "LanguageModel":
    """The model before the first step, the same on every rank; each rank then draws its own dropout."""
    import torch

    from stages.models.language_model import LanguageModel, start_from
    from stages.models.vocabulary import AdaptiveVocabulary
    from stages.training.low_rank import add_factors

    torch.manual_seed(config.seed)
    model = LanguageModel(config.model)
    if "init" in inputs:
        start_from(model, inputs["init"].file("model.safetensors"))
    elif isinstance(model.vocabulary, AdaptiveVocabulary):
        model.vocabulary.sort_by(splits.token_counts(len(model.vocabulary.rank)))
    if config.lora is not None:
        add_factors(model, config.lora)
    torch.manual_seed(config.seed + rank)
    return model


def _write_outputs(job: Job[TrainConfig], trainer: "Trainer") -> None:
    from stages.models.language_model import save_weights
    from stages.training.best import best_file
    from stages.training.journal import LINES, LOGS
    from stages.training.low_rank import whole_weights

    draft, progress = job.draft, trainer.progress
    save_weights(whole_weights(trainer.model), draft.add("last.safetensors"))
    best = best_file(draft.scratch, progress) or draft.path / "last.safetensors"
    shutil.copyfile(best, draft.add("model.safetensors"))
    _copy(draft, draft.scratch / LINES)
    for log in sorted((draft.scratch / LOGS).iterdir()):
        _copy(draft, log)
    _write_settings(job)


def _write_settings(job: Job[TrainConfig]) -> None:
    training = job.config.stored()
    architecture = training.pop("model")
    method, memory = training.pop("method"), training.pop("memory")
    settings = {"model": architecture, "method": method, "memory": memory, "training": training}
    job.draft.add("config.json").write_text(json.dumps(settings, indent=2) + "\n", "utf-8")


def _copy(draft: Draft, file: Path) -> None:
    shutil.copyfile(file, draft.add(file.relative_to(draft.scratch)))


def _metrics(trainer: "Trainer", lines: Path) -> dict[str, Any]:
    """Figures of a run, whose journal is `lines`."""
    from stages.training.convergence import convergence, read_validations
    from stages.training.low_rank import own_parameters

    progress = trainer.progress
    tokens = progress.step * trainer.update_tokens
    valid = progress.valid_loss
    return {
        "parameters": own_parameters(trainer.model),
        "steps": progress.step,
        "tokens": tokens,
        "train_loss": progress.train_loss,
        "valid_loss": valid,
        "valid_perplexity": None if valid is None else perplexity(valid, 1),
        "valid_step": progress.valid_step,
        "tokens_per_second": rate(tokens, progress.seconds) if progress.seconds else None,
        **convergence(tokens / len(trainer.splits.train), read_validations(lines)),
    }
