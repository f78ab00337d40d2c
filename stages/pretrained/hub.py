"""Fetches a repository of the Hugging Face hub into the cache of the hub's library."""

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from stages.errors import DataError, MemlmError, UsageError, causes, first_line


def require_extra() -> None:
    """Raises: UsageError, naming the extra, if transformers is not installed."""
    from importlib.util import find_spec

    if find_spec("transformers") is None:
        raise UsageError("Pretrained models need the package transformers: pip install 'memlm[hf]'.")


def fetch(name: str, files: Sequence[str], commit: str | None = None) -> Path:
    """Folder with the requested files of `NAME[@REVISION]`, as far as they exist; pickles are never requested.

    Without a network, the cache is used.

    Args:
        files: names, or patterns of them.
        commit: the commit that the revision was resolved to before; None: the hub resolves it.
    Raises: DataError if the repository does not exist, has none of the files, needs permission, or cannot be reached.
    """
    require_extra()
    from huggingface_hub import logging, snapshot_download
    from huggingface_hub.utils import disable_progress_bars

    logging.set_verbosity_error()
    if not sys.stderr.isatty():
        disable_progress_bars()
    repository, _, revision = name.partition("@")
    wanted = f"{repository} --revision {revision}" if revision else repository
    by_hand = f"download it elsewhere (hf download {wanted} --local-dir FOLDER), copy FOLDER here, and name FOLDER"
    with hub_errors(f"hf:{name}", by_hand):
        folder = Path(snapshot_download(repository, revision=commit or revision or None, allow_patterns=list(files)))
    if not folder.is_dir():
        raise DataError(
            f"hf:{name} holds no model or tokenizer that transformers reads: it has neither config.json nor "
            f"tokenizer.json. A GGUF file is named by itself: hf download {wanted} FILE.gguf --local-dir FOLDER."
        )
    return folder


@contextmanager
def hub_errors(spec: str, by_hand: str) -> Iterator[None]:
    """Turn errors of the hub's library, which may be of any class, into messages for users.

    Args:
        spec: the user's name for the repository.
        by_hand: advice for use without a network.
    Raises: DataError if the repository does not exist, needs permission, or cannot be reached.
    """
    try:
        yield
    except (MemlmError, ImportError, MemoryError):
        raise
    except Exception as error:
        raise DataError(f"{spec} {_reason(error, by_hand)}.") from error


def _reason(error: Exception, by_hand: str) -> str:
    """Message about an error of the hub, with advice; the errors of other libraries often hide the hub's own."""
    from huggingface_hub import errors

    chain = list(causes(error))
    if _among(chain, errors.GatedRepoError) or "is a gated dataset" in str(error):
        return "is gated: accept its terms on the hub, and log in with `hf auth login`"
    if _among(chain, errors.RepositoryNotFoundError):
        return "is not there: the hub has no such repository, or not for you (hf auth login)"
    if _among(chain, errors.RevisionNotFoundError):
        return "is not there: the repository has no such revision"
    if _among(chain, errors.HFValidationError):
        return f"is no name of a repository: {_first_line(error)}"
    if _among(chain, errors.OfflineModeIsEnabled):
        return f"is not in the cache, and HF_HUB_OFFLINE forbids to fetch it: unset that, or {by_hand}"
    answer = next((each.response.status_code for each in chain if isinstance(each, errors.HfHubHTTPError)), None)
    if answer in (401, 403):
        return f"needs a permission that you do not have, or not any more ({answer}): log in with `hf auth login`"
    if answer is not None:
        return f"cannot be fetched: {_first_line(error)}; try later, or {by_hand}"
    return f"cannot be fetched ({_first_line(error)}): is there no network? Then {by_hand}"


def _among(chain: list[BaseException], kind: type[BaseException]) -> bool:
    return any(isinstance(error, kind) for error in chain)


def _first_line(error: Exception) -> str:
    # the library's prefix before another error
    return re.sub(r"^Got: (\w+: )?", "", first_line(error).rstrip(".:")[:200])
