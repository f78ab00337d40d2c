"""Tasks whose records have answers, or text alone: from folders to the matrix of scores."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.comparison.tasks import compare_matrices
from stages.errors import ArtifactError, DataError, UsageError
from stages.lineage.corpus import tokenizer_of
from stages.methods import METHODS
from stages.pages.lineage import find_reports
from stages.pages.page import build_page
from stages.tasks.answers import word_f1
from stages.text.config import Records, TokenizeConfig
from stages.tokenize import Tokenize
from stages.train import Train
from stages.training.config import TrainConfig
from tests.builders.task_scores import scored
from tests.stages.methods.stream.contract import SMALLER
from tests.stages.small_tasks import keys_of, stream_config, stream_model

NAMES = ("ann", "bob", "cy", "dee")
PLACES = ("rome", "paris", "oslo")


def records_of(task: str, count: int) -> list[dict[str, Any]]:
    """Who was where, asked for the name or for the place; the answer is a word of the text, or two."""
    random, found = np.random.default_rng(len(task)), []
    for number in range(count):
        name, place = NAMES[random.integers(4)], PLACES[random.integers(3)]
        answer = name if task == "who" else f"in {place}"
        record = {
            "text": f"who where ? {name} lives in {place} {'x ' * random.integers(1, 4)}",
            "question": f"{task} ?",
        }
        found.append(record | {"answers": [answer, "nothing else"], "dialogue": number // 2})
    return found


def folders(parent: Path, tasks: tuple[str, ...] = ("who", "where"), **more: Any) -> list[str]:
    for task in tasks:
        (parent / task).mkdir(parents=True)
        for split, count in {"train": 48, "valid": 8, "test": 12}.items():
            lines = (json.dumps(record | more) + "\n" for record in records_of(task, count))
            (parent / task / f"{split}.jsonl").write_text("".join(lines))
    return [str(parent / task) for task in tasks]


def tokenized(store: Store, named: list[str], records: Records, **settings: Any) -> Artifact:
    config = TokenizeConfig.model_validate(
        {"tasks": True, "records": records, "tokenizer": "word", "min_count": 1} | settings
    )
    return make(Tokenize(), config, {"source": named}, store, Execution()).artifact


@pytest.fixture(scope="module")
def spans(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return tokenized(store, folders(tmp_path_factory.mktemp("spans")), "spans")


@pytest.fixture(scope="module")
def pointing(store: Store, spans: Artifact) -> Artifact:
    return stream_model(store, spans, "seq", epochs=40, optimizer={"lr": 0.01})


def test_tokens_say_where_each_answer_is(spans: Artifact) -> None:
    group, metrics = spans.zarr("tokens.zarr"), spans.metrics
    words = {
        number: word
        for word, number in json.loads(spans.file("tokenizer.json").read_text())["model"][
            "vocab"
        ].items()
    }
    ids, offsets = group["test/ids"][:], group["test/doc_offsets"][:]
    accepted = [
        json.loads(line) for line in spans.file("answers/test.jsonl").read_text().splitlines()
    ]
    starts, stops = group["test/span_starts"][:], group["test/span_stops"][:]
    for document, one in enumerate(accepted):
        text = [words[int(number)] for number in ids[offsets[document] : offsets[document + 1]]]
        assert " ".join(text[starts[document] : stops[document]]) == one["answers"][0]
    assert metrics["splits"]["test"]["longest_answer"] == 2 and metrics["records"] == "spans"
    assert len(accepted) == 24 and len(group["test/answer_ids"][:]) == 12 * 2 + 12 * 3


@pytest.mark.parametrize("tokenizer", ["bpe", "char", "byte"])
def test_spans_are_found_whatever_the_tokens_are(
    tokenizer: str, store: Store, tmp_path: Path
) -> None:
    made = tokenized(
        store,
        folders(tmp_path, text="Ünder no\nann lives", answers=["ann"]),
        "spans",
        tokenizer=tokenizer,
        min_count=None,
    )
    group = made.zarr("tokens.zarr")
    start, stop = (int(group[f"test/span_{end}"][:][0]) for end in ("starts", "stops"))
    found = tokenizer_of(made).huggingface().decode(group["test/ids"][:][start:stop].tolist())
    assert found.strip() == "ann"


def test_spans_are_learnt_and_scored_by_words(
    store: Store, pointing: Artifact, spans: Artifact
) -> None:
    f1, exact = (scored(store, pointing, score=score) for score in ("f1", ("exact", "who=f1")))
    (row,), (other,) = f1.metrics["rows"], exact.metrics["rows"]
    assert row["matrix"][1][0] > 0.8 and row["matrix"][2][1] > 0.8, row
    assert (
        exact.metrics["scores"] == ["f1", "exact"] and other["matrix"][2][1] <= row["matrix"][2][1]
    )
    with pytest.raises(ArtifactError):
        compare_matrices(f1, exact)
    with pytest.raises(ArtifactError):
        find_reports([f1.reference, exact.reference], store)
    page = build_page([f1], lambda members: "", lambda report: [])
    assert f"F1 of words {row['average']:.1%}" in page.html
    accepted = [
        json.loads(line)["answers"]
        for line in spans.file("answers/test.jsonl").read_text().splitlines()
    ]
    for line in json.loads(f1.file("answers.json").read_text()):
        first = 12 * ("who", "where").index(line["task"])
        wanted = np.mean(
            [
                word_f1(*pair)
                for pair in zip(line["answers"], accepted[first : first + 12], strict=True)
            ]
        )
        assert row["matrix"][line["after"]][("who", "where").index(line["task"])] == pytest.approx(
            wanted
        )


def test_what_is_tuned_is_chosen_on_the_first_task(
    store: Store, pointing: Artifact, spans: Artifact
) -> None:
    memory = ("none", "random:k=8,steps=0/4,lr=0.3/1e-9", "mbpa:k=4,steps=6,lr=0.2/1e-9")
    made = scored(store, pointing, keys_of(spans), memory=memory, examples=6)
    none, drawn, nearest = made.metrics["rows"]
    assert made.metrics["after"] == [2] and "chosen" not in none
    assert nearest["chosen"] == "mbpa:k=4,steps=6,lr=0.2" and drawn["chosen"].startswith(
        "random:k=8,steps="
    )
    given = scored(store, pointing, keys_of(spans), memory=nearest["chosen"], examples=6).metrics[
        "rows"
    ][0]
    assert given["matrix"] == nearest["matrix"] and nearest["matrix"][0][0] > none["matrix"][0][0]
    with pytest.raises(ArtifactError, match="tune-split"):
        scored(store, pointing, memory="random:lr=tune", tune_split="x")


ABLE = [
    name
    for name in METHODS.names()
    if "spans" in getattr(METHODS.settings(name), "learns_from", ())
]


@pytest.mark.parametrize("method", ABLE)
def test_methods_that_learn_spans_take_their_steps(
    method: str, store: Store, spans: Artifact
) -> None:
    settings = METHODS.settings(method)
    source = spans if "tokens" in settings.takes else keys_of(spans)
    memory = {name: value for name, value in SMALLER.items() if name in settings.model_fields}
    config = stream_config(method, steps=8, memory=memory, segment_length=16, batch_tokens=128)
    made = make(Train(), config, {"source": source.reference}, store, Execution()).artifact
    assert scored(store, made, after="last").metrics["rows"][0]["average"] >= 0


@pytest.fixture(scope="module")
def answers(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return tokenized(store, folders(tmp_path_factory.mktemp("answers")), "answers")


def test_answers_are_written_after_the_question(store: Store, answers: Artifact) -> None:
    settings: dict[str, Any] = {
        "segment_length": 16,
        "batch_tokens": 128,
        "epochs": 30,
        "optimizer": {"lr": 0.01},
    }
    made = stream_model(
        store, answers, "lamol", memory={"samples": "real", "gamma": 0.5}, **settings
    )
    (row,) = scored(store, made, after="last", score="exact").metrics["rows"]
    assert row["average"] > 0.6, row
    samples = json.loads(made.file("samples/02.json").read_text())["samples"]
    assert all(one["text"].endswith("who ?") and one["answer"] in one["text"] for one in samples)
    goal = scored(store, made, after="last", score="where=goal").metrics
    assert (
        goal["scores"] == ["f1", "goal"] and goal["rows"][0]["matrix"][0][1] == 1
    )  # no answer names a slot
    with pytest.raises(UsageError, match="whole dialogues"):
        scored(store, made, score="goal", examples=3)


@pytest.mark.parametrize("method", ["seq", "multitask"])
def test_answers_are_learnt_without_samples(method: str, store: Store, answers: Artifact) -> None:
    settings: dict[str, Any] = {
        "segment_length": 16,
        "batch_tokens": 128,
        "epochs": 30,
        "optimizer": {"lr": 0.01},
    }
    made = stream_model(store, answers, method, **settings)
    (row,) = scored(store, made, after="last", score="exact").metrics["rows"]
    first, last = row["matrix"][0]
    assert last > 0.6 and (first > 0.25) == (method == "multitask"), row


def test_text_alone_is_learnt_by_the_method_that_reads_no_labels(
    store: Store, tmp_path: Path
) -> None:
    tokens = tokenized(store, folders(tmp_path), "text")
    memory = {"wider": (), "deeper": (), "recovery": 1}
    made = stream_model(store, tokens, "elle", steps=6, memory=memory)
    assert scored(store, made).metrics["score"] == "perplexity"
    assert (
        tokens.metrics["labels"] == []
        and (tokens.zarr("tokens.zarr")["train/labels"][:] == -1).all()
    )
    with pytest.raises(UsageError, match="elle"):
        stream_model(store, tokens, "seq", steps=6)
    with pytest.raises(UsageError, match="no answers in words"):
        scored(store, made, score="f1")


@pytest.mark.parametrize(
    ("record", "named"),
    [
        ({"text": "a b", "answer": "c"}, "'c' does not stand"),
        ({"text": "a b", "answer": "b", "answer_start": 0}, "at character 0"),
        ({"text": "a b", "answer": "b", "answer_start": -1}, "at character -1"),
        ({"text": "a b", "answer": "b", "answer_start": "2"}, "answer_start"),
        ({"text": "a b", "answer": "b", "dialogue": [1]}, "dialogue"),
        ({"text": "a b", "answer": "b", "question": "\ud800"}, "question"),
        ({"text": "a b", "answers": ["b", "\ud800"]}, "answer"),
        ({"text": "a b"}, "answer"),
        ({"text": "a b", "answers": []}, "answers"),
        ({"text": "a b", "answer": " "}, "answer"),
        ({"text": "a b", "answer": "a", "question": 3}, "question"),
        ({"text": " ", "answer": "a"}, "no text"),
    ],
)
def test_records_without_an_answer_in_the_text_are_refused(
    record: dict, named: str, store: Store, tmp_path: Path
) -> None:
    (tmp_path / "bad").mkdir()
    lines = [{"text": "a b", "answer": "b", "answer_start": 2}, record]
    (tmp_path / "bad" / "train.jsonl").write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(DataError, match=f"train.jsonl, record 2[:,] .*{named}"):
        tokenized(store, [str(tmp_path / "bad")], "spans")


def test_methods_that_do_not_fit_are_refused(
    store: Store, spans: Artifact, answers: Artifact, pointing: Artifact
) -> None:
    for tokens, method, able in (
        (spans, "emar", "seq"),
        (answers, "replay", "seq, multitask, lamol, elle"),
    ):
        with pytest.raises(UsageError, match=able):
            stream_model(store, tokens, method, steps=8)
    with pytest.raises(UsageError, match="episodic"):
        scored(store, pointing, keys_of(spans), memory="episodic")
    with pytest.raises(ValueError, match="compile"):
        TrainConfig.model_validate({"method": "elle", "compile": True})
