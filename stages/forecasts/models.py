"""Forecasts of models: imported, trained, evaluated on text and on tasks; and of the keys of
documents.
"""

import json
from collections.abc import Mapping
from typing import Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.stage import Inputs
from stages.encoding.window_settings import state_bytes
from stages.evaluation.config import EvaluateConfig
from stages.evaluation.figures.control import MOST_TOKENS
from stages.forecasts import Cost, Forecast, Work
from stages.import_model import ImportConfig, pretrained_size
from stages.lineage.indexes import EXACT
from stages.methods.config import after_file
from stages.methods.stream.config import TaskSettings
from stages.models.config import model_of, shape_of
from stages.search.automatic import memory_to_search
from stages.suffixes import AT_ONCE
from stages.suffixes.indexing import SORTING_BYTES, opened_bytes
from stages.tasks.config import Adaptation, EvaluateTasksConfig
from stages.tasks.episodes import EpisodesConfig, key_width, layouts
from stages.tasks.plan import plan_stream
from stages.training.config import TrainConfig
from stages.training.sizes import (
    checkpoint_bytes,
    saved_bytes,
    segments,
    training_bytes,
    update_tokens,
)
from stages.training.training_data import mapped_bytes


class EvaluateForecast(Forecast[EvaluateConfig]):
    """The size of a report depends on what it shows, so it is not known."""

    def cost(self, config: EvaluateConfig, inputs: Inputs) -> Cost:
        tokens = inputs["tokens"].metrics["splits"][config.split]["tokens"]
        state, index = state_bytes(inputs["model"], config.windows, tokens), _searched(inputs)
        search = (
            None
            if index is None
            else memory_to_search(index.config["index"], index.metrics.get("bytes"))
        )
        exact = opened_bytes(int(inputs[EXACT].metrics["rows"])) if EXACT in inputs else 0
        matched = exact + matching_memory(inputs)
        beside_the_model = state + (search or 0) + matched
        return Cost(
            metrics={"tokens": tokens},
            memory=4 * int(inputs["model"].metrics["parameters"]) + beside_the_model,
            beside_a_gpu=matched,
            host=beside_the_model,
        )

    def work(self, config: EvaluateConfig, inputs: Inputs, metrics: Mapping[str, Any]) -> Work:
        """Count the tokens of the scored split and of the tuning split."""
        splits = inputs["tokens"].metrics["splits"]
        read = [split for split in (config.split, config.tune_split) if split is not None]
        index = _searched(inputs)
        signature = config.model_dump(exclude={"split", "passage", "exclude"})
        signature |= {"model": shape_of(inputs["model"]), "index": index and index.config["index"]}
        rows = 0 if index is None else int(index.metrics["rows"])
        return Work(
            sum(int(splits[split]["tokens"]) for split in read), "tokens", signature, scale=rows
        )


def _searched(inputs: Inputs) -> Artifact | None:
    return inputs["index"] if "index" in inputs and "neighbors" not in inputs else None


def matching_memory(inputs: Inputs) -> int:
    """Bytes of the buffer that sorts a part of the readable texts, to find passages of the split
    there.
    """
    splits = inputs["tokens"].metrics["splits"]
    texts = [splits["train"]["tokens"] if "train" in splits else 0]
    texts += [inputs[role].metrics["rows"] for role in ("datastore", EXACT) if role in inputs]
    return SORTING_BYTES * min(max(texts), AT_ONCE) if sum(texts) <= MOST_TOKENS else 0


SMALL_BYTES = 6_000
"""Settings, journal and logs, about."""


