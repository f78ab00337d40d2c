"""The commands of every tutorial run as they stand there, on less text and for fewer steps."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from glob import glob
from pathlib import Path

import pytest

from tests.cli.conftest import Memlm

DOCS = Path(__file__).parent.parent.parent / "docs"
TUTORIALS = sorted(page for page in (DOCS / "tutorials").glob("*.md") if page.name != "index.md")
STEPS = "6"
PACKAGES = ("asyncio", "email", "http", "unittest")
LIBRARY = r"^LIB=\$\(python3 -c \'(.*)\'\)$"


def commands(page: Path) -> Iterator[list[list[str]]]:
    """The commands of a page in order, each as the words of every part of its pipe."""
    lines = re.sub(
        r"\\\n\s*", "", "\n".join(re.findall(r"^    .*$", page.read_text("utf-8"), re.M))
    ).splitlines()
    for line in lines:
        if line.strip().startswith("memlm "):
            yield [shlex.split(part, comments=True)[1:] for part in re.split(r"\|(?= memlm)", line)]


def smaller(words: list[str], library: Path) -> list[str]:
    """The same with few steps, and on the small texts."""
    text = (
        " ".join(map(shlex.quote, words))
        .replace("builtin:pydocs", "pydocs")
        .replace("$LIB", str(library))
    )
    words = shlex.split(
        re.sub(r"--steps \d+", f"--steps {STEPS}", re.sub(r"steps=\d+", f"steps={STEPS}", text))
    )
    return [one for word in words for one in sorted(glob(word)) or [word]]


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what a reader has: two novels, the documentation of Python, its library; gives
    the last.
    """
    paragraph = "{name} walked down to the mill, and {name} said that the wheel had stopped in the night.\n\n"
    for file, names in {
        "novel.txt": ("Tess", "Clare", "Dairyman Crick"),
        "other.txt": ("Mary", "Dickon", "Colin"),
    }.items():
        (tmp_path / file).write_text(
            "".join(paragraph.format(name=name) for name in names * 40), "utf-8"
        )
    (tmp_path / "pydocs").mkdir()
    for number in range(20):
        topic = (
            f"Topic {number}\n\nA statement of kind {number} binds a name to the object that it makes.\n"
            * 5
        )
        (tmp_path / "pydocs" / f"{number:02}.txt").write_text(topic, "utf-8")
    for package in PACKAGES:
        (tmp_path / "library" / package).mkdir(parents=True)
        for module in "abcd":
            code = (
                f"def {package}_{module}(self, *args):\n    return self._call({package!r}, *args)\n\n"
                * 8
            )
            (tmp_path / "library" / package / f"{module}.py").write_text(code, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "library"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_the_commands_of_a_tutorial_run(page: Path, texts: Path, memlm: Memlm) -> None:
    for name, recipe in re.findall(
        r"^`(\S+\.toml)`:\n\n```toml\n(.*?)```", page.read_text("utf-8"), re.M | re.S
    ):
        Path(name).write_text(re.sub(r"steps = \d+", f"steps = {STEPS}", recipe), "utf-8")
    ran = 0
    for pipe in commands(page):
        given = ""
        for words in pipe:
            ended = memlm(*smaller(words, texts), stdin=given)
            assert ended.code == 0, f"{shlex.join(words)}\n{ended.err}"
            given, ran = ended.out, ran + 1
    assert ran > 4


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_the_library_of_python_is_where_a_tutorial_says(page: Path) -> None:
    for program in re.findall(LIBRARY, page.read_text("utf-8").replace("    LIB", "LIB"), re.M):
        folder = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout
        assert all(list((Path(folder.strip()) / package).glob("*.py")) for package in PACKAGES)


def test_there_are_tutorials_and_the_index_leads_to_them() -> None:
    index = (DOCS / "tutorials" / "index.md").read_text("utf-8")
    assert len(TUTORIALS) == 5
    assert all(f"]({page.name})" in index for page in TUTORIALS)
