"""Distilled memories beside a model, through every door: nothing is quoted, and what learned a
document is named.
"""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from memlm_cli import notebook
from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.inspection.settings import Request
from tests.builders.distilled import trained
from tests.cli.conftest import Memlm
from tests.stages.small_text import built_index, found_neighbors, text_tokens

TEXT = "the cat sees the dog and"
NOWHERE = "(learned, from no document)"


class Distilled(NamedTuple):
    """A base, and what learned the neighbours of its text."""

    store: Store
    base: Artifact
    decoder: Artifact
    mlp: Artifact

    def reading(self, source: str) -> str:
        return f"{source}:model={getattr(self, source).reference},lambda=0.4"


@pytest.fixture(scope="module")
def distilled(tmp_path_factory: pytest.TempPathFactory) -> Distilled:
    folder = tmp_path_factory.mktemp("text")
    store = Store(folder / "store")
    base = trained(store, text_tokens(store, folder), method="lm")
    index = built_index(store, base)
    neighbors = found_neighbors(store, index, k=9, queries=("train",), exclude="document")
    decoder = trained(store, neighbors, base)
    mlp = trained(store, neighbors, base, method="mlp-memory", memory={"layers": 1})
    return Distilled(store, base, decoder, mlp)


@pytest.fixture(params=["decoder", "mlp"])
def source(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_text_is_written_and_no_document_is_named(
    memlm: Memlm, distilled: Distilled, source: str
) -> None:
    where = (distilled.base.reference, "--store", distilled.store.root, "--device", "cpu")
    options = ("--prompt", TEXT, "--max-tokens", 5, "--memory", distilled.reading(source))
    written = memlm("generate", *where, *options, "--attribute")
    assert written.code == 0
    assert [line.endswith(NOWHERE) for line in written.told] == [True]
    told = json.loads(memlm("generate", *where, *options, "--attribute", "--json").out)
    for token in told["tokens"]:
        shares = token["attributed"]
        assert shares["contexts"] == []
        assert sum(shares["memories"]) < token["probability"]
    reader = notebook.open(distilled.store.root).read(
        distilled.base.reference, memory=distilled.reading(source), device="cpu"
    )
    assert reader.generate(TEXT, max_tokens=5) == told["text"]


def test_a_text_is_inspected_in_the_terminal_and_in_a_notebook(
    memlm: Memlm, distilled: Distilled, source: str, tmp_path: Path
) -> None:
    where = (distilled.base.reference, "--store", distilled.store.root, "--device", "cpu")
    page = tmp_path / "page.html"
    options = ("--text", TEXT, "--memory", distilled.reading(source))
    seen = memlm("inspect", *where, *options, "--html", page)
    assert seen.code == 0 and NOWHERE in seen.out
    assert NOWHERE in page.read_text() and "Nothing was read here" not in page.read_text()
    told = json.loads(memlm("inspect", *where, *options, "--json").out)
    assert all(token["contexts"] == [] for token in told["tokens"])

    reader = notebook.open(distilled.store.root).read(
        distilled.base.reference, memory=distilled.reading(source), device="cpu"
    )
    scores = reader.score(TEXT)
    assert np.exp(scores["logp"]) == pytest.approx([token["final"] for token in told["tokens"]])
    whole = np.exp(reader.distributions(TEXT).astype(np.float64))
    assert whole.sum(1) == pytest.approx(1, abs=1e-4)


def test_a_server_reads_it_as_the_terminal_does(distilled: Distilled, source: str) -> None:
    engines = pytest.importorskip("stages.serving.engine")
    from tests.stages.serving.address import serving

    reading = distilled.reading(source)
    request = Request(source=distilled.base.reference, memory=(reading,), device="cpu")
    reader = notebook.open(distilled.store.root).read(
        distilled.base.reference, memory=reading, device="cpu"
    )
    want = reader.score(TEXT)["logp"].tolist()
    with serving(engines.Engine.open(request, distilled.store, "small")) as address:
        asked = {"prompt": TEXT, "echo": True, "logprobs": 1, "max_tokens": 2}
        reply = address.complete(**asked, memlm={"attribution": 3})
    (choice,) = reply.json["choices"]
    got = choice["logprobs"]["token_logprobs"]
    assert got[1 : len(want)] == pytest.approx(want[1:], abs=1e-5)
    assert all(token["contexts"] == [] for token in choice["memlm"]["tokens"])


def test_what_learned_a_document_is_said_to_hold_it(memlm: Memlm, distilled: Distilled) -> None:
    held = memlm("artifacts", "holds", "train.txt", "--store", distilled.store.root)
    assert held.code == 1
    lines = {line.split()[0]: line for line in held.out.splitlines()}
    for learned in (distilled.decoder, distilled.mlp):
        assert "learned from it, cannot forget" in lines[learned.reference]
