"""A class is abstract or final: the method that is read is the method that runs."""

from types import FunctionType


def overridden(cls: type, interface: type | None = None) -> list[str]:
    """Methods and properties of this project's classes that one below them replaces though they are
    not abstract.

    Those of an interface are defaults, which may be replaced.
    """
    own = [
        c
        for c in cls.__mro__
        if c.__module__.split(".")[0] in ("stages", "tests") and c is not interface
    ]
    return [
        f"{below.__name__}.{name}"
        for number, below in enumerate(own)
        for name, value in vars(below).items()
        if isinstance(value, FunctionType | property) and not name.startswith("__")
        for above in own[number + 1 :]
        if name in vars(above) and not getattr(vars(above)[name], "__isabstractmethod__", False)
    ]
