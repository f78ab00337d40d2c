"""A reading of tasks that lives outside the package: its settings, its code, and one registry
line.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pytest

from stages.artifacts.store import Store
from stages.memory.hyperparameter import Count, Hyperparameter
from stages.registry import OUTSIDE, import_outside
from stages.tasks import READINGS
from stages.tasks.answering import Answering
from stages.tasks.grammar import parse_choices
from stages.tasks.readings import Reading
from tests.cli.conftest import Memlm, logs, memlm
from tests.stages.small_tasks import TASKS, write_task

__all__ = ["logs", "memlm"]

LINE = """from stages.registry import Part
from stages.tasks import READINGS

HERE = "tests.test_outside_readings"
READINGS.targets["vote"] = Part(f"{HERE}:VoteSettings", f"{HERE}:Vote")
"""
SIZES = ("layers=1", "width=16", "heads=2", "ffn_width=16")
SMALL = ("--segment-length", 12, "--batch-tokens", 96, "--lr", 0.01, "--epochs", 1)
SMALL += tuple(word for size in SIZES for word in ("--set", f"model.{size}"))


class VoteSettings(Reading):
    """The most frequent label among the nearest documents; the model is not asked."""

    reads_keys: ClassVar[bool] = True

    name: Literal["vote"] = "vote"
    k: Annotated[Count, Hyperparameter("k", grid=(1, 3))] = 5

    @property
    def documents(self) -> int:
        return self.k


class Vote(Answering[VoteSettings]):
    def answers(self, asked: Any, visible: np.ndarray, among: Any) -> list[int]:
        found = []
        for distances in self.distances(asked, visible):
            near = visible[np.argsort(distances, kind="stable")[: self.settings.k]]
            found.append(int(np.bincount(self.reader.memory.split.labels[near]).argmax()))
        return found


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module with the line of the registry, which `$MEMLM_PARTS` names to commands."""
    monkeypatch.setattr(READINGS, "targets", dict(READINGS.targets))
    (tmp_path / "outside_reading.py").write_text(LINE)
    # A command is a process of its own, which imports the module anew.
    monkeypatch.delitem(sys.modules, "outside_reading", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(OUTSIDE, "outside_reading")
    import_outside.cache_clear()
    yield
    import_outside.cache_clear()


def test_it_is_typed_tuned_and_refused_like_any_other(named: None) -> None:
    assert parse_choices("vote:k=3").readings[0].spelled == "vote:k=3"
    tried = [reading.spelled for reading in parse_choices("vote:k=tune").readings]
    assert tried == ["vote:k=1", "vote:k=3"]
    for typed, words in {"vote:k=0": "k", "vote:lr=1": "unknown key 'lr'", "voet": "vote"}.items():
        with pytest.raises(Exception, match=words):
            parse_choices(typed)


def small_stream(memlm: Memlm, folder: Path, **counts: int) -> tuple[str, str, str]:
    """References of tokens of three tasks, of a model of them, and of an encoder."""
    folders = [write_task(folder / name, TASKS[name], counts) for name in TASKS]
    words = ("--tokenizer", "word", "--min-count", 1)
    tokens = memlm("tokenize", "--tasks", *folders, *words).reference
    models = (memlm("train", tokens, "--method", method, *SMALL) for method in ("seq", "lm"))
    model, encoder = (ended.reference for ended in models)
    return tokens, model, encoder


def test_the_command_answers_by_it(named: None, memlm: Memlm, tmp_path: Path) -> None:
    tokens, model, encoder = small_stream(memlm, tmp_path, train=40, valid=12, test=20)
    of_train, of_test = (
        memlm("build-episodes", encoder, "--tokens", tokens, "--split", split).reference
        for split in ("train", "test")
    )
    rows = ("--memory", "vote:k=3", "--memory", "vote:k=1/41")
    ended = memlm("evaluate-tasks", model, "--episodes", of_train, "--after", "last", *rows)
    store = Store(tmp_path / "store")
    made = store.get(ended.reference)
    assert made.metrics["rows"][1]["chosen"] in ("vote:k=1", "vote:k=41")
    assert f"part.{__name__}" in [role for role, _ in made.manifest.outside_files]

    keys, queries = (
        store.get(reference).zarr("episodes.zarr") for reference in (of_train, of_test)
    )
    wanted = []
    for query in queries["keys"][:]:
        distances = [((query.astype(float) - key) ** 2).sum() for key in keys["keys"][:]]
        near = sorted(range(120), key=lambda row: (distances[row], row))[:3]
        wanted.append(int(np.bincount(keys["labels"][:][near]).argmax()))
    answers = json.loads(made.file("answers.json").read_text())
    found = [label for part in answers if part["row"] == "vote:k=3" for label in part["answers"]]
    assert found == wanted and len(set(found)) > 2


def test_more_documents_than_memory_has_are_refused(
    named: None, memlm: Memlm, tmp_path: Path
) -> None:
    tokens, model, encoder = small_stream(memlm, tmp_path, train=20, test=8)
    keys = memlm("build-episodes", encoder, "--tokens", tokens).reference
    ended = memlm("evaluate-tasks", model, "--episodes", keys, "--memory", "vote:k=61")
    assert ended.code == 2 and "memory has 60 documents" in " ".join(ended.err.split())
