"""SIGINT and SIGTERM end every command in the same way."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stages.artifacts.store import Store
from tests.builders.limits import limit
from tests.builders.small_commands import SMALL
from tests.cli.conftest import Memlm

WORKING = """
import sys, time
from memlm_cli import app

def work(arguments):
    print("ready", flush=True)
    time.sleep(60)

app.invoke = work
sys.exit(app.main(["evaluate"]))
"""


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.parametrize(
    ("signum", "code", "told"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_a_job_in_the_background_hears_them(signum: int, code: int, told: str) -> None:
    """A shell without job control starts `memlm … &` with SIGINT ignored."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(
        [sys.executable, "-c", WORKING], preexec_fn=_ignore_interrupts, **pipes
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signum)
        said = process.stderr.read()
        assert (process.wait(30), said.count("\n")) == (code, 1)
        assert said.startswith(f"memlm evaluate: {told}; ")


BUSY = """
import sys, time, zarr
from zarr.core.sync import loop
from memlm_cli import app

def work(arguments):
    zarr.create_array(store={}, shape=(2,), dtype="int64")[:] = 1
    loop[0].call_soon_threadsafe(time.sleep, 0.7)

app.invoke, sys.argv = work, ["memlm", "evaluate"]
sys.exit(app.main())
"""


