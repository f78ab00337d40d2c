"""The page of an address: a form, and the answer with its sources, without a script."""

import re
from collections.abc import Mapping
from urllib.parse import urlencode

import pytest

from stages.serving.engine import Engine
from tests.stages.serving.address import Address, Reply

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
PROMPT = "the cat sees\r\nthe hen <script>"


def sent(address: Address, headers: Mapping[str, str] = {}, **fields: object) -> Reply:
    return address.ask("POST", "/", urlencode(fields).encode(), {**FORM, **headers})


def test_an_answer_shows_the_text_and_the_passages_behind_it(
    address: Address, engine: Engine
) -> None:
    asked = {"prompt": PROMPT, "max_tokens": 5, "temperature": 0, "seed": 0}
    reply = sent(address, memory="small", **asked)
    html = reply.body.decode()
    prompt = PROMPT.replace("\r\n", "\n")
    text = address.complete(prompt=prompt, temperature=0, max_tokens=5).json["choices"][0]["text"]
    shown = re.search(r"<pre><span class=\"prompt\">(.*?)</span>(.*?)</pre>", html, re.S)
    assert reply.status == 200 and shown is not None
    assert "<script" not in html and "&lt;script&gt;" in shown[1]
    assert shown[2].replace("&#39;", "'") == text
    assert html.count('class="contexts"') == len(engine.text.ids(prompt)) + 5
    assert "of the datastore" in html and "train.txt" in html
    alone = sent(address, memory="none", **asked).body.decode()
    assert "of the datastore" not in alone
    assert re.search(r"<option selected>none", alone)


def test_no_other_origin_is_asked_and_none_may_ask(address: Address) -> None:
    reply = address.get("/")
    assert reply.status == 200
    policy = reply.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'") and "script" not in policy
    assert not re.search(rb"https?:|url\(|@import|<script|<link", reply.body)
    refused = sent(address, {"Origin": "http://evil.example"}, prompt="a")
    assert refused.status == 403
    own = sent(address, {"Origin": address.url}, prompt="a", max_tokens=1)
    assert own.status == 200


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"temperature": "warm"}, "temperature"),
        ({"temperature": "nan"}, "temperature"),
        ({"max_tokens": "5000"}, "max_tokens"),
        ({"memory": "other"}, "memory"),
        ({"prompt": "hen " * 99}, "at once"),
    ],
)
def test_a_wrong_value_is_said_on_the_page(
    address: Address, fields: dict[str, str], says: str
) -> None:
    reply = sent(address, **{"prompt": "a", **fields})
    assert reply.status == 400
    (note,) = re.findall(r'<p class="note">(.*?)</p>', reply.body.decode(), re.S)
    assert says in note


def test_what_is_no_form_is_refused(address: Address) -> None:
    assert address.ask("POST", "/", b"{}", {"Content-Type": "text/plain"}).status == 415
    for body in (b"prompt=%ff", "prompt=é".encode(), b"&".join([b"a=b"] * 11)):
        assert address.ask("POST", "/", body, FORM).status == 400
