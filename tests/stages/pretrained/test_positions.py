"""Positions of imported models: every scaling that transformers knows, in every family."""

import json
from typing import Any

import pytest
import torch

from stages.models.config import parse_model
from stages.models.language_model import unfilled_model
from stages.pretrained.checkpoint import computed_buffers
from stages.pretrained.location import locate
from stages.pretrained.model import describe
from tests.stages.pretrained.tiny import FAMILIES, V, imported, saved

transformers = pytest.importorskip("transformers")

SHORT = {"original_max_position_embeddings": 16}
SCALINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": 4.0, **SHORT},
    "longrope": {"factor": 4.0, **SHORT},
    "llama3": {"factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **SHORT},
    "proportional": {"partial_rotary_factor": 0.5},
}
REFUSED = {
    ("mixtral", "dynamic"),
    ("mixtral", "yarn"),
    ("mixtral", "longrope"),
    ("gpt_neox", "dynamic"),
    ("stablelm", "dynamic"),
    *(("phi3", scaling) for scaling in SCALINGS if scaling not in ("default", "longrope")),
    *(("recurrent_gemma", scaling) for scaling in SCALINGS if scaling != "default"),
}
"""Variants that transformers itself does not build at this size, or at any."""


def settings_of(family: str, scaling: str) -> Any:
    """Settings of a tiny model with a scaling; None if the family has no rotations."""
    own = {"vocab_size": V, **FAMILIES[family]}
    usual = transformers.AutoConfig.for_model(family, **own)
    parameters = getattr(usual, "rope_parameters", None)
    if parameters is None:
        return usual if scaling == "default" else None
    nested = any(isinstance(value, dict) for value in parameters.values())
    layers = parameters if nested else {"all": parameters}
    scaled = {name: scaled_layer(usual, layer, scaling) for name, layer in layers.items()}
    return transformers.AutoConfig.for_model(
        family, **own, rope_parameters=scaled if nested else scaled["all"]
    )


def scaled_layer(usual: Any, layer: dict[str, Any], scaling: str) -> dict[str, Any]:
    """Rotations of a kind of layer with a scaling."""
    same = {name: layer[name] for name in ("rope_theta", "partial_rotary_factor") if name in layer}
    scaled = {**same, "rope_type": scaling, **SCALINGS[scaling]}
    if scaling == "longrope":
        heads = usual.num_attention_heads
        dimensions = getattr(usual, "head_dim", None) or usual.hidden_size // heads
        pairs = int(dimensions * scaled.get("partial_rotary_factor", 1.0)) // 2
        scaled["short_factor"] = [1.0 + pair for pair in range(pairs)]
        scaled["long_factor"] = [2.0 + pair for pair in range(pairs)]
    return scaled


def test_all_scalings_of_the_installed_transformers_are_tried() -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    assert {"default", *ROPE_INIT_FUNCTIONS} == SCALINGS.keys()


@pytest.mark.parametrize("family", FAMILIES)
def test_buffers_of_an_unfilled_model_are_those_of_transformers(family: str) -> None:
    for scaling in SCALINGS:
        if (family, scaling) in REFUSED:
            continue
        settings = settings_of(family, scaling)
        if settings is None:
            continue
        theirs = transformers.AutoModelForCausalLM.from_config(settings).base_model
        expected = computed_buffers(theirs)
        architecture = json.loads(settings.to_json_string(use_diff=False))
        width = theirs.get_input_embeddings().weight.shape[1]
        config = parse_model(
            {
                "backbone": "huggingface",
                "architecture": architecture,
                "vocab_size": V,
                "width": width,
            }
        )
        blocks: Any = unfilled_model(config).backbone.model
        for name, buffer in computed_buffers(blocks).items():
            assert torch.equal(buffer, expected[name]), (scaling, name)


@torch.no_grad()
@pytest.mark.parametrize("scaling", SCALINGS)
@pytest.mark.parametrize("family", ["llama", "gemma3_text", "falcon"])
def test_long_windows_are_scored_as_by_transformers(tmp_path, family, scaling) -> None:
    rotations = settings_of(family, scaling).rope_parameters
    theirs = saved(tmp_path, family, rope_parameters=rotations)
    ours = imported(tmp_path)
    tokens = torch.randint(V, (2, 40), generator=torch.Generator().manual_seed(1))
    expected = theirs(tokens).logits.log_softmax(-1).flatten(0, 1)
    log_probs = ours.log_probs(ours.encode(tokens).hidden.flatten(0, 1))
    torch.testing.assert_close(log_probs, expected, rtol=1e-4, atol=1e-4)


def test_a_model_with_scaling_has_another_id_than_one_that_dropped_it(tmp_path) -> None:
    saved(
        tmp_path / "linear", "llama", rope_parameters=settings_of("llama", "linear").rope_parameters
    )
    saved(tmp_path / "usual", "llama")
    scaled = describe(locate(str(tmp_path / "linear")), None)
    usual = describe(locate(str(tmp_path / "usual")), None)
    assert scaled.scaled_positions and not usual.scaled_positions
