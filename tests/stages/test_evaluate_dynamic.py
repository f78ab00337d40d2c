"""Evaluations in which the weights learn from what was scored."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

from stages.adaptation.settings import Dynamic
from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.errors import UsageError
from stages.evaluate import Evaluate
from stages.evaluation.config import EvaluateConfig
from stages.evaluation.work import EvaluateWork
from stages.examples.cutting import WindowSettings
from stages.inspection.request import given_readings, reported_readings
from stages.models.weights import load_model
from tests.builders.limits import limit
from tests.oracles import dynamic as oracle
from tests.stages.slow_evaluation import evaluated, metrics, vocabulary_scores
from tests.stages.small_store import VOCABULARY, array, remembering, small_model, small_tokens

LSTM = {"backbone": "lstm", "vocab_size": VOCABULARY, "layers": 1, "width": 8, "dropout": 0.0}
BACKBONES: dict[str, dict[str, Any]] = {
    "lstm": {"model": LSTM},
    "transformer": {},
    "transformer-xl": {"model": remembering("compressive")},
}
LENGTHS = {"train": 1200, "valid": 40, "test": 1000}


def log_p(report: Artifact, name: str = "logp_lm") -> np.ndarray:
    return array(report, "scores.zarr", name).astype(np.float64)


def text(tokens: Artifact, split: str) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and targets of a split, int64 [T]."""
    ids = array(tokens, "tokens.zarr", f"{split}/ids").astype(np.int64)
    return np.concatenate(([tokens.metrics["eos_id"]], ids[:-1])), ids


