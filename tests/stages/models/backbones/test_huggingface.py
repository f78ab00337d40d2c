"""An imported model keeps the contract of every backbone."""

import json

import pytest
import torch

from stages.models.config import parse_model
from stages.models.language_model import LanguageModel
from tests.stages.models.backbones.contract import BackboneContract, D, V
from tests.stages.pretrained.tiny import FAMILIES, tiny_model

pytest.importorskip("transformers")
LLAMA = {
    "backbone": "huggingface",
    "width": D,
    "vocab_size": V,
    "last_ffn": "layers.1.mlp",
    "max_positions": 40,
}


class TestHuggingFace(BackboneContract):
    @pytest.fixture
    def backbone(self):
        return "huggingface"

    @pytest.fixture
    def theirs(self):
        return tiny_model("llama", **FAMILIES["llama"] | {"vocab_size": V, "hidden_size": D})

    @pytest.fixture
    def config(self, theirs):
        return parse_model(
            LLAMA | {"architecture": json.loads(theirs.config.to_json_string(use_diff=False))}
        )

    @pytest.fixture
    def model(self, config, theirs):
        """Weights of the blocks are loaded, and undefined before."""
        torch.manual_seed(0)
        model = LanguageModel(config)
        model.backbone.model.load_state_dict(theirs.model.state_dict(), strict=False)
        return model.eval()
