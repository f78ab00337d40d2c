"""Assignment of text files to splits: files named by a user, readable files of a folder, and data
sets.
"""

import glob
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from stages.errors import DataError, UsageError
from stages.text.config import TEXT, TokenizeConfig
from stages.text.disguises import disguise
from stages.text.files import (
    ARROW,
    COMPRESSED,
    LINES,
    PARQUET,
    PROSE,
    PYDOCS,
    format_of,
    is_hidden,
    is_usable,
    text_blocks,
    without_compression,
)
from stages.text.records import TextFile, records
from stages.text.tokens import SPLITS
from stages.tokenization.hub import DataSet, is_data_set, parse_data_set

CHECKED = 2**26
"""Largest file of a folder, in bytes, that is read to the end to check that it is text."""
NAMED = 5
"""Maximum number of unreadable files that a message names."""
CONVERT = "iconv -f LATIN1 -t UTF-8 converts text of Western Europe"
"""Advice for text in another encoding."""

LeftOut = Callable[[str], None]
"""Receives a sentence about files of a folder that are not read."""


def find_files(
    specs: Iterable[str],
    store: Path | None = None,
    left_out: LeftOut = lambda sentence: None,
    column: str = TEXT,
) -> list[str]:
    """Expand a user's names into files: directories are searched recursively, shell patterns
    (`t/*.txt`, `t/**/*.py` at any depth) matched.

    Both give files in order of path. A name with pattern characters stands for itself if such a
    file exists.

    Args:
        store: a folder of artifacts; its files are skipped if a directory contains it or is it.
        left_out: receives a sentence about unreadable files of a directory; a named file fails when
        it is read.
        column: column of a table, or field of a record, that holds the text.
    Raises: DataError for a missing file, one that is not regular, or a directory without usable
    files.
    """
    return [path for spec in specs for path in _expand(spec, store, left_out, column)]


def _expand(spec: str, store: Path | None, left_out: LeftOut, column: str) -> list[str]:
    if not spec:
        raise DataError(
            f"An empty name is given for a file; expected a text file, a directory or {PYDOCS}."
        )
    path = Path(spec)
    try:
        if spec == PYDOCS or path.is_file():
            return [spec]
        if path.is_dir():
            return _readable(path, _usable_below(path, store, left_out), left_out, column)
        exists = path.exists()
    except OSError as error:
        raise DataError(f"{spec} cannot be read: {error.strerror}.") from error
    if exists:
        raise DataError(
            f"{spec} is no regular file; files are read twice, so give a file on disk, "
            "or pipe the text in and name -."
        )
    if (
        glob.has_magic(spec) and "\0" not in spec
    ):  # it was given in quotes, so no shell has expanded it
        # Skip broken links: one whose own name is a pattern would match itself forever.
        # `**` stands for folders of any depth, and would name each file's folders as well.
        is_match = os.path.isfile if "**" in spec else os.path.exists
        matched = sorted(
            filter(is_match, glob.glob(spec, recursive=True)), key=lambda path: Path(path).parts
        )
        if not matched:
            raise DataError(f"{spec} matches no file.")
        return [
            path
            for path_of_match in matched
            for path in _expand(path_of_match, store, left_out, column)
        ]
    raise DataError(f"{spec} does not exist; expected a text file, a directory or {PYDOCS}.")


def _usable_below(folder: Path, store: Path | None, left_out: LeftOut) -> list[str]:
    """The files of a folder that are read, by their endings. Raises: DataError if there are none."""
    store_folder = None if store is None else store.resolve()
    named = [
        p
        for p in folder.rglob("*")
        if p.is_file() and (store_folder is None or store_folder not in p.resolve().parents)
    ]
    inside = [p.relative_to(folder) for p in named]
    usable = [p for p in inside if is_usable(p)]
    if any(
        format_of(str(p)) != "txt" for p in usable
    ):  # next to records, an .md file describes them
        usable = [
            p
            for p in usable
            if format_of(str(p)) != "txt" or without_compression(p.name).endswith(PROSE[0])
        ]
    if not usable:
        formats = f"{', '.join((*PROSE, LINES))} (also compressed: {', '.join(COMPRESSED)}), {PARQUET} or {ARROW}"
        others = _others(folder, inside)
        raise DataError(f"{folder} holds no {formats} file{others and f'; it has {others}'}.")
    # A folder of code is no text with some code beside it.
    others = _others(folder, sorted(set(inside) - set(usable)), more_than=len(usable))
    if others:
        left_out(f"{folder} also has {others}, if they are to be read")
    return [str(folder / path) for path in sorted(usable, key=lambda path: path.parts)]


