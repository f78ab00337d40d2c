"""An error on its way from the process that met it to the one that raises it."""

import pickle
import traceback
from collections.abc import Iterator
from typing import NamedTuple


class Failed(NamedTuple):
    """An error, and what that came of, the nearest first; it can be pickled."""

    errors: list[BaseException]

    @classmethod
    def of(cls, error: BaseException) -> "Failed":
        """As it leaves a worker process."""
        error.add_note("In a worker process:\n" + "".join(traceback.format_exception(error)))
        return cls(list(_portable(error)))

    def error(self) -> BaseException:
        """The error as it was raised in the worker."""
        for error, cause in zip(self.errors, self.errors[1:], strict=False):
            error.__cause__ = cause
        return self.errors[0]


def _portable(error: BaseException) -> Iterator[BaseException]:
    """An error and what it came of, each able to leave the process."""
    link: BaseException | None = error
    while link is not None:
        try:
            yield pickle.loads(pickle.dumps(link))
        except Exception:
            yield RuntimeError(f"{type(link).__name__}: {link}")
        link = link.__cause__ or link.__context__
