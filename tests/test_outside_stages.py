"""A stage from outside the package: one module with one registration goes through the command."""

import json
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import memlm as notebook
import numpy as np
import pytest

from stages.artifacts.kinds import STAGES
from stages.artifacts.output import ShardOutput
from stages.artifacts.store import Store
from stages.pages.lineage import facts
from stages.registry import import_outside
from tests.cli.conftest import Memlm, logs, memlm, text  # noqa: F401
from tests.stages.small_tasks import bytes_of

CONTRACT = '''
"""Counts how often each type follows itself or another: one registration, no torch."""

from typing import ClassVar

from pydantic import Field

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.declaration import Command, Kind, Reference, StageEntry
from stages.artifacts.kinds import STAGES
from stages.artifacts.needs import Needs
from stages.artifacts.schema import Expected, Figures, Positive, Schema, numbers
from stages.artifacts.stage import Inputs, Stage
from stages.config import StageConfig
from stages.text.tokens import SPLITS


class CountsConfig(StageConfig):
    """How types are counted."""

    gap: int = Field(1, ge=1)
    """Distance between the two tokens of a pair."""


class CountsFigures(Figures):
    pairs: Positive
    repeats: int


def count_arrays(counts, name):
    types = counts.input("tokens").metrics["vocabulary_size"]
    return Expected((types,), ("int64",), numbers) if name == "counts.zarr/repeats" else None


def layout(inputs):
    types = inputs["tokens"].metrics["vocabulary_size"]
    return ArrayLayout("counts.zarr/repeats", (types,), "int64", types)


class CountRepeats(Stage[CountsConfig]):
    name: ClassVar[str] = "count-repeats"
    kind: ClassVar[str] = "counts"
    Config = CountsConfig
    schema = Schema(CountsFigures, count_arrays)

    def inputs(self, config, references, store):
        return Inputs({"tokens": store.get(references["source"], "tokens")})


def count_needs(config, inputs):
    return Needs(disk=layout(inputs).stored_bytes, scratch=0, memory=123_456)


STAGES.targets["count-repeats"] = StageEntry(
    settings="my_counts:CountsConfig",
    contract="my_counts:CountRepeats",
    work="my_counts_work:CountWork",
    needs="my_counts:count_needs",
    kind=Kind(
        "counts",
        format_version=1,
        facts=(("pairs", "pairs"), ("repeats", "repeats")),
        result="my_counts_work:CountsView",
        notebook="my_counts_work:Counts",
    ),
    command=Command(
        "Tokens -> counts: how often a token comes again at once.",
        "Tokens to count in",
        ("tokens",),
    ),
)
'''
WORK = '''
"""The work of count-repeats, and what shows its counts."""

from dataclasses import dataclass

import numpy as np

from memlm import Artifact
from memlm_cli.results.view import View
from my_counts import layout
from stages.artifacts.output import ShardOutput
from stages.artifacts.stage import Shard, ShardedWork, ShardPlan

SHARDS = 4


class CountWork(ShardedWork):
    def plan(self, job):
        return ShardPlan([Shard(f"part-{part}") for part in range(SHARDS)])

    def open(self, job, plan):
        return np.asarray(job.inputs["tokens"].zarr("tokens.zarr")["train/ids"][:])

    def run_shard(self, job, resources, shard):
        ids, gap = resources, job.config.gap
        part = int(shard.key[-1])
        first, last = ids[:-gap][part::SHARDS], ids[gap:][part::SHARDS]
        repeated, counts = np.unique(first[first == last], return_counts=True)
        output = ShardOutput(job.folder)
        np.savez(output.add(f"scratch/{shard.key}.npz"), repeated=repeated, counts=counts)
        output.record["pairs"] = len(first)
        return output

    def finish(self, job, plan):
        array = layout(job.inputs)
        total = np.zeros(array.shape, np.int64)
        for shard in plan.shards:
            with np.load(job.folder / "scratch" / f"{shard.key}.npz") as part:
                total[part["repeated"]] += part["counts"]
        job.draft.write_whole(array, total)
        pairs = sum(job.draft.record(shard.key)["pairs"] for shard in plan.shards)
        return {"pairs": pairs, "repeats": int(total.sum())}


class CountsView(View):
    def parts(self, artifact, title, *, verbose):
        yield from super().parts(artifact, title, verbose=verbose)
        yield f"repeats at distance {artifact.config['gap']}"


class Counts(Artifact):
    @property
    def repeats(self):
        return self._stored.zarr("counts.zarr")["repeats"]
'''
COMMAND = "count-repeats"


