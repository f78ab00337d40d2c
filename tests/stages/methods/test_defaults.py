"""What a model is read with where nothing is said."""

from collections.abc import Mapping

import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.methods import METHODS
from stages.methods.defaults import (
    KNN_LM,
    default_key,
    default_memory,
    default_similarity,
    lacking_memory,
    stored_key,
    trained_temperature,
)
from stages.retrieval.grammar import parse_readings
from tests.stages.small_store import VOCABULARY, small_model, small_tokens

LSTM = {"backbone": "lstm", "vocab_size": VOCABULARY, "layers": 2, "width": 8, "dropout": 0.0}


def read(store: Store, model: Artifact, encoder: Artifact | None = None) -> Mapping[str, Artifact]:
    """What an evaluation of a model reads, with an encoder's datastore if one is given."""
    found = {"model": model, "tokens": model.input("tokens")}
    if encoder is None:
        return found
    made = make(
        BuildDatastore(), DatastoreConfig(), {"source": encoder.reference}, store, Execution()
    )
    return found | {"encoder": encoder, "datastore": made.artifact}


@pytest.mark.parametrize(
    ("method", "alone", "with_datastore"),
    [
        ("lm", (), ("knn-lm",)),
        ("trime", ("trime",), ("trime", "knn-lm")),
        ("trime-long", ("trime-long",), ("trime-long", "knn-lm")),
        ("trime-ext", ("trime",), ("trime-ext",)),
    ],
)
def test_a_model_is_read_as_it_was_trained_to_be(store, method, alone, with_datastore):
    tokens = small_tokens(store)
    model, other = (
        small_model(store, tokens, method=method),
        small_model(store, tokens, method=method, seed=5),
    )
    assert default_memory(read(store, model)) == alone
    assert default_memory(read(store, model, model)) == with_datastore
    assert default_memory(read(store, model, other)) == (*alone, "knn-lm")


def test_a_model_that_lacks_its_datastore_is_told_of(store):
    tokens = small_tokens(store)
    model = small_model(store, tokens, method="trime-ext")
    assert model.reference in str(lacking_memory(read(store, model)))
    assert lacking_memory(read(store, model, model)) is None
    assert lacking_memory(read(store, small_model(store, tokens, method="trime"))) is None


def test_keys_are_compared_as_the_loss_did(store):
    tokens = small_tokens(store)
    plain, trained = small_model(store, tokens), small_model(store, tokens, method="trime")
    recurrent = small_model(store, tokens, method="trime-long", model=LSTM)
    assert [default_key(model) for model in (plain, trained, recurrent)] == [
        "hidden",
        "ffn-input",
        "hidden",
    ]
    by_hidden = small_model(
        store, tokens, method="trime", memory={"key": "hidden", "temperature": 2.0}
    )
    assert (default_key(by_hidden), trained_temperature(by_hidden)) == ("hidden", 2.0)
    assert (trained_temperature(plain), trained_temperature(trained)) == (1.0, 1.0)
    assert (
        default_similarity(plain, "l2") == "l2"
        and default_similarity(trained, "l2") == "scaled-dot"
    )


def test_a_datastore_has_the_key_that_its_model_was_trained_to_search_with(store):
    tokens = small_tokens(store)
    for settings, key in [
        ({}, "ffn-input"),
        ({"method": "trime", "memory": {"key": "hidden"}}, "hidden"),
        ({"method": "trime", "memory": {"key": "ffn-input"}}, "ffn-input"),
        ({"model": LSTM}, "hidden"),
    ]:
        model = small_model(store, tokens, **settings)
        made = make(
            BuildDatastore(), DatastoreConfig(), {"source": model.reference}, store, Execution()
        ).artifact
        assert (made.config["key"], stored_key(model)) == (key, key)


@pytest.mark.parametrize("method", METHODS.names())
def test_what_a_models_method_says_can_be_read(method):
    said = METHODS.settings(method).evaluation
    for memory in (said.alone, said.own_datastore or (*said.alone, *KNN_LM)):
        assert all(reading.choices for reading in parse_readings(memory))


def test_models_trained_with_memory_are_read_with_it():
    trained = {
        name for name in METHODS.names() if METHODS.settings(name).evaluation.trained_with_memory
    }
    assert trained == {"trime", "trime-long", "trime-ext"}
    assert all(METHODS.settings(name).evaluation.alone for name in trained)
