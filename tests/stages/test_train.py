"""The stage train: what it asks of its inputs, what it resolves, what it leaves on disk."""

import json
import math
import shutil

import pytest
from pydantic import ValidationError
from safetensors.torch import load_file

from stages.artifacts.checksums import file_entry
from stages.artifacts.draft import Draft
from stages.artifacts.kinds import KINDS
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.errors import ArtifactError, DataError, ResourceError, UsageError
from stages.index import BuildIndex, IndexConfig
from stages.models.config import parse_model
from stages.models.weights import load_model
from stages.neighbors import NeighborsConfig, PrecomputeNeighbors
from stages.pack import PackBatches, PackConfig
from stages.reporting import Silent
from stages.train import Train
from stages.training.config import TrainConfig
from stages.training.journal import Progress
from stages.training.resolve import MOST_PASSES
from tests.builders.once import make_once
from tests.builders.trainings import SMALL, train
from tests.stages.artifacts.toy import restate
from tests.stages.small_store import VOCABULARY, small_model, small_tokens


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def test_files_and_metrics_of_a_model(store):
    model = train(store, small_tokens(store))
    files = set(model.manifest.files)
    assert files == {"model.safetensors", "last.safetensors", "config.json", "training.jsonl"}
    metrics = model.metrics
    assert metrics["steps"] == 6
    assert metrics["tokens"] == 96
    assert metrics["passes"] == pytest.approx(
        96 / model.input("tokens").metrics["splits"]["train"]["tokens"], abs=1e-4
    )
    assert metrics["last_validations"][-1]["step"] == 6
    assert metrics["valid_perplexity"] == pytest.approx(math.exp(metrics["valid_loss"]))
    weights = load_file(model.path / "model.safetensors")
    assert metrics["parameters"] == sum(tensor.numel() for tensor in weights.values())


def test_configuration_on_disk_rebuilds_the_model(store):
    model = train(store, small_tokens(store))
    settings = json.loads((model.path / "config.json").read_text())
    assert settings["method"] == "lm"
    assert settings["training"]["segment_length"] == 8
    assert settings["model"]["vocab_size"] == VOCABULARY
    assert settings["model"]["max_positions"] == 8
    assert load_model(model.path, "cpu").config.model_dump(mode="json") == settings["model"]


def test_best_weights_are_those_of_the_best_validation(store):
    model = train(store, small_tokens(store), optimizer={"name": "sgd", "lr": 5.0, "momentum": 0.0})
    assert model.metrics["valid_step"] < 6
    best, last = (load_file(model.path / f"{name}.safetensors") for name in ("model", "last"))
    assert not all((best[name] == last[name]).all() for name in best)


def test_seeds_begin_with_weights_of_their_own(store):
    tokens, still = small_tokens(store), {"name": "sgd", "lr": 1e-9, "momentum": 0.0}
    models = [train(store, tokens, seed=seed, steps=1, optimizer=still) for seed in (0, 1)]
    first, second = (load_file(model.path / "last.safetensors") for model in models)
    drawn = [name for name, weight in first.items() if weight.ndim > 1]
    assert drawn and not any((first[name] == second[name]).any() for name in drawn)


def test_without_a_validation_split_the_last_weights_are_the_model(store):
    model = train(store, small_tokens(store, lengths={"train": 90}))
    assert model.metrics["valid_loss"] is None
    assert (model.path / "model.safetensors").read_bytes() == (
        model.path / "last.safetensors"
    ).read_bytes()


def test_the_same_work_is_the_same_bytes(store, tmp_path):
    tokens = small_tokens(store)
    other = Store(tmp_path / "other")
    assert train(store, tokens).digest == train(other, small_tokens(other), log_every=1).digest


@pytest.mark.parametrize(
    ("precision", "own", "warned"), [("bf16", False, 1), ("bf16", True, 0), ("fp32", False, 0)]
)
def test_bf16_without_instructions_for_it_is_warned_of(store, monkeypatch, precision, own, warned):
    monkeypatch.setattr("stages.training.work.multiplies_bf16", lambda: own)
    notes = Interrupt()
    train(store, small_tokens(store), reporter=notes, precision=precision)
    assert sum("--precision fp32" in message for message in notes.messages) == warned


