"""`memlm generate`: what it writes where, and how it ends."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from tests.cli.conftest import Memlm, told
from tests.stages.small_text import built_index, found_neighbors, text_model, text_tokens

PROMPT = "the cat sees"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("text")
    store = Store(folder / "store")
    return built_index(store, text_model(store, text_tokens(store, folder)))


@pytest.fixture
def generate(memlm: Memlm, index: Artifact):
    """Runs `memlm generate REF …` in the store of the index."""
    return lambda reference, *options, **more: memlm(
        "generate", reference, "--store", index.store.root, "--device", "cpu", *options, **more
    )


def test_the_text_alone_goes_to_stdout(generate, index):
    model = index.find("encoder").reference
    ended = generate(model, "--prompt", PROMPT, "--max-tokens", 9)
    assert (ended.code, ended.told) == (0, [])
    piped = generate("-", "--prompt", PROMPT, "--max-tokens", 9, stdin=f"{model}\n")
    assert (piped.code, piped.out, piped.told) == (0, ended.out, [])
    made = json.loads(generate(model, "--prompt", PROMPT, "--max-tokens", 9, "--json").out)
    assert (made["model"], made["prompt"], made["memories"]) == (model, PROMPT, [])
    assert made["text"] + "\n" == ended.out
    assert len(made["tokens"]) == 9
    assert all(
        0 < token["probability"] <= 1 and token["attributed"] is None for token in made["tokens"]
    )


def test_memories_are_named_on_stderr_and_none_is_the_model_alone(generate, index):
    options = ("--prompt", PROMPT, "--max-tokens", 9, "--seed", 4)
    memory = (
        "--memory",
        "external:k=5,temperature=2,lambda=0.9",
        "--memory",
        "long:size=7,theta=0.5,lambda=0.1",
    )
    read = generate(index.reference, *options, *memory)
    assert [line.split(", ") for line in read.told] == [
        ["generate: datastore: external", "interpolate", "k 5", "temperature 2", "lambda 0.9"],
        ["generate: cache: long", "interpolate", "size 7", "theta 0.5", "lambda 0.1"],
    ]
    alone = generate(index.reference, *options, "--memory", "none")
    own = generate(index.find("encoder").reference, *options)
    assert (alone.code, alone.out, alone.told) == (0, own.out, [])
    assert read.out != alone.out
    assert "--report" in generate(index.reference, *options).err


def test_attribution_stands_behind_the_text(generate, index):
    options = (
        "--max-tokens",
        4,
        "--attribute",
        "--memory",
        "external:k=9,temperature=5,lambda=0.9",
    )
    ended = generate(index.reference, *options)
    told = json.loads(generate(index.reference, *options, "--json").out)
    assert ended.out.startswith(told["text"] + "\n\n")
    heads = [line for line in ended.out.splitlines() if " = model " in line]
    assert [head.split()[0] for head in heads] == [token["text"] for token in told["tokens"]]
    assert all(" + datastore " in head for head in heads)
    for head, token in zip(heads, told["tokens"], strict=True):
        total, parts = head.split("  ", 1)[1].split(" = ")
        assert float(total) == pytest.approx(token["probability"], rel=1e-3)
        assert float(total) == pytest.approx(
            sum(float(part.split()[-1]) for part in parts.split(" + ")), rel=2e-3
        )
    context = next(one for token in told["tokens"] for one in token["attributed"]["contexts"])
    source = context["source"]
    place = f"train, document {source['document']} ({source['name']}), token {source['offset']}: "
    assert place in ended.out
    assert f"[{context['source']['token'].strip()}]" in ended.out


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--memory", "knn-lm"], 2, "one number is needed for temperature, lambda"),
        (["--memory", "extern:lambda=0.3"], 2, "did you mean 'external'?"),
        (
            ["--memory", "none", "--index", "index/000000000000"],
            2,
            "--index names a memory that no --memory reads",
        ),
        (["--temperature", "-1"], 2, "--temperature"),
        (["--temperature", "0", "--top-k", "3"], 2, "leave --top-k and --top-p out"),
        (["--max-tokens", "0"], 2, "--max-tokens"),
        (["--report", "report/000000000000"], 4, "report/000000000000 is not in"),
        (["--report", "report/000000000000", "--memory", "none"], 2, "give one of them"),
        (["--stride", "9"], 2, "--stride 9 is larger than the context, 8"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_written(generate, index, options, code, message):
    ended = generate(index.reference, *options)
    assert (ended.code, ended.out) == (code, "")
    assert message in ended.err
    assert "Traceback" not in ended.err


def test_external_memory_of_a_model_needs_an_index(generate, index):
    ended = generate(index.find("encoder").reference, "--memory", "external:lambda=0.3")
    assert (ended.code, ended.out) == (2, "")
    assert "reads a datastore" in ended.err
    named = ("--memory", "external:lambda=0.3", "--index", index.reference, "--max-tokens", 2)
    assert generate(index.find("encoder").reference, *named).code == 0


def test_neighbors_name_the_index_that_is_searched(generate, index):
    neighbors = found_neighbors(index.store, index, k=2)
    options = (
        index.find("encoder").reference,
        "--memory",
        "external:k=5,lambda=0.3",
        "--max-tokens",
        6,
    )
    assert generate(*options, "--neighbors", neighbors.reference) == generate(
        *options, "--index", index.reference
    )


def test_every_prompt_of_a_file_gets_a_line(generate, index, tmp_path):
    file = tmp_path / "prompts.jsonl"
    prompts = [PROMPT, "a dog", "the pig and the hen"]
    records = [{"prompt": prompt, "id": number} for number, prompt in enumerate(prompts)]
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    model = index.find("encoder").reference
    options = (model, "--max-tokens", 9, "--seed", 3)
    ended = generate(*options, "--prompts", file, "--batch-size", 2)
    assert (ended.code, ended.told) == (0, [])
    found = [json.loads(line) for line in ended.out.splitlines()]
    assert [{name: one[name] for name in ("prompt", "id")} for one in found] == records
    for prompt, one in zip(prompts, found, strict=True):
        assert one["finish_reason"] == "length"
        assert one["text"] + "\n" == generate(*options, "--prompt", prompt).out
    detailed = generate(*options, "--prompts", file, "--json").out.splitlines()
    assert [len(json.loads(line)["tokens"]) for line in detailed] == [9, 9, 9]


def test_a_text_ends_where_it_is_told(generate, index):
    model = index.find("encoder").reference
    options = (model, "--prompt", PROMPT, "--max-tokens", 20)
    whole = generate(*options).out
    stop = whole.split()[2]
    ended = generate(*options, "--stop", stop, "--stop", "nothing", "--json")
    told = json.loads(ended.out)
    assert told["text"] == whole[: whole.find(stop)] and told["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("content", "options", "code", "message"),
    [
        ("{", (), 3, "Line 1 of"),
        ('"a"', ("--prompt", "b"), 2, "--prompt and --prompts both"),
        ('"a"', ("--chat",), 2, "has no chat template"),
        ('"a"', ("--stop", ""), 2, "--stop is empty"),
    ],
)
def test_prompts_that_cannot_be_continued_are_refused(
    generate, index, tmp_path, content, options, code, message
):
    file = tmp_path / "prompts.jsonl"
    file.write_text(content)
    ended = generate(index.find("encoder").reference, "--prompts", file, *options)
    assert (ended.code, ended.out) == (code, "")
    assert message in ended.err


def memlm_process(index: Artifact, *options: str) -> subprocess.Popen[str]:
    """A long text, written by a process of its own."""
    arguments = [
        "generate",
        index.find("encoder").reference,
        "--max-tokens",
        "1000000",
        "--store",
        index.store.root,
    ]
    command = [sys.executable, "-m", "memlm_cli", *map(str, arguments), *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        command, text=True, **pipes, cwd=Path(__file__).parents[2], env=os.environ
    )


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_with_130_behind_what_was_written(index):
    with memlm_process(index) as process:
        assert isinstance(process.stdout, io.TextIOBase)
        assert isinstance(process.stderr, io.TextIOBase)
        assert process.stdout.read(20)
        process.send_signal(signal.SIGINT)
        rest, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert len(told(err)) == 1
    assert rest.endswith("\n")


def test_a_reader_that_goes_away_ends_it(index):
    with memlm_process(index) as process:
        assert isinstance(process.stdout, io.TextIOBase)
        assert isinstance(process.stderr, io.TextIOBase)
        assert process.stdout.read(20)
        process.stdout.close()
        assert (process.wait(timeout=60), told(process.stderr.read())) == (0, [])


def test_a_report_is_named_by_its_option(generate, index, memlm):
    report = memlm("evaluate", index.reference, "--store", index.store.root).reference
    ended = generate(report, "--prompt", PROMPT)
    assert (ended.code, ended.out) == (2, "")
    assert f"name it as --report {report}" in ended.err
