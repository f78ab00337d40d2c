"""A source and a reader that live outside the package: a class of settings, the code, and one
registry line each.
"""

import json
from pathlib import Path
from typing import Annotated, ClassVar

import pytest
import torch
from pydantic import Field
from torch import Tensor

from stages.artifacts.store import Store
from stages.memory.entries import Entries, LogSums
from stages.memory.hyperparameter import Choice, Count, Hyperparameter
from stages.memory.readers import READERS
from stages.memory.readers.reader import Reader
from stages.memory.readers.settings import ReaderSettings
from stages.registry import OUTSIDE, Part, import_outside
from stages.retrieval.grammar import parse_reading, parse_readings
from stages.retrieval.hyperparameters import hyperparameters
from stages.retrieval.reading import SourceSettings
from stages.retrieval.registries import SOURCES
from stages.retrieval.scored_range import Retrieved, RetrievedOf, ScoredRange, retrieve
from stages.retrieval.sources.source import About, Needs, Source
from tests.cli.conftest import Memlm, logs, memlm
from tests.stages.memory.readers.contract import ReaderContract
from tests.stages.retrieval.sources.contract import SourceContract
from tests.stages.small_store import array, small_model, small_tokens

__all__ = ["logs", "memlm"]

HERE = "tests.test_outside_memory"


class EchoSettings(SourceSettings):
    """The last tokens, all alike."""

    amount: ClassVar[str] = "span"
    span: Annotated[
        Choice[Count] | None, Hyperparameter("span", axis="tokens back", grid=(1, 4), example="3")
    ] = None


class EchoSource(Source):
    @property
    def about(self) -> About:
        return About("span")

    @property
    def needs(self) -> Needs:
        return Needs(frozenset({self.reading.comparison.key or "hidden"}), self.cutoffs[-1])

    @property
    def cutoffs(self) -> tuple[int, ...]:
        span: tuple[int, ...] = self.reading.value("span")
        return span

    @property
    def positions_at_once(self) -> int:
        return 64

    def retrieve(self, scored_range: ScoredRange) -> RetrievedOf:
        tokens = scored_range.carried.joined_tokens(scored_range.lm)
        width, n = self.cutoffs[-1], len(scored_range.lm)
        padded = torch.cat((tokens.new_full((width,), -1), tokens))
        values = padded.unfold(0, width, 1)[len(tokens) - n : len(tokens)].flip(1)
        scores = torch.zeros(values.shape).masked_fill(values < 0, -torch.inf)

        def of(part: slice) -> Retrieved:
            return retrieve(Entries(scores[part], values[part]), scored_range.lm.targets[part])

        return of

    def spread(self, sample: list[ScoredRange]) -> float:
        return 1.0

    def default_scales(self, spread: float) -> tuple[float, ...]:
        return 0.0, 1.0, 2.0


class MeanSettings(ReaderSettings):
    """A weighted mean in which the weight is a percentage."""

    weight: Annotated[
        Choice[Annotated[float, Field(ge=0, lt=100)]] | None,
        Hyperparameter("%", grid=(1.0, 10.0, 50.0), example="10"),
    ] = Field(None, alias="percent")


class MeanReader(Reader):
    def _blend(
        self, log_p: Tensor, log_z: Tensor, memory: LogSums, weight: float | Tensor
    ) -> Tensor:
        share = torch.as_tensor(weight, dtype=log_p.dtype) / 100
        return ((1 - share) * log_p.exp() + share * memory.log_prob.exp()).log()


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES.targets, "echo", Part(f"{HERE}:EchoSettings", f"{HERE}:EchoSource"))
    monkeypatch.setitem(READERS.targets, "mean", Part(f"{HERE}:MeanSettings", f"{HERE}:MeanReader"))


class TestEcho(SourceContract):
    spec = "echo:key=hidden,similarity=dot,span=2/5,lambda=0.5"


class TestMean(ReaderContract):
    registered_as = "mean"
    ends = (0.0, 99.0)