def test_epochs_become_steps(store):
    tokens = small_tokens(store)
    by_epochs = train(store, tokens, epochs=1.5, steps=1)
    assert by_epochs.config["steps"] == math.ceil(1.5 * (90 // 8 // 2))
    assert by_epochs.config["epochs"] is None
    assert by_epochs.reference == train(store, tokens, steps=by_epochs.config["steps"]).reference


def test_steps_follow_from_text_and_model_where_nobody_says(store):
    """90 tokens are 11 segments, 5 batches a pass, and the model has weights enough for the most
    passes.
    """
    tokens, notes = small_tokens(store), Interrupt()
    model = train(store, tokens, reporter=notes, steps="auto")
    assert model.config["steps"] == MOST_PASSES * 5
    assert model.config["valid_every"] == 2  # as it was given
    said = f"{MOST_PASSES * 5} steps, {MOST_PASSES} passes over the 90 tokens of the text (--steps auto)"
    assert said in notes.messages
    assert model.reference == train(store, tokens, steps=MOST_PASSES * 5).reference
    assert train(store, tokens, steps="auto", epochs=1.0).config["steps"] == 5


def test_a_validation_comes_often_enough_to_find_the_best_weights(store):
    settings = {
        name: value for name, value in SMALL.items() if name not in ("steps", "valid_every")
    }
    references = {"source": small_tokens(store).reference}
    execution = Execution(device="cpu")
    model = make(
        Train(), TrainConfig.model_validate(settings), references, store, execution
    ).artifact
    assert (model.config["steps"], model.config["valid_every"]) == (
        MOST_PASSES * 5,
        MOST_PASSES * 5 // 20,
    )


@pytest.mark.parametrize("steps", [0, -1, "many", 1.5])
def test_a_number_of_steps_that_is_none_is_refused(steps):
    with pytest.raises(ValidationError, match="steps"):
        TrainConfig.model_validate(SMALL | {"steps": steps})


LSTM = {"backbone": "lstm", "width": 8}


def test_an_lstm_is_rebuilt_from_its_configuration(store):
    model = train(store, small_tokens(store), model=LSTM)
    settings = json.loads((model.path / "config.json").read_text())
    assert settings["model"]["vocab_size"] == VOCABULARY
    assert load_model(model.path, "cpu").config == parse_model(settings["model"])
    assert model.config["model"] == settings["model"]
    again = train(store, small_tokens(store), {"init_from": model.reference}, steps=2)
    assert again.config["model"] == settings["model"]


def test_epochs_of_streams_become_steps(store):
    """90 tokens are 11 segments: 2 streams of 5 batches an epoch."""
    model = train(store, small_tokens(store), model=LSTM, epochs=1.5, steps=1)
    assert model.config["steps"] == math.ceil(1.5 * 5)


def test_adaptive_models_rank_tokens_by_count(store):
    tokens = small_tokens(store)
    settings = SMALL["model"] | {"cutoffs": [3, 6], "factor": 2}
    rank = load_file(train(store, tokens, model=settings).path / "model.safetensors")[
        "vocabulary.rank"
    ]
    counts = [0] * VOCABULARY
    for token in tokens.zarr("tokens.zarr")["train/ids"][:]:
        counts[token] += 1
    by_rank = sorted(range(VOCABULARY), key=lambda token: (-counts[token], token))
    assert [by_rank.index(token) for token in range(VOCABULARY)] == rank.tolist()


def test_training_goes_on_from_another_model(store):
    tokens = small_tokens(store)
    first = train(store, tokens, steps=1, optimizer={"lr": 1e-12})
    second = train(
        store, tokens, {"init_from": first.reference}, optimizer={"lr": 1e-12}, model={"width": 4}
    )
    assert second.config["model"] == first.config["model"]
    before, after = (load_file(m.path / "last.safetensors") for m in (first, second))
    for name in before:
        assert after[name].numpy() == pytest.approx(before[name].numpy(), abs=1e-6)


def test_a_model_of_another_vocabulary_is_refused(store):
    first = train(store, small_tokens(store))
    size = first.manifest.config["model"]["vocab_size"]
    first.manifest.config["model"]["vocab_size"] = size + 1
    from stages.training.sources import require_init

    with pytest.raises(
        ArtifactError, match=rf"vocabulary of {size + 1}, but tokens/\w+ one of {size}"
    ):
        require_init(TrainConfig(), first, small_tokens(store))


def test_a_model_of_another_backbone_than_is_named_is_refused(store):
    tokens = small_tokens(store)
    first = train(store, tokens)
    message = rf"{first.reference} is a transformer, .* the backbone 'transformer-xl': leave that out, or name a preset"
    for model in (
        {"backbone": "transformer-xl"},
        SMALL["model"] | {"backbone": "transformer-xl", "mem_length": 4},
    ):
        with pytest.raises(UsageError, match=message):
            train(store, tokens, {"init_from": first.reference}, model=model)
    same = train(store, tokens, {"init_from": first.reference}, model={"backbone": "transformer"})
    assert same.config["model"] == first.config["model"]


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"method": "llm"}, ValidationError, "did you mean 'lm'"),
        (
            {"model": SMALL["model"] | {"max_positions": 4}},
            UsageError,
            "max_positions is 4, less than a segment of 8",
        ),
        (
            {"model": SMALL["model"] | {"vocab_size": 7}},
            UsageError,
            f"has {VOCABULARY} types; leave it out",
        ),
        ({"segment_length": 100, "batch_tokens": 100}, DataError, "less than one segment of 100"),
    ],
)
def test_settings_that_do_not_fit_the_tokens(store, settings, error, message):
    with pytest.raises(error, match=message):
        train(store, small_tokens(store), **settings)


