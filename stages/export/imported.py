"""Export of an imported model: in the form in which it came, with its present weights."""

from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from stages.artifacts.artifact import Artifact
from stages.errors import ArtifactError, UsageError
from stages.export.folder import Form
from stages.models.backbones.huggingface import causal_model
from stages.models.backbones.window_configs import HuggingFaceConfig
from stages.models.config import model_of
from stages.models.language_model import LanguageModel
from stages.models.vocabulary import FullVocabulary
from stages.models.weights import load_model
from stages.pretrained.damage import quiet
from stages.pretrained.scores import TOLERANCE, largest_difference, scores_of

BLOCKS = "backbone.model."
"""Prefix of the names of all weights between the embeddings and the softmax."""


def write_imported(model: Artifact, positions: int | None, folder: Path) -> Form:
    """Write what the `save_pretrained` of transformers writes, in the precision of the weights in the store.

    Raises: UsageError if positions are asked for; ArtifactError if transformers would compute other scores.
    """
    config = model_of(model)
    assert isinstance(config, HuggingFaceConfig)
    if positions is not None:
        raise UsageError(f"{model.reference} has positions of its own: leave --positions out.")
    ours = load_model(model.path, "cpu")
    with quiet():
        causal = causal_model(config.architecture).eval()
        causal.load_state_dict(_weights(causal, ours), assign=True)
        causal.tie_weights()
        difference = largest_difference(ours, scores_of(causal))
        if not difference < TOLERANCE:
            raise ArtifactError(
                f"transformers would make other scores of {model.reference} (by {difference:.2g} nats): it was "
                "imported by another version of memlm or transformers; import the model again."
            )
        causal.to(_precision(model)).save_pretrained(folder)
    return Form(type(causal).__name__, config.reads.longest_context)


def _weights(causal: Any, ours: LanguageModel) -> dict[str, Tensor]:
    """The weights of a memlm model, by the names that they have in a causal model of transformers."""
    vocabulary = ours.vocabulary
    assert isinstance(vocabulary, FullVocabulary)
    named = {id(module): name for name, module in causal.named_modules()}
    lookup, head = (named[id(side)] for side in (causal.get_input_embeddings(), causal.get_output_embeddings()))
    weights = {
        f"{causal.base_model_prefix}.{name.removeprefix(BLOCKS)}": tensor
        for name, tensor in ours.state_dict().items()
        if name.startswith(BLOCKS)
    }
    weights |= {f"{lookup}.weight": vocabulary.embedding, f"{head}.weight": vocabulary.output_weight}
    return weights if vocabulary.bias is None else weights | {f"{head}.bias": vocabulary.bias}


def _precision(model: Artifact) -> torch.dtype:
    """The precision in which the weights of the blocks are stored."""
    with safe_open(model.file("model.safetensors"), "pt") as weights:
        first = next(name for name in weights.keys() if name.startswith(BLOCKS))  # noqa: SIM118
        dtype: torch.dtype = weights.get_tensor(first).dtype
        return dtype
