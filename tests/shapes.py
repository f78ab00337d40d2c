"""Checks the shapes and types of arrays that kernels name (`Float[Tensor, "n d"]`), at every call that a test makes.

`conftest.py` has jaxtyping wrap the functions of some rooms with `checked`; which letter stands for which size within a
call, jaxtyping knows. All other annotations are mypy's business.
"""

from collections.abc import Callable
from functools import wraps
from inspect import isclass, signature
from types import UnionType
from typing import Any, Union, get_args, get_origin

from jaxtyping import AbstractArray


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with a TypeError where an array that it takes or gives is not as annotated."""
    hints = {name: hint for name, hint in getattr(function, "__annotations__", {}).items() if _of_arrays(hint)}
    if not hints:
        return function
    parameters, result = signature(function), hints.pop("return", None)

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        given = parameters.bind(*args, **kwargs).arguments
        for name, value in given.items():
            if name in hints and not _fits(value, hints[name]):
                raise TypeError(f"{name} is not {hints[name]}")
        returned = function(*args, **kwargs)
        if result is not None and not _fits(returned, result):
            raise TypeError(f"what is returned is not {result}")
        return returned

    return wrapped


def _of_arrays(hint: Any) -> bool:
    return _is_array(hint) or any(map(_of_arrays, get_args(hint)))


def _is_array(hint: Any) -> bool:
    return isclass(hint) and issubclass(hint, AbstractArray)


def _fits(value: Any, hint: Any) -> bool:
    if _is_array(hint):
        return isinstance(value, hint)
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, one) for one in get_args(hint))
    if get_origin(hint) is tuple:
        return len(value) == len(get_args(hint)) and all(map(_fits, value, get_args(hint)))
    return not isclass(hint) or isinstance(value, hint)
