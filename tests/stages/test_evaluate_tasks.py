"""A stream of tasks from folders to the matrix of scores: what is written, and what is refused."""

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from memlm_cli.app import main
from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution, Inputs
from stages.artifacts.store import Store
from stages.comparison.tasks import compare_matrices, matrices_table
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.episodes import BuildEpisodes
from stages.errors import ArtifactError, DataError, UsageError
from stages.evaluate import Evaluate
from stages.evaluate_tasks import EvaluateTasks
from stages.evaluation.config import EvaluateConfig
from stages.import_model import ImportConfig, ImportModel
from stages.lineage.corpus import tokenizer_of
from stages.methods import METHODS
from stages.methods.stream.meta_mbpa import MetaMbpa
from stages.models.weights import load_model
from stages.needs import evaluate_tasks_needs
from stages.pages.lineage import find_reports
from stages.pages.page import build_page
from stages.tasks import answering, reader
from stages.tasks.config import EvaluateTasksConfig
from stages.tasks.episodes import EpisodesConfig
from stages.tasks.frequent_label import FREQUENT_LABEL, frequent_label_scores
from stages.tasks.plan import plan_stream, sample_documents
from stages.tasks.work import prices
from stages.text.config import TokenizeConfig
from stages.tokenize import Tokenize
from stages.train import Train
from stages.training.config import TrainConfig
from stages.training.loop import Trainer, Updates
from tests.builders.task_scores import scored
from tests.stages.kills import made_in_pieces
from tests.stages.methods.stream.contract import SMALLER
from tests.stages.notes import Notes
from tests.stages.pretrained.tiny import saved
from tests.stages.small_store import small_model, small_tokens
from tests.stages.small_tasks import (
    TASKS,
    bytes_of,
    keys_of,
    small_stream,
    stream_config,
    stream_model,
    write_task,
)

ORDER = ("moods", "colours", "beasts")
LEARNT = [name for name in METHODS.names() if METHODS.settings(name).learns == "tasks"]
FEW = {"every": 8, "rate": 0.5}


