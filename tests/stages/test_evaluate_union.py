"""Neighbours and recent positions read as one memory, through the stage, against one pair of keys
at a time.
"""

import math
from collections.abc import Callable, Iterable

import numpy as np
import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.errors import ArtifactError, UsageError
from stages.index import BuildIndex
from stages.retrieval.neighbors import FoundNeighbors, IndexSearch
from stages.search.config import IndexConfig
from tests.builders.limits import limit
from tests.oracles import knn_lm
from tests.oracles import neural_cache as oracle
from tests.stages.slow_evaluation import Asked, Slow, evaluated, metrics
from tests.stages.small_store import ModelConfig, array, small_model, small_tokens

pytestmark = pytest.mark.usefixtures("short_shards")

K = 6
ADAPTIVE = ModelConfig().model | {"cutoffs": [3, 6], "factor": 2}


@pytest.fixture(scope="module")
def index_of(store: Store) -> Callable[..., Artifact]:
    """Builds an index of a model's own tokens."""

    def built(model: Artifact, **settings) -> Artifact:
        datastore = make(
            BuildDatastore(), DatastoreConfig(), {"source": model.reference}, store, Execution()
        ).artifact
        config = IndexConfig(**{"index": "flat", **settings})
        return make(
            BuildIndex(), config, {"source": datastore.reference}, store, Execution()
        ).artifact

    return built


def leave_holes(monkeypatch: pytest.MonkeyPatch, metric: str) -> None:
    """Every third token finds nothing, the ones behind it two neighbours fewer."""
    find, worst = IndexSearch.find, np.inf if metric == "l2" else -np.inf

    def with_holes(self, split, start, stop, keys, rows=None) -> FoundNeighbors:
        found = find(self, split, start, stop, keys, rows)
        for row, token in enumerate(range(start, stop)):
            kept = found_at(token, found.ids.shape[1])
            found.ids[row, kept:], found.distances[row, kept:] = -1, worst
        return found

    monkeypatch.setattr(IndexSearch, "find", with_holes)


def found_at(token: int, k: int) -> int:
    """How many of k neighbours a token finds where there are holes."""
    return {0: 0, 1: k - 2, 2: k}[token % 3]


class SlowUnion:
    """A split as a model reads it, beside the datastore of an index."""

    def __init__(self, index: Artifact, split: str = "test", **windows) -> None:
        datastore = index.input("datastore")
        self.recent = Slow(
            datastore.input("encoder"), split, key=datastore.config["key"], **windows
        )
        self.keys, self.values = (
            array(datastore, "datastore.zarr", name) for name in ("keys", "values")
        )
        self.metric = index.config["metric"]

    def neighbors(self, t: int, asked: Asked, k: int) -> list[tuple[float, int]]:
        """(score, token) of the k best rows, scores after θ."""
        query = self.recent.as_scored[t].astype(self.keys.dtype).astype(float)
        rows, _ = knn_lm.neighbours(self.keys, query, k, self.metric)
        keys = self.keys[rows].astype(float)
        scores = [
            asked.theta * oracle.similarity(query.tolist(), key.tolist(), asked.kind)
            for key in keys
        ]
        return list(zip(scores, self.values[rows].tolist(), strict=True))

    def entries(self, t: int, asked: Asked, k: int) -> list[tuple[float, int]]:
        """What position t reads: recent positions, then neighbours."""
        recent = self.recent.entries(t, asked) if asked.local or asked.size else []
        return recent + (self.neighbors(t, asked, k) if k else [])

    def log_p(self, *readings: tuple[Asked, int], holes: bool = False) -> np.ndarray:
        """log p of every target after readings on top of each other, each of so many neighbours."""
        final = []
        for t, target in enumerate(self.recent.ids):
            p = self.recent.distribution(t)
            for asked, k in readings:
                entries = self.entries(t, asked, found_at(t, k) if holes else k)
                if asked.alpha is None:
                    p = oracle.interpolated(p, entries, asked.lam)
                else:
                    p = oracle.joint(self.recent.scores[t].tolist(), entries, asked.alpha)
            final.append(math.log(p[target]))
        return np.array(final)


SOURCES = {
    "local+external": {"local": True},
    "long+external": {"size": 20},
    "local+long+external": {"local": True, "size": 11},
}
READERS = {"lambda=0.3": {"lam": 0.3}, "reader=joint,alpha=-1": {"alpha": -1.0}}


