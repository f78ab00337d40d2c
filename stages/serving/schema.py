"""The OpenAPI description of an address, from the fields that requests are checked with."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import Any, NamedTuple

from pydantic import BaseModel

from stages.serving.bodies import Body
from stages.serving.completion import ChatFields, CompletionFields
from stages.serving.settings import MAX_NAMES

REFERENCES = "#/components/schemas/"
ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"enum": ["invalid_request_error", "server_error"]},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
ANY_OBJECT = {"type": "object"}
PLAIN = "text/plain"
HTML = "text/html"
JSON = "application/json"


class TextBody(Body):
    """Fields of `POST /tokenize`; the start of a text is no token of it."""

    prompt: str


class IdsBody(Body):
    """Fields of `POST /detokenize`."""

    tokens: list[int]


class DocumentBody(Body):
    """Fields of a document that is added."""

    name: str
    text: str


class Operation(NamedTuple):
    """A method of a path."""

    method: str
    path: str
    summary: str
    body: type[BaseModel] | None = None
    success: int = 200
    type: str = JSON
    admin: bool = False
    query: Mapping[str, Any] = {}
    """Schemas of parameters behind the path, by name."""


LISTING: Mapping[str, Any] = {
    "after": {"type": "string"},
    "limit": {"type": "integer", "minimum": 1, "maximum": MAX_NAMES},
}
DOCUMENTS = "/memories/{memory}/documents"
OPERATIONS = (
    Operation("get", "/", "A page with a form.", type=HTML),
    Operation("get", "/health", "Whether the process answers."),
    Operation("get", "/ready", "Whether the model takes requests."),
    Operation("get", "/metrics", "Figures for Prometheus.", type=PLAIN),
    Operation("get", "/openapi.json", "This description."),
    Operation("get", "/v1/models", "The names of the model."),
    Operation("get", "/v1/models/{name}", "One name of the model."),
    Operation("post", "/v1/completions", "Completes and scores prompts.", CompletionFields),
    Operation("post", "/v1/chat/completions", "A turn of a conversation.", ChatFields),
    Operation("get", "/tokenizer_info", "Special tokens and sizes."),
    Operation("post", "/tokenize", "Ids of a text.", TextBody),
    Operation("post", "/detokenize", "Text of ids.", IdsBody),
    Operation("get", DOCUMENTS, "Names of documents.", admin=True, query=LISTING),
    Operation("post", DOCUMENTS, "Adds a document.", DocumentBody, 202, admin=True),
    Operation("delete", DOCUMENTS + "/{name}", "Deletes a document.", success=202, admin=True),
    Operation("get", "/jobs", "Changes of documents.", admin=True),
    Operation("get", "/jobs/{id}", "One change, with its receipt.", admin=True),
)


@cache
def openapi() -> Mapping[str, Any]:
    """The description, in OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    schemas: dict[str, Any] = {"Error": ERROR}
    for operation in OPERATIONS:
        described = _described(operation)
        if operation.body is not None:
            schema = operation.body.model_json_schema(ref_template=REFERENCES + "{model}")
            schemas |= schema.pop("$defs", {})
            schemas[operation.body.__name__] = schema
            content = {JSON: {"schema": {"$ref": REFERENCES + operation.body.__name__}}}
            described["requestBody"] = {"required": True, "content": content}
        paths.setdefault(operation.path, {})[operation.method] = described
    bearer = {"type": "http", "scheme": "bearer"}
    return {
        "openapi": "3.1.0",
        "info": {"title": "memlm serve", "version": version("memlm")},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": bearer, "admin": bearer},
        },
    }


def _described(operation: Operation) -> dict[str, Any]:
    """An operation without its body."""
    parts = operation.path.split("/")
    names = [part[1:-1] for part in parts if part.startswith("{")]
    text = {"type": "string", "minLength": 1}
    parameters = [{"name": name, "in": "path", "required": True, "schema": text} for name in names]
    parameters += [
        {"name": name, "in": "query", "required": False, "schema": schema}
        for name, schema in operation.query.items()
    ]
    answer = {"type": "string"} if operation.type != JSON else ANY_OBJECT
    contents = {operation.type: {"schema": answer}}
    if operation.path.endswith("completions"):
        contents["text/event-stream"] = {"schema": {"type": "string"}}
    refused = {JSON: {"schema": {"$ref": REFERENCES + "Error"}}}
    return {
        "summary": operation.summary,
        "parameters": parameters,
        "security": [{"admin": []}] if operation.admin else [{"token": []}, {}],
        "responses": {
            str(operation.success): {"description": operation.summary, "content": contents},
            "4XX": {"description": "The request is refused.", "content": refused},
            "5XX": {"description": "The server cannot answer now.", "content": refused},
        },
    }
