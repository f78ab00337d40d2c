"""Memory of the recent past through the stage, against one window, one position and one pair at a time."""

import json
import math

import numpy as np
import pytest
import torch

from stages import evaluate
from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.errors import UsageError
from stages.evaluate import Evaluate, EvaluateConfig
from stages.evaluation.windows import document_windows, windows
from stages.models.language_model import load_model
from tests.oracles import neural_cache as oracle
from tests.stages.small_store import EOS, VOCABULARY, array, small_model, small_tokens

LSTM = {"backbone": "lstm", "vocab_size": VOCABULARY, "layers": 2, "width": 8, "dropout": 0.0}
CONTEXT = 8


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def transformer(store: Store) -> Artifact:
    return small_model(store, small_tokens(store))


@pytest.fixture(scope="module")
def lstm(store: Store) -> Artifact:
    return small_model(store, small_tokens(store), model=LSTM)


@pytest.fixture(autouse=True)
def short_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards of two windows, so that histories are handed on; chunks of a few positions."""
    monkeypatch.setattr(evaluate, "MOST_TOKENS_PER_SHARD", 16)
    monkeypatch.setattr("stages.evaluation.recent.CHUNK_CELLS", {"cpu": 40})
    monkeypatch.setattr("stages.evaluation.recent.FEWEST_POSITIONS", 3)


def evaluated(store: Store, source: Artifact, *memory: str, **settings) -> Artifact:
    config = EvaluateConfig(memory=memory or None, save_token_scores=True, **settings)
    return make(Evaluate(), config, {"source": source.reference}, store, Execution()).artifact


def metrics(report: Artifact) -> dict:
    return json.loads((report.path / "metrics.json").read_text())


class Slow:
    """What a model alone says of a split, and its keys in every window."""

    def __init__(self, model: Artifact, split: str, stride: int = CONTEXT, documents: bool = False) -> None:
        tokens = model.input("tokens")
        self.ids = array(tokens, "tokens.zarr", f"{split}/ids").astype(np.int64)
        self.offsets = array(tokens, "tokens.zarr", f"{split}/doc_offsets")
        self.model = load_model(model.path, "cpu")
        self.key = "hidden"
        self.scores = np.zeros((len(self.ids), VOCABULARY))
        """The vocabulary's scores of every token, up to a constant a token, float64."""
        self.as_scored: dict[int, np.ndarray] = {}
        self.in_window: list[dict[int, np.ndarray]] = [{} for _ in self.ids]
        inputs = np.concatenate(([EOS], self.ids[:-1]))
        total = len(self.ids)
        if documents:
            plan = document_windows(self.offsets, CONTEXT, stride, 0, total)
        else:
            plan = windows(total, CONTEXT, stride)
        self.window_start = [0] * total
        state, begins = None, set(self.offsets.tolist()) if documents else set()
        for w in plan:
            if not self.model.config.carries_state or w.start in begins:
                state = None
            with torch.no_grad():
                seen = self.model.encode(torch.from_numpy(inputs[None, w.start : w.stop]), state)
                scores = seen.hidden[0].double() @ self.model.vocabulary.embedding.double().T
            state = seen.state
            keys = {w.start + i: key.double().numpy() for i, key in enumerate(seen.hidden[0])}
            for t in range(w.scored_from, w.stop):
                self.scores[t] = scores[t - w.start].numpy()
                self.as_scored[t], self.in_window[t], self.window_start[t] = keys[t], keys, w.start

    def document_start(self, t: int) -> int:
        return int(self.offsets[np.searchsorted(self.offsets, t, side="right") - 1])

    def cells(self, t: int, theta: float, size: int | None, local: bool, scope: str, kind: str):
        start = self.document_start(t) if scope == "document" else 0
        read = oracle.positions_read(
            t, size=size, document_start=start, window_start=self.window_start[t] if local else None
        )
        keys = {j: self.in_window[t][j] if local and j in self.in_window[t] else self.as_scored[j] for j in read}
        query = self.as_scored[t]
        return [(theta * oracle.similarity(query, keys[j], kind), int(self.ids[j])) for j in read]

    def log_p(self, theta=0.5, size=None, local=False, scope="stream", kind="dot", lam=None, alpha=None) -> np.ndarray:
        """log p of every target with one reading of memory."""
        out = []
        for t, target in enumerate(self.ids):
            cells = self.cells(t, theta, size, local, scope, kind)
            if alpha is None:
                p = np.exp(self.scores[t] - self.scores[t].max())
                out.append(math.log(oracle.interpolated(p / p.sum(), cells, lam)[target]))
            else:
                out.append(math.log(oracle.joint(self.scores[t], cells, alpha)[target]))
        return np.array(out)


