from functools import partial

import numpy as np
import pytest

from stages.training.training_data import mapped as mapped_rows

mapped = partial(mapped_rows, rows_at_once=3)


def test_is_written_in_blocks_of_rows_and_read_back(tmp_path):
    source, asked = np.arange(14, dtype=np.int64).reshape(7, 2), []

    def rows(start, stop):
        asked.append((start, stop))
        return source[start:stop]

    array = mapped(tmp_path / "a.npy", (7, 2), np.int32, rows)
    assert np.array_equal(array, source)
    assert array.dtype == np.int32
    assert asked == [(0, 3), (3, 6), (6, 7)]
    assert isinstance(array, np.memmap)


def test_is_not_written_again(tmp_path):
    first = mapped(tmp_path / "a.npy", (4,), np.int32, lambda start, stop: np.arange(start, stop))
    again = mapped(tmp_path / "a.npy", (4,), np.int32, lambda *_: pytest.fail("it is there"))
    assert np.array_equal(first, again)


def test_a_file_that_was_not_finished_is_never_seen(tmp_path):
    def rows(start, stop):
        if start:
            raise OSError("full")
        return np.zeros(stop - start)

    with pytest.raises(OSError, match="full"):
        mapped(tmp_path / "a.npy", (7,), np.int32, rows)
    assert not list(tmp_path.iterdir())
    assert mapped(tmp_path / "a.npy", (7,), np.int32, lambda a, b: np.ones(b - a)).sum() == 7


def test_the_file_grows_as_it_is_written(tmp_path):
    """Room that is promised, not taken, ends the process where the disk turns out to be full."""
    sizes = []

    def rows(start, stop):
        sizes.append(sum(file.stat().st_size for file in tmp_path.iterdir()))
        return np.ones((stop - start, 2**16))

    assert mapped(tmp_path / "a.npy", (7, 2**16), np.int32, rows).sum() == 7 * 2**16
    assert max(sizes) < 7 * 2**16 * 4


def test_what_a_killed_process_left_is_written_again(tmp_path):
    def killed(start, stop):
        if start:
            left.extend((file.name, file.read_bytes()) for file in tmp_path.iterdir())
            raise KeyboardInterrupt
        return np.zeros(stop - start)

    left = []
    with pytest.raises(KeyboardInterrupt):
        mapped(tmp_path / "a.npy", (7,), np.int32, killed)
    for name, content in left:
        (tmp_path / name).write_bytes(content)
    assert mapped(tmp_path / "a.npy", (7,), np.int32, lambda a, b: np.ones(b - a)).sum() == 7
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.npy", "a.npy.blake2b"]


@pytest.mark.parametrize("victim", ["a.npy", "a.npy.blake2b"])
@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: data[:-1] + bytes([data[-1] ^ 1])]
)
def test_a_damaged_file_is_written_again(tmp_path, victim, damage):
    def make():
        return np.array(
            mapped(tmp_path / "a.npy", (4,), np.int32, lambda start, stop: np.arange(start, stop))
        )

    whole, file = make(), tmp_path / victim
    file.write_bytes(damage(file.read_bytes()))
    assert np.array_equal(make(), whole)