@pytest.fixture
def counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a stage, whose modules are on the path and named by the environment."""
    (tmp_path / "my_counts.py").write_text(CONTRACT, "utf-8")
    (tmp_path / "my_counts_work.py").write_text(WORK, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("MEMLM_PARTS", "my_counts")
    monkeypatch.setitem(STAGES.targets, COMMAND, STAGES.targets["tokenize"])  # it is taken back
    for module in ("my_counts", "my_counts_work"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    import_outside()  # a process imports what the environment names only once
    import_module("my_counts")
    return tmp_path


@pytest.fixture
def tokens(counts: Path, memlm: Memlm, text: Path) -> str:
    return memlm("tokenize", "--train", text, "--valid", text, "--test", text).reference


def test_help_lists_the_command_and_explains_its_options(counts: Path, memlm: Memlm) -> None:
    listed = memlm("--help").out
    places = [listed.index(f" {name} ") for name in ("evaluate-tasks", COMMAND, "report")]
    assert places == sorted(places)
    shown = memlm(COMMAND, "--help").out
    assert "--gap" in shown and "Distance between the two tokens" in shown and "TOKENS" in shown


def test_it_is_killed_resumed_and_counts_right(
    counts: Path, memlm: Memlm, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = import_module("my_counts_work")
    run_shard = work.CountWork.run_shard

    def killed(self: Any, job: Any, resources: Any, shard: Any) -> ShardOutput:
        if shard.key == "part-2":
            raise KeyboardInterrupt
        return run_shard(self, job, resources, shard)

    results = []
    for name, kills in (("whole", 0), ("parts", 1)):
        monkeypatch.setenv("MEMLM_STORE", str(tmp_path / name))
        tokens = memlm("tokenize", "--train", text).reference
        for _ in range(kills):
            with monkeypatch.context() as patched:
                patched.setattr(work.CountWork, "run_shard", killed)
                assert memlm(COMMAND, tokens, "--gap", 2).code == 130
        ended = memlm(COMMAND, tokens, "--gap", 2)
        assert ended.code == 0, ended.err
        assert ("resumed: 2 of 4" in ended.err) == bool(kills)
        assert "repeats at distance 2" in ended.err
        again = memlm(COMMAND, tokens, "--gap", 2)
        assert again.reference == ended.reference and "cached" in again.err
        results.append(Store(tmp_path / name).get(ended.reference))

    whole, parts = results
    assert bytes_of(whole) == bytes_of(parts)
    ids = whole.input("tokens").zarr("tokens.zarr")["train/ids"][:].tolist()
    expected = Counter(a for a, b in zip(ids[:-2], ids[2:], strict=True) if a == b)
    stored = whole.zarr("counts.zarr")["repeats"][:]
    assert {id: stored[id] for id in np.flatnonzero(stored)} == expected
    assert whole.metrics["repeats"] == expected.total()


def test_an_id_covers_the_modules_of_the_contract_and_of_the_work(
    counts: Path, tokens: str, memlm: Memlm
) -> None:
    before = memlm(COMMAND, tokens).reference
    for module in ("my_counts", "my_counts_work"):
        path = counts / f"{module}.py"
        path.write_text(path.read_text("utf-8") + "# changed\n", "utf-8")
        after = memlm(COMMAND, tokens).reference
        assert after.startswith("counts/") and after != before
        before = after


def test_plan_says_what_it_needs(counts: Path, tokens: str, memlm: Memlm) -> None:
    planned = json.loads(memlm("plan", COMMAND, tokens, "--json").out)
    (task,) = planned["stages"]
    assert task["state"] == "new"
    assert task["memory"] == {"cpu": 123_456}


def test_a_terminal_and_a_page_show_its_figures(
    counts: Path, tokens: str, memlm: Memlm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = memlm(COMMAND, tokens).reference
    artifact = Store(tmp_path / "store").get(reference)
    assert facts(artifact) == f"pairs {artifact.metrics['pairs']}, repeats 0"
    assert reference in memlm("artifacts", "list", "counts").out
    assert json.loads(memlm("artifacts", "show", reference).out)["stage"] == COMMAND
    monkeypatch.setattr("memlm_cli.work.artifacts.answers_on_terminal", lambda: True)
    shown = memlm("artifacts", "show", reference).out
    assert f"memlm {COMMAND} {tokens}" in shown and "repeats" in shown


def test_a_recipe_and_a_notebook_run_it(
    counts: Path, tokens: str, memlm: Memlm, tmp_path: Path
) -> None:
    recipe = f'''
[stages.counts]
command = "{COMMAND}"
from = "{tokens}"
settings = {{ gap = 3 }}
'''
    (tmp_path / "recipe.toml").write_text(recipe, "utf-8")
    by_recipe = memlm("run", tmp_path / "recipe.toml").reference
    store = notebook.open(tmp_path / "store")
    by_notebook = store.run(COMMAND, tokens, gap=3)
    assert by_notebook.reference == by_recipe
    assert type(by_notebook).__name__ == "Counts"
    assert by_notebook.repeats[:].sum() == by_notebook.metrics["repeats"] > 0


def test_without_its_module_nothing_that_it_reads_is_garbage(
    counts: Path, tokens: str, memlm: Memlm, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = memlm(COMMAND, tokens).reference
    monkeypatch.delenv("MEMLM_PARTS")
    monkeypatch.delitem(STAGES.targets, COMMAND)
    collected = memlm("artifacts", "gc", "--unnamed")
    assert collected.code == 4
    assert reference in collected.err and "MEMLM_PARTS" in collected.err
    removed = memlm("artifacts", "rm", tokens)
    assert removed.code == 4
    assert reference in removed.err and "MEMLM_PARTS" in removed.err
    assert memlm("artifacts", "show", tokens).code == 0
    assert memlm(COMMAND, tokens).code == 2
