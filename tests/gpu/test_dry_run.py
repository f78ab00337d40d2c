"""Every step of the campaign runs on a CPU, with models of a thousand weights."""

import contextlib
import io
import json
import lzma
import re
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from memlm_cli.app import main
from tests.benchmarks.bench_machine import Row
from tests.gpu import __main__ as command
from tests.gpu.campaign import Campaign, Ended, as_toml, figures_in, found_at
from tests.gpu.page import page
from tests.gpu.steps import TINY, Step, steps

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs/site"))

import results

STEPS = {step.name: step for step in steps()}
ELSEWHERE = (
    "suite",
    "same-figures",
    "machine",
    "compiled-training",
    "kernel-tests",
)
"""Steps whose commands have no small form, or are benchmarks with tests of their own."""
ALIKE = (
    "layers-proofs",
    "layers-novels",
    "exact-proofs",
    "exact-novels",
    *(f"{name}-novels-{n}" for name in ("trime", "trime-ext", "spalm") for n in "12"),
    "spalm-often-0.",
    "trime-constant",
)
"""How steps begin that differ from others by a text, a seed or a number."""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Texts of a few hundred words, and a store that steps share."""
    folder = tmp_path_factory.mktemp("gpu")
    texts = folder / "texts"
    texts.mkdir()
    for name in ("code", "proofs", "novels"):
        for split, records in (("train", 12), ("valid", 4), ("test", 4)):
            with lzma.open(texts / f"{name}-{split}.jsonl.xz", "wt", encoding="utf-8") as file:
                for number in range(records):
                    text = " ".join(f"{split} w{number} x{i % 13} y{i * number % 7}." for i in range(60))
                    file.write(json.dumps({"name": f"{split}-{number}", "text": text}) + "\n")
    return texts, folder / "store"


def in_this_process(words: Sequence[str], seconds: float) -> Ended:
    """Run a module of Python here, as a process of its own would."""
    output, arguments = io.StringIO(), sys.argv
    sys.argv = list(words[2:])
    try:
        with contextlib.redirect_stdout(output):
            if words[2] == "memlm_cli":
                return Ended(main(list(words[3:])), output.getvalue())
            runpy.run_module(words[2], run_name="__main__", alter_sys=False)
    finally:
        sys.argv = arguments
    return Ended(0, output.getvalue())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # Triton's interpreter, of bf16
@pytest.mark.parametrize("name", [name for name in STEPS if name not in ELSEWHERE and not name.startswith(ALIKE)])
def test_a_step_runs_and_has_all_its_figures(name: str, places: tuple[Path, Path]) -> None:
    if name == "kernels":
        pytest.importorskip("triton", reason="Triton is not installed")
    texts, store = places
    campaign = Campaign(texts, store, "cpu", TINY, in_this_process, probes=False)
    rows = campaign.run(STEPS[name], 600)
    assert len(rows) >= len(STEPS[name].runs)
    for row in rows:
        missing = {column for column in STEPS[name].figures if row[column] is None}
        assert missing <= {"counting", "right at 1", "peak, GB"} and len(missing) < len(row) - 1, row


def test_figures_of_the_machine_are_those_of_its_rows() -> None:
    told = {"speed": [Row("product", "GFLOP/s", 3.0, 4.0, "here", 1, 1.0, 0).told]}
    campaign = Campaign(Path("t"), Path("s"), "cpu", TINY, lambda *_: Ended(0, json.dumps(told)))
    (row,) = campaign.run(STEPS["machine"], 600)
    assert (row["row"], row["of expected"], row["expected"]) == ("product", 0.75, 4.0)


@pytest.mark.usefixtures("drawn")
@pytest.mark.parametrize("name", ["suite", "machine", "search-host", "layers-code-infinity"])
def test_a_first_result_makes_the_page_with_its_table_and_chart(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = STEPS[name]
    monkeypatch.setattr(command, "RESULTS", tmp_path)
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    monkeypatch.setattr(results, "CHARTS", tmp_path / "charts")
    command.keep(step, [{"row": "a"} | dict.fromkeys(step.figures, 7.25)], "cpu", "0")
    assert results.main() == 2
    written = (tmp_path / "gpu.md").read_text("utf-8")
    assert f"](data/gpu/{name}.toml)" in written and "| a | 7.25 |" in written
    assert re.findall(r"\(charts/(\S+)\)", written) == [file.name for file in (tmp_path / "charts").iterdir()]


def test_steps_are_through_within_nine_minutes_and_have_names_of_their_own() -> None:
    assert len(STEPS) == len(list(steps()))
    assert all(step.minutes <= 9 for step in STEPS.values())
    assert all(step.drawn and set(step.drawn) <= set(step.figures) for step in STEPS.values())


def test_a_training_is_as_long_as_its_minutes_and_the_speed_of_a_short_one() -> None:
    typed: list[str] = []

    def runner(words: Sequence[str], seconds: float) -> Ended:
        typed.append(" ".join(words))
        return Ended(0, json.dumps({"metrics": {"tokens_per_second": 6400.0}}))

    campaign = Campaign(Path("t"), Path("s"), "cpu", TINY | {"batch": 64}, runner)
    campaign.run(STEPS["layers-code-infinity"], 600)
    trained = [words for words in typed if " train " in words]
    assert "--steps 30 " in trained[0] and "--name code-infinity-probe" in trained[0]
    assert f"--steps {6 * 60 * 6400 // 64} " in trained[1] and trained[1].count("--name code-infinity ") == 1


def test_a_table_keeps_the_figures_and_the_page_says_how_much_was_not_measured() -> None:
    step = Step("one", "How fast?", 1, [], {"tokens/s": "speed"}, ("tokens/s",), "tokens/s")
    data = as_toml(step, [{"row": "a", "tokens/s": 1234.5678}, {"row": "b", "tokens/s": None}], {"machine": "GPU"})
    assert 'machine = "GPU"' in data and '["a", 1235.0]' in data and '["b", ""]' in data
    shown = page([step, Step("two", "And then?", 1, [])], {"one"})
    assert re.findall(r"table: (\w+)", shown) == ["one"] and "1 of 2" in shown


def test_the_page_of_results_has_every_measured_step_and_is_not_there_without_one() -> None:
    results = Path(__file__).parent.parent.parent / "docs/results"
    measured = {path.stem for path in (results / "data/gpu").glob("*.toml")}
    written = (results / "gpu.md").read_text("utf-8") if (results / "gpu.md").exists() else ""
    shown = re.sub(r"(<!-- table: \S+ -->)\n.*?(<!-- end -->)", r"\1\n\2", written, flags=re.S)
    assert shown == (page(list(STEPS.values()), measured) if measured else "")


def test_figures_are_found_in_what_a_command_prints() -> None:
    printed = 'a line\n{"rows": [{"a/b": 1, "c": 2.5}]}'
    assert found_at(figures_in(printed), "rows/0/c") == 2.5
    assert found_at(figures_in(printed), "rows/3/c") is None