def test_tokens_without_a_training_split_are_refused(store):
    mend = "tokens that have one: memlm tokenize .* --train FILE"
    with pytest.raises(ArtifactError, match=f"has no split 'train' .*; {mend}"):
        train(store, small_tokens(store, lengths={"test": 20}))


def test_models_are_no_tokens(store):
    tokens = small_tokens(store)
    with pytest.raises(ArtifactError, match="tokens"):
        train(store, train(store, tokens))


class Interrupt(Silent):
    """Ends the process' work after a step, as Ctrl-C would; notes what is said."""

    def __init__(self, step=None):
        self.step, self.messages, self.steps = step, [], []

    def info(self, message):
        self.messages.append(message)

    warning = info

    def progress(self, done, total, unit, **figures):
        self.steps.append(done)
        if done == self.step:
            raise KeyboardInterrupt


def test_an_interrupted_stage_resumes_to_the_same_artifact(store, tmp_path, monkeypatch):
    tokens, add = small_tokens(store), Progress.add

    def slowly(self, *figures):
        add(self, *figures)
        self.seconds += 100

    with monkeypatch.context() as slow, pytest.raises(KeyboardInterrupt):
        slow.setattr(Progress, "add", slowly)
        train(store, tokens, reporter=Interrupt(step=5))
    second = Interrupt()
    resumed = train(store, tokens, reporter=second)
    assert 100 < resumed.manifest.seconds < 600  # the time of the run before counts
    assert second.messages[0].startswith("resumed: ")
    assert second.steps[0] > 1
    other = Store(tmp_path / "other")
    assert resumed.digest == train(other, small_tokens(other)).digest


def test_a_first_rank_that_has_finished_still_meets_the_others(store, monkeypatch):
    tokens, met = small_tokens(store), []

    def interrupt(draft):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Draft, "finish_files", interrupt)
        train(store, tokens)
    monkeypatch.setattr("stages.training.work.world_size", lambda: 2)
    monkeypatch.setattr("stages.training.work._fit", lambda *job: met.append(job))
    assert train(store, tokens).metrics["steps"] == 6
    assert len(met) == 1


def test_a_disk_without_room_is_told_before_training(store, monkeypatch):
    tokens = small_tokens(store)
    usage = shutil.disk_usage("/")._replace(free=10)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(ResourceError, match="B more are needed"):
        train(store, tokens)


