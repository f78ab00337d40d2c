"""Evaluation with an MLP on the model's own states: figures, control, and bad input."""

import numpy as np
import pytest
import torch

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from stages.inspection.inspect import inspect_text
from stages.inspection.request import Request
from stages.models.weights import load_model
from tests.builders.decoders import evaluated, log_p
from tests.builders.distilled import trained
from tests.stages.notes import Notes
from tests.stages.small_text import built_index, found_neighbors, text_tokens

MLP = {"layers": 1, "ffn_width": 5}


@pytest.fixture(scope="module")
def base(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    tokens = text_tokens(store, tmp_path_factory.mktemp("text"))
    return trained(store, tokens, method="lm")


def mlp(store: Store, base: Artifact, **memory: object) -> Artifact:
    index = built_index(store, base)
    neighbors = found_neighbors(store, index, k=9, queries=("train",), exclude="document")
    return trained(store, neighbors, base, method="mlp-memory", memory=MLP | memory)


@pytest.mark.parametrize("key", ["hidden", "ffn-input"])
def test_it_is_a_weighted_mean_with_what_the_mlp_recalls(
    store: Store, base: Artifact, key: str, short_shards: None
) -> None:
    taught = mlp(store, base, key=key)
    report = evaluated(store, base, f"mlp:model={taught.reference},lambda=0.4")
    own = log_p(evaluated(store, base, "none"))

    model = load_model(taught.path, "cpu")
    ids = torch.from_numpy(np.asarray(taught.input("tokens").zarr("tokens.zarr")["test/ids"][:]))
    inputs = torch.cat((torch.zeros(1, dtype=torch.long), ids[:-1].long()))
    recalled = []
    for start in range(0, len(ids), 8):
        with torch.no_grad():
            encoding = model.encode(inputs[None, start : start + 8])
            hidden = model.recalled(encoding.key(key)[0])
        recalled.append(model.log_prob(hidden, ids[start : start + 8].long())[0])
    other = torch.cat(recalled).double().numpy()
    np.testing.assert_allclose(log_p(report, "logp_memory")[:, 0], other, atol=1e-5)
    want = np.log(0.6 * np.exp(own) + 0.4 * np.exp(other))
    np.testing.assert_allclose(log_p(report), want, atol=1e-5)


def test_its_control_is_a_row_and_its_bytes_are_those_of_the_mlp(
    store: Store, base: Artifact
) -> None:
    taught, control = mlp(store, base), mlp(store, base, alpha=0)
    report = evaluated(store, base, f"mlp:model={taught.reference},lambda=tune")
    assert report.input("mlp_control").reference == control.reference
    rows = report.json("metrics.json")["rows"]
    assert [row["row"] for row in rows[1:]] == ["mlp", "mlp without neighbours, α = 0"]
    added = load_model(taught.path, "cpu").mlp
    assert added is not None
    numbers = sum(parameter.numel() for parameter in added.parameters())
    assert 4 * numbers <= rows[1]["bytes_beside_model"] < 4 * numbers + 2000


def test_a_model_is_read_with_its_own_mlp(store: Store, base: Artifact) -> None:
    taught = mlp(store, base)
    notes = Notes()
    own = evaluated(store, taught, f"mlp:model={taught.reference},lambda=0.4", reporter=notes)
    of_base = evaluated(store, base, f"mlp:model={taught.reference},lambda=0.4")
    assert own.metrics["perplexity"] == pytest.approx(of_base.metrics["perplexity"])
    assert not any("itself" in text for text in notes.warnings)


def test_a_text_is_read_with_it_and_nothing_is_quoted(store: Store, base: Artifact) -> None:
    taught = mlp(store, base)
    request = Request(
        source=base.reference, memory=(f"mlp:model={taught.reference},lambda=0.4",), device="cpu"
    )
    found = inspect_text(request, store, "the cat sees the dog", contexts=3)
    assert all(token.contexts == [] for token in found.tokens)
    assert all(token.memories[0].share == pytest.approx(0.4) for token in found.tokens)


def test_what_does_not_fit_is_refused(store: Store, base: Artifact) -> None:
    taught = mlp(store, base)
    other = trained(store, base.input("tokens"), method="lm", seed=9)
    with pytest.raises(ArtifactError, match=f"states of {base.reference}, not of"):
        evaluated(store, other, f"mlp:model={taught.reference},lambda=0.4")
    with pytest.raises(UsageError, match="has no MLP memory"):
        evaluated(store, base, f"mlp:model={other.reference},lambda=0.4")
