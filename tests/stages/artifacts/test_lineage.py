"""Who was made from whom, among artifacts of which some are gone."""

from pathlib import Path

import pytest

from stages.artifacts.artifact import Artifact, ancestors, descendants
from stages.artifacts.manifest import InputRecord, Manifest
from stages.artifacts.store import Store


def made(reference: str, *inputs: str) -> Artifact:
    kind, _, id = reference.partition("/")
    records = {f"role {number}": record(one) for number, one in enumerate(inputs)}
    nothing: dict = {
        "config": {},
        "files": {},
        "metrics": {},
        "producer": {},
        "outside_files": [],
        "stage": "",
    }
    manifest = Manifest(
        format_version=1, kind=kind, id=id, inputs=records, created="", seconds=0, **nothing
    )
    return Artifact(Store("nowhere"), Path("nowhere"), manifest)


def record(reference: str) -> InputRecord:
    kind, _, id = reference.partition("/")
    return InputRecord(kind=kind, id=id, digest="")


STORE = [
    made("report/1", "model/1", "index/1"),
    made("index/1", "datastore/1"),
    made("datastore/1", "model/1", "tokens/1"),
    made("model/1", "tokens/1", "batches/gone"),
    made("tokens/1"),
    made("model/2", "tokens/2"),
    made("tokens/2"),
]


def test_parents_are_the_direct_ones() -> None:
    assert STORE[2].parents == {"model/1", "tokens/1"}
    assert STORE[4].parents == set()


@pytest.mark.parametrize("artifacts", [STORE, STORE[::-1]])
def test_ancestors_and_descendants_in_any_order(artifacts: list) -> None:
    above = {"tokens/1", "batches/gone", "model/1"}
    assert ancestors(["model/1"], artifacts) == above
    assert ancestors(["datastore/1", "model/2"], artifacts) == above | {
        "datastore/1",
        "model/2",
        "tokens/2",
    }
    assert ancestors(["report/gone"], artifacts) == {"report/gone"}
    assert descendants("model/1", artifacts) == {"model/1", "datastore/1", "index/1", "report/1"}
    assert descendants("batches/gone", artifacts) >= {"batches/gone", "model/1", "report/1"}
    assert descendants("model/2", artifacts) == {"model/2"}
