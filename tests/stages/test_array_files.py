import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stages.array_files import map_arrays, save_arrays

ARRAYS = [
    np.arange(6, dtype=np.int64).reshape(2, 3),
    np.zeros((0, 4), np.uint8),
    np.ones((3, 2), np.float32, order="F"),
]


def test_what_is_written_is_what_numpy_writes(tmp_path: Path) -> None:
    save_arrays(tmp_path / "ours", *ARRAYS)
    with (tmp_path / "theirs").open("wb") as file:
        for array in ARRAYS:
            np.save(file, array, allow_pickle=False)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


@pytest.mark.parametrize("numbers", [450, 600, 100_000])
def test_arrays_that_do_not_fit_are_an_error(tmp_path: Path, numbers: int) -> None:
    """Files of at most 4 kB stand for a full disk; `np.save` leaves a part of twice 450 numbers
    without a word.
    """
    program = (
        "import resource, signal, sys\n"
        "import numpy as np\n"
        "from pathlib import Path\n"
        "from stages.array_files import save_arrays\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try:\n"
        f"    save_arrays(Path(sys.argv[1]), np.arange({numbers}), np.arange({numbers}))\n"
        "except OSError as error:\n"
        "    print(error.errno)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "a")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "27\n"


def test_nothing_of_objects_is_pickled(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="allow_pickle"):
        save_arrays(tmp_path / "a", np.array([object()]))


def test_arrays_are_mapped_as_they_were_saved(tmp_path: Path) -> None:
    arrays = [np.arange(5, dtype=np.uint8), np.empty(0, np.int64), np.arange(6.0).reshape(2, 3)]
    save_arrays(tmp_path / "arrays.npy", *arrays)
    for count in range(4):
        for found, wanted in zip(
            map_arrays(tmp_path / "arrays.npy", count), arrays[:count], strict=True
        ):
            assert found.dtype == wanted.dtype and np.array_equal(found, wanted)
