"""Evaluation with a second model as memory: figures beside its own, its control, bad input."""

from typing import Any

import numpy as np
import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from tests.builders.decoders import evaluated, log_p
from tests.stages.notes import Notes
from tests.stages.small_store import VOCABULARY, small_model, small_tokens
from tests.stages.small_text import built_index

SIZES = {"vocab_size": VOCABULARY, "width": 8, "dropout": 0.0}
STUDENTS: dict[str, dict[str, Any]] = {
    "transformer": {"layers": 1, "heads": 2, "ffn_width": 16, "max_positions": 4, **SIZES},
    "lstm": {"backbone": "lstm", "initial_range": 1.0, **SIZES},
    "transformer-xl": {
        **{"backbone": "transformer-xl", "layers": 1, "heads": 2, "ffn_width": 16},
        **{"segment_length": 4, "mem_length": 6, **SIZES},
    },
}


def student(store: Store, backbone: str, **settings: Any) -> Artifact:
    return small_model(
        store, small_tokens(store), model=STUDENTS[backbone], segment_length=4, seed=5, **settings
    )


@pytest.mark.parametrize("backbone", STUDENTS)
def test_it_is_a_weighted_mean_with_what_the_student_gives_alone(
    store: Store, model: Artifact, backbone: str, short_shards: None
) -> None:
    decoder = student(store, backbone)
    reading = f"decoder:model={decoder.reference},lambda=0.3"
    report = evaluated(store, model, reading)
    own, other = (log_p(evaluated(store, one, "none")) for one in (model, decoder))
    np.testing.assert_allclose(log_p(report, "logp_memory")[:, 0], other, atol=1e-5)
    want = np.log(0.7 * np.exp(own) + 0.3 * np.exp(other))
    np.testing.assert_allclose(log_p(report), want, atol=1e-5)
    assert report.input("decoder").reference == decoder.reference


def test_tuning_and_other_memories_beside_it(store: Store, model: Artifact) -> None:
    decoder = student(store, "lstm")
    reading = f"decoder:model={decoder.reference},lambda=tune"
    report = evaluated(store, model, "long:size=9,theta=0.3,lambda=0.2", reading)
    cache, second = report.json("metrics.json")["memories"]
    assert (cache["sources"], second["sources"]) == (["long"], ["decoder"])
    assert second["model"] == decoder.reference and set(second["tuned"]) == {
        "lambda",
        "temperature",
    }
    learned = evaluated(store, model, f"decoder:model={decoder.reference},lambda=learned")
    assert learned.json("metrics.json")["memories"][0]["lambda"] is not None


def trained_pair(store: Store) -> tuple[Artifact, Artifact]:
    """A decoder and its control, as training records them."""
    decoder, control = (
        student(
            store, "lstm", method="memory-decoder", memory={"method": "memory-decoder", "alpha": a}
        )
        for a in (0.5, 0)
    )
    return decoder, control


def test_the_control_is_found_and_is_a_row(store: Store, model: Artifact) -> None:
    decoder, control = trained_pair(store)
    notes = Notes()
    report = evaluated(
        store, model, f"decoder:model={decoder.reference},lambda=tune", reporter=notes
    )
    assert report.input("decoder_control").reference == control.reference
    rows = report.json("metrics.json")["rows"]
    names = [row["row"] for row in rows]
    assert names[1:] == ["decoder", "decoder without neighbours, α = 0"]
    assert rows[2]["memories"][0]["model"] == control.reference
    assert [row["searches_per_token"] for row in rows] == [0, 0, 0]
    weights = decoder.manifest.files["model.safetensors"]["bytes"]
    assert [row["bytes_beside_model"] for row in rows] == [0, weights, weights]
    alone = evaluated(store, model, f"decoder:model={control.reference},lambda=tune")
    assert alone.metrics["perplexity"] == pytest.approx(rows[2]["perplexity"])
    assert not [text for text in notes.warnings if "control" in text]


def test_a_composition_has_its_control_too(store: Store, model: Artifact) -> None:
    decoder, _ = trained_pair(store)
    cache = "long:size=9,theta=0.3,lambda=0.2"
    report = evaluated(store, model, cache, f"decoder:model={decoder.reference},lambda=0.3")
    names = [row["row"] for row in report.json("metrics.json")["rows"]]
    assert names[1:3] == ["neural-cache then decoder"] * 1 + [
        "neural-cache then decoder without neighbours, α = 0"
    ]


def test_costs_of_a_datastore_are_beside_those_of_a_decoder(store: Store, model: Artifact) -> None:
    index = built_index(store, model)
    decoder = student(store, "transformer")
    reading = f"decoder:model={decoder.reference},lambda=0.2"
    report = evaluated(store, index, "external:k=4,lambda=0.2", reading)
    costs = {
        row["row"]: (row["searches_per_token"], row["bytes_beside_model"])
        for row in report.json("metrics.json")["rows"]
    }
    stored = index.bytes + index.input("datastore").bytes
    weights = decoder.manifest.files["model.safetensors"]["bytes"]
    assert costs["plain"] == (0, 0) and costs["decoder"] == (0, weights)
    assert costs["knn-lm"] == (1, stored)
    assert costs["knn-lm then decoder"] == (1, stored + weights)


def test_a_missing_control_and_the_model_itself_are_warnings(store: Store, model: Artifact) -> None:
    decoder = student(store, "transformer")
    notes = Notes()
    evaluated(store, model, f"decoder:model={decoder.reference},lambda=0.2", reporter=notes)
    assert any("memory.alpha=0" in text for text in notes.warnings)
    notes = Notes()
    evaluated(store, model, f"decoder:model={model.reference},lambda=0.1", reporter=notes)
    assert any("ensemble with itself" in text for text in notes.warnings)


def test_what_does_not_fit_is_refused(store: Store, model: Artifact) -> None:
    other = small_model(store, small_tokens(store, tokenizer="another"))
    with pytest.raises(ArtifactError, match="tokenized differently"):
        evaluated(store, model, f"decoder:model={other.reference},lambda=0.2")
    one, two = student(store, "lstm"), student(store, "transformer")
    readings = [f"decoder:model={each.reference},lambda=0.2" for each in (one, two)]
    with pytest.raises(UsageError, match="one is read at a time"):
        evaluated(store, model, *readings)
    with pytest.raises(UsageError, match="compares no keys"):
        evaluated(store, model, f"decoder:model={one.reference},lambda=0.2,similarity=dot")
    with pytest.raises(ArtifactError):
        evaluated(store, model, "decoder:model=model/none,lambda=0.2")
