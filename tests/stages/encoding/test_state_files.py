from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stages.artifacts.output import ShardOutput
from stages.encoding import state_files
from stages.encoding.state_files import LONGEST, StateFiles

SIZE = 12
"""Entries of the memory."""


@pytest.fixture(autouse=True)
def all_large(monkeypatch):
    monkeypatch.setattr(state_files, "LARGE", 1)


def entries(first: int, number: int, rows: int = 2) -> torch.Tensor:
    """Entries of a memory [1, rows, number, 3], told apart by their place in the text."""
    place = torch.arange(first, first + number, dtype=torch.float32)
    return place[None, None, :, None] + torch.arange(rows)[None, :, None, None] / 10 + torch.zeros(3)


def state(stop: int, size: int = SIZE) -> dict[str, torch.Tensor]:
    """A memory of the latest entries, and what is new with every shard."""
    number = min(stop, size)
    return {"state/0": entries(stop - number, number), "state/1": torch.tensor([float(stop)])}


def write(files: StateFiles, folder: Path, shard: int, tensors, idle: int | None = None) -> ShardOutput:
    output = ShardOutput(folder)
    files.write(output, name(shard), tensors)
    if idle is not None:
        files.discard(output, name(idle))
    for file in output.written(name(shard)).discarded:
        (folder / file).unlink()
    return output


def name(shard: int) -> str:
    return f"score-{shard:06d}"


def stored(folder: Path) -> list[str]:
    return sorted(path.stem.removeprefix("state-") for path in (folder / "scratch").iterdir())


def own(folder: Path, shard: int) -> int:
    """Bytes of a file."""
    return (folder / "scratch" / f"state-{name(shard)}.safetensors").stat().st_size


def same(found, expected) -> bool:
    return (
        found is not None and found.keys() == expected.keys() and all(torch.equal(found[k], expected[k]) for k in found)
    )


def test_only_what_is_new_is_written(tmp_path):
    files, size = StateFiles(tmp_path), 4096
    write(files, tmp_path, 0, state(size, size))
    write(files, tmp_path, 1, state(size + 256, size))
    assert own(tmp_path, 1) < own(tmp_path, 0) / 8
    assert same(StateFiles(tmp_path).read(name(1)), state(size + 256, size))


def test_small_tensors_are_written_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(state_files, "LARGE", 1 << 20)
    files = StateFiles(tmp_path)
    write(files, tmp_path, 0, state(12))
    write(files, tmp_path, 1, state(14), idle=0)
    assert stored(tmp_path) == [name(1)]


def test_a_file_stays_until_no_state_needs_it(tmp_path):
    files = StateFiles(tmp_path)
    write(files, tmp_path, 0, state(12))
    write(files, tmp_path, 1, state(18), idle=0)
    assert stored(tmp_path) == [name(0), name(1)]
    write(files, tmp_path, 2, state(24), idle=1)
    assert stored(tmp_path) == [name(1), name(2)]
    write(files, tmp_path, 3, state(40), idle=2)
    assert stored(tmp_path) == [name(3)]


def test_another_run_goes_on_with_differences_and_discards_what_the_first_left(tmp_path):
    first = StateFiles(tmp_path)
    for shard in range(3):
        write(first, tmp_path, shard, state(12 + 4 * shard), idle=shard - 1 if shard else None)
    second = StateFiles(tmp_path)
    assert same(second.read(name(2)), state(20))
    write(second, tmp_path, 3, state(24), idle=2)
    assert stored(tmp_path) == [name(1), name(2), name(3)]
    write(second, tmp_path, 4, {"state/0": torch.zeros(1, 2, 12, 3), "state/1": torch.zeros(1)}, idle=3)
    assert stored(tmp_path) == [name(4)]


def test_a_file_that_is_missing_makes_the_state_one_that_is_lost(tmp_path):
    files = StateFiles(tmp_path)
    write(files, tmp_path, 0, state(12))
    write(files, tmp_path, 1, state(14))
    (tmp_path / "scratch" / f"state-{name(0)}.safetensors").unlink()
    assert StateFiles(tmp_path).read(name(1)) is None
    assert StateFiles(tmp_path).read(name(7)) is None


def test_a_file_that_was_being_written_does_not_stop_another_run(tmp_path):
    first = StateFiles(tmp_path)
    write(first, tmp_path, 0, state(12))
    write(first, tmp_path, 1, state(14))
    torn = tmp_path / "scratch" / f"state-{name(1)}.safetensors"
    torn.write_bytes(torn.read_bytes()[:20])
    second = StateFiles(tmp_path)
    assert same(second.read(name(0)), state(12))
    write(second, tmp_path, 1, state(14))
    assert same(StateFiles(tmp_path).read(name(1)), state(14))


def test_no_state_takes_more_files_than_the_longest_chain(tmp_path):
    files = StateFiles(tmp_path)
    for shard in range(3 * LONGEST):
        write(files, tmp_path, shard, state(100 + shard, 100), idle=shard - 1 if shard else None)
        assert len(stored(tmp_path)) <= LONGEST
    assert same(StateFiles(tmp_path).read(name(3 * LONGEST - 1)), state(99 + 3 * LONGEST, 100))


def test_entries_that_repeat_are_not_taken_for_others(tmp_path):
    files = StateFiles(tmp_path)
    repeated = {"state/0": torch.ones(1, 2, SIZE, 3)}
    changed = {"state/0": torch.ones(1, 2, SIZE, 3).index_fill_(2, torch.tensor([5]), 2.0)}
    for shard, tensors in enumerate((repeated, repeated, changed, repeated)):
        write(files, tmp_path, shard, tensors)
        assert same(StateFiles(tmp_path).read(name(shard)), tensors)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 20), st.sampled_from(["goes on", "goes on", "cleared", "other size", "new run"])),
        min_size=1,
        max_size=12,
    ),
    st.integers(0, 2),
)
@example([(1, "goes on"), (0, "goes on"), (12, "goes on"), (0, "new run")], 2)
def test_states_are_read_as_they_were_written(tmp_path_factory, steps, live):
    """Whatever a shard adds, where memory is cleared or a run begins anew; of earlier shards `live` stay readable."""
    folder = tmp_path_factory.mktemp("states")
    files, stop, kept, expected = StateFiles(folder), 0, 0, []
    for shard, (added, event) in enumerate(steps):
        if event == "new run":
            files = StateFiles(folder)
            if shard:
                assert same(files.read(name(shard - 1)), expected[-1])
        kept = 0 if event == "cleared" else kept
        stop, kept = stop + added, min(kept + added, SIZE)
        tensors = {"state/0": entries(stop - kept, kept, 3 if event == "other size" else 2), "state/1": torch.rand(2)}
        idle = shard - live - 1
        write(files, folder, shard, tensors, idle if idle >= 0 else None)
        expected.append(tensors)
        for earlier in range(max(0, shard - live), shard + 1):
            assert same(StateFiles(folder).read(name(earlier)), expected[earlier])
