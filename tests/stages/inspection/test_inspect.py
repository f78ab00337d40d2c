"""An inspected passage, against the evaluation of the same tokens and the corpus itself."""

import numpy as np
import pytest
import torch

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from stages.generation.stream import dense_log_probs
from stages.inspection.inspect import inspect_split, inspect_text
from stages.inspection.reading import load_reader
from stages.inspection.request import PASSAGE, Passage, Request, find
from stages.methods.defaults import trained_temperature
from stages.models.weights import load_model
from tests.stages.slow_evaluation import evaluated, metrics
from tests.stages.small_store import ModelConfig, array
from tests.stages.small_text import (
    LSTM,
    TRANSFORMER_XL,
    built_index,
    found_neighbors,
    text_model,
    text_tokens,
)

KNN_THEN_CACHE = ("external:k=6,temperature=2,lambda=0.4", "long:size=11,theta=0.5,lambda=0.2")
TEXT = "the cat sees the dog\nand runs a hen\nand the pig"


@pytest.fixture(scope="module")
def tokens(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return text_tokens(store, tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def indexes(store: Store, tokens: Artifact) -> dict[str, Artifact]:
    models = {"transformer": ModelConfig().model, "lstm": LSTM}
    return {
        name: built_index(store, text_model(store, tokens, model)) for name, model in models.items()
    }


def request(source: Artifact, *memory: str, **settings) -> Request:
    return Request(source=source.reference, memory=memory or None, device="cpu", **settings)


@pytest.mark.parametrize("backbone", ["transformer", "lstm"])
def test_numbers_of_a_passage_are_those_of_an_evaluation(store, indexes, backbone):
    scores = evaluated(store, indexes[backbone], *KNN_THEN_CACHE)
    found = inspect_split(request(indexes[backbone], *KNN_THEN_CACHE), store, "test", 12, 9, 3)
    wanted = {
        name: array(scores, "scores.zarr", name)[12:21]
        for name in ("target", "logp", "logp_lm", "logp_memory")
    }
    assert [token.position for token in found.tokens] == list(range(12, 21))
    assert [token.id for token in found.tokens] == wanted["target"].tolist()
    np.testing.assert_allclose(
        [token.model for token in found.tokens], np.exp(wanted["logp_lm"]), rtol=1e-4
    )
    np.testing.assert_allclose(
        [token.final for token in found.tokens], np.exp(wanted["logp"]), rtol=1e-4
    )
    memories = [[one.probability for one in token.memories] for token in found.tokens]
    np.testing.assert_allclose(memories, np.exp(wanted["logp_memory"]), atol=1e-5)
    np.testing.assert_allclose(
        [[one.share for one in t.memories] for t in found.tokens], [[0.32, 0.2]] * 9, rtol=1e-5
    )


def test_contexts_are_true_places_the_heaviest_first(store, tokens, indexes):
    found = inspect_split(
        request(indexes["transformer"], *KNN_THEN_CACHE), store, "test", 12, 9, 17
    )
    train, test = (array(tokens, "tokens.zarr", f"{split}/ids") for split in ("train", "test"))
    offsets = array(tokens, "tokens.zarr", "train/doc_offsets")
    for token in found.tokens:
        carried = [context.carried for context in token.contexts]
        assert carried == sorted(carried, reverse=True)
        assert len(carried) == 6 + 11
        assert sum(carried) == pytest.approx(0.32 + 0.2, abs=1e-5)
        for context in token.contexts:
            row, near = context.source.row, context.back is not None
            assert context.reading == int(near)
            assert context.right == ((test if near else train)[row] == token.id)
            if near:
                assert (context.source.split, context.back) == ("test", token.position - row)
            else:
                assert offsets[context.source.document] + context.source.offset == row
        right = sum(context.carried for context in token.contexts if context.right)
        assert token.final == pytest.approx(0.6 * 0.8 * token.model + right, abs=1e-5)


def test_a_text_is_read_as_a_split_would_be(store, tokens, indexes):
    test = inspect_split(request(indexes["transformer"], *KNN_THEN_CACHE), store, "test", 0, 20, 2)
    text = "".join(token.text for token in test.tokens)
    found = inspect_text(request(indexes["transformer"], *KNN_THEN_CACHE), store, text, 2)
    assert (found.split, [token.id for token in found.tokens]) == (
        PASSAGE,
        [token.id for token in test.tokens],
    )
    for one, other in zip(found.tokens, test.tokens, strict=True):
        assert (one.model, one.final) == pytest.approx((other.model, other.final), rel=1e-4)
        assert [c.source.row for c in one.contexts] == [c.source.row for c in other.contexts]


def test_stored_neighbours_serve_passages_and_their_index_texts(store, indexes):
    neighbors = found_neighbors(store, indexes["transformer"], k=6)
    memory = "external:k=6,temperature=2,lambda=0.4"
    stored = inspect_split(request(neighbors, memory), store, "test", 3, 5, 6)
    searched = inspect_split(request(indexes["transformer"], memory), store, "test", 3, 5, 6)
    assert [[c.source.row for c in t.contexts] for t in stored.tokens] == [
        [c.source.row for c in t.contexts] for t in searched.tokens
    ]
    assert inspect_text(request(neighbors, memory), store, TEXT, 2) == inspect_text(
        request(indexes["transformer"], memory), store, TEXT, 2
    )


@pytest.mark.parametrize(
    "memory",
    [
        KNN_THEN_CACHE,
        ("local:theta=0.5,lambda=0.3",),
        ("local+long:size=3,theta=0.5,reader=joint,alpha=-1",),
        ("long:size=4,theta=0,lambda=0.3",),
        ("external:k=9,similarity=dot,temperature=2,lambda=0.4",),
        (
            "local+long+external:size=12,k=5,similarity=scaled-dot,key=ffn-input,reader=joint",
            KNN_THEN_CACHE[0],
        ),
    ],
)
def test_cells_and_shares_make_up_the_whole_distribution(store, indexes, memory):
    ids = inspect_text(request(indexes["transformer"], "none"), store, TEXT, 0).tokens
    passage = Passage([token.id for token in ids])
    asked = request(indexes["transformer"], *memory)
    reader = load_reader(find(asked, store, None), asked).of_passage(passage)
    scored_range = reader.range_reader.read(
        PASSAGE, 0, len(passage), reader.carried(PASSAGE, 0)
    ).scored_range
    want = dense_log_probs(reader.range_reader, scored_range, reader.policy).exp()
    alone = dense_log_probs(reader.range_reader, scored_range, None).exp()
    row = 0
    for shares, entries in reader.read_entries(scored_range):
        for place in range(len(shares.model)):
            made = shares.model[place] * alone[row]
            for one in entries:
                there = one.values[place] >= 0
                made.index_add_(0, one.values[place][there], one.carried[place][there])
                assert one.carried[place][~there].sum() == 0
            torch.testing.assert_close(made, want[row], rtol=1e-4, atol=1e-6)
            assert shares.model[place] + shares.memories[place].sum() == pytest.approx(1, abs=1e-5)
            row += 1
    assert row == len(passage)


def test_a_report_gives_its_readings_and_windows(store, indexes):
    memory = (
        "external:k=2/6,temperature=1/4,lambda=0.1/0.4",
        "long:size=5/11,theta=0/0.5,lambda=0.1/0.2",
    )
    report = evaluated(store, indexes["transformer"], *memory, stride=3)
    found = inspect_split(
        request(indexes["transformer"], report=report.reference), store, "test", 9, 6, 1
    )
    logp = array(report, "scores.zarr", "logp")[9:15]
    np.testing.assert_allclose([token.final for token in found.tokens], np.exp(logp), rtol=1e-4)
    for told, wanted in zip(found.memories, metrics(report)["memories"], strict=True):
        assert told["numbers"] == "reported"
        assert {name: told[name] for name in told if name != "numbers"}.items() <= wanted.items()


def test_windows_that_are_asked_for_stand_in_for_those_of_a_report(store, indexes):
    memory = "long:size=11,theta=0.5,lambda=0.2"
    report = evaluated(store, indexes["transformer"], memory, context=8, stride=3)
    wanted = array(
        evaluated(store, indexes["transformer"], memory, context=4), "scores.zarr", "logp"
    )[9:15]
    found = inspect_split(
        request(indexes["transformer"], report=report.reference, context=4), store, "test", 9, 6, 1
    )
    np.testing.assert_allclose([token.final for token in found.tokens], np.exp(wanted), rtol=1e-4)


def test_a_report_brings_the_memory_that_it_read(store, indexes):
    memory = "external:k=6,temperature=2,lambda=0.4"
    model = indexes["transformer"].find("encoder")
    report = evaluated(store, model, memory, references={"index": indexes["lstm"]})
    found = inspect_split(request(model, report=report.reference), store, "test", 9, 6, 1)
    np.testing.assert_allclose(
        [token.final for token in found.tokens],
        np.exp(array(report, "scores.zarr", "logp")[9:15]),
        rtol=1e-4,
    )


def test_without_numbers_defaults_are_named(store, tokens, indexes):
    (memory,) = inspect_text(request(indexes["transformer"]), store, TEXT, 0).memories
    assert (memory["sources"], memory["lambda"], memory["numbers"]) == (
        ["external"],
        0.25,
        "default",
    )
    assert memory["temperature"] > 0
    trime = text_model(store, tokens, method="trime-long", memory={"temperature": 1.5})
    (memory,) = inspect_text(request(trime), store, TEXT, 0).memories
    assert (memory["sources"], memory["size"]) == (["local", "long"], 2048)
    assert memory["temperature"] == trained_temperature(trime) == 1.5
    assert inspect_text(request(text_model(store, tokens)), store, TEXT, 0).memories == []


def gated_model(store: Store, tokens: Artifact, index: Artifact, **settings) -> Artifact:
    return text_model(
        store,
        tokens,
        TRANSFORMER_XL | {"gate": "vector"},
        neighbors=found_neighbors(store, index, k=3, **settings),
        method="spalm",
        memory={"method": "spalm", "k": 3, "only_gate": False},
    )


@pytest.fixture(scope="module")
def gated(store, tokens, indexes) -> Artifact:
    index = built_index(
        store, indexes["transformer"].find("encoder"), {"key": "hidden"}, metric="ip"
    )
    return gated_model(store, tokens, index)


@pytest.fixture(scope="module")
def gated_by_candidates(store, tokens, indexes) -> Artifact:
    """Its neighbours are the best by stored keys of those that an index of compressed keys gave."""
    codes = {"index": "ivf-pq", "lists": 1, "code_bits": 4, "code_bytes": 1, "metric": "ip"}
    index = built_index(store, indexes["transformer"].find("encoder"), {"key": "hidden"}, **codes)
    return gated_model(store, tokens, index, exact=True, candidates=20)


def test_a_gate_is_told_with_what_it_read(store, tokens, gated):
    scores = evaluated(store, gated)
    found = inspect_split(request(gated), store, "test", 5, 12, 3)
    np.testing.assert_allclose(
        [t.model for t in found.tokens], np.exp(array(scores, "scores.zarr", "logp")[5:17]), 1e-4
    )
    np.testing.assert_allclose(
        [t.columns["gate"] for t in found.tokens],
        array(scores, "scores.zarr", "gate")[5:17],
        rtol=1e-4,
    )
    stored = array(gated.input("neighbors"), "neighbors.zarr", "test/ids")[5:17]
    assert [
        [near.source.row for near in token.entered] for token in found.tokens
    ] == stored.tolist()
    train = array(tokens, "tokens.zarr", "train/ids")
    for token in found.tokens:
        assert [near.right for near in token.entered] == [
            train[near.source.row] == token.id for near in token.entered
        ]


@pytest.mark.parametrize("exact", [False, True])
def test_a_text_finds_the_neighbours_that_are_stored_of_the_same_tokens(
    store, gated, gated_by_candidates, exact
):
    model = gated_by_candidates if exact else gated
    test = inspect_split(request(model), store, "test", 0, 20, 3)
    found = inspect_text(request(model), store, "".join(token.text for token in test.tokens), 3)
    for one, other in zip(found.tokens, test.tokens, strict=True):
        assert (one.model, one.columns["gate"]) == pytest.approx(
            (other.model, other.columns["gate"]), rel=1e-4
        )
        assert [near.source.row for near in one.entered] == [
            near.source.row for near in other.entered
        ]


def looking_up(store: Store, tokens: Artifact) -> Artifact:
    """Both blocks look up 3 entries of 24, of all documents."""
    chosen = {
        "name": "memorizing",
        "layers": [1, 2],
        "long_length": 24,
        "neighbors": 3,
        "scope": "stream",
    }
    return text_model(store, tokens, TRANSFORMER_XL | {"attention": chosen})


def test_what_attention_looked_up_stands_where_it_was_found(store, tokens):
    model = looking_up(store, tokens)
    found = inspect_split(request(model), store, "test", 19, 9, 5)
    ids = array(tokens, "tokens.zarr", "test/ids").astype(np.int64)
    network, segments = load_model(model.path, "cpu"), []
    layers = [block.attention for block in network.backbone.blocks]
    for layer in layers:
        layer.search.register_forward_hook(lambda search, given, got: segments.append(got))
    stream = torch.from_numpy(np.concatenate(([tokens.metrics["eos_id"]], ids[:-1])))[None]
    with torch.no_grad():
        network.encode(stream)
    for token in found.tokens:
        weights, row = np.zeros(len(ids)), token.position % 8
        for number, layer in enumerate(layers):
            got = segments[2 * (token.position // 8) + number]
            shares = layer.gates()[:, None].detach() * got.weights[0, :, row] / 4
            np.add.at(weights, token.position - got.ages[0, :, row].numpy(), shares.numpy())
        rows = [one.source.row for one in token.looked_up]
        assert len(set(rows)) == 5
        np.testing.assert_allclose(
            [one.weight for one in token.looked_up], weights[rows], rtol=1e-4
        )
        np.testing.assert_allclose(weights[rows], np.sort(weights)[:-6:-1], rtol=1e-4)
        for one in token.looked_up:
            assert (one.source.split, one.back) == ("test", token.position - one.source.row)
            assert one.right == (ids[one.source.row] == token.id)
    names = {"weight", "back", "right", "source"}
    assert [set(token["looked_up"][0]) for token in found.to_json()["tokens"]] == [names] * 9


def test_a_text_looks_up_what_a_split_does_and_other_models_nothing(store, tokens, indexes):
    model = looking_up(store, tokens)
    test = inspect_split(request(model), store, "test", 0, 30, 2)
    text = inspect_text(request(model), store, "".join(token.text for token in test.tokens), 2)
    for one, other in zip(text.tokens, test.tokens, strict=True):
        assert [near.back for near in one.looked_up] == [near.back for near in other.looked_up]
    assert test.tokens[0].looked_up == []
    assert test.to_json()["tokens"][0]["looked_up"] == []
    plain = inspect_split(request(indexes["transformer"]), store, "test", 0, 2, 2)
    assert not any("looked_up" in token for token in plain.to_json()["tokens"])


def test_what_cannot_be_inspected_is_refused_before_a_model_is_loaded(store, indexes, monkeypatch):
    monkeypatch.delattr("stages.inspection.inspect.load_reader")
    with pytest.raises(UsageError, match="--text"):
        inspect_text(request(indexes["transformer"]), store, "  ", 1)
    with pytest.raises(UsageError, match="--position 5000"):
        inspect_split(request(indexes["transformer"]), store, "test", 5000, 8, 1)
    with pytest.raises(ArtifactError, match="'test'"):
        inspect_split(request(indexes["transformer"]), store, "tset", 0, 8, 1)
    with pytest.raises(UsageError, match="theta, lambda, size"):
        inspect_text(request(indexes["transformer"], "neural-cache"), store, TEXT, 1)
