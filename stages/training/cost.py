"""What training a model costs, by arithmetic: its files, checkpoints, and what memory must hold."""

from typing import Any

from stages.artifacts.cost import Cost, Effort
from stages.artifacts.stage import Inputs
from stages.methods.config import TRAIN
from stages.training.config import TrainConfig
from stages.training.materials import mapped_bytes
from stages.training.room import NUMBER, factor_numbers, training_bytes

MOST_MOMENTS = 2
"""Of the gradient of a number that learns, which a checkpoint holds beside it."""
SMALL = "config.json"
SMALL_BYTES = 6_000
"""Settings, journal and logs, about."""


def cost(config: TrainConfig, inputs: Inputs) -> Cost:
    """Of training with resolved settings."""
    saved, parameters = saved_bytes(config)
    return Cost(
        files={"model.safetensors": saved, "last.safetensors": saved, SMALL: SMALL_BYTES},
        metrics={
            "parameters": parameters,
            "steps": config.steps,
            "tokens": int(config.steps) * update_tokens(config, inputs),
        },
        scratch=mapped_bytes(inputs, config) + 2 * checkpoint_bytes(config, inputs, saved),
        memory=training_bytes(config, config.model, segments(config, inputs)),
        host=checkpoint_bytes(config, inputs, saved),
        remedy="a smaller model",
        gpu_remedy="smaller --batch-tokens with --accumulate, or a smaller model",
    )


def effort(config: TrainConfig, inputs: Inputs, metrics: Any) -> Effort:
    """In tokens that updates read."""
    kin = config.model_dump(include={"method", "memory", "segment_length", "batch_tokens", "precision", "lora"})
    kin["model"] = {name: value for name, value in config.model.model_dump().items() if "dropout" not in name}
    return Effort(metrics["tokens"], "tokens", kin)


def saved_bytes(config: TrainConfig) -> tuple[int, int]:
    """Bytes of a file of weights, and how many numbers of it are learnt."""
    import torch

    from stages.models.language_model import LanguageModel

    with torch.device("meta"):
        model = LanguageModel(config.model)
        held = {id(tensor): tensor for tensor in model.state_dict(keep_vars=True).values()}
        learnt = sum(parameter.numel() for parameter in model.parameters())
    return sum(tensor.numel() * tensor.element_size() for tensor in held.values()), learnt


def checkpoint_bytes(config: TrainConfig, inputs: Inputs, weight_bytes: int) -> int:
    """All weights, the moments of those that learn, and what the streams of a batch carry to the next."""
    carried = _carried_bytes(config, inputs)
    if config.lora is None:
        return (1 + MOST_MOMENTS) * weight_bytes + carried
    return weight_bytes + (1 + MOST_MOMENTS) * NUMBER * factor_numbers(config.model, config.lora) + carried


def _carried_bytes(config: TrainConfig, inputs: Inputs) -> int:
    """Of the states of a batch's streams."""
    if not config.model.carries_state:
        return 0
    batch = min(config.batch_segments, max(1, segments(config, inputs)))
    return batch * sum(array.nbytes for array in config.model.state_spec(config.segment_length))


def segments(config: TrainConfig, inputs: Inputs) -> int:
    """Whole segments of the training split."""
    return int(inputs["tokens"].metrics["splits"][TRAIN]["tokens"]) // config.segment_length


def update_tokens(config: TrainConfig, inputs: Inputs) -> int:
    """Tokens that one update reads."""
    batch = min(config.batch_segments, max(1, segments(config, inputs)))
    return batch * config.segment_length * config.accumulate