@pytest.mark.parametrize("backbone", ["transformer", "lstm"])
@pytest.mark.parametrize(
    ("spec", "asked"),
    [
        ("long:size=20,theta=0.5,lambda=0.3", {"size": 20, "lam": 0.3}),
        ("long:size=5,theta=0.5,lambda=0.3,scope=document", {"size": 5, "lam": 0.3, "scope": "document"}),
        ("long:size=500,theta=0,lambda=0.3", {"size": 500, "lam": 0.3, "theta": 0.0}),
        ("long:size=1,temperature=4,lambda=0.6,similarity=l2", {"size": 1, "lam": 0.6, "theta": 0.25, "kind": "l2"}),
        ("long:size=9,theta=0.5,reader=joint,alpha=-1", {"size": 9, "alpha": -1.0}),
        ("local:theta=0.5,lambda=0.3,similarity=scaled-dot", {"local": True, "lam": 0.3, "kind": "scaled-dot"}),
        ("local+long:size=3,theta=0.5,lambda=0.3", {"local": True, "size": 3, "lam": 0.3}),
        ("local+long:size=17,theta=0.5,reader=joint", {"local": True, "size": 17, "alpha": 0.0}),
    ],
)
def test_a_reading_is_what_its_equation_says(store, request, backbone, spec, asked):
    model = request.getfixturevalue(backbone)
    report = evaluated(store, model, spec)
    np.testing.assert_allclose(array(report, "scores.zarr", "logp"), Slow(model, "test").log_p(**asked), atol=2e-4)


@pytest.mark.parametrize("backbone", ["transformer", "lstm"])
def test_windows_and_state_begin_anew_at_documents(store, request, backbone):
    model = request.getfixturevalue(backbone)
    slow = Slow(model, "test", documents=True)
    for spec, asked in [
        ("long:size=6,theta=0.5,lambda=0.3", {"size": 6, "lam": 0.3}),
        ("local+long:size=6,theta=0.5,lambda=0.3,scope=document", {"size": 6, "lam": 0.3, "local": True}),
    ]:
        scope = "document" if "scope" in spec else "stream"
        report = evaluated(store, model, spec, reset="document")
        np.testing.assert_allclose(array(report, "scores.zarr", "logp"), slow.log_p(**asked, scope=scope), atol=2e-4)


@pytest.mark.parametrize(
    ("spec", "asked"),
    [
        ("local:theta=0.5,lambda=0.3", {"local": True, "lam": 0.3}),
        ("local+long:size=12,theta=0.5,lambda=0.3", {"local": True, "size": 12, "lam": 0.3}),
        ("long:size=12,theta=0.5,lambda=0.3", {"size": 12, "lam": 0.3}),
    ],
)
def test_in_overlapping_windows_local_keys_are_those_of_the_window(store, transformer, spec, asked):
    report = evaluated(store, transformer, spec, stride=3)
    want = Slow(transformer, "test", stride=3).log_p(**asked)
    np.testing.assert_allclose(array(report, "scores.zarr", "logp"), want, atol=2e-4)


