"""A pretrained model through every stage that reads models."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.errors import ArtifactError, DataError, ResourceError, UsageError
from stages.evaluate import Evaluate, EvaluateConfig
from stages.evaluation.figures.seed_groups import seed_of
from stages.export.export import export
from stages.import_model import ImportConfig, ImportModel
from stages.index import BuildIndex, IndexConfig
from stages.neighbors import NeighborsConfig, PrecomputeNeighbors
from stages.reporting import Silent
from stages.tokenize import Tokenize, TokenizeConfig
from stages.train import Train
from stages.training.config import TrainConfig
from stages.training.presets import choose_preset
from stages.training.resolve import PASSES_OF_IMPORTED
from tests.stages.notes import Notes
from tests.stages.pretrained.tiny import saved

pytest.importorskip("transformers")
WORDS = "the cat sat on the mat and the dog sat on the cat\n"


def made(store: Store, stage, config: StageConfig, *, reporter=None, **references):
    execution = Execution(device="cpu", reporter=reporter or Silent(), checkpoint_seconds=0)
    return make(stage, config, references, store, execution).artifact


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
    return made(
        store,
        Tokenize(),
        TokenizeConfig(tokenizer="given"),
        source=[],
        tokenizer=str(folder[0]),
        **files,
    )


@pytest.fixture
def model(store, folder, tokens):
    config = ImportConfig(segment_length=16)
    return made(store, ImportModel(), config, source=tokens.reference, checkpoint=str(folder[0]))


def test_scores_are_those_of_transformers_window_by_window(store, folder, tokens, model):
    report = made(store, Evaluate(), EvaluateConfig(save_token_scores=True), source=model.reference)
    ids = torch.from_numpy(tokens.zarr("tokens.zarr")["test/ids"][:].astype("int64"))
    inputs = torch.cat((torch.tensor([tokens.metrics["start_id"]]), ids[:-1]))
    prefix, wanted = torch.tensor([tokens.metrics["prefix_id"]]), []
    assert inputs[0] == prefix  # the first window begins with it, and gets no second one
    for start in range(0, len(ids), 16):
        before = prefix[:start]
        window = torch.cat((before, inputs[start : start + 16]))
        with torch.no_grad():
            log_probs = folder[1](window[None]).logits[0, len(before) :].log_softmax(-1)
        wanted.append(log_probs.gather(1, ids[start : start + 16, None])[:, 0])
    scores = torch.from_numpy(report.zarr("scores.zarr")["logp_lm"][:])
    torch.testing.assert_close(scores, torch.cat(wanted), rtol=1e-4, atol=1e-4)


def test_a_model_that_memory_cannot_hold_is_refused_before_it_is_read(
    store, folder, tokens, monkeypatch
):
    monkeypatch.setattr("stages.pretrained.work.memory_bytes", lambda: 10_000)
    with pytest.raises(ResourceError, match=r"takes \S+ kB of memory.*this machine has 10\.0 kB"):
        made(
            store, ImportModel(), ImportConfig(), source=tokens.reference, checkpoint=str(folder[0])
        )
    assert not list(store.root.glob("model/.*-partial"))


def test_later_stages_read_it_like_any_other(store, tokens, model):
    datastore = made(store, BuildDatastore(), DatastoreConfig(), source=model.reference)
    assert datastore.config["key"] == "ffn-input"
    index = made(store, BuildIndex(), IndexConfig(), source=datastore.reference)
    config = EvaluateConfig(memory=("knn-lm",))
    report = made(store, Evaluate(), config, source=index.reference)
    plain, knn = (row["perplexity"] for row in report.json("metrics.json")["rows"])
    assert knn < plain
    assert seed_of(report) == 0


def trained(store, method, source, *, more=None, reporter=None, **references):
    settings = {
        "steps": 2,
        "segment_length": 16,
        "batch_tokens": 64,
        "optimizer": {"lr": 1e-3},
        "method": method,
    }
    settings |= more or {}
    references = {
        role: artifact.reference for role, artifact in {"source": source, **references}.items()
    }
    return made(
        store, Train(), TrainConfig.model_validate(settings), reporter=reporter, **references
    )


def perplexities(store, source, **settings):
    report = made(store, Evaluate(), EvaluateConfig(**settings), source=source.reference)
    return [row["perplexity"] for row in report.json("metrics.json")["rows"]]


@pytest.mark.parametrize("method", ["lm", "trime", "trime-long", "trime-ext"])
def test_it_is_trained_further_and_read_as_it_was_trained(store, tokens, model, method):
    further = trained(store, method, tokens, init_from=model)
    assert further.config["model"] == model.config["model"]
    rows = perplexities(store, further)
    assert len(rows) == (1 if method == "lm" else 2) and all(1 < row < 1000 for row in rows)


@pytest.mark.parametrize("method", ["lm", "trime", "spalm"])
def test_factors_learn_in_place_of_its_weights(store, tokens, model, neighbors, method):
    source = neighbors if method == "spalm" else tokens
    further = trained(store, method, source, init_from=model, more={"lora": 2})
    own = load_file(model.file("model.safetensors"))
    learned = load_file(further.file("last.safetensors"))
    changed = {name for name in own if not torch.equal(own[name].float(), learned[name].float())}
    assert changed and all(name.endswith("_proj.weight") for name in changed)
    assert learned.keys() - own.keys() == ({"gate.weight"} if method == "spalm" else set())
    assert 1 < perplexities(store, further)[0] < 10_000


def test_factors_that_were_interrupted_end_as_if_they_were_not(store, tokens, model, tmp_path):
    class Interrupt(Silent):
        def progress(self, done, total, unit, **figures):
            if done == 2:
                raise KeyboardInterrupt

    more = {"lora": 2, "steps": 4, "valid_every": 1}
    with pytest.raises(KeyboardInterrupt):
        trained(store, "lm", tokens, init_from=model, more=more, reporter=Interrupt())
    resumed = trained(store, "lm", tokens, init_from=model, more=more)
    digest = resumed.digest
    shutil.rmtree(resumed.path)
    assert trained(store, "lm", tokens, init_from=model, more=more).digest == digest


def test_without_a_model_to_begin_from_there_is_nothing_for_factors(store, tokens):
    with pytest.raises(UsageError, match="--init-from"):
        trained(store, "lm", tokens, more={"lora": 2})


def test_factors_stand_beside_no_layer_that_reads_its_matrices_itself(store, tokens):
    own = {
        "model": {
            "backbone": "transformer-xl",
            "layers": 1,
            "width": 16,
            "heads": 2,
            "ffn_width": 16,
        }
    }
    begun = trained(store, "lm", tokens, more=own)
    with pytest.raises(UsageError, match="--lora is for the backbones"):
        trained(
            store,
            "lm",
            tokens,
            init_from=begun,
            more={"lora": 2, "model": {"backbone": "transformer-xl"}},
        )


def test_its_passes_are_few_and_its_steps_small(store, tokens, model):
    preset = choose_preset(None, "huggingface")
    assert preset["optimizer"]["lr"] == 1e-4
    further = trained(store, "lm", tokens, init_from=model, more={"steps": "auto"})
    assert further.metrics["passes"] == pytest.approx(PASSES_OF_IMPORTED, rel=0.1)


@pytest.fixture
def neighbors(store, model):
    datastore = made(store, BuildDatastore(), DatastoreConfig(key="hidden"), source=model.reference)
    index = made(store, BuildIndex(), IndexConfig(metric="ip"), source=datastore.reference)
    return made(store, PrecomputeNeighbors(), NeighborsConfig(k=4), source=index.reference)


def test_it_finds_the_neighbours_that_spalm_reads(store, model, neighbors):
    """Of a small Transformer beside it, and of the imported model itself, which gets a gate."""
    beside = trained(store, "spalm", neighbors)
    assert beside.config["model"]["backbone"] == "transformer"
    itself = trained(store, "spalm", neighbors, init_from=model)
    assert itself.config["model"]["gate"] == "vector" and itself.config["model"]["architecture"]
    for gated in (beside, itself):
        assert all(1 < row < 10_000 for row in perplexities(store, gated))
        with pytest.raises(UsageError, match="SPALM"):
            export(gated, store.root / "out")


def test_a_model_without_feed_forward_blocks_is_searched_by_its_hidden_states(
    store, tokens, tmp_path
):
    saved(tmp_path / "mamba", "mamba", bos=True)
    config = ImportConfig(segment_length=16)
    mamba = made(
        store, ImportModel(), config, source=tokens.reference, checkpoint=str(tmp_path / "mamba")
    )
    assert (
        made(store, BuildDatastore(), DatastoreConfig(), source=mamba.reference).config["key"]
        == "hidden"
    )
    assert trained(store, "trime", tokens, init_from=mamba).config["memory"]["key"] == "hidden"
    with pytest.raises(UsageError, match=r"has no key 'ffn-input'; it has: hidden"):
        made(store, BuildDatastore(), DatastoreConfig(key="ffn-input"), source=mamba.reference)


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
    again = made(
        store, ImportModel(), config, source=tokens.reference, checkpoint=str(tmp_path / "moved")
    )
    assert again.reference == model.reference
    assert str(tmp_path) not in json.dumps(model.config)


def test_tokens_of_another_tokenizer_are_refused(store, folder, tmp_path):
    (tmp_path / "t.txt").write_text(WORDS * 30)
    other = made(
        store,
        Tokenize(),
        TokenizeConfig(tokenizer="char"),
        source=[],
        train=[str(tmp_path / "t.txt")],
    )
    with pytest.raises(ArtifactError, match="was not made with the tokenizer of this model"):
        made(
            store, ImportModel(), ImportConfig(), source=other.reference, checkpoint=str(folder[0])
        )


@pytest.mark.parametrize("there", [True, False])
def test_where_a_model_has_no_tokenizer_it_is_said_that_tokens_could_not_be_checked(
    store, folder, tokens, there
):
    notes = Notes()
    if not there:
        (folder[0] / "tokenizer.json").unlink()
    references = {"source": tokens.reference, "checkpoint": str(folder[0])}
    made(store, ImportModel(), ImportConfig(segment_length=8), reporter=notes, **references)
    assert len(notes.warnings) == (0 if there else 1)
    assert there or tokens.reference in notes.warnings[0]


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


def test_an_id_names_the_weights_that_are_read(store, folder, tokens, model):
    """Weights beside those that are hashed, named in config.json, would be read by transformers."""
    other = saved(folder[0].parent / "other", "llama", bos=True)
    with torch.no_grad():
        other.get_input_embeddings().weight.add_(1.0)
    other.save_pretrained(folder[0].parent / "other")
    shutil.copyfile(
        folder[0].parent / "other" / "model.safetensors", folder[0] / "other.safetensors"
    )
    settings = json.loads((folder[0] / "config.json").read_text())
    (folder[0] / "config.json").write_text(
        json.dumps({**settings, "transformers_weights": "other.safetensors"})
    )
    with pytest.raises(DataError, match="sends transformers to other files"):
        made(
            store,
            ImportModel(),
            ImportConfig(segment_length=16),
            source=tokens.reference,
            checkpoint=str(folder[0]),
        )
