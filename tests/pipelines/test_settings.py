"""Settings from several places."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.options import docstring, setting_words
from pipelines.settings import assignment, merged, nested
from stages.config import Settings, read_toml
from stages.errors import UsageError

tables = st.recursive(
    st.dictionaries(st.sampled_from("abc"), st.integers(), max_size=3),
    lambda below: st.dictionaries(st.sampled_from("abc"), below, max_size=3),
)


def leaves(table: dict, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], int]:
    found = {}
    for key, value in table.items():
        found |= leaves(value, (*path, key)) if isinstance(value, dict) else {(*path, key): value}
    return found


@given(tables, tables)
def test_all_of_the_later_table_stands_and_the_empty_one_changes_nothing(a: dict, b: dict) -> None:
    assert leaves(b).items() <= leaves(merged(a, b)).items()
    assert merged(a, {}) == merged({}, a) == merged(a, a) == a


def test_the_later_table_wins_and_neighbours_stay() -> None:
    assert merged({"a": {"x": 1, "y": 2}, "b": 3}, {"a": {"x": 9}}) == {
        "a": {"x": 9, "y": 2},
        "b": 3,
    }


def test_classes_inside_others_and_in_functions_have_docstrings_too() -> None:
    class Local(Settings):
        size: int = 1
        """Size of a local one."""

        class Inner(Settings):
            size: int = 2
            """Size of an inner one."""

    assert docstring(Local, "size") == "Size of a local one."
    assert docstring(Local.Inner, "size") == "Size of an inner one."


def test_a_class_that_a_call_made_has_no_docstrings() -> None:
    made = type(
        "Made", (Settings,), {"__annotations__": {"size": int}, "__module__": __name__, "size": 1}
    )
    assert docstring(made, "size") == ""


def test_options_that_were_not_given_do_not_count() -> None:
    assert nested({"optimizer.lr": 0.5, "steps": None}) == {"optimizer": {"lr": 0.5}}


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("steps=3", {"steps": 3}),
        ("optimizer.lr=1e-3", {"optimizer": {"lr": 0.001}}),
        ("method=lm", {"method": "lm"}),
        ("split=[0.8, 0.1, 0.1]", {"split": [0.8, 0.1, 0.1]}),
        ("vocab-size=7", {"vocab_size": 7}),
        ('name="a=b"', {"name": "a=b"}),
    ],
)
def test_assignments_are_toml_or_text(text: str, table: dict) -> None:
    assert assignment(text) == table


@pytest.mark.parametrize("text", ["steps", "=3", "a..b=3"])
def test_other_texts_are_no_assignments(text: str) -> None:
    with pytest.raises(UsageError, match="--set"):
        assignment(text)


def test_a_pipe_is_no_file_of_settings(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "settings.toml")
    for path in (tmp_path / "settings.toml", Path("/dev/zero")):
        with pytest.raises(UsageError):
            read_toml(path)


@pytest.mark.parametrize("order", [("a,b", "c"), ("😀,x", 'y"'), ("a", "b")])
def test_names_with_commas_are_typed_so_that_they_come_back(order: tuple[str, ...]) -> None:
    ((option, value),) = setting_words("train", {"order": order})
    found = nested({"order": value.split(",")}) if option == "--order" else assignment(value)
    assert found == {"order": list(order)}
