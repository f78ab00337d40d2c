"""Each source fulfils the contract, alone and joined with others."""

from tests.stages.retrieval.sources.contract import CONTEXT, SourceContract

READ = "similarity=dot,key=hidden,lambda=0.5"


class TestLocal(SourceContract):
    spec = f"local:{READ}"


class TestLocalOfOverlappingWindows(SourceContract):
    spec = f"local:{READ}"
    stride = CONTEXT // 2


class TestLong(SourceContract):
    spec = f"long:{READ},size=3/9/40"


class TestLongInDocuments(SourceContract):
    spec = f"long:{READ},size=4/6,scope=document"


class TestLocalAndLong(SourceContract):
    spec = f"local+long:{READ},size=3/9/20"
    stride = CONTEXT // 2


def test_a_position_in_both_is_read_once_and_as_local() -> None:
    """A window of 8 holds the last 3 positions but where it begins."""
    assert TestLocalAndLong().source.needs.reach == 20
    assert TestLocal().source.needs.reach == CONTEXT
    assert TestLocal().source.needs.window_keys == frozenset()
    assert TestLocalAndLong().source.needs.window_keys == {"hidden"}


KEY_READ = "key=hidden,lambda=0.5"


class TestExternal(SourceContract):
    spec = f"external:{KEY_READ},similarity=l2,k=2/5/8"


class TestRecomputed(SourceContract):
    spec = f"external:{KEY_READ},similarity=dot,k=8"


class TestExactDistances(SourceContract):
    spec = f"external:{KEY_READ},similarity=l2,k=3/8,exact=true"
    lossless = False


def test_stored_keys_are_read_only_where_they_must_be() -> None:
    assert TestExternal().source.needs.exact == frozenset()
    assert TestRecomputed().source.needs.exact == {("ip", 8)}
    assert TestExactDistances().source.needs.exact == {("l2", 8)}


def test_a_lossy_index_is_shown_beside_the_other_distances() -> None:
    assert TestExternal().source.about.compared_with is None
    twin = TestExactDistances().source.about.compared_with
    assert twin is not None and twin.value("exact") is False


class TestExactStream(SourceContract):
    spec = "exact-stream:size=30,matches=5/100,lambda=0.3"


L2_READ = "similarity=l2,key=hidden,lambda=0.5"


class TestLongAndExternal(SourceContract):
    spec = f"long+external:{L2_READ},size=3/9,k=6"


class TestLocalAndExternal(SourceContract):
    spec = f"local+external:{L2_READ},k=2/6"
    stride = CONTEXT // 2


class TestAll(SourceContract):
    spec = f"local+long+external:{L2_READ},size=3/9,k=6"


def test_the_first_that_is_told_how_much_leads_and_of_the_others_all_is_read() -> None:
    assert TestAll().source.about.amount == TestLongAndExternal().source.about.amount == "size"
    assert TestAll().source.about.details == {"scope": "stream", "exact_distances": True, "k": 6}
    alone = TestLocalAndExternal().source
    assert (alone.about.amount, alone.cutoffs) == ("k", (2, 6))
    assert alone.about.details == {"exact_distances": True}


def test_it_needs_what_its_parts_need() -> None:
    needs = TestLocalAndExternal().source.needs
    assert (needs.keys, needs.reach, needs.neighbors) == ({"hidden"}, CONTEXT, 6)