def test_the_best_of_the_grid_is_used_and_sizes_are_tuned_by_themselves(store, transformer):
    spec = "long:size=2/10/40,theta=0/0.3/1,lambda=0.1/0.5"
    report = metrics(evaluated(store, transformer, spec))
    valid, test = Slow(transformer, "valid"), Slow(transformer, "test")
    tried = {
        (size, theta, lam): -valid.log_p(size=size, theta=theta, lam=lam).mean()
        for size in (2, 10, 40)
        for theta in (0.0, 0.3, 1.0)
        for lam in (0.1, 0.5)
    }
    best = min(tried, key=tried.get)
    (memory,) = report["memories"]
    assert (memory["size"], memory["theta"], memory["lambda"]) == best
    cache, unigram = report["curves"]
    assert (cache["row"], cache["over"], unigram["row"]) == ("neural-cache", "size", "unigram-cache")
    for curve, thetas in ((cache, (0.0, 0.3, 1.0)), (unigram, (0.0,))):
        for point in curve["points"]:
            theta, lam = min(
                ((theta, lam) for theta in thetas for lam in (0.1, 0.5)),
                key=lambda pair, size=point["size"]: tried[size, *pair],
            )
            assert (point["theta"], point["lambda"]) == (theta, lam)
            want = -test.log_p(size=point["size"], theta=theta, lam=lam).mean()
            assert math.log(point["perplexity"]) == pytest.approx(want, abs=1e-4)
    assert [row["row"] for row in report["rows"]] == ["plain", "neural-cache", "unigram-cache"]


def test_readings_too_many_to_try_together_are_tuned_in_turn(store, transformer, monkeypatch):
    first, second = "long:size=30,theta=0/0.5/1,lambda=0.1/0.4", "long:size=4,theta=0.5,lambda=0.05/0.2/0.6"
    whole = metrics(evaluated(store, transformer, first, second))
    monkeypatch.setattr("stages.evaluation.settling.MOST_POINTS", 1)
    in_turn = metrics(evaluated(store, transformer, first + ",scope=stream", second, split="valid"))
    again = metrics(evaluated(store, transformer, first, second, split="valid", tune_split="valid", context=8))
    assert in_turn["memories"] == again["memories"]
    assert [m["lambda"] for m in in_turn["memories"]] == [m["lambda"] for m in whole["memories"]]
    assert [m["theta"] for m in in_turn["memories"]] == [m["theta"] for m in whole["memories"]]


@pytest.mark.parametrize("backbone", ["transformer", "lstm"])
def test_an_interrupted_evaluation_goes_on_with_the_history_it_left(store, tmp_path, request, backbone, monkeypatch):
    model = request.getfixturevalue(backbone)
    spec, original = "long:size=25,theta=0.2/0.7,lambda=0.2/0.4", Evaluate.run_shard
    budget, ran = [3], []

    def run_shard(self, job, work, shard):
        if not budget[0]:
            raise KeyboardInterrupt
        budget[0] -= 1
        ran.append(shard.key)
        return original(self, job, work, shard)

    whole = evaluated(store, model, spec)
    bytes_of = {name: (whole.path / name).read_bytes() for name in whole.manifest.files if name.startswith("scores")}
    store.remove(whole.path)
    monkeypatch.setattr(Evaluate, "run_shard", run_shard)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            evaluated(store, model, spec)
        budget[0] = 2
    budget[0] = 100
    resumed = evaluated(store, model, spec)
    assert len(ran) == len(set(ran))
    assert {name: (resumed.path / name).read_bytes() for name in bytes_of} == bytes_of
    assert not [name for name in resumed.manifest.files if name.startswith("scratch")]


def test_what_a_backbone_does_not_have_is_refused(store, lstm):
    with pytest.raises(UsageError, match="has no key 'ffn-input'; it has: hidden"):
        evaluated(store, lstm, "long:size=5,lambda=0.1,key=ffn-input")
    with pytest.raises(UsageError, match="as one stream: leave --context and --stride out"):
        evaluated(store, lstm, stride=2)
