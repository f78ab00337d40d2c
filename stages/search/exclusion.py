"""Rows that tokens of the datastore's own split may not find: its own row holds the answer, near ones much of it."""

import re
from typing import TYPE_CHECKING, Any

from stages.errors import nearest

if TYPE_CHECKING:
    import numpy as np

WINDOW = re.compile(r"window:[0-9]{1,15}")
EXCLUSIONS = ("self", "window:N", "document")
"""Values of --exclude, besides `none`."""


def checked_exclusion(exclude: str, *others: str) -> str:
    """Check an exclusion, or one of `others`. Raises: ValueError, with what is legal."""
    known = (*EXCLUSIONS, *others)
    if WINDOW.fullmatch(exclude) or (exclude in known and exclude != "window:N"):
        return exclude
    near = nearest(exclude, known)
    meant = f"; did you mean {near!r}?" if near and near != exclude else ""
    raise ValueError(f"expected {', '.join(known[:-1])} or {known[-1]}{meant}")


def forbidden_rows(exclude: str, start: int, stop: int, doc_offsets: Any) -> "np.ndarray | None":
    """Rows that tokens start .. stop - 1 of the datastore's own split may not find.

    Args:
        exclude: `none`, `self`, `window:N` (rows i - N … i + N) or `document`.
        doc_offsets: [D + 1] where each document of the split starts, and its end.
    Returns: [stop - start, 2] int64, rows first <= row < last of each token; None if none is forbidden.
    """
    if exclude == "none":
        return None
    import numpy as np

    tokens = np.arange(start, stop)
    if exclude == "document":
        offsets = np.asarray(doc_offsets[:])
        document = np.searchsorted(offsets, tokens, side="right")
        return np.stack([offsets[document - 1], offsets[document]], axis=1)
    width = 0 if exclude == "self" else int(exclude.partition(":")[2])
    return np.stack([np.maximum(tokens - width, 0), tokens + width + 1], axis=1)


def excluding_fewer(exclude: str, how: str = "--exclude window:N") -> str:
    """Advice where an exclusion leaves too few rows; `how`: the option, or the command with it."""
    if exclude == "document":
        return f"exclude fewer rows ({how}), or cut the text into documents (memlm tokenize --documents)"
    return f"exclude fewer rows ({how}, a smaller N)"