def test_keys_of_a_module_that_is_named_are_legal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(READERS, "targets", dict(READERS.targets))
    del READERS.targets["mean"]
    line = f"READERS.targets['mean'] = Part('{HERE}:MeanSettings', '{HERE}:MeanReader')"
    (tmp_path / "outside_reader.py").write_text(
        f"from stages.memory.readers import READERS\nfrom stages.registry import Part\n{line}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(OUTSIDE, "outside_reader")
    import_outside.cache_clear()
    assert parse_reading("long:size=5,reader=mean,percent=10").reader == "mean"
    import_outside.cache_clear()


@pytest.mark.parametrize("span", ["3", "tune"])
def test_they_are_evaluated_tuned_and_told_like_any_other(
    memlm: Memlm, tmp_path: Path, span: str
) -> None:
    store = Store(tmp_path / "store")
    model = small_model(store, small_tokens(store))
    reading = f"echo:span={span},reader=mean,percent=10,similarity=dot"
    ended = memlm(
        "evaluate",
        model.reference,
        "--memory",
        reading,
        "--save-token-scores",
        "--device",
        "cpu",
        "--verbose",
    )
    report = store.get(ended.reference, "report")
    (memory,) = json.loads((report.path / "metrics.json").read_text())["memories"]
    assert (memory["sources"], memory["reader"], memory["percent"]) == (["echo"], "mean", 10)
    assert memory["tuned"] == (["span"] if span == "tune" else [])
    assert (
        "echo (mean)" in ended.err and f"span {memory['span']}" in ended.err and "% 10" in ended.err
    )
    ids = array(model.input("tokens"), "tokens.zarr", "test/ids").tolist()
    alone, final = (array(report, "scores.zarr", name) for name in ("logp_lm", "logp"))
    for t, target in enumerate(ids):
        held = ids[max(0, t - memory["span"]) : t]
        want = torch.tensor(float(alone[t])).exp()
        if held:
            want = 0.9 * want + 0.1 * held.count(target) / len(held)
        assert final[t] == pytest.approx(want.log().item(), abs=1e-4)


def test_a_report_whose_reader_is_not_registered_is_not_damaged(
    memlm: Memlm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "store")
    model = small_model(store, small_tokens(store)).reference
    report = memlm(
        "evaluate",
        model,
        "--memory",
        "long:size=5,theta=1,reader=mean,percent=10",
        "--device",
        "cpu",
    )
    monkeypatch.delitem(READERS.targets, "mean")
    monkeypatch.delitem(SOURCES.targets, "echo")
    parse_readings.cache_clear()  # as in another process
    told = memlm("artifacts", "show", report.reference)
    assert told.code == 4 and HERE in told.err and OUTSIDE in told.err
    assert "artifacts rm" not in told.err
    page = tmp_path / "page.html"
    assert memlm("report", report.reference, "--output", page).code == 4
    plain = memlm("evaluate", model, "--memory", "none", "--device", "cpu").reference
    shown = memlm("report", plain, report.reference, "--output", page, "--figures", tmp_path)
    assert shown.code == 0 and report.reference in shown.err and OUTSIDE in shown.err
    assert OUTSIDE in page.read_text("utf-8")
    assert plain.split("/")[1] in (rows := (tmp_path / "results.csv").read_text())
    assert report.reference.split("/")[1] not in rows
    compared = memlm("compare", plain, report.reference, plain, "--json")
    assert compared.code == 0 and report.reference in compared.err
    assert [group["reports"] for group in json.loads(compared.out)["groups"]] == [[plain, plain]]


def test_beside_another_source_they_are_one_memory(memlm: Memlm, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    model = small_model(store, small_tokens(store))
    ended = memlm(
        "evaluate", model.reference, "--memory", "local+echo:span=2,lambda=0.2", "--device", "cpu"
    )
    assert ended.code == 0, ended.err
    assert "local+echo" in ended.err


def test_what_is_typed_wrongly_is_told_as_of_any_other(memlm: Memlm, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    model = small_model(store, small_tokens(store)).reference
    for typed, words in {
        "ecko:span=3,lambda=0.1": "did you mean 'echo'",
        "echo:lambda=0.1": "span is missing: give span=3, or span=tune",
        "echo:span=0,lambda=0.1": "span: Input should be greater than 0",
        "local:span=3,lambda=0.1": "'span' belongs to 'echo' alone",
        "echo:span=3,reader=mean,percent=100": "percent: Input should be less than 100",
    }.items():
        ended = memlm("evaluate", model, "--memory", typed)
        assert ended.code == 2 and words in " ".join(ended.err.split())


def test_tables_and_charts_have_their_numbers() -> None:
    assert hyperparameters()["span"].axis == "tokens back"
    assert hyperparameters()["percent"].words == "%"