def _readable(folder: Path, files: list[str], left_out: LeftOut, column: str) -> list[str]:
    """The files of a folder that hold text. Raises: DataError if none does."""
    wrong = {file: problem for file in files if (problem := _problem(file, column)) is not None}
    named = ", ".join(
        f"{Path(file).relative_to(folder)} ({problem})"
        for file, problem in list(wrong.items())[:NAMED]
    )
    named += f" and {len(wrong) - NAMED:,} more" * (len(wrong) > NAMED)
    if any("not UTF-8" in problem for problem in wrong.values()):
        named += f"; {CONVERT}"
    if len(wrong) == len(files):
        raise DataError(f"{folder} holds no file that can be read: {named}.")
    if wrong:
        left_out(f"{len(wrong):,} of {len(files):,} files of {folder} are not read: {named}")
    return [file for file in files if file not in wrong]


def _problem(file: str, column: str) -> str | None:
    """The reason why a file cannot be read; None: there is none, or the file is too large to check
    now.
    """
    try:
        if (held := Path(file).stat().st_size) == 0:
            return "empty"
        if held <= CHECKED:
            read = records(TextFile.of(file, column))
            return (
                None if sum(len(block) for record in read for block in record.blocks) else "empty"
            )
    except OSError as error:
        return str(error.strerror)
    except DataError as error:
        return str(error).removeprefix(file).lstrip(",: ").partition(";")[0].rstrip(".")
    return None


def _others(folder: Path, inside: list[Path], more_than: int = 0) -> str:
    """The most frequent ending of other text files of a folder, and how to have them read; empty if
    no ending has more than `more_than` files.
    """
    endings = Counter(path.suffix for path in inside if path.suffix and not is_hidden(path))
    frequent = [(ending, count) for ending, count in endings.most_common() if count > more_than]
    for ending, count in frequent:
        files = sorted(path for path in inside if path.suffix == ending and not is_hidden(path))
        # The first one may be empty, or broken.
        beginnings = {path: _beginning(folder / path) for path in files[:NAMED]}
        path = next((path for path, beginning in beginnings.items() if beginning), None)
        if path is not None:
            pattern = shlex.quote(f"{folder}/**/*{ending}")
            problem = disguise(str(path), beginnings[path])
            cure = f"name them ({pattern})" if problem is None else f"{path} {problem}"
            return f"{count:,} {ending} file{'s'[: count != 1]}: {cure}"
    return ""


def _beginning(path: Path) -> str:
    """The beginning of a file of plain text, compressed or not; empty if it is none."""
    try:
        return next(text_blocks(str(path), ""), "")
    except DataError:
        return ""


Find = Callable[[list[str]], list[str]]
"""Expands a user's names into files."""
ONE_CORPUS = "source"
"""Role of files given without a split."""


class NamedFile(NamedTuple):
    """A file on this machine, and the column given with its data set, if any."""

    path: str
    column: str | None


class _Unfetched(NamedTuple):
    """A file of a data set, or one already on this machine."""

    name: str
    data_set: DataSet | None

    def fetched(self) -> NamedFile:
        if self.data_set is None:
            return NamedFile(self.name, None)
        return NamedFile(self.data_set.fetched(self.name), self.data_set.column)


def given_specs(config: TokenizeConfig, references: Mapping[str, Any]) -> dict[str, list[str]]:
    """Files given by the user for `source`, or for the splits.

    Raises: UsageError if no files are given, or if they do not go together.
    """
    splits = [split for split in SPLITS if references.get(split)]
    if references.get(ONE_CORPUS) and splits:
        alone = _listed(references[ONE_CORPUS])
        raise UsageError(
            f"Files are named both alone ({alone[0]}) and for {splits[0]}: an option takes one name, so a second file "
            f"needs it again (--{splits[0]} {_listed(references[splits[0]])[0]} --{splits[0]} {alone[0]}), and many a "
            "folder (--train FOLDER)."
        )
    if config.tasks and splits:
        raise UsageError(
            "--tasks: name the folders of tasks alone, without --train, --valid and --test."
        )
    if config.split is not None and splits:
        raise UsageError(
            "Shares of a split are for files named alone; these are named by split already."
        )
    if not references.get(ONE_CORPUS) and not splits:
        raise UsageError(
            "Which text? Name files or directories, builtin:pydocs, hf:NAME, or --train, --valid, --test."
        )
    return {role: _listed(references[role]) for role in splits or [ONE_CORPUS]}


