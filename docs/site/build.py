"""The documentation as a site: `python docs/site/build.py FOLDER` (extra `docs`). Any warning is an
error.

Home, contributing and changelog lie beside `docs`; the references of commands, settings and fields
are made from the code.
"""

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import fields  # noqa: E402
import settings  # noqa: E402

ROOT = HERE.parent.parent
BESIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Files beside `docs`, and what they are called on the site."""
SHELVES = {
    "Tutorials": ("tutorials", "index novel code domain train-with-memory recipe"),
    "How to": (
        "how-to",
        "try which-method tokenize train evaluate recipes shell report compare inspect-and-generate serve translate",
    ),
    "Explanation": (
        "explanation",
        "retrieval-leaks limits lm knn-lm neural-cache trime spalm transformer-xl",
    ),
    "Reference": ("reference", "streams memories artifacts serving reliability house"),
    "Results": ("results", "effects trime spalm layers pretrained speed cluster reliability"),
}
"""Folder of each shelf, and the pages that come first; the others follow by name."""
ALSO = {"Reference": ["commands", "settings", "fields", "contributing", "changelog"]}
"""Pages of a shelf that are made here or lie beside `docs`."""


def build(output: Path) -> int:
    """Write the site; returns the exit code of Sphinx."""
    from sphinx.cmd.build import main

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "docs"
        shutil.copytree(ROOT / "docs", source, ignore=shutil.ignore_patterns("site"))
        for file, page in BESIDE.items():
            text = linked((ROOT / file).read_text("utf-8"))
            (source / page).write_text(text + (contents() if page == "index.md" else ""), "utf-8")
        (source / "commands.md").write_text(commands(), "utf-8")
        (source / "fields.md").write_text(fields.fields(), "utf-8")
        (source / "settings.md").write_text(settings.settings(), "utf-8")
        for page in source.rglob("*.md"):
            page.write_text(settings.linked(unbroken(page.read_text("utf-8"))), "utf-8")
        return main(
            [
                "-W",
                "--keep-going",
                "-q",
                "-c",
                str(HERE),
                "-d",
                f"{folder}/doctrees",
                str(source),
                str(output),
            ]
        )


def linked(text: str) -> str:
    """A text from beside `docs`, with links as the site has them; what the site lacks is no link."""
    for file, page in BESIDE.items():
        text = text.replace(f"]({file})", f"]({page})")
    return re.sub(
        r"\[([^\]]+)\]\(LICENSE\)", r"`\1`", re.sub(r"\]\(docs/([^)]+)\)", r"](\1)", text)
    )


def unbroken(text: str) -> str:
    """A text whose tables keep a number and its % in one line, on a narrow screen, too."""
    return re.sub(
        r"^\|.*", lambda row: row[0].replace(" %", "\N{NO-BREAK SPACE}%"), text, flags=re.M
    )


def contents() -> str:
    """The site's table of contents."""
    return "".join(
        f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n" + "\n".join(pages(title)) + "\n```\n"
        for title in SHELVES
    )


def pages(shelf: str) -> list[str]:
    """The pages of a shelf, in order."""
    folder, first = SHELVES[shelf]
    found = {page.stem for page in (ROOT / "docs" / folder).glob("*.md")}
    names = [*first.split(), *sorted(found - set(first.split()))]
    return [f"{folder}/{name}" for name in names] + ALSO.get(shelf, [])


def commands() -> str:
    """Every command with its arguments and options, from the command line itself."""
    sys.path.insert(0, str(ROOT))
    import typer

    from memlm_cli.app import app

    group: Any = typer.main.get_command(app)
    parts = ["# Commands", "", cleandoc(group.help or ""), ""]
    for name, command in group.commands.items():
        parts += _command(f"memlm {name}", command, 2)
    return "\n".join(parts)


def _command(name: str, command: Any, level: int) -> Iterator[str]:
    yield f"{'#' * level} {name}\n"
    yield f"{_escaped(cleandoc(command.help or ''))}\n"
    below = getattr(command, "commands", {})
    for word, one in below.items():
        yield from _command(f"{name} {word}", one, level + 1)
    if not below:
        yield "| option | |\n|---|---|"
        yield from _rows(name, command)
        yield ""


def _rows(name: str, command: Any) -> Iterator[str]:
    """A line of the table for each argument and option, as `--help` tells them."""
    context = command.make_context(name, [], resilient_parsing=True)
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is not None and parameter.name != "help":
            option, told = (" ".join(part.split()).replace("|", "\\|") for part in record)
            yield f"| `{option}` | {_escaped(told)} |"


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("[", "\\[").replace("*", "\\*")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/site/build.py FOLDER")
    sys.exit(build(Path(sys.argv[1])))
