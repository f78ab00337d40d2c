"""`memlm translate`: a line in, a line out, with what memory did to it."""

import io
import json

import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from tests.cli.conftest import Ended, Memlm
from tests.stages.pretrained.tiny import saved_translator
from tests.stages.small_pairs import SENTENCES, imported_translator, pair_tokens
from tests.stages.small_text import built_index

pytest.importorskip("transformers")
SURE = ("--memory", "external:k=1,temperature=0.01,lambda=0.999")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """That of a datastore of three pairs, by an untrained model that knows nothing."""
    folder = tmp_path_factory.mktemp("translate")
    store = Store(folder / "store")
    saved_translator(folder / "pretrained", "marian")
    tokens = pair_tokens(store, folder / "pretrained")
    return built_index(store, imported_translator(store, folder / "pretrained", tokens))


@pytest.fixture
def translate(memlm: Memlm, index: Artifact):
    def run(*options: object, text: bytes = b"") -> Ended:
        stdin = io.TextIOWrapper(io.BytesIO(text))
        given = ("--store", index.store.root, "--device", "cpu", *options)
        return memlm("translate", index.reference, *given, stdin=stdin)

    return run


def test_a_memory_that_is_sure_says_what_it_holds_line_by_line(translate) -> None:
    """A blank line stays blank, and a last line needs no end."""
    ended = translate(*SURE, text=b"das ist gut\n\nja\r\nzwei Hunde")
    assert ended.code == 0, ended.err
    targets = dict(SENTENCES)
    assert ended.out.split("\n") == [
        targets["das ist gut"],
        "",
        targets["ja"],
        targets["zwei Hunde"],
        "",
    ]


def test_a_line_is_translated_alike_alone_and_among_others(
    translate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches are of lines of alike length, in the order in which they came."""
    monkeypatch.setattr("stages.translation.translator.SENTENCES", (9, 9))
    lines = [*(source for source, _ in SENTENCES), "gut gut", "Hunde"] * 8
    memory = ("--memory", "external:k=3,temperature=2,lambda=0.5", "--json")
    together = translate(*memory, text="\n".join(lines).encode()).out.splitlines()
    for line, found in list(zip(lines, together, strict=True))[6:12]:
        (alone,) = translate(*memory, "--text", line).out.splitlines()
        a, b = json.loads(found), json.loads(alone)
        assert (a["source"], a["text"], a["cut"]) == (b["source"], b["text"], b["cut"])
        assert a["score"] == pytest.approx(b["score"], rel=1e-4)


def test_every_token_names_the_pair_that_gave_it(translate) -> None:
    (line,) = translate(*SURE, "--attribute", "--json", "--text", "zwei Hunde").out.splitlines()
    tokens = json.loads(line)["tokens"]
    assert "".join(token["text"] for token in tokens[:-1]) == "The dog sat."
    for token in tokens:
        assert token["probability"] > 0.9 > token["model"]
        assert (token["pair"]["source"], token["pair"]["target"]) == ("zwei Hunde", "The dog sat.")
    assert tokens[1]["pair"]["before"] == tokens[0]["text"]
    shown = translate(*SURE, "--attribute", "--text", "zwei Hunde").out
    assert shown.startswith("The dog sat.\n") and shown.count("zwei Hunde") == len(tokens)


def test_memory_that_no_step_reads_is_refused(translate) -> None:
    ended = translate("--memory", "long:size=5,theta=1,lambda=0.2", "--text", "ja")
    assert ended.code == 2, ended.err


def test_beams_and_lengths_are_what_they_are_said_to_be(translate) -> None:
    plain = ("--memory", "none", "--json", "--text", "ja")
    shortest, longest = (
        json.loads(translate(*plain, "--max-length", most).out) for most in ("0,2", "0,9")
    )
    assert shortest["cut"] and longest["cut"] and shortest["log_prob"] > longest["log_prob"]
    greedy, wide = (
        json.loads(translate(*plain, "--length-penalty", 0, "--beam", n).out) for n in (1, 30)
    )
    assert wide["log_prob"] > greedy["log_prob"]


def test_lines_before_a_bad_one_are_out(translate) -> None:
    ended = translate(*SURE, text=b"ja\nzwei \xff\nja\n")
    assert (ended.code, ended.out) == (3, "x\n")
    assert "Line 2" in ended.err and "byte 6" in ended.err


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--max-length", "2"), 2),
        (("--memory", "none", "--attribute"), 2),
        (("--memory", "knn-lm"), 2),
    ],
)
def test_what_cannot_be_done_is_said(translate, options, code) -> None:
    ended = translate(*options, "--text", "ja")
    assert (ended.code, ended.out) == (code, "")


def test_a_line_of_too_many_tokens_is_refused_once_those_before_it_are_out(
    translate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stages.generation.translate.MAX_SOURCE", 20)
    ended = translate(text=b"ja\n\n" + b"gut " * 40)
    assert ended.code == 3
    assert ended.out.count("\n") == 2
    assert "Line 3 has" in ended.err and "at most 20 are translated" in ended.err


def test_text_is_not_written_by_a_model_that_translates(memlm: Memlm, index: Artifact) -> None:
    ended = memlm("generate", index.reference, "--store", index.store.root)
    assert ended.code == 2 and f"memlm translate {index.reference}" in ended.err
