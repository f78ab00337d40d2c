from tests.stages.retrieval.sources.contract import SourceContract

READ = "key=hidden,lambda=0.5"


class TestExternal(SourceContract):
    spec = f"external:{READ},similarity=l2,k=2/5/8"


class TestRecomputed(SourceContract):
    spec = f"external:{READ},similarity=dot,k=8"


class TestExactDistances(SourceContract):
    spec = f"external:{READ},similarity=l2,k=3/8,exact=true"
    lossless = False


def test_stored_keys_are_read_only_where_they_must_be() -> None:
    assert TestExternal().source.needs.exact == frozenset()
    assert TestRecomputed().source.needs.exact == {("ip", 8)}
    assert TestExactDistances().source.needs.exact == {("l2", 8)}


def test_a_lossy_index_is_shown_beside_the_other_distances() -> None:
    assert TestExternal().source.about.compared_with is None
    twin = TestExactDistances().source.about.compared_with
    assert twin is not None and twin.value("exact") is False
