"""References of artifacts (`kind/id`, `kind/name`, or a path), checks of file names, and commands
for messages.

The commands that messages recommend can be run as printed.
"""

import os
import re
import shlex
from collections.abc import Iterable
from os.path import commonpath, dirname, isfile, join, realpath
from pathlib import Path

from stages.artifacts.kinds import KINDS
from stages.errors import ArtifactError, UsageError

MANIFEST = "manifest.json"
"""Name of the file that makes a folder an artifact."""
_ID = re.compile(r"[0-9a-f]{12}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def is_id(text: str) -> bool:
    """Whether a text is an id: twelve hexadecimal digits."""
    return _ID.fullmatch(text) is not None


def check_name(name: str) -> str:
    """The name, if an artifact may have it. Raises: UsageError if not."""
    if is_id(name):
        raise UsageError(
            f"The name {name!r} looks like an id (twelve hexadecimal digits); choose another."
        )
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"The name {name!r} will not do: at most 100 letters, digits, '.', '_' and '-', beginning with a letter "
            "or digit."
        )
    return name


def split_reference(reference: str) -> tuple[str, str] | None:
    """(kind, id or name) of a reference into a store; None if the text can only be a path."""
    kind, slash, rest = reference.partition("/")
    if slash and kind in KINDS and (is_id(rest) or _NAME.fullmatch(rest)):
        return kind, rest
    return None


def stays_inside(relative: str) -> bool:
    """Whether a relative file name stays inside its folder; links are not followed."""
    parts = set(relative.split("/")) - {"", "."}
    return (
        bool(parts) and not relative.startswith("/") and ".." not in parts and "\0" not in relative
    )


def require_inside(folder: Path, names: Iterable[str]) -> None:
    """Raises: ArtifactError if one of these names leads out of the folder, by itself or through a
    link.
    """
    # Links are followed once for each folder, since an artifact has thousands of files in a few
    # folders.
    inside = realpath(folder)
    checked = set[str]()
    for name in names:
        if not stays_inside(name):
            raise ArtifactError(
                f"{folder} is damaged: the file name {name[:100]!r} leads out of it."
            )
        parent = dirname(name)
        if parent not in checked and commonpath((realpath(join(inside, parent)), inside)) != inside:
            raise ArtifactError(
                f"{folder} is damaged: a link on the way to {name[:100]!r} leads out of it."
            )
        checked.add(parent)


def references(root: Path) -> list[str]:
    """`kind/id` of every folder at the place of a finished artifact, readable or not.

    A kind that is not known here may be that of a stage from outside the package: what it was made
    from must not be mistaken for garbage. There a manifest tells artifacts from other folders, as
    of the texts that `memlm try` draws.
    """
    # No module from outside is imported for this: a shell asks for it when Tab is pressed.
    known_kinds = KINDS.imported()
    result = []
    for kind in dict.fromkeys([*known_kinds, *sorted(_entries(root))]):
        for name in sorted(_entries(root / kind)):
            is_artifact = kind in known_kinds or isfile(root / kind / name / MANIFEST)
            if is_id(name) and is_artifact:
                result.append(f"{kind}/{name}")
    return result


def draft_id(folder: Path) -> str:
    """The id of the artifact that a draft's folder, `.ID-partial`, or its remains belong to."""
    return folder.name.removeprefix(".").partition("-")[0]


def log_folder(root: Path, kind: str, id: str) -> Path:
    """Folder of a store for the logs of one run, which are part of no artifact."""
    return root / "logs" / kind / id


def name_file(root: Path, kind: str, name: str) -> Path:
    """File that stores the name of an artifact."""
    return root / "names" / kind / name


def names(root: Path, kind: str) -> dict[str, str]:
    """Names of artifacts of a kind, and their ids."""
    folder = name_file(root, kind, "_").parent
    return {
        name: named_id(folder / name)
        for name in sorted(_entries(folder))
        if not name.startswith(".")
    }


def named_id(file: Path) -> str:
    """The id in the file of a name."""
    return file.read_text(encoding="utf-8", errors="replace").strip()


def _entries(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


WORK = "work.json"
"""File in a draft that describes its work."""

DEFAULT_STORE = Path("memlm-store")
"""Default folder of artifacts."""

REMOVE = ("artifacts", "rm", "--force")
"""The command that removes a damaged artifact."""


def advised(store: Path, *words: str) -> str:
    """A command line for artifacts of a store, as a user types it."""
    return shlex.join(["memlm", *words, *store_words(store)])


def store_words(store: Path) -> list[str]:
    """Options that name a store; empty if a new command uses this store by default."""
    if store == DEFAULT_STORE or str(store) == os.environ.get("MEMLM_STORE"):
        return []
    return ["--store", str(store)]
