"""A source from outside the package that reads an artifact of its own: this module and a registry
line are all of it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import pytest
import torch

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.errors import UsageError
from stages.memory.entries import Entries
from stages.memory.hyperparameter import Choice, Count, Hyperparameter, ReadingOptions
from stages.registry import Part
from stages.retrieval.grammar import parse_reading
from stages.retrieval.hyperparameters import hyperparameters, memory_words
from stages.retrieval.memory_input import HeldText, InputSearch, MemoryInput
from stages.retrieval.reading import Reading, SourceSettings
from stages.retrieval.registries import SOURCES
from stages.retrieval.scored_range import Retrieved, RetrievedOf, ScoredRange, retrieve
from stages.retrieval.sources.source import About, Needs, Opening, Source
from tests.cli.conftest import Memlm, logs, memlm
from tests.stages.small_store import array, small_model, small_tokens

__all__ = ["logs", "memlm"]

HERE = "tests.test_outside_inputs"
LEXICON = "lexicon"


class LexiconText(MemoryInput):
    """The tokens whose training split is read."""

    role: ClassVar[str] = LEXICON
    words: ClassVar[str] = "the lexicon"

    def find(self, search: InputSearch, settings: ReadingOptions) -> Artifact:
        return search.store.get(settings.value("text"), "tokens")

    def text(self, artifact: Artifact) -> HeldText:
        return HeldText(artifact, "train")

    def own_splits(self, artifact: Artifact, tokens: Artifact) -> set[str]:
        return {"train"} if artifact.record == tokens.record else set()


class LexiconSettings(SourceSettings):
    """Tokens that followed the token before, in another text."""

    word: ClassVar[str] = "lexicon"
    means: ClassVar[str] = "the tokens after the token before, in another text"
    amount: ClassVar[str] = "followers"
    compares_keys: ClassVar[bool] = False
    inputs: ClassVar[tuple[MemoryInput, ...]] = (LexiconText(),)
    followers: Annotated[
        Choice[Count] | None,
        Hyperparameter("followers", "tokens that followed", "followers", (1, 3), example="3"),
    ] = None
    text: str = ""
    """Reference of the tokens."""

    def resolve(
        self, reading: Reading, read: Mapping[str, Artifact], splits: tuple[str, ...]
    ) -> Reading:
        completed = super().resolve(reading, read, splits)
        return completed.changed({"text": read[LEXICON].reference})


class LexiconSource(Source):
    """The first tokens that followed the token before."""

    @classmethod
    def open_memory(cls, opening: Opening) -> list[int]:
        arrays: Any = opening.read[LEXICON].zarr("tokens.zarr")
        ids: list[int] = np.asarray(arrays["train/ids"][:]).tolist()
        return ids

    @property
    def about(self) -> About:
        return About("followers", details={"text": self.reading.value("text")})

    @property
    def needs(self) -> Needs:
        return Needs(reach=1)

    def retrieve(self, scored_range: ScoredRange) -> RetrievedOf:
        tokens = scored_range.carried.joined_tokens(scored_range.lm).tolist()
        first = len(tokens) - len(scored_range.lm)
        ids = torch.tensor([*self.memory, -1])  # the last is the token of missing rows
        followers = rows_after(self.memory)

        def retrieve_part(part: slice) -> Retrieved:
            rows = torch.full((part.stop - part.start, self.width), -1)
            for number, position in enumerate(range(first + part.start, first + part.stop)):
                after = followers.get(tokens[position - 1], []) if position else []
                for column, row in enumerate(after[: self.width]):
                    rows[number, column] = row
            scores = torch.zeros(rows.shape).masked_fill(rows < 0, -torch.inf)
            targets = scored_range.lm.targets[part]
            return retrieve(Entries(scores, ids[rows]), targets, rows, LEXICON)

        return retrieve_part

    def spread(self, sample: list[ScoredRange]) -> float:
        return 1.0

    def default_scales(self, spread: float) -> tuple[float, ...]:
        return 0.0, 1.0, 2.0


def rows_after(ids: list[int]) -> dict[int, list[int]]:
    """Rows that follow each token, in order."""
    rows: dict[int, list[int]] = {}
    for row, token in enumerate(ids[:-1], 1):
        rows.setdefault(token, []).append(row)
    return rows


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry line."""
    part = Part(f"{HERE}:LexiconSettings", f"{HERE}:LexiconSource")
    monkeypatch.setitem(SOURCES.targets, "lexicon", part)


