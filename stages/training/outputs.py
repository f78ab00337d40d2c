"""Files and figures of a training run, and whether it was long enough."""

import json
import shutil
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import save_file

from stages.artifacts.artifact import Artifact
from stages.artifacts.draft import Draft
from stages.artifacts.stage import Job
from stages.lineage.corpus import tokenizer_of
from stages.methods.config import AFTER, MEMORY_FILE
from stages.metrics import perplexity
from stages.models.language_model import parameter_count
from stages.models.weights import save_weights
from stages.numbers import rate
from stages.training.checkpoint import best_file
from stages.training.config import TrainConfig
from stages.training.journal import LINES
from stages.training.loop import Trainer
from stages.training.low_rank import own_parameters, whole_weights
from stages.training.resolve import train_tokens
from stages.training.sizes import checkpoint_bytes
from stages.training.training_data import mapped_bytes, passing_bytes


def bytes_to_write(job: Job[TrainConfig]) -> int:
    """Bytes of disk that training still needs: mapped arrays, and old and new checkpoint and best
    weights.
    """
    weight_bytes = 4 * parameter_count(job.config.model)
    written = sum(file.stat().st_size for file in job.draft.scratch.rglob("*") if file.is_file())
    # Twice: a file stays until its replacement is complete.
    saved = 2 * checkpoint_bytes(job.config, job.inputs, weight_bytes) + 2 * weight_bytes
    saved += 2 * weight_bytes * (len(job.config.order) + 1 if job.config.order is not None else 0)
    needed = mapped_bytes(job.inputs, job.config) + max(
        saved, passing_bytes(job.inputs, job.config)
    )
    return max(0, needed - written)


def write_outputs(job: Job[TrainConfig], trainer: Trainer) -> None:
    """Write weights, the journal, and settings."""
    draft = job.draft
    progress = trainer.progress
    save_weights(whole_weights(trainer.run.model), draft.add("last.safetensors"))
    best = best_file(draft.scratch, progress) or draft.path / "last.safetensors"
    shutil.copyfile(best, draft.add("model.safetensors"))
    _copy(draft, draft.scratch / LINES)
    for weights_after in sorted((draft.scratch / AFTER).glob("*.safetensors")):
        _copy(draft, weights_after)
    method = trainer.run.method
    documents = method.kept_documents()
    if documents is not None:
        arrays = {name: np.ascontiguousarray(array) for name, array in documents._asdict().items()}
        save_file(arrays, draft.add(MEMORY_FILE))
    method.write_files(decoder(job.inputs["tokens"]), draft.add)
    training = job.config.stored()
    order = training.pop("order")
    labels = job.inputs["tokens"].metrics.get("labels")
    stream = {"order": order, "labels": labels} if job.config.model.head is not None else {}
    architecture = training.pop("model")
    settings = {
        "model": architecture,
        "method": training.pop("method"),
        "memory": training.pop("memory"),
        **stream,
        "training": training,
    }
    draft.add("config.json").write_text(json.dumps(settings, indent=2) + "\n", "utf-8")


def decoder(tokens: Artifact) -> Callable[[list[int]], str]:
    """Function from ids of tokens to text; the tokenizer is opened when it is first called."""

    @cache
    def tokenizer() -> Any:
        return tokenizer_of(tokens).huggingface()

    def decode(ids: list[int]) -> str:
        text: str = tokenizer().decode(ids, skip_special_tokens=False)
        return text

    return decode


def _copy(draft: Draft, file: Path) -> None:
    shutil.copyfile(file, draft.add(file.relative_to(draft.scratch)))


def metrics(job: Job[TrainConfig], trainer: Trainer) -> dict[str, Any]:
    """Figures of a run."""
    progress = trainer.progress
    tokens = progress.step * trainer.order.update_tokens
    valid = progress.valid_loss
    learns_text = job.config.method_settings.learns == "text"
    whole = train_tokens(job.inputs["tokens"]) if learns_text else trainer.order.pass_tokens
    return {
        "parameters": own_parameters(trainer.run.model),
        "steps": progress.step,
        "tokens": tokens,
        "train_loss": progress.train_loss,
        "valid_loss": valid,
        "valid_perplexity": None if valid is None else perplexity(valid, 1),
        "valid_step": progress.valid_step,
        "tokens_per_second": rate(tokens, progress.seconds) if progress.seconds else None,
        **convergence(tokens / whole, read_validations(job.draft.scratch / LINES)),
        **trainer.run.method.figures(),
    }


NOTABLE = 0.01
"""Nats per token, one percent of perplexity: a smaller difference counts as none."""
LATE = 0.8
"""Share of the steps after which the end of a run begins."""


class Validation(NamedTuple):
    """The loss on the validation split, nats a token, after a step."""

    step: int
    loss: float


def read_validations(lines: Path) -> list[Validation]:
    """All validations of a journal (`training.jsonl`), in order."""
    records = (json.loads(line) for line in lines.read_text("utf-8").splitlines())
    return [
        Validation(line["step"], line["valid_loss"])
        for line in records
        if line.get("valid_loss") is not None
    ]


def convergence(passes: float, validations: Sequence[Validation]) -> dict[str, Any]:
    """Metrics of a model that describe convergence.

    `passes`: over the training split. `last_validations`: the last one before the end of the run
    begins, then the last of all. `still_falling`: whether the lowest loss comes after the former,
    notably below it, and the loss stayed there; None without both. An overfitted model's loss may
    also fall at the end, but from far above its minimum.
    """
    last = validations[-1:]
    before = [
        validation for validation in validations[:-1] if validation.step <= LATE * last[0].step
    ]
    compared = [*(before or validations[:-1])[-1:], *last]
    still_falling = None
    if len(compared) == 2:
        earlier = compared[0]
        lowest = min(validations, key=lambda validation: validation.loss)
        fell_late = lowest.step > earlier.step and earlier.loss - lowest.loss > NOTABLE
        still_falling = fell_late and last[0].loss - lowest.loss <= NOTABLE
    return {
        "passes": round(passes, 4),
        "last_validations": [validation._asdict() for validation in compared],
        "still_falling": still_falling,
    }
