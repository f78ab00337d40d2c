"""Data sets and models of a hub on this machine, in a process of its own: the address is read at
import.
"""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.builders.hub_corpora import CARD, TRAIN
from tests.fake_hub import COMMIT, serving
from tests.stages.pretrained.tiny import saved

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("datasets")
pytest.importorskip("transformers")
CONFIG = "tokenizer_config.json"
CHARACTERS = ["tokenize", "--tokenizer", "char"]

RUN = """
import contextlib, io, json, sys
from memlm_cli.app import main
for line in sys.stdin:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(json.loads(line))
    print(json.dumps([code, out.getvalue(), err.getvalue()]), flush=True)
"""


def table(texts: list[str]) -> bytes:
    buffer = io.BytesIO()
    parquet.write_table(pa.table({"text": texts}), buffer)
    return buffer.getvalue()


REPOSITORIES = {
    "me/wiki": {
        "README.md": CARD.encode(),
        **{f"raw/train-0{number}.parquet": table(texts) for number, texts in enumerate(TRAIN)},
        "raw/valid-00.parquet": table(["the mat\n"]),
        "lines/part.jsonl": b'{"content": "x"}\n',
    },
    "me/converted": {
        f"raw/{split}/0000.parquet": table(["the mat\n"]) for split in ("train", "validation")
    },
    "me/script": {"script.py": b"1/0"},
    "me/csv": {"train.csv": b"a,b\n1,2\n"},
}


LOG_IN = "is gated: accept its terms on the hub, and log in with `hf auth login`."
NOTHING = {"hf:me/nothing": "the hub has no such repository, or not for you"}
NO_DATA = NOTHING | {
    "hf:me/wiki": "available configs: ['raw', 'lines'].",
    "hf:me/script": "it is a script, and code of others is never run; take the hub's own copy of it: hf:me/script@",
    "hf:me/csv": "take the hub's own copy of it: hf:me/csv@refs/convert/parquet.",
    "hf:me/gated": LOG_IN,
    "hf:me/wiki/raw@old": "the repository has no such revision",
    "hf:me/wi ki": "is no name of a repository",
}
NO_MODELS = NOTHING | {
    "hf:me/pickled": "has no weights as safetensors",
    "hf:me/gguf": "A GGUF file is named by itself: hf download me/gguf FILE.gguf --local-dir FOLDER.",
    "hf:me/adapter": "holds an adapter (adapter_config.json)",
    "hf:me/code": "wants code of its own to be run (config.json: auto_map), which memlm never does",
    "hf:me/gated": LOG_IN,
    "hf:me/tiny@old": "the repository has no such revision",
}
"""Names -> part of what is said of them."""
PERMISSION = {401: "needs a permission", 403: "log in with `hf auth login`"}
STATUS = {"me/unknown": 401, "me/forbidden": 403}
"""Names that the hub answers by one status."""

Answer = tuple[int, str, str]
Answers = dict[tuple[str, ...], Answer]


@contextmanager
def running(folder: Path, address: str) -> Iterator[Callable[[list[str]], Answer]]:
    """Answers commands, one after the other, in one process with a store and a cache of its own."""
    environment = {**os.environ, "HF_ENDPOINT": address, "HF_HOME": str(folder / "home")}
    environment |= {"MEMLM_STORE": str(folder / "store"), "HF_HUB_DISABLE_XET": "1"}
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", RUN], env=environment, **pipes) as process:
        commands, answers = process.stdin, process.stdout
        assert commands is not None and answers is not None

        def answer(command: list[str]) -> Answer:
            print(json.dumps(command), file=commands, flush=True)
            code, out, err = json.loads(answers.readline())
            return code, out, err

        yield answer
    assert process.returncode == 0


def ended(commands: list[list[str]], folder: Path, address: str) -> list[Answer]:
    with running(folder, address) as answer:
        return [answer(command) for command in commands]


