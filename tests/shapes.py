"""Checks the shapes and types of arrays that kernels name (`Float[Tensor, "n d"]`), at every call that a test makes.

`check_shapes_in` has the functions of some rooms wrapped with `checked` when they are imported; which letter stands for
which size within a call, jaxtyping knows. All other annotations are mypy's business. jaxtyping's own import hook wraps
every function, of arrays or not, and looks at what is given twice: that took a sixth of the time of the tests.
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

import torch
from jaxtyping import AbstractArray, TypeCheckError, jaxtyped


def check_shapes_in(rooms: Sequence[str]) -> None:
    """Have the functions of these packages checked. They must not be imported yet."""
    sys.meta_path.insert(0, _Finder(rooms))


def checked(made: Any) -> Any:
    """A function, with a TypeCheckError where an array that it takes or gives is not as annotated; or a class.

    Of a class, what its fields say is checked where it is a dataclass; its methods are functions.
    """
    if isclass(made):
        if is_dataclass(made) and "__init__" in vars(made):
            made.__init__ = checked(made.__init__)
        return made
    hints = {name: hint for name, hint in getattr(made, "__annotations__", {}).items() if _of_arrays(hint)}
    if not hints:
        return made
    return _checked(made, hints)


def _checked(function: Callable[..., Any], hints: dict[str, Any]) -> Callable[..., Any]:
    takes, result = signature(function), hints.pop("return", None)
    names = list(takes.parameters)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        for name, value in (*zip(names, args, strict=False), *kwargs.items()):
            if name in hints and not _fits(value, hints[name]):
                raise TypeCheckError(f"{function.__qualname__}: {name} is {_said(value)}, not {hints[name]}")
        returned = function(*args, **kwargs)
        if result is not None and not _fits(returned, result):
            raise TypeCheckError(f"{function.__qualname__}: what is returned is {_said(returned)}, not {result}")
        return returned

    wrapped.__signature__ = takes  # type: ignore[attr-defined]  # sizes such as "{k}" are arguments
    return wraps(function)(jaxtyped(wrapped, typechecker=None))


def _said(value: Any) -> str:
    return f"{value.dtype} {tuple(value.shape)}" if hasattr(value, "shape") else f"a {type(value).__name__}"


def _of_arrays(hint: Any) -> bool:
    return _is_array(hint) or any(map(_of_arrays, get_args(hint)))


def _is_array(hint: Any) -> bool:
    return isclass(hint) and issubclass(hint, AbstractArray)


def _fits(value: Any, hint: Any) -> bool:
    if _is_array(hint):
        return torch.compiler.is_compiling() or isinstance(value, hint)  # what is traced has no class of its own
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, one) for one in get_args(hint))
    if get_origin(hint) is tuple:
        return len(value) == len(get_args(hint)) and all(map(_fits, value, get_args(hint)))
    return not isclass(hint) or isinstance(value, hint)


class _Loader(SourceFileLoader):
    """Loads a module with `checked` innermost around each function, and outermost around each class."""

    def get_code(self, fullname: str) -> CodeType:
        """Never the bytecode that is kept beside the source: its functions are not checked."""
        return self.source_to_code(self.get_data(self.path), self.path)

    def source_to_code(self, data: Any, path: Any, *, _optimize: int = -1) -> CodeType:
        tree = ast.parse(data, path)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                decorator = ast.copy_location(ast.Name("__checked__", ast.Load()), node)
                node.decorator_list.insert(0 if isinstance(node, ast.ClassDef) else len(node.decorator_list), decorator)
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
