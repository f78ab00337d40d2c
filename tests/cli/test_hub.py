"""Data sets and models of a hub on this machine, in a process of its own: the address is read at import."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fake_hub import COMMIT, answering, serving
from tests.stages.pretrained.tiny import saved
from tests.stages.tokenization.test_corpora import CARD, TRAIN

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
pytest.importorskip("datasets")
pytest.importorskip("transformers")
CONFIG = "tokenizer_config.json"
CHARACTERS = ["tokenize", "--tokenizer", "char"]

RUN = """
import contextlib, io, json, sys
from memlm_cli.app import main
for arguments in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
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
    "me/converted": {f"raw/{split}/0000.parquet": table(["the mat\n"]) for split in ("train", "validation")},
    "me/script": {"script.py": b"1/0"},
    "me/csv": {"train.csv": b"a,b\n1,2\n"},
    "me/gated": {"README.md": b"", "train.parquet": table(["a"])},
}


def ended(commands: list[list[str]], tmp_path: Path, address: str) -> list[tuple[int, str, str]]:
    environment = {**os.environ, "HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "home")}
    environment |= {"MEMLM_STORE": str(tmp_path / "store"), "HF_HUB_DISABLE_XET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", RUN], input=json.dumps(commands), env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def cached(tmp_path: Path, name: str) -> list[str]:
    """Files that the hub's own cache holds of a model."""
    folder = tmp_path / f"home/hub/models--me--{name}/snapshots" / COMMIT
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*"))


@pytest.mark.timeout(300)
def test_a_data_set_is_resolved_fetched_and_read_as_local_files(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    files = [name for name in REPOSITORIES["me/wiki"] if name.startswith("raw/")]
    for name in files:
        (tmp_path / name).write_bytes(REPOSITORIES["me/wiki"][name])
    local: list[str] = [f"--train={tmp_path}/{name}" for name in files if "train" in name]
    local += [f"--valid={tmp_path}/raw/valid-00.parquet"]
    commands = [
        ["hf:me/wiki/raw"],
        local,
        [f"--train=hf:me/wiki/raw@{COMMIT}", "--valid=hf:me/wiki/raw"],
        ["hf:me/wiki/raw", "--files", "0"],
        ["hf:me/converted/raw@refs/convert/parquet"],
    ]
    refused = {
        "hf:me/wiki": "available configs: ['raw', 'lines'].",
        "hf:me/script": "it is a script, and code of others is never run; take the hub's own copy of it: hf:me/script@",
        "hf:me/csv": "take the hub's own copy of it: hf:me/csv@refs/convert/parquet.",
        "hf:me/gated": "is gated: accept its terms on the hub, and log in with `hf auth login`.",
        "hf:me/nothing": "the hub has no such repository, or not for you",
        "hf:me/wiki/raw@old": "the repository has no such revision",
        "hf:me/wi ki": "is no name of a repository",
    }
    with serving(REPOSITORIES, gated="me/gated") as address:
        results: list[Any] = ended([[*CHARACTERS, *ends] for ends in (*commands, *zip(refused))], tmp_path, address)
    made = results[: len(commands)]
    assert [code for code, _, _ in made] == [0] * 5, made
    assert made[0][1] == made[1][1] == made[2][1] != made[3][1]
    assert "cached" in made[1][2] and "cached" in made[2][2]
    for (spec, message), (code, out, err) in zip(refused.items(), results[len(commands) :], strict=True):
        assert (code, out) == (3, ""), (spec, err)
        assert message in err and len(err.strip().splitlines()) == 1, (spec, err)


@pytest.mark.timeout(300)
def test_without_a_network_it_says_what_to_download_and_where_to_put_it(tmp_path: Path) -> None:
    ((code, out, err),) = ended([[*CHARACTERS, "hf:me/wiki/raw"]], tmp_path, "http://127.0.0.1:9")
    assert (code, out) == (3, "")
    assert "hf download " in err and " me/wiki" in err and "hf:/path/to/FOLDER/raw" in err


@pytest.mark.timeout(300)
def test_without_a_network_a_model_and_its_tokenizer_are_to_be_brought_by_hand(tmp_path: Path, text: str) -> None:
    commands = [
        [*CHARACTERS, f"--train={text}", "--name=text"],
        ["tokenize", "--tokenizer", "hf:me/tiny@main", f"--train={text}"],
        ["import-model", "hf:me/tiny@main", "tokens/text"],
    ]
    made, *results = ended(commands, tmp_path, "http://127.0.0.1:9")
    assert made[0] == 0, made
    told = "(hf download me/tiny --revision main --local-dir FOLDER)"
    for (command, *_), (code, out, err) in zip(commands[1:], results, strict=True):
        assert (code, out) == (3, "") and len(err.splitlines()) == 1, err
        assert err.startswith(f"memlm {command}: hf:me/tiny@main ") and told in err
    kept = [path for kind in ("tokens", "model") for path in (tmp_path / "store" / kind).glob("*")]
    assert [path for path in kept if path.name.endswith("-partial")] == []


@pytest.mark.timeout(300)
def test_a_model_and_its_tokenizer_are_fetched_and_equal_those_of_a_folder(tmp_path: Path, text: str) -> None:
    saved(tmp_path / "folder", "llama")
    files = {file.name: file.read_bytes() for file in (tmp_path / "folder").iterdir()}
    others = {"consolidated.safetensors": b"never fetched", "onnx/model.safetensors": b"never fetched"}
    pickled = {"config.json": files["config.json"], "pytorch_model.bin": b"never fetched"}
    own_code = {**files, "config.json": json.dumps({**json.loads(files["config.json"]), "auto_map": {}}).encode()}
    adapter = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"never fetched"}
    repositories = {"me/tiny": {**files, **others}, "me/pickled": pickled, "me/code": own_code, "me/gated": files}
    repositories |= {"me/gguf": {"tiny.gguf": b"never fetched"}, "me/adapter": {**files, **adapter}}
    splits = [f"--{split}={text}" for split in ("train", "valid")]
    named = ["--name", "text"]
    refused = {
        "hf:me/pickled": "has no weights as safetensors",
        "hf:me/gguf": "A GGUF file is named by itself: hf download me/gguf FILE.gguf --local-dir FOLDER.",
        "hf:me/adapter": "holds an adapter (adapter_config.json)",
        "hf:me/code": "wants code of its own to be run (config.json: auto_map), which memlm never does",
        "hf:me/gated": "is gated: accept its terms on the hub, and log in with `hf auth login`.",
        "hf:me/nothing": "the hub has no such repository, or not for you",
        "hf:me/tiny@old": "the repository has no such revision",
    }
    commands = [
        ["tokenize", "--tokenizer", "hf:me/tiny", *splits, *named],
        ["tokenize", "--tokenizer", str(tmp_path / "folder"), *splits],
        ["import-model", f"hf:me/tiny@{COMMIT}", "tokens/text"],
        ["import-model", str(tmp_path / "folder"), "tokens/text"],
        *(["import-model", spec, "tokens/text"] for spec in refused),
        ["tokenize", "--tokenizer", "hf:me/gguf", *splits],
    ]
    with serving(repositories, gated="me/gated") as address:
        results: Any = ended(commands, tmp_path, address)
    assert (results[-1][0], refused["hf:me/gguf"] in results.pop()[2]) == (3, True)
    whole = ["config.json", "model.safetensors", "tokenizer.json", CONFIG]
    assert cached(tmp_path, "tiny") == whole  # not the weights that transformers does not read
    assert [code for code, _, _ in results[:4]] == [0] * 4, results
    (_, tokens, _), (_, again, _), (_, model, _), (_, the_same, _) = results[:4]
    assert tokens == again and model == the_same and model.startswith("model/")
    for (spec, message), (code, out, err) in zip(refused.items(), results[4:], strict=True):
        assert (code, out) == (3, "") and message in err, (spec, err)
        assert len(err.strip().splitlines()) == 1, (spec, err)
    assert not list((tmp_path / "home").rglob("*.bin"))  # no pickle is fetched


@pytest.mark.endurance
@pytest.mark.timeout(300)
def test_what_the_cache_holds_is_imported_without_a_network(tmp_path: Path, text: str) -> None:
    saved(tmp_path / "folder", "llama")
    files = {file.name: file.read_bytes() for file in (tmp_path / "folder").iterdir()}
    splits = [f"--{split}={text}" for split in ("train", "valid")]
    tokenize = ["tokenize", "--tokenizer", "hf:me/tiny", *splits, "--name=text"]
    alone = ["tokenize", "--tokenizer", "hf:me/alone", *splits]
    model, other = (["import-model", "hf:me/tiny", "tokens/text", f"--segment-length={length}"] for length in (8, 16))
    with serving({"me/tiny": files, "me/alone": files}) as address:
        results = ended([tokenize, model, alone], tmp_path, address)
    assert [code for code, _, _ in results] == [0] * 3, results
    assert "Fetching" not in results[2][2]
    assert cached(tmp_path, "alone") == ["config.json", "tokenizer.json", CONFIG]  # a tokenizer needs no weights
    commands = [tokenize, model, other, alone, ["import-model", "hf:me/alone", "tokens/text"]]
    *results, (code, _, err) = ended(commands, tmp_path, "http://127.0.0.1:9")
    assert [code for code, _, _ in results] == [0] * 4, results
    assert ["cached" in err for _, _, err in results] == [True, True, False, True]
    assert code == 3 and "(hf download me/alone " in err, err


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("status", "told"), [(401, "needs a permission"), (403, "log in with `hf auth login`")])
def test_a_hub_that_asks_for_a_permission_is_told_apart_from_no_network(
    tmp_path: Path, text: str, status: int, told: str
) -> None:
    with answering(status) as address:
        ((code, out, err),) = ended([["tokenize", "--tokenizer=hf:me/a", f"--train={text}"]], tmp_path, address)
    assert (code, out, err.count("\n")) == (3, "", 1) and told in err and f"({status})" in err
