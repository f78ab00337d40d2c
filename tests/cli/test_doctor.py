"""What is installed and in force, and what of it is broken."""

import json
import shlex
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from memlm_cli.commands import doctor as checks
from memlm_cli.packages import Dependency, dependencies, install_command
from stages.machine import memory_bytes
from stages.registry import import_outside
from tests.cli.conftest import Memlm


def test_a_working_installation_is_told_in_tables(memlm: Memlm) -> None:
    ended = memlm("doctor")
    assert ended.code == 0, ended.err
    assert "\x1b" not in ended.out
    assert [part.splitlines()[0] for part in ended.out.split("\n\n")] == [
        "Versions",
        "Extras",
        "Machine",
        "Store",
        "Environment",
        "Problems",
    ]
    assert "torch" in ended.out and "$MEMLM_STORE" in ended.out


def test_json_has_the_same_as_values(memlm: Memlm, tmp_path: Path) -> None:
    found = json.loads(memlm("doctor", "--json").out)
    assert found["versions"]["torch"].startswith("2.")
    assert found["devices"]["cores"] >= 1 and found["devices"]["memory"] == memory_bytes()
    store = found["store"]
    assert (store["path"], store["there"], store["artifacts"]) == (
        str(tmp_path / "store"),
        False,
        0,
    )
    assert store["free"] > 0
    assert found["variables"]["MEMLM_STORE"] == str(tmp_path / "store")
    assert found["problems"] == []


def test_a_module_of_parts_that_cannot_be_imported_is_a_problem(
    memlm: Memlm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMLM_PARTS", "no_such_layers")
    import_outside.cache_clear()
    ended = memlm("doctor")
    assert ended.code == 2
    assert "$MEMLM_PARTS" in ended.out and "there is no module no_such_layers" in " ".join(
        ended.out.split()
    )


def test_a_package_that_cannot_be_imported_is_a_problem(
    memlm: Memlm, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(module: str) -> ModuleType:
        if module == "faiss":
            raise ImportError("libopenblas.so: cannot open shared object file")
        return import_module(module)

    monkeypatch.setattr("memlm_cli.commands.doctor.import_module", broken)
    ended = memlm("doctor", "--json")
    assert ended.code == 2
    found = json.loads(ended.out)
    reason = "ImportError: libopenblas.so: cannot open shared object file"
    (problem,) = found["problems"]
    assert reason in problem
    assert found["devices"]["searching_gpus"] is None


def test_a_store_that_is_a_file_is_a_problem(memlm: Memlm, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = memlm("doctor", "--store", tmp_path / "file")
    assert ended.code == 2
    assert str(tmp_path / "file") in ended.err


@pytest.mark.parametrize("there", [False, True])
def test_a_store_that_cannot_be_made_or_written_is_a_problem(
    memlm: Memlm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    """As in /proc, whose permissions would allow it."""

    def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr("memlm_cli.commands.doctor.TemporaryDirectory", refuse)
    store = tmp_path if there else tmp_path / "store"
    ended = memlm("doctor", "--store", store)
    assert ended.code == 2
    nothing = f"nothing can be written in {tmp_path} (No such file or directory)"
    assert (
        f"the store: {nothing if there else f'{store} cannot be made, {nothing}: name another'}"
        in ended.err
    )


def test_looking_at_a_store_leaves_nothing_behind(memlm: Memlm, tmp_path: Path) -> None:
    assert memlm("doctor", "--store", tmp_path).code == 0
    assert list(tmp_path.iterdir()) == []


def test_requirements_are_compared_with_what_is_installed() -> None:
    lines = [
        "pytest>=1",
        "pytest<1; extra == 'old'",
        'no-such-thing>=2; extra == "new"',
        'memlm[hf]; extra == "test"',
    ]
    there, old, absent = dependencies(lines)
    assert (there.fits, there.extra, there.problem) == (True, None, "")
    assert (old.fits, old.extra) == (False, "old")
    assert old.problem.startswith(pytest.__version__) and old.problem.endswith(" pytest<1")
    assert (absent.installed, absent.problem) == (None, "missing")
    assert shlex.split(install_command([old, absent])) == [
        "pip",
        "install",
        "pytest<1",
        "no-such-thing>=2",
    ]


def test_a_module_of_no_name_is_not_taken_for_a_gpu_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from stages.search import open as opening

    monkeypatch.setattr(opening, "faiss", ModuleType("faiss"))
    assert opening.searching_gpus() == 0


def test_faiss_under_another_name_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = [
        Dependency(name, name, extra, None, False)
        for name, extra in (("faiss-cpu", "cpu"), ("faiss-gpu", "gpu"))
    ]
    found = {
        "extras": [checks._extra(str(one.extra), [one]) for one in lacking],
        "store": {"problem": None},
    }
    assert not any("faiss" in problem for problem in checks._problems(found, lacking, {}))
    monkeypatch.setattr("memlm_cli.commands.doctor.find_spec", lambda module: None)
    (problem,) = [p for p in checks._problems(found, lacking, {}) if "faiss" in p]
    assert "faiss-cpu" in problem
