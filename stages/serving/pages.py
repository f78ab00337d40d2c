"""The page of an address: a form, and the answer with the passages behind each word.

The page has no script and asks no other origin. It is the page of `memlm inspect`, live.
"""

from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse

from stages.inspection.page import Question, question_page
from stages.serving.bodies import read_body, require_type
from stages.serving.completing import Piece
from stages.serving.completion import CompletionFields, completion_fields
from stages.serving.refusal import Refusal, invalid
from stages.serving.served import ServedModel
from stages.serving.settings import MAX_TOKENS

FORM = "application/x-www-form-urlencoded"
CONTEXTS = 4
"""Passages behind each token."""
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


async def read_question(request: Request, served: ServedModel) -> Question:
    """The question of a form. Raises: Refusal for anything else, or the form of another site."""
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
        raise Refusal(403, "The form belongs to another site.", code="wrong_origin")
    require_type(request, FORM)
    try:
        pairs = parse_qsl(
            (await read_body(request)).decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=10,
        )
    except ValueError:
        raise invalid("The form cannot be read.") from None
    fields = Question.__dataclass_fields__
    typed = {name: value for name, value in pairs if name in fields}
    # Browsers send every end of a line as two characters.
    prompt = typed.get("prompt", "").replace("\r\n", "\n")
    memory = typed.get("memory", served.memories[0])
    return Question(**{**typed, "prompt": prompt, "memory": memory})


def question_fields(question: Question) -> CompletionFields:
    """The same question as fields of a completion. Raises: Refusal for a wrong one."""
    return completion_fields(
        {
            "prompt": question.prompt,
            "max_tokens": _number(question, "max_tokens", int),
            "temperature": _number(question, "temperature", float),
            "seed": _number(question, "seed", int),
            "echo": True,
            "memlm": {"memory": question.memory, "attribution": CONTEXTS},
        }
    )


def _number(question: Question, name: str, kind: type) -> Any:
    text = getattr(question, name)
    try:
        return kind(text)
    except ValueError:
        raise invalid(f"{name}: a number is needed.", name) from None


def form_page(
    served: ServedModel, question: Question | None = None, refusal: Refusal | None = None
) -> HTMLResponse:
    """The page without an answer."""
    shown = question or Question(memory=served.memories[0])
    message = "" if refusal is None else refusal.message
    html = question_page(served.name, shown, served.memories, MAX_TOKENS, refusal=message)
    return HTMLResponse(html, 200 if refusal is None else refusal.status, HEADERS)


def answer_page(served: ServedModel, question: Question, pieces: Iterable[Piece]) -> HTMLResponse:
    """The page with the text of a completion that echoes its prompt."""
    parts = list(pieces)
    # The prompt is the text of the first piece that has any.
    texts = [piece.text for piece in parts if piece.text]
    echoed = 1 if question.prompt else 0
    html = question_page(
        served.name,
        question,
        served.memories,
        MAX_TOKENS,
        found=parts[-1].inspected,
        written="".join(texts[echoed:]),
    )
    return HTMLResponse(html, headers=HEADERS)