def named_files(
    config: TokenizeConfig,
    specs: Mapping[str, Sequence[str]],
    store: Path | None = None,
    left_out: LeftOut = lambda sentence: None,
) -> dict[str, list[NamedFile]]:
    """Files by role, `source` or the splits. Files of data sets are fetched, but only those that
    are read.

    Args:
        store: folder of artifacts; its files are skipped if a given folder contains it.
        left_out: receives a sentence about files of a folder that are not read.
    Raises: DataError for a missing file; UsageError for a data set with splits if one corpus is
    expected.
    """
    if config.tasks:
        return task_files(specs[ONE_CORPUS])
    find = partial(find_files, store=store, left_out=left_out, column=config.column or TEXT)
    if ONE_CORPUS in specs:
        files_of_role = _named_alone(specs[ONE_CORPUS], config, find)
    else:
        files_of_role = {split: [] for split in specs}
        for split, spec in ((split, spec) for split, some in specs.items() for spec in some):
            splits = _files(spec, find)
            if split not in splits and ONE_CORPUS not in splits:
                raise DataError(f"{spec} has no split {split}; it has {', '.join(splits)}.")
            files_of_role[split] += splits.get(ONE_CORPUS) or splits[split]
    files_of_role = {role: _without_empty(files, left_out) for role, files in files_of_role.items()}
    first = next(iter(files_of_role))
    # Chosen before fetching: a data set may have terabytes that are not read.
    if config.files is not None:
        begin, _, end = config.files.partition("-")
        chosen = files_of_role[first][int(begin) : int(end or begin) + 1]
        if not chosen:
            raise UsageError(
                f"--files {config.files}: there are {len(files_of_role[first])} files, numbered from 0."
            )
        files_of_role[first] = chosen
    return {role: [file.fetched() for file in files] for role, files in files_of_role.items()}


def _without_empty(files: list[_Unfetched], left_out: LeftOut) -> list[_Unfetched]:
    """The files that hold bytes; all of them if none does, so that reading names the first."""
    empty = [
        file
        for file in files
        if file.data_set is None and file.name != PYDOCS and not Path(file.name).stat().st_size
    ]
    if not empty or len(empty) == len(files):
        return files
    named = ", ".join(file.name for file in empty[:NAMED])
    named += f" and {len(empty) - NAMED:,} more" * (len(empty) > NAMED)
    left_out(f"{len(empty):,} of {len(files):,} files are empty, and are not read: {named}")
    return [file for file in files if file not in empty]


def task_files(folders: Sequence[str]) -> dict[str, list[NamedFile]]:
    """The files of tasks by split, in the order of their folders. Each folder must have `train`.

    Raises: DataError for a name that is no folder of a task, and for two of the same name.
    """
    files_of_role: dict[str, list[NamedFile]] = {}
    names = [Path(folder).resolve().name for folder in folders]
    for name in names:
        if names.count(name) > 1:
            raise DataError(f"Two tasks are called {name}: a task has the name of its folder.")
    for folder in folders:
        for split in SPLITS:
            inside = [
                file
                for ending in ("", *COMPRESSED)
                if (file := Path(folder, f"{split}.jsonl{ending}")).is_file()
            ]
            if len(inside) > 1:
                raise DataError(f"{folder} has {inside[0].name} and {inside[1].name}: leave one.")
            if split == "train" and not inside:
                tasks = sorted({str(file.parent) for file in Path(folder).glob("*/train.jsonl*")})
                inner = (
                    f" Name those inside, each as an argument: {', '.join(tasks[:8])}."
                    if tasks
                    else ""
                )
                raise DataError(
                    f"{folder} is no folder of a task: it has no train.jsonl (also compressed).{inner}"
                )
            if inside and not inside[0].stat().st_size:
                raise DataError(
                    f"{inside[0]} is empty; expected records, a JSON object with a text and a label a line."
                )
            if inside:
                files_of_role.setdefault(split, []).append(
                    NamedFile(str(inside[0].resolve()), None)
                )
    return files_of_role


def _listed(specs: str | Sequence[str]) -> list[str]:
    return [specs] if isinstance(specs, str) else list(specs)


def _named_alone(
    specs: Sequence[str], config: TokenizeConfig, find: Find
) -> dict[str, list[_Unfetched]]:
    """One corpus, or the splits that a data set has."""
    files_of_spec = [(spec, _files(spec, find)) for spec in specs]
    cut = next(
        ((spec, splits) for spec, splits in files_of_spec if splits.keys() - {ONE_CORPUS, "train"}),
        None,
    )
    if cut is None:
        return {
            ONE_CORPUS: [
                file for _, splits in files_of_spec for files in splits.values() for file in files
            ]
        }
    spec, splits = cut
    if len(specs) > 1 or config.split is not None:
        raise UsageError(
            f"{spec} has splits of its own ({', '.join(splits)}): name it alone and without --split, or some of them "
            f"with --train {spec}, --valid, --test."
        )
    return splits


def _files(spec: str, find: Find) -> dict[str, list[_Unfetched]]:
    """Files of a name, by split; `source`: files without a split."""
    if not is_data_set(spec):
        return {ONE_CORPUS: [_Unfetched(path, None) for path in find([spec])]}
    data_set = parse_data_set(spec)
    return {
        split: [_Unfetched(file, data_set) for file in files]
        for split, files in data_set.files().items()
    }
