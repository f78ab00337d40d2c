"""A recipe runs what is not done, and its plan says so beforehand."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipelines.estimates import DONE, Estimate, estimates, tasks_of
from pipelines.recipe import Recipe, load_recipe, require_named
from pipelines.run import Result, run_recipe
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.errors import ArtifactError
from stages.reporting import Reporter, Silent

Files = dict[str, list[str]]
CPU = Execution(device="cpu")


@contextmanager
def silent(name: str) -> Iterator[Reporter]:
    yield Silent()


def run(recipe: Recipe, store: Store) -> list[Result]:
    return list(run_recipe(recipe, store, CPU, silent))


def planned(recipe: Recipe, store: Store) -> list[Estimate]:
    return list(estimates(tasks_of(recipe), store, CPU, sizes=False))


def states(steps: list[Estimate]) -> dict[str, str]:
    return {step.name: step.why for step in steps}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_a_recipe_runs_once(recipe_file: Path, files: Files, store: Store) -> None:
    recipe = load_recipe(recipe_file, files, {})
    before = planned(recipe, store)
    assert states(before) == {
        "tokens": "not made yet",
        "model": "reads tokens",
        "datastore": "reads model",
        "index": "reads datastore",
    }
    assert not store.root.exists()
    first = run(recipe, store)
    assert [r.status for r in first] == ["made"] * 4
    assert [r.artifact.kind for r in first] == ["tokens", "model", "datastore", "index"]
    after = planned(recipe, store)
    assert all(step.state == DONE for step in after)
    assert [step.reference for step in after] == [r.reference for r in first]
    again = run(recipe, store)
    assert [r.status for r in again] == ["cached"] * 4
    assert [r.reference for r in again] == [r.reference for r in first]


def test_the_plan_says_what_changed(recipe_file: Path, files: Files, store: Store) -> None:
    results = run(load_recipe(recipe_file, files, {}), store)

    def replanned(overrides: dict) -> dict[str, str]:
        return states(planned(load_recipe(recipe_file, files, overrides), store))

    assert replanned({"index": {"metric": "ip"}})["index"].endswith("l2 -> ip")
    changed = replanned({"model": {"seed": 7}})
    assert changed["model"].endswith("0 -> 7")
    assert changed["datastore"] == "reads model"
    store.remove(results[1].artifact.reference)
    assert replanned({})["model"] == "not made yet"
    with Path(files["train"][0]).open("a") as text:
        text.write("a new line\n")
    for settings in (
        {},
        {"tokens": {"lowercase": True}},
    ):  # whether it is the same file, changed, is not known
        assert "this text" in replanned(settings)["tokens"]


def test_an_interrupted_stage_continues(recipe_file: Path, files: Files, store: Store) -> None:
    recipe = load_recipe(recipe_file, files, {})
    results = run(recipe, store)
    last = results[-1].artifact
    store.remove(last.reference)
    store.draft_folder(last.kind, last.id).mkdir(parents=True)
    assert states(planned(recipe, store))["index"] == "interrupted: continues"


def test_progress_goes_to_the_stage_s_own_reporter(
    recipe_file: Path, files: Files, store: Store
) -> None:
    names = []

    @contextmanager
    def named(name: str) -> Iterator[Reporter]:
        names.append(name)
        yield Silent()

    list(run_recipe(load_recipe(recipe_file, files, {}), store, CPU, named))
    assert names == ["tokens", "model", "datastore", "index"]


def test_artifacts_that_a_recipe_names_are_looked_for_before_anything_runs(
    recipe_file: Path, files: Files, store: Store
) -> None:
    report = '\n[stages.report]\ncommand = "evaluate"\nfrom = "model"\nwith = { index = "index/0123456789ab" }\n'
    recipe_file.write_text(recipe_file.read_text(encoding="utf-8") + report, encoding="utf-8")
    recipe = load_recipe(recipe_file, files, {})
    for attempt in (run, require_named):
        with pytest.raises(ArtifactError, match="index/0123456789ab"):
            attempt(recipe, store)
    assert not store.root.exists()
