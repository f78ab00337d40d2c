"""Arithmetic of a search, against counting pair by pair, and against what was measured."""

import tomllib

import pytest

from stages.search.automatic import automatic_lists
from tests.benchmarks import search_arithmetic as module
from tests.benchmarks.search_arithmetic import (
    CORE,
    DATA,
    KEYS,
    LINK,
    OF_MEMORY,
    OF_PRODUCTS,
    WAYS,
    Gpu,
    Way,
    Work,
    filling,
    paces,
    phases,
    queries_at_once,
    reached,
    table,
    today,
)

SMALL = Work(keys=256, dim=8, k=2, at_once=100)
GPU = Gpu(fp32=1e3, half=1e4, memory=1e2)


@pytest.mark.parametrize(
    ("way", "compared"),
    [(Way("all"), 256), (Way("lists", 128), 128), (Way("bits", 128, True, bits=1), 128)],
)
def test_phases_count_what_each_pair_of_a_query_and_a_key_takes(way: Way, compared: int) -> None:
    operations = scores = 0
    for _query in range(256):
        for _key in range(compared):
            operations += 2 * 8
            scores += 2 * 4
    found = phases(SMALL, way, GPU)
    assert found["products"] == pytest.approx(operations / (GPU.half if way.half else GPU.fp32))
    assert found["scores"] == pytest.approx(scores / GPU.memory)
    assert found["centres"] == pytest.approx(256 * way.lists * 16 / GPU.fp32)
    assert found["keys"] == pytest.approx(
        3 * 256 * 8 * way.bits / 8 / GPU.memory
    )  # three blocks of queries
    assert found["ranked again"] == (256 * 256 * 8 * 2 / GPU.memory if way.bits == 1 else 0)
    assert found["link"] == pytest.approx((256 * 8 * 2 + 256 * 2 * 12) / (OF_PRODUCTS * LINK))


def test_lists_are_filled_by_comparing_all_keys_with_all_centres_after_ten_rounds_of_k_means() -> (
    None
):
    assert filling(SMALL, Way("", 4)) == 2 * 8 * 4 * (256 + 10 * 64 * 4)
    assert filling(SMALL, Way("")) == 0


def test_what_was_measured_is_the_least_and_the_pace() -> None:
    """Exact search and lists of 4 million keys took 4,194,304 queries / (25,234 and 53,820 a
    second).
    """
    work, gpu = Work(keys=4_194_304, dim=128, at_once=32768), reached("H100")
    for name, way, rate in (("exact", Way(""), 25234), ("lists", Way("", 2048), 53820)):
        least = phases(work, way, gpu)
        seconds = sum(least[phase] for phase in ("centres", "products", "scores", "keys"))
        taken = seconds + paces()[name] * work.keys * way.compared(work)
        assert taken == pytest.approx(work.keys / rate) and paces()[name] > 0


def test_today_takes_longer_and_passes_again_what_a_gpu_does_not_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    work, way, gpu = Work(), WAYS[3], reached("H200")
    own, least = today(work, way, gpu), phases(work, way, gpu)
    assert own["link"] == least["link"] and own["filling"] > 60 * least["filling"]
    monkeypatch.setattr(module, "resident_bytes", lambda free: free // 2)
    blocks = -(-KEYS // queries_at_once(work.dim, work.k))
    assert today(work, way, gpu)["link"] - least["link"] == pytest.approx(
        blocks * (work.bytes - 70.5e9) / (0.77 * LINK)
    )


def test_shares_of_the_datasheet_and_the_speed_of_a_core_are_those_that_were_measured() -> None:
    reached_by, searched = (
        tomllib.loads((DATA / f"{name}.toml").read_text("utf-8")) for name in ("on-a-gpu", "search")
    )
    cells = {
        row["cells"][0]: row["cells"][2] for row in reached_by["rows"] if len(row["cells"]) > 2
    }
    assert {cells[f"product of matrices, {one}"]["percent"] for one in ("fp32", "bf16")} == {
        100 * OF_PRODUCTS
    }
    assert cells["memory, read and written"]["percent"] == 100 * OF_MEMORY
    products = next(
        row["cells"][4]
        for row in searched["rows"]
        if row["cells"][0].startswith("2,088,628 x 128 (*X")
    )
    operations = products * 64 / automatic_lists(2_088_628) * 2_088_628 * 2 * 128
    assert operations / 2 == pytest.approx(CORE, rel=0.02)  # of two cores


def test_the_table_of_the_page_is_the_arithmetic() -> None:
    file = DATA.parent / "cluster/neighbors-on-one-gpu.toml"
    assert file.read_text("utf-8") == table(Work(), reached("H200")), module.__doc__
