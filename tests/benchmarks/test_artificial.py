"""What benchmarks read opens as what a stage has made, so that they run when somebody needs a
figure.
"""

from pathlib import Path

from stages.artifacts.manifest import wrong_manifest
from stages.artifacts.store import Store
from tests.benchmarks.artificial import Datastore, Index, Model, Neighbors, Tokens, artificial

SHAPE = {
    "backbone": "transformer",
    "vocab_size": 33_278,
    "layers": 1,
    "width": 8,
    "heads": 1,
    "max_positions": 256,
}


def test_every_kind_states_what_others_read(tmp_path: Path) -> None:
    store = Store(tmp_path)
    corpus = artificial(store, Tokens(), {}, splits={"train": 100, "test": 50})
    model = artificial(store, Model(), {"tokens": corpus}, model=SHAPE)
    datastore = artificial(store, Datastore(), {"encoder": model, "corpus": corpus}, rows=100)
    index = artificial(store, Index(), {"datastore": datastore}, rows=100)
    neighbors = artificial(
        store, Neighbors(), {"index": index, "queries": corpus}, splits={"test": 50}, k=2, rows=100
    )
    made = (corpus, model, datastore, index, neighbors)
    assert [artifact.kind for artifact in made] == [
        "tokens",
        "model",
        "datastore",
        "index",
        "neighbors",
    ]
    assert [wrong_manifest(artifact.manifest) for artifact in made] == [None] * 5
