"""How artifacts are spelled: `kind/id`, `kind/name`, or a path to the artifact's folder."""

import re

from stages.artifacts.kinds import KINDS
from stages.errors import UsageError

_ID = re.compile(r"[0-9a-f]{12}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def is_id(text: str) -> bool:
    """Whether a text is an id: twelve hexadecimal digits."""
    return _ID.fullmatch(text) is not None


def check_name(name: str) -> str:
    """A name that may be given to an artifact. Raises UsageError if it may not."""
    if is_id(name):
        raise UsageError(f"The name {name!r} looks like an id (twelve hexadecimal digits); choose another.")
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"The name {name!r} will not do: at most 100 letters, digits, '.', '_' and '-', beginning with a letter "
            "or digit."
        )
    return name


def split_reference(reference: str) -> tuple[str, str] | None:
    """(kind, id or name) of a reference into the store; None if the text can only be a path."""
    kind, slash, rest = reference.partition("/")
    if slash and kind in KINDS and (is_id(rest) or _NAME.fullmatch(rest)):
        return kind, rest
    return None
