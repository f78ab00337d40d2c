"""An encoder (BERT) through the stages: what makes keys reads it, what scores refuses it."""

import json
import math
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.encoding.key_encoder import KeyEncoder
from stages.episodes import BuildEpisodes
from stages.errors import ArtifactError, UsageError
from stages.evaluate import Evaluate, EvaluateConfig
from stages.evaluate_tasks import EvaluateTasks
from stages.export.export import export
from stages.import_model import ImportConfig, ImportModel
from stages.index import BuildIndex, IndexConfig
from stages.inspection.request import Request, find
from stages.methods import METHODS
from stages.neighbors import NeighborsConfig, PrecomputeNeighbors
from stages.tasks.config import EvaluateTasksConfig
from stages.tasks.episodes import EpisodesConfig
from stages.tokenize import Tokenize, TokenizeConfig
from stages.train import Train
from stages.training.config import TrainConfig
from stages.update import UpdateDatastore
from stages.updating.config import UpdateConfig
from tests.builders.limits import limit
from tests.stages.pretrained.tiny import saved_encoder
from tests.stages.small_tasks import TASKS, write_task

pytest.importorskip("transformers")
WORDS = (
    "the cat sat on the mat and the dog",
    "the dog sat on the cat",
    "a mat is no dog and no cat",
)
SETTINGS = {
    "steps": 2,
    "segment_length": 16,
    "batch_tokens": 64,
    "optimizer": {"lr": 1e-3},
    "seed": 0,
}
N = 5


def made(store: Store, stage, config, workers: int = 1, **references) -> Artifact:
    references = {r: a.reference if isinstance(a, Artifact) else a for r, a in references.items()}
    return make(stage, config, references, store, Execution(device="cpu", workers=workers)).artifact


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("pretrained")
    return path, saved_encoder(path)


@pytest.fixture(scope="module")
def home(tmp_path_factory, folder) -> Mapping[str, Artifact]:
    """Tokens of an encoder's tokenizer, the encoder, and a Transformer over them."""
    path = tmp_path_factory.mktemp("home")
    store = Store(path / "store")
    for split, times in {"train": 12, "valid": 2, "test": 3}.items():
        lines = [WORDS[i * 7 % 5 % 3] for i in range(times)]
        (path / f"{split}.txt").write_text("".join(f"{line}\n" for line in lines))
    files = {split: [str(path / f"{split}.txt")] for split in ("train", "valid", "test")}
    config = TokenizeConfig(tokenizer="given", documents="line")
    tokens = made(store, Tokenize(), config, source=[], tokenizer=str(folder[0]), **files)
    encoder = made(
        store,
        ImportModel(),
        ImportConfig(segment_length=N),
        source=tokens,
        checkpoint=str(folder[0]),
    )
    small = made(
        store, Train(), TrainConfig.model_validate(SETTINGS | {"method": "lm"}), source=tokens
    )
    return {"tokens": tokens, "encoder": encoder, "small": small}


@pytest.fixture(scope="module")
def store(home) -> Store:
    return home["tokens"].store


@pytest.fixture(scope="module")
def index(store, home) -> Artifact:
    return made(store, BuildIndex(), IndexConfig(), source=build(store, home["encoder"]))


@pytest.fixture(scope="module")
def neighbors(store, index) -> Artifact:
    return made(store, PrecomputeNeighbors(), NeighborsConfig(k=4), source=index)


def build(store, encoder, **settings) -> Artifact:
    return made(
        store, BuildDatastore(), DatastoreConfig(**{"dtype": "float32", **settings}), source=encoder
    )


