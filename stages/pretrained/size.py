"""How large a pretrained model is once it is imported, found without reading its weights."""

from typing import NamedTuple

import torch

from stages.models.language_model import LanguageModel
from stages.pretrained.damage import reading
from stages.pretrained.imported import Imported
from stages.pretrained.location import Location

FULL = torch.float32
TABLES = ("vocabulary.embedding", "vocabulary.output")


class ModelSize(NamedTuple):
    """Size of a model as it is stored."""

    parameters: int
    bytes: int
    memory: int
    """Bytes of memory that reading it takes at the least: transformers' model and what is stored, both in float32
    while their scores are compared, and the weights as they are stored."""


def model_size(location: Location, config: Imported) -> ModelSize:
    """The size of what `read_weights` gives, by its settings and the types of its weights alone."""
    with torch.device("meta"):
        weights = LanguageModel(config).state_dict()
    dtype = _stored_type(location, config)
    kept = {name: FULL if name in TABLES and not config.tied else dtype for name in weights}
    parameters = sum(weight.numel() for weight in weights.values())
    stored = sum(weight.numel() * kept[name].itemsize for name, weight in weights.items())
    compared = sum(weight.numel() * FULL.itemsize for name, weight in weights.items() if kept[name] != FULL)
    return ModelSize(parameters, stored, parameters * FULL.itemsize + stored + compared)


def _stored_type(location: Location, config: Imported) -> torch.dtype:
    """Resolve `dtype="auto"` of transformers: the type in the settings, else that of the first weights."""
    named = config.architecture.get("dtype")
    if named is None and location.gguf is None:
        named = _first_type(location)
    found = getattr(torch, str(named), FULL)
    return found if isinstance(found, torch.dtype) else FULL


def _first_type(location: Location) -> str:
    from safetensors import safe_open

    file = next(path for path in location.weights() if path.suffix == ".safetensors")
    with reading(location, "model"), safe_open(file, framework="pt") as opened:
        types = (opened.get_slice(name).get_dtype() for name in opened.keys())  # noqa: SIM118
        return {"F16": "float16", "BF16": "bfloat16"}.get(next(types, ""), "float32")
