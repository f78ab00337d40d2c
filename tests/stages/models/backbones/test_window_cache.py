"""Windows of imported models, read in pieces, by rows, and with inputs dropped again, against whole
windows.
"""

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor

from stages.models.backbone import Inputs, State
from stages.models.backbones.huggingface import HuggingFace, blocks_of
from stages.models.backbones.window_configs import HuggingFaceConfig
from tests.stages.pretrained.tiny import FAMILIES, D, V, imported, saved, tiny_model

pytest.importorskip("transformers")
WINDOWS_ONLY = {"recurrent_gemma"}
"""Families that read whole windows alone."""
ALONE = {"rwkv"}
"""Families whose rows do not join."""
DROPS_NOTHING = {
    *("mistral", "gemma2", "gemma3_text", "gpt_oss", "starcoder2", "olmo3"),  # windows have slid
    *("lfm2", "jamba", "mamba", "mamba2", "rwkv"),  # states are recurrent
}
IN_PIECES = [family for family in FAMILIES if family not in WINDOWS_ONLY]
LENGTH = 34


def backbone_of(family: str, **settings: object) -> HuggingFace:
    theirs = tiny_model(family, **settings)
    architecture = json.loads(theirs.config.to_json_string(use_diff=False))
    config = HuggingFaceConfig(width=D, vocab_size=V, architecture=architecture)
    backbone = HuggingFace(config).eval()
    backbone.model.load_state_dict(blocks_of(theirs).state_dict(), strict=False)
    return backbone


def embeddings(rows: int, family: str = "llama") -> Tensor:
    width = FAMILIES[family].get("word_embed_proj_dim", D)
    generator = torch.Generator().manual_seed(3)
    return torch.randn(rows, LENGTH, width, generator=generator)


def in_pieces(backbone: HuggingFace, embedded: Tensor, cuts: Sequence[int]) -> Tensor:
    """Hidden states of a window that is cut at these places."""
    state: State = {}
    hidden = []
    for start, stop in pairwise([0, *cuts, embedded.shape[1]]):
        encoding = backbone(Inputs(embedded[:, start:stop], state))
        state = encoding.state
        hidden.append(encoding.hidden)
    return torch.cat(hidden, 1)


@torch.no_grad()
@pytest.mark.parametrize("family", IN_PIECES)
def test_a_window_in_pieces_is_the_whole_window(family: str) -> None:
    backbone, embedded = backbone_of(family), embeddings(1, family)
    whole = backbone(Inputs(embedded))
    assert whole.state is None
    for cuts in ([1, 2, 4, 9, 10, 22], range(2, LENGTH)):
        found = in_pieces(backbone, embedded, cuts)
        torch.testing.assert_close(found, whole.hidden, rtol=0, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("family", [family for family in IN_PIECES if family not in ALONE])
def test_rows_of_unequal_length_are_read_together(family: str) -> None:
    """Each has its own hidden states, also when others leave."""
    backbone, embedded, lengths = backbone_of(family), embeddings(3, family), (3, 20, 11)
    whole = backbone(Inputs(embedded)).hidden
    begun = [
        backbone(Inputs(embedded[row : row + 1, :length], {})).state
        for row, length in enumerate(lengths)
    ]
    assert all(map(backbone.can_join, begun))
    state, rows, places = backbone.join(begun), [0, 1, 2], list(lengths)
    for step in range(10):
        if step == 4:
            state, rows = backbone.rows(state, [0, 2]), [0, 2]
        now = [places[row] for row in rows]
        encoding = backbone(Inputs(embedded[rows, now][:, None], state))
        state = encoding.state
        torch.testing.assert_close(encoding.hidden[:, 0], whole[rows, now], rtol=0, atol=1e-5)
        places = [place + 1 for place in places]


@torch.no_grad()
@pytest.mark.parametrize("family", IN_PIECES)
def test_inputs_are_dropped_or_it_is_said_that_they_cannot_be(family: str) -> None:
    backbone, embedded = backbone_of(family), embeddings(1, family)
    state = backbone(Inputs(embedded[:, :14], {})).state
    shorter = backbone.without_last(state, 5)
    assert (shorter is None) == (family in DROPS_NOTHING)
    if shorter is None:
        return
    found = backbone(Inputs(embedded[:, 9:], shorter)).hidden
    whole = backbone(Inputs(embedded)).hidden
    torch.testing.assert_close(found, whole[:, 9:], rtol=0, atol=1e-5)


@torch.no_grad()
def test_a_state_stays_as_it_was() -> None:
    for family in ("llama", "mamba", "rwkv"):
        backbone, embedded = backbone_of(family), embeddings(1, family)
        state = backbone(Inputs(embedded[:, :9], {})).state
        before = {name: tensor.clone() for name, tensor in state.items()}
        assert before
        backbone(Inputs(embedded[:, 9:12], state))
        for name, tensor in state.items():
            assert torch.equal(tensor, before[name])


def test_what_depends_on_the_length_of_a_window_is_read_in_windows() -> None:
    for family in WINDOWS_ONLY:
        assert not HuggingFaceConfig(architecture={"model_type": family}).in_pieces
    scaled = {"rope_parameters": {"full_attention": {"rope_type": "longrope"}}}
    assert not HuggingFaceConfig(architecture=scaled).in_pieces
    assert HuggingFaceConfig(architecture={"model_type": "llama"}).in_pieces


@torch.no_grad()
def test_the_token_before_every_window_is_read_once(tmp_path: Path) -> None:
    saved(tmp_path, "llama", bos=True)
    model = imported(tmp_path, prefix=1)
    for first in (1, 7):
        tokens = torch.tensor([[first, 8, 9, 10, 11]])
        whole = model.log_probs(model.encode(tokens).hidden[0])
        begun = model.encode(tokens[:, :2], {})
        rest = model.encode(tokens[:, 2:], begun.state)
        found = model.log_probs(torch.cat((begun.hidden, rest.hidden), 1)[0])
        torch.testing.assert_close(found, whole, rtol=0, atol=1e-5)
