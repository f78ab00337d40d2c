"""Checks the shapes and types of arrays that kernels name (`Float[Tensor, "n d"]`), at every call
that a test makes.

`check_shapes_in` has the functions of some rooms wrapped with `checked` when they are imported;
which letter stands for which size within a call, jaxtyping knows. All other annotations are mypy's
business. jaxtyping's own import hook wraps every function, of arrays or not, and looks at what is
given twice: that took a sixth of the time of the tests. What fits once is not looked at again: the
same types and sizes of all that is given and returned fit, too.
"""

import ast
import sys
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from inspect import isclass, signature
from types import CodeType, ModuleType, UnionType
from typing import Any, Union, get_args, get_origin

import numpy as np
import torch
from jaxtyping import AbstractArray, TypeCheckError, jaxtyped


def check_shapes_in(rooms: Sequence[str]) -> None:
    """Have the functions of these packages checked. They must not be imported yet."""
    sys.meta_path.insert(0, _Finder(rooms))


def checked(made: Any) -> Any:
    """A function, with a TypeCheckError where an array that it takes or gives is not as annotated;
    or a class.

    Of a class, what its fields say is checked where it is a dataclass; its methods are functions.
    """
    if isclass(made):
        if is_dataclass(made) and "__init__" in vars(made):
            made.__init__ = checked(made.__init__)
        return made
    hints = {
        name: hint
        for name, hint in getattr(made, "__annotations__", {}).items()
        if _of_arrays(hint)
    }
    if not hints:
        return made
    return _checked(made, hints)


def _checked(function: Callable[..., Any], hints: dict[str, Any]) -> Callable[..., Any]:
    takes, result = signature(function), hints.pop("return", None)
    names = list(takes.parameters)

    def look(args: Any, kwargs: Any, *returned: Any) -> None:
        for name, value in (*zip(names, args, strict=False), *kwargs.items()):
            if name in hints and not _fits(value, hints[name]):
                raise TypeCheckError(
                    f"{function.__qualname__}: {name} is {_said(value)}, not {hints[name]}"
                )
        for value in returned:
            if not _fits(value, result):
                raise TypeCheckError(
                    f"{function.__qualname__}: what is returned is {_said(value)}, not {result}"
                )

    if any(_sized_by_arguments(hint) for hint in (*hints.values(), result)):

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            look(args, kwargs)
            returned = function(*args, **kwargs)
            look((), {}, *([] if result is None else [returned]))
            return returned

        wrapped.__signature__ = takes  # type: ignore[attr-defined]  # sizes such as "{k}" are arguments
        return wraps(function)(jaxtyped(wrapped, typechecker=None))

    looked, places = (
        jaxtyped(look, typechecker=None),
        [(i, name) for i, name in enumerate(names) if name in hints],
    )
    fitted: dict[
        Any, set[Any]
    ] = {}  # arguments -> what was returned for them: whether they fit is known

    @wraps(function)
    def quick(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():  # what is traced has no class of its own
            return function(*args, **kwargs)
        given = tuple(
            _form(args[i] if i < len(args) else kwargs.get(name, ...)) for i, name in places
        )
        if given not in fitted:
            looked(args, kwargs)
            fitted[given] = set()
        returned = function(*args, **kwargs)
        if result is not None and (form := _form(returned)) not in fitted[given]:
            looked(args, kwargs, returned)
            fitted[given].add(form)
        return returned

    return quick


def _form(value: Any) -> Any:
    """All that decides whether a value fits an annotation without sizes that are arguments."""
    if isinstance(value, torch.Tensor | np.ndarray):
        return type(value), value.dtype, value.shape
    return tuple(map(_form, value)) if type(value) is tuple else type(value)


def _sized_by_arguments(hint: Any) -> bool:
    return "{" in hint.dim_str if _is_array(hint) else any(map(_sized_by_arguments, get_args(hint)))


def _said(value: Any) -> str:
    return (
        f"{value.dtype} {tuple(value.shape)}"
        if hasattr(value, "shape")
        else f"a {type(value).__name__}"
    )


def _of_arrays(hint: Any) -> bool:
    return _is_array(hint) or any(map(_of_arrays, get_args(hint)))


def _is_array(hint: Any) -> bool:
    return isclass(hint) and issubclass(hint, AbstractArray)


def _fits(value: Any, hint: Any) -> bool:
    if _is_array(hint):
        return torch.compiler.is_compiling() or isinstance(
            value, hint
        )  # what is traced has no class of its own
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, one) for one in get_args(hint))
    if get_origin(hint) is tuple:
        return len(value) == len(get_args(hint)) and all(map(_fits, value, get_args(hint)))
    return not isclass(hint) or isinstance(value, hint)


class _Loader(SourceFileLoader):
    """Loads a module with `checked` innermost around each function, and outermost around each
    class.
    """

    def get_code(self, fullname: str) -> CodeType:
        """Never the bytecode that is kept beside the source: its functions are not checked."""
        return self.source_to_code(self.get_data(self.path), self.path)

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> CodeType:
        tree = ast.parse(data, path)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                decorator = ast.copy_location(ast.Name("__checked__", ast.Load()), node)
                node.decorator_list.insert(
                    0 if isinstance(node, ast.ClassDef) else len(node.decorator_list), decorator
                )
        return compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__checked__"] = checked
        super().exec_module(module)


class _Finder(MetaPathFinder):
    def __init__(self, rooms: Sequence[str]) -> None:
        self.rooms = tuple(rooms)

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if not f"{fullname}.".startswith(tuple(f"{room}." for room in self.rooms)):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec
