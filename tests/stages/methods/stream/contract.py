"""What every method of tasks keeps, registered here or from outside: subclass with a fixture
`name`, of a class.
"""

import copy
import json
import random
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from memlm_cli.app import main
from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution, Inputs
from stages.artifacts.store import Store
from stages.config import nondefaults
from stages.errors import MemlmError
from stages.examples.examples import Corpus
from stages.methods import METHODS
from stages.methods.config import AFTER, MEMORY_FILE, TRAIN
from stages.methods.method import Method
from stages.needs import SMALL_BYTES, train_needs
from stages.train import Train
from stages.training.checkpoint import CHECKPOINT, Saver
from stages.training.config import TrainConfig
from stages.training.loop import Trainer
from tests.stages.small_tasks import bytes_of, learnt_by, small_stream, stream_config

SMALLER = {"every": 8, "rate": 0.5, "examples": 8, "block": 10, "k": 4, "size": 6, "names": True}
"""Settings with which each method does on a small stream what it is for, of those that it has."""
KILLS = (3, 10, 13)
"""Updates before a kill: inside the first task, at its end, and inside the second."""
LARGEST = (1e300, 2**53 - 1, 1e9, 100, 1)
HEADER = 20_000
"""Bytes of a checkpoint that are no weights: names, and what is kept of so small a stream."""


@dataclass
class Learning:
    """What is seen of a method while it learns."""

    artifact: Artifact | None = None
    trainer: Trainer | None = None
    inputs: Inputs | None = None
    states: list[Any] = field(default_factory=list)
    """What the method keeps when an attempt begins, and when it is killed."""
    largest: int = 0
    """Bytes of the largest checkpoint."""


def state_of(trainer: Trainer) -> Any:
    return copy.deepcopy(trainer.run.method.state_dict())


def same(a: Any, b: Any) -> bool:
    """Whether two states are equal, to the bit."""
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a.cpu(), b.cpu())
    return (
        bool(a == b)
        if not isinstance(a, dict)
        else a.keys() == b.keys() and all(same(a[n], b[n]) for n in a)
    )


def learn(config: TrainConfig, source: Artifact, kill: int | None = None) -> Learning:
    """Train, with a checkpoint after each update; after `kill` updates the run ends as one that is
    killed.
    """
    seen, update, save, inputs = Learning(), Trainer._update, Saver.save, Train.inputs

    def watched(trainer: Trainer) -> None:
        if seen.trainer is None:
            seen.trainer = trainer
            seen.states.append(state_of(trainer))
        if trainer.progress.step == kill:
            seen.states.append(state_of(trainer))
            raise KeyboardInterrupt
        update(trainer)

    def saved(saver: Saver, *given: Any) -> None:
        save(saver, *given)
        seen.largest = max(seen.largest, (saver._run.folder / CHECKPOINT).stat().st_size)

    def opened(stage: Train, *given: Any) -> Inputs:
        seen.inputs = inputs(stage, *given)
        return seen.inputs

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Trainer, "_update", watched)
        patched.setattr(Saver, "save", saved)
        patched.setattr(Train, "inputs", opened)
        try:
            execution = Execution(checkpoint_seconds=0.0)
            seen.artifact = make(
                Train(), config, {"source": source.reference}, source.store, execution
            ).artifact
        except KeyboardInterrupt:
            assert kill is not None
    return seen


class TaskMethodContract:
    @pytest.fixture(scope="module")
    @classmethod
    def streams(cls, tmp_path_factory: pytest.TempPathFactory) -> list[Artifact]:
        """The same stream in two stores, so that what is made in one is not found in the other."""
        folders = [tmp_path_factory.mktemp("stream") for _ in range(2)]
        return [small_stream(Store(folder / "store"), folder / "tasks") for folder in folders]

    @pytest.fixture(scope="class")
    @classmethod
    def config(cls, name: str) -> TrainConfig:
        memory = {
            key: value
            for key, value in SMALLER.items()
            if key in METHODS.settings(name).model_fields
        }
        return stream_config(name, memory=memory, epochs=2, log_every=1)

    @pytest.fixture(scope="class")
    @classmethod
    def whole(
        cls,
        name: str,
        config: TrainConfig,
        streams: list[Artifact],
        tmp_path_factory: pytest.TempPathFactory,
    ) -> Iterator[Learning]:
        """One run that nothing stops, from a folder of its own."""
        with pytest.MonkeyPatch.context() as patched:
            patched.chdir(tmp_path_factory.mktemp("cwd"))
            yield learn(config, learnt_by(name, streams[0]))

    def test_settings_name_the_method_and_survive_the_disk(self, name: str) -> None:
        settings = METHODS.settings(name)
        assert settings().method == name and settings.learns != "text"
        assert settings.model_validate(settings().model_dump(mode="json")) == settings()
        assert nondefaults(settings()) == {"method": name}

    def test_it_learns_each_task(self, whole: Learning) -> None:
        assert whole.artifact is not None and whole.trainer is not None
        lines = [
            json.loads(line)
            for line in whole.artifact.file("training.jsonl").read_text().splitlines()
        ]
        losses, borders = np.array([line["loss"] for line in lines]), whole.trainer.order._borders
        # 40, 44 and 48 documents, eight a batch, twice
        assert np.diff(borders).tolist() == ([32] if len(borders) == 2 else [10, 10, 12])
        for first, stop in pairwise(borders):
            assert losses[stop - 3 : stop].mean() < losses[first : first + 2].mean()

    def test_killed_in_a_task_and_between_two_its_state_comes_back_and_it_ends_with_the_same_bytes(
        self, name: str, config: TrainConfig, whole: Learning, streams: list[Artifact]
    ) -> None:
        assert whole.artifact is not None
        source, left = learnt_by(name, streams[1]), None
        for seed, kill in enumerate([*KILLS, None]):
            random.seed(seed)  # a method that asks these for numbers gets others in each attempt
            np.random.seed(seed)
            torch.manual_seed(seed)
            attempt = learn(config, source, kill)
            assert left is None or same(left, attempt.states[0])
            left = attempt.states[-1]
        assert attempt.trainer is not None and attempt.trainer.progress.step > KILLS[-1]
        assert attempt.artifact is not None and bytes_of(attempt.artifact) == bytes_of(
            whole.artifact
        )

    def test_it_changes_nothing_but_the_weights_that_it_learns_and_writes_nothing_else(
        self, config: TrainConfig, whole: Learning, streams: list[Artifact]
    ) -> None:
        assert whole.artifact is not None and whole.trainer is not None
        assert not list(Path.cwd().iterdir())
        method, tokens = whole.trainer.run.method, streams[0]
        fresh, seen = (
            Corpus.of(tokens).examples(TRAIN, config.cutting),
            whole.trainer.run.tasks[0].examples,
        )
        for name in ("ids", "offsets", "labels", "task_numbers"):
            assert np.array_equal(
                np.asarray(getattr(fresh, name)[:]), np.asarray(getattr(seen, name)[:])
            ), name
        files = {name.partition("/")[0] for name in whole.artifact.manifest.files}
        own = {
            "model.safetensors",
            "last.safetensors",
            "config.json",
            "training.jsonl",
            AFTER,
        }
        own |= set() if method.kept_documents() is None else {MEMORY_FILE}
        writes_files = type(method).write_files is not Method.write_files
        assert writes_files or files <= own
        if AFTER not in files:
            return
        before, last = (
            load_file(whole.artifact.file(name))
            for name in (f"{AFTER}/00.safetensors", "last.safetensors")
        )
        model = whole.trainer.run.model
        learnt = {id(one) for group in method.parameter_groups(model) for one in group.parameters}
        kept = [
            name
            for name, one in model.named_parameters()
            if id(one) not in learnt and name in before
        ]
        assert all(np.array_equal(before[name], last[name]) for name in kept)

    def test_room_that_it_takes_is_told(self, whole: Learning) -> None:
        assert whole.artifact is not None and whole.trainer is not None and whole.inputs is not None
        needs = train_needs(whole.trainer.run.config, whole.inputs)
        assert needs.scratch is not None and needs.disk is not None
        # Scratch holds two checkpoints.
        assert 0 < whole.largest <= needs.scratch // 2 + HEADER
        files = whole.artifact.manifest.files
        weights = [
            int(entry["bytes"])
            for name, entry in files.items()
            if name.endswith(".safetensors") and name != MEMORY_FILE
        ]
        assert sum(weights) <= needs.disk + SMALL_BYTES * len(weights)

    def test_its_largest_settings_are_refused_or_learn(
        self, name: str, streams: list[Artifact]
    ) -> None:
        """The largest number of each setting that is legal; what is refused is so with an exit code
        of its own.
        """
        source, fields = learnt_by(name, streams[0]), METHODS.settings(name).model_fields
        usual = {key: value for key, value in SMALLER.items() if key in fields}
        for key in set(fields) - {"method"}:
            for value in LARGEST:
                try:
                    made = learn(
                        stream_config(name, memory=usual | {key: value}, steps=6), source
                    ).artifact
                except (MemlmError, ValueError) as error:
                    assert getattr(error, "exit_code", 2) in (2, 3, 4, 5), (key, value)
                    continue
                assert made is not None
                weights = load_file(made.file("model.safetensors"))
                assert all(np.isfinite(one).all() for one in weights.values()), (key, value)
                shutil.rmtree(made.path)
                break

    def test_settings_that_are_none_are_refused(self, name: str) -> None:
        given = [
            (key, value) for key in METHODS.settings(name).model_fields for value in ("nan", "{}")
        ]
        for key, value in [("no-such", "1"), *given]:
            assert (
                main(["train", "tokens/none", "--method", name, "--set", f"memory.{key}={value}"])
                == 2
            ), key