@pytest.mark.parametrize("followers", ["3", "tune"])
def test_it_is_found_read_tuned_and_reported_like_any_other(
    memlm: Memlm, tmp_path: Path, followers: str
) -> None:
    store = Store(tmp_path / "store")
    model = small_model(store, small_tokens(store))
    lexicon = small_tokens(store, seed=5)
    reading = f"lexicon:text={lexicon.reference},followers={followers},lambda=0.3"
    ended = memlm(
        "evaluate", model.reference, "--memory", reading, "--save-token-scores", "--device", "cpu"
    )
    assert ended.code == 0, ended.err
    report = store.get(ended.reference, "report")
    figures = json.loads((report.path / "metrics.json").read_text())

    assert report.input(LEXICON).reference == lexicon.reference
    assert figures["read"][LEXICON] == lexicon.reference
    (memory,) = figures["memories"]
    assert (memory["sources"], memory["text"]) == (["lexicon"], lexicon.reference)
    texts = figures["rows"][1]["control"]["texts"]
    assert lexicon.reference in [text["corpus"] for text in texts]

    ids = array(model.input("tokens"), "tokens.zarr", "test/ids").tolist()
    held = array(lexicon, "tokens.zarr", "train/ids").tolist()
    rows = rows_after(held)
    alone, final = (array(report, "scores.zarr", name) for name in ("logp_lm", "logp"))
    for position, target in enumerate(ids):
        after = rows.get(ids[position - 1], [])[: memory["followers"]] if position else []
        read = [held[row] for row in after]
        want = np.exp(alone[position])
        if read:
            want = 0.7 * want + 0.3 * read.count(target) / len(read)
        assert final[position] == pytest.approx(np.log(want), abs=1e-4)


def test_the_text_of_the_scored_split_is_refused(memlm: Memlm, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    tokens = small_tokens(store)
    model = small_model(store, tokens)
    reading = f"lexicon:text={tokens.reference},followers=3,lambda=0.3"
    ended = memlm(
        "evaluate", model.reference, "--split", "train", "--memory", reading, "--device", "cpu"
    )
    assert ended.code == 2 and "its rows hold the answers" in " ".join(ended.err.split())


def test_its_scores_are_no_lengths_of_matches() -> None:
    with pytest.raises(UsageError, match="only they find matches"):
        parse_reading("lexicon:text=tokens/a,followers=3,lambda=length")


def test_two_readings_of_different_texts_are_refused(memlm: Memlm, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    model = small_model(store, small_tokens(store))
    texts = [small_tokens(store, seed=seed).reference for seed in (5, 6)]
    typed = []
    for text in texts:
        typed += ["--memory", f"lexicon:text={text},followers=3,lambda=0.3"]
    ended = memlm("evaluate", model.reference, *typed, "--device", "cpu")
    assert ended.code == 2
    assert f"two readings read {texts[0]} and {texts[1]} as lexicon" in " ".join(ended.err.split())


def test_it_is_read_of_a_text_from_outside_the_corpus(memlm: Memlm, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    model = small_model(store, small_tokens(store))
    lexicon = small_tokens(store, seed=5)
    reading = f"lexicon:text={lexicon.reference},followers=3,lambda=0.3"
    words = ("inspect", model.reference, "--text", "3 4 5", "--memory", reading, "--json")
    ended = memlm(*words, "--device", "cpu")
    assert ended.code == 0, ended.err


def test_tables_and_charts_have_its_names() -> None:
    assert hyperparameters()["followers"].words == "tokens that followed"
    assert memory_words([["lexicon"], ["external"]]) == ["lexicon", "datastore"]
