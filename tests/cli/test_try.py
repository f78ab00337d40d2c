"""`memlm try`: from a text to a page, by commands that are said and can be typed."""

import base64
import json
import os
import random
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

from memlm_cli.work.try_text import _say_of_time_left
from pipelines.recipe import load_recipe
from pipelines.trial_words import Plan
from stages.machine import usable_cores
from tests.cli.conftest import Memlm

WORDS = ["cat", "dog", "fox", "hen", "cow"]
QUICK = ["--set", "model.steps=2", "--set", "trime.steps=2"]


LAOZI = (
    "道可道，非常道。名可名，非常名。无名天地之始，有名万物之母。故常无欲，以观其妙；常有欲，以观其徼。此两者，同出而异名，同谓之玄。"
    "玄之又玄，众妙之门。天下皆知美之为美，斯恶已。皆知善之为善，斯不善已。故有无相生，难易相成，长短相较，高下相倾，音声相和，前后相随。"
    "是以圣人处无为之事，行不言之教；万物作焉而不辞，生而不有。为而不恃，功成而弗居。夫唯弗居，是以不去。不尚贤，使民不争；"
    "不贵难得之货，使民不为盗；不见可欲，使心不乱。天地不仁，以万物为刍狗；圣人不仁，以百姓为刍狗。天地之间，其犹橐籥乎？"
    "虚而不屈，动而愈出。多言数穷，不如守中。谷神不死，是谓玄牝。玄牝之门，是谓天地根。绵绵若存，用之不勤。天长地久。"
    "上善若水。水善利万物而不争，处众人之所恶，故几于道。居善地，心善渊，与善仁，言善信，正善治，事善能，动善时。夫唯不争，故无尤。"
)
"""Sentences of the first eight chapters of the Daodejing; text without a space."""


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """Some paragraphs in which words repeat."""
    path = tmp_path / "book.txt"
    lines = [
        f"the {a} sees the {b} and the {c} runs\n\n" for a in WORDS for b in WORDS for c in WORDS
    ]
    path.write_text("".join(lines), encoding="utf-8")
    return path


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Budgets of a few steps; a machine of a speed that never changes; no browser."""
    monkeypatch.chdir(tmp_path)
    for name, value in {"FEWEST_BYTES": 2_000, "FEWEST_SCORED": 50, "STAGE": 0}.items():
        monkeypatch.setattr(f"pipelines.trial_budget.{name}", value)
    for module in ("pipelines.trial_planning", "memlm_cli.work.try_text"):
        monkeypatch.setattr(f"{module}.FEWEST_BYTES", 2_000)
    monkeypatch.setattr("stages.training.speed.training_speed", lambda *_: 1_000.0)
    monkeypatch.setattr("memlm_cli.work.try_text.system_load", lambda: 0.0)
    monkeypatch.setattr("memlm_cli.work.try_text.time.monotonic", lambda: 0.0)
    monkeypatch.setattr("webbrowser.open", lambda _: pytest.fail("a browser was opened"))


def said_commands(err: str) -> list[list[str]]:
    return [shlex.split(line)[2:] for line in err.splitlines() if line.startswith("$ memlm ")]


@pytest.mark.usefixtures("small")
def test_a_text_becomes_a_page_and_every_command_is_said(memlm: Memlm, book: Path) -> None:
    ended = memlm("try", book, "--minutes", 2, "--output", "page.html", *QUICK)
    assert ended.code == 0, ended.err
    assert ended.out == "page.html\n"
    assert "<html" in Path("page.html").read_text("utf-8")
    assert all(row in ended.err for row in ("plain", "knn-lm then neural-cache", "trime-long"))
    commands = said_commands(ended.err)
    assert [words[0] for words in commands] == [
        *("tokenize", "train", "build-datastore", "build-index", "evaluate"),
        *("train", "evaluate", "report"),
    ]
    for words in commands:
        again = memlm(*words)
        assert again.code == 0, again.err
        assert "cached" in again.err or words[0] == "report"
    (line,) = (line for line in ended.err.splitlines() if ": memlm inspect " in line)
    shown = memlm(*shlex.split(line.partition(": memlm ")[2]))
    assert (shown.code, "gain" in shown.out) == (0, True), shown.err


@pytest.mark.usefixtures("small")
def test_the_text_that_comes_along_is_tried_as_ones_own(memlm: Memlm) -> None:
    ended = memlm("try", "builtin:pydocs", "--minutes", 0.3, "--output", "page.html", *QUICK[:2])
    assert (ended.code, ended.out) == (0, "page.html\n"), ended.err
    assert all(
        row in ended.err for row in ("plain", "neural-cache", "knn-lm", "knn-lm then neural-cache")
    )
    page = Path("page.html").read_text("utf-8")
    assert re.search(r"Text: \w.*: train ", page)
    assert re.search(r"\d+ of \d+\b.*\bkB\b", page)


@pytest.mark.usefixtures("small")
def test_text_without_spaces_is_tried_and_nothing_is_said_of_words(
    memlm: Memlm, tmp_path: Path
) -> None:
    sentences, draw = re.findall(".+?[。？]", LAOZI), random.Random(0)
    paragraphs = ("".join(draw.sample(sentences, 8)) for _ in range(60))
    learnt = ["--set", "model.steps=30"]
    (tmp_path / "道德经.txt").write_text("\n\n".join(paragraphs), encoding="utf-8")
    ended = memlm("try", tmp_path / "道德经.txt", "--minutes", 1, "--output", "page.html", *learnt)
    assert ended.code == 0, ended.err
    for page in (False, True):
        said = " ".join((Path("page.html").read_text("utf-8") if page else ended.err).split())
        assert "<unk>" not in said and "道德经" in said
        assert "bits/char" in said
    assert not re.search(r"^ +perplexity.*word perplexity", ended.err, re.M)
    (line,) = (line for line in ended.err.splitlines() if ": memlm inspect " in line)
    shown = memlm(*shlex.split(line.partition(": memlm ")[2]))
    assert shown.code == 0 and re.search("[一-鿿]", shown.out), shown.err
    assert not re.search("[\u00a1-\u017f]", shown.out)  # bytes of a character are no letters


@pytest.mark.usefixtures("small")
def test_the_page_is_opened_at_a_terminal_with_a_display(
    memlm: Memlm, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: not opened.append(address))
    monkeypatch.setattr("memlm_cli.work.try_text.on_terminal", lambda: True)
    monkeypatch.setattr("sys.platform", "linux")
    arguments = ["try", book, "--minutes", 0.3, "--output", "page.html", *QUICK[:2]]
    for display, more in ((":0", []), (":0", ["--no-open"]), ("", [])):
        for name in ("DISPLAY", "WAYLAND_DISPLAY"):
            monkeypatch.setenv(name, display)
        ended = memlm(*arguments, *more)
        assert (ended.code, ended.out) == (0, "page.html\n"), ended.err
    assert opened == [
        Path("page.html").resolve().as_uri()
    ]  # once: not with --no-open, nor without a display


@pytest.mark.usefixtures("small")
def test_the_machine_is_timed_with_the_settings_that_are_trained_with(
    memlm: Memlm, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = []
    monkeypatch.setattr(
        "stages.training.speed.training_speed", lambda config, *_: timed.append(config) or 1_000.0
    )
    assert memlm("try", book, "--minutes", 2, "--dry-run").code == 0
    (recipe,) = Path("store/trials").glob("*.toml")
    trained = load_recipe(recipe, {"train": ["a.txt"]}, {}).config("model")
    assert [(one.batch_tokens, one.segment_length) for one in timed] == [
        (trained.batch_tokens, trained.segment_length)
    ]


@pytest.mark.usefixtures("small")
def test_the_machine_is_timed_with_the_types_of_the_part_that_is_tried(
    memlm: Memlm, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def speed(_config: object, types: int, *_: object) -> float:
        timed.append(types)
        return 1_000.0 * 64 / types

    timed: list[int] = []
    monkeypatch.setattr("stages.text.survey.BPE_VOCABULARIES", (16, 1024))
    monkeypatch.setattr("stages.training.speed.training_speed", speed)
    ended = memlm("try", book, "--minutes", 0.1, "--dry-run")
    assert ended.code == 0, ended.err
    (planned,) = re.findall(r"vocabulary of (\d+) types", ended.err)
    assert timed == [128, int(planned)]
    assert f"at {1_000 * 64 / int(planned):,.0f} tokens a second" in ended.err


@pytest.mark.usefixtures("small")
def test_the_same_command_goes_on_however_fast_the_machine_is_now(
    memlm: Memlm, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("stages.evaluation.work.EvaluateWork.open", interrupted)
        first = memlm("try", book, "--minutes", 2, *QUICK)
    assert first.code == 130
    monkeypatch.setattr("stages.training.speed.training_speed", lambda *_: 9_999.0)
    again = memlm("try", book, "--minutes", 2, *QUICK)
    assert again.code == 0, again.err
    before = "(--replan "
    assert (before in first.err, before in again.err) == (False, True)
    assert said_commands(again.err)[:4] == said_commands(first.err)[:4]
    assert len(re.findall(r" cached \(", again.err)) == 4
    recipe = next(line for line in again.err.splitlines() if ": memlm run " in line)
    last = memlm(*shlex.split(recipe.partition(": memlm ")[2]), *QUICK)
    assert last.code == 0 and "made" not in last.err


@pytest.mark.usefixtures("small")
def test_a_plan_is_made_anew_where_that_is_asked_for(
    memlm: Memlm, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tried(*more: str) -> tuple[Path, Path, bytes]:
        ended = memlm("try", book, "--minutes", 0.08, "--dry-run", *more)
        assert ended.code == 0, ended.err
        (named,) = re.findall(r"this is a recipe: memlm run (\S+) --train (\S+)", ended.err)
        return Path(named[0]), Path(named[1]), Path(named[1]).read_bytes()

    first = tried()
    monkeypatch.setattr("stages.training.speed.training_speed", lambda *_: 1_300.0)
    assert tried() == first
    anew = tried("--replan")
    assert anew[0] == first[0] and len(anew[2]) > len(first[2])
    assert tried() == anew
    assert not first[1].exists()  # the part that was tried before


@pytest.mark.usefixtures("small")
def test_a_part_of_many_records_is_from_all_over_the_text_with_their_names(
    memlm: Memlm, book: Path, tmp_path: Path
) -> None:
    poems = book.read_text("utf-8").split("\n\n")
    records = [
        {"id": n, "title": f"poem {n}", "text": "\n\n".join(poems[n : n + 2])}
        for n in range(len(poems) - 1)
    ]
    (tmp_path / "poems.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    ended = memlm("try", tmp_path / "poems.jsonl", "--minutes", 0.1, "--dry-run")
    assert ended.code == 0, ended.err
    (part,) = re.findall(r"--train (\S+)", ended.err)
    taken = [json.loads(line) for line in Path(part).read_text("utf-8").splitlines()]
    for record in taken:
        assert records[record["id"]]["title"] == record["title"]
        assert record["text"] and record["text"] in records[record["id"]]["text"]
    numbers = sorted({record["id"] for record in taken})
    assert numbers[0] < 0.1 * len(records) and numbers[-1] > 0.9 * len(records)
    assert f"try: {len(numbers)} of {len(records)} files or records, drawn at random" in ended.err
    assert re.fullmatch(r"poems-[\d.]+kB-of-[\d.]+kB\.jsonl", Path(part).name)


@pytest.mark.usefixtures("small")
def test_of_large_documents_windows_from_anywhere_are_read_and_ten_or_more_are_tested(
    memlm: Memlm, tmp_path: Path
) -> None:
    draw = random.Random(0)
    texts = ["".join(f"the {draw.choice(WORDS)} sees {n}\n" for _ in range(200)) for n in range(60)]
    (tmp_path / "long.jsonl").write_text(
        "".join(json.dumps({"id": n, "text": t}) + "\n" for n, t in enumerate(texts))
    )
    written = ["try", tmp_path / "long.jsonl", "--minutes", 1, "--output", "page.html"]
    ended = memlm(*written, *QUICK[:2])
    assert ended.code == 0, ended.err
    (part,) = re.findall(r"--train (\S+/long-\S+\.jsonl)", ended.err)
    taken = [json.loads(line) for line in Path(part).read_text("utf-8").splitlines()]
    for record in taken:
        assert record["text"] in texts[record["id"]] and record["text"].endswith("\n")
    begun = [texts[record["id"]].index(record["text"]) for record in taken]
    assert sum(place == 0 for place in begun) < 0.2 * len(begun), "heads are no larger share"
    for told in (ended.err, Path("page.html").read_text("utf-8")):
        assert re.search(r"\bof 60\b.*\bat random\b.*\bwindows of at most [\d.]+ B\b", told)
    counts = [
        json.loads(file.read_text())["metrics"]
        for file in Path("store/tokens").glob("*/manifest.json")
    ]
    assert [one["splits"]["test"]["documents"] >= 10 for one in counts] == [True]
    last = [record["id"] for record in taken[-10:]]
    assert min(last) < 20 and max(last) >= 40  # from all over the text


def test_a_text_that_cannot_be_cut_is_told_before_the_machine_is_timed(
    memlm: Memlm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "stages.training.speed.training_speed", lambda *_: pytest.fail("the machine was timed")
    )
    (tmp_path / "line.txt").write_text("all in one line " * 5_000)
    ended = memlm("try", tmp_path / "line.txt")
    assert ended.code == 3


def test_minutes_that_are_over_already_are_told_before_the_machine_is_timed(
    memlm: Memlm, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("pipelines.trial_budget", "memlm_cli.work.try_text"):
        monkeypatch.setattr(f"{module}.FEWEST_BYTES", 2_000)
    monkeypatch.setattr(
        "stages.training.speed.training_speed", lambda *_: pytest.fail("the machine was timed")
    )
    ended = memlm("try", book, "--minutes", 1e-9)
    assert (ended.code, "--minutes 1e-09" in ended.err) == (2, True), ended.err


@pytest.mark.usefixtures("small")
def test_a_machine_is_timed_for_as_short_as_a_refusal_needs(
    memlm: Memlm, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    monkeypatch.setattr(
        "stages.training.speed.training_speed",
        lambda *given: asked.append(given[-1]) or given[-1] * 0.9,
    )
    ended = memlm("try", book, "--minutes", 2)
    assert (ended.code, len(asked)) == (2, 1), ended.err
    assert f"at {asked[0] * 0.9:,.0f} tokens a second" in ended.err


@pytest.mark.usefixtures("small")
def test_seeds_share_the_time_and_end_with_means(memlm: Memlm, book: Path) -> None:
    alone = memlm("try", book, "--minutes", 2, "--dry-run", *QUICK)
    ended = memlm("try", book, "--minutes", 4, "--seeds", 2, "--output", "page.html", *QUICK)
    assert ended.code == 0, ended.err
    plans = [
        [line for line in err.splitlines() if line.startswith("try: a model")]
        for err in (alone.err, ended.err)
    ]
    assert plans[0] == plans[1]
    assert "2 seeds" in ended.err
    table = ended.err[ended.err.index("report: 2 runs") :]
    assert "seeds 0, 1" in table
    assert 'aria-label="Means over seeds"' in Path("page.html").read_text("utf-8")
    trained = [words for words in said_commands(ended.err) if words[0] == "train"]
    assert {words[words.index("--seed") + 1] for words in trained if "--seed" in words} >= {"1"}
    (recipe,) = [line for line in ended.err.splitlines() if ": memlm run " in line]
    again = memlm(*shlex.split(recipe.partition(": memlm ")[2]), *QUICK)
    assert again.code == 0 and "made" not in again.err
    assert memlm("try", book, "--seeds", 0).code == 2


@pytest.mark.usefixtures("small")
def test_a_part_of_a_long_text_is_tried_where_there_is_no_time_for_all(
    memlm: Memlm, book: Path
) -> None:
    ended = memlm("try", book, "--minutes", 0.1, "--dry-run")
    assert ended.code == 0, ended.err
    (part,) = re.findall(r"--train (\S+\.jsonl)", ended.err)
    lines = Path(part).read_text("utf-8").splitlines()
    windows = [json.loads(line)["text"] for line in lines]
    whole = book.read_text("utf-8")
    assert sum(map(len, windows)) < 0.8 * len(whole)
    places = [whole.index(window) for window in windows]
    assert min(places) < 0.1 * len(whole) and max(places) > 0.9 * len(whole)
    assert re.fullmatch(r"book-[\d.]+kB-of-[\d.]+kB\.jsonl", Path(part).name)
    assert "try: windows of at most" in ended.err
    assert ended.out.count("would run") >= 5


@pytest.mark.usefixtures("small")
def test_the_text_of_a_table_stands_in_the_column_that_is_named(
    memlm: Memlm, book: Path, tmp_path: Path
) -> None:
    poems = book.read_text("utf-8").split("\n\n")
    (tmp_path / "poems.csv").write_text(
        "\n".join(["number,poem", *(f"7,{poem}" for poem in poems)])
    )
    refused = memlm("try", tmp_path / "poems.csv", "--minutes", 2)
    assert refused.code == 3 and "--column NAME" in refused.err
    refused = memlm("try", book, "--column", "poem", "--minutes", 2)
    assert refused.code == 2 and "--column is for" in refused.err

    # All of the table, then a part of it, which is a file of its own.
    named = ["--column", "poem", "--output", "page.html", *QUICK]
    whole = memlm("try", tmp_path / "poems.csv", "--minutes", 2, *named)
    assert whole.code == 0, whole.err
    assert "--column" in said_commands(whole.err)[0]
    part = memlm("try", tmp_path / "poems.csv", "--minutes", 0.1, *named[:2], "--dry-run")
    assert part.code == 0, part.err
    (drawn,) = re.findall(r"--train (\S+)", part.err)
    texts = [json.loads(line)["text"] for line in Path(drawn).read_text("utf-8").splitlines()]
    assert texts and all(text in book.read_text("utf-8") for text in texts)


@pytest.mark.usefixtures("small")
def test_a_part_of_several_files_is_from_each(memlm: Memlm, book: Path) -> None:
    other = book.with_name("other.txt")
    other.write_text("\n".join(reversed(book.read_text("utf-8").splitlines())), encoding="utf-8")
    ended = memlm("try", book, other, "--minutes", 0.1, "--dry-run")
    assert ended.code == 0, ended.err
    (part,) = re.findall(r"--train (\S+/book-and-1-more-\S+)", ended.err)
    lines = Path(part).read_text("utf-8").splitlines()
    assert {json.loads(line)["title"] for line in lines} == {"book.txt", "other.txt"}
    assert "2 of 2 files or records" in ended.err and "other windows" in ended.err


@pytest.mark.parametrize(
    ("taken", "speed", "advice"),
    [(290, 1_300, "--replan"), (290, 1_100, "--minutes 20 "), (310, 1_300, None)],
)
def test_where_half_of_the_time_is_left_the_cause_is_said_with_what_uses_it(
    taken: float, speed: float, advice: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = Plan(said=[], speed=1_000, seconds=540)
    _say_of_time_left(taken, 10, speed, plan)
    said = capsys.readouterr().err
    assert bool(said) == (advice is not None)
    for possible in ("--replan", "--minutes"):
        assert (possible in said) == (advice is not None and advice.startswith(possible))
    assert advice is None or advice in said


@pytest.mark.usefixtures("small")
def test_a_busy_machine_is_said_to_be_one(
    memlm: Memlm, book: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = ["try", book, "--minutes", 2, "--dry-run"]
    memlm(*planned)
    quiet = memlm(*planned).err.splitlines()
    monkeypatch.setattr("memlm_cli.work.try_text.system_load", lambda: 1.5 + usable_cores())
    (more,) = set(memlm(*planned).err.splitlines()) - set(quiet)
    assert f"{1.5 + usable_cores()}" in more


@pytest.mark.usefixtures("small")
def test_a_plan_shows_what_was_measured_of_the_machine(memlm: Memlm, book: Path) -> None:
    ended = memlm("plan", "try", book, "--minutes", 2)
    assert ended.code == 0, ended.err
    (said,) = re.findall(r"try: about ([\d.]+) s, at", ended.err)
    assert f": about {said} s on" in ended.out


@pytest.mark.usefixtures("small")
def test_shares_of_the_text_are_as_they_are_asked_for(memlm: Memlm, book: Path) -> None:
    ended = memlm("try", book, "--minutes", 2, "--split", "0.6,0.1,0.3", "--dry-run")
    assert "30%" in ended.err and "10%" in ended.err
    (recipe,) = Path("store/trials").glob("*.toml")
    assert tomllib.loads(recipe.read_text())["stages"]["tokens"]["settings"]["split"] == [
        0.6,
        0.1,
        0.3,
    ]
    assert memlm("try", book, "--minutes", 2, "--dry-run").code == 0
    assert len(list(Path("store/trials").glob("*.toml"))) == 2, "another work"


@pytest.mark.usefixtures("small")
def test_a_part_is_told_with_the_minutes_for_all_and_the_script_of_its_page_runs(
    memlm: Memlm, book: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[float, float, float, Plan]] = []
    monkeypatch.setattr(
        "memlm_cli.work.try_text._say_of_time_left", lambda *given: asked.append(given)
    )
    ended = memlm("try", book, "--minutes", 0.1, "--output", "page.html", *QUICK[:2])
    assert ended.code == 0, ended.err
    (minutes,) = set(
        re.findall(r"try: --minutes (\d+) would be enough for all of the text", ended.err)
    )
    page = Path("page.html").read_text("utf-8")
    assert all(part in page for part in (f"--minutes {minutes} ", " 96 tokens back"))
    memlm("try", book, "--minutes", 0.1, "--output", "page.html", *QUICK[:2])
    (told,) = asked  # once: nothing is advised where all was made before
    assert (told[1], told[3].speed) == (0.1, 1_000.0)
    assert 0 < told[3].seconds <= 6
    enough = memlm("try", book, "--minutes", minutes, "--dry-run").err
    assert "would be enough" not in enough and " of text" not in enough
    assert re.search(r"Text: book\.txt: train [\d,]+,", page)
    assert re.search(r"windows of at most .*at random.*: [\d.]+ kB of [\d.]+ kB of text", page)
    (encoded,) = re.findall(
        r'download="reproduce.sh" href="data:text/x-shellscript;base64,([^"]+)"', page
    )
    (tmp_path / "reproduce.sh").write_bytes(base64.b64decode(encoded))
    words = tmp_path / "words"
    (tmp_path / "memlm").write_text(
        f'#!/bin/sh\nprintf "%s\\0" "$@" >>"{words}"\nprintf "\\n\\0" >>"{words}"\n'
    )
    (tmp_path / "memlm").chmod(0o755)
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["sh", "reproduce.sh"], env=os.environ | path, check=True)
    commands = [command.split("\0")[:-1] for command in words.read_text().split("\n\0")[:-1]]
    assert commands[-1][0] == "evaluate"
    for command in commands:
        again = memlm(*command)
        assert (again.code, "made" in again.err) == (0, False), again.err


@pytest.mark.parametrize(
    ("text", "code", "part"),
    [("", 3, "small.txt has 0 bytes"), ("a few words\n" * 80, 3, "960 bytes")],
)
def test_a_text_that_is_too_small_is_told_at_once(
    memlm: Memlm, tmp_path: Path, text: str, code: int, part: str
) -> None:
    file = tmp_path / "small.txt"
    file.write_text(text)
    ended = memlm("try", file)
    assert (ended.code, part in " ".join(ended.err.split())) == (code, True), ended.err
    assert "timing" not in ended.err
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    "data", [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", b"some text\nand\0binary\n", b"caf\xe9\n"]
)
def test_a_small_file_that_is_no_text_is_said_to_be_none(
    memlm: Memlm, tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memlm_cli.work.try_text.system_load", lambda: 1.5 + usable_cores())
    (tmp_path / "small.txt").write_bytes(data)
    ended = memlm("try", tmp_path / "small.txt")
    assert ended.code == 3 and "bytes" not in ended.err and "small.txt" in ended.err
    # a busy machine is not mentioned where nothing is done
    assert len(ended.told) == 1


def test_a_page_is_not_written_over_another_file(memlm: Memlm, book: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.html").write_text("mine")
    assert memlm("try", book, "--output", tmp_path / "mine.html").code == 2
