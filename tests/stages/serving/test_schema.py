"""The OpenAPI description has every route."""

import re

from stages.serving.app import Routes
from stages.serving.document_routes import DocumentRoutes
from stages.serving.measures import Measures
from stages.serving.schema import OPERATIONS, openapi
from tests.stages.serving.address import Address

FORM = ("post", "/")
"""The form of the page, which no program asks."""


def test_every_route_is_described(address: Address) -> None:
    documents = DocumentRoutes(address.serving, None, None, Measures())  # type: ignore[arg-type]
    routes = Routes(address.serving, address.worker, Measures()).table() + documents.table()
    served = {
        (method.lower(), re.sub(r":path", "", route.path))
        for route in routes
        for method in route.methods or ()
        if method != "HEAD"
    }
    described = {(operation.method, operation.path) for operation in OPERATIONS}
    assert served - {FORM} == described
    assert address.get("/openapi.json").json == openapi()
