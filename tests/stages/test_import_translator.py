"""A pretrained encoder-decoder, from pairs of sentences to a datastore and a perplexity."""

import numpy as np
import pytest
import torch

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.errors import ArtifactError, UsageError
from stages.evaluate import Evaluate
from stages.evaluation.config import EvaluateConfig
from stages.import_model import ImportConfig, ImportModel
from stages.index import BuildIndex, IndexConfig
from tests.stages.pretrained.tiny import saved, saved_translator
from tests.stages.small_pairs import imported_translator, pair_tokens

pytest.importorskip("transformers")
PAIRS = {
    "train": [
        ("ein Hund", "a dog"),
        ("zwei Hunde laufen schnell", "two dogs run fast"),
        ("nein", "no"),
    ]
    * 8,
    "valid": [("zwei Hunde", "two dogs")] * 3,
    "test": [("ein Hund läuft", "a dog runs"), ("ja", "yes"), ("nein nein", "no no no no")],
}


def made(store: Store, stage, config, **references) -> Artifact:
    return make(
        stage, config, references, store, Execution(device="cpu", checkpoint_seconds=0)
    ).artifact


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("translator")


@pytest.fixture(scope="module")
def theirs(folder):
    return saved_translator(folder / "pretrained", "marian")


@pytest.fixture(scope="module")
def store(folder):
    return Store(folder / "store")


@pytest.fixture(scope="module")
def tokens(store, folder, theirs):
    return pair_tokens(store, folder / "pretrained", PAIRS)


@pytest.fixture(scope="module")
def model(store, folder, tokens):
    return imported_translator(store, folder / "pretrained", tokens)


def test_scores_and_keys_are_those_of_transformers_pair_by_pair(store, theirs, tokens, model):
    datastore = made(
        store,
        BuildDatastore(),
        DatastoreConfig(dtype="float32", split="test"),
        source=model.reference,
    )
    config = EvaluateConfig(save_token_scores=True, memory=(), beam=0)
    report = made(store, Evaluate(), config, source=model.reference)
    arrays, wanted, keys = tokens.zarr("tokens.zarr"), [], []
    theirs.model.decoder.layers[-1].fc1.register_forward_pre_hook(
        lambda _, given: keys.append(given[0][0])
    )
    offsets, source_offsets = (
        arrays[f"test/{name}"][:] for name in ("doc_offsets", "source_offsets")
    )
    for pair in range(len(PAIRS["test"])):
        ids = torch.from_numpy(
            arrays["test/ids"][slice(*offsets[pair : pair + 2])].astype(np.int64)
        )
        source = torch.from_numpy(
            arrays["test/source_ids"][slice(*source_offsets[pair : pair + 2])].astype(np.int64)
        )
        assert (int(ids[-1]), int(source[-1])) == (0, 0), "both sides end"
        with torch.no_grad():
            begun = torch.cat((torch.tensor([1]), ids[:-1]))
            log_probs = (
                theirs(input_ids=source[None], decoder_input_ids=begun[None])
                .logits[0]
                .log_softmax(-1)
            )
        wanted.append(log_probs.gather(1, ids[:, None])[:, 0])
    scores = torch.from_numpy(report.zarr("scores.zarr")["logp_lm"][:])
    torch.testing.assert_close(scores, torch.cat(wanted), rtol=1e-4, atol=1e-4)
    stored = torch.from_numpy(datastore.zarr("datastore.zarr")["keys"][:])
    torch.testing.assert_close(stored, torch.cat(keys), rtol=1e-4, atol=1e-4)


def test_a_memory_of_pairs_lowers_perplexity(store, model):
    datastore = made(store, BuildDatastore(), DatastoreConfig(), source=model.reference)
    index = made(store, BuildIndex(), IndexConfig(), source=datastore.reference)
    report = made(store, Evaluate(), EvaluateConfig(beam=0), source=index.reference)
    plain, read = (row["perplexity"] for row in report.metrics["rows"])
    assert read < plain / 2  # an untrained model, and a datastore that holds most of what comes


def test_pairs_for_another_model_and_languages_of_one_that_has_none_are_refused(
    store, folder, tokens
):
    with pytest.raises(UsageError, match="no language 'xx'"):
        given = ImportConfig(source_language="xx")
        made(
            store,
            ImportModel(),
            given,
            source=tokens.reference,
            checkpoint=str(folder / "pretrained"),
        )
    saved(folder / "causal", "gpt2")
    for config, error in (
        (ImportConfig(), ArtifactError),
        (ImportConfig(task="translate:"), UsageError),
    ):
        with pytest.raises(error, match=r"pairs of sentences|does not translate"):
            made(
                store,
                ImportModel(),
                config,
                source=tokens.reference,
                checkpoint=str(folder / "causal"),
            )
