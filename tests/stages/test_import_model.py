"""A pretrained model through every stage that reads models."""

import json

import pytest
import torch

from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.errors import ArtifactError, UsageError
from stages.evaluate import Evaluate, EvaluateConfig
from stages.evaluation.results.seed_groups import seed_of
from stages.import_model import ImportConfig, ImportModel
from stages.index import BuildIndex, IndexConfig
from stages.tokenize import Tokenize, TokenizeConfig
from stages.train import Train
from stages.training.config import TrainConfig
from tests.stages.pretrained.tiny import saved

pytest.importorskip("transformers")
WORDS = "the cat sat on the mat and the dog sat on the cat\n"


def made(store: Store, stage, config: StageConfig, **references):
    return make(stage, config, references, store, Execution(device="cpu")).artifact


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "pretrained", saved(tmp_path / "pretrained", "llama", bos=True)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def tokens(store, folder, tmp_path):
    for split, times in {"train": 40, "valid": 6, "test": 6}.items():
        (tmp_path / f"{split}.txt").write_text(WORDS * times)
    files = {split: [str(tmp_path / f"{split}.txt")] for split in ("train", "valid", "test")}
    return made(store, Tokenize(), TokenizeConfig(tokenizer="given"), source=[], tokenizer=str(folder[0]), **files)


@pytest.fixture
def model(store, folder, tokens):
    config = ImportConfig(segment_length=16)
    return made(store, ImportModel(), config, source=tokens.reference, checkpoint=str(folder[0]))


def test_scores_are_those_of_transformers_window_by_window(store, folder, tokens, model):
    report = made(store, Evaluate(), EvaluateConfig(save_token_scores=True), source=model.reference)
    ids = torch.from_numpy(tokens.zarr("tokens.zarr")["test/ids"][:].astype("int64"))
    inputs = torch.cat((torch.tensor([tokens.metrics["start_id"]]), ids[:-1]))
    prefix, wanted = torch.tensor([tokens.metrics["prefix_id"]]), []
    for start in range(0, len(ids), 16):
        window = torch.cat((prefix, inputs[start : start + 16]))
        with torch.no_grad():
            log_probs = folder[1](window[None]).logits[0, 1:].log_softmax(-1)
        wanted.append(log_probs.gather(1, ids[start : start + 16, None])[:, 0])
    scores = torch.from_numpy(report.zarr("scores.zarr")["logp_lm"][:])
    torch.testing.assert_close(scores, torch.cat(wanted), rtol=1e-4, atol=1e-4)


def test_later_stages_read_it_like_any_other(store, tokens, model):
    datastore = made(store, BuildDatastore(), DatastoreConfig(), source=model.reference)
    assert datastore.config["key"] == "ffn-input"
    index = made(store, BuildIndex(), IndexConfig(), source=datastore.reference)
    config = EvaluateConfig(memory=("knn-lm",))
    report = made(store, Evaluate(), config, source=index.reference)
    plain, knn = (row["perplexity"] for row in report.json("metrics.json")["rows"])
    assert knn < plain
    assert seed_of(report) == 0
    settings = {"steps": 2, "segment_length": 16, "batch_tokens": 32, "optimizer": {"lr": 1e-3}}
    for method in ("lm", "trime"):
        config = TrainConfig.model_validate({**settings, "method": method})
        further = made(store, Train(), config, source=tokens.reference, init_from=model.reference)
        assert further.config["model"] == model.config["model"]


def test_weights_of_half_precision_are_read_by_later_stages(store, tmp_path, folder, tokens):
    folder[1].bfloat16().save_pretrained(folder[0])
    config = ImportConfig(segment_length=16)
    half = made(store, ImportModel(), config, source=tokens.reference, checkpoint=str(folder[0]))
    report = made(store, Evaluate(), EvaluateConfig(), source=half.reference)
    assert report.metrics["rows"][0]["perplexity"] > 1
    settings = {"steps": 1, "segment_length": 16, "batch_tokens": 32, "valid_every": 0}
    config = TrainConfig.model_validate(settings)
    made(store, Train(), config, source=tokens.reference, init_from=half.reference)


def test_it_is_made_once_and_holds_no_path(store, folder, tokens, model, tmp_path):
    (tmp_path / "pretrained").rename(tmp_path / "moved")
    config = ImportConfig(segment_length=16)
    again = made(store, ImportModel(), config, source=tokens.reference, checkpoint=str(tmp_path / "moved"))
    assert again.reference == model.reference
    assert str(tmp_path) not in json.dumps(model.config)


def test_tokens_of_another_tokenizer_are_refused(store, folder, tmp_path):
    (tmp_path / "t.txt").write_text(WORDS * 30)
    other = made(store, Tokenize(), TokenizeConfig(tokenizer="char"), source=[], train=[str(tmp_path / "t.txt")])
    with pytest.raises(ArtifactError, match="was not made with the tokenizer of this model"):
        made(store, ImportModel(), ImportConfig(), source=other.reference, checkpoint=str(folder[0]))


def test_longer_windows_than_it_can_read_are_refused(store, folder, tokens):
    with pytest.raises(UsageError, match="--segment-length 40 is more than the 39 tokens"):
        config = ImportConfig(segment_length=40)
        made(store, ImportModel(), config, source=tokens.reference, checkpoint=str(folder[0]))
    with pytest.raises(UsageError, match="Which model"):
        made(store, ImportModel(), ImportConfig(), source=tokens.reference)


def test_it_is_not_trained_from_nothing(store, tokens):
    settings = {"steps": 1, "model": {"backbone": "huggingface"}}
    with pytest.raises(UsageError, match="is imported, not trained from nothing"):
        made(store, Train(), TrainConfig.model_validate(settings), source=tokens.reference)
