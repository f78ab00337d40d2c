"""Packages of memlm: installed ones, missing ones, and the extras that bring them."""

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version

PACKAGES = ("memlm_cli", "pipelines", "stages")
"""memlm's own packages: a missing module of these is a bug."""


@dataclass(frozen=True)
class Dependency:
    """One line of memlm's requirements, compared with what is installed."""

    package: str
    line: str
    """Requirement as for pip: `transformers<6,>=5`."""
    extra: str | None
    """The extra of memlm that brings it; None: every installation has it."""
    installed: str | None
    """Installed version; None: it is not installed."""
    fits: bool
    """Whether it is installed in a suitable version."""

    @property
    def problem(self) -> str:
        """A problem of the package; empty if there is none."""
        if self.fits:
            return ""
        return (
            "missing"
            if self.installed is None
            else f"{self.installed} is installed, memlm wants {self.line}"
        )


def dependencies(requirements: Iterable[str] | None = None) -> list[Dependency]:
    """All requirements of memlm, extras included, each compared with the installed package.

    Args:
        requirements: those of memlm; None: as its installation says.
    """
    from packaging.requirements import Requirement

    packages = []
    for text in own_requirements() if requirements is None else requirements:
        line, _, condition = text.partition(";")
        line = line.strip()
        requirement = Requirement(line)
        # an extra of memlm may name another one
        if requirement.name == "memlm":
            continue
        match = re.search(r"""extra == ['"]([\w-]+)""", condition)
        extra = match[1] if match else None
        version = installed(requirement.name)
        fits = version is not None and requirement.specifier.contains(version, prereleases=True)
        packages.append(Dependency(requirement.name, line, extra, version, fits))
    return packages


def installed(package: str) -> str | None:
    """Version of a package; None: it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def install_command(packages: Iterable[Dependency]) -> str:
    """The command that installs packages."""
    return shlex.join(["pip", "install", *(package.line for package in packages)])


def installation(module: str, requirements: Iterable[str] | None = None) -> str:
    """The commands that install a module's distribution, and the extras of memlm that contain it.

    Args:
        module: import name (`faiss`); distributions have the same name, or begin with it
        (`faiss-cpu`).
        requirements: those of memlm; None: as its installation says.

    >>> installation("faiss", ["zarr>=3", 'faiss-cpu>=1.10; extra == "cpu"', 'faiss-gpu>=1.10; extra == "gpu"'])
    "pip install 'faiss-cpu>=1.10' (memlm's extra cpu), or pip install 'faiss-gpu>=1.10' (memlm's extra gpu)"
    >>> installation("a", ['a>=1; extra == "mt"', 'a>=1; extra == "test"', 'b>=2; extra == "test"'])
    "pip install 'a>=1' (memlm's extra mt)"
    """
    distribution = module.replace("_", "-")
    name = re.compile(rf"{re.escape(distribution)}(?![a-z0-9])", re.IGNORECASE)
    by_line = dict[str, Dependency]()
    for package in dependencies(requirements):
        # The extra of tests holds the other extras, too; each line is told with its own.
        is_new = package.extra != "test" or package.line not in by_line
        if name.match(package.line) and is_new:
            by_line[package.line] = package

    commands = []
    for package in by_line.values():
        extra = f" (memlm's extra {package.extra})" if package.extra else ""
        commands.append(install_command([package]) + extra)
    return ", or ".join(commands) or f"pip install {distribution}"


def own_requirements() -> list[str]:
    """Lines of memlm's requirements; none if it is not installed."""
    try:
        return requires("memlm") or []
    except PackageNotFoundError:
        return []
