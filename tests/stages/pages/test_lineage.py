"""From what a user names to reports, and from reports to all they were made from."""

from types import SimpleNamespace

import pytest

from stages.artifacts.store import Store
from stages.errors import ArtifactError
from stages.pages.lineage import find_reports, lineage_of, next_command
from tests.stages.pages import made


@pytest.mark.parametrize("name", ["report/first", "tokens/corpus", "model/lm"])
def test_reports_are_found_by_themselves_or_by_what_they_were_made_from(
    store: Store, name: str
) -> None:
    report = made.chain(store)
    assert [found.reference for found in find_reports([name, name, report.reference], store)] == [
        report.reference
    ]


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        ("tokens", "train"),
        ("model", "evaluate"),
        ("datastore", "build-index"),
        ("index", "evaluate"),
    ],
)
def test_what_no_report_was_made_from_is_an_error_with_the_next_command(
    store: Store, kind: str, command: str
) -> None:
    alone = made.made(store, kind, "alone", metrics={"splits": {}})
    with pytest.raises(ArtifactError, match=rf"{alone.reference}; .*memlm {command} "):
        find_reports([f"{kind}/alone"], store)


def test_a_model_of_labels_is_evaluated_on_tasks() -> None:
    model = SimpleNamespace(kind="model", config={"model": {"head": {"name": "classifier"}}})
    assert next_command(model) == "evaluate-tasks"  # type: ignore[arg-type]


def test_a_damaged_report_is_an_error(store: Store) -> None:
    report = made.chain(store)
    (report.path / "metrics.json").write_text("{}")
    with pytest.raises(ArtifactError, match="damaged"):
        find_reports([report.reference], store)


def test_members_come_after_what_they_were_made_from(store: Store) -> None:
    report = made.chain(store)
    members = lineage_of([report])
    assert [member.kind for member in members.values()] == [
        "tokens",
        "model",
        "datastore",
        "index",
        "report",
    ]
    order = list(members)
    for place, member in enumerate(members.values()):
        assert all(order.index(source) < place for source in member.inputs.values())
    assert members[report.reference].label == "first"
    assert members[report.input("index").reference].label == report.input("index").id
