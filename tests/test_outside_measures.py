"""A figure of the report from outside the package: one module with one registration."""

import csv
import io
import json
import sys
from importlib import import_module
from pathlib import Path

import memlm as notebook
import numpy as np
import pytest

from stages.artifacts.store import Store
from stages.registry import import_outside
from stages.reports.measures import MEASURES
from tests.builders.limits import limit
from tests.cli.conftest import Memlm, logs, memlm  # noqa: F401
from tests.stages.small_store import array
from tests.stages.small_text import text_model, text_tokens

MODULE = '''
"""Share of tokens whose probability is above a tenth."""

import numpy as np

from stages.reports.measures import MEASURES, Measure, percent

CONFIDENT = Measure(
    "confident",
    "share of tokens whose probability is above a tenth",
    better="higher",
    text=percent,
    value=lambda sums: sums.of_tokens / sums.counts.tokens,
    of_token=lambda log_p: log_p > np.log(0.1),
)
MEASURES.targets["confident"] = "my_measures:CONFIDENT"
'''
READING = "long:size=12,theta=0.5,lambda=0.3"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a measure, on the path and named by the environment."""
    file = tmp_path / "my_measures.py"
    file.write_text(MODULE, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("MEMLM_PARTS", "my_measures")
    monkeypatch.setitem(MEASURES.targets, "confident", "my_measures:CONFIDENT")  # is taken back
    monkeypatch.delitem(sys.modules, "my_measures", raising=False)
    import_outside()  # a process imports what the environment names only once
    import_module("my_measures")
    return file


@pytest.fixture
def model(tmp_path: Path) -> str:
    store = Store(tmp_path / "store")
    return text_model(store, text_tokens(store, tmp_path)).reference


def test_it_is_in_a_report_its_table_page_notebook_and_comparison(
    module: Path, model: str, memlm: Memlm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Shards of 16 tokens each: sums are added up.
    limit(monkeypatch, tokens_per_shard=16)
    evaluate = ("evaluate", model, "--save-token-scores", "--memory")
    plain, cached = (memlm(*evaluate, reading) for reading in ("none", READING))
    assert plain.code == cached.code == 0, cached.err
    assert "confident" in cached.err

    store = Store(tmp_path / "store")
    report = store.get(cached.reference)
    rows = report.json("metrics.json")["rows"]
    shares = []
    for row, column in zip(rows, ("logp_lm", "logp"), strict=True):
        shares.append((array(report, "scores.zarr", column) > np.log(0.1)).mean())
        assert row["confident"] == pytest.approx(shares[-1], abs=1e-6)
        assert f"{shares[-1]:.1%}" in cached.err
    assert 0 < shares[0] < 1

    page, table = tmp_path / "page.html", tmp_path / "figures"
    assert memlm("report", cached.reference, "--output", page, "--figures", table).code == 0
    assert (
        "share of tokens whose probability is above a tenth; higher is better" in page.read_text()
    )
    lines = list(csv.DictReader(io.StringIO((table / "results.csv").read_text())))
    assert [float(line["confident"]) for line in lines] == [row["confident"] for row in rows]

    assert notebook.open(store.root)[cached.reference].table()["confident"].tolist() == [
        row["confident"] for row in rows
    ]

    found = json.loads(memlm("compare", plain.reference, cached.reference, "--json").out)
    assert [found[side]["confident"] for side in "ab"] == [row["confident"] for row in rows]
    compared = tmp_path / "compared.html"
    told = f"confident: {shares[0]:.1%} in A, {shares[1]:.1%} in B; higher is better"
    both = ("compare", plain.reference, cached.reference)
    assert told in memlm(*both, "--html", compared).out
    assert told in compared.read_text("utf-8")


def test_a_report_depends_on_its_module_and_without_it_is_another(
    module: Path, model: str, memlm: Memlm, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = ("evaluate", model, "--memory", READING)
    first = memlm(*evaluate).reference
    module.write_text(MODULE + "# changed\n", "utf-8")
    changed = memlm(*evaluate).reference
    monkeypatch.delitem(MEASURES.targets, "confident")
    assert len({first, changed, memlm(*evaluate).reference}) == 3
