"""Data sets of the Hugging Face hub, or folders laid out like one: their files by split.

The library `datasets` is used only for this; the files are read like any others.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stages.errors import DataError
from stages.pretrained.location import HUB, hub_errors
from stages.text.files import ARROW, LINES, PARQUET, PROSE, is_usable

SPLITS = {
    "train": "train",
    "validation": "valid",
    "valid": "valid",
    "val": "valid",
    "dev": "valid",
    "test": "test",
}
"""Splits of data sets, and their names here; if two have the same name here, the first is taken."""
CONVERTED = "refs/convert/parquet"
"""The branch with the hub's own Parquet copy of every data set that it can read."""


@dataclass(frozen=True)
class DataSet:
    """A data set, as `hf:NAME[/CONFIG][@REVISION][:COLUMN]` names it; a NAME that begins with `.`,
    `/` or `~` is a folder."""

    spec: str
    name: str
    config: str | None
    revision: str | None
    column: str | None

    @property
    def is_folder(self) -> bool:
        return self.name.startswith((".", "/"))

    def files(self) -> dict[str, list[str]]:
        """Files by split, as paths in the folder or repository; the hub is asked for the revision's
        commit.

        Raises: DataError if there is no such data set, or none of its files can be read here.
        """
        by_split = _files_by_split(self)
        own_splits = {
            SPLITS[name]: files for name, files in reversed(by_split.items()) if name in SPLITS
        }
        ordered = {
            split: own_splits[split]
            for split in dict.fromkeys(SPLITS.values())
            if split in own_splits
        }
        if not ordered:
            raise DataError(
                f"{self.spec} has the splits {', '.join(by_split)}; read are train, validation and test."
            )
        for file in (file for files in ordered.values() for file in files):
            if not is_usable(Path(Path(file).name)):
                read = ", ".join((*PROSE, LINES, PARQUET, ARROW))
                raise DataError(
                    f"{self.spec} is made of files like {Path(file).name}, which are not read ({read} are)"
                    f"{self.as_parquet}."
                )
            if self.is_folder:
                self._require_inside(file)
        return ordered

    def _require_inside(self, file: str) -> None:
        """Check where a file of a folder lies.

        Raises: DataError for a file that the card, or a link, takes from outside the folder.
        """
        folder = Path(self.name).resolve()
        place = Path(file).resolve()
        cached = (
            [folder.parent.parent / "blobs"] if folder.parent.name == "snapshots" else []
        )  # the hub's own layout
        if not any(place.is_relative_to(root) for root in (folder, *cached)):
            raise DataError(
                f"{self.spec} names a file outside of its folder ({file}): copy it there, or name it alone."
            )

    def fetched(self, file: str) -> str:
        """Path of one of its files on this machine, after fetching."""
        if self.is_folder:
            return file
        from huggingface_hub import hf_hub_download

        commit, inside = _in_repository(self, file)
        with hub_errors(self.spec, self.by_hand):
            return str(hf_hub_download(self.name, inside, revision=commit, repo_type="dataset"))

    @property
    def by_hand(self) -> str:
        """Advice for use without a network."""
        config = "" if self.config is None else f"/{self.config}"
        return (
            f"download it elsewhere (hf download --repo-type dataset {self.name} --local-dir FOLDER), copy the "
            f"folder here, and name it: hf:/path/to/FOLDER{config}"
        )

    @property
    def as_parquet(self) -> str:
        """Advice to use the Parquet copy of the data set; empty for a folder."""
        if self.is_folder:
            return ""
        config = "" if self.config is None else f"/{self.config}"
        return f"; take the hub's own copy of it: hf:{self.name}{config}@{CONVERTED}"


def is_data_set(spec: str) -> bool:
    """Whether a name is that of a data set, not of a file."""
    return spec.startswith(HUB)


