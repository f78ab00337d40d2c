"""Whatever happens to a store, in any order, it holds what a plain model of it says.

Two open stores of one folder, as of two processes, make, interrupt, resume, name, remove, collect
and damage what there is. Seconds as it is; hours:
`pytest --hypothesis-profile long --timeout 0 tests/stages/artifacts/test_store_machine.py`.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from stages.artifacts.artifact import Artifact
from stages.artifacts.garbage import find_garbage, remove_garbage
from stages.artifacts.make import Outcome, make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.errors import ArtifactError
from tests.endurance.campaign.mutate import damaged_bytes
from tests.endurance.power_loss.record import CHANGING, SYNCING, replaced
from tests.stages.artifacts.toy import Cubes, Squares, SquaresConfig

LENGTHS = st.integers(1, 3).map(lambda shards: 3 * shards)
KINDS = st.sampled_from(["tokens", "model"])
NAMES = st.sampled_from(["a", "b"])
WHO = st.sampled_from([0, 1])


class Killed(BaseException):
    """Stands for the end of the process, at the n-th change of the folder."""


class StoreMachine(RuleBasedStateMachine):
    """`right`: digests by reference as they came out first. `there`: what is finished. `names`:
    what leads where.
    """

    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="memlm-machine-"))
        self.stores = [Store(self.root / "store"), Store(self.root / "store")]
        self.right: dict[str, str] = {}
        self.there: dict[tuple[str, int], str] = {}
        self.names: dict[str, str] = {}

    def teardown(self) -> None:
        if hasattr(self, "root"):
            shutil.rmtree(self.root)

    # Rules

    @rule(who=WHO, kind=KINDS, length=LENGTHS)
    def makes(self, who: int, kind: str, length: int) -> None:
        if kind == "model" and ("tokens", length) not in self.there:
            return
        outcome = self._make(who, kind, length)
        assert (outcome.status == "cached") == ((kind, length) in self.there)
        self._is_there(kind, length, outcome.artifact)

    @rule(who=WHO, length=LENGTHS, changes=st.integers(0, 60))
    def is_killed(self, who: int, length: int, changes: int) -> None:
        """A command dies at some change of the folder; what it leaves is a whole artifact or none."""
        before = ("tokens", length) in self.there
        with suppress(Killed), _death_after(changes):
            self._make(who, "tokens", length)
        for artifact in self.stores[who].artifacts():
            if artifact.kind == "tokens" and artifact.config["length"] == length:
                assert not before or artifact.reference == self.there["tokens", length]
                self._is_there("tokens", length, artifact)

    @rule(who=WHO, length=LENGTHS, shard=st.integers(0, 2))
    def fails_and_goes_on(self, who: int, length: int, shard: int) -> None:
        """A shard fails; the next attempt, of the other process, computes it and those behind it,
        and no other.
        """
        if ("tokens", length) in self.there or self._draft_exists() or 3 * shard >= length:
            return
        with suppress(RuntimeError):
            self._make(who, "tokens", length, Squares(shard, RuntimeError()))
        again = Squares()
        self._is_there("tokens", length, self._make(1 - who, "tokens", length, again).artifact)
        assert again.computed == [f"{number:03}" for number in range(shard, length // 3)]

    @rule(who=WHO, kind=KINDS, length=LENGTHS, name=NAMES)
    def names_it(self, who: int, kind: str, length: int, name: str) -> None:
        if (kind, length) in self.there:
            store = self.stores[who]
            store.name(store.get(self.there[kind, length]), name)
            self.names[f"{kind}/{name}"] = self.there[kind, length]

    @rule(who=WHO, kind=KINDS, length=LENGTHS)
    def removes(self, who: int, kind: str, length: int) -> None:
        if (kind, length) in self.there:
            self._gone(self.there[kind, length])
            self.stores[who].remove(self.there.pop((kind, length)))

    @rule(who=WHO, length=LENGTHS, changes=st.integers(0, 30))
    def is_killed_while_removing(self, who: int, length: int, changes: int) -> None:
        """Names go first, then all of it at once; what is left behind is collected."""
        reference = self.there.get(("tokens", length))
        if reference is None:
            return
        with suppress(Killed), _death_after(changes):
            self.stores[who].remove(reference)
        found = {
            kind_name for kind_name, named in self.names.items() if self._named(kind_name) == named
        }
        self.names = {
            kind_name: named for kind_name, named in self.names.items() if kind_name in found
        }
        if not self.stores[who].has(*reference.split("/")):
            assert reference not in self.names.values()
            del self.there["tokens", length]

    @rule(who=WHO)
    def collects(self, who: int) -> None:
        remove_garbage(self.stores[who], find_garbage(self.stores[who], interrupted=True))
        assert not find_garbage(self.stores[1 - who], interrupted=True)

    @rule(who=WHO)
    def collects_what_has_no_name(self, who: int) -> None:
        remove_garbage(
            self.stores[who], find_garbage(self.stores[who], unnamed=True, interrupted=True)
        )
        reached = set(self.names.values())
        parents = {
            self.there["tokens", n]
            for (k, n), r in self.there.items()
            if k == "model" and r in reached
            if ("tokens", n) in self.there
        }
        self.there = {work: r for work, r in self.there.items() if r in reached | parents}

    @precondition(lambda self: self.there)
    @rule(who=WHO, data=st.data())
    def is_damaged(self, who: int, data: Any) -> None:
        """A file of an artifact changes: whoever reads it is told, and it can be removed and made
        again.
        """
        work, reference = data.draw(st.sampled_from(sorted(self.there.items())))
        store = self.stores[who]
        files = sorted(path for path in (store.root / reference).rglob("*") if path.is_file())
        path = data.draw(st.sampled_from(files))
        content, how = damaged_bytes(Random(data.draw(st.integers(0, 2**32))), path.read_bytes())
        time.sleep(0.01)  # the clock of the file system ticks
        path.write_bytes(content)
        for every_byte in (False, True):
            with suppress(ArtifactError):
                found = Store(store.root).open(reference)
                found.store.check_files(found, every_byte=every_byte)
                harmless = path.name == "manifest.json" and found.digest == self.right[reference]
                assert harmless, f"{path} is damaged ({how}), and {reference} was read"
        self._gone(reference)
        store.remove(self.there.pop(work))

    # What holds at any time

    @invariant()
    def holds_what_the_model_says(self) -> None:
        if not hasattr(self, "root"):
            return
        for store in self.stores:
            found = {a.reference: a.digest for a in store.artifacts()}
            assert found == {reference: self.right[reference] for reference in self.there.values()}
            for artifact in store.artifacts():
                store.check_files(artifact, every_byte=True)
            assert {
                f"{k}/{n}": f"{k}/{i}"
                for k in ("tokens", "model")
                for n, i in store.names(k).items()
            } == self.names

    # Small things

    def _make(self, who: int, kind: str, length: int, stage: Squares | None = None) -> Outcome:
        config, store = SquaresConfig(length=length), self.stores[who]
        with replaced(dict.fromkeys(SYNCING, lambda descriptor: None)):
            if kind == "tokens":
                return make(stage or Squares(), config, {}, store, Execution())
            return make(
                Cubes(), config, {"source": self.there["tokens", length]}, store, Execution()
            )

    def _is_there(self, kind: str, length: int, artifact: Artifact) -> None:
        self.there[kind, length] = artifact.reference
        assert self.right.setdefault(artifact.reference, artifact.digest) == artifact.digest

    def _gone(self, reference: str) -> None:
        self.names = {name: named for name, named in self.names.items() if named != reference}

    def _named(self, name: str) -> str | None:
        kind, _, rest = name.partition("/")
        id = self.stores[0].names(kind).get(rest)
        return id and f"{kind}/{id}"

    def _draft_exists(self) -> bool:
        return any(self.stores[0].root.glob("*/.*-partial"))


@contextmanager
def _death_after(changes: int) -> Iterator[None]:
    """So many names change; then nothing does any more, as if the process had ended."""
    left = [changes]

    def counted(name: str) -> Any:
        call = getattr(os, name)

        def change(*paths: Any, **where: Any) -> Any:
            left[0] -= 1
            if left[0] >= 0:
                return call(*paths, **where)
            if name in ("unlink", "remove", "rmdir") and left[0] < -1:
                return None  # of what tidies up behind an error, nothing happens
            raise Killed

        return change

    with replaced({name: counted(name) for name in CHANGING}):
        yield


TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    max_examples=max(5, settings.default.max_examples // 10),  # type: ignore[union-attr]
    stateful_step_count=25,
    suppress_health_check=list(HealthCheck),
)