class TestMemory:
    """Methods that train with in-batch memory."""

    @pytest.mark.parametrize("method", ["trime", "trime-long", "trime-ext"])
    def test_settings_of_memory_are_filled_in_and_kept(self, store, method):
        model = train(store, small_tokens(store), method=method)
        assert model.config["method"] == method
        assert model.config["memory"]["key"] == "ffn-input"
        assert model.config["memory"].get("consecutive", 2) == 2
        settings = json.loads((model.path / "config.json").read_text())
        assert settings["memory"] == model.config["memory"]

    @pytest.mark.parametrize(
        ("batch_tokens", "accumulate", "consecutive"), [(32, 1, 2), (32, 4, 4), (64, 1, 8)]
    )
    def test_how_segments_are_grouped_follows_from_the_documents_an_update(
        self, store, batch_tokens, accumulate, consecutive
    ):
        tokens = small_tokens(store, lengths={"train": 900, "valid": 40, "test": 35})
        batches = {"batch_tokens": batch_tokens, "accumulate": accumulate, "method": "trime-long"}
        model = train(store, tokens, **batches)
        assert model.config["memory"]["consecutive"] == consecutive
        assert train(store, tokens, **batches, memory={"consecutive": consecutive}).id == model.id

    def test_an_lstm_is_searched_with_its_hidden_state(self, store):
        model = train(
            store, small_tokens(store), method="trime", model={"backbone": "lstm", "width": 8}
        )
        assert model.config["memory"]["key"] == "hidden"

    def test_ablations_are_other_models(self, store):
        tokens = small_tokens(store)
        memories = [
            {},
            {"local_dropout": 0.1},
            {"backpropagate": False},
            {"warmup": 0.5},
            {"temperature": 2.0},
        ]
        models = {train(store, tokens, method="trime-ext", memory=memory).id for memory in memories}
        assert len(models) == len(memories)

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"memory": {"warmup": 0.1}}, "method 'lm' trains without memory"),
            (
                {"method": "trime", "memory": {"method": "trime-ext"}},
                "memory.method is 'trime-ext'",
            ),
        ],
    )
    def test_memory_of_another_method_is_refused(self, store, settings, message):
        with pytest.raises(ValueError, match=message):
            train(store, small_tokens(store), **settings)

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            (
                {"method": "trime-long", "memory": {"consecutive": 3}},
                "2 segments of a forward batch, which 3 does not divide",
            ),
            (
                {"method": "trime-ext", "batch_tokens": 8},
                "other segments of a forward batch, but there is one alone",
            ),
            (
                {
                    "method": "trime",
                    "memory": {"key": "ffn-input"},
                    "model": {"backbone": "lstm", "width": 8},
                },
                "has no key 'ffn-input'; use 'hidden'",
            ),
        ],
    )
    def test_memory_that_does_not_fit_is_refused(self, store, settings, message):
        with pytest.raises(UsageError, match=message):
            train(store, small_tokens(store), **settings)


class TestBatches:
    """Packed batches in place of tokens."""

    @pytest.fixture
    def tokens(self, store):
        return small_tokens(store)

    @pytest.fixture
    def batches(self, store, tokens):
        config = PackConfig(segment_length=8)
        return make(
            PackBatches(), config, {"source": tokens.reference}, store, Execution(device="cpu")
        ).artifact

    def test_make_another_model_than_tokens(self, store, tokens, batches):
        packed = train(store, batches, method="trime-ext")
        assert packed.input("batches").reference == batches.reference
        assert packed.input("tokens").reference == tokens.reference
        assert (
            packed.metrics["train_loss"]
            != train(store, tokens, method="trime-ext").metrics["train_loss"]
        )

    @pytest.mark.parametrize("method", ["lm", "trime", "trime-long"])
    def test_are_refused_by_methods_that_do_not_read_them(self, store, tokens, batches, method):
        with pytest.raises(
            ArtifactError,
            match=f"for --method trime-ext; use such a method, .* memlm train {tokens.reference}",
        ):
            train(store, batches, method=method)

    def test_of_another_segment_length_are_refused(self, store, tokens, batches):
        with pytest.raises(
            ArtifactError, match=f"memlm pack-batches {tokens.reference} --segment-length 4"
        ):
            train(store, batches, method="trime-ext", segment_length=4)


