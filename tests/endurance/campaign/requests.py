"""Requests to a server of any content: each is answered, refused or dropped, and the server goes on.

No request is a failure of the server (500), and nothing of a request enters its log.
"""

import json
import socket
import time
from random import Random
from typing import Any
from urllib.parse import quote_from_bytes

from tests.endurance.campaign.case import HARMLESS, Case, Verdict, failed
from tests.endurance.campaign.mutate import TEXTS
from tests.endurance.campaign.process import Child

SERVED = ("model", "lstm", "report", "recent", "matched", "gated")
CHANGING = ("report", "matched")
"""Those whose documents may change."""
TOKEN = "the-token-of-an-admin"
REQUESTS = 12
SECONDS = 60.0
SECRET = "zqsecretzq"
"""Stands in texts of requests, and in no log."""
FIELDS: dict[str, list[Any]] = {
    "prompt": ["", "the", [], [0], [[0], [1]], [-1], [10**30], [None], {}, 5, [["a"]], [""] * 200],
    "max_tokens": [0, 1, 3, -1, 10**9, 1.5, "3", None, True],
    "temperature": [0, 0.5, 2, -1, "1", None, 1e-300, 10**400, [1]],
    "top_p": [1, 1e-9, 0, 2, None],
    "seed": [0, -5, 2**63, 2**64, "a"],
    "logprobs": [0, 5, 20, 21, -1, True],
    "stop": ["", "a", ["a"] * 20, [None], "\n", ["x" * 1000]],
    "echo": [True, False, 1, "yes"],
    "stream": [True, False, None, "no"],
    "memlm": [{}, {"memory": "none"}, {"memory": "../.."}, {"attribution": 3}, [], "none"],
    "model": ["", "none", "../model", None, 7],
    "n": [1, 2, "1"],
    "logit_bias": [{}, {"1": 100}],
}
PATHS = [
    *("/", "//", "/health", "/metrics", "/v1/models", "/v1/models/..", "/v1/models/%2e%2e%2fstore"),
    *("/../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/store/names", "/v1/completions/"),
    *("/tokenizer_info", "/" + "a" * 9000, "/%ff%fe", "/\x7f", "*", "http://evil/", "/v1\\models"),
]
HEADS = [
    b"Content-Length: 5\r\nTransfer-Encoding: chunked",
    b"Content-Length: 5\r\nContent-Length: 6",
    b"Content-Length: -1",
    b"Content-Length: 99999999999999999999",
    b"Transfer-Encoding: chunked, identity",
    b"Expect: 100-continue\r\nContent-Length: 3",
    b"Host: evil",
    b"X: " + b"a" * 70_000,
    b"X\x00: a",
    b" folded: a",
    b"Authorization: Bearer \xff",
    b"Upgrade: websocket\r\nConnection: Upgrade",
    b"Connection: close, keep-alive",
]