@pytest.fixture(scope="module")
def tokens(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return small_stream(store, tmp_path_factory.mktemp("tasks"))


@pytest.fixture(scope="module")
def sequential(store: Store, tokens: Artifact) -> Artifact:
    return stream_model(store, tokens, "seq", order=ORDER, epochs=12)


def average(made: Artifact) -> float:
    return float(made.metrics["rows"][0]["average"])


def test_tokens_have_the_label_and_the_task_of_every_document(tokens: Artifact) -> None:
    group = tokens.zarr("tokens.zarr")
    metrics = tokens.metrics
    assert metrics["labels"] == ["blue", "red", "cat", "dog", "owl", "glad"]
    assert metrics["tasks"] == list(TASKS)
    assert metrics["splits"]["train"]["task_documents"] == [40, 44, 48]
    assert group["train/tasks"][:].tolist() == [0] * 40 + [1] * 44 + [2] * 48
    labels = [metrics["labels"][number] for number in group["test/labels"][:]]
    assert set(labels[:20]) == {"red", "blue"} and set(labels[40:]) == {"glad", "blue"}
    vocabulary = json.loads(tokens.file("tokenizer.json").read_text())["model"]["vocab"]
    words = {number: word for word, number in vocabulary.items()}
    ids, offsets = group["test/ids"][:], group["test/doc_offsets"][:]
    texts = [[words[int(i)] for i in ids[a:b]] for a, b in pairwise(offsets)]
    assert all(label in text for label, text in zip(labels, texts, strict=True))


def test_labels_of_one_folder_are_dealt_into_tasks(store: Store, tmp_path: Path) -> None:
    folder = write_task(tmp_path / "all", tuple("abcdefg"), {"train": 70, "test": 35})
    config = TokenizeConfig(tasks=True, label_groups=3, tokenizer="word", min_count=1)
    made = make(Tokenize(), config, {"source": [str(folder)]}, store, Execution()).artifact
    labels, tasks = (made.zarr("tokens.zarr")[f"train/{name}"][:] for name in ("labels", "tasks"))
    of_label = {int(label): set(tasks[labels == label].tolist()) for label in labels}
    assert all(len(found) == 1 for found in of_label.values())
    sizes = np.bincount([next(iter(found)) for found in of_label.values()])
    assert sorted(sizes) == [2, 2, 3]


def test_each_task_is_learnt_and_the_ones_before_forgotten(
    store: Store, sequential: Artifact
) -> None:
    metrics = scored(store, sequential).metrics
    (found,) = metrics["rows"]
    scores = np.array(found["matrix"])
    assert metrics["tasks"] == list(ORDER) and scores.shape == (4, 3)
    assert np.diag(scores[1:]).min() > 0.8  # each task right after it
    assert scores[3, :2].max() < 0.5  # but none of the others at the end
    assert sequential.metrics["passes"] == pytest.approx(
        12, abs=0.5
    )  # what is cut off counts as read
    assert found["forgetting"] > 0.4 and found["backward_transfer"] < -0.4


def test_the_loss_of_labels_is_no_perplexity(store: Store, tokens: Artifact) -> None:
    notes = Notes()
    make(
        Train(),
        stream_config("seq", seed=5),
        {"source": tokens.reference},
        store,
        Execution(reporter=notes),
    )
    assert "loss" in notes.figures and "perplexity" not in notes.figures


@pytest.mark.usefixtures("drawn")
def test_a_page_shows_matrices_and_two_are_compared(store: Store, sequential: Artifact) -> None:
    first, second = scored(store, sequential), scored(store, sequential, examples=13)
    reports = find_reports([first.reference, second.reference], store)
    page = build_page(reports, lambda members: "", lambda report: [])
    assert {figure.name.partition("-")[0] for figure in page.figures} == {
        "matrix",
        "average",
        "lineage",
    }
    assert page.tables["results"].splitlines()[0].startswith("matrix,row,average,forgetting")
    assert page.html.count(FREQUENT_LABEL) == 2
    for control in (frequent_label_scores(made) for made in (first, second)):
        assert control is not None and all(f"{100 * score:.1f}%" in page.html for score in control)
    found = compare_matrices(first, second)
    (row,) = found["rows"]
    assert row["figures"]["average"] == [
        average(first),
        average(second),
        average(second) - average(first),
    ]
    assert set(row["tests"]) == set(ORDER)
    assert [line.cells[0].text for line in matrices_table(found).rows][:2] == [
        "average",
        "forgetting",
    ]
    control = frequent_label_scores(first)
    assert control is not None and [found["control"]["tests"][task][0] for task in ORDER] == control
    assert found["control"]["figures"]["average"][0] == pytest.approx(np.mean(control))


def test_streams_over_seeds_have_means_intervals_and_the_control(
    store: Store, tokens: Artifact, sequential: Artifact, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = {"every": 8}
    models = {
        method: [
            stream_model(store, tokens, method, order=ORDER, seed=seed, **more) for seed in range(3)
        ]
        for method, more in (("seq", {}), ("replay", {"memory": memory}))
    }
    made = {method: [scored(store, one) for one in own] for method, own in models.items()}
    names = [one.reference for own in made.values() for one in own]
    assert main(["compare", "--json", "--store", str(store.root), *names]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [group["seeds"] for group in found["groups"]] == [[0, 1, 2]] * 2
    for method, group in zip(made, found["groups"], strict=True):
        (row,) = group["rows"]
        for place, key in enumerate(["average", *(f"test {task}" for task in ORDER)]):
            runs, others = (
                np.array([one.metrics["rows"][0]["matrix"][-1] for one in made[name]])
                for name in (method, "seq")
            )
            runs, others = (np.column_stack((one.mean(1), one))[:, place] for one in (runs, others))
            of, half = row["values"][key], 4.302653 / 3**0.5  # of two degrees of freedom
            assert of["mean"] == pytest.approx(runs.mean()) and of["deviation"] == pytest.approx(
                runs.std(ddof=1)
            )
            assert of["interval"] == pytest.approx(
                [runs.mean() - half * runs.std(ddof=1), runs.mean() + half * runs.std(ddof=1)],
                abs=1e-5,
            )
            moved = runs - others
            assert (of["change"] is None) == (method == "seq")
            if of["change"]:
                assert of["change"]["mean"] == pytest.approx(moved.mean())
                assert of["change"]["deviation"] == pytest.approx(moved.std(ddof=1))
        control = frequent_label_scores(made[method][0])
        assert control is not None
        assert list(group["control"].values()) == pytest.approx([np.mean(control), *control])
    assert main(["compare", "--store", str(store.root), *names]) == 0
    assert FREQUENT_LABEL in capsys.readouterr().out
    assert main(["compare", "--store", str(store.root), *names[:2], sequential.reference]) == 4


def test_the_matrix_follows_from_the_answers(
    store: Store, tokens: Artifact, sequential: Artifact
) -> None:
    made = scored(store, sequential, examples=13)
    answers, metrics = json.loads(made.file("answers.json").read_text()), made.metrics
    labels, tasks = (tokens.zarr("tokens.zarr")[f"test/{name}"][:] for name in ("labels", "tasks"))
    for line in answers:
        own = labels[tasks == list(TASKS).index(line["task"])][sample_documents(20, 13)]
        place = metrics["after"].index(line["after"]), ORDER.index(line["task"])
        assert np.mean(own == line["answers"]) == pytest.approx(
            metrics["rows"][0]["matrix"][place[0]][place[1]]
        )
    assert len(answers) == 12 and len(set(sample_documents(20, 13).tolist())) == 13


def test_replay_and_all_at_once_forget_less(
    store: Store, tokens: Artifact, sequential: Artifact
) -> None:
    ends = {"seq": average(scored(store, sequential))}
    replay = stream_model(store, tokens, "replay", order=ORDER, epochs=12, memory=FEW)
    multitask = stream_model(store, tokens, "multitask", epochs=12)
    ends |= {
        name: average(scored(store, one)) for name, one in (("replay", replay), ("all", multitask))
    }
    assert ends["seq"] + 0.2 < ends["replay"] <= ends["all"] + 0.05, ends
    memory = load_file(replay.file("memory.safetensors"))
    names = list(TASKS)
    tasks = tokens.zarr("tokens.zarr")["train/tasks"][:]
    assert len(set(memory["rows"].tolist())) == len(memory["rows"]) == 40 + 44 + 48
    assert [ORDER[task] for task in memory["tasks"]] == [
        names[tasks[row]] for row in memory["rows"]
    ]


def test_prototypes_answer_for_labels_that_were_learnt(
    store: Store, tokens: Artifact, sequential: Artifact
) -> None:
    model = stream_model(store, tokens, "emar", order=ORDER, epochs=12, memory={"size": 8})
    (row,) = scored(store, model).metrics["rows"]
    plain = average(scored(store, sequential))
    assert row["average"] > plain + 0.2 and max(row["matrix"][1][2], row["matrix"][2][2]) == 0, row
    assert np.bincount(load_file(model.file("memory.safetensors"))["tasks"]).max() <= 8
    with pytest.raises(UsageError, match="prototypes"):
        scored(store, model, memory="coarse:part=head")


def test_weights_of_labels_begin_at_their_names_where_that_is_said(
    store: Store, tokens: Artifact
) -> None:
    plain, named = (
        stream_model(store, tokens, "emar", steps=6, memory={"names": said})
        for said in (False, True)
    )
    spelled = [
        tokenizer_of(tokens).encode_texts([name])[0].tolist() for name in tokens.metrics["labels"]
    ]
    assert [model.config["model"]["head"]["names"] for model in (plain, named)] == [[], spelled]
    begun = [load_file(model.file("after/00.safetensors")) for model in (plain, named)]
    assert [name for name in begun[0] if (begun[0][name] != begun[1][name]).any()] == [
        "head.weight"
    ]


@pytest.mark.parametrize("method", ["emar", "lamol"])
@pytest.mark.parametrize(("optimizer", "fresh"), [("kept", 1), ("new", 3)])
def test_the_optimizer_begins_each_task_as_the_settings_say(
    store: Store,
    tokens: Artifact,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    optimizer: str,
    fresh: int,
) -> None:
    """An update with an empty state is the first of the run, or of each of three tasks."""
    begun = list[bool]()
    make_update = Updates.make

    def observed(updates: Updates, step: int) -> Any:
        begun.append(not updates.bare_optimizer.state)
        return make_update(updates, step)

    monkeypatch.setattr(Updates, "make", observed)
    stream_model(store, tokens, method, epochs=1, memory={"optimizer": optimizer})
    assert sum(begun) == fresh and begun[0]


@pytest.mark.parametrize("samples", ["task", "real"])
def test_a_language_model_answers_and_keeps_what_it_wrote_as_text(
    samples: str, store: Store, tokens: Artifact
) -> None:
    memory, faster = {"gamma": 0.5, "samples": samples}, {"lr": 0.01}
    model = stream_model(
        store, tokens, "lamol", order=ORDER, epochs=6, memory=memory, optimizer=faster
    )
    assert average(scored(store, model, after="last")) > 0.6  # a model of one task knows a third
    assert model.config["model"]["vocab_size"] == tokens.metrics["vocabulary_size"] + 5
    for place in (2, 3):
        made = json.loads(model.file(f"samples/{place:02d}.json").read_text())
        assert 0 < made["kept"] == len(made["samples"]) <= made["asked"]
        assert {one["begin"] for one in made["samples"]} <= {
            f"<task:{name}>" for name in ORDER[: place - 1]
        }
        fitting = [one["answer"] in one["text"].split() for one in made["samples"]]
        assert all(fitting) if samples == "real" else any(fitting)
    for refused, named in (
        ({"memory": "random"}, "answers in words"),
        ({"candidates": True}, "none of the labels"),
    ):
        with pytest.raises(UsageError, match=named):
            scored(store, model, **refused)


@pytest.fixture(scope="module")
def imported(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """A tiny pretrained model, with the tokens of the tasks by its tokenizer."""
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("imported")
    saved(folder / "llama", "llama", bos=True)
    tasks = [
        write_task(folder / name, labels, {"train": 16, "test": 8})
        for name, labels in TASKS.items()
    ]
    references = {"source": list(map(str, tasks)), "tokenizer": str(folder / "llama")}
    tokens = make(
        Tokenize(), TokenizeConfig(tasks=True, tokenizer="given"), references, store, Execution()
    ).artifact
    references = {"source": tokens.reference, "checkpoint": str(folder / "llama")}
    return make(
        ImportModel(), ImportConfig(segment_length=16), references, store, Execution()
    ).artifact


@pytest.mark.parametrize(
    "method", [name for name in LEARNT if name not in ("a-gem", "ewc", "anml-er")]
)
def test_methods_begin_with_an_imported_model(
    method: str, store: Store, imported: Artifact
) -> None:
    """Those left out learn as a sibling does, and `test_import_encoder` begins them with an
    encoder.
    """
    tokens, fields = imported.input("tokens"), METHODS.settings(method).model_fields
    source = tokens
    if "tokens" not in METHODS.settings(method).takes:
        source = make(
            BuildEpisodes(), EpisodesConfig(), {"source": imported.reference}, store, Execution()
        ).artifact
    config = TrainConfig.model_validate(
        {
            "method": method,
            "segment_length": 16,
            "batch_tokens": 128,
            "steps": 9,
            "optimizer": {"lr": 0.01},
        }
        | {
            "memory": {
                name: value
                for name, value in {**SMALLER, "wider": (), "deeper": ()}.items()
                if name in fields
            }
        }
    )
    references = {"source": source.reference, "init_from": imported.reference}
    made = make(Train(), config, references, store, Execution()).artifact
    before, after = (load_file(made.file(f"after/{place}.safetensors")) for place in ("00", "03"))
    changed = [name for name in before if (before[name] != after[name]).any()]
    assert any(name.startswith("backbone.") for name in changed), "the encoder learns"
    assert scored(store, made, after="last").metrics["rows"][0]["average"] >= 0


@pytest.mark.parametrize(("steps", "task"), [(16, "moods"), (3, "colours")])
def test_a_loss_that_is_no_number_is_of_its_task(
    steps: int, task: str, store: Store, tokens: Artifact
) -> None:
    """The second update's, which is of the first task, or of the second."""
    far = {"name": "sgd", "lr": 1e30}
    with pytest.raises(UsageError, match=f"at step 2 of {steps}, in task {task}"):
        stream_model(store, tokens, "seq", order=ORDER, optimizer=far, clip_norm=0.0, steps=steps)


def further(store: Store, model: Artifact, method: str, **settings: object) -> Artifact:
    """A model trained on by a method, with factors."""
    config = {
        "method": method,
        "segment_length": 16,
        "batch_tokens": 128,
        "steps": 9,
        "optimizer": {"lr": 0.01},
    }
    references = {"source": model.input("tokens").reference, "init_from": model.reference}
    chosen = TrainConfig.model_validate(config | {"lora": 2} | settings)
    return make(Train(), chosen, references, store, Execution(checkpoint_seconds=0.0)).artifact


def test_tokens_that_tasks_add_learn_beside_factors(store: Store, imported: Artifact) -> None:
    pytest.importorskip("peft")
    made = further(store, imported, "lamol")
    first = made.config["model"]["head"]["first"]
    own, before, after = (
        load_file(file)["vocabulary.embedding"]
        for file in (
            imported.file("model.safetensors"),
            made.file("after/00.safetensors"),
            made.file("model.safetensors"),
        )
    )
    assert (before[:first] == own[:first]).all() and (after[:first] == own[:first]).all()
    assert (before[first:] != after[first:]).any(1).all()


def test_rows_of_added_tokens_that_are_killed_end_with_the_same_bytes(
    store: Store, imported: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("peft")
    whole, update = bytes_of(further(store, imported, "lamol", steps=6, seed=1)), Trainer._update
    shutil.rmtree(further(store, imported, "lamol", steps=6, seed=1).path)
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_update", lambda trainer: _killed(trainer, 3, update))
        with pytest.raises(KeyboardInterrupt):
            further(store, imported, "lamol", steps=6, seed=1)
    assert bytes_of(further(store, imported, "lamol", steps=6, seed=1)) == whole


def test_factors_are_of_one_size(store: Store, tokens: Artifact) -> None:
    pytest.importorskip("peft")
    begun = keys_of(tokens).input("encoder")
    with pytest.raises(UsageError, match="--lora"):
        further(store, begun, "elle", segment_length=12, batch_tokens=96)


def test_a_memory_that_never_has_k_documents_is_refused(
    store: Store, tokens: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the last of 16 updates 120 documents are read, of each 10 one is written."""
    references, sought, neighbors = (
        {"source": keys_of(tokens).reference},
        list[int](),
        MetaMbpa.neighbors,
    )
    for memory in ({}, {"block": 10, "k": 13}, {"block": 10, "k": 8, "size": 2}):
        config = stream_config("meta-mbpa", memory={"write": 0.1} | memory)
        with pytest.raises(UsageError, match=r"memory\.k"):
            make(Train(), config, references, store, Execution())
    monkeypatch.setattr(
        MetaMbpa, "neighbors", lambda self, rows: sought.append(len(rows)) or neighbors(self, rows)
    )
    make(
        Train(),
        stream_config("meta-mbpa", memory={"block": 10, "k": 12, "write": 0.1}),
        references,
        store,
        Execution(),
    )
    assert sought


def test_labels_of_unknown_words_cannot_be_spelled(store: Store, tmp_path: Path) -> None:
    one = write_task(tmp_path / "one", ("a", "b"), {"train": 8})
    (one / "train.jsonl").write_text(
        "".join(json.dumps({"text": f"x {i}", "label": f"rare{i % 2}"}) + chr(10) for i in range(8))
    )
    tokens = tokenized(store, [one], min_count=5)
    for method, memory in (("lamol", {}), ("emar", {"names": True})):
        with pytest.raises(UsageError, match="rare0"):
            stream_model(store, tokens, method, memory=memory)


def _killed(trainer: Trainer, last: int, update: object) -> None:
    if trainer.progress.step == last:
        raise KeyboardInterrupt
    update(trainer)


def test_a_scoring_that_is_killed_after_each_range_is_that_of_one_go(
    store: Store, sequential: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, attempts = made_in_pieces(
        monkeypatch, lambda: scored(store, sequential, after="last", examples=19), logged=True
    )
    assert attempts.begun_with == [0, 1, 2, 3]
    whole = scored(store, sequential, examples=19)
    assert made.metrics["rows"][0]["matrix"] == whole.metrics["rows"][0]["matrix"][3:]


@pytest.mark.parametrize(
    ("order", "named"),
    [
        (("moods", "colours"), "each task"),
        (("moods", "moods", "beasts"), "each task"),
        (("x",), "x"),
    ],
)
def test_an_order_names_each_task_once(
    order: tuple[str, ...], named: str, store: Store, tokens: Artifact
) -> None:
    with pytest.raises(UsageError, match=named):
        stream_model(store, tokens, "seq", order=order)


def test_what_does_not_fit_is_refused(store: Store, tokens: Artifact, sequential: Artifact) -> None:
    text = small_tokens(store)
    with pytest.raises(ArtifactError, match="has no tasks"):
        stream_model(store, text, "seq")
    with pytest.raises(ArtifactError, match="build-episodes"):
        stream_model(store, tokens, "meta-mbpa")
    with pytest.raises(UsageError, match="order"):
        stream_model(store, tokens, "multitask", order=ORDER)
    with pytest.raises(ArtifactError, match="has learnt no tasks"):
        scored(store, small_model(store, text))
    with pytest.raises(ArtifactError, match="has learnt labels"):
        make(Evaluate(), EvaluateConfig(), {"source": sequential.reference}, store, Execution())
    with pytest.raises(ArtifactError, match="has learnt labels"):
        make(
            BuildDatastore(),
            DatastoreConfig(),
            {"source": sequential.reference},
            store,
            Execution(),
        )
    with pytest.raises(ArtifactError, match="has learnt labels"):
        references = {"source": tokens.reference, "init_from": sequential.reference}
        make(Train(), stream_config("replay"), references, store, Execution())
    with pytest.raises(UsageError, match="too few"):
        stream_model(store, tokens, "seq", steps=2)


@pytest.mark.parametrize(
    ("records", "named"),
    [
        ([{"text": "a"}], "label"),
        ([{"text": "a", "label": "x"}, {"text": "b"}], "record 2"),
        ([{"text": " ", "label": "x"}], "no text"),
        ([{"text": "a", "label": None}], "label"),
        ([{"text": "a", "label": True}], "a text or a whole number"),
        ([{"text": "a", "label": 1.5}], "a text or a whole number"),
        ([{"text": "a", "label": " "}], "a text or a whole number"),
        ([{"label": "x"}], "text"),
        ([{"text": "a", "topic": "x"}], "--label names another"),
    ],
)
def test_records_without_text_or_label_are_refused(
    records: list, named: str, store: Store, tmp_path: Path
) -> None:
    folder = write_task(tmp_path / "good", ("a", "b"), {"train": 4})
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "train.jsonl").write_text("\n".join(map(json.dumps, records)))
    with pytest.raises(DataError, match=named):
        tokenized(store, [folder, tmp_path / "bad"])


def test_folders_that_are_no_tasks_are_refused(store: Store, tmp_path: Path) -> None:
    one = write_task(tmp_path / "one", ("a", "b"), {"train": 4})
    same = write_task(tmp_path / "other" / "one", ("a", "b"), {"train": 4})
    test_alone = write_task(tmp_path / "half", ("a", "b"), {"test": 4})
    strange = write_task(tmp_path / "strange", ("a",), {"train": 4})
    write_task(strange, ("a", "new"), {"test": 9})
    above = tmp_path / "other"
    for folders, named in (
        ([one, same], "one"),
        ([test_alone], "train"),
        ([strange], "new"),
        ([above], str(same)),
    ):
        with pytest.raises(DataError, match=named):
            tokenized(store, folders)
    with pytest.raises(UsageError, match="at most"):
        tokenized(store, [one], label_groups=3)


def tokenized(store: Store, folders: list[Path], **settings: object) -> Artifact:
    config = TokenizeConfig.model_validate(
        {"tasks": True, "tokenizer": "word", "min_count": 1} | settings
    )
    return make(
        Tokenize(), config, {"source": [str(folder) for folder in folders]}, store, Execution()
    ).artifact


@pytest.fixture(scope="module")
def episodes(store: Store, tokens: Artifact) -> Artifact:
    return keys_of(tokens)


def test_memory_counts_what_is_adapted_and_keys(sequential: Artifact, episodes: Artifact) -> None:
    def needed(reading: str, **more: Artifact) -> int:
        inputs = Inputs({"model": sequential, **more})
        return evaluate_tasks_needs(EvaluateTasksConfig(memory=reading), inputs).device_memory

    weights = 4 * sequential.metrics["parameters"]
    keys = (
        4 * episodes.input("encoder").metrics["parameters"]
        + 8 * (40 + 44 + 48) * episodes.metrics["dim"]
    )
    assert [needed("none"), needed("random")] == [weights, 3 * weights]
    assert needed("mbpa", episodes=episodes) == 3 * weights + keys


def test_what_adapting_takes_is_said_before(
    store: Store, sequential: Artifact, tokens: Artifact
) -> None:
    """Four documents twice for each of three examples a task; the others adapt for none, or not at
    all.
    """
    memory = ("none", "random:k=4,steps=2", "random:steps=0", "coarse")
    config = EvaluateTasksConfig(memory=memory, examples=3)
    (price,) = prices(config, plan_stream(config, sequential, tokens), sequential, tokens)
    assert "learns 8 documents for each of 9 examples" in price


def test_episodes_are_keys_and_labels_of_documents(tokens: Artifact, episodes: Artifact) -> None:
    group, text = episodes.zarr("episodes.zarr"), tokens.zarr("tokens.zarr")
    assert group["keys"].shape == (132, 16) and np.isfinite(group["keys"][:]).all()
    assert np.array_equal(group["labels"][:], text["train/labels"][:])


def test_adapting_brings_back_what_was_forgotten(
    store: Store, sequential: Artifact, episodes: Artifact
) -> None:
    memory = ("none", "mbpa:k=4,steps=10,lr=0.2", "mbpa:steps=0")
    rows = scored(store, sequential, memory=memory, examples=6, episodes=episodes).metrics["rows"]
    assert rows[0]["matrix"] == rows[2]["matrix"]  # without a step it is the model alone
    assert rows[1]["average"] > rows[0]["average"] + 0.2, rows


def test_neighbors_are_of_what_was_learnt_before(
    store: Store, sequential: Artifact, episodes: Artifact
) -> None:
    memory = ("none", "episodic:k=8,weight=1,temperature=0.1")
    rows = scored(store, sequential, memory=memory, examples=12, episodes=episodes).metrics["rows"]
    none, neighbors = (np.array(row["matrix"]) for row in rows)
    assert (none[0] == neighbors[0]).all()  # nothing is in memory before the first
    assert rows[1]["average"] > rows[0]["average"] + 0.2, rows
    assert neighbors[1, 2] == 0  # no document of a task that comes later is seen


def test_near_documents_weigh_more(
    store: Store, sequential: Artifact, episodes: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = ("mbpa:k=4,steps=3,lr=0.2", "mbpa:k=4,steps=3,lr=0.2,weight=distance")
    seen, adapting = [], answering.adapted

    def watched(*given: object) -> object:
        seen.append(given[-1])
        return adapting(*given)

    monkeypatch.setattr(answering, "adapted", watched)
    scored(store, sequential, memory=memory, examples=2, episodes=episodes)
    assert seen[:6] == [None] * 6
    assert (
        all((one.diff() <= 0).all() and float(one.sum()) == pytest.approx(1) for one in seen[6:])
        and len(seen) == 12
    )


def with_candidates(folder: Path, counts: dict[str, int]) -> Path:
    """The task of beasts, with two candidates of three at test."""
    lines = (write_task(folder, TASKS["beasts"], counts) / "test.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    for number, record in enumerate(records):
        others = [name for name in TASKS["beasts"] if name != record["label"]]
        record["among"] = [others[number % 2], record["label"]]
    (folder / "test.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


@pytest.mark.parametrize("method", ["seq", "emar"])
def test_a_label_is_sought_among_the_candidates_of_its_record(
    method: str, store: Store, tmp_path: Path
) -> None:
    folder = with_candidates(tmp_path / "beasts", {"train": 40, "test": 30})
    tokens = tokenized(store, [folder], candidates="among")
    model = stream_model(store, tokens, method, steps=1)
    every, among = (scored(store, model, after="last", candidates=value) for value in (False, True))
    records = [json.loads(line) for line in (folder / "test.jsonl").read_text().splitlines()]
    loaded, names = load_model(model.path, torch.device("cpu")).double(), tokens.metrics["labels"]
    documents = reader.all_documents(model, tokens, "test", 12)
    wanted = []
    for number, record in enumerate(records):
        with torch.no_grad():
            scores = loaded.label_scores(documents.batch(np.array([number])))[0]
        wanted.append(max(record["among"], key=lambda name: float(scores[names.index(name)])))
    (said,) = json.loads(among.file("answers.json").read_text())
    assert [names[number] for number in said["answers"]] == wanted
    right = np.mean([one == record["label"] for one, record in zip(wanted, records, strict=True)])
    assert average(among) == pytest.approx(right) and average(among) > average(every)
    with pytest.raises(ArtifactError, match="measures"):
        compare_matrices(every, among)
    with pytest.raises(ArtifactError, match="among candidates"):
        find_reports([every.reference, among.reference], store)
    with pytest.raises(ArtifactError, match="no candidates in 'train'"):
        scored(store, model, split="train", candidates=True)


def test_documents_of_the_split_that_memory_is_of_are_known_as_such(
    store: Store, sequential: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, answers, notes = list[bool](), reader.StreamReader.answers, Notes()
    monkeypatch.setattr(
        reader.StreamReader,
        "answers",
        lambda *given, **named: inside.append(named["inside"]) or answers(*given, **named),
    )
    for coarse, expected in (("coarse:k=2,steps=1", 0), ("coarse:k=2,steps=1/2", 1)):
        memory = ("random:k=2,steps=1,lr=0.1/0.2", coarse)
        config = EvaluateTasksConfig(memory=memory, examples=2, tune_split="train")
        make(
            EvaluateTasks(),
            config,
            {"source": sequential.reference},
            store,
            Execution(reporter=notes),
        )
        assert inside == [True] * 2 * (1 + expected) + [False] * 6
        assert sum("too good" in line for line in notes.messages) == expected
        inside.clear()


def test_random_documents_need_no_keys(store: Store, sequential: Artifact) -> None:
    made = scored(store, sequential, memory="random:k=4,steps=2,lr=0.1", examples=3)
    assert made.metrics["after"] == [3]


def test_a_coarse_adaptation_is_the_same_for_every_range(
    store: Store, sequential: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = "coarse:k=16,steps=10,lr=0.2"
    whole = scored(store, sequential, memory=memory, examples=9)
    monkeypatch.setattr("stages.tasks.plan.RANGE", 4)
    (found,), (wanted,) = (
        made.metrics["rows"]
        for made in (scored(store, sequential, memory=memory, examples=10), whole)
    )
    assert found["average"] > 0.6  # what was forgotten comes back
    assert np.abs(np.array(found["matrix"]) - np.array(wanted["matrix"])).max() <= 1 / 9 + 1e-9
    head = scored(store, sequential, memory="coarse:part=head,steps=0", after="last").metrics[
        "rows"
    ][0]
    assert head["matrix"] == scored(store, sequential, after="last").metrics["rows"][0]["matrix"]


def test_readings_that_do_not_fit_are_refused(
    store: Store, sequential: Artifact, episodes: Artifact, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="build-episodes"):
        scored(store, sequential, memory="mbpa")
    with pytest.raises(UsageError, match="looks for"):
        scored(store, sequential, memory="random", episodes=episodes)
    encoder = episodes.input("encoder")
    other = make(
        BuildEpisodes(),
        EpisodesConfig(split="test"),
        {"source": encoder.reference},
        store,
        Execution(),
    ).artifact
    with pytest.raises(ArtifactError, match="keys of test"):
        scored(store, sequential, memory="mbpa", episodes=other)
    with pytest.raises(ArtifactError, match="keys of 'test'"):
        make(Train(), stream_config("meta-mbpa"), {"source": other.reference}, store, Execution())
    with pytest.raises(ArtifactError, match="no tasks"):
        make(
            BuildEpisodes(),
            EpisodesConfig(),
            {"source": small_model(store, small_tokens(store)).reference},
            store,
            Execution(),
        )


def test_domains_are_scored_by_the_perplexity_of_their_text_with_the_sizes_after_each(
    store: Store, tokens: Artifact, sequential: Artifact
) -> None:
    memory = {"wider": (2,), "deeper": (1, 2), "recovery": 2}
    made = stream_model(store, tokens, "elle", order=ORDER, epochs=2, memory=memory)
    assert made.config["model"]["width"] == 32 and made.config["model"]["layers"] == 2
    weights = [load_file(made.file(f"after/{place:02d}.safetensors")) for place in range(4)]
    widths = [one["backbone.norm.weight"].shape[0] for one in weights]
    assert widths == [16, 16, 32, 32] and "backbone.blocks.1.ffn_norm.weight" not in weights[2]
    found = scored(store, made)
    (row,), arrays = found.metrics["rows"], tokens.zarr("tokens.zarr")
    model = load_model(made.path, "cpu").double()
    offsets, numbers, ids = (arrays[f"test/{name}"][:] for name in ("doc_offsets", "tasks", "ids"))
    names, types = tokens.metrics["tasks"], tokens.metrics["vocabulary_size"]
    for place, name in enumerate(ORDER):
        nats = []
        for document in np.flatnonzero(numbers == names.index(name)):
            targets = ids[offsets[document] : offsets[document + 1]][:12].astype(np.int64)
            inputs = [types + 2 + names.index(name), *targets[:-1].tolist()]
            with torch.no_grad():
                log_p = model.log_probs(model.encode(torch.tensor([inputs])).hidden[0])
            nats += [-float(log_p[number, one]) for number, one in enumerate(targets)]
        assert row["matrix"][-1][place] == pytest.approx(np.exp(np.mean(nats)), rel=1e-5)
    last = row["matrix"][-1]
    assert (
        row["average"] == pytest.approx(np.prod(last) ** (1 / 3))
        and found.metrics["score"] == "perplexity"
    )
    lost = [last[place] - row["matrix"][place + 1][place] for place in range(2)]
    assert row["forgetting"] == pytest.approx(sum(lost) / 2)
    assert row["averages"][0] == pytest.approx(row["matrix"][1][0])
    page = build_page([found], lambda members: "", lambda report: [])
    assert f"AP {row['average']:.2f}" in page.html
    table = matrices_table(compare_matrices(found, found)).groups[0].rows
    assert [one.cells[0].text for one in table[:2]] == ["AP", "AP+"]
    with pytest.raises(ArtifactError):  # a page would show them in one table
        find_reports([found.reference, scored(store, sequential, after="last").reference], store)


@pytest.mark.parametrize("memory", [{"wider": (2, 2, 2)}, {"deeper": (1, 1, 1)}])
def test_growth_before_domains_that_are_not_there_is_refused(
    store: Store, tokens: Artifact, memory: dict[str, object]
) -> None:
    with pytest.raises(UsageError, match="at most 2"):
        stream_model(store, tokens, "elle", memory=memory)


def test_a_model_that_cannot_grow_learns_domains_without(store: Store, tokens: Artifact) -> None:
    small = {"layers": 1, "width": 16, "heads": 2, "ffn_width": 16, "positions": "sinusoidal"}
    with pytest.raises(UsageError, match="learned positions"):
        stream_model(store, tokens, "elle", model=small)
    stays = {"wider": (), "deeper": (), "recovery": 1, "prompt": False}
    made = stream_model(store, tokens, "elle", model=small, memory=stays, steps=6)
    assert made.config["model"]["width"] == 16
    row, model, nats = (
        scored(store, made).metrics["rows"][0],
        load_model(made.path, "cpu").double(),
        [],
    )
    arrays, eos = tokens.zarr("tokens.zarr"), tokens.metrics["eos_id"]
    begins = arrays["test/doc_offsets"][:21]
    for start, stop in pairwise(begins.tolist()):
        targets = arrays["test/ids"][start:stop][:12].astype(np.int64)
        with torch.no_grad():
            hidden = model.encode(torch.tensor([[eos, *targets[:-1].tolist()]])).hidden[0]
            nats += (-model.log_probs(hidden)[range(len(targets)), targets.tolist()]).tolist()
    place = made.config["order"].index(tokens.metrics["tasks"][0])
    assert row["matrix"][-1][place] == pytest.approx(
        np.exp(np.mean(nats)), rel=1e-5
    )  # no prompt: `<eos>` begins


def test_epochs_of_more_updates_than_there_may_be_are_refused(
    store: Store, tokens: Artifact
) -> None:
    for epochs in (1e300, 2**31 / 16):  # 16 updates each
        with pytest.raises(UsageError, match="--epochs"):
            stream_model(store, tokens, "seq", epochs=epochs)
