"""Writes a page and its figures; nothing that memlm did not write is written over."""

from pathlib import Path

from stages.artifacts.durable import write_atomically
from stages.charts import figure as drawing
from stages.errors import UsageError
from stages.pages.page import MARK, Page

ALWAYS_DRAWN = "lineage.svg"
"""A drawing that every page has; where it is memlm's own, so are the tables beside it, which bear no mark."""
HEAD = 2000
"""Characters of a file in which its mark stands."""


def check_page_file(path: Path) -> None:
    """Raises UsageError if a page may not be written there: another's file, a folder, or no folder around it."""
    if not path.parent.is_dir():
        raise UsageError(f"--output {path}: there is no folder {path.parent}; make it, or name another.")
    if path.exists() and not _marked(path, MARK):
        raise UsageError(f"--output {path} is there and was not written by memlm report; name another file.")


def check_figures_folder(folder: Path) -> None:
    """Raises UsageError if it is no folder, or holds tables or drawings that memlm did not write."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--figures {folder} is no folder; name another.")
    tables = [] if _marked(folder / ALWAYS_DRAWN, drawing.MARK) else folder.glob("*.csv")
    drawings = (path for path in folder.glob("*.svg") if not _marked(path, drawing.MARK))
    for path in (*drawings, *tables):
        raise UsageError(f"--figures {folder} holds {path.name}, which memlm did not write; name another folder.")


def write_page(page: Page, path: Path) -> None:
    """The page, as one file."""
    write_atomically(path, page.html)


def write_figures(page: Page, folder: Path) -> list[Path]:
    """Each figure as NAME.svg and its numbers as NAME.csv, each table as NAME.csv; gives the files."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {f"{figure.name}.svg": figure.svg for figure in page.figures}
    files |= {f"{figure.name}.csv": figure.csv for figure in page.figures}
    files |= {f"{name}.csv": text for name, text in page.tables.items()}
    for name, text in files.items():
        write_atomically(folder / name, text)
    return [folder / name for name in files]


def _marked(path: Path, mark: str) -> bool:
    try:
        with path.open(encoding="utf-8") as file:
            return mark in file.read(HEAD)
    except (OSError, UnicodeDecodeError):
        return False
