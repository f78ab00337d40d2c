"""Classes of transformers that memlm cannot take apart."""

import pytest

from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.errors import DataError
from stages.import_model import ImportConfig, ImportModel
from stages.tokenize import Tokenize, TokenizeConfig
from tests.stages.pretrained.tiny import TRANSLATORS, saved

pytest.importorskip("transformers")


@pytest.mark.parametrize("family", ["bart", "codegen"])
def test_a_decoder_that_cannot_be_taken_apart_is_refused_in_a_sentence(tmp_path, family):
    if family == "bart":
        settings = {**TRANSLATORS["bart"], "is_decoder": True, "is_encoder_decoder": False}
    else:  # its rotations are wider than its heads
        settings = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40}
    saved(tmp_path / "model", family, **settings)
    (tmp_path / "train.txt").write_text("the cat sat on the mat\n")
    store = Store(tmp_path / "store")
    config = TokenizeConfig(tokenizer="given")
    references = {"source": [], "tokenizer": str(tmp_path / "model")}
    files = {"train": [str(tmp_path / "train.txt")]}
    tokens = make(Tokenize(), config, references | files, store, Execution()).artifact
    wanted = {"source": tokens.reference, "checkpoint": str(tmp_path / "model")}
    with pytest.raises(DataError, match=r"The model of .* cannot be read: "):
        make(ImportModel(), ImportConfig(), wanted, store, Execution(device="cpu"))
