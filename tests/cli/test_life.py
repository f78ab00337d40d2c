"""Every command shows a person who waits that it works, wherever it takes its time.

Places in which a command may spend long are held up until something appears on the terminal.
"""

import io
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from memlm_cli import notebook
from memlm_cli.app import app
from memlm_cli.console import answer_part
from memlm_cli.progress import not_working, telling
from stages.artifacts.store import Store
from tests.builders.limits import limit
from tests.builders.small_commands import SMALL
from tests.cli.conftest import Memlm, Screen
from tests.stages.pretrained.tiny import saved
from tests.stages.small_text import built_index, story, text_model, text_tokens

PATIENCE = 10.0
"""Seconds after which a place counts as silent; one that shows life takes a few hundredths."""


class _EndError(Exception):
    """Ends a command whose places have all been seen."""


class Watched(NamedTuple):
    """A command, and where it may spend long, in the order in which it comes there; the last place
    is its end.
    """

    words: str
    places: tuple[str, ...]


MAKING = "stages.artifacts.make.plan"
"""Where every stage finds its inputs, and hashes files."""
PLANNING = "pipelines.estimates.plan"
RESULT = "memlm_cli.arguments.show_result"
ARTIFACTS = "stages.artifacts.store.Store.artifacts"

COMMANDS = {
    "try": Watched(
        "{text} --no-open",
        ("memlm_cli.work.try_text.count_lines", "stages.training.speed.training_speed"),
    ),
    "tokenize": Watched(
        "--train {text}",
        (
            MAKING,
            "stages.tokenization.spooling.chosen_tokenizer",
            "memlm_cli.work.stage.publish_name",
            RESULT,
        ),
    ),
    "train": Watched(
        f"{{tokens}} {' '.join(SMALL)}",
        (MAKING, "stages.training.loop.Trainer.train", "stages.training.work.write_outputs"),
    ),
    "import-model": Watched(
        "{pretrained} {tokens}", (MAKING, "stages.pretrained.resolve.describe")
    ),
    "build-datastore": Watched(
        "{model} --key hidden", (MAKING, "stages.encoding.key_encoder.KeyEncoder.__init__")
    ),
    "update-datastore": Watched(
        "{datastore} --forget 0", (MAKING, "stages.artifacts.make.Draft.__init__")
    ),
    "build-index": Watched("{datastore} --index hnsw", (MAKING, "stages.search.build.empty_index")),
    "precompute-neighbors": Watched("{index}", (MAKING, "stages.indexing.neighbors.open_searcher")),
    "pack-batches": Watched(
        "{tokens} --segment-length 8", (MAKING, "stages.artifacts.make.Draft.__init__")
    ),
    "evaluate": Watched(
        "{model} --memory none --split valid",
        (MAKING, "stages.evaluation.work.open_range_reader"),
    ),
    "evaluate-tasks": Watched("{model}", (MAKING,)),
    "build-episodes": Watched("{model}", (MAKING,)),
    "translate": Watched(
        "{model}",
        ("stages.generation.translate.find", "stages.generation.translate.require_sources"),
    ),
    "report": Watched(
        "{report} --output {folder}/a.html",
        ("memlm_cli.work.report.find_reports", "stages.pages.page._page"),
    ),
    "compare": Watched(
        "{report} {other} --html {folder}/b.html",
        ("memlm_cli.work.compare.compare_reports", "memlm_cli.work.compare.page"),
    ),
    "inspect": Watched(
        "{index} --text the --memory external:k=2,lambda=0.2 --html {folder}/c.html",
        (
            "stages.inspection.inspect.find",
            "stages.inspection.reading.open_range_reader",
            "memlm_cli.work.texts.page",
        ),
    ),
    "generate": Watched(
        "{index} --max-tokens 2 --memory long:size=5,theta=1,lambda=0.1",
        (
            "stages.generation.generate.find",
            "stages.inspection.reading.open_range_reader",
            "stages.generation.session.TextSession.add",
            "stages.generation.session.TextSession.read",
        ),
    ),
    "serve": Watched("{model} --port 0", ("stages.serving.engine.ServedMemories.open",)),
    "export": Watched(
        "{model} --output {folder}/exported",
        (
            "stages.export.export.require_scoring",
            "stages.export.export.write_tokenizer",
            "stages.export.export.card",
        ),
    ),
    "run": Watched(
        "{recipe}",
        ("memlm_cli.work.run.find_recipe", PLANNING, MAKING, "memlm_cli.work.run.show_again"),
    ),
    "plan": Watched("train {tokens}", (PLANNING, "memlm_cli.work.plan.fits")),
    "recipes": Watched("", ("memlm_cli.work.listings.read_recipe",)),
    "artifacts list": Watched("", (ARTIFACTS, "memlm_cli.work.artifacts.unfinished")),
    "artifacts show": Watched("{model}", ("stages.artifacts.store.Store.get",)),
    "artifacts verify": Watched("{model}", ("stages.artifacts.store.Store.check_files",)),
    "artifacts graph": Watched("", (ARTIFACTS,)),
    "artifacts rm": Watched(
        "{report}", ("memlm_cli.work.artifacts.folder_bytes", "stages.artifacts.store.Store.remove")
    ),
    "artifacts gc": Watched(
        "", ("memlm_cli.work.artifacts.find_garbage", "memlm_cli.work.artifacts.remove_garbage")
    ),
    "artifacts holds": Watched("story.txt", ("memlm_cli.work.holds.find_holders",)),
    "artifacts push": Watched(
        "{model} file://{folder}/bucket",
        ("stages.artifacts.bucket.Bucket.__init__", "stages.artifacts.copies._missing"),
    ),
    "artifacts pull": Watched(
        "model/0123456789ab file://{folder}/bucket",
        ("stages.artifacts.bucket.Bucket.__init__", "stages.artifacts.copies._with_inputs"),
    ),
    "presets": Watched("", ("memlm_cli.work.listings.preset_names",)),
    "doctor": Watched(
        "", ("memlm_cli.commands.doctor.import_module", "memlm_cli.commands.doctor.dependencies")
    ),
}


