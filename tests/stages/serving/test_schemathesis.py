"""Requests made from the OpenAPI description, right ones and wrong ones, are answered as it says."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.stages.serving.address import Address
from tests.stages.serving.document_store import document_index
from tests.stages.serving.test_documents import ADMIN, changing, nearest

schemathesis = pytest.importorskip("schemathesis")
checks = pytest.importorskip("schemathesis.specs.openapi.checks")

CHECKS = [
    pytest.importorskip("schemathesis.checks").not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]
FEW = settings(
    max_examples=3,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
CHANGES = "^/(memories|jobs)"
"""Paths that need the admin token."""


def asked(address: Address, schema: Any, **headers: str) -> int:
    """Ask all operations of a description; returns the number of requests."""
    count = 0

    def ask(case: Any) -> None:
        nonlocal count
        count += 1
        if isinstance(case.body, dict):
            # A random text takes long to be continued, and says no more.
            case.body["max_tokens"] = 1
        answer = case.call(base_url=address.url, headers=headers or None)
        case.validate_response(answer, checks=CHECKS)

    for result in schema.get_all_operations():
        FEW(given(case=result.ok().as_strategy())(ask))()
    return count


def test_completions_and_tokens(address: Address) -> None:
    schema = schemathesis.openapi.from_url(f"{address.url}/openapi.json")
    assert asked(address, schema.exclude(path_regex=CHANGES)) > 20
    assert address.log == []


def test_documents(tmp_path: Path) -> None:
    index = document_index(tmp_path)
    with changing(nearest(index), index.store, works=False) as address:
        schema = schemathesis.openapi.from_url(f"{address.url}/openapi.json")
        included = schema.include(path_regex=CHANGES)
        assert asked(address, included, Authorization=f"Bearer {ADMIN}") > 5
