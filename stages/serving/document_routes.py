"""Routes that list, add and delete the documents of a memory; all need the admin token."""

from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from stages.serving.access import Access
from stages.serving.bodies import checked, read_object
from stages.serving.documents import Documents
from stages.serving.engine import NONE
from stages.serving.ledger import JobRecord
from stages.serving.measures import Measures
from stages.serving.refusal import Refusal, invalid
from stages.serving.schema import DocumentBody
from stages.serving.served import Serving
from stages.serving.settings import MAX_NAMES

LISTED = 1000
"""Documents in a list if a request does not say how many."""


class DocumentRoutes:
    """The endpoints of documents and jobs."""

    def __init__(
        self,
        serving: Serving,
        access: Access,
        documents: Documents | None,
        measures: Measures,
    ) -> None:
        """Args:
        documents: None: nobody may change them.
        """
        self._serving = serving
        self._access = access
        self._documents = documents
        if documents is None:
            return

        def hidden() -> float:
            return sum(rows.number for rows in serving.model.engine.hidden.values())

        measures.watch(
            "memlm_generation",
            "Changes of the documents so far.",
            lambda: serving.model.engine.generation,
        )
        measures.watch("memlm_hidden_rows", "Rows of deleted documents.", hidden)

    def table(self) -> list[Route]:
        """All routes."""
        documents = "/memories/{memory}/documents"
        return [
            Route(documents, self.listing),
            Route(documents, self.add, methods=["POST"]),
            Route(documents + "/{name:path}", self.delete, methods=["DELETE"]),
            Route("/jobs", self.jobs),
            Route("/jobs/{id}", self.job),
        ]

    async def listing(self, request: Request) -> Response:
        """Documents in the order of their names."""
        documents = self._of_memory(request)
        limit = _limit(request.query_params.get("limit"))
        after = request.query_params.get("after", "")
        listed = await run_in_threadpool(documents.listing, after, limit)
        content = {"object": "list", "data": listed, "generation": documents.content.generation}
        return JSONResponse(content)

    async def add(self, request: Request) -> Response:
        """Add a document."""
        documents = self._of_memory(request)
        body = checked(DocumentBody, await read_object(request))
        return _accepted(await run_in_threadpool(documents.add, body.name, body.text))

    async def delete(self, request: Request) -> Response:
        """Delete all documents of a name."""
        documents = self._of_memory(request)
        return _accepted(await run_in_threadpool(documents.delete, request.path_params["name"]))

    async def jobs(self, request: Request) -> Response:
        """Jobs that have not ended, and the latest that have."""
        jobs = self._admitted(request).content.jobs
        return JSONResponse({"object": "list", "data": [_described(job) for job in jobs]})

    async def job(self, request: Request) -> Response:
        """One job, with its receipt."""
        job = self._admitted(request).content.job(request.path_params["id"])
        if job is None:
            raise Refusal(404, "There is no job of this id.", code="job_not_found")
        return JSONResponse({**_described(job), "receipt": job.receipt})

    def _of_memory(self, request: Request) -> Documents:
        """The documents of the memory that a request names. Raises: Refusal if there are none."""
        documents = self._admitted(request)
        memory = request.path_params["memory"]
        if memory == NONE or memory not in self._serving.model.memories:
            raise Refusal(404, "There is no memory of this name.", code="memory_not_found")
        return documents

    def _admitted(self, request: Request) -> Documents:
        """The documents, for a request that bears the admin token."""
        self._access.check_admin(request.headers.raw)
        assert self._documents is not None, "without documents, there is no admin token"
        return self._documents


def _limit(given: str | None) -> int:
    """The length of a list. Raises: Refusal for anything but a number in its range."""
    if given is None:
        return LISTED
    if not (given.isascii() and given.isdigit() and 1 <= int(given[:6]) <= MAX_NAMES):
        raise invalid(f"limit: a number from 1 to {MAX_NAMES:,} is needed.", "limit")
    return int(given[:6])


def _accepted(job: JobRecord) -> Response:
    """The answer to a change that is on the disk."""
    return JSONResponse(_described(job), 202, {"Location": f"/jobs/{job.id}"})


def _described(job: JobRecord) -> dict[str, Any]:
    described = job.model_dump(mode="json", exclude={"receipt"})
    return {"object": "job", **described}
