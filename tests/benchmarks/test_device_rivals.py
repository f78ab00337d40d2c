"""Engines beside search on a GPU, with a FAISS that sees a GPU, made up."""

from types import SimpleNamespace
from typing import Any

import faiss
import numpy as np
import pytest
import torch

from tests.benchmarks import bench_device_search, device_rivals
from tests.benchmarks.bench_device_search import Made
from tests.benchmarks.device_rivals import ENGINES, rivals
from tests.oracles.search import nearest

CPU = torch.device("cpu")


@pytest.fixture
def made() -> Made:
    return Made(400, 8, 4, 20, CPU)


def test_made_keys_are_those_of_both_kinds_of_lists(made: Made) -> None:
    ids, _ = made.searcher("cpu").search(made.queries, 3)
    _, by_faiss = made.index.search(made.queries, 3)
    want, _ = nearest(made.queries, made.keys, 3, "l2")
    np.testing.assert_array_equal(ids, want)
    np.testing.assert_array_equal(by_faiss, want)
    assert (ids[:, 0] == made.rows).mean() > 0.9


def test_an_engine_that_is_not_installed_is_a_note(made: Made) -> None:
    found, notes = rivals(made.index)
    assert list(found) == ["FAISS on the host"] and len(notes) == len(ENGINES)


@pytest.mark.parametrize("compiled", ["GPU", "GPU NVIDIA_CUVS"])
def test_an_engine_with_unsorted_neighbours_is_seen(
    made: Made, compiled: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cloned: list[bool] = []

    def on_gpu(resources: Any, number: int, index: Any, options: Any) -> Any:
        cloned.append(options.use_cuvs)
        order = -1 if options.use_cuvs else 1

        def search(queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
            if k > 4:
                raise RuntimeError("k is too large")
            distances, rows = index.search(queries, k)
            return distances[:, ::order], rows[:, ::order]

        return SimpleNamespace(search=search, nprobe=1)

    monkeypatch.setattr(device_rivals, "searching_gpus", lambda: 1)
    for name, value in {
        "GpuClonerOptions": SimpleNamespace,
        "StandardGpuResources": object,
        "index_cpu_to_gpu": on_gpu,
        "get_compile_options": lambda: compiled,
    }.items():
        monkeypatch.setattr(faiss, name, value, raising=False)
    given = [
        "--keys",
        "400",
        "--dim",
        "8",
        "--lists",
        "4",
        "--queries",
        "20",
        "--k",
        "4",
        "5",
        "--rounds",
        "1",
    ]
    arguments = bench_device_search.arguments_of([*given, "--rivals", "--device", "cpu"])
    told = bench_device_search.measure(arguments, CPU)
    rows = {row["name"]: row for row in told["rows"]}
    engines = ["faiss-gpu", "faiss-gpu with cuVS"] if "CUVS" in compiled else ["faiss-gpu"]
    assert cloned == [name.endswith("cuVS") for name in engines]
    assert {name: rows[f"k = 4, {name}"]["in order"] for name in engines} == {
        name: float(name == "faiss-gpu") for name in engines
    }
    assert all(row["recall"] == 1 for row in rows.values())
    assert len(told["notes"]) == 2  # that k = 5 is too large, or that cuVS is not there
