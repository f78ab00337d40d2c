"""Exact matches shown and attributed: which tokens are the same, where they stand, what followed."""

from pathlib import Path

import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.errors import ArtifactError
from stages.generation.generate import GenerationRequest, generate, open_writer
from stages.index import BuildIndex
from stages.inspection.inspect import inspect_split
from stages.inspection.request import Request
from stages.search.config import IndexConfig
from tests.builders.evaluations import made
from tests.oracles.suffixes import contexts, shared
from tests.stages.small_store import ModelConfig, array
from tests.stages.small_text import text_model, text_tokens

MEMORY = (
    "exact:matches=5,temperature=0.1,lambda=0.5",
    "exact-stream:matches=5,temperature=0.1,lambda=0.5",
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    store = Store(tmp_path_factory.mktemp("store"))
    return text_model(
        store, text_tokens(store, tmp_path_factory.mktemp("text")), ModelConfig().model
    )


@pytest.fixture(scope="module")
def index(model: Artifact) -> Artifact:
    return made(model.store, BuildIndex(), IndexConfig(index="exact"), model.input("tokens"))


def request(model: Artifact, index: str | None = None) -> Request:
    return Request(source=model.reference, memory=MEMORY, index=index, device="cpu")


def known(model: Artifact, split: str) -> tuple[list[int], list]:
    ids, offsets = (
        array(model.input("tokens"), "tokens.zarr", f"{split}/{name}")
        for name in ("ids", "doc_offsets")
    )
    return ids.tolist(), contexts(ids, offsets)


def test_each_match_is_shown_with_its_length_and_its_place(
    model: Artifact, index: Artifact
) -> None:
    found = inspect_split(request(model, index=index.reference), model.store, "test", 0, 20, 4)
    (ids, asked), (text, held) = known(model, "test"), known(model, "train")
    lengths = set()
    for token in found.tokens:
        for one in token.contexts:
            assert one.right == (ids[token.position] == (ids if one.back else text)[one.source.row])
            if one.back is None:
                assert one.source.split == "train"
                assert one.matched == shared(asked[token.position], held[one.source.row])
                lengths.add(one.matched)
            else:
                assert one.source.row == token.position - one.back and one.matched > 0
    assert max(lengths) > 2 and any(one.back for token in found.tokens for one in token.contexts)


def test_a_written_token_names_the_matches_that_carried_it(
    model: Artifact, index: Artifact
) -> None:
    wanted = GenerationRequest(prompt="the cat sees the dog and runs", max_tokens=6, attribute=True)
    written = list(generate(open_writer(request(model), model.store), wanted))
    contexts = [one for token in written for one in token.attributed.contexts]
    assert contexts and all(one.right and one.matched > 0 for one in contexts)
    assert {one.source.split for one in contexts} >= {"train"}


def test_where_no_index_is_the_command_that_makes_it_is_named(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    other = text_model(store, text_tokens(store, tmp_path), ModelConfig().model)
    with pytest.raises(ArtifactError, match="build-index"):
        open_writer(request(other), store)