def bad_request(case: Case) -> Verdict:
    """A server of a model or a report, several requests to it, and its end."""
    case.world.copy(case.store)
    name = case.random.choice(SERVED)
    port = _free_port()
    words = ["serve", case.world.made[name].reference, "--port", str(port)]
    if name in CHANGING:
        token = case.folder / "token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        words += ["--admin-token-file", "token"]
    child = case.start(words)
    why = "" if _answers_within(port, child) else "did not begin"
    memory = case.world.made[name].reference.partition("/")[2].encode()
    for _ in range(0 if why else REQUESTS):
        sent = _request(case.random).replace(b"/%s/", b"/" + memory + b"/")
        case.note(f"{name}: {sent[:300]!r}")
        why = _wrong(port, sent, case.random)
        if why:
            break
    child.stop()
    ended = child.wait()
    if why:
        return failed(f"{why}; {ended.err[-300:]}")
    if ended.outside or ended.code != 143:
        return failed(f"ended with {ended.code} {ended.outside}: {ended.err[-300:]}")
    if "Traceback" in ended.err or "internal error" in ended.err:
        return failed(ended.err[-500:])
    return failed("a text stands in the log") if SECRET in ended.err else HARMLESS


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _answers_within(port: int, child: Child) -> bool:
    """Whether a server takes requests before its time is over."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and child.lives:
        if _exchanged(port, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(OK):
            return True
        time.sleep(0.05)
    return False


OK = b"HTTP/1.1 200"
FAULTS = (b"HTTP/1.1 500", b"HTTP/1.1 502")


def _wrong(port: int, sent: bytes, random: Random) -> str:
    """How the server failed at a request; empty if it did not."""
    # Some clients leave at once, and some send byte by byte.
    pieces = random.choice((1, 1, 1, 7)) if len(sent) < 1 << 16 else 1
    answer = _exchanged(port, sent, leaves=random.random() < 0.2, pieces=pieces)
    if answer.startswith(FAULTS) or b'data: {"error"' in answer:
        return f"answered {answer[:300]!r}"
    health = _exchanged(port, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return "" if health.startswith(OK) else f"was ill afterwards: {health[:100]!r}"


def _exchanged(port: int, sent: bytes, leaves: bool = False, pieces: int = 1) -> bytes:
    """The answer to some bytes, as far as it comes in a while; nothing for a client that leaves.

    Args:
        pieces: number of parts that are sent one after another.
    """
    answer = b""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
            size = max(1, -(-len(sent) // pieces))
            for start in range(0, len(sent), size):
                connection.sendall(sent[start : start + size])
                time.sleep(0.05 if pieces > 1 else 0)
            if leaves:
                return answer
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(1 << 16):
                answer += part
    except OSError:
        pass
    return answer


def _request(random: Random) -> bytes:
    kinds = (_of_fields, _of_bytes, _of_path, _of_head, _of_form, _large, _of_document)
    return random.choice((_of_fields, _of_document, *kinds))(random)


def _post(path: str, body: bytes, kind: str = "application/json", head: bytes = b"") -> bytes:
    more = head + b"\r\n" if head else b""
    first = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n".encode()
    length = b"" if b"Content-Length" in head or b"Transfer" in head else _length(body)
    return first + more + length + b"\r\n" + body


def _length(body: bytes) -> bytes:
    return f"Content-Length: {len(body)}\r\n".encode()


def _of_fields(random: Random) -> bytes:
    """A completion with some wrong fields."""
    fields: dict[str, Any] = {"prompt": f"the cat {SECRET}", "max_tokens": 2}
    for name in random.sample(list(FIELDS), random.randint(0, 3)):
        fields[name] = random.choice(FIELDS[name])
    path = random.choice(("/v1/completions", "/v1/completions", "/tokenize", "/detokenize"))
    return _post(path, json.dumps(fields).encode())


def _of_bytes(random: Random) -> bytes:
    """A body that is no strict JSON, or an odd text."""
    text = random.choice(TEXTS)
    bodies = [
        *(b"", b"null", b"[]", b"{", b'{"prompt": NaN}', b'{"prompt": "\\ud800"}', b"\xff" * 9),
        *(b"[" * 200_000, b'{"a":' * 50_000, b'{"prompt": ' + b"9" * 9000 + b"}", b"\0" * 100),
        json.dumps({"prompt": text, "max_tokens": 1, "echo": True, "logprobs": 1}).encode(),
        random.randbytes(random.randint(0, 300)),
    ]
    return _post("/v1/completions", random.choice(bodies))


def _of_path(random: Random) -> bytes:
    method = random.choice(("GET", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "G\0T"))
    path = random.choice(PATHS).encode("latin-1")
    return method.encode() + b" " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"


def _of_head(random: Random) -> bytes:
    """A request whose end two servers would see in different places, and others that are odd."""
    sent = _post("/v1/completions", b'{"prompt": "a", "max_tokens": 1}', head=random.choice(HEADS))
    return sent[: random.randint(1, len(sent))] if random.random() < 0.3 else sent


def _of_form(random: Random) -> bytes:
    fields = {
        "prompt": random.choice([SECRET.encode(), b"\xff", b"", b"a\r\nb", b"<script>"]),
        "memory": random.choice([b"none", b"../..", b""]),
        "max_tokens": random.choice([b"2", b"-1", b"nan", b"9" * 5000]),
        "temperature": random.choice([b"0", b"inf", b"1e999", b"x"]),
    }
    body = "&".join(f"{name}={quote_from_bytes(value)}" for name, value in fields.items())
    return _post("/", body.encode(), "application/x-www-form-urlencoded")


def _of_document(random: Random) -> bytes:
    """A document that is added or deleted, with odd names, texts, memories and tokens."""
    memory = random.choice([b"none", b"..", b"a%2fb", b"%00", *[b"%s"] * 6])
    path = b"/memories/" + memory + b"/documents"
    token = random.choice([b"Bearer " + TOKEN.encode()] * 5 + [b"Bearer x", b"Basic ====", b""])
    head = b"Authorization: " + token
    name = random.choice([*TEXTS, "new", "new", "new", SECRET, "../../store", "%2e%2e", 5, None])
    if random.random() < 0.4:
        quoted = quote_from_bytes(str(name).encode("utf-8", "surrogatepass"))[:5000]
        first = b"DELETE " + path + b"/" + quoted.encode() + b" HTTP/1.1\r\nHost: localhost\r\n"
        return first + head + b"\r\n\r\n"
    if random.random() < 0.2:
        number = random.choice([b"1", b"0", b"-1", b"9" * 5000, b"%ff"])
        query = random.choice([b"/jobs", b"/jobs/..", b"/jobs/0", path + b"?limit=" + number])
        return b"GET " + query + b" HTTP/1.1\r\nHost: localhost\r\n" + head + b"\r\n\r\n"
    text = random.choice([*TEXTS, f"the cat {SECRET}", f"the cat {SECRET}", 7, ["a"]])
    body = json.dumps({"name": name, "text": text}).encode()
    return _post(path.decode(), body, head=head)


def _large(random: Random) -> bytes:
    """A body of ten megabytes, or one that is shorter than it says."""
    if random.random() < 0.5:
        return _post("/v1/completions", b'{"prompt": "' + b"a" * (10 << 20) + b'"}')
    return _post("/v1/completions", b"{", head=b"Content-Length: 500")


ATTACKS = {"bad-request": bad_request}
