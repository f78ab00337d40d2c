import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.encoding.datastore_work import DatastoreWork
from stages.encoding.key_encoder import KeyEncoder
from stages.errors import ArtifactError, UsageError
from stages.examples.cutting import WindowSettings
from stages.models.weights import load_model
from tests.builders.limits import limit
from tests.stages.kills import made_in_pieces, states
from tests.stages.small_store import EOS, array, small_model, small_tokens


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def model(store: Store) -> Artifact:
    return small_model(store, small_tokens(store))


def build(store: Store, model: Artifact, tokens: str | None = None, **settings) -> Artifact:
    references = {"source": model.reference, "tokens": tokens}
    return make(
        BuildDatastore(), DatastoreConfig(**settings), references, store, Execution()
    ).artifact


def slow_keys(model: Artifact, ids: np.ndarray, key: str, context: int, stride: int) -> np.ndarray:
    """One token at a time: the last row of the window's inputs up to it."""
    language_model = load_model(model.path, "cpu")
    inputs = np.concatenate(([EOS], ids[:-1].astype(np.int64)))
    rows = []
    for token in range(len(ids)):
        start = max(0, -(-(token - context + 1) // stride)) * stride
        with torch.no_grad():
            seen = language_model.encode(torch.from_numpy(inputs[None, start : token + 1]))
        rows.append(seen.key(key)[0, -1].numpy())
    return np.stack(rows)


@pytest.mark.parametrize("key", ["ffn-input", "hidden"])
@pytest.mark.parametrize(("context", "stride"), [(None, None), (7, 3)])
def test_row_i_holds_the_context_before_token_i_and_the_token(store, model, key, context, stride):
    made = build(store, model, key=key, dtype="float32", context=context, stride=stride)
    ids = array(model.input("tokens"), "tokens.zarr", "train/ids")
    want = slow_keys(model, ids, key, context or 8, stride or 8)
    np.testing.assert_allclose(array(made, "datastore.zarr", "keys"), want, atol=1e-5)
    np.testing.assert_array_equal(array(made, "datastore.zarr", "values"), ids)
    assert array(made, "datastore.zarr", "values").dtype == np.int32


def test_float16_is_the_default_and_rounds_what_float32_keeps(store, model):
    half, full = build(store, model), build(store, model, dtype="float32")
    keys = array(half, "datastore.zarr", "keys")
    assert keys.dtype == np.float16
    np.testing.assert_array_equal(keys, array(full, "datastore.zarr", "keys").astype(np.float16))


def test_metrics_and_resolved_settings_are_kept(store, model):
    made = build(store, model, split="valid")
    metrics = dict(made.metrics)
    assert metrics.pop("tokens_per_second") > 0
    assert metrics == {
        "rows": 40,
        "dim": 8,
        "dtype": "float16",
        "key": "ffn-input",
        "bytes": 40 * 20,
    }
    assert (made.config["context"], made.config["stride"], made.config["precision"]) == (
        8,
        8,
        "fp32",
    )
    assert (made.input("encoder").id, made.input("corpus").kind) == (model.id, "tokens")


def test_several_shards_give_what_one_gives(store, model, monkeypatch):
    whole = build(store, model, dtype="float32", context=7, stride=3)
    limit(monkeypatch, shard_bytes=32 * 10)
    other = Store(store.root.parent / "other")
    parts = build(
        other, small_model(other, small_tokens(other)), dtype="float32", context=7, stride=3
    )
    assert len(list((parts.path / "datastore.zarr/keys/c").glob("*/0"))) == 10
    np.testing.assert_allclose(
        array(parts, "datastore.zarr", "keys"), array(whole, "datastore.zarr", "keys"), atol=1e-6
    )


def test_an_interrupted_build_goes_on_and_gives_the_same_bytes(store, model, monkeypatch):
    limit(monkeypatch, shard_bytes=16 * 24)
    encoded = []
    original = KeyEncoder.encode

    def encode(self, split, start, stop, state):
        if len(encoded) == 2:
            encoded.append(None)
            raise KeyboardInterrupt
        encoded.append(start)
        return original(self, split, start, stop, state)

    monkeypatch.setattr(KeyEncoder, "encode", encode)
    with pytest.raises(KeyboardInterrupt):
        build(store, model)
    resumed = build(store, model)
    assert encoded == [0, 24, None, 48, 72]
    other = Store(store.root.parent / "other")
    whole = build(other, small_model(other, small_tokens(other)))
    assert resumed.manifest.files == whole.manifest.files


LSTM = {"backbone": "lstm", "vocab_size": 11, "layers": 1, "width": 8, "dropout": 0.0}
XL = {
    "backbone": "transformer-xl",
    "vocab_size": 11,
    "layers": 2,
    "width": 8,
    "heads": 2,
    "ffn_width": 8,
}
XL |= {"segment_length": 8, "mem_length": 6}


def one_pass(model, split, windows):
    """Keys of a split read as one stream, in one call."""
    ids = array(model.input("tokens"), "tokens.zarr", f"{split}/ids").astype(np.int64)
    inputs = torch.from_numpy(np.concatenate(([EOS], ids[:-1])))
    with torch.no_grad():
        return load_model(model.path, "cpu", windows).encode(inputs[None]).hidden[0].numpy()


@pytest.mark.parametrize(
    ("backbone", "read"),
    [(LSTM, {}), (XL, {}), (XL, {"context": 5, "mem_length": 11}), (XL, {"mem_length": 0})],
)
def test_a_backbone_that_carries_state_reads_a_split_once_and_goes_on_where_it_stopped(
    store, monkeypatch, backbone, read
):
    limit(monkeypatch, shard_bytes=32 * 24)
    model = small_model(store, small_tokens(store), model=backbone)
    original, left = KeyEncoder.encode, [2]

    def encode(*arguments):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return original(*arguments)

    monkeypatch.setattr(KeyEncoder, "encode", encode)
    with pytest.raises(KeyboardInterrupt):
        build(store, model, dtype="float32", key="hidden", **read)
    left[0] = 100
    made = build(store, model, dtype="float32", key="hidden", **read)
    assert left[0] == 98
    wanted = one_pass(model, "train", WindowSettings.of(made.config))
    np.testing.assert_allclose(array(made, "datastore.zarr", "keys"), wanted, atol=1e-5)


@pytest.mark.parametrize(("backbone", "logged"), [(LSTM, False), (XL, False), (XL, True)])
def test_a_kill_at_any_shard_leaves_the_state_that_the_next_run_begins_with(
    store, monkeypatch, backbone, logged
):
    limit(monkeypatch, shard_bytes=32 * 16)
    model = small_model(store, small_tokens(store), model=backbone)
    whole = build(store, model, dtype="float32", key="hidden")
    store.remove(whole.reference)
    made, attempts = made_in_pieces(
        monkeypatch, lambda: build(store, model, dtype="float32", key="hidden"), logged=logged
    )
    assert made.manifest.files == whole.manifest.files
    assert attempts.begun_with == list(range(6 + 1))
    assert attempts.most_states <= 3


def interrupted(*_):
    raise KeyboardInterrupt


def test_shards_that_are_damaged_are_made_again_without_the_states_before_them(store, monkeypatch):
    limit(monkeypatch, shard_bytes=32 * 10)
    model = small_model(store, small_tokens(store), model=XL)
    whole = build(store, model, dtype="float32")
    store.remove(whole.reference)
    with monkeypatch.context() as patched:
        patched.setattr(DatastoreWork, "finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            build(store, model, dtype="float32")
    draft = store.draft_folder("datastore", whole.id)
    assert len(states(draft / "scratch")) == 1
    for shard in (2, 3, 6):
        (draft / f"datastore.zarr/keys/c/{shard}/0").write_bytes(b"damaged")
    assert build(store, model, dtype="float32").manifest.files == whole.manifest.files


def test_keys_are_those_that_the_backbone_has(store):
    model = small_model(store, small_tokens(store), model=LSTM)
    assert build(store, model).config["key"] == "hidden"
    with pytest.raises(UsageError, match="no key 'ffn-input'; it has: hidden"):
        build(store, model, key="ffn-input")


def test_segments_and_memory_are_those_of_training_unless_told_otherwise(store):
    model = small_model(store, small_tokens(store), model=XL)
    settings = {
        name: build(store, model).config[name] for name in ("context", "stride", "mem_length")
    }
    assert settings == {"context": 8, "stride": 8, "mem_length": 6}
    with pytest.raises(
        UsageError, match=r"\(transformer-xl\) reads a split as one stream: leave --stride out"
    ):
        build(store, model, stride=4)


def test_a_fraction_keeps_the_beginning(store, model):
    part, whole = build(store, model, fraction=0.3), build(store, model)
    assert part.metrics["rows"] == 27
    np.testing.assert_array_equal(
        array(part, "datastore.zarr", "keys"), array(whole, "datastore.zarr", "keys")[:27]
    )


def test_keys_too_large_for_float16_are_refused_with_the_way_out(store):
    model = small_model(store, small_tokens(store), scale=1e6)
    with pytest.raises(UsageError, match="overflow float16: run again with --dtype float32"):
        build(store, model)
    assert np.isfinite(array(build(store, model, dtype="float32"), "datastore.zarr", "keys")).all()


def test_a_model_without_numbers_is_named(store):
    model = small_model(store, small_tokens(store), seed=1, poison=True)
    with pytest.raises(ArtifactError, match="are not finite numbers"):
        build(store, model, dtype="float32")


def test_another_corpus_must_have_the_model_s_tokenizer(store, model):
    same = small_tokens(store, seed=1, lengths={"train": 20})
    assert build(store, model, tokens=same.reference).metrics["rows"] == 20
    other = small_tokens(store, tokenizer="other")
    with pytest.raises(
        ArtifactError, match=r"tokenized differently.*memlm tokenize --tokenizer tokens/"
    ):
        build(store, model, tokens=other.reference)


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"split": "vaild"}, ArtifactError, "no split 'vaild' .*; did you mean 'valid'"),
        ({"stride": 9}, UsageError, "--stride 9 is larger than the context, 8"),
        ({"context": 17}, UsageError, "learned 16 positions; --context 17 is longer"),
        ({"mem_length": 4}, UsageError, "has no memory of a given length: leave --mem-length out"),
    ],
)
def test_settings_that_do_not_fit_the_model_are_refused(store, model, settings, error, words):
    with pytest.raises(error, match=words):
        build(store, model, **settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"fraction": 0},
        {"fraction": 1.1},
        {"context": 0},
        {"stride": -1},
        {"fraction": float("nan")},
    ],
)
def test_nonsense_numbers_are_refused(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        DatastoreConfig(**settings)


def test_the_verb_imports_without_torch():
    code = "import stages.datastore, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
