"""Assignment of text files to splits: files named by a user, readable files of a folder, and data
sets.
"""

import glob
import os
import shlex
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
    """The files that a name stands for: one, those of a folder, or those that match a pattern.

    Raises: DataError if there are none.
    """
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

    # it was given in quotes, so no shell has expanded it
    if glob.has_magic(spec) and "\0" not in spec:
        files = []
        for match in _matches(spec):
            files += _expand(match, store, left_out, column)
        return files
    raise DataError(f"{spec} does not exist; expected a text file, a directory or {PYDOCS}.")


def _matches(pattern: str) -> list[str]:
    """Files and folders that match a pattern, in order. Raises: DataError if there are none."""
    # Skip broken links: one whose own name is a pattern would match itself forever.
    # `**` stands for folders of any depth, and would name each file's folders as well.
    is_match = os.path.isfile if "**" in pattern else os.path.exists
    matches = [path for path in glob.glob(pattern, recursive=True) if is_match(path)]
    if not matches:
        raise DataError(f"{pattern} matches no file.")
    return sorted(matches, key=lambda path: Path(path).parts)


def _usable_below(folder: Path, store: Path | None, left_out: LeftOut) -> list[str]:
    """The files of a folder that are read, by their endings, in order; those of the store of
    artifacts are no text.

    Raises: DataError if there are none.
    """
    store_folder = None if store is None else store.resolve()
    inside = []
    for path in folder.rglob("*"):
        if not path.is_file():
            continue
        is_of_store = store_folder is not None and store_folder in path.resolve().parents
        if not is_of_store:
            inside.append(path.relative_to(folder))

    usable = [path for path in inside if is_usable(path)]
    # next to records, an .md file describes them
    if any(format_of(str(path)) != "txt" for path in usable):
        usable = [path for path in usable if not _is_description(path)]
    if not usable:
        formats = f"{', '.join((*PROSE, LINES))} (also compressed: {', '.join(COMPRESSED)}), {PARQUET} or {ARROW}"
        others = _others(folder, inside)
        raise DataError(f"{folder} holds no {formats} file{others and f'; it has {others}'}.")
    # A folder of code is no text with some code beside it.
    others = _others(folder, sorted(set(inside) - set(usable)), more_than=len(usable))
    if others:
        left_out(f"{folder} also has {others}, if they are to be read")
    in_order = sorted(usable, key=lambda path: path.parts)
    return [str(folder / path) for path in in_order]


def _is_description(path: Path) -> bool:
    """Whether a file is prose, but no .txt file."""
    is_prose = format_of(str(path)) == "txt"
    return is_prose and not without_compression(path.name).endswith(PROSE[0])


def _readable(folder: Path, files: list[str], left_out: LeftOut, column: str) -> list[str]:
    """The files of a folder that hold text. Raises: DataError if none does."""
    problems = {}
    for file in files:
        problem = _problem(file, column)
        if problem is not None:
            problems[file] = problem
    if not problems:
        return files

    examples = []
    for file, problem in list(problems.items())[:NAMED]:
        examples.append(f"{Path(file).relative_to(folder)} ({problem})")
    named = ", ".join(examples) + _and_more(len(problems))
    if any("not UTF-8" in problem for problem in problems.values()):
        named += f"; {CONVERT}"
    if len(problems) == len(files):
        raise DataError(f"{folder} holds no file that can be read: {named}.")
    left_out(f"{len(problems):,} of {len(files):,} files of {folder} are not read: {named}")
    return [file for file in files if file not in problems]


def _and_more(count: int) -> str:
    """` and 5 more`, for names of which only the first NAMED are shown; empty if these are all."""
    return f" and {count - NAMED:,} more" if count > NAMED else ""


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
    files_of_ending: dict[str, list[Path]] = {}
    for path in inside:
        if path.suffix and not is_hidden(path):
            files_of_ending.setdefault(path.suffix, []).append(path)

    by_number = sorted(files_of_ending.items(), key=lambda item: -len(item[1]))
    for ending, files in by_number:
        if len(files) <= more_than:
            break
        # The first one may be empty, or broken.
        for path in sorted(files)[:NAMED]:
            beginning = _beginning(folder / path)
            if not beginning:
                continue
            problem = disguise(str(path), beginning)
            pattern = shlex.quote(f"{folder}/**/*{ending}")
            cure = f"name them ({pattern})" if problem is None else f"{path} {problem}"
            plural = "" if len(files) == 1 else "s"
            return f"{len(files):,} {ending} file{plural}: {cure}"
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
        files_of_role = {split: _split_files(split, specs[split], find) for split in specs}
    for role, files in files_of_role.items():
        files_of_role[role] = _without_empty(files, left_out)

    # Chosen before fetching: a data set may have terabytes that are not read.
    if config.files is not None:
        first = next(iter(files_of_role))
        files_of_role[first] = _chosen(files_of_role[first], config.files)
    fetched = {}
    for role, files in files_of_role.items():
        fetched[role] = [file.fetched() for file in files]
    return fetched


def _split_files(split: str, specs: Sequence[str], find: Find) -> list[_Unfetched]:
    """Files of a split. Raises: DataError for a data set without it."""
    files = []
    for spec in specs:
        splits = _files(spec, find)
        if split not in splits and ONE_CORPUS not in splits:
            raise DataError(f"{spec} has no split {split}; it has {', '.join(splits)}.")
        files += splits.get(ONE_CORPUS) or splits[split]
    return files


def _chosen(files: list[_Unfetched], numbers: str) -> list[_Unfetched]:
    """The files with some numbers, `5` or `0-9`. Raises: UsageError if there are none."""
    begin, _, end = numbers.partition("-")
    chosen = files[int(begin) : int(end or begin) + 1]
    if not chosen:
        raise UsageError(f"--files {numbers}: there are {len(files)} files, numbered from 0.")
    return chosen


def _without_empty(files: list[_Unfetched], left_out: LeftOut) -> list[_Unfetched]:
    """The files that hold bytes; all of them if none does, so that reading names the first."""
    empty = [file for file in files if _is_empty(file)]
    if not empty or len(empty) == len(files):
        return files
    names = ", ".join(file.name for file in empty[:NAMED]) + _and_more(len(empty))
    left_out(f"{len(empty):,} of {len(files):,} files are empty, and are not read: {names}")
    return [file for file in files if file not in empty]


def _is_empty(file: _Unfetched) -> bool:
    """Whether a file here holds no byte; files of data sets are not here yet."""
    if file.data_set is not None or file.name == PYDOCS:
        return False
    return not Path(file.name).stat().st_size


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
    by_split = {}
    for split, files in data_set.files().items():
        by_split[split] = [_Unfetched(file, data_set) for file in files]
    return by_split
