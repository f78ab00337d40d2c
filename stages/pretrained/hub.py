"""Fetching a repository of the Hugging Face hub into that library's own cache."""

from pathlib import Path

from stages.errors import DataError
from stages.pretrained.location import INDEX, TOKENIZER_FILES, require_extra

WANTED = (*TOKENIZER_FILES, INDEX, "*.safetensors")


def fetch(name: str) -> Path:
    """The folder with the safetensors, settings and tokenizer of `NAME[@REVISION]`; pickles are never fetched.

    Without a network what the cache holds is taken.

    Raises: DataError if there is no such repository, it needs a permission, or cannot be reached.
    """
    require_extra()
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    repository, _, revision = name.partition("@")
    by_hand = f"download it elsewhere (hf download {repository}), copy the folder here, and name the folder"
    try:
        return Path(snapshot_download(repository, revision=revision or None, allow_patterns=list(WANTED)))
    except GatedRepoError:
        raise DataError(f"hf:{name} is gated: accept its terms on the hub, and log in with `hf auth login`.") from None
    except RepositoryNotFoundError:
        raise DataError(f"hf:{name}: the hub has no such repository, or not for you (hf auth login).") from None
    except RevisionNotFoundError:
        raise DataError(f"hf:{name}: {repository} has no revision {revision!r}.") from None
    except HFValidationError as error:
        raise DataError(f"hf:{name} is no name of a repository: {error}") from None
    except LocalEntryNotFoundError:
        raise DataError(f"hf:{name} cannot be fetched: no network, and the cache has none of it; {by_hand}.") from None
    except (HfHubHTTPError, OSError) as error:
        raise DataError(f"hf:{name} cannot be fetched ({str(error).splitlines()[0]}); {by_hand}.") from None