def spelled(sources: str, *settings: str) -> str:
    """A reading of K neighbours with θ = 0.5."""
    size = (f"size={SOURCES[sources]['size']}",) if "long" in sources else ()
    return f"{sources}:" + ",".join((f"k={K}", "theta=0.5", *size, *settings))


PLAIN, JOINT = READERS
PAIRS = [
    *[
        ("local+external", *more)
        for more in ((PLAIN, "dot", "l2"), (JOINT, "scaled-dot", "l2"), (PLAIN, "l2", "ip"))
    ],
    *[
        ("long+external", *more)
        for more in ((JOINT, "dot", "ip"), (PLAIN, "scaled-dot", "l2"), (JOINT, "l2", "l2"))
    ],
    *[
        ("local+long+external", *m)
        for m in ((PLAIN, "dot", "l2"), (JOINT, "scaled-dot", "ip"), (PLAIN, "l2", "ip"))
    ],
]
"""Sources, reader, similarity and metric: any two of them with each other."""


@pytest.mark.parametrize(("sources", "reader", "kind", "metric"), PAIRS)
def test_a_union_is_one_memory(store, model, index_of, monkeypatch, sources, reader, kind, metric):
    leave_holes(monkeypatch, metric)
    index = index_of(model, metric=metric)
    report = evaluated(store, index, spelled(sources, reader, f"similarity={kind}"))
    asked = Asked(kind=kind, **SOURCES[sources], **READERS[reader])
    np.testing.assert_allclose(
        array(report, "scores.zarr", "logp"),
        SlowUnion(index).log_p((asked, K), holes=True),
        atol=4e-4,
    )


@pytest.mark.parametrize("sources", SOURCES)
def test_in_overlapping_windows_local_keys_are_those_of_the_window(store, model, index_of, sources):
    index = index_of(model)
    report = evaluated(store, index, spelled(sources, "lambda=0.3"), stride=3)
    asked = Asked(kind="l2", lam=0.3, **SOURCES[sources])
    want = SlowUnion(index, stride=3).log_p((asked, K))
    np.testing.assert_allclose(array(report, "scores.zarr", "logp"), want, atol=4e-4)


def test_the_past_may_end_with_the_document_but_not_the_datastore(store, model, index_of):
    index, slow = index_of(model), SlowUnion(index_of(model), documents=True)
    spec = spelled("local+long+external", "lambda=0.3", "scope=document")
    report = evaluated(store, index, spec, reset="document")
    asked = Asked(kind="l2", lam=0.3, scope="document", **SOURCES["local+long+external"])
    np.testing.assert_allclose(
        array(report, "scores.zarr", "logp"), slow.log_p((asked, K)), atol=4e-4
    )


def test_an_adaptive_softmax_is_read_with_the_normalizer_of_its_head(store, index_of):
    index = index_of(small_model(store, small_tokens(store), model=ADAPTIVE))
    report = evaluated(store, index, spelled("local+external", "reader=joint"))
    want = SlowUnion(index).log_p((Asked(kind="l2", alpha=0.0, local=True), K))
    np.testing.assert_allclose(array(report, "scores.zarr", "logp"), want, atol=4e-4)


def test_saved_scores_make_up_the_joint_probability(store, model, index_of):
    index = index_of(model)
    report = evaluated(store, index, spelled("local+long+external", "reader=joint", "alpha=-2"))
    slow, asked = SlowUnion(index), Asked(kind="l2", **SOURCES["local+long+external"])
    entries = [slow.entries(t, asked, K) for t in range(len(slow.recent.ids))]
    total = np.array([math.log(sum(math.exp(score - 2) for score, _ in read)) for read in entries])
    names = ("logp", "logp_lm", "log_z", "logp_memory")
    log_p, alone, log_z, memory = (
        array(report, "scores.zarr", name).astype(float) for name in names
    )
    np.testing.assert_allclose(log_z, slow.recent.log_z, atol=2e-4)
    with np.errstate(divide="ignore"):
        p_mem = [oracle.cache(read, len(slow.recent.scores[0])) for read in entries]
        want = np.log([p[target] for p, target in zip(p_mem, slow.recent.ids, strict=True)])
    np.testing.assert_allclose(memory[:, 0], want, atol=1e-3)
    made = np.logaddexp(log_z + alone, total + memory[:, 0]) - np.logaddexp(log_z, total)
    np.testing.assert_allclose(log_p, made, atol=1e-3)


