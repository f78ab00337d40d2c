import numpy as np
import pytest

from stages.training import mapped as module
from stages.training.mapped import mapped


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    monkeypatch.setattr(module, "ROWS", 3)


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