def registered() -> list[str]:
    """The words of every command."""

    def below(command: Any, words: tuple[str, ...]) -> Iterator[str]:
        for name, one in getattr(command, "commands", {}).items():
            yield from below(one, (*words, name))
        if not hasattr(command, "commands"):
            yield " ".join(words)

    return list(below(typer.main.get_command(app), ()))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Artifacts, files and folders by what the table calls them."""
    folder = tmp_path_factory.mktemp("life")
    store = Store(folder / "store")
    tokens = text_tokens(store, folder)
    model = text_model(store, tokens)
    index = built_index(store, model)
    text = folder / "story.txt"
    text.write_text(story(4_000, 7))
    recipe = folder / "mine.toml"
    recipe.write_text(
        f'[stages.tokens]\ncommand = "tokenize"\nwith = {{ train = ["{folder / "valid.txt"}"] }}\n'
    )
    opened = notebook.open(store.root)
    reports = [
        opened.run("evaluate", index.reference, memory=memory, exclude="self").reference
        for memory in ("none", "external:k=2,lambda=0.25")
    ]
    return {
        "tokens": tokens.reference,
        "model": model.reference,
        "datastore": index.input("datastore").reference,
        "index": index.reference,
        "report": reports[0],
        "other": reports[1],
        "store": str(store.root),
        "text": str(text),
        "recipe": str(recipe),
        "pretrained": str(folder / "pretrained"),
        "folder": str(folder),
    }


def watched_screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """A terminal in the place of stderr that shows at once what another shows after two seconds."""
    show_at_once(monkeypatch)
    monkeypatch.setattr("sys.stderr", made := Screen())
    return made


def show_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, quiet_seconds=0.0, seconds_between_ticks=0.01)


def held_up(original: Callable[..., Any], seen: Callable[[], bool]) -> Callable[..., Any]:
    """The same, after something has appeared on the terminal; or after `seen` has said that this
    was the end.
    """

    def waiting(*arguments: Any, **options: Any) -> Any:
        if seen():
            raise _EndError
        return original(*arguments, **options)

    return waiting


def test_every_command_is_watched() -> None:
    assert sorted(registered()) == sorted(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_show_life_wherever_they_take_long(
    command: str, made: Mapping[str, str], memlm: Memlm, monkeypatch: pytest.MonkeyPatch
) -> None:
    if command in ("artifacts push", "artifacts pull"):
        pytest.importorskip("obstore")
    if command == "import-model":
        pytest.importorskip("transformers")
        saved(Path(made["pretrained"]), "llama")
    screen, watched, alive = watched_screen(monkeypatch), COMMANDS[command], dict[str, bool]()

    def seen(place: str) -> bool:
        """Whether that was the last place."""
        if place not in alive:
            shown, began = len(screen.getvalue()), time.monotonic()
            while len(screen.getvalue()) == shown and time.monotonic() - began < PATIENCE:
                time.sleep(0.005)
            alive[place] = len(screen.getvalue()) > shown
        return place == watched.places[-1]

    for place in watched.places:
        owner = _owner(place)
        name = place.rpartition(".")[2]
        monkeypatch.setattr(
            owner, name, held_up(getattr(owner, name), lambda place=place: seen(place))
        )
    monkeypatch.setenv("MEMLM_STORE", made["store"])
    monkeypatch.chdir(made["folder"])
    ended = memlm(*command.split(), *watched.words.format(**made).split())
    assert alive == dict.fromkeys(watched.places, True), screen.getvalue()
    assert ended.code == 1 and "_EndError" in screen.getvalue()  # it stops at the last place


def _owner(place: str) -> Any:
    """The module or class that has a name."""
    module = place.rpartition(".")[0]
    try:
        return import_module(module)
    except ModuleNotFoundError:
        return getattr(_owner(module), module.rpartition(".")[2])


def test_a_command_that_waits_for_the_stage_before_it_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = watched_screen(monkeypatch)
    with telling("train"), not_working():
        time.sleep(0.2)
    assert screen.getvalue() == ""


def test_text_as_it_is_written_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watched_screen(monkeypatch)
    monkeypatch.setattr("sys.stdout", screen)
    with telling("generate"):
        answer_part("The ship")
        time.sleep(0.2)
        answer_part(" sails\n")
        written = screen.getvalue()
        time.sleep(0.2)
    assert written.endswith("The ship sails\n")
    assert "generate: working" in screen.getvalue().removeprefix(written)


SLOW_IN_NOTEBOOKS: dict[str, Callable[[notebook.Reader], Any]] = {
    "stages.inspection.reading.open_range_reader": lambda reader: reader.loaded,
    "memlm_cli.notebook.reader.inspect_passage": lambda reader: reader.score("the cat"),
    "memlm_cli.notebook.reader.open_writer": lambda reader: reader.generate("the", max_tokens=1),
    "stages.generation.session.TextSession.read": lambda reader: reader.generate(
        "the", max_tokens=1
    ),
}


@pytest.mark.parametrize("place", SLOW_IN_NOTEBOOKS)
def test_notebooks_show_life(
    place: str, made: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    show_at_once(monkeypatch)
    monkeypatch.setattr("sys.stderr", written := io.StringIO())  # a notebook's is no terminal
    alive: list[bool] = []

    def seen() -> bool:
        began = time.monotonic()
        while "working" not in written.getvalue() and time.monotonic() - began < PATIENCE:
            time.sleep(0.005)
        alive.append("working" in written.getvalue())
        return True

    owner, name = _owner(place), place.rpartition(".")[2]
    monkeypatch.setattr(owner, name, held_up(getattr(owner, name), seen))
    reader = notebook.open(made["store"]).read(made["index"], memory="none")
    with pytest.raises(_EndError):
        SLOW_IN_NOTEBOOKS[place](reader)
    assert alive == [True]
