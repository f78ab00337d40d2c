"""Errors, registries, settings and signals that every stage builds on."""

import hashlib
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import ValidationError

from stages import errors
from stages.config import OneOf, Settings, StageConfig, read_toml
from stages.diagnostics import PROBES
from stages.errors import MemlmError, UsageError, did_you_mean
from stages.evaluation.opening import open_probes
from stages.interrupts import Terminated, deferred_signals
from stages.methods import METHODS
from stages.registry import OUTSIDE, Part, Registry, import_outside, outside_code
from stages.reports.remarks.gains import trained_with_memory


def test_exit_codes_are_the_contracts() -> None:
    codes = {
        c.__name__: c.exit_code
        for c in vars(errors).values()
        if isinstance(c, type) and issubclass(c, MemlmError)
    }
    assert codes == {
        "MemlmError": 1,
        "UsageError": 2,
        "DataError": 3,
        "ArtifactError": 4,
        "ResourceError": 5,
        "BusyError": 75,
    }


def test_unknown_names_bring_the_nearest_else_all() -> None:
    assert did_you_mean("tokns", ["tokens", "model"]) == "did you mean 'tokens'?"
    assert did_you_mean("xyz", ["tokens", "model", "model"]) == "known: model, tokens"


def test_registries_load_lazily() -> None:
    registry = Registry("tool", {"join": "os.path:join", "ghost": "no.such.module:thing"})
    assert registry.load("join") is os.path.join
    assert "ghost" in registry and registry.names() == ["join", "ghost"]
    with pytest.raises(UsageError, match="There is no tool 'joint'; did you mean 'join'"):
        registry.load("joint")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("os.pathh:join", "names os.pathh:join, but there is no module os.pathh: PYTHONPATH"),
        ("os.path:joim", "but os.path has none; did you mean 'join'"),
        ("os.path", 'not of the form "module:object"'),
    ],
)
def test_a_target_that_is_not_there_is_said(target: str, words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        Registry("tool", {"mine": target}).load("mine")
    with pytest.raises(UsageError, match="tool 'mine' lacks settings"):
        Registry("tool", {"mine": target}).settings("mine")


OUTSIDE_TOOLS = Registry("tool", {})


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield the file of a module that `$MEMLM_PARTS` names and nobody imported yet."""
    monkeypatch.setenv(OUTSIDE, "json, outside_tools")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(OUTSIDE_TOOLS, "targets", {})
    import_outside.cache_clear()
    yield tmp_path / "outside_tools.py"
    sys.modules.pop("outside_tools", None)
    import_outside.cache_clear()


def test_a_part_from_outside_is_known_when_it_is_asked_for(outside: Path) -> None:
    outside.write_text(
        f"import {__name__} as here\nhere.OUTSIDE_TOOLS.targets['axe'] = 'os.path:join'\n"
    )
    assert "axe" in OUTSIDE_TOOLS and OUTSIDE_TOOLS.load("axe") is os.path.join


def test_code_from_outside_belongs_to_the_work_that_uses_it(outside: Path) -> None:
    """A class of the package that it registers again does not: its changes have their
    `format_version`.
    """
    parts = "Part('outside_tools:cut', 'stages.registry:load')"
    outside.write_text(
        f"import {__name__} as here\nfrom stages.registry import Part\n"
        f"here.OUTSIDE_TOOLS.targets['axe'] = {parts}\ncut = 1\n"
    )
    [(role, digest)] = outside_code({"axe", "os"})
    assert (
        role == "part.outside_tools" and digest == hashlib.blake2b(outside.read_bytes()).hexdigest()
    )
    outside.write_text(outside.read_text("utf-8") + "# another\n")
    assert outside_code({"axe"}) != [[role, digest]] and outside_code({"saw"}) == []


def test_a_probe_from_outside_is_opened_where_nobody_asked_for_a_part(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PROBES, "targets", {})
    outside.write_text(
        "from stages.diagnostics import PROBES\nPROBES.targets['mine'] = 'outside_tools:Mine'\n"
        "class Mine:\n    open = classmethod(lambda probe, *told: probe)\n"
    )
    assert list(open_probes({}, {}, "test")) == ["mine"]


def test_a_method_from_outside_is_known_to_who_reads_a_report(outside: Path) -> None:
    outside.write_text(
        "from stages.methods import METHODS\nMETHODS.targets['outside-trime'] = METHODS.targets['trime']\n"
    )
    try:
        assert trained_with_memory("outside-trime") and not trained_with_memory("no-such-method")
    finally:
        METHODS.targets.pop("outside-trime", None)


@pytest.mark.parametrize("given", ["outside_tools.py", "FOLDER/outside_tools.py"])
def test_a_file_in_place_of_a_module_is_told_the_module(
    outside: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    outside.write_text("a = 1\n")
    monkeypatch.setenv(OUTSIDE, given.replace("FOLDER", str(outside.parent)))
    with pytest.raises(UsageError, match="say outside_tools,"):
        OUTSIDE_TOOLS.load("axe")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            None,
            "names outside_tools, but there is no module outside_tools: PYTHONPATH must name its folder",
        ),
        ("def (:", "SyntaxError: invalid syntax (outside_tools.py, line 1)"),
        ("a = 1\na.b", "AttributeError: 'int' object has no attribute 'b' (OUTSIDE, line 2)"),
        ("import no_such_package", "No module named 'no_such_package' (OUTSIDE, line 1)"),
    ],
)
def test_a_module_from_outside_that_fails_says_where(
    outside: Path, content: str | None, words: str
) -> None:
    if content is not None:
        outside.write_text(content)
    with pytest.raises(UsageError, match=re.escape(words.replace("OUTSIDE", str(outside)))):
        OUTSIDE_TOOLS.load("axe")


class Knife(Settings):
    tool: Literal["knife"] = "knife"
    length: int = 10


class Saw(Settings):
    tool: Literal["saw"] = "saw"
    teeth: int = 40


TOOLS = Registry("tool", {"knife": Part(f"{__name__}:Knife", "no.such.module:thing")})


class Box(Settings):
    tool: Annotated[Settings, OneOf(TOOLS, by="tool", default="knife")] | None = None


def test_settings_bear_the_name_that_they_are_registered_as(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for settings in (Knife, Saw, Settings):
        monkeypatch.setitem(
            TOOLS.targets,
            "saw",
            Part(f"{settings.__module__}:{settings.__name__}", "no.such:thing"),
        )
        if settings is Saw:
            assert Box.model_validate({"tool": {"tool": "saw"}}).tool == Saw()
            continue
        with pytest.raises(ValidationError, match=f":{settings.__name__} is registered"):
            Box.model_validate({"tool": {"tool": "saw"}})


def test_settings_of_a_registered_part_are_picked_by_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Box().tool is None
    assert Box.model_validate({"tool": {"length": 3}}).tool == Knife(length=3)
    monkeypatch.setitem(TOOLS.targets, "saw", Part(f"{__name__}:Saw", "no.such.module:thing"))
    box = Box.model_validate({"tool": {"tool": "saw"}})
    assert box.tool == Saw() and Box(tool=Saw()) == box
    assert box.model_dump(mode="json") == {"tool": {"tool": "saw", "teeth": 40}}
    with pytest.raises(ValidationError, match=r"tool\.saw\.length\n +Extra inputs"):
        Box.model_validate({"tool": {"tool": "saw", "length": 3}})


def test_an_unknown_part_is_named_with_the_nearest() -> None:
    with pytest.raises(ValidationError, match="There is no tool 'knive'; did you mean 'knife'"):
        Box.model_validate({"tool": {"tool": "knive"}})


class Config(StageConfig):
    steps: int = 1
    rate: float = 0.5
    log_every: int = 10

    not_identity = frozenset({"log_every"})


def test_settings_are_frozen_typed_and_finite() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Config().steps = 2
    for bad in ({"stepz": 1}, {"steps": "many"}, {"rate": float("nan")}, {"rate": float("inf")}):
        with pytest.raises(ValidationError):
            Config.model_validate(bad)


def test_canonical_settings_leave_out_what_changes_no_result() -> None:
    assert Config(log_every=3).canonical() == {}
    assert Config(log_every=3, rate=0.2).canonical() == {"rate": 0.2}


def test_files_are_read_with_dashes_or_underscores(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text("batch-tokens = 4\n[optimizer]\nlr = 1.0\n")
    assert read_toml(path) == {"batch_tokens": 4, "optimizer": {"lr": 1.0}}


@pytest.mark.parametrize("content", [b"a = ", b"\xff\xfe", None])
def test_bad_files_are_bad_usage(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "a.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=r"a\.toml"):
        read_toml(path)


@pytest.mark.parametrize(
    ("signum", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]
)
def test_signals_wait_for_the_place_of_our_choosing(
    signum: int, error: type[BaseException]
) -> None:
    reached = False
    with pytest.raises(error), deferred_signals() as stop:
        os.kill(os.getpid(), signum)
        reached = True
        assert stop
        stop.check()
    assert reached


@pytest.mark.parametrize(
    ("signum", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Terminated)]
)
def test_a_signal_that_nobody_asked_for_is_delivered_behind_the_block(
    signum: int, error: type[BaseException]
) -> None:
    reached = False
    with pytest.raises(error), deferred_signals():
        os.kill(os.getpid(), signum)
        reached = True
    assert reached


def test_a_second_signal_is_delivered_at_once() -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), deferred_signals():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("not reached")
    assert signal.getsignal(signal.SIGINT) is before
