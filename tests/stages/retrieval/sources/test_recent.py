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