def cached(tmp_path: Path, name: str) -> list[str]:
    """Files that the hub's own cache holds of a model."""
    folder = tmp_path / f"home/hub/models--me--{name}/snapshots" / COMMIT
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is on this machine: a text, a model, files of a data set."""
    folder = tmp_path_factory.mktemp("hub")
    (folder / "text.txt").write_text("the cat sees the hen and the dog sees the cow\n" * 20)
    saved(folder / "tiny", "llama")
    (folder / "raw").mkdir()
    for name, content in REPOSITORIES["me/wiki"].items():
        if name.startswith("raw/"):
            (folder / name).write_bytes(content)
    return folder


class Asked:
    """Commands, and what is made of data sets and models by each of their names."""

    def __init__(self, folder: Path) -> None:
        splits = [f"--{split}={folder}/text.txt" for split in ("train", "valid")]
        parts = [f"--train={part}" for part in sorted(folder.glob("raw/train-*"))]
        files = [
            ["hf:me/wiki/raw"],
            [*parts, f"--valid={folder}/raw/valid-00.parquet"],
            [f"--train=hf:me/wiki/raw@{COMMIT}", "--valid=hf:me/wiki/raw"],
            ["hf:me/wiki/raw", "--files", "0"],
            ["hf:me/converted/raw@refs/convert/parquet"],
        ]
        self.data = [[*CHARACTERS, *ends] for ends in files]
        self.no_data = [[*CHARACTERS, name] for name in NO_DATA]
        self.models = [
            ["tokenize", "--tokenizer", "hf:me/tiny", *splits, "--name", "text"],
            ["tokenize", "--tokenizer", str(folder / "tiny"), *splits],
            ["import-model", f"hf:me/tiny@{COMMIT}", "tokens/text"],
            ["import-model", str(folder / "tiny"), "tokens/text"],
        ]
        self.no_models = [["import-model", name, "tokens/text"] for name in NO_MODELS]
        self.gguf = ["tokenize", "--tokenizer", "hf:me/gguf", *splits]
        self.statuses = [["tokenize", f"--tokenizer=hf:{name}", *splits] for name in STATUS]
        # Names that nothing was fetched of before the hub went away.
        self.offline = [
            [*CHARACTERS, "hf:me/elsewhere/raw"],
            ["tokenize", "--tokenizer", "hf:me/elsewhere@main", *splits],
            ["import-model", "hf:me/elsewhere@main", "tokens/text"],
        ]

    @property
    def every(self) -> list[list[str]]:
        return [*self.data, *self.no_data, *self.models, *self.no_models, self.gguf, *self.statuses]


@pytest.fixture(scope="module")
def asked(folder: Path) -> Asked:
    return Asked(folder)


@pytest.fixture(scope="module")
def answers(folder: Path, asked: Asked) -> Answers:
    """What one process answers that reaches a hub, and then does no more."""
    files = {file.name: file.read_bytes() for file in (folder / "tiny").iterdir()}
    weights = {
        "consolidated.safetensors": b"never fetched",
        "onnx/model.safetensors": b"never fetched",
    }
    own_code = {
        **files,
        "config.json": json.dumps({**json.loads(files["config.json"]), "auto_map": {}}).encode(),
    }
    repositories = REPOSITORIES | {
        "me/tiny": {**files, **weights},
        "me/pickled": {"config.json": files["config.json"], "pytorch_model.bin": b"never fetched"},
        "me/code": own_code,
        "me/gated": {**files, "README.md": b"", "train.parquet": table(["a"])},
        "me/gguf": {"tiny.gguf": b"never fetched"},
        "me/adapter": {
            **files,
            "adapter_config.json": b"{}",
            "adapter_model.safetensors": b"never fetched",
        },
    }
    with ExitStack() as stack:
        with serving(repositories, ["me/gated"], STATUS) as address:
            answer = stack.enter_context(running(folder, address))
            reached = {tuple(command): answer(command) for command in asked.every}
        return reached | {tuple(command): answer(command) for command in asked.offline}


def require_refused(answer: Answer, message: str) -> None:
    """One line on stderr says why."""
    code, out, err = answer
    assert (code, out) == (3, "") and message in err, err
    assert len(err.strip().splitlines()) == 1, err


@pytest.mark.timeout(300)
def test_a_data_set_is_resolved_fetched_and_read_as_local_files(
    asked: Asked, answers: Answers
) -> None:
    made = [answers[tuple(command)] for command in asked.data]
    assert [code for code, _, _ in made] == [0] * 5, made
    assert made[0][1] == made[1][1] == made[2][1] != made[3][1]
    assert "cached" in made[1][2] and "cached" in made[2][2]
    for command, message in zip(asked.no_data, NO_DATA.values(), strict=True):
        require_refused(answers[tuple(command)], message)


@pytest.mark.timeout(300)
def test_a_model_and_its_tokenizer_are_fetched_and_equal_those_of_a_folder(
    folder: Path, asked: Asked, answers: Answers
) -> None:
    made = [answers[tuple(command)] for command in asked.models]
    assert [code for code, _, _ in made] == [0] * 4, made
    tokens, again, model, the_same = (out for _, out, _ in made)
    assert tokens == again and model == the_same and model.startswith("model/")
    # not the weights that transformers does not read, and no pickle
    assert cached(folder, "tiny") == ["config.json", "model.safetensors", "tokenizer.json", CONFIG]
    assert not list((folder / "home").rglob("*.bin"))
    for command, message in zip(asked.no_models, NO_MODELS.values(), strict=True):
        require_refused(answers[tuple(command)], message)
    assert (
        answers[tuple(asked.gguf)][0],
        NO_MODELS["hf:me/gguf"] in answers[tuple(asked.gguf)][2],
    ) == (3, True)


@pytest.mark.timeout(300)
def test_a_hub_that_asks_for_a_permission_is_told_apart_from_no_network(
    asked: Asked, answers: Answers
) -> None:
    for command, status in zip(asked.statuses, STATUS.values(), strict=True):
        require_refused(answers[tuple(command)], PERMISSION[status])
        assert f"({status})" in answers[tuple(command)][2]


@pytest.mark.timeout(300)
def test_without_a_network_it_is_said_what_to_download_and_where_to_put_it(
    folder: Path, asked: Asked, answers: Answers
) -> None:
    data, *models = (answers[tuple(command)] for command in asked.offline)
    require_refused(data, "hf:/path/to/FOLDER/raw")
    assert "hf download " in data[2] and " me/elsewhere" in data[2]
    for (command, *_), answer in zip(asked.offline[1:], models, strict=True):
        require_refused(answer, "(hf download me/elsewhere --revision main --local-dir FOLDER)")
        assert answer[2].startswith(f"memlm {command}: hf:me/elsewhere@main ")
    kept = [path for kind in ("tokens", "model") for path in (folder / "store" / kind).glob("*")]
    assert [path for path in kept if path.name.endswith("-partial")] == []


@pytest.mark.endurance
@pytest.mark.timeout(300)
def test_what_the_cache_holds_is_imported_without_a_network(tmp_path: Path, text: str) -> None:
    saved(tmp_path / "folder", "llama")
    files = {file.name: file.read_bytes() for file in (tmp_path / "folder").iterdir()}
    splits = [f"--{split}={text}" for split in ("train", "valid")]
    tokenize = ["tokenize", "--tokenizer", "hf:me/tiny", *splits, "--name=text"]
    alone = ["tokenize", "--tokenizer", "hf:me/alone", *splits]
    model, other = (
        ["import-model", "hf:me/tiny", "tokens/text", f"--segment-length={length}"]
        for length in (8, 16)
    )
    with serving({"me/tiny": files, "me/alone": files}) as address:
        results = ended([tokenize, model, alone], tmp_path, address)
    assert [code for code, _, _ in results] == [0] * 3, results
    assert "Fetching" not in results[2][2]
    assert cached(tmp_path, "alone") == [
        "config.json",
        "tokenizer.json",
        CONFIG,
    ]  # a tokenizer needs no weights
    commands = [tokenize, model, other, alone, ["import-model", "hf:me/alone", "tokens/text"]]
    *results, (code, _, err) = ended(commands, tmp_path, "http://127.0.0.1:9")
    assert [code for code, _, _ in results] == [0] * 4, results
    assert ["cached" in err for _, _, err in results] == [True, True, False, True]
    assert code == 3 and "(hf download me/alone " in err, err
