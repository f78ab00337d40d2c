"""The routes of an address."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from stages.serving.access import Access
from stages.serving.answers import Answer, ChatAnswer, CompletionAnswer, Usage, to_json
from stages.serving.bodies import checked, read_object
from stages.serving.completing import Piece, completions
from stages.serving.completion import SamplingFields, chat_fields, completion_fields
from stages.serving.document_routes import DocumentRoutes
from stages.serving.documents import Documents
from stages.serving.events import EventStream
from stages.serving.guard import Guard, error_answer, refused
from stages.serving.jobs import Job
from stages.serving.measures import Measures
from stages.serving.pages import answer_page, form_page, question_fields, read_question
from stages.serving.refusal import Refusal, invalid
from stages.serving.schema import IdsBody, TextBody, openapi
from stages.serving.served import ServedModel, Serving, tokenizer_info
from stages.serving.settings import REQUEST_SECONDS
from stages.serving.worker import Steps, Worker


class Routes:
    """The endpoints of a model."""

    def __init__(self, serving: Serving, worker: Worker, measures: Measures) -> None:
        self._serving = serving
        self._worker = worker
        self._measures = measures
        measures.watch("memlm_waiting_requests", "Requests that wait.", lambda: worker.waiting)
        measures.watch("memlm_active_requests", "Requests under way.", lambda: worker.active)

    @property
    def _served(self) -> ServedModel:
        """The model of this moment; another generation may answer the next request."""
        return self._serving.model

    def table(self) -> list[Route]:
        """All routes."""
        return [
            Route("/", self.page),
            Route("/", self.answered_page, methods=["POST"]),
            Route("/health", self.health),
            Route("/ready", self.ready),
            Route("/metrics", self.metrics),
            Route("/openapi.json", self.schema),
            Route("/v1/models", self.models),
            Route("/v1/models/{name}", self.model),
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/tokenizer_info", self.tokenizer_info),
            Route("/tokenize", self.tokenize, methods=["POST"]),
            Route("/detokenize", self.detokenize, methods=["POST"]),
        ]

    # The server

    async def health(self, request: Request) -> Response:
        """Whether the process answers."""
        return JSONResponse({"status": "ok"})

    async def ready(self, request: Request) -> Response:
        """Whether the model takes requests."""
        if not self._worker.alive:
            raise Refusal(503, "The model takes no requests.", code="not_ready")
        return JSONResponse({"status": "ready", "model": self._served.name})

    async def metrics(self, request: Request) -> Response:
        """Figures of the process."""
        return Response(self._measures.text(), media_type="text/plain; version=0.0.4")

    async def schema(self, request: Request) -> Response:
        """The OpenAPI description of all routes."""
        return JSONResponse(openapi())

    async def models(self, request: Request) -> Response:
        """The names of the model."""
        return JSONResponse({"object": "list", "data": self._served.listing()})

    async def model(self, request: Request) -> Response:
        """One name of the model."""
        for entry in self._served.listing():
            if entry["id"] == request.path_params["name"]:
                return JSONResponse(entry)
        raise Refusal(404, "There is no model of this name.", code="model_not_found")

    # The tokenizer

    async def tokenizer_info(self, request: Request) -> Response:
        """Special tokens and sizes."""
        return JSONResponse(tokenizer_info(self._served.engine))

    async def tokenize(self, request: Request) -> Response:
        """Ids of a text."""
        body = checked(TextBody, await read_object(request))
        ids = await run_in_threadpool(self._served.engine.text.ids, body.prompt)
        longest = self._served.engine.context
        return JSONResponse({"tokens": ids, "count": len(ids), "max_model_len": longest})

    async def detokenize(self, request: Request) -> Response:
        """Text of ids."""
        body = checked(IdsBody, await read_object(request))
        size = self._served.engine.vocabulary_size
        if not all(0 <= id < size for id in body.tokens):
            raise invalid(f"tokens: ids of tokens are 0 to {size - 1:,}.", "tokens")
        text = await run_in_threadpool(self._served.engine.text.decoded, body.tokens)
        return JSONResponse({"prompt": text})

    # The page

    async def page(self, request: Request) -> Response:
        """A page with a form."""
        return form_page(self._served)

    async def answered_page(self, request: Request) -> Response:
        """The page with an answer to its form."""
        served = self._served
        question = await read_question(request, served)
        try:
            fields = question_fields(question)
            order = await run_in_threadpool(served.order, fields)
        except Refusal as refusal:
            return form_page(served, question, refusal)
        job = Job(self._worker, request, completions(served.engine, order))
        pieces = [piece async for piece in self._counted(job, order.memory)]
        return await run_in_threadpool(answer_page, served, question, pieces)

    # Completions

    async def completions(self, request: Request) -> Response:
        """Completes prompts, and scores them."""
        fields = completion_fields(await read_object(request))
        served = self._served
        order = await run_in_threadpool(served.order, fields)
        read = served.read(order.memory)
        answer = CompletionAnswer(
            served.model_name(fields), read, listed=fields.logprobs is not None
        )
        return await self._answered(request, fields, completions(served.engine, order), answer)

    async def chat(self, request: Request) -> Response:
        """Answers in a conversation."""
        fields = chat_fields(await read_object(request))
        served = self._served
        order = await run_in_threadpool(served.chat_order, fields)
        answer = ChatAnswer(
            served.model_name(fields),
            served.read(order.memory),
            listed=bool(fields.logprobs),
            top=fields.top_logprobs or 0,
        )
        return await self._answered(request, fields, completions(served.engine, order), answer)

    async def _answered(
        self, request: Request, fields: SamplingFields, strands: Iterable[Steps], answer: Answer
    ) -> Response:
        """Let the model work, and answer with what it gives."""
        job = Job(self._worker, request, strands)
        pieces = self._counted(job, answer.read["memory"])
        if not fields.stream:
            return await self._whole(pieces, answer)
        options = fields.stream_options
        return EventStream(pieces, answer, usage=options is not None and options.include_usage)

    async def _whole(self, pieces: AsyncIterator[Piece], answer: Answer) -> Response:
        parts = [piece async for piece in pieces]
        # Long lists take a while, in which others are to be answered.
        content = await run_in_threadpool(lambda: to_json(answer.whole(parts)).encode())
        return Response(content, media_type="application/json")

    async def _counted(self, job: Job, memory: str) -> AsyncGenerator[Piece]:
        """The pieces of a job, which is given up with this iterator; its tokens are counted."""
        usage = Usage()
        try:
            async for piece in job.results():
                usage.count(piece)
                yield piece
        finally:
            job.close()
            self._measures.prompt_tokens.labels(memory).inc(usage.prompt_tokens)
            self._measures.new_tokens.labels(memory).inc(usage.new_tokens)


async def not_found(_: Any, error: Exception) -> Response:
    """Handler of paths and methods that are not served."""
    assert isinstance(error, HTTPException)
    return error_answer(Refusal(error.status_code, error.detail, headers=error.headers))


def application(
    serving: Serving,
    worker: Worker,
    access: Access,
    log: Callable[[str], None],
    seconds: float = REQUEST_SECONDS,
    documents: Documents | None = None,
) -> ASGIApp:
    """The application of a model, with everything that limits requests.

    Args:
        log: writes lines about errors.
        seconds: time for a request.
        documents: changes the documents of the model's memory; None: nobody may.
    """
    measures = Measures()
    routes = Routes(serving, worker, measures).table()
    routes += DocumentRoutes(serving, access, documents, measures).table()
    handlers: Mapping[Any, Any] = {
        Refusal: refused,
        HTTPException: not_found,
        Exception: refused,
    }
    inner = Starlette(routes=routes, exception_handlers=handlers)
    # A redirection would repeat the name of the host that a request gave.
    inner.router.redirect_slashes = False
    paths = frozenset(route.path for route in routes)
    return Guard(inner, access, measures, paths, seconds, log)
