"""Evaluations whose memory is found for each sentence: its own pair, batches, and work that is
killed.
"""

import pytest

from stages.artifacts.artifact import Artifact
from tests.builders.limits import limit
from tests.builders.translations import evaluated, index, lines
from tests.stages.kills import made_in_pieces

__all__ = ["index"]
SURE = ("similar-pairs:pairs=2,k=1,temperature=0.01,lambda=0.999",)
SOFT = ("similar-pairs:pairs=2,k=2,temperature=1,lambda=0.6",)


def test_found_pairs_are_said_but_a_sentence_does_not_find_its_own(index: Artifact) -> None:
    model = index.find("encoder")
    for line in lines(evaluated(model, memory=SURE)):
        assert line["rows"]["similar-pairs"]["text"] == line["reference"]
    own = evaluated(model, memory=SURE, split="train")
    assert own.config["exclude"] == "document"
    for line in lines(own):
        assert line["rows"]["similar-pairs"]["text"] != line["reference"]


def test_ranges_and_batches_change_nothing(
    index: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = index.find("encoder")
    whole = evaluated(model, memory=SOFT, beam=2)
    index.store.remove(whole.reference)
    monkeypatch.setattr("stages.translation.translator.SENTENCES", (1, 1))
    monkeypatch.setattr("stages.retrieval.pair_search.SENTENCES", 1)
    monkeypatch.setattr("stages.retrieval.pair_search.BATCH_TOKENS", 1)
    limit(monkeypatch, tokens_per_shard=3)
    alone = evaluated(model, memory=SOFT, beam=2)
    for a, b in zip(whole.metrics["rows"], alone.metrics["rows"], strict=True):
        assert a["perplexity"] == pytest.approx(b["perplexity"], rel=1e-5)
    for a, b in zip(lines(whole), lines(alone), strict=True):
        assert a["rows"]["similar-pairs"]["text"] == b["rows"]["similar-pairs"]["text"]


def test_work_that_is_killed_between_shards_gives_the_same_translations(
    index: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = index.find("encoder")
    limit(monkeypatch, sentences_per_shard=2)
    settings = {"memory": SOFT, "beam": 2, "length_penalty": 0.5}
    whole = evaluated(model, **settings)
    wanted = whole.file("translations.jsonl").read_bytes()
    index.store.remove(whole.reference)
    again, attempts = made_in_pieces(
        monkeypatch, lambda: evaluated(model, **settings), logged=False
    )
    assert again.file("translations.jsonl").read_bytes() == wanted
    assert attempts.begun_with == list(
        range(6)
    )  # one range scored, then two shards of sentences for each of two rows
