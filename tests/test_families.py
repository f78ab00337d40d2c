"""A sample of the sweep over the families of transformers, `tests.endurance.families`."""

import pytest

pytest.importorskip("transformers")

from tests.endurance.families import GOOD, families, sweep


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.timeout(600)
def test_families_are_imported_as_transformers_reads_them_or_refused_in_a_sentence() -> None:
    sample = ("xlnet", "gemma4_text", "moshi", "vit")
    names = [(family, kind) for family, kind in families(everything=True) if family in sample]
    outcomes = list(sweep(names))
    assert len(outcomes) >= len(sample)
    assert [outcome for outcome in outcomes if outcome.verdict not in GOOD] == []
