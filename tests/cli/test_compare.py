"""`memlm compare`: what it prints, what it refuses, and how it ends."""

import csv
import json
import math
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from memlm_cli.work.compare import comparison_text
from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from tests.builders.limits import limit
from tests.builders.small_commands import SMALL
from tests.cli.conftest import Memlm, largest_file
from tests.stages.comparison.made import corpus, report

TEXT = {"train": "a a b c [x]\n", "valid": "a\n", "test": "a b\nc [x]\nb\n"}
NLL_A = (1.0, 2.0, 0.5, 3.0, 1.0, 0.5, 2.0, 4.0)
NLL_B = (0.5, 2.0, 1.0, 1.0, 1.5, 0.5, 2.5, 1.0)


class Reports:
    """Reports that can be compared, and some that cannot."""

    def __init__(self, store: Store, folder: Path) -> None:
        tokens = corpus(store, folder, TEXT)
        self.tokens = tokens
        self.a = report(store, tokens, NLL_A).reference
        self.b = report(store, tokens, NLL_B, gate=[0.25] * 8).reference
        self.bare = report(
            store, tokens, NLL_A, save_token_scores=False, memory=("long:size=3,lambda=0.1",)
        )
        self.valid = report(store, tokens, [1.0, 1.0], split="valid").reference
        self.last_words = report(store, tokens, [1.0, 1.0, 1.0], score="last-word").reference
        self.infinite = report(store, tokens, [*NLL_A[:-1], 1e39], nll_lm=NLL_A).reference
        characters = corpus(store, folder, TEXT, tokenizer="char")
        self.characters = report(
            store, characters, [1.0] * characters.metrics["splits"]["test"]["tokens"]
        ).reference
        other = corpus(store, folder, {**TEXT, "test": "c b\na [x]\nb\n"})
        self.other: Artifact = report(store, other, NLL_A)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def made(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Reports:
    return Reports(Store(root), tmp_path_factory.mktemp("text"))


@pytest.mark.parametrize("option", ["html", "csv"])
def test_no_file_is_cut_where_the_disk_is_full(
    option: str, memlm: Memlm, made: Reports, root: Path, tmp_path: Path
) -> None:
    written = tmp_path / f"written.{option}"
    given = ("compare", made.a, made.b, "--store", root, "--samples", 9, f"--{option}", written)
    assert memlm(*given).code == 0
    whole = written.read_bytes()
    written.unlink()
    with largest_file(len(whole) - 1):
        ended = memlm(*given)
    assert ended.code == 5 and str(written) in ended.err
    assert not list(tmp_path.glob("*written*"))


@pytest.fixture(autouse=True)
def lines_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of some lines, each a document, that are drawn one by one."""
    limit(monkeypatch, group_tokens=1, min_units=2, min_units_of_remark=2)


def test_it_shows_how_far_it_is(
    memlm: Memlm, root: Path, made: Reports, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limit(monkeypatch, seconds_between_lines=-1.0, seconds_between_ticks=1000.0)
    monkeypatch.setattr("stages.evaluation.figures.intervals.DRAWS_AT_ONCE", 6)
    limit(monkeypatch, tokens_written=3)
    monkeypatch.setattr(
        "memlm_cli.progress.Work.line", lambda work: f"{work.done}/{work.total} {work.unit}"
    )
    ended = memlm(
        "compare", made.a, made.b, "--store", root, "--samples", 9, "--csv", tmp_path / "t.csv"
    )
    assert [line.removeprefix("compare: ") for line in ended.err.splitlines()] == [
        *(f"{done}/9 resamples" for done in (2, 4, 6, 8, 9)),
        *(f"{done}/8 tokens written" for done in (3, 6, 8)),
        f"8 tokens in {tmp_path / 't.csv'}",
    ]
    ended = memlm("compare", made.a, made.characters, "--store", root, "--samples", 9)
    assert {line.split()[-1] for line in ended.err.splitlines()} == {"resamples", "text"}


def test_it_says_which_is_better_how_surely_and_where(
    memlm: Memlm, root: Path, made: Reports
) -> None:
    ended = memlm("compare", made.a, made.b, "--store", root, "--most", 1, "--around", 1)
    assert (ended.code, ended.told) == (0, [])
    lines = ended.out.splitlines()
    assert made.a in lines[0] and made.b in lines[1]
    assert "-0.5000 nats [" in ended.out and "x 0.6065 [" in ended.out
    assert {"37.5%", "10,000", "3 documents"} <= set(
        re.findall(r"37\.5%|10,000|3 documents", ended.out)
    )
    rows = [line.split() for line in lines]
    won = lines.index("Tokens that B wins most")
    assert rows[won + 1][:5] == ["nats", "p(A)", "p(B)", "gate", "B"]
    assert rows[won + 2] == ["-3.00", "0.018", "0.37", "0.25", "2:1", rows[won + 2][5], "b[<eos>]"]
    assert re.fullmatch(r"\(test-\d\.txt\)", rows[won + 2][5])
    lost = lines.index("Tokens that B loses most")
    assert rows[lost + 2] == ["+0.50", "0.61", "0.37", "0.25", "0:2", rows[won + 2][5], "b[<eos>]"]


def test_json_holds_all_of_it(memlm: Memlm, root: Path, made: Reports) -> None:
    found = json.loads(memlm("compare", made.a, made.b, "--store", root, "--json").out)
    assert (found["a"]["reference"], found["b"]["reference"]) == (made.a, made.b)
    assert found["difference"] == -0.5 and found["paired_on"] == "tokens"
    assert {"bootstrap", "by_frequency", "by_position", "most_won", "most_lost"} <= found.keys()


def test_the_other_report_may_come_from_the_pipe(memlm: Memlm, root: Path, made: Reports) -> None:
    ended = memlm("compare", made.a, "--store", root, "--json", stdin=f"{made.b}\n")
    assert json.loads(ended.out)["b"]["reference"] == made.b
    alone = memlm("compare", made.a, "--store", root)
    assert (alone.code, "memlm compare" in alone.err) == (4, True)


def test_two_tokenizers_are_compared_by_word_and_character(
    memlm: Memlm, root: Path, made: Reports
) -> None:
    ended = memlm("compare", made.a, made.characters, "--store", root)
    assert ended.code == 0
    units = [
        line.split()[0]
        for line in ended.out.splitlines()
        if line.startswith(("word ", "character "))
    ]
    assert units == ["word", "character"] and "document:position" not in ended.out


def test_brackets_in_the_text_are_kept(memlm: Memlm, root: Path, made: Reports) -> None:
    out = memlm("compare", made.b, made.a, "--store", root).out
    assert "c [[x]]" in out


def test_the_table_of_tokens_is_written(
    memlm: Memlm, root: Path, made: Reports, tmp_path: Path
) -> None:
    ended = memlm("compare", made.a, made.b, "--store", root, "--csv", tmp_path / "tokens.csv")
    assert ended.code == 0 and "8 tokens" in ended.err
    with (tmp_path / "tokens.csv").open(newline="") as file:
        assert sum(float(line["difference"]) for line in csv.DictReader(file)) == sum(NLL_B) - sum(
            NLL_A
        )
    (tmp_path / "folder.csv").mkdir()
    for other, file in (
        (made.characters, "none.csv"),
        (made.b, "missing/none.csv"),
        (made.b, "folder.csv"),
    ):
        ended = memlm("compare", made.a, other, "--store", root, "--csv", tmp_path / file)
        assert ended.code == 2 and "csv" in ended.err and ended.out == ""
    assert (
        memlm("compare", made.a, made.b, "--store", root, "--csv", tmp_path / "tokens.csv").code
        == 0
    )


@pytest.mark.parametrize("option", ["--csv", "--html"])
def test_a_file_of_somebody_else_is_not_written_over(
    memlm: Memlm, root: Path, made: Reports, tmp_path: Path, option: str
) -> None:
    file = tmp_path / "mine"
    file.write_text("token,mine\n")
    ended = memlm("compare", made.a, made.b, "--store", root, option, file)
    assert ended.code == 2 and str(file) in ended.err and ended.out == ""
    assert file.read_text() == "token,mine\n"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("valid", "'test' and 'valid'"),
        ("last_words", "'all' and 'last-word'"),
        ("infinite", "no probability"),
    ],
)
def test_what_cannot_be_paired_is_refused(
    memlm: Memlm, root: Path, made: Reports, name: str, said: str
) -> None:
    ended = memlm("compare", made.a, getattr(made, name), "--store", root)
    assert ended.code == 4 and ended.out == ""
    assert said in ended.err and getattr(made, name) in ended.err


def test_the_model_alone_can_be_compared_where_the_whole_is_infinite(
    memlm: Memlm, root: Path, made: Reports
) -> None:
    assert memlm("compare", made.a, made.infinite, "--store", root, "--reading", "model").code == 0


def test_a_report_is_not_compared_with_itself(memlm: Memlm, root: Path, made: Reports) -> None:
    ended = memlm("compare", made.a, Store(root).get(made.a).path, "--store", root)
    assert (ended.code, ended.out) == (2, "")
    assert made.a in ended.err


def test_other_tokens_are_refused_with_both_names(memlm: Memlm, root: Path, made: Reports) -> None:
    ended = memlm("compare", made.a, made.other.reference, "--store", root)
    assert ended.code == 4
    names = (
        made.a,
        made.other.reference,
        made.tokens.reference,
        made.other.input("tokens").reference,
    )
    assert all(name in ended.err for name in names)


@pytest.mark.parametrize("swapped", [False, True])
def test_a_report_without_token_scores_is_refused(
    memlm: Memlm, root: Path, made: Reports, swapped: bool
) -> None:
    both = [made.a, made.bare.reference]
    ended = memlm("compare", *(both[::-1] if swapped else both), "--store", root)
    assert ended.code == 4
    assert made.bare.reference in ended.err
    assert "--save-token-scores" in ended.err


def test_what_is_no_report_is_refused(memlm: Memlm, root: Path, made: Reports) -> None:
    ended = memlm("compare", made.a, made.tokens.reference, "--store", root)
    assert ended.code == 4
    assert memlm("compare", made.a, "report/000000000000", "--store", root).code == 4


@pytest.mark.parametrize(
    "options",
    [
        *(["--confidence", value] for value in ("0", "1", "nan", "-0.5", "much")),
        *(["--samples", value] for value in ("0", "-3", "few")),
        *([option, "-1"] for option in ("--most", "--around", "--seed")),
        ["--block-tokens", "0"],
        ["--block-tokens", "99999999999999999999999"],
        ["--samples", "99999999999999999999999"],
        ["--reading", "memory"],
        ["--unknown"],
    ],
)
def test_bad_usage_is_told_before_anything_is_read(
    memlm: Memlm, tmp_path: Path, options: list[str]
) -> None:
    ended = memlm("compare", "report/none", "report/none", "--store", tmp_path, *options)
    assert ended.code == 2 and options[0] in ended.err + "--confidence" * (
        "confidence" in ended.err
    )


def test_real_reports(memlm: Memlm, text: Path, tmp_path: Path) -> None:
    """Differences are those of the reports themselves; the command that is named makes what was
    missing.
    """
    tokens = memlm("tokenize", "--train", text, "--test", text, "--documents", "line").reference
    model = memlm("train", tokens, *SMALL).reference
    plain = memlm("evaluate", model).reference
    memory = ["--memory", "long:size=9,theta=0.5,lambda=0.3"]
    bare = memlm("evaluate", model, *memory, "--set", "save_token_scores=false").reference
    refused = memlm("compare", plain, bare)
    assert refused.code == 4
    named = shlex.split(refused.err.strip()[refused.err.index("memlm evaluate") :])
    cache = memlm(*named[1:]).reference
    found = json.loads(memlm("compare", plain, cache, "--json").out)
    store = Store(tmp_path / "store")
    assert store.get(cache).config == {**store.get(bare).config, "save_token_scores": True}
    rows = [store.get(reference).metrics["rows"][-1] for reference in (plain, cache)]
    assert found["difference"] == pytest.approx(rows[1]["nll"] - rows[0]["nll"], abs=1e-6)
    assert found["perplexity_ratio"] == pytest.approx(
        rows[1]["perplexity"] / rows[0]["perplexity"], rel=1e-6
    )
    low, high = found["interval"]
    assert low < found["difference"] < high and found["bootstrap"]["units"] == 36
    in_buckets = [(b["tokens"], b["nll_b"]) for b in found["by_frequency"]["buckets"]]
    told = store.get(cache).metrics["frequency_buckets"]
    assert in_buckets == [
        (bucket["tokens"], pytest.approx(nll))
        for bucket, nll in zip(told["buckets"], told["rows"][1]["nll"], strict=True)
    ]
    alone = json.loads(memlm("compare", plain, cache, "--reading", "model", "--json").out)
    assert alone["difference"] == 0 and math.isfinite(alone["nll_a"])


def test_a_comparison_loads_no_torch(root: Path, made: Reports) -> None:
    program = (
        "import sys, tests.stages.comparison.made\n"
        "from memlm_cli.app import main\n"
        f"code = main(['compare', '{made.a}', '{made.b}', '--store', {str(root)!r}])\n"
        "sys.exit(code or 'torch' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True).returncode == 0


def test_what_would_move_the_cursor_is_spelled_out(memlm: Memlm, root: Path, made: Reports) -> None:
    found = json.loads(memlm("compare", made.a, made.b, "--store", root, "--json").out)
    found["most_won"][0] |= {"before": "\x1b[31mred\r\n", "text": " \t ", "after": ""}
    assert "\\x1b[31mred\\r\\n[ \\t ]" in comparison_text(found)
