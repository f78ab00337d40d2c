"""Memory of another encoder beside memory of the recent past, where either model carries state."""

import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.evaluation.work import EvaluateWork
from stages.index import BuildIndex
from stages.search.config import IndexConfig
from tests.builders.limits import limit
from tests.oracles import knn_lm
from tests.oracles import neural_cache as oracle
from tests.stages.kills import made_in_pieces, states
from tests.stages.slow_evaluation import Asked, Slow, evaluated, metrics
from tests.stages.small_store import VOCABULARY, array, small_model, small_tokens

pytestmark = pytest.mark.usefixtures("short_shards")

LSTM = {"backbone": "lstm", "vocab_size": VOCABULARY, "layers": 2, "width": 8, "dropout": 0.0}
EXTERNAL = "external:k=5,lambda=0.3,temperature=2"
LONG = "long:size=20,theta=0.4,lambda=0.2"
COUNTED = "nll", "memories", "retrieval_accuracy"


@pytest.fixture(scope="module")
def models(store: Store) -> Mapping[str, Artifact]:
    tokens = small_tokens(store)
    return {
        "transformer": small_model(store, tokens),
        "lstm": small_model(store, tokens, model=LSTM),
        "other-lstm": small_model(store, tokens, model=LSTM, seed=3),
    }


@pytest.fixture(scope="module")
def indexes(store: Store, models: Mapping[str, Artifact]) -> Mapping[str, Artifact]:
    """A datastore's index, by the model that made its keys."""

    def built(stage, config, source: Artifact) -> Artifact:
        return make(stage, config, {"source": source.reference}, store, Execution()).artifact

    stored = {
        name: built(BuildDatastore(), DatastoreConfig(), model) for name, model in models.items()
    }
    return {
        name: built(BuildIndex(), IndexConfig(index="flat"), made) for name, made in stored.items()
    }


@pytest.fixture
def run(
    store: Store, models: Mapping[str, Artifact], indexes: Mapping[str, Artifact]
) -> Callable[..., Artifact]:
    """Evaluates a model with the memory of another."""

    def run(model: str, encoder: str, *memory: str, **settings) -> Artifact:
        return evaluated(
            store, models[model], *memory, references={"index": indexes[encoder]}, **settings
        )

    return run


def slow_log_p(model: Artifact, encoder: Artifact, index: Artifact, split: str) -> np.ndarray:
    """log p of every token with EXTERNAL, then LONG."""
    datastore = index.input("datastore")
    alone, searching = Slow(model, split), Slow(encoder, split, key=datastore.config["key"])
    keys, values = (array(datastore, "datastore.zarr", name) for name in ("keys", "values"))
    final = []
    for t, target in enumerate(alone.ids):
        query = searching.as_scored[t].astype(keys.dtype)
        rows, distances = knn_lm.neighbours(keys, query, 5, "l2", {t} if split == "train" else ())
        p_external = knn_lm.memory_probability(distances, values[rows], target, 2.0, "l2")
        p = 0.7 * alone.distribution(t)[target] + 0.3 * p_external
        p_long = oracle.cache(alone.entries(t, Asked(0.4, 20)), VOCABULARY)
        final.append(math.log(p if p_long is None else 0.8 * p + 0.2 * p_long[target]))
    return np.array(final)


@pytest.mark.parametrize(
    ("model", "encoder", "split"),
    [
        ("transformer", "lstm", "test"),
        ("lstm", "transformer", "train"),
        ("lstm", "other-lstm", "train"),
        ("lstm", "lstm", "train"),
    ],
)
def test_either_memory_is_read_as_its_own_model_sees_the_stream(
    store, run, models, indexes, monkeypatch, model, encoder, split
):
    parts = run(model, encoder, EXTERNAL, LONG, split=split, exclude="self")
    scores, accuracy = array(parts, "scores.zarr", "logp"), metrics(parts)["retrieval_accuracy"]
    want = slow_log_p(models[model], models[encoder], indexes[encoder], split)
    np.testing.assert_allclose(scores, want, atol=5e-4)
    assert len(list((parts.path / "scores.zarr/logp/c").iterdir())) > 2
    store.remove(parts.reference)
    limit(monkeypatch, tokens_per_shard=1 << 15)
    whole = run(model, encoder, EXTERNAL, LONG, split=split, exclude="self")
    np.testing.assert_allclose(array(whole, "scores.zarr", "logp"), scores, atol=1e-4)
    assert metrics(whole)["retrieval_accuracy"] == accuracy
    store.remove(whole.reference)


@pytest.mark.parametrize(
    ("model", "encoder", "logged"), [("transformer", "lstm", False), ("lstm", "other-lstm", True)]
)
def test_a_kill_at_any_shard_leaves_the_states_that_the_next_run_begins_with(
    store, run, monkeypatch, model, encoder, logged
):
    """The cache reaches back one shard, so the states of two are kept of a split, beside those of
    two under way.
    """
    limit(monkeypatch, tokens_per_shard=8)
    memory = EXTERNAL.replace("0.3", "0.1/0.3"), "long:size=6,theta=0.4,lambda=0.2/0.4"
    whole = run(model, encoder, *memory)
    told = metrics(whole)
    store.remove(whole.reference)
    made, attempts = made_in_pieces(
        monkeypatch, lambda: run(model, encoder, *memory), logged=logged
    )
    assert attempts.begun_with == list(range(1 + 5 + 1 + 5 + 1))
    assert attempts.most_states <= 2 + 4
    scores = [name for name in whole.manifest.files if name.startswith("scores.zarr/")]
    assert [made.manifest.files[name] for name in scores] == [
        whole.manifest.files[name] for name in scores
    ]
    assert {name: metrics(made)[name] for name in COUNTED} == {name: told[name] for name in COUNTED}


def test_a_damaged_shard_is_scored_again_without_the_states_before_it(store, run, monkeypatch):
    limit(monkeypatch, tokens_per_shard=4)
    memory = EXTERNAL, "long:size=6,theta=0.4,lambda=0.2"
    whole = run("lstm", "other-lstm", *memory)
    store.remove(whole.reference)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(EvaluateWork, "finish", killed)
        with pytest.raises(KeyboardInterrupt):
            run("lstm", "other-lstm", *memory)
    draft = store.draft_folder("report", whole.id)
    assert len(states(draft / "scratch")) == 3
    for shard in (3, 6):
        (draft / f"scores.zarr/logp/c/{shard}").write_bytes(b"damaged")
    made = run("lstm", "other-lstm", *memory)
    scores = [name for name in whole.manifest.files if name.startswith("scores.zarr/")]
    assert [made.manifest.files[name] for name in scores] == [
        whole.manifest.files[name] for name in scores
    ]


@pytest.mark.parametrize("encoder", ["lstm", "transformer"])
def test_queries_are_made_as_the_keys_were_wherever_the_evaluated_model_begins_anew(run, encoder):
    """`--reset document` is how the evaluated model reads; a datastore's encoder read across
    documents.
    """
    whole, reset = (run("other-lstm", encoder, EXTERNAL, reset=how) for how in ("none", "document"))
    memory = [array(report, "scores.zarr", "logp_memory") for report in (whole, reset)]
    np.testing.assert_array_equal(*memory)
    alone = [array(report, "scores.zarr", "logp_lm") for report in (whole, reset)]
    assert (
        np.abs(alone[0] - alone[1]).max() > 1e-4
    )  # documents make a difference to the model itself
