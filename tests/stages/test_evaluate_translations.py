"""BLEU in an evaluation: translations with every row, what changed, and work that is killed between
shards.
"""

from pathlib import Path

import pytest
import torch
from sacrebleu.metrics import BLEU, CHRF

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.comparison.compare import compare
from stages.comparison.sentences import bleu_line, sentences
from stages.comparison.settings import ComparisonSettings
from stages.errors import UsageError
from stages.evaluation.translations import evidence_columns
from stages.translation.step_memory import Evidence
from tests.builders.limits import limit
from tests.builders.translations import evaluated, index, lines
from tests.stages.kills import made_in_pieces
from tests.stages.small_pairs import SENTENCES
from tests.stages.small_text import text_model, text_tokens

__all__ = ["index"]
pytest.importorskip("transformers")
SURE = ("external:k=1,temperature=0.01,lambda=0.999",)


def test_a_memory_of_the_test_sentences_says_them_and_bleu_is_sacrebleus(index: Artifact) -> None:
    report = evaluated(index, memory=SURE)
    found, figures = lines(report), report.json("metrics.json")["translation"]
    assert [(line["source"], line["reference"]) for line in found] == SENTENCES
    references = [target for _, target in SENTENCES]
    for number, row in enumerate(figures["rows"]):
        texts = [line["rows"][row["row"]]["text"] for line in found]
        assert row["bleu"] == BLEU().corpus_score(texts, [references]).score
        assert row["chrf"] == CHRF().corpus_score(texts, [references]).score
        assert (texts == references) == (number == 1)
        assert report.metrics["rows"][number]["bleu"] == row["bleu"]
    assert figures["rows"][1]["cut"] == 0 and figures["rows"][1]["change"]["difference"] > 50
    first = report.json("changed-translations.json")["sentences"][0]
    assert first["memory"] == first["reference"] != first["plain"]
    assert {(pair["source"], pair["target"]) for pair in first["neighbors"]} == {
        (first["source"], first["reference"])
    }


def test_work_that_is_killed_between_shards_gives_the_same_translations(
    index: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, sentences_per_shard=2)
    settings = {"memory": ("external:k=2,temperature=1,lambda=0.6",), "beam": 2}
    whole = evaluated(index, **settings)
    wanted = whole.file("translations.jsonl").read_bytes()
    index.store.remove(whole.reference)
    again, attempts = made_in_pieces(
        monkeypatch, lambda: evaluated(index, **settings), logged=False
    )
    assert again.file("translations.jsonl").read_bytes() == wanted
    assert attempts.begun_with == list(
        range(6)
    )  # one range scored, then two shards of sentences for each of two rows


def test_a_row_of_a_large_datastore_keeps_all_its_digits() -> None:
    numbers = torch.tensor([-0.123456789])
    columns = evidence_columns(Evidence(numbers, numbers, torch.tensor([12_345_678]), numbers))
    assert columns["row"] == [12_345_678] and columns["log_p"] == [-0.123457]


def test_reports_are_compared_by_bleu_too(index: Artifact) -> None:
    plain = evaluated(index.find("encoder"), memory=(), save_token_scores=True)
    read = evaluated(index, memory=SURE, save_token_scores=True)
    found = compare(plain, read, ComparisonSettings(samples=50))
    assert found["bleu"]["rows"] == ["plain", "knn-mt"]
    assert (found["bleu"]["a"], found["bleu"]["b"]) == (
        plain.metrics["rows"][0]["bleu"],
        pytest.approx(100),
    )
    assert bleu_line(found["bleu"]) in list(sentences(found))
    assert (
        compare(read, read, ComparisonSettings(reading="model", samples=50))["bleu"]["difference"]
        == 0
    )
    other = evaluated(index, memory=SURE, save_token_scores=True, bleu_lowercase=True)
    assert "bleu" not in compare(plain, other, ComparisonSettings(samples=50)), (
        "they count otherwise"
    )


def test_a_split_of_the_datastore_does_not_find_its_own_sentence(index: Artifact) -> None:
    own = evaluated(index, memory=SURE, split="train", exclude="document")
    for line in lines(own):
        assert line["rows"]["knn-mt"]["text"] != line["reference"]


def test_what_is_not_translated_is_said_before_work(index: Artifact, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--beam 0"):
        evaluated(index, memory=("long:size=5,theta=0.1,lambda=0.2",), beam=4)
    unsearched = evaluated(index, memory=("long:size=5,theta=0.1,lambda=0.2",))
    assert unsearched.config["beam"] == 0 and "translation" not in unsearched.json("metrics.json")
    with pytest.raises(UsageError, match="13a"):
        evaluated(index, memory=SURE, bleu_tokenize="nonsense")
    store = Store(tmp_path / "store")
    model = text_model(store, text_tokens(store, tmp_path))
    with pytest.raises(UsageError, match="one language"):
        evaluated(model, beam=4)
    alone = evaluated(index, memory=SURE, beam=0)
    assert "translation" not in alone.json("metrics.json")
    assert "translations.jsonl" not in alone.manifest.files