class TestNeighbors:
    """Neighbours of every token in place of tokens."""

    @pytest.fixture
    def tokens(self, store):
        return small_tokens(store)

    @pytest.fixture
    def index(self, store, tokens):
        encoder = small_model(store, tokens)
        datastore = made(store, BuildDatastore(), DatastoreConfig(key="hidden"), encoder)
        return made(store, BuildIndex(), IndexConfig(metric="ip"), datastore)

    def neighbors(self, store, index, **settings):
        return made(store, PrecomputeNeighbors(), NeighborsConfig(**{"k": 2} | settings), index)

    def spalm(self, store, source, references=None, **settings):
        return train(store, source, references, method="spalm", **{"memory": {"k": 2}} | settings)

    def test_make_a_model_with_a_gate(self, store, tokens, index):
        neighbors = self.neighbors(store, index)
        model = self.spalm(store, neighbors)
        assert model.input("tokens").reference == tokens.reference
        assert model.input("neighbors").reference == neighbors.reference
        assert model.config["model"]["gate"] == "vector"
        assert model.config["model"]["gate_values"] == "scaled"
        assert load_file(model.path / "model.safetensors")["gate.weight"].shape == (8, 8)
        assert load_model(model.path, "cpu").gate is not None

    def test_the_gate_may_be_one_number_a_position(self, store, index):
        settings = {"model": SMALL["model"] | {"gate": "scalar"}}
        model = self.spalm(store, self.neighbors(store, index), **settings)
        assert load_file(model.path / "model.safetensors")["gate.weight"].shape == (1, 8)

    @pytest.mark.parametrize("backbone", ["transformer", "transformer-xl"])
    def test_training_goes_on_from_a_model_without_a_gate(self, store, tokens, index, backbone):
        plain = train(store, tokens, model=SMALL["model"] | {"backbone": backbone})
        settings = {"memory": {"k": 2, "only_gate": True}}
        model = self.spalm(
            store, self.neighbors(store, index), {"init_from": plain.reference}, **settings
        )
        before, after = (load_file(one.path / "model.safetensors") for one in (plain, model))
        assert model.config["model"]["backbone"] == backbone
        assert set(after) - set(before) == {"gate.weight"}
        assert all((after[name] == tensor).all() for name, tensor in before.items())
        assert after["gate.weight"].abs().sum() > 0

    def test_a_trained_transformer_xl_reads_the_segments_and_the_memory_of_the_run(
        self, store, tokens, index
    ):
        xl = SMALL["model"] | {"backbone": "transformer-xl"}
        start = train(store, tokens, model=xl | {"mem_length": 5})
        assert (start.config["segment_length"], start.config["model"]["mem_length"]) == (8, 5)
        neighbors, references = self.neighbors(store, index), {"init_from": start.reference}
        model = self.spalm(store, neighbors, references, model=xl, segment_length=4)
        assert (model.config["model"]["segment_length"], model.config["model"]["mem_length"]) == (
            4,
            5,
        )
        longer = self.spalm(store, neighbors, references, model=xl | {"mem_length": 9})
        assert (longer.config["model"]["segment_length"], longer.config["model"]["mem_length"]) == (
            8,
            9,
        )

    def test_a_gate_that_is_asked_for_is_added_to_a_trained_model(self, store, tokens, index):
        plain, neighbors = train(store, tokens), self.neighbors(store, index)
        scalar = {"model": SMALL["model"] | {"gate": "scalar"}}
        model = self.spalm(store, neighbors, {"init_from": plain.reference}, **scalar)
        assert model.config["model"]["gate"] == "scalar"
        assert (
            self.spalm(store, neighbors, {"init_from": model.reference}).config["model"]["gate"]
            == "scalar"
        )
        with pytest.raises(UsageError, match=r"has model\.gate=scalar: leave model\.gate out"):
            vector = {"model": SMALL["model"] | {"gate": "vector"}}
            self.spalm(store, neighbors, {"init_from": model.reference}, **vector)

    def test_values_stay_raw_where_training_goes_on_from_a_model_that_has_them(self, store, index):
        neighbors, raw = (
            self.neighbors(store, index),
            {"model": SMALL["model"] | {"gate_values": "raw"}},
        )
        model = self.spalm(store, neighbors, **raw)
        assert model.config["model"]["gate_values"] == "raw"
        assert load_model(model.path, "cpu").gate.scale == 1
        further = self.spalm(store, neighbors, {"init_from": model.reference})
        assert load_model(further.path, "cpu").gate.scale == 1
        with pytest.raises(
            UsageError, match=r"has model\.gate_values=raw: leave model\.gate_values out"
        ):
            scaled = {"model": SMALL["model"] | {"gate_values": "scaled"}}
            self.spalm(store, neighbors, {"init_from": model.reference}, **scaled)

    def test_the_gate_alone_needs_a_model_to_begin_from(self, store, index):
        with pytest.raises(UsageError, match="name that with --init-from"):
            self.spalm(store, self.neighbors(store, index), memory={"k": 2, "only_gate": True})

    def test_tokens_alone_are_refused(self, store, tokens):
        with pytest.raises(ArtifactError, match="memlm precompute-neighbors INDEX"):
            self.spalm(store, tokens)

    @pytest.mark.parametrize("method", ["lm", "trime-ext"])
    def test_are_refused_by_methods_that_do_not_read_them(self, store, tokens, index, method):
        with pytest.raises(
            ArtifactError,
            match=f"is for --method spalm, .*mlp-memory; .* memlm train {tokens.reference}",
        ):
            train(store, self.neighbors(store, index), method=method)

    @pytest.mark.parametrize(
        ("settings", "memory", "message"),
        [
            ({}, {"k": 3}, "2 neighbours a token, fewer than k=3; .* --k 3"),
            (
                {"queries": ("train",)},
                {"k": 2},
                "no neighbours of split 'valid' .* --queries train,valid --k 2 --store ",
            ),
            (
                {"exclude": "window:2"},
                {"k": 3},
                "fewer than k=3; .* --k 3 --exclude window:2 --store ",
            ),
            (
                {"exclude": "none"},
                {"k": 2},
                "their own rows, which hold the answers; .* --exclude self",
            ),
        ],
    )
    def test_that_do_not_fit_are_refused(self, store, index, settings, memory, message):
        with pytest.raises(ArtifactError, match=message):
            self.spalm(store, self.neighbors(store, index, **settings), memory=memory)

    def test_of_another_tokenizer_than_the_models_are_refused(self, store, index):
        other = train(store, small_tokens(store, tokenizer="other"))
        with pytest.raises(ArtifactError, match="tokenized differently"):
            self.spalm(store, self.neighbors(store, index), {"init_from": other.reference})

    @pytest.mark.parametrize("changed", ["index", "datastore"])
    def test_of_rows_that_are_no_longer_those_are_refused_before_any_work(
        self, store, index, changed
    ):
        neighbors = self.neighbors(store, index)
        artifact, above = (
            (index, neighbors) if changed == "index" else (index.input("datastore"), index)
        )
        made_anew(artifact)
        message = (
            f"{above.reference} was made from {artifact.reference} when that had other bytes .*: "
            f"memlm artifacts rm --force {above.reference} --store {store.root}, then memlm {KINDS[above.kind].command}"
        )
        with pytest.raises(ArtifactError, match=message):
            self.spalm(store, neighbors)
        assert not list(store.root.glob("model/.*-partial"))

    def test_of_a_damaged_datastore_are_refused(self, store, index):
        neighbors, datastore = self.neighbors(store, index), index.input("datastore")
        file = largest_file(datastore)
        file.write_bytes(file.read_bytes()[:-1])
        with pytest.raises(
            ArtifactError, match=f"memlm artifacts rm --force {datastore.reference}"
        ):
            self.spalm(store, neighbors)

    def test_a_gate_without_neighbours_is_refused(self, store, tokens):
        with pytest.raises(
            UsageError, match=r"model\.gate: method 'lm' reads no neighbours; use --method spalm\."
        ):
            train(store, tokens, model=SMALL["model"] | {"gate": "vector"})
        with pytest.raises(UsageError, match=r"model\.gate: method 'lm' reads no neighbours"):
            train(store, tokens, model=SMALL["model"] | {"gate_values": "raw"})

    @pytest.mark.parametrize("method", ["lm", "trime"])
    def test_a_trained_gate_without_neighbours_is_refused(self, store, tokens, index, method):
        gated = self.spalm(store, self.neighbors(store, index))
        message = (
            f"{gated.reference} needs neighbours, but method '{method}' reads none: "
            f"memlm train NEIGHBORS --method spalm --init-from {gated.reference}"
        )
        with pytest.raises(UsageError, match=message):
            train(store, tokens, {"init_from": gated.reference}, method=method)


def largest_file(artifact):
    return artifact.path / max(
        artifact.manifest.files, key=lambda name: artifact.manifest.files[name]["bytes"]
    )


def made_anew(artifact):
    """Other bytes in the place of an artifact, and a manifest that says so: whole, but not what was
    read.
    """
    file = largest_file(artifact)
    file.write_bytes(file.read_bytes()[::-1])
    name = file.relative_to(artifact.path).as_posix()
    restate(artifact.path, lambda manifest: manifest["files"].update({name: file_entry(file)}))


def made(store, stage, config, source):
    return make_once(stage, config, {"source": source.reference}, store)