class TrainForecast(Forecast[TrainConfig]):
    """Shapes of the weights are read on the meta device; nothing is allocated."""

    def cost(self, config: TrainConfig, inputs: Inputs) -> Cost:
        saved, parameters = saved_bytes(config)
        checkpoint = checkpoint_bytes(config, inputs, saved)
        return Cost(
            files={
                **{
                    "model.safetensors": saved,
                    "last.safetensors": saved,
                    "config.json": SMALL_BYTES,
                },
                **_after_each(config, saved),
            },
            metrics={
                "parameters": parameters,
                "steps": config.steps,
                "tokens": int(config.steps) * update_tokens(config, inputs),
            },
            # The previous checkpoint is kept until the next is complete.
            scratch=mapped_bytes(inputs, config) + 2 * checkpoint,
            memory=training_bytes(config, config.model, segments(config, inputs["tokens"])),
            host=checkpoint,
            remedy="smaller --batch-tokens with --accumulate, or a smaller model",
        )

    def work(self, config: TrainConfig, inputs: Inputs, metrics: Mapping[str, Any]) -> Work:
        """Count the tokens that updates read."""
        settings = {"method", "memory", "segment_length", "batch_tokens", "precision", "lora"}
        signature = config.model_dump(include=settings)
        signature["model"] = {
            name: value
            for name, value in config.model.model_dump().items()
            if "dropout" not in name
        }
        return Work(metrics["tokens"], "tokens", signature)


def _after_each(config: TrainConfig, saved: int) -> dict[str, int]:
    """Bytes of the weights after each task; `saved`: of those after the last."""
    settings = config.method_settings
    if config.order is None or not isinstance(settings, TaskSettings):
        return {}
    sizes = [
        settings.sizes_in(config.model, max(0, place - 1)) for place in range(len(config.order) + 1)
    ]
    return {
        after_file(place): saved
        if model == config.model
        else saved_bytes(config.model_copy(update={"model": model}))[0]
        for place, model in enumerate(sizes)
    }


class EvaluateTasksForecast(Forecast[EvaluateTasksConfig]):
    """The work is the examples that are read; the artifact is small."""

    def cost(self, config: EvaluateTasksConfig, inputs: Inputs) -> Cost:
        """Memory: weights, with a copy and gradients if a reading adapts them; keys, and the part
        of them in memory.
        """
        weights = 4 * int(inputs["model"].metrics["parameters"])
        needed = weights * (
            3 if any(isinstance(reading, Adaptation) for reading in config.readings) else 1
        )
        if "episodes" in inputs:
            episodes = inputs["episodes"]
            needed += 4 * int(episodes.input("encoder").metrics["parameters"])
            needed += 2 * 4 * int(episodes.metrics["rows"]) * int(episodes.metrics["dim"])
        return Cost(memory=needed)

    def work(self, config: EvaluateTasksConfig, inputs: Inputs, metrics: Mapping[str, Any]) -> Work:
        plan = plan_stream(config, inputs["model"], inputs["tokens"])
        signature = {"model": shape_of(inputs["model"]), "memory": config.memory}
        return Work(len(plan.places) * sum(plan.counts), "examples", signature)


class ImportForecast(Forecast[ImportConfig]):
    """Sizes are read from the headers of the pretrained files."""

    def cost(self, config: ImportConfig, inputs: Inputs) -> Cost:
        found = pretrained_size(config, inputs)
        settings = len(json.dumps(config.stored()["model"], indent=2))
        return Cost(
            files={"model.safetensors": found.bytes, "config.json": settings},
            metrics={"parameters": found.parameters},
            scratch=0,
            memory=found.memory,
            remedy="a smaller model",
        )

    def work(self, config: ImportConfig, inputs: Inputs, metrics: Mapping[str, Any]) -> Work:
        """Work like that of models with the same settings alone: time depends on how weights are
        packed.
        """
        return Work(metrics["parameters"], "weights", config.model_dump(include={"model"}))


class EpisodesForecast(Forecast[EpisodesConfig]):
    """The arrays by arithmetic; the work is the documents that are read."""

    def cost(self, config: EpisodesConfig, inputs: Inputs) -> Cost:
        rows = _documents(config, inputs)
        dim = key_width(model_of(inputs["encoder"]), config)
        return Cost(
            files={layout.name: layout.stored_bytes for layout in layouts(rows, dim)},
            metrics={"rows": rows, "dim": dim},
            memory=4 * int(inputs["encoder"].metrics["parameters"]),
        )

    def work(self, config: EpisodesConfig, inputs: Inputs, metrics: Mapping[str, Any]) -> Work:
        signature = {"model": shape_of(inputs["encoder"]), "length": config.length}
        return Work(_documents(config, inputs), "documents", signature)


def _documents(config: EpisodesConfig, inputs: Inputs) -> int:
    return int(inputs["corpus"].metrics["splits"][config.split]["documents"])