def best_of(choices: Iterable[tuple], nll: Callable[..., float]) -> tuple:
    return min(choices, key=lambda choice: nll(*choice))


def test_size_temperature_and_weight_are_tuned_together(store, model, index_of):
    index = index_of(model)
    spec = f"local+long+external:k={K},size=2/12/40,theta=0.2/1,reader=joint,alpha=-3/0/2"
    report = metrics(evaluated(store, index, spec))
    valid, test = SlowUnion(index, "valid"), SlowUnion(index)

    def nll(size, theta, alpha, slow=valid) -> float:
        asked = Asked(kind="l2", local=True, size=size, theta=theta, alpha=alpha)
        return -slow.log_p((asked, K)).mean()

    choices = [
        (size, theta, alpha)
        for size in (2, 12, 40)
        for theta in (0.2, 1.0)
        for alpha in (-3.0, 0.0, 2.0)
    ]
    best = best_of(choices, nll)
    (memory,) = report["memories"]
    assert (memory["size"], memory["theta"], memory["alpha"]) == best
    assert (memory["k"], memory["tuned"]) == (K, ["theta", "alpha", "size"])
    assert report["nll"] == pytest.approx(nll(*best, slow=test), abs=2e-4)
    (curve,) = report["curves"]
    assert (curve["row"], curve["over"]) == ("local+long+external (joint)", "size")
    assert [point["size"] for point in curve["points"]] == [2, 12, 40]


def test_numbers_of_neighbours_are_tuned_beside_local_memory(store, model, index_of):
    index = index_of(model)
    report = metrics(evaluated(store, index, "local+external:k=2/6,theta=0.5,lambda=0.1/0.4"))
    valid = SlowUnion(index, "valid")

    def nll(k, lam) -> float:
        return -valid.log_p((Asked(kind="l2", local=True, lam=lam), k)).mean()

    (memory,) = report["memories"]
    assert (memory["k"], memory["lambda"]) == best_of(
        [(k, lam) for k in (2, 6) for lam in (0.1, 0.4)], nll
    )
    assert [point["k"] for point in report["curves"][0]["points"]] == [1, 2, 4, 6]
    alone = metrics(evaluated(store, index, "external:k=6,lambda=0.1"))
    assert report["retrieval_accuracy"] == alone["retrieval_accuracy"]


def test_trime_ext_is_two_readings_of_which_the_first_is_a_union(store, index_of, monkeypatch):
    model = small_model(store, small_tokens(store), method="trime-ext")
    index = index_of(model, metric="ip")
    first = spelled("local+long+external", "reader=joint")
    report = evaluated(store, index, first, "external:similarity=dot,k=4,temperature=4,lambda=0.2")
    readings = [
        (Asked(kind="scaled-dot", alpha=0.0, **SOURCES["local+long+external"]), K),
        (Asked(kind="dot", theta=0.25, lam=0.2), 4),
    ]
    want = SlowUnion(index).log_p(*readings)
    np.testing.assert_allclose(array(report, "scores.zarr", "logp"), want, atol=4e-4)
    names = [row["row"] for row in metrics(report)["rows"]]
    assert names == ["plain", "trime-ext", "local+long+external (joint)", "knn-lm"]


def test_a_composition_reads_the_size_that_was_chosen(store, model, index_of):
    index = index_of(model)
    spec = f"local+long+external:k={K},size=2/12/40,theta=0.5,reader=joint"
    report = evaluated(store, index, spec, "external:k=4,theta=0.25,lambda=0.2")
    size = metrics(report)["memories"][0]["size"]
    asked = (
        Asked(kind="l2", local=True, size=size, alpha=0.0),
        Asked(kind="l2", theta=0.25, lam=0.2),
    )
    want = SlowUnion(index).log_p((asked[0], K), (asked[1], 4))
    np.testing.assert_allclose(array(report, "scores.zarr", "logp"), want, atol=4e-4)


