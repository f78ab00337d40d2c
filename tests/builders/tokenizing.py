"""Tokenizing of small files, and crashes in it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import Outcome, make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.reporting import Silent
from stages.text.config import TokenizeConfig
from stages.tokenization.work import TokenizeWork
from stages.tokenize import Tokenize


def run(
    store: Path, references: dict[str, Any], reporter: Silent | None = None, **settings: Any
) -> Outcome:
    """Words, every one kept, unless the settings say otherwise."""
    default = (
        {} if "tokenizer" in {**settings, **references} else {"tokenizer": "word", "min_count": 1}
    )
    config = TokenizeConfig(**default, **settings)
    execution = Execution(reporter=reporter or Silent())
    return make(Tokenize(), config, references, Store(store), execution)


def tokenize(store: Path, references: dict[str, Any], **settings: Any) -> Artifact:
    return run(store, references, **settings).artifact


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8", newline="")
    return str(path)


class Crash(BaseException):
    """The process is gone."""


def crash_after(monkeypatch: pytest.MonkeyPatch, target: str, calls: int) -> Callable[[], int]:
    """Let a method of TokenizeWork die at one of its calls; returns how many calls came through so far."""
    counted = 0
    original = getattr(TokenizeWork, target)

    def wrapped(*arguments: Any) -> Any:
        nonlocal counted
        if counted == calls:
            raise Crash
        counted += 1
        return original(*arguments)

    monkeypatch.setattr(TokenizeWork, target, wrapped)
    return lambda: counted
