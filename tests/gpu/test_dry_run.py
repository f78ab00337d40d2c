"""Every step of the campaign runs on a CPU, with models of a thousand weights."""

import contextlib
import io
import json
import lzma
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from torch._inductor import config as inductor

from memlm_cli.app import app, main
from stages.artifacts.durable import write_atomically
from tests.gpu import __main__ as command
from tests.gpu.campaign import (
    Campaign,
    Ended,
    Failed,
    Part,
    Runner,
    Unfinished,
    as_toml,
    figures_in,
    found_at,
)
from tests.gpu.effects import effects, every
from tests.gpu.page import page, tables
from tests.gpu.steps import FULL, TINY, Run, Step, steps

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs/site"))

import results

STEPS = {step.name: step for step in steps()}
ALIKE = (
    "layers-proofs",
    "layers-novels",
    "exact-proofs",
    "exact-novels",
    *(f"{name}-novels-{n}" for name in ("trime", "trime-ext", "spalm", "distilled") for n in "12"),
    "kernel-tests",
    "spalm-often-50",
    "spalm-often-75",
    "names-code",
    "compiled-training-fp32",
    "search-m",
    "trime-constant",
)
"""How steps begin that differ from others by a text, a seed, a number or files of tests."""
LONG = {
    "compiled-training-bf16",
    *(f"layers-code-{name}" for name in ("compressive", "infinity", "hashed-ngrams", "memformer")),
    *(f"layers-code-{name}" for name in ("memorizing-0", "memorizing-few", "memory-plus")),
    *(f"layers-code-{name}" for name in ("memory-transformer", "product-keys", "memsizer")),
    "layers-code-sru-plus-plus",
    "memorizing-gates",
    "same-figures",
    "search-host",
    "spalm-novels-0",
    "suite",
    "trime-ext-from-plain",
    "trime-ext-novels-0",
    "trime-step",
}
"""Steps that take long even with models of a thousand weights, or differ from another by the model
that they name.
"""
ABSENT = {
    "machine": {"expected", "of expected"},
    "compiled-training-bf16": {"pays after, updates"},
    "neighbors-of-many": {"finds its own key", "peak, GB"},
}
"""Columns without a figure in some rows of a step; others lack controls and what a CPU does not
count.
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Texts of a few hundred words, and a store that steps share."""
    folder = tmp_path_factory.mktemp("gpu")
    texts = folder / "texts"
    texts.mkdir()
    for name in ("code", "proofs", "novels"):
        for split, records in (("train", 6), ("valid", 3), ("test", 3)):
            with lzma.open(texts / f"{name}-{split}.jsonl.xz", "wt", encoding="utf-8") as file:
                for number in range(records):
                    text = " ".join(
                        f"{split} w{number} x{i % 13} y{i * number % 7}." for i in range(24)
                    )
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
    except SystemExit as ended:
        return Ended(int(ended.code or 0), output.getvalue())
    finally:
        sys.argv = arguments
    return Ended(0, output.getvalue())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # Triton's interpreter, of bf16
