from tests.stages.retrieval.sources.contract import CONTEXT, SourceContract

READ = "similarity=l2,key=hidden,lambda=0.5"


class TestLongAndExternal(SourceContract):
    spec = f"long+external:{READ},size=3/9,k=6"


class TestLocalAndExternal(SourceContract):
    spec = f"local+external:{READ},k=2/6"
    stride = CONTEXT // 2


class TestAll(SourceContract):
    spec = f"local+long+external:{READ},size=3/9,k=6"


def test_the_first_that_is_told_how_much_leads_and_of_the_others_all_is_read() -> None:
    assert TestAll().source.about.amount == TestLongAndExternal().source.about.amount == "size"
    assert TestAll().source.about.details == {"scope": "stream", "exact_distances": True, "k": 6}
    alone = TestLocalAndExternal().source
    assert (alone.about.amount, alone.cutoffs) == ("k", (2, 6))
    assert alone.about.details == {"exact_distances": True}


def test_it_needs_what_its_parts_need() -> None:
    needs = TestLocalAndExternal().source.needs
    assert (needs.keys, needs.reach, needs.neighbors) == ({"hidden"}, CONTEXT, 6)
