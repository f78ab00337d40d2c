"""Tokens and hosts of requests."""

from base64 import b64encode
from pathlib import Path

import pytest

from stages.errors import UsageError
from stages.serving.access import Access, read_token
from stages.serving.engine import Engine
from stages.serving.settings import ServeSettings
from tests.stages.serving.address import serving

TOKEN = "0123456789abcdef"


def token_file(folder: Path, content: str = TOKEN, mode: int = 0o600) -> Path:
    file = folder / "token"
    file.write_text(content + "\n")
    file.chmod(mode)
    return file


def test_only_who_bears_the_token_is_answered(engine: Engine) -> None:
    with serving(engine, token=TOKEN) as address:
        assert address.get("/health").status == 200
        for header in ({}, {"Authorization": "Bearer " + "x" * 16}, {"Authorization": TOKEN}):
            for path in ("/v1/models", "/metrics", "/nothing"):
                refused = address.ask("GET", path, None, header)
                assert refused.status == 401
                assert refused.headers["www-authenticate"].startswith("Basic")
        bearing = {"Authorization": f"Bearer {TOKEN}", "Host": "model.example"}
        assert address.ask("GET", "/v1/models", None, bearing).status == 200
        for password, status in ((TOKEN, 200), ("x" * 16, 401)):
            basic = b64encode(f"me:{password}".encode()).decode()
            assert address.get("/", Authorization=f"Basic {basic}").status == status
        assert address.get("/", Authorization="Basic é=").status == 401


def test_without_a_token_requests_name_this_machine(engine: Engine) -> None:
    with serving(engine) as address:
        assert address.ask("GET", "/v1/models", None, {"Host": "evil.example"}).status == 403
        for host in ("localhost", f"127.0.0.1:{address.port}", "[::1]:80"):
            assert address.ask("GET", "/v1/models", None, {"Host": host}).status == 200


def test_an_address_that_others_reach_needs_a_token(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--token-file"):
        Access.of(ServeSettings(host="0.0.0.0"))
    Access.of(ServeSettings(host="0.0.0.0", token_file=str(token_file(tmp_path))))
    Access.of(ServeSettings(host="localhost"))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o602])
def test_a_token_file_that_others_reach_is_refused(tmp_path: Path, mode: int) -> None:
    assert read_token(token_file(tmp_path)) == TOKEN
    with pytest.raises(UsageError, match="chmod 600"):
        read_token(token_file(tmp_path, mode=mode))


@pytest.mark.parametrize("content", ["", "short", "two words of a token", "a" * 600, "é" * 20])
def test_a_file_without_a_token_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(UsageError, match="holds no token"):
        read_token(token_file(tmp_path, content))


def test_a_token_file_is_a_regular_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_token(tmp_path / "none")
    with pytest.raises(UsageError, match="regular"):
        read_token(tmp_path)
