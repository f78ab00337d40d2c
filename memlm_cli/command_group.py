"""Commands that are imported when they are asked for."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup

from memlm_cli.command import Commands


class CommandsByName(TyperGroup):
    """A group whose commands are imported and built when they are asked for, since one process needs one of them."""

    names: ClassVar[tuple[str, ...]]
    """In the order in which help lists them."""
    package: ClassVar[str]
    """Where each has a module of its own, which holds a function of that name, or a group as `app`."""
    modules: ClassVar[Mapping[str, str]] = {}
    """Those of commands whose module is not called as they are, but for hyphens."""
    settings: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Settings of commands for Typer, besides their functions."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.lists = False
        """Whether commands are asked for their summaries alone, for the help of the group."""
        self.commands = _Built(self)  # type: ignore[assignment]  # which is a dict in Click, and only read

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.lists = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self.lists = False

    def build(self, name: str) -> Any:
        found = self.function(name)
        alone = Commands(rich_markup_mode=self.rich_markup_mode)
        if isinstance(found, typer.Typer):
            alone.add_typer(found, name=name)
        else:
            alone.command(name, **self.settings.get(name, {}))(found)
        return typer.main.get_group(alone).commands[name]

    def function(self, name: str) -> Any:
        """The function of a command, or the group that it is."""
        module = self.modules.get(name, name.replace("-", "_"))
        holds = import_module(f"{self.package}.{module}")
        return getattr(holds, "app", None) or getattr(holds, module)


class _Built(Mapping[str, Any]):
    """Commands by name, each built once."""

    def __init__(self, group: CommandsByName) -> None:
        self._group, self._built = group, dict[str, Any]()

    def __getitem__(self, name: str) -> Any:
        if name not in self._group.names:
            raise KeyError(name)
        if self._group.lists:
            return self._group.build(name)
        if name not in self._built:
            self._built[name] = self._group.build(name)
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._group.names)

    def __len__(self) -> int:
        return len(self._group.names)
