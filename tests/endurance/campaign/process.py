"""memlm in a child process that can be killed, limited in time, memory and room, and looked at
afterwards.

Most children are forks of this process, in which everything is imported already, and call
`memlm_cli.app.main`; with `fresh` the child begins anew as `python -m memlm_cli`. This process
itself must start no thread and compute nothing, or its forks would hang.
"""

import fcntl
import importlib
import os
import pkgutil
import platform
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import memlm_cli

REPOSITORY = Path(memlm_cli.__file__).parent.parent
GIB = 2**30
ASKED = (signal.SIGINT, signal.SIGTERM)
MOST_BYTES_WRITTEN = 256 * 2**20
CHANGING = frozenset(
    {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink"}
)
OUTSIDE = frozenset(
    {
        "socket.connect",
        "socket.getaddrinfo",
        "subprocess.Popen",
        "os.system",
        "os.exec",
        "os.posix_spawn",
    }
)
UNPICKLED = "pickle.find_class"
"""Of a process of `--workers` alone, which gets its work that way."""
SMALL_SHARDS = {
    "stages.artifacts.arrays.TARGET_SHARD_BYTES": 1024,
    "stages.text.spool.SHARD_CHARACTERS": 600,
}
"""So that a corpus of a few kB is cut into several shards; in forks only."""


@dataclass(frozen=True)
class Limits:
    """What a child may use. Times are generous: machines are shared, and `--compile` runs a
    compiler.
    """

    cpu_seconds: int = 60
    wall_seconds: float = 600.0
    memory: int = 3 * GIB
    """Beyond what everything imported takes."""
    file_bytes: int = MOST_BYTES_WRITTEN


@dataclass(frozen=True)
class Death:
    """A signal that the child gets, at its n-th change of a folder or opening of a file to write,
    or after a time.
    """

    signal: int
    event: int | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code, or minus the signal that ended it, or None if it had to
    be ended.
    """

    code: int | None
    out: str
    err: str
    seconds: float
    events: int
    log: str
    """The traceback that it left behind, if it took its end for a bug."""
    outside: str = ""
    """Connections, programs and pickles that it tried to open, all of which were denied."""

    @property
    def reference(self) -> str:
        """The last line on stdout of a stage."""
        return self.out.splitlines()[-1] if self.out.strip() else ""


def preload() -> None:
    """Import everything that any command needs, computing nothing. Raises RuntimeError if that
    starts a thread.
    """
    for package in ("memlm_cli", "pipelines", "stages"):
        root = importlib.import_module(package)
        for module in pkgutil.walk_packages(root.__path__, f"{package}."):
            if module.name.endswith("__main__"):
                continue
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                if error.name != "triton":  # only its kernels need it
                    raise
    for name in (
        "faiss",
        "lightning_fabric",
        "numcodecs",
        "tokenizers",
        "stages.training.board",
    ):
        importlib.import_module(name)
    platform.platform()  # asks a program, once; forks are to run none
    if len(list(Path("/proc/self/task").iterdir())) > 1:
        raise RuntimeError("Importing memlm started a thread: forks could hang.")


class Child:
    """A memlm that is at work."""

    def __init__(
        self,
        arguments: Sequence[str],
        folder: Path,
        *,
        stdin: bytes = b"",
        limits: Limits | None = None,
        death: Death | None = None,
        fresh: bool = False,
        small_shards: bool = True,
    ) -> None:
        """Start it in `folder`, with the store `folder`/store."""
        self._limits, self._death = limits or Limits(), death
        self._job = Path(tempfile.mkdtemp(prefix="job-", dir=folder))
        (self._job / "in").write_bytes(stdin)
        self._began = time.monotonic()
        sys.stdout.flush()
        self._out, out = _pipe()
        self._err, err = _pipe()
        signal.pthread_sigmask(signal.SIG_BLOCK, ASKED)  # until memlm is what they would end
        self._pid = os.fork()
        if self._pid == 0:
            _become(
                list(arguments),
                folder,
                self._job,
                self._limits,
                death,
                fresh,
                small_shards,
                (out, err),
            )
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKED)
        os.close(out)
        os.close(err)

    @property
    def lives(self) -> bool:
        """Whether it is still at work."""
        return os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def stop(self) -> None:
        """Ask it to end."""
        os.kill(self._pid, signal.SIGTERM)

    def wait(self) -> Ended:
        """Wait for its end, and end it where it takes too long."""
        status = None
        dies = self._death.seconds if self._death else None
        while status is None:
            time.sleep(0.003)
            passed = time.monotonic() - self._began
            if dies is not None and passed >= dies:
                assert self._death is not None
                os.kill(self._pid, self._death.signal)
                dies = None
            if passed > self._limits.wall_seconds:
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
                return self._ended(None)
            pid, found = os.waitpid(self._pid, os.WNOHANG)
            status = found if pid else None
        code = os.waitstatus_to_exitcode(status)
        out_of_time = code == -signal.SIGXCPU or (code == -signal.SIGKILL and self._death is None)
        return self._ended(None if out_of_time else code)

    def _ended(self, code: int | None) -> Ended:
        out, err = (_read(pipe) for pipe in (self._out, self._err))
        events = (self._job / "events").read_text() if (self._job / "events").exists() else "0"
        log = "".join(path.read_text("utf-8", "replace") for path in self._job.glob("memlm-*.log"))
        outside = (self._job / "outside").read_text() if (self._job / "outside").exists() else ""
        return Ended(code, out, err, time.monotonic() - self._began, int(events or 0), log, outside)


def _become(
    arguments: list[str],
    folder: Path,
    job: Path,
    limits: Limits,
    death: Death | None,
    fresh: bool,
    small_shards: bool,
    pipes: tuple[int, int],
) -> None:
    """Turn this fork into memlm; never returns."""
    code = 1
    try:
        _redirect(job / "in", *pipes)
        if small_shards:
            _make_shards_small()
        _limit(limits, fresh)
        os.chdir(folder)
        os.environ |= {
            "MEMLM_STORE": "store",
            "TMPDIR": str(job),
            "HOME": str(job),
            "PYTHONPATH": str(REPOSITORY),
        }
        if fresh:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKED)
            os.execv(sys.executable, [sys.executable, "-m", "memlm_cli", *arguments])
        code = _call(arguments, job, death)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


def _call(arguments: list[str], job: Path, death: Death | None) -> int:
    from memlm_cli import app

    tempfile.tempdir = str(job)
    sys.argv = ["memlm", *arguments]
    seen, outside = [0], list[str]()
    _watch(seen, death)
    if (
        "--compile" not in arguments
    ):  # torch's compiler runs g++, and unpickles what it has cached itself
        _deny(outside, unpickles="--workers" in arguments)
    invoke = app.invoke

    def begin(parsed: Sequence[str]) -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKED)  # here memlm knows what to do with them
        invoke(parsed)

    app.invoke = begin
    code = app.main()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    (job / "events").write_text(str(seen[0]))
    (job / "outside").write_text(", ".join(outside))
    return code


def _make_shards_small() -> None:
    for name, value in SMALL_SHARDS.items():
        module, _, constant = name.rpartition(".")
        setattr(sys.modules[module], constant, value)


def _watch(seen: list[int], death: Death | None) -> None:
    """Count what changes a folder or opens a file to write, and send the signal of `death` when its
    turn comes.
    """

    def hook(event: str, values: tuple[Any, ...]) -> None:
        writes = (
            event == "open" and isinstance(values[2], int) and values[2] & (os.O_WRONLY | os.O_RDWR)
        )
        if writes or event in CHANGING:
            seen[0] += 1
            if death is not None and death.event == seen[0]:
                os.kill(os.getpid(), death.signal)

    sys.addaudithook(hook)


def _deny(tried: list[str], *, unpickles: bool) -> None:
    """Let nothing be reached, run or unpickled, and note what is tried."""
    denied = OUTSIDE if unpickles else OUTSIDE | {UNPICKLED}

    def hook(event: str, values: tuple[Any, ...]) -> None:
        if event in denied:
            tried.append(f"{event} {values}"[:200])
            raise PermissionError(f"{event} is denied")

    sys.addaudithook(hook)


def _pipe() -> tuple[int, int]:
    """A pipe with room for all that a command may say; a file would be cut by a limit on its size."""
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 2**20)
    os.set_blocking(read, False)
    return read, write


def _read(pipe: int) -> str:
    """What a child that is dead has said."""
    with open(pipe, "rb") as file:
        return (file.read() or b"").decode("utf-8", "backslashreplace")


def _redirect(stdin: Path, out: int, err: int) -> None:
    os.setsid()
    for number, descriptor in enumerate((os.open(stdin, os.O_RDONLY), out, err)):
        os.dup2(descriptor, number)
    sys.stdin = os.fdopen(0, encoding="utf-8")
    sys.stdout = os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace")
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _limit(limits: Limits, fresh: bool) -> None:
    pages = int(
        Path("/proc/self/statm").read_text().split()[5]
    )  # of data: what draws charts only reserves addresses
    taken = GIB * 8 if fresh else pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (taken + limits.memory,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu_seconds, limits.cpu_seconds + 5))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits.file_bytes, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
