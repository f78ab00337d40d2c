"""The benchmark of streams of tasks runs."""

from tests.benchmarks import bench_tasks


def test_a_row_for_each_method() -> None:
    tiny = [
        "--layers",
        "1",
        "--width",
        "8",
        "--length",
        "10",
        "--rows",
        "2",
        "--rounds",
        "1",
        "--methods",
        "seq",
    ]
    rows = bench_tasks.measure(bench_tasks.arguments_of(tiny))["rows"]
    assert (
        list(rows) == ["minimal", "seq"]
        and rows["minimal"]["ratio"] == 1
        and rows["seq"]["seconds"] > 0
    )