def test_a_name_is_all_its_readings_tuned(store, index_of, monkeypatch):
    limit(monkeypatch, points_together=1)
    index = index_of(small_model(store, small_tokens(store), method="trime-ext"))
    told = metrics(evaluated(store, index, "trime-ext", tune_split="test"))
    union, second = told["memories"]
    assert (union["tuned"], second["tuned"]) == (["temperature"], ["temperature", "lambda"])
    assert (union["similarity"], second["similarity"]) == ("scaled-dot", "dot")
    assert (union["size"], union["k"], second["k"]) == (35, 90, 90)
    assert [row["row"] for row in told["rows"]] == [
        "plain",
        "trime-ext",
        "local+long+external (joint)",
        "knn-lm",
    ]


def test_a_lossy_index_has_a_row_of_the_other_distances(store, model, index_of):
    index = index_of(model, index="IVF2,PQ4x4", probe=2)
    report = metrics(evaluated(store, index, spelled("local+external", "lambda=0.3")))
    names = [row["row"] for row in report["rows"]]
    assert names == [
        "plain",
        "local+external (quantised distances)",
        "local+external (exact distances)",
    ]
    recomputed = metrics(
        evaluated(store, index, spelled("local+external", "lambda=0.3", "exact=true"))
    )
    assert recomputed["nll"] == pytest.approx(report["rows"][2]["nll"])
    assert recomputed["nll"] != pytest.approx(report["nll"], abs=1e-6)
    told = metrics(
        evaluated(store, index, spelled("local+external", "lambda=0.3", "similarity=dot"))
    )
    assert [row["row"] for row in told["rows"]] == ["plain", "local+external (exact distances)"]


@pytest.mark.parametrize(
    ("method", "similarity", "alone"), [("lm", "l2", "dot"), ("trime", *["scaled-dot"] * 2)]
)
def test_a_model_compares_as_it_was_trained_to(store, index_of, method, similarity, alone):
    model = small_model(store, small_tokens(store), method=method)
    for spec, kind in [
        ("external:lambda=0.2", similarity),
        ("local+external:lambda=0.2", similarity),
        ("local:lambda=0.2", alone),
    ]:
        (memory,) = metrics(evaluated(store, index_of(model), spec))["memories"]
        assert (memory["similarity"], memory["key"]) == (
            kind,
            "hidden" if kind == "dot" else "ffn-input",
        )


@pytest.mark.parametrize(
    ("method", "alone", "with_datastore"),
    [
        ("lm", ["plain"], "knn-lm"),
        ("trime-long", ["plain", "trime-long"], "trime-long then knn-lm"),
        ("trime-ext", ["plain", "trime"], "trime-ext"),
    ],
)
def test_without_a_word_a_model_is_read_as_it_was_trained(
    store, index_of, method, alone, with_datastore
):
    model = small_model(store, small_tokens(store), method=method)
    assert [row["row"] for row in metrics(evaluated(store, model))["rows"]] == alone
    assert metrics(evaluated(store, index_of(model)))["rows"][1]["row"] == with_datastore


def test_what_cannot_be_one_memory_is_refused(store, model, index_of):
    index, other = index_of(model), small_model(store, small_tokens(store), seed=3)
    with pytest.raises(ArtifactError, match=f"memlm build-datastore {other.reference}"):
        evaluated(store, other, "local+external:lambda=0.1", references={"index": index})
    with pytest.raises(
        UsageError, match=r"recent positions of 'train' twice.*evaluate another split"
    ):
        evaluated(store, index, "long+external:size=9,lambda=0.1", split="train")
    with pytest.raises(
        UsageError, match=r"recent positions of 'train' twice.*name another split with --tune-split"
    ):
        evaluated(store, index, "local+external:lambda=tune", tune_split="train")
    with pytest.raises(UsageError, match="reads a datastore: evaluate an index"):
        evaluated(store, model, "local+external:lambda=0.1")


def test_without_a_datastore_the_row_is_named_as_it_is_typed_and_commands_make_one(store, model):
    with pytest.raises(UsageError) as caught:
        evaluated(store, model, "knn-lm")
    where = f"--store {store.root}"
    assert str(caught.value).startswith("knn-lm reads")
    assert (
        f"(memlm build-datastore {model.reference} {where} | memlm build-index {where} | "
        f"memlm evaluate --memory knn-lm {where})"
    ) in str(caught.value)
