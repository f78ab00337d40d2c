"""Methods that learn from neighbours: q by brute force, the loss beside a loop, and the control."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from stages.examples.cutting import Cutting
from stages.examples.streams import Streams
from stages.methods import METHODS
from stages.methods.method import BatchIndex, Carried
from stages.methods.neighbor_labels import (
    NeighborLabels,
    RankedNeighbors,
    best_temperature,
    neighbor_labels,
    tuned_temperature,
)
from stages.methods.settings import MemoryDecoderConfig
from stages.models.backbones.stream_configs import LSTMConfig
from stages.models.backbones.window_configs import TransformerConfig
from stages.models.language_model import LanguageModel
from stages.training.loop import Trainer
from tests.builders.distilled import trained
from tests.oracles import knn_lm
from tests.oracles import memory_decoder as oracle
from tests.stages.methods.contract import TOKENS, Encoded, MethodContract
from tests.stages.small_store import array, small_model, small_tokens
from tests.stages.small_tasks import bytes_of
from tests.stages.small_text import built_index, found_neighbors

V, L, K, T = 12, 5, 4, 40
TURN = BatchIndex(0, 0, 1, 0)
MODELS = {
    "windows": TransformerConfig(
        vocab_size=V, width=8, layers=1, heads=2, ffn_width=8, max_positions=L, dropout=0.0
    ),
    "adaptive": TransformerConfig(
        vocab_size=V,
        width=8,
        layers=1,
        heads=2,
        ffn_width=8,
        max_positions=L,
        dropout=0.0,
        cutoffs=(3, 7),
        factor=2,
    ),
    "streams": LSTMConfig(vocab_size=V, width=8, dropout=0.0, initial_range=1.0),
}


def ranked(seed: int = 2) -> RankedNeighbors:
    """Neighbours of T positions; the fourth has none."""
    random = np.random.default_rng(seed)
    tokens = random.integers(-1, V, (T, K))
    tokens[3] = -1
    return RankedNeighbors(tokens, -np.sort(random.random((T, K)).astype(np.float32), 1))


def segments() -> Streams:
    return Streams(np.random.default_rng(1).integers(0, V, T), 0, Cutting("windows", L, L))


def distilled(name: str, alpha: float, labels: NeighborLabels | None = None) -> Any:
    labels = labels or neighbor_labels(ranked(), 0.3)
    settings = METHODS.settings(name)(alpha=alpha)
    return METHODS.load(name)(settings, {"soft-labels": labels})


def decoder(alpha: float, labels: NeighborLabels | None = None) -> Any:
    return distilled("memory-decoder", alpha, labels)


def lm(name: str = "windows") -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(MODELS[name]).double().eval()


@pytest.mark.parametrize("temperature", [0.01, 0.3, 5.0])
def test_labels_are_those_of_a_loop(temperature: float) -> None:
    neighbors = ranked()
    labels = neighbor_labels(neighbors, temperature)
    for place in range(T):
        q = oracle.neighbor_distribution(
            neighbors.tokens[place], neighbors.scores[place], temperature, V
        )
        dense = np.zeros(V)
        np.add.at(dense, labels.tokens[place], labels.shares[place])
        np.testing.assert_allclose(dense, np.zeros(V) if q is None else q, atol=1e-6)
        held = labels.tokens[place][labels.shares[place] > 0]
        assert len(set(held)) == len(held)
    assert not labels.shares[3].any()
    unpacked = NeighborLabels.unpacked(labels.packed())
    assert all(np.array_equal(one, other) for one, other in zip(labels, unpacked, strict=True))


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_loss_is_that_of_a_loop_over_dense_distributions(model: str, alpha: float) -> None:
    network, method = lm(model), decoder(alpha)
    batch = method.batch(segments(), np.array([0, 4]), TURN)
    places = [*range(L), *range(4 * L, 5 * L)]
    neighbors = ranked()
    distributions = [
        oracle.neighbor_distribution(neighbors.tokens[p], neighbors.scores[p], 0.3, V)
        for p in places
    ]
    log_probs = network.log_probs(network.encode(batch.inputs).hidden.flatten(0, 1)).numpy()
    want = oracle.loss(log_probs, batch.targets.flatten().tolist(), distributions, alpha)
    loss = method.loss(network, batch, Carried())
    assert float(loss.mean.detach()) == pytest.approx(want, rel=1e-6)
    assert bool(loss.carried.tensors()) == (model == "streams")


def test_gradient_of_a_score_is_p_less_the_label() -> None:
    network, method = lm(), decoder(0.5)
    batch = method.batch(segments(), np.array([0]), TURN)
    hidden = network.encode(batch.inputs).hidden.flatten(0, 1).detach().requires_grad_()
    targets = batch.targets.flatten()
    network.soft_loss(hidden, batch.labels).backward()

    difference = network.log_probs(hidden).exp()
    neighbors = ranked()
    for place in range(L):
        q = oracle.neighbor_distribution(neighbors.tokens[place], neighbors.scores[place], 0.3, V)
        weight = 0.0 if q is None else 0.5
        difference[place, targets[place]] -= 1 - weight
        if q is not None:
            difference[place] -= weight * torch.from_numpy(q)
    want = difference @ network.vocabulary.embedding.detach() / L
    torch.testing.assert_close(hidden.grad, want)


def test_with_one_neighbour_alone_it_learns_the_neighbours_token() -> None:
    nearest = ranked().tokens[:, :1].clip(0)
    labels = neighbor_labels(RankedNeighbors(nearest, np.zeros((T, 1))), 1.0)
    network, method = lm(), decoder(1.0, labels)
    batch = method.batch(segments(), np.array([2]), TURN)
    hidden = network.encode(batch.inputs).hidden.flatten(0, 1)
    want = network.loss(hidden, torch.from_numpy(nearest[2 * L : 3 * L, 0]))
    torch.testing.assert_close(method.loss(network, batch, Carried()).mean, want)


def test_the_temperature_is_that_of_the_smallest_cross_entropy() -> None:
    random = np.random.default_rng(5)
    tokens = random.integers(0, 3, (200, K))
    # The nearest neighbour is right twice as often as another.
    targets = tokens[np.arange(200), random.choice(K, 200, p=[0.4, 0.2, 0.2, 0.2])]
    neighbors = RankedNeighbors(tokens, -np.sort(random.random((200, K)), 1))
    found = best_temperature(neighbors, targets)

    def nats(temperature: float) -> float:
        pairs = zip(neighbors.tokens, neighbors.scores, strict=True)
        each = [oracle.neighbor_distribution(*pair, temperature, 3) for pair in pairs]
        known = [q[x] for q, x in zip(each, targets, strict=True) if q[x] > 0]
        return -float(np.log(known).mean())

    assert nats(found) <= min(nats(found / 1.5), nats(found * 1.5)) + 1e-9


class TestContract(MethodContract):
    """What every method keeps."""

    @pytest.fixture(params=["memory-decoder", "mlp-memory"])
    def name(self, request: Any) -> str:
        name: str = request.param
        return name

    @pytest.fixture
    def method(self, name: str) -> Any:
        random = np.random.default_rng(4)
        neighbors = RankedNeighbors(
            random.integers(-1, V, (TOKENS, K)), -random.random((TOKENS, K))
        )
        return distilled(name, 0.5, neighbor_labels(neighbors, 0.3))

    def test_the_first_loss_is_the_mean_of_log_p_with_or_without_what_the_method_adds(
        self, method: Any, model: Any, split: Any
    ) -> None:
        """Labels are soft, so the loss is another; validation is by the model alone."""
        batch = method.batch(split, np.array([0]), TURN)
        with torch.no_grad():
            read = Encoded(model.encode(batch.inputs), batch.targets.flatten())
            own = method.log_prob(model, read, torch.zeros(L))
            key = "hidden" if model.mlp is None else model.mlp.key
            states = read.key(key) if model.mlp is None else model.mlp(read.key(key))
        assert torch.equal(own, model.log_prob(states, read.targets)[0])


# With artifacts


def near(store: Store, **settings: Any) -> Artifact:
    index = built_index(store, small_model(store, small_tokens(store)))
    chosen = {"k": 9, "queries": ("train",), "exclude": "document"} | settings
    return found_neighbors(store, index, **chosen)


def test_stored_labels_are_those_of_raw_keys(store: Store) -> None:
    neighbors = near(store)
    datastore, tokens = neighbors.find("datastore"), neighbors.input("queries")
    keys, values = (array(datastore, "datastore.zarr", name) for name in ("keys", "values"))
    offsets = array(tokens, "tokens.zarr", "train/doc_offsets")
    ids = array(neighbors, "neighbors.zarr", "train/ids")
    distances = array(neighbors, "neighbors.zarr", "train/distances")
    held = RankedNeighbors(np.where(ids >= 0, values[ids.clip(0)], -1), -distances)
    temperature = tuned_temperature(neighbors, 9)
    labels = neighbor_labels(held, temperature)
    for place in range(0, len(values), 7):
        document = np.searchsorted(offsets, place, side="right") - 1
        own = set(range(offsets[document], offsets[document + 1]))
        rows, found = knn_lm.neighbours(keys, keys[place], 9, "l2", own)
        q = oracle.neighbor_distribution(values[rows], -found, temperature, 11)
        dense = np.zeros(11)
        np.add.at(dense, labels.tokens[place], labels.shares[place])
        np.testing.assert_allclose(dense, q, atol=1e-4)


def test_the_control_is_plain_language_modelling_bit_for_bit(store: Store) -> None:
    neighbors = near(store)
    control = trained(store, neighbors, memory={"alpha": 0})
    plain = trained(store, neighbors.input("queries"), method="lm")
    for name in ("last", "model"):
        file = f"{name}.safetensors"
        assert control.manifest.files[file] == plain.manifest.files[file]
    taught = trained(store, neighbors)
    assert taught.manifest.files["last.safetensors"] != plain.manifest.files["last.safetensors"]


def test_the_manifest_says_what_was_left_open(store: Store) -> None:
    neighbors = near(store)
    taught = trained(store, neighbors)
    memory = taught.config["memory"]
    assert memory["k"] == 9 and memory["temperature"] == tuned_temperature(neighbors, 9)
    missing = (array(neighbors, "neighbors.zarr", "train/ids")[:, 0] < 0).mean()
    assert taught.metrics["without_neighbours"] == pytest.approx(missing)
    fewer = trained(store, neighbors, memory={"k": 4, "temperature": 0.7})
    assert (fewer.config["memory"]["k"], fewer.config["memory"]["temperature"]) == (4, 0.7)
    one, other = (trained(store, neighbors, memory={"alpha": 0, "k": k}) for k in (4, 9))
    assert one.reference == other.reference


def test_a_run_that_is_killed_ends_with_the_same_bytes(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = trained(store, near(store))
    other, update = Store(tmp_path / "store"), Trainer._update

    def killed(trainer: Trainer) -> None:
        if trainer.progress.step == 3:
            raise KeyboardInterrupt
        update(trainer)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_update", killed)
        with pytest.raises(KeyboardInterrupt):
            trained(other, near(other))
    assert bytes_of(trained(other, near(other))) == bytes_of(whole)


@pytest.mark.parametrize(("k", "warned"), [(7, True), (8, False), (None, False)])
def test_few_neighbours_are_a_warning(k: int | None, warned: bool) -> None:
    settings = MemoryDecoderConfig(k=k)
    assert bool(settings.cautions(batch=16, accumulate=1)) == warned


def test_what_cannot_teach_is_refused(store: Store) -> None:
    tokens = small_tokens(store)
    with pytest.raises(ArtifactError, match="memlm precompute-neighbors"):
        trained(store, tokens)
    with pytest.raises(ArtifactError, match="no neighbours of split 'train'"):
        trained(store, near(store, queries=("test",)))
    with pytest.raises(ArtifactError, match="find their own rows"):
        trained(store, near(store, exclude="none"))
    with pytest.raises(ArtifactError, match=r"memory\.k=9"):
        trained(store, near(store), memory={"k": 10})


def test_neighbours_in_a_scored_split_are_refused(store: Store) -> None:
    encoder = small_model(store, small_tokens(store))
    index = built_index(store, encoder, {"split": "test"})
    neighbors = found_neighbors(store, index, k=9, queries=("train",))
    with pytest.raises(UsageError, match="learns the answers there"):
        trained(store, neighbors)


def test_labels_are_not_smoothed_as_well(store: Store) -> None:
    with pytest.raises(ValueError, match="label_smoothing"):
        trained(store, near(store), label_smoothing=0.1)


# An MLP on a trained model


def test_an_mlp_learns_and_its_base_stays(store: Store) -> None:
    neighbors = near(store)
    base = trained(store, neighbors.input("queries"), method="lm")
    taught = trained(store, neighbors, base, method="mlp-memory", memory={"layers": 2})
    before, after = (load_file(one.file("last.safetensors")) for one in (base, taught))
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    added = {name: tensor for name, tensor in after.items() if name.startswith("mlp.")}
    assert added.keys() == after.keys() - before.keys()
    assert added["mlp.blocks.1.outer.weight"].abs().sum() > 0
    with pytest.raises(UsageError, match="--init-from"):
        trained(store, neighbors, method="mlp-memory")


def test_an_mlp_begins_from_neighbours_of_a_student_too(store: Store) -> None:
    neighbors = near(store)
    base = trained(store, neighbors.input("queries"), method="lm")
    student = trained(store, neighbors, base, memory={"alpha": 0.7})
    assert student.input("init").reference == base.reference
    assert student.config["model"] == base.config["model"]
