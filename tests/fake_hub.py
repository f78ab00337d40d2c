"""A hub on this machine, with the parts of the real one's interface that data sets and models are
fetched by.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """Answers about some repositories, each request anew."""

    repositories: Mapping[str, Mapping[str, bytes]]
    gated: Collection[str]
    refused: Mapping[str, int]

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        path = unquote(urlsplit(self.path).path)
        files = self.repositories["/".join(path.split("/")[3:5])]
        self._json(
            [
                _entry(name, files[name])
                for name in files
                if name in unquote(asked.replace("+", " "))
            ]
        )

    def log_message(self, *_: Any) -> None: ...

    def _answer(self, body: bool) -> None:
        parts = unquote(urlsplit(self.path).path).strip("/").split("/")
        # api/models/NAME/... and api/datasets/NAME/... list files; NAME/resolve/... and
        # datasets/NAME/... hold them
        parts = parts[2:] if parts[0] == "api" else parts[parts[0] == "datasets" :]
        name, rest = "/".join(parts[:2]), parts[2:]
        if name in self.refused:
            return self._refuse(self.refused[name])
        if name not in self.repositories:
            return self._refuse(404, "RepoNotFound")
        files = self.repositories[name]
        if rest[:1] == ["resolve"]:
            if name in self.gated:
                return self._refuse(403, "GatedRepo")
            path = "/".join(rest[2:])
            return (
                self._file(files[path], body)
                if path in files
                else self._refuse(404, "EntryNotFound")
            )
        if rest[:1] == ["revision"] and "/".join(rest[1:]) not in (
            "main",
            COMMIT,
            "refs/convert/parquet",
        ):
            return self._refuse(404, "RevisionNotFound")
        if rest[:1] == ["tree"]:
            return self._json(
                _listed(files, "/".join([*rest[2:], ""]), "recursive=true" in self.path.lower())
            )
        self._json({"id": name, "sha": COMMIT, "siblings": [{"rfilename": file} for file in files]})

    def _json(self, content: Any) -> None:
        self._send(json.dumps(content).encode(), {"Content-Type": "application/json"})

    def _file(self, content: bytes, body: bool) -> None:
        etag = hashlib.sha256(content).hexdigest()
        self._send(content, {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}, body)

    def _send(self, content: bytes, headers: Mapping[str, str], body: bool = True) -> None:
        self.send_response(200)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def _refuse(self, status: int, code: str = "") -> None:
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextmanager
def serving(
    repositories: Mapping[str, Mapping[str, bytes]],
    gated: Collection[str] = (),
    refused: Mapping[str, int] = {},
) -> Iterator[str]:
    """The address of a hub with some repositories, files by their paths.

    Args:
        gated: those whose files need a permission.
        refused: names that are answered by one status, without a word.
    """
    served = type(
        "Served", (Hub,), {"repositories": repositories, "gated": gated, "refused": refused}
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), served)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _listed(files: Mapping[str, bytes], below: str, recursive: bool) -> list[dict[str, Any]]:
    """What lies below a folder, whose path ends in a slash or is empty."""
    inside = [name for name in files if name.startswith(below)]
    folders = {
        name[: place + len(below)] for name in inside if (place := name[len(below) :].find("/")) > 0
    }
    own = [name for name in inside if recursive or "/" not in name[len(below) :]]
    entries = [_entry(name, files[name]) for name in own]
    return entries + [
        {"type": "directory", "path": path, "oid": "0" * 40} for path in sorted(folders)
    ]


def _entry(path: str, content: bytes) -> dict[str, Any]:
    return {
        "type": "file",
        "path": path,
        "size": len(content),
        "oid": hashlib.sha1(content).hexdigest(),
    }
