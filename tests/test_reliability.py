"""Every promise of docs/reference/reliability.md names what tests it, and that is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/reference/reliability.md").read_text("utf-8")
CAMPAIGN = (ROOT / "tests/endurance/campaign/__main__.py").read_text("utf-8")
GOALS = dict(
    re.findall(r'"([a-z-]+)": (\d+)', CAMPAIGN.partition("GOALS = {")[2].partition('}\n"""')[0])
)


def promises() -> list[list[str]]:
    """The rows of the first table, [event, what holds, how it is tested] each."""
    table = PAGE.partition("| event |")[2].partition("\n\n")[0]
    return [
        [cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines()[2:]
    ]


def attacks(text: str) -> set[str]:
    """Names of attacks, which stand in backticks behind that word, one or several."""
    lists = re.findall(r"attacks? ((?:`[a-z-]+`(?: \([^)]*\))?(?:, | and )?)+)", text)
    return {name for found in lists for name in re.findall(r"`([a-z-]+)`", found)}


@pytest.mark.parametrize("promise", promises(), ids=lambda promise: promise[0][:40])
def test_a_promise_names_what_tests_it(promise: list[str]) -> None:
    assert len(promise) == 3
    assert attacks(promise[2]) or re.search(r"`tests[/.]", promise[2]) or promise[2] == "the same"


def test_what_is_named_is_there() -> None:
    for path in re.findall(r"`(tests/[\w/.]+)`", PAGE):
        assert (ROOT / path).is_file(), path
    for module in re.findall(r"tests\.endurance\.\w+", PAGE):
        place = ROOT / module.replace(".", "/")
        assert place.is_dir() or place.with_suffix(".py").is_file(), module
    assert len(attacks(PAGE)) > 12
    assert attacks(PAGE) <= GOALS.keys()


def test_goals_are_those_of_the_campaign() -> None:
    goals = {name: int(number) for name, number in GOALS.items()}

    def of(*starts: str) -> int:
        return sum(number for name, number in goals.items() if name.startswith(starts))

    kills, disks = goals["kill"] + goals["kill-change"], of("full-disk")
    said = f"{kills:,} kills, {disks} full disks, {of('damaged')}"
    assert said in PAGE
    others = f"{of('bad'):,} bad inputs and options, {of('concurrent')} concurrent starts, {goals['crafted']} crafted"
    assert others in " ".join(PAGE.split())