def test_losses_are_those_of_the_equations_over_200_segments(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments of five tokens of an LSTM; shards hand the weights on."""
    limit(monkeypatch, tokens_per_shard=333)
    tokens = small_tokens(store, lengths=LENGTHS)
    model = small_model(store, tokens, model=LSTM)
    loaded = load_model(model.path, "cpu")
    trained = {n: one.detach().double().numpy() for n, one in loaded.named_parameters()}
    size, width = 5, LSTM["width"]

    def begin(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        return (torch.zeros(rows, width).double(), torch.zeros(rows, width).double())

    inputs, targets = text(tokens, "train")
    rows = 100
    steps = LENGTHS["train"] // size // rows
    state = begin(rows)

    def of_train(weights: oracle.Weights, step: int) -> torch.Tensor:
        nonlocal state
        places = (np.arange(rows) * steps + step)[:, None] * size + np.arange(size)
        loss, state = oracle.lstm_loss(weights, inputs[places], targets[places], state)
        return loss

    rms = oracle.root_mean_squares(trained, steps, of_train)

    read, scored = text(tokens, "test")
    state = begin(1)

    def of_test(weights: oracle.Weights, number: int) -> torch.Tensor:
        nonlocal state
        part = slice(number * size, (number + 1) * size)
        loss, state = oracle.lstm_loss(weights, read[None, part], scored[None, part], state)
        return loss

    rate, decay = 0.0002, 0.02
    want = oracle.dynamic_losses(trained, rms, range(200), of_test, rate, decay)
    report = evaluated(store, model, f"dynamic:rate={rate},decay={decay},segment={size}")
    losses = -log_p(report).reshape(200, size).mean(1)
    np.testing.assert_allclose(losses, want, atol=1e-5, rtol=0)

    plain = -log_p(evaluated(store, model, "none")).reshape(200, size).mean(1)
    assert np.abs(losses - plain).max() > 0.05, "the weights have moved"
    assert metrics(report)["adaptation"]["gradients"] == {"tokens": 1000, "batches": steps}


@pytest.mark.usefixtures("short_shards", "checked_positions")
@pytest.mark.parametrize("scope", ["stream", "document"])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_every_backbone_learns_so_and_a_cache_reads_the_keys_of_the_moment(
    store: Store, backbone: str, scope: str
) -> None:
    tokens = small_tokens(store)
    model = small_model(store, tokens, **BACKBONES[backbone])
    size = 8 if backbone == "transformer" else 4
    windows = WindowSettings(8, 8, 8 if backbone == "transformer-xl" else None)
    loaded = load_model(model.path, "cpu", windows).double()
    trained = {n: one.detach().numpy().copy() for n, one in loaded.named_parameters()}
    inputs, targets = text(tokens, "test")
    documents = array(tokens, "tokens.zarr", "test/doc_offsets").tolist()

    edges = set(range(0, len(targets), 16)) | {len(targets)}
    edges |= set(documents) if scope == "document" else set()
    cuts = [(a, b) for begin, end in pairwise(sorted(edges)) for a, b in _cut(begin, end, size)]
    state: Any = None
    keys: list[torch.Tensor] = []

    def loss(weights: oracle.Weights, number: int) -> torch.Tensor:
        nonlocal state
        start, stop = cuts[number]
        first = start - start % 8 if backbone == "transformer" else start
        encoding = torch.func.functional_call(
            _Reads(loaded),
            {f"model.{n}": w for n, w in weights.items()},
            (torch.from_numpy(inputs[None, first:stop]), state),
        )
        if backbone != "transformer":
            state = {n: one.detach() for n, one in encoding.state.items()}
        hidden = encoding.hidden[0, start - first :]
        keys.append(hidden.detach())
        with _weights(loaded, weights):
            scores = vocabulary_scores(loaded.vocabulary, hidden)
        return torch.nn.functional.cross_entropy(scores, torch.from_numpy(targets[start:stop]))

    rms = _statistics(store, model, size)
    begins = [n for n, (a, _) in enumerate(cuts) if a in documents] if scope == "document" else []
    spec = f"dynamic:rate=0.001,decay=0.1,scope={scope}"
    spec += "" if backbone == "transformer" else f",segment={size}"
    want = oracle.dynamic_losses(trained, rms, range(len(cuts)), loss, 0.001, 0.1, begins)
    report = evaluated(store, model, spec, "long:size=12,theta=0.7,lambda=0.3")
    alone = log_p(report)
    losses = [-alone[a:b].mean() for a, b in cuts]
    np.testing.assert_allclose(losses, want, atol=2e-4, rtol=0)

    states = torch.cat(keys).numpy()
    final = log_p(report, "logp")
    for t in range(len(targets)):
        past = range(max(0, t - 12), t)
        weights = np.array([np.exp(0.7 * states[j] @ states[t]) for j in past])
        held = weights[[targets[j] == targets[t] for j in past]].sum() if len(past) else 0
        memory = 0.7 * np.exp(alone[t]) + 0.3 * held / weights.sum() if len(past) else 0
        assert final[t] == pytest.approx(np.log(memory) if len(past) else alone[t], abs=1e-3)

    found = metrics(report)
    assert [row["row"] for row in found["rows"]] == ["dynamic", "dynamic then neural-cache"]
    assert all(row["broken"] == [] for row in found["conditions"]["rows"])


def _cut(begin: int, end: int, size: int) -> list[tuple[int, int]]:
    """Segments of a range; windows of eight begin where they do in the split."""
    if size == 8:
        inside = [edge for edge in range(0, end, 8) if begin < edge < end]
        return list(pairwise([begin, *inside, end]))
    return [(a, min(a + size, end)) for a in range(begin, end, size)]


class _Reads(torch.nn.Module):
    """The encoding of a model as a forward pass, for other weights."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor, state: Any) -> Any:
        return self.model.encode(tokens, state)


class _weights:
    """Context in which a model's vocabulary has other weights."""

    def __init__(self, model: Any, weights: oracle.Weights) -> None:
        self._vocabulary, self._weights = model.vocabulary, weights

    def __enter__(self) -> None:
        self._before = dict(self._vocabulary._parameters)
        for name in self._before:
            self._vocabulary._parameters[name] = self._weights[f"vocabulary.{name}"]

    def __exit__(self, *_: object) -> None:
        self._vocabulary._parameters.update(self._before)


def _statistics(store: Store, model: Artifact, size: int) -> dict[str, np.ndarray]:
    """Those that a report keeps, which another test compares with the equations."""
    from safetensors.numpy import load_file

    key = "" if model.config["model"]["backbone"] == "transformer" else f",segment={size}"
    report = evaluated(store, model, f"dynamic:rate=0.001,decay=0.1{key}")
    file = report.path / "gradient-statistics.safetensors"
    return {name: one.astype(np.float64) for name, one in load_file(file).items()}


@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_rate_of_0_is_the_plain_model_bit_for_bit(store: Store, backbone: str) -> None:
    model = small_model(store, small_tokens(store), **BACKBONES[backbone])
    plain, still = (
        array(evaluated(store, model, spec), "scores.zarr", "logp_lm")
        for spec in ("none", "dynamic:rate=0")
    )
    assert np.array_equal(plain, still)


@pytest.mark.usefixtures("short_shards")
@pytest.mark.parametrize(
    ("killed_after", "keys"),
    [
        (4, "decay=0.1,scope=document"),
        (8, "what=lora,rank=3"),
    ],
)
def test_an_interrupted_evaluation_goes_on_to_the_same_bits(
    store: Store, monkeypatch: pytest.MonkeyPatch, killed_after: int, keys: str
) -> None:
    model = small_model(store, small_tokens(store), **BACKBONES["transformer-xl"])
    specs = (
        f"dynamic:rate=0.0005/0.001,segment=4,{keys}",
        "long:size=20,theta=0.5,lambda=0.1/0.3",
    )
    whole = evaluated(store, model, *specs)
    scores, figures = log_p(whole, "logp"), metrics(whole)
    store.remove(whole.reference)

    ran: list[str] = []
    original = EvaluateWork.run_shard

    def run_shard(self: Any, job: Any, resources: Any, shard: Any) -> Any:
        if len(ran) == killed_after:
            ran.append("killed")
            raise KeyboardInterrupt
        ran.append(shard.key)
        return original(self, job, resources, shard)

    monkeypatch.setattr(EvaluateWork, "run_shard", run_shard)
    with pytest.raises(KeyboardInterrupt):
        evaluated(store, model, *specs)
    again = evaluated(store, model, *specs)
    assert np.array_equal(log_p(again, "logp"), scores)
    assert metrics(again)["adaptation"] == figures["adaptation"]
    assert metrics(again)["nll"] == figures["nll"]
    assert len(ran) == len({*ran}), "no shard is computed twice"


def test_the_best_candidate_is_read_and_all_are_told(store: Store) -> None:
    model = small_model(store, small_tokens(store), model=LSTM)
    found = metrics(evaluated(store, model, "dynamic:rate=0.0001/0.001/1e9,decay=0.01/0.1"))
    adaptation = found["adaptation"]
    tried = adaptation["tried"]
    assert [(one["rate"], one["decay"]) for one in tried][:3] == [
        (0.0001, 0.01),
        (0.0001, 0.1),
        (0.001, 0.01),
    ]
    assert tried[-1]["perplexity"] is None, "it diverged"
    best = min((one for one in tried if one["perplexity"]), key=lambda one: one["perplexity"])
    assert (adaptation["rate"], adaptation["decay"]) == (best["rate"], best["decay"])
    assert adaptation["tune_split"] == "valid"
    control = found["rows"][0]["control"]
    assert control["past"] == "stream", "counting reads what the weights have read"


def test_a_default_grid_has_the_plain_model_in_it(store: Store) -> None:
    model = small_model(store, small_tokens(store), model=LSTM)
    found = metrics(evaluated(store, model, "dynamic"))["adaptation"]
    assert found["segment"] == 20 and found["tried"][0]["rate"] == 0
    assert len(found["tried"]) == 1 + 4 * 2


@pytest.mark.usefixtures("short_shards")
@pytest.mark.parametrize("keys", ["decay=0.1", "decay=0.1,scope=document"])
def test_where_a_tuned_rate_diverges_the_weights_begin_again_with_a_smaller_one(
    store: Store, monkeypatch: pytest.MonkeyPatch, keys: str
) -> None:
    model = small_model(store, small_tokens(store))
    plain = log_p(evaluated(store, model, "none"))
    monkeypatch.setattr("stages.adaptation.course.RECENT", 8)
    monkeypatch.setattr("stages.evaluation.phases.choose_numbers", _largest)
    specs = (f"dynamic:rate=0/3/9,{keys}", "long:size=20,theta=0.5,lambda=0.1")
    report = evaluated(store, model, *specs)
    found = metrics(report)
    falls = found["adaptation"]["diverged"]
    assert [(fall["rate"], fall["then"]) for fall in falls] == [(9, 3), (3, 0)]

    last = falls[-1]["token"]
    losses = -log_p(report)
    assert losses[last : last + 8].mean() > 1.5 * np.log(VOCABULARY), "it is in the figures"
    assert last + 8 < len(plain)
    np.testing.assert_allclose(-losses[last + 8 :], plain[last + 8 :], atol=1e-6)
    assert [row["row"] for row in found["rows"]] == ["dynamic", "dynamic then neural-cache"]
    assert all(row["broken"] == [] for row in found["conditions"]["rows"])
    assert "learning-diverged" in found["remarks"]


@pytest.mark.usefixtures("short_shards")
@pytest.mark.parametrize("memory", [(), ("long:size=20,theta=0.5,lambda=0.1",)])
def test_where_a_tuned_rate_leaves_no_distribution_the_weights_of_training_score(
    store: Store, monkeypatch: pytest.MonkeyPatch, memory: tuple[str, ...]
) -> None:
    """One update overflows all weights: the segment behind it is read again, and no row is lost."""
    model = small_model(store, small_tokens(store))
    plain = log_p(evaluated(store, model, "none"))
    monkeypatch.setattr("stages.evaluation.phases.choose_numbers", _largest)
    report = evaluated(store, model, "dynamic:rate=1e37/1e38,decay=0.1", *memory)
    found = metrics(report)
    falls = found["adaptation"]["diverged"]
    assert [(fall["rate"], fall["then"]) for fall in falls] == [(1e38, 1e37), (1e37, 0)]

    np.testing.assert_allclose(log_p(report), plain, atol=1e-6)
    assert len(found["rows"]) == 1 + len(memory)
    assert all(row["perplexity"] is not None for row in found["rows"])
    assert "learning-diverged" in found["remarks"]


def test_a_text_that_is_worse_than_a_guess_does_not_diverge_without_learning(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rate of 0 behind one that diverged: nothing learns, so no loss ends the run."""
    model = small_model(store, small_tokens(store))
    plain = log_p(evaluated(store, model, "none"))
    monkeypatch.setattr("stages.adaptation.course.RECENT", 8)
    monkeypatch.setattr("stages.adaptation.course.DIVERGED", 0.1)
    monkeypatch.setattr("stages.evaluation.phases.choose_numbers", _largest)
    report = evaluated(store, model, "dynamic:rate=0.1/0.2,decay=0.1")
    falls = metrics(report)["adaptation"]["diverged"]
    assert [(fall["rate"], fall["then"]) for fall in falls] == [(0.2, 0.1), (0.1, 0)]
    np.testing.assert_allclose(log_p(report), plain, atol=1e-6)


def _largest(settings: Dynamic, record: object) -> dict[str, float]:
    """The choice of the largest rate, as if the tuning split were easier."""
    return settings.candidates[-1].model_dump()


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        (
            "dynamic:rate=1e9,decay=0.1,segment=4",
            r"with rate=1e\+09 learning diverges at token \d+ of test",
        ),
        ("dynamic:rate=1e9/1e8,decay=0.1,segment=4", "diverges with every rate"),
        ("dynamic:what=lora,rate=0.1", "no matrix that peft knows"),
        ("dynamic:what=lora,decay=0.1", "decay is of what=all"),
        ("dynamic:what=lora,epsilon=0.1", "epsilon is of what=all"),
        ("dynamic:epsilon=0", "epsilon: Input should be greater"),
        ("dynamic:rank=4", "rank is of the factors"),
        ("dynamic:what=none", "what is no way to learn"),
        ("dynamic:rate=-1", "rate: Input should be greater"),
        ("dynamic:speed=1", "unknown key 'speed'"),
        ("long:size=5,lambda=0.1+dynamic", "lambda"),
        (("long:size=5,theta=1,lambda=0.1", "dynamic"), "stands first and alone"),
        (("dynamic", "none"), "none is the plain model"),
        ("dynamic+long", "stands first and alone"),
    ],
)
def test_bad_settings_are_refused(store: Store, memory: str | Sequence[str], message: str) -> None:
    model = small_model(store, small_tokens(store), model=LSTM)
    specs = [memory] if isinstance(memory, str) else memory
    with pytest.raises((UsageError, ValueError), match=message):
        evaluated(store, model, *specs)


def test_what_cannot_learn_so_is_refused(store: Store) -> None:
    tokens = small_tokens(store)
    lstm, windows = small_model(store, tokens, model=LSTM), small_model(store, tokens)
    dynamic = "dynamic:rate=0.001,decay=0.1"
    with pytest.raises(UsageError, match="leave --workers out"):
        config = EvaluateConfig(memory=(dynamic,))
        execution = Execution("cpu", workers=2)
        make(Evaluate(), config, {"source": lstm.reference}, store, execution)
    with pytest.raises(UsageError, match="leave segment out, and give --stride 4"):
        evaluated(store, windows, f"{dynamic},segment=4")
    with pytest.raises(UsageError, match="leave --score out"):
        evaluated(store, lstm, dynamic, score="last-word")
    with pytest.raises(UsageError, match="only evaluate reads it"):
        given_readings((dynamic,))
    with pytest.raises(UsageError, match="made while the model learned"):
        reported_readings(evaluated(store, lstm, dynamic), lstm)
    bare = small_tokens(store, lengths={"valid": 40, "test": 35})
    with pytest.raises(UsageError, match="use what=lora"):
        evaluated(store, small_model(store, bare, model=LSTM), dynamic)
