"""Fetching a repository of the Hugging Face hub into that library's own cache."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stages.errors import DataError, MemlmError
from stages.pretrained.location import INDEX, MODULES, SENTENCE_SETTINGS, TOKENIZER_FILES, require_extra

WANTED = (*TOKENIZER_FILES, INDEX, MODULES, SENTENCE_SETTINGS, "*_Pooling/config.json", "*.safetensors")


def fetch(name: str) -> Path:
    """The folder with the safetensors, settings and tokenizer of `NAME[@REVISION]`; pickles are never fetched.

    Without a network what the cache holds is taken.

    Raises: DataError if there is no such repository, it needs a permission, or cannot be reached.
    """
    require_extra()
    from huggingface_hub import snapshot_download

    repository, _, revision = name.partition("@")
    wanted = f"{repository} --revision {revision}" if revision else repository
    by_hand = f"download it elsewhere (hf download {wanted} --local-dir FOLDER), copy FOLDER here, and name FOLDER"
    with hub_errors(f"hf:{name}", by_hand):
        return Path(snapshot_download(repository, revision=revision or None, allow_patterns=list(WANTED)))


@contextmanager
def hub_errors(spec: str, by_hand: str) -> Iterator[None]:
    """Asking the hub, whose library raises whatever it likes.

    Args:
        spec: what is asked for, as the user names it.
        by_hand: what to do where there is no network.
    Raises: DataError if there is no such repository, it needs a permission, or cannot be reached.
    """
    try:
        yield
    except (MemlmError, ImportError, MemoryError):
        raise
    except Exception as error:
        raise DataError(f"{spec} {_reason(error, by_hand)}.") from error


def _reason(error: Exception, by_hand: str) -> str:
    """What went wrong, and what to do; the errors of other libraries often hide the hub's own."""
    from huggingface_hub import errors

    chain = list(_chain(error))
    if _among(chain, errors.GatedRepoError) or "is a gated dataset" in str(error):
        return "is gated: accept its terms on the hub, and log in with `hf auth login`"
    if _among(chain, errors.RepositoryNotFoundError):
        return "is not there: the hub has no such repository, or not for you (hf auth login)"
    if _among(chain, errors.RevisionNotFoundError):
        return "is not there: the repository has no such revision"
    if _among(chain, errors.HFValidationError):
        return f"is no name of a repository: {_first_line(error)}"
    if _among(chain, errors.HfHubHTTPError):
        return f"cannot be fetched: {_first_line(error)}; try later, or {by_hand}"
    return f"cannot be fetched ({_first_line(error)}): is there no network? Then {by_hand}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _among(chain: list[BaseException], kind: type[BaseException]) -> bool:
    return any(isinstance(error, kind) for error in chain)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".:")[:200]
