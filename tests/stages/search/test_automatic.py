from typing import Any

import pytest
from pydantic import ValidationError

from stages.errors import UsageError
from stages.search.automatic import automatic_kind, automatic_lists, check_keys, resolve
from stages.search.config import IndexConfig, Keys

SMALL = Keys(30_000, 96, "float16")
LARGE = Keys(2_000_000, 256, "float16")


@pytest.mark.parametrize(
    ("keys", "gigabytes", "kind"),
    [
        (Keys(50_000, 64, "float16"), 8, "flat"),
        (Keys(50_001, 64, "float16"), 8, "ivf-flat"),
        (Keys(10**8, 1024, "float16"), 8, "ivf-pq"),
        (Keys(1_000_000, 1000, "float16"), 2.0, "ivf-flat"),
        (Keys(1_000_000, 1000, "float32"), 2.0, "ivf-pq"),
    ],
)
def test_automatic_kind_follows_number_and_size(keys: Keys, gigabytes: float, kind: str) -> None:
    chosen, why = automatic_kind(keys, gigabytes)
    assert chosen == kind
    assert f"{keys.rows:,}" in why or "GB" in why


@pytest.mark.parametrize(
    ("rows", "lists"), [(1, 1), (60_000, 512), (1_000_000, 2048), (103_000_000, 4096)]
)
def test_lists_follow_the_square_root(rows: int, lists: int) -> None:
    assert automatic_lists(rows) == lists


def test_resolving_decides_everything_and_drops_what_does_not_apply() -> None:
    flat = resolve(IndexConfig(), SMALL)
    assert (flat.index, flat.lists, flat.probe, flat.code_bytes, flat.links, flat.train_keys) == (
        "flat",
        *[None] * 5,
    )
    ivf = resolve(IndexConfig(), LARGE)
    assert (ivf.index, ivf.lists, ivf.probe, ivf.train_keys, ivf.code_bytes) == (
        "ivf-flat",
        2048,
        64,
        131072,
        None,
    )
    pq = resolve(IndexConfig(index="ivf-pq", lists=4096), LARGE)
    assert (pq.lists, pq.probe, pq.code_bytes, pq.code_bits, pq.train_keys) == (
        4096,
        32,
        64,
        8,
        262144,
    )
    assert resolve(IndexConfig(index="hnsw"), SMALL).links == 32
    factory = resolve(IndexConfig(index="OPQ16,IVF64,PQ16"), SMALL)
    assert (factory.lists, factory.probe, factory.train_keys) == (None, 32, 30_000)


def test_resolved_settings_resolve_to_themselves() -> None:
    for config in (
        IndexConfig(),
        IndexConfig(index="ivf-pq"),
        IndexConfig(index="hnsw"),
        IndexConfig(index="SQ8"),
    ):
        once = resolve(config, LARGE)
        assert resolve(once, LARGE) == once


def test_auto_and_what_it_stands_for_are_the_same_work() -> None:
    asked = resolve(IndexConfig(index="ivf-flat", largest_gigabytes=3), LARGE)
    assert resolve(IndexConfig(), LARGE).canonical() == asked.canonical()


def test_automatic_code_suits_the_width() -> None:
    assert resolve(IndexConfig(index="ivf-pq"), Keys(10_000, 96, "float16")).code_bytes == 48


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"index": "ivf-flat", "lists": 30_001}, ["30,001 lists", "30,000 keys", "256 would suit"]),
        ({"index": "ivf-flat", "lists": 16, "probe": 17}, ["probe 17", "16 lists", "at most 16"]),
        ({"index": "ivf-pq", "code_bytes": 64}, ["code_bytes 64", "width 96", "48 does"]),
        ({"index": "flat", "lists": 16}, ["lists", "'flat'", "ivf-flat, ivf-pq"]),
        ({"index": "flat", "probe": 16}, ["probe", "'flat'"]),
        ({"index": "ivf-flat", "code_bytes": 64}, ["code_bytes", "'ivf-flat'", "ivf-pq"]),
        ({"index": "ivf-flat", "links": 8}, ["links", "hnsw"]),
        ({"index": "ivf-flat", "train_keys": 7}, ["train_keys 7", "at least 256"]),
        ({"index": "Ivf-pq"}, ["'Ivf-pq'", "did you mean 'ivf-pq'?"]),
        ({"index": "IVF64,,PQ"}, ["'IVF64,,PQ'", "factory string"]),
        ({"index": "IVF64,PQ50"}, ["PQ50", "width 96", "PQ48 does"]),
        ({"index": "IVF40000,Flat"}, ["40,000 lists", "30,000 keys"]),
        ({"index": "IVF0,Flat"}, ["no lists"]),
        ({"index": "IVF4,PQ8x16"}, ["65,536 keys", "30,000"]),
        ({"index": "IVF64,Flat", "probe": 65}, ["probe 65", "at most 64"]),
        ({"index": "SQ8", "probe": 5}, ["no lists to probe"]),
    ],
)
def test_refuses_what_is_not_legal_and_names_what_is(
    settings: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(UsageError) as refused:
        resolve(IndexConfig(**settings), SMALL)
    for word in words:
        assert word in str(refused.value)


@pytest.mark.parametrize(
    ("factory", "word"),
    [
        ("HNSW0", "HNSW32"),
        ("IVF8_HNSW1,Flat", "links"),
        ("IDMap,Flat", "IDMap"),
        ("IDMap2,Flat", "IDMap"),
    ],
)
def test_factory_strings_that_faiss_accepts_but_cannot_fill_are_refused(
    factory: str, word: str
) -> None:
    with pytest.raises(UsageError, match=word):
        resolve(IndexConfig(index=factory), SMALL)


def test_codes_must_fill_bytes() -> None:
    with pytest.raises(UsageError, match=r"5 bits a part .* width 6; use code_bits 8"):
        resolve(IndexConfig(index="ivf-pq", code_bits=5), Keys(10_000, 6, "float16"))


def test_too_few_keys_for_a_code_are_refused() -> None:
    with pytest.raises(UsageError, match="256 keys, and there are 200"):
        resolve(IndexConfig(index="ivf-pq"), Keys(200, 64, "float16"))


@pytest.mark.parametrize(
    "settings",
    [
        {"index": "ivfpq"},
        {"lists": 0},
        {"probe": -1},
        {"largest_gigabytes": float("nan")},
        {"metric": "cosine"},
        {"index": ""},
        {"seed": -1},
    ],
)
def test_nonsense_is_refused_by_type(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        IndexConfig(**settings)


def test_more_keys_than_can_be_numbered_are_refused() -> None:
    check_keys(2**31 - 1)
    with pytest.raises(UsageError, match="--fraction"):
        check_keys(2**31)


def test_more_lists_than_keys_are_refused_before_an_index_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "stages.search.factory.factory_facts", lambda *_: pytest.fail("an index was made")
    )
    with pytest.raises(UsageError, match="99,999,999 lists"):
        resolve(IndexConfig(index="IVF99999999,Flat"), SMALL)