def test_the_end_is_silent_on_a_busy_machine() -> None:
    """zarr's own end gives its thread 0.2 seconds."""
    ended = subprocess.run(
        [sys.executable, "-c", BUSY], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


IN_BACKGROUND = '"$@" & echo $!; wait $!'
"""What a script does with `memlm … &`; a shell without job control starts that with SIGINT ignored.
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="runs a job of bash")
def test_an_evaluation_in_the_background_is_interrupted(memlm: Memlm, tmp_path: Path) -> None:
    text, store = tmp_path / "text.txt", Store(tmp_path / "store")
    text.write_text("a line of nineteen.\n" * 5000)
    tokens = memlm("tokenize", "--train", text, "--tokenizer", "byte").reference
    model = memlm("train", tokens, *SMALL).reference
    arguments = [
        "evaluate",
        model,
        "--split",
        "train",
        "--memory",
        "long:size=500,theta=0.3,lambda=0.1",
    ]
    command = ["bash", "-c", IN_BACKGROUND, "bash", sys.executable, "-m", "memlm_cli", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as shell:
        assert shell.stdout is not None
        job = int(shell.stdout.readline())
        while not any(store.root.glob("report/.*-partial/*")):
            assert shell.poll() is None
            time.sleep(0.01)
        os.kill(job, signal.SIGINT)
        out, err = shell.communicate(timeout=60)
    assert (shell.returncode, out) == (130, ""), err
    assert err.splitlines()[-1].startswith("memlm evaluate: ")
    assert store.artifacts("report") == []


DONE = """
import atexit, sys, time
from memlm_cli import app

def leave():
    print("done", flush=True)
    time.sleep(1)

app.invoke = lambda arguments: None
atexit.register(leave)
sys.exit(app.main())
"""


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_what_is_done_ends_as_done(signum: int) -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", DONE], **pipes) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "done\n"
        process.send_signal(signum)
        assert (process.wait(30), process.stderr.read()) == (0, "")


IN_SMALL_SHARDS = """
import sys
from memlm_cli import app
from stages.text import spool

spool.SHARD_CHARACTERS = 100
sys.exit(app.main())
"""


def _session(leader: int) -> list[int]:
    """The processes of a session that are no zombies."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = stat.read_text().rsplit(")", 1)[1].split()[:4]
        except OSError:
            continue
        if int(session) == leader and state != "Z":
            found.append(int(stat.parent.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")
def test_several_workers_end_with_an_interrupted_command_and_the_next_goes_on(
    memlm: Memlm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from a terminal, which sends Ctrl-C to the workers too."""
    text, store = tmp_path / "text.txt", Store(tmp_path / "store")
    text.write_text("a line of nineteen.\n" * 1000)
    arguments = ["tokenize", "--train", str(text), "--tokenizer", "byte"]
    limit(monkeypatch, shard_characters=100)
    reference = memlm(*arguments, "--store", tmp_path / "alone").reference
    command = [sys.executable, "-c", IN_SMALL_SHARDS, *arguments, "--workers", "2"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    log = store.draft_folder("tokens", reference.split("/")[1]) / "progress.jsonl"
    with subprocess.Popen(command, start_new_session=True, **pipes) as process:
        while _shards(log) < 3:
            assert process.poll() is None
            time.sleep(0.01)
        assert len(_session(process.pid)) >= 3
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    stopped = "memlm tokenize: interrupted; what is done is kept, and the same command goes on from there."
    assert err.splitlines()[-1] == stopped
    deadline = time.monotonic() + 30
    while _session(process.pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    done = _shards(log)
    assert 3 <= done < 200
    again = memlm(*arguments)
    assert again.reference == reference
    assert f"resumed: {done} of 200 shards" in again.err
    assert (
        store.get(reference).manifest.files
        == Store(tmp_path / "alone").get(reference).manifest.files
    )


def _shards(log: Path) -> int:
    """How many shards of text are committed."""
    return log.read_text().count('"key": "train-') if log.exists() else 0


def test_the_thread_of_zarr_is_ended_with_the_process() -> None:
    """At exit a busy machine would wait for it, and print a traceback."""
    script = (
        "import zarr, zarr.core.sync as sync; from memlm_cli.app import end_zarr; end_zarr(); "
        "zarr.zeros(3); thread = sync.iothread[0]; assert thread.is_alive(); end_zarr(); print(thread.is_alive())"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert ended.stdout.strip() == "False"


def test_a_thread_of_zarr_that_a_signal_kept_from_starting_is_not_joined() -> None:
    run = (
        "import asyncio, threading, zarr.core.sync as sync; from memlm_cli.app import end_zarr; "
        "sync.loop[0], sync.iothread[0] = asyncio.new_event_loop(), threading.Thread(); end_zarr()"
    )
    ended = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")


AMID_EXEC = """
import sys, threading, time
from memlm_cli import app

threading.Thread(target=time.sleep, args=[60], daemon=True).start()  # as libraries have them: each may get signals
app.invoke = lambda arguments: exec("import time; print('begun', flush=True); time.sleep(60)")
sys.exit(app.main())
"""


def test_an_interrupt_amid_code_that_is_executed_ends_with_130_too(tmp_path: Path) -> None:
    (tmp_path / "amid.py").write_text(AMID_EXEC)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{Path.cwd()}"}
    words = [sys.executable, "-m", "amid"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == b"begun\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130


MISTAKEN = """
import sys, time
from memlm_cli import app

class SchemaError(Exception):
    pass

def work(arguments):
    print("ready", flush=True)
    try:
        time.sleep(60)
    except BaseException as error:
        raise SchemaError("a library's own") from ERROR

app.invoke, sys.argv = work, ["memlm", "evaluate"]
sys.exit(app.main())
"""


@pytest.mark.parametrize("cause", ["error", "None"])
@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_error_that_a_library_makes_of_a_signal_is_the_signal(
    signum: int, code: int, cause: str
) -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    script = MISTAKEN.replace("ERROR", cause)
    with subprocess.Popen([sys.executable, "-c", script], **pipes) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signum)
        said = process.stderr.read()
    assert (process.returncode, said.count("\n")) == (code, 1), said
    assert "bug" not in said


IMPORTING = """
import builtins, os, signal, sys

imports = builtins.__import__
count = 0

def counted(name, *rest, **more):
    global count
    if "memlm_cli.entry" in sys.modules and signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        count += 1
        if count == AT:
            os.kill(os.getpid(), SIGNUM)
    return imports(name, *rest, **more)

builtins.__import__ = counted
sys.argv = ["memlm", "evaluate", "model/000000000000"]
from memlm_cli.entry import main
sys.exit(main())
"""


@pytest.mark.parametrize("at", [1, 10, 40, 160, 500, 1000, 1500, 2000])
def test_a_signal_amid_the_imports_ends_with_its_code(at: int, tmp_path: Path) -> None:
    """Libraries turn the exception of a signal into errors of their own while they are imported."""
    signum, code = (signal.SIGINT, 130) if at % 3 else (signal.SIGTERM, 143)
    script = IMPORTING.replace("AT", str(at)).replace("SIGNUM", str(int(signum)))
    environment = os.environ | {"MEMLM_STORE": str(tmp_path / "store")}
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment
    )
    # Later ones may come after the command, which finds no such model.
    assert ended.returncode in (code, 4 if at > 1000 else code), ended.stderr
    # pydantic's core may print lines of its own before.
    assert ended.stderr.splitlines()[-1].startswith("memlm") and "bug" not in ended.stderr
