"""Computes shards in several processes of this machine.

Each process is spawned, because neither torch nor OpenMP survives a fork. It opens models and
inputs itself, and gets one chain of shards at a time. A process never outlives its parent.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import connection, resource_tracker
from multiprocessing.context import SpawnProcess
from typing import Any

from stages.artifacts.executors.executor import Executor, Failed, ShardTask, ShardWorker
from stages.artifacts.output import Written
from stages.artifacts.stage import Shard
from stages.errors import ResourceError, UsageError

SECONDS_TO_END = 10
RUN_AGAIN = 79
"""Exit code of a worker whose script began work while the worker imported it."""
READY = "ready"
"""Message of a worker that waits for a chain of shards."""


class Worker:
    """The parent's side of one process."""

    def __init__(self, task: ShardTask) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.connection, theirs = spawn.Pipe()
        self._process: SpawnProcess = spawn.Process(target=serve, args=(theirs, task), daemon=True)
        # Its start unblocks SIGINT at the end, so it is started before.
        resource_tracker.ensure_running()
        # Ctrl-C is sent to all processes of a terminal: this one handles it, and those that it
        # starts ignore it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        # If this side kept it open, the pipe would not close when the process ends.
        theirs.close()

    def feed(self, chain: Sequence[Shard] | None) -> bool:
        """Send a chain of shards; None: there is none for now, so finish the last one. Returns:
        whether it was sent.
        """
        try:
            self.connection.send(chain)
        except BrokenPipeError:
            raise self._death() from None
        return chain is not None

    def receive(self) -> Any:
        """The next message. Raises: ResourceError or RuntimeError if the process has died."""
        try:
            return self.connection.recv()
        except (EOFError, ConnectionResetError):
            raise self._death() from None

    def delivered(self) -> Iterator[Written]:
        """Results that the process has sent but that were not received yet."""
        with suppress(EOFError, OSError):
            while self.connection.poll():
                message = self.connection.recv()
                if isinstance(message, Written):
                    yield message

    def _death(self) -> Exception:
        self._process.join(SECONDS_TO_END)
        code = self._process.exitcode
        if code == -signal.SIGKILL:
            return ResourceError(
                "A worker process was killed, as systems do when memory runs out; what is done is kept. Run the same "
                "command with fewer --workers."
            )
        if code == RUN_AGAIN:
            return UsageError(
                "Each worker imports the script that was run, and so begins its work again. Put the work "
                "under: if __name__ == '__main__': or leave workers out."
            )
        return RuntimeError(f"a worker process ended with exit code {code}")

    def end(self) -> None:
        """End the process, even while it works."""
        self._process.terminate()
        self._process.join(SECONDS_TO_END)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self.connection.close()


@dataclass
class ProcessExecutor(Executor):
    """Executor with a process per worker, but no more than there are chains."""

    _workers: dict[Any, Worker] = field(default_factory=dict)
    """The workers, by their connections."""

    def run(self, chains: Sequence[Sequence[Shard]]) -> None:
        waiting = iter(chains)
        missing = sum(map(len, chains))
        while len(self._workers) < min(self.task.job.execution.workers, len(chains)):
            worker = Worker(self.task)
            self._workers[worker.connection] = worker
        computing = {
            worker for worker in self._workers.values() if worker.feed(next(waiting, None))
        }
        while missing or computing:
            for ready in connection.wait(self._workers):
                worker = self._workers[ready]
                message = worker.receive()
                if isinstance(message, Failed):
                    # Other processes may have written shards meanwhile; these need not be computed
                    # again.
                    for other in self._workers.values():
                        for written in other.delivered():
                            self.commit(written)
                    raise message.error()
                if isinstance(message, Written):
                    self.commit(message)
                    missing -= 1
                elif not worker.feed(next(waiting, None)):
                    computing.remove(worker)

    def close(self) -> None:
        for worker in self._workers.values():
            worker.end()


# The worker's side


def end_if_imported() -> None:
    """End this process if it is a worker that imports the main script.

    Such a script has no main guard. Its work would wait for ever for what its own parent holds.
    """
    # `multiprocessing` itself asks this, and has no public name for it.
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        os._exit(RUN_AGAIN)


def serve(parent: connection.Connection, task: ShardTask) -> None:
    """Compute the chains of shards that arrive. None means that there is none for now: finish the
    last shard.
    """
    _end_with_parent()
    lock = threading.Lock()

    def send(message: Any) -> None:
        with lock:
            parent.send(message)

    worker = ShardWorker(task, send)
    try:
        while True:
            try:
                chain = parent.recv()
            except EOFError:  # as in `_end_with_parent`: nothing more may be written
                os._exit(1)
            if chain is None:
                worker.flush()
                continue
            for shard in chain:
                worker.run(shard)
            send(READY)
    except BaseException as error:
        with suppress(Exception):
            worker.close()
        send(Failed.of(error))


def _end_with_parent() -> None:
    """End this worker when its parent dies: it must not write into a draft that it no longer owns."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()