@pytest.mark.filterwarnings(
    "ignore:The .grad attribute:UserWarning"
)  # torch.compile, of what it traces
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.endurance] if name in LONG else [])
        for name in STEPS
        if not name.startswith(ALIKE)
    ],
)
def test_a_step_runs_and_has_all_its_figures(
    name: str, places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "kernels":
        pytest.importorskip("triton", reason="Triton is not installed")
    if name.startswith("compiled"):  # traced, but left to PyTorch: a compiler of C++ takes minutes
        monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
        monkeypatch.setattr(inductor.triton, "cudagraphs", False)
    monkeypatch.chdir(command.ROOT)
    texts, store = places
    parts = list(
        Campaign(texts, store, "cpu", TINY, in_this_process, probes=False).run(STEPS[name], 600)
    )
    assert len(parts) == len(STEPS[name].runs) and all(part.rows for part in parts)
    for row in (row for part in parts for row in part.rows):
        missing = {column for column in STEPS[name].figures if row[column] is None}
        assert (
            missing <= ABSENT.get(name, {"counting", "right at 1", "peak, GB"})
            and len(missing) < len(row) - 1
        ), row
    if name == "search":
        assert {"FAISS on the host" in row["row"] for row in parts[0].rows} == {True, False}
        assert len(parts[0].notes) == 2  # no build of FAISS for a GPU


@pytest.mark.parametrize("name", STEPS)
def test_commands_of_a_step_have_options_that_exist(name: str) -> None:
    group: Any = typer.main.get_command(app)
    figures = {run.each: list[object]() for run in STEPS[name].runs if run.each is not None}

    def parsed(words: Sequence[str], seconds: float) -> Ended:
        if words[2] == "memlm_cli":
            group.commands[words[3]].make_context(words[3], list(words[4:]))
        return Ended(0, json.dumps({"metrics": figures}))

    campaign = Campaign(Path("t"), Path("s"), "cpu", FULL, parsed, probes=False)
    assert len(list(campaign.run(STEPS[name], 600))) == len(STEPS[name].runs)


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of results of its own."""
    monkeypatch.setattr(command, "RESULTS", tmp_path)
    monkeypatch.setattr(results, "RESULTS", tmp_path)
    monkeypatch.setattr(results, "CHARTS", tmp_path / "charts")
    monkeypatch.setattr(command, "draw", lambda: results.main() >= 0)
    return tmp_path


ABOUT = {
    "machine": "GPU",
    "date": "2026-11-26",
    "commit": "abc",
    "command": "python -m tests.gpu a",
}


def kept(name: str, perplexity: float = 7.25) -> None:
    """Figures of a step, all of them the same, in its rows' own names."""
    runs = [run.row.format(**FULL) for run in STEPS[name].runs]
    figures = dict.fromkeys(STEPS[name].figures, perplexity)
    written(STEPS[name], [Part(run, [{"row": run} | figures]) for run in runs])


def written(step: Step, parts: list[Part], **about: str) -> None:
    """The file of a step, and the page of all."""
    left = [run.row.format(**FULL) for run in step.runs][len(parts) :]
    write_atomically(command.file_of(step), as_toml(step, parts, ABOUT | about, left))
    command.make_page()


@pytest.mark.usefixtures("drawn")
@pytest.mark.parametrize("name", ["suite", "machine", "search-host", "exact-code"])
def test_a_first_result_makes_the_page_with_its_figures_and_chart(name: str, pages: Path) -> None:
    kept(name)
    shown = (pages / "gpu.md").read_text("utf-8")
    assert f"](data/gpu/{name}.toml)" in shown and "7.25" in (
        pages / f"data/gpu/{name}.toml"
    ).read_text("utf-8")
    assert re.findall(r"\(charts/(\S+)\)", shown) == [
        file.name for file in (pages / "charts").iterdir()
    ]


@pytest.mark.usefixtures("drawn")
def test_effects_at_size_are_drawn_once_their_steps_have_run(pages: Path) -> None:
    kept("layers-code-transformer-xl", 10.0)
    assert "effects-at-size" not in (pages / "gpu.md").read_text("utf-8")
    kept("layers-code-memorizing-many", 9.0)
    for seed, perplexity in enumerate((8.0, 9.0)):
        plain, trime = (Part(f"novels-{one}-{seed}", [], []) for one in ("plain", "trime"))
        rows = [
            {"row": part.run} | dict.fromkeys(STEPS["trime-novels-0"].figures, 10.0)
            for part in (plain, trime)
        ]
        rows[1]["with memory"] = perplexity
        parts = [Part(row["row"], [row]) for row in rows]
        written(STEPS[f"trime-novels-{seed}"], parts)
    found = tomllib.loads(effects(tables(pages / "data/gpu")) or "")["rows"]
    assert [row["cells"] for row in found] == [
        ["trime", "", "", {"percent": -15.0, "low": -78.5, "high": 48.5}],
        ["trime, paper", "", "", {"percent": -19.7}],
        ["memorizing-many", {"percent": -10.0}, "", ""],
        ["memorizing-many, paper", {"percent": -10.2}, {"percent": -15.4}, {"percent": -3.3}],
    ]
    shown = (pages / "gpu.md").read_text("utf-8")
    assert "−10.0 %" in shown and "](charts/gpu-effects-at-size.svg)" in shown
    assert "trime, paper" in (pages / "charts/gpu-effects-at-size.svg").read_text("utf-8")


def test_every_effect_is_of_rows_and_columns_that_steps_have() -> None:
    for figure in (figure for one in every() for pair in one.pairs for figure in pair):
        step = STEPS[figure.step]
        assert (
            figure.row in [run.row.format(**FULL) for run in step.runs]
            and figure.column in step.figures
        )


def test_steps_are_through_within_nine_minutes_and_have_names_of_their_own() -> None:
    assert len(STEPS) == len(list(steps()))
    assert all(step.minutes <= 9 for step in STEPS.values())
    assert all(step.drawn and set(step.drawn) <= set(step.figures) for step in STEPS.values())
    for step in STEPS.values():
        assert len({run.row.format(**FULL) for run in step.runs}) == len(step.runs)
        assert all(sum(run.minutes) < step.minutes for run in step.runs)


def test_a_training_is_as_long_as_its_minutes_and_the_speed_of_a_short_one() -> None:
    typed: list[str] = []

    def runner(words: Sequence[str], seconds: float) -> Ended:
        typed.append(" ".join(words))
        return Ended(0, json.dumps({"metrics": {"tokens_per_second": 6400.0}}))

    campaign = Campaign(Path("t"), Path("s"), "cpu", TINY | {"batch": 64}, runner)
    list(campaign.run(STEPS["layers-code-infinity"], 600))
    trained = [words for words in typed if " train " in words]
    assert "--steps 30 " in trained[0] and "--name code-infinity-probe" in trained[0]
    assert (
        f"--steps {6 * 60 * 6400 // 64} " in trained[1]
        and trained[1].count("--name code-infinity ") == 1
    )
    typed.clear()
    list(campaign.run(STEPS["memorizing-continued"], 600))
    lengths = [int(steps) for steps in re.findall(r" --steps (\d+)", " ".join(typed))]
    assert lengths == 2 * [30, 3 * 60 * 100, 30, 90 * 100]


RUNS = [Run(name, [f"python -m {name}"]) for name in "ab"]
TWO = Step("one", "How fast?", 1, RUNS, {"n": "n"}, ("n",), "tokens/s", "speed")


def tried(
    monkeypatch: pytest.MonkeyPatch, runner: Runner, *words: str, known: Sequence[Step] = (TWO,)
) -> int:
    """Exit code of the campaign's command, of the one step above or others, with a machine that
    lacks nothing.
    """
    monkeypatch.setattr(command, "steps", lambda: iter(known))
    monkeypatch.setattr(command, "in_a_process", runner)
    monkeypatch.setattr(command, "missing_here", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["gpu", *words, "--device", "cpu", "--commit", "abc"])
    return command.main()


def test_what_is_stopped_goes_on_where_it_was(pages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typed: list[str] = []

    def runner(words: Sequence[str], seconds: float) -> Ended:
        typed.append(words[2])
        return Ended(
            130 if typed == ["a", "b"] else 0,
            json.dumps({"n": len(typed), "notes": [f"of {words[2]}"]}),
        )

    own = ("NEXT", "--store", str(pages))
    assert tried(monkeypatch, runner, *own) == 1
    file = pages / "data/gpu/one.toml"
    assert tomllib.loads(file.read_text("utf-8"))["left"] == ["b"]
    assert "Not measured: b." in (pages / "gpu.md").read_text("utf-8")
    assert tried(monkeypatch, runner, *own) == 0
    whole = tomllib.loads(file.read_text("utf-8"))
    assert (typed, [row["cells"] for row in whole["rows"]]) == (
        ["a", "b", "b"],
        [["a", 1], ["b", 3]],
    )
    assert (whole["left"], whole["notes"]) == ([], ["of a", "of b"])
    assert tried(monkeypatch, runner, *own) == 0 and len(typed) == 3  # nothing is left


def test_whoever_kills_a_step_loses_one_row_at_most(
    pages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def runner(words: Sequence[str], seconds: float) -> Ended:
        if words[2] == "b":
            raise KeyboardInterrupt
        return Ended(0, '{"n": 1}')

    with pytest.raises(KeyboardInterrupt):
        tried(monkeypatch, runner, "NEXT", "--store", str(pages))
    table = tomllib.loads((pages / "data/gpu/one.toml").read_text("utf-8"))
    assert (table["left"], [row["cells"] for row in table["rows"]]) == (["b"], [["a", 1]])


def test_rows_of_another_commit_are_measured_again(
    pages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(TWO, [Part("a", [{"row": "a", "n": 7}])], commit="older")
    assert tried(monkeypatch, lambda *_: Ended(0, '{"n": 1}'), "one", "--store", str(pages)) == 0
    table = tomllib.loads((pages / "data/gpu/one.toml").read_text("utf-8"))
    assert [row["cells"][1] for row in table["rows"]] == [1, 1] and table["commit"] == "abc"


def test_next_leaves_out_what_failed(pages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typed: list[str] = []

    def runner(words: Sequence[str], seconds: float) -> Ended:
        typed.append(words[2])
        return Ended(3, "")

    own = ("NEXT", "--store", str(pages), "--minutes", "5")
    assert [tried(monkeypatch, runner, *own) for _ in range(2)] == [1, 0] and typed == ["a"]
    assert tried(monkeypatch, runner, "one", *own[1:]) == 1 and typed == [
        "a",
        "a",
    ]  # whoever names it runs it
    assert not (pages / "data/gpu").exists()


def test_next_ends_like_a_step_that_failed_whatever_followed(
    pages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = [replace(TWO, name=run.row, runs=[run]) for run in RUNS]
    own = ("NEXT", "--store", str(pages), "--minutes", "5")
    assert (
        tried(
            monkeypatch,
            lambda words, _: Ended(3 * (words[2] == "a"), '{"n": 1}'),
            *own,
            known=known,
        )
        == 1
    )
    assert [file.stem for file in (pages / "data/gpu").glob("*.toml")] == ["b"]


def test_next_runs_what_fits_into_the_minutes(pages: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (
        tried(
            monkeypatch,
            lambda *_: Ended(0, '{"n": 1}'),
            "NEXT",
            "--store",
            str(pages),
            "--minutes",
            "0.5",
        )
        == 0
    )
    assert not (pages / "data/gpu").exists()
    assert (
        tried(
            monkeypatch,
            lambda *_: Ended(0, '{"n": 1}'),
            "NEXT",
            "--store",
            str(pages),
            "--minutes",
            "5",
        )
        == 0
    )
    assert (pages / "data/gpu/one.toml").exists()


@pytest.mark.parametrize(
    "words", [["no-such-step"], ["NEXT", "--device", "cuda"], ["NEXT", "--device", "cpu"]]
)
def test_what_cannot_be_run_is_a_mistake_of_typing(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(
        sys, "argv", ["gpu", *words, "--texts", str(tmp_path), "--store", str(tmp_path)]
    )
    with pytest.raises(SystemExit, match="2"):
        command.main()


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_files_that_differ_from_their_commit_are_seen_but_neither_new_ones_nor_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=tmp_path, check=True
        )

    monkeypatch.setattr(command, "ROOT", tmp_path)
    assert command.checked_out() == "unknown"
    for name in ("code.py", "docs/results/gpu.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "a")
    commit = command.checked_out()
    (tmp_path / "docs/results/gpu.md").write_text("2")
    (tmp_path / "gpu-store").write_text("new")
    assert command.checked_out() == commit and re.fullmatch("[0-9a-f]{7,}", commit)
    (tmp_path / "code.py").write_text("2")
    assert command.checked_out() == f"{commit}+"


def test_what_prints_no_figures_has_failed() -> None:
    with pytest.raises(Failed):
        list(
            Campaign(Path("t"), Path("s"), "cpu", TINY, lambda *_: Ended(0, "{no json")).run(TWO, 9)
        )


def test_time_that_is_over_stops_a_step_before_its_next_command() -> None:
    with pytest.raises(Unfinished):
        list(Campaign(Path("t"), Path("s"), "cpu", TINY, command.in_a_process).run(TWO, -1))


def test_a_table_keeps_the_figures_and_the_page_says_what_was_not_measured() -> None:
    step = Step(
        "one", "How fast?", 1, [], {"tokens/s": "speed"}, ("tokens/s",), "tokens/s", area="Speed?"
    )
    rows = [{"row": "a", "tokens/s": 1234.5678}, {"row": "b", "tokens/s": None}]
    data = as_toml(step, [Part("r", rows)], {"machine": "GPU"})
    assert 'machine = "GPU"' in data and '["a", 1235.0]' in data and '["b", ""]' in data
    others = [
        Step(name, "And then?", 1, [], area=area)
        for name, area in (("two", "Speed?"), ("three", "Gain?"))
    ]
    shown = page([step, *others], {"one": {"left": ["c"]}}, at_size=False)
    assert re.findall(r"data/gpu/(\w+)", shown) == ["one"] and "Not measured: c." in shown
    assert "|Speed?|`two`|" in shown and "|Gain?|`three`|" in shown


def test_the_page_of_results_is_that_of_the_steps_and_their_data() -> None:
    folder = command.ROOT / "docs/results"
    measured = tables(folder / "data/gpu")
    written = (folder / "gpu.md").read_text("utf-8")
    shown = re.sub(r"(<!-- table: \S+ -->)\n.*?(<!-- end -->)", r"\1\n\2", written, flags=re.S)
    found = effects(measured)
    assert shown == page(list(STEPS.values()), measured, found is not None), (
        "run python -m tests.gpu PAGE"
    )
    file = folder / "data/gpu/effects-at-size.toml"
    assert (file.read_text("utf-8") if file.exists() else None) == found


def test_figures_are_found_in_what_a_command_prints() -> None:
    printed = 'a line\n{"rows": [{"a/b": 1, "c": 2.5}]}'
    assert found_at(figures_in(printed), "rows/0/c") == 2.5
    assert found_at(figures_in(printed), "rows/3/c") is None