def parse_data_set(spec: str) -> DataSet:
    """Parse the name of a data set.

    >>> parse_data_set("hf:Salesforce/wikitext/wikitext-2-raw-v1@main:text")
    DataSet(spec='hf:Salesforce/wikitext/wikitext-2-raw-v1@main:text', name='Salesforce/wikitext', \
config='wikitext-2-raw-v1', revision='main', column='text')

    Raises: DataError if the name is incomplete.
    """
    rest = spec.removeprefix(HUB)
    if rest.startswith((".", "/", "~")):
        return _folder(spec, rest)
    rest, _, column = rest.partition(":")
    path, _, revision = rest.partition("@")
    owner, _, below = path.partition("/")
    name, _, config = below.partition("/")
    repository = f"{owner}/{name}" if name else owner
    if not owner:
        raise DataError(
            f"{spec!r} names no data set; expected hf:NAME[/CONFIG][@REVISION][:COLUMN]."
        )
    return DataSet(spec, repository, config or None, revision or None, column or None)


def _folder(spec: str, rest: str) -> DataSet:
    """A folder, or `FOLDER/CONFIG` with a configuration that the folder's card names."""
    column = None
    if not Path(rest).expanduser().exists():
        rest, _, column = rest.partition(":")
    path = Path(rest).expanduser()
    config = None
    card = path.parent / "README.md"
    if not (path / "README.md").is_file() and _has_config(card, path.name):
        config = path.name
        path = path.parent
    if not path.is_dir():
        raise DataError(f"{spec}: there is no folder {path}.")
    return DataSet(spec, str(path.absolute()), config, None, column or None)


def _has_config(card: Path, name: str) -> bool:
    """Whether the card of a data set names this configuration."""
    try:
        lines = card.read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return False
    return lines[:1] == ["---"] and any(
        line.strip("- ") == f"config_name: {name}" for line in lines
    )


def _files_by_split(data_set: DataSet) -> dict[str, list[str]]:
    """Files that `datasets` finds in the card of a data set, or by their names; only the card is
    fetched.
    """
    import datasets

    if not data_set.is_folder and Path(data_set.name).is_dir():
        raise DataError(
            f"{data_set.spec}: there is a folder {data_set.name} here, too; hf:./{data_set.name} means that."
        )
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity_error()
    with (
        TemporaryDirectory() as cache,
        hub_errors(data_set.spec, data_set.by_hand),
        _unknown(data_set),
    ):
        builder = datasets.load_dataset_builder(
            data_set.name, cache_dir=cache, **_load_options(data_set)
        )
        data_files: Mapping[Any, Any] = builder.config.data_files or {}
        return {str(split): [str(file) for file in files] for split, files in data_files.items()}


def _load_options(data_set: DataSet) -> dict[str, Any]:
    """Arguments for the configuration and the commit; in the converted branch a configuration is a
    folder.
    """
    if data_set.is_folder:
        return {"name": data_set.config}
    from huggingface_hub import HfApi

    commit = HfApi().dataset_info(data_set.name, revision=data_set.revision).sha
    part = "data_dir" if data_set.revision == CONVERTED else "name"
    return {part: data_set.config, "revision": commit}


@contextmanager
def _unknown(data_set: DataSet) -> Iterator[None]:
    """Turn errors of `datasets` into errors of the data.

    Raises: DataError for a data set that `datasets` does not find or support; the hub's own
    errors pass.
    """
    from datasets.data_files import EmptyDatasetError
    from datasets.exceptions import DataFilesNotFoundError
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        yield
    except (HfHubHTTPError, HFValidationError):
        raise
    except (ValueError, RuntimeError, EmptyDatasetError, DataFilesNotFoundError) as error:
        if isinstance(error, RuntimeError) and "script" in str(error):
            reason = f"it is a script, and code of others is never run{data_set.as_parquet}"
        else:
            reason = (
                " ".join(str(error).split()).partition(" Example of usage")[0][:400].rstrip(".")
            )
        raise DataError(f"{data_set.spec} cannot be read as a data set: {reason}.") from None


def _in_repository(data_set: DataSet, file: str) -> tuple[str, str]:
    """Commit and path of `hf://datasets/NAME@COMMIT/PATH`. Raises: DataError for a file from
    elsewhere.
    """
    begin = f"hf://datasets/{data_set.name}@"
    commit, slash, inside = file.removeprefix(begin).partition("/")
    if not file.startswith(begin) or not slash:
        raise DataError(
            f"{data_set.spec} names a file outside of its repository ({file}): download it by yourself."
        )
    return commit, inside