@pytest.fixture
def one_thread(monkeypatch):
    """Here and in processes that are started: attention rounds otherwise with two."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield
    torch.set_num_threads(before)


def keys_of(datastore) -> np.ndarray:
    return np.asarray(datastore.zarr("datastore.zarr")["keys"][:])


def split_inputs(tokens, split) -> np.ndarray:
    ids = tokens.zarr("tokens.zarr")[f"{split}/ids"][:].astype(np.int64)
    return np.concatenate(([tokens.metrics["start_id"]], ids[:-1]))


def key_of(theirs, encoder, window) -> np.ndarray:
    """By transformers, from the ids of a window."""
    config = encoder.config["model"]
    ids = torch.tensor([[*config["before"], *window, *config["after"]]])
    with torch.no_grad():
        return (
            theirs(input_ids=ids, attention_mask=torch.ones_like(ids))
            .last_hidden_state[0]
            .mean(0)
            .numpy()
        )


@pytest.mark.parametrize("reset", ["none", "document"])
def test_a_key_is_the_encoding_of_the_last_tokens_before_its_token(store, home, folder, reset):
    datastore, tokens = build(store, home["encoder"], split="test", reset=reset), home["tokens"]
    inputs, documents = (
        split_inputs(tokens, "test"),
        tokens.zarr("tokens.zarr")["test/doc_offsets"][:],
    )
    assert len(documents) > 2
    starts = [0 if reset == "none" else documents[documents <= i].max() for i in range(len(inputs))]
    wanted = [
        key_of(folder[1], home["encoder"], inputs[max(start, i + 1 - N) : i + 1])
        for i, start in enumerate(starts)
    ]
    np.testing.assert_allclose(keys_of(datastore), np.stack(wanted), atol=1e-5)
    assert (datastore.config["key"], datastore.config["context"], datastore.config["stride"]) == (
        "hidden",
        N,
        1,
    )


@pytest.mark.parametrize("context", [3, N])
def test_changing_a_token_changes_no_key_up_to_its_own(store, home, tmp_path, folder, context):
    """The key of a token's position is made of tokens before it; as many as the window holds after
    it change.
    """
    text = WORDS[0].split()
    (tmp_path / "a.txt").write_text(" ".join(text) + "\n")
    (tmp_path / "b.txt").write_text(" ".join([*text[:5], "dog", *text[6:]]) + "\n")
    keys, ids = [], []
    for name in ("a", "b"):
        config, files = (
            TokenizeConfig(tokenizer="given"),
            {"train": [str(tmp_path / f"{name}.txt")]},
        )
        tokens = made(store, Tokenize(), config, source=[], tokenizer=str(folder[0]), **files)
        settings = DatastoreConfig(dtype="float32", context=context)
        keys.append(
            keys_of(made(store, BuildDatastore(), settings, source=home["encoder"], tokens=tokens))
        )
        ids.append(tokens.zarr("tokens.zarr")["train/ids"][:])
    length = min(map(len, ids))
    other = np.flatnonzero(ids[0][:length] != ids[1][:length])
    assert 0 < other[0] < length - 2
    moved = np.abs(keys[0][:length] - keys[1][:length]).max(1) > 1e-4
    assert not moved[: other[0] + 1].any() and moved[other[0] + 1]


def test_several_shards_give_what_one_gives_and_go_on_where_they_stopped(
    store, home, one_thread, monkeypatch
):
    whole = build(store, home["encoder"], split="train", context=4)
    wanted = keys_of(whole)
    limit(monkeypatch, pooled_rows=7)
    original, left = KeyEncoder.encode, [2]

    def encode(*arguments):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return original(*arguments)

    store.remove(whole.reference)
    monkeypatch.setattr(KeyEncoder, "encode", encode)
    with pytest.raises(KeyboardInterrupt):
        build(store, home["encoder"], split="train", context=4)
    left[0] = 1000
    parts = build(store, home["encoder"], split="train", context=4)
    shards = math.ceil(len(wanted) / 7)
    assert left[0] == 1000 - shards + 2
    assert len(list((parts.path / "datastore.zarr/keys/c").glob("*/0"))) == shards
    np.testing.assert_allclose(keys_of(parts), wanted, atol=1e-5)
    store.remove(parts.reference)


@pytest.mark.endurance
@pytest.mark.timeout(300)
def test_two_processes_give_what_one_gives(store, home, one_thread, monkeypatch):
    limit(monkeypatch, pooled_rows=7)
    one = build(store, home["encoder"], split="train", context=4)
    store.remove(one.reference)
    config = DatastoreConfig(dtype="float32", split="train", context=4)
    two = made(store, BuildDatastore(), config, workers=2, source=home["encoder"])
    assert two.manifest.files == one.manifest.files


def test_its_neighbours_are_read_by_another_model(store, home, index, neighbors):
    """Stored or searched for, by kNN-LM or a gate."""
    config = {"memory": ("external:k=4,lambda=0.3,temperature=1",)}
    stored, searched = (
        made(store, Evaluate(), EvaluateConfig(**config), source=home["small"], **{one.kind: one})
        for one in (neighbors, index)
    )
    rows = [
        [row["perplexity"] for row in report.json("metrics.json")["rows"]]
        for report in (stored, searched)
    ]
    assert rows[0][1] < rows[0][0]
    np.testing.assert_allclose(rows[0], rows[1], rtol=1e-4)
    gated = made(
        store, Train(), TrainConfig.model_validate(SETTINGS | {"method": "spalm"}), source=neighbors
    )
    assert (
        made(store, Evaluate(), EvaluateConfig(), source=gated).json("metrics.json")["rows"][0][
            "perplexity"
        ]
        > 1
    )


def test_queries_are_made_as_keys_are(store, home, folder, index, neighbors):
    found = neighbors.zarr("neighbors.zarr")["test/distances"][:]
    keys, inputs = keys_of(index.input("datastore")), split_inputs(home["tokens"], "test")
    for place in (0, 3, N, len(inputs) - 1):
        query = key_of(folder[1], home["encoder"], inputs[max(0, place + 1 - N) : place + 1])
        nearest = np.sort(((keys - query) ** 2).sum(1))[:4]
        np.testing.assert_allclose(found[place], nearest, atol=1e-4)


def test_a_split_is_added_and_documents_go(store, home):
    """What is added is encoded as when built by itself; what stood behind a document that goes is
    encoded again.
    """
    datastore, valid = build(store, home["encoder"]), build(store, home["encoder"], split="valid")
    config = UpdateConfig(split="valid", forget=("1",))
    updated = made(store, UpdateDatastore(), config, source=datastore, add=home["tokens"])
    offsets = home["tokens"].zarr("tokens.zarr")["train/doc_offsets"][:]
    before, after = keys_of(datastore), keys_of(updated)
    np.testing.assert_allclose(after[-len(keys_of(valid)) :], keys_of(valid), atol=1e-5)
    np.testing.assert_array_equal(after[: offsets[1]], before[: offsets[1]])
    kept = before[offsets[2] :]
    again = np.abs(after[offsets[1] : -len(keys_of(valid))] - kept).max(1) > 1e-5
    assert again[: N - 1].any() and not again[N - 1 :].any()


@pytest.mark.parametrize("of", ["encoder", "index", "neighbors"])
def test_what_scores_refuses_it_and_says_what_it_is_for(store, home, index, neighbors, of):
    source = {**home, "index": index, "neighbors": neighbors}[of]
    for_keys = rf"{home['encoder'].reference} is an encoder: it makes keys, and scores no tokens\. Find neighbours with"
    with pytest.raises(ArtifactError, match=for_keys):
        made(store, Evaluate(), EvaluateConfig(), source=source)
    with pytest.raises(ArtifactError, match=for_keys):
        made(store, Evaluate(), EvaluateConfig(memory=("neural-cache",)), source=source)
    with pytest.raises(ArtifactError, match=for_keys):
        find(Request(source=source.reference), store, "test")


def test_it_is_not_exported_and_learns_no_text(store, home, neighbors, tmp_path):
    for method, source in {"lm": home["tokens"], "spalm": neighbors}.items():
        config = TrainConfig.model_validate(SETTINGS | {"method": method})
        with pytest.raises(ArtifactError, match="is an encoder"):
            made(store, Train(), config, source=source, init_from=home["encoder"])
    with pytest.raises(ArtifactError, match="is an encoder"):
        export(home["encoder"], tmp_path / "out")
    config = TrainConfig.model_validate(SETTINGS | {"model": {"backbone": "text-encoder"}})
    with pytest.raises(UsageError, match="is imported, not trained from nothing"):
        made(store, Train(), config, source=home["tokens"])


@pytest.fixture(scope="module")
def stream(store, folder, tmp_path_factory) -> tuple[Artifact, Artifact]:
    """Three tasks in the words of an encoder, and the encoder."""
    path = tmp_path_factory.mktemp("tasks")
    folders = [
        str(write_task(path / name, labels, {"train": 40, "test": 20}))
        for name, labels in TASKS.items()
    ]
    config = TokenizeConfig(tasks=True, tokenizer="given")
    tokens = made(store, Tokenize(), config, source=folders, tokenizer=str(folder[0]))
    return tokens, made(
        store, ImportModel(), ImportConfig(), source=tokens, checkpoint=str(folder[0])
    )


def of_tasks(method: str, **settings) -> TrainConfig:
    small = {
        "segment_length": 30,
        "batch_tokens": 240,
        "epochs": 1,
        "model": {"backbone": "text-encoder"},
    }
    return TrainConfig.model_validate(
        small | {"method": method, "optimizer": {"lr": 0.01}} | settings
    )


METHODS_OF_LABELS = [
    name
    for name in METHODS.names()
    if METHODS.settings(name).learns != "text" and not METHODS.settings(name).scores_tokens
    if name not in ("seq", "gem", "mas", "oml-er")
]
"""Each learns in a way of its own; `test_evaluate_tasks` begins the others with an imported model
of text.
"""


@pytest.mark.parametrize("method", METHODS_OF_LABELS)
def test_it_learns_labels_by_every_method(store, stream, method):
    tokens, encoder = stream
    source, more = tokens, {}
    if method == "meta-mbpa":
        more = {"memory": {"block": 8, "k": 1}}
        source = made(store, BuildEpisodes(), EpisodesConfig(), source=encoder, tokens=tokens)
    model = made(store, Train(), of_tasks(method, **more), source=source, init_from=encoder)
    own, learnt = (load_file(one.file("model.safetensors")) for one in (encoder, model))
    assert not torch.equal(own["backbone.before"], learnt["backbone.before"])
    read = made(store, EvaluateTasks(), EvaluateTasksConfig(), source=model)
    assert 0 <= read.metrics["rows"][0]["average"] <= 1


def test_it_learns_them_and_adapts_by_its_own_keys(store, stream):
    tokens, encoder = stream
    model = made(store, Train(), of_tasks("multitask", epochs=6), source=tokens, init_from=encoder)
    keys = made(store, BuildEpisodes(), EpisodesConfig(), source=encoder, tokens=tokens)
    config = EvaluateTasksConfig(memory=("none", "mbpa:steps=2,lr=0.001", "episodic"))
    rows = made(store, EvaluateTasks(), config, source=model, episodes=keys).metrics["rows"]
    assert min(row["average"] for row in rows) > 0.7


@pytest.mark.parametrize("method", ["lamol", "elle"])
def test_a_method_that_writes_refuses_it(store, stream, method):
    tokens, encoder = stream
    with pytest.raises(ArtifactError, match="is an encoder"):
        made(store, Train(), of_tasks(method), source=tokens, init_from=encoder)


@pytest.mark.parametrize("method", ["seq", "multitask"])
def test_answers_in_words_are_not_written_by_it(store, stream, folder, tmp_path, method):
    records = "".join(
        json.dumps({"text": "the cat sat", "question": "who sat", "answer": "cat"}) + "\n"
        for _ in range(40)
    )
    (tmp_path / "asked").mkdir()
    (tmp_path / "asked" / "train.jsonl").write_text(records)
    config = TokenizeConfig(tasks=True, tokenizer="given", records="answers")
    tokens = made(
        store, Tokenize(), config, source=[str(tmp_path / "asked")], tokenizer=str(folder[0])
    )
    with pytest.raises(UsageError, match="scores no tokens"):
        made(store, Train(), of_tasks(method), source=tokens, init_from=stream[1])


def test_documents_longer_than_it_reads_are_refused(store, stream):
    tokens, encoder = stream
    with pytest.raises(UsageError, match="reads 38 tokens at once"):
        made(
            store,
            Train(),
            of_tasks("seq", segment_length=39, batch_tokens=390),
            source=tokens,
            init_from=encoder,
        )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stride": 2}, r"reads a window for every token: leave --stride 2 out"),
        ({"context": 39}, "learned 38 positions; --context 39 is longer"),
        ({"key": "ffn-input"}, "has no key 'ffn-input'; it has: hidden"),
        ({"mem_length": 4}, "leave --mem-length out"),
    ],
)
def test_windows_that_it_has_not_are_refused(store, home, settings, message):
    with pytest.raises(UsageError, match=message):
        build(store, home["encoder"], **settings)


def test_its_id_is_of_its_bytes_and_its_pooling(store, home, folder, tmp_path):
    saved_encoder(tmp_path / "moved")
    config = ImportConfig(segment_length=N)
    again = made(
        store, ImportModel(), config, source=home["tokens"], checkpoint=str(tmp_path / "moved")
    )
    assert again.reference == home["encoder"].reference
    (tmp_path / "moved/modules.json").write_text(
        '[{"path": "", "type": "sentence_transformers.models.Normalize"}]'
    )
    other = made(
        store, ImportModel(), config, source=home["tokens"], checkpoint=str(tmp_path / "moved")
    )
    assert other.reference != again.reference
    usual = made(
        store, ImportModel(), ImportConfig(), source=home["tokens"], checkpoint=str(folder[0])
    )
    assert usual.config["segment_length"] == 32
