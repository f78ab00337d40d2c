"""Wrong labels of tasks are refused before a vocabulary is learnt."""

import json
from pathlib import Path
from typing import Any

import pytest

from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.errors import DataError, UsageError
from stages.text import TOKENIZERS
from stages.text.config import TokenizeConfig
from stages.tokenization.tasks import Answered, answer_arrays
from stages.tokenize import Tokenize
from tests.builders.limits import limit
from tests.stages.text.helpers import as_pieces

LONG = "ab" * 20 + " then the cat sits, and the dog sleeps on the mat\n"


@pytest.mark.parametrize("kind", ["word", "char", "byte", "bpe"])
def test_an_answer_behind_a_word_that_was_cut_is_where_its_tokens_are(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = TOKENIZERS.load(kind).train([as_pieces(LONG.lower() * 3)], None, False)
    limit(monkeypatch, longest_piece=16)
    asked = Answered("who?", ("the dog",), LONG.index("the dog"))
    made = answer_arrays(tokenizer, [asked], [LONG])
    ids, _ = tokenizer.encode(as_pieces(LONG))
    found = tokenizer.huggingface().decode(ids[made.span_starts[0] : made.span_stops[0]].tolist())
    assert found.strip() in ("the dog", "t h e   d o g")


GIVEN = {"text": "x", "label": "old"}


@pytest.mark.parametrize(
    ("records", "named"),
    [
        ([{"among": ["odd", "new"]}], "'old' is missing"),
        ([{"among": ["old", "old"]}], "twice"),
        ([{"among": "old"}], "record 1: expected a list"),
        ([{"among": ["old", 1.5]}], "record 1: expected a list"),
        ([{"among": ["old", "odd"]}, {}], "record 2: it has no field among"),
        ([{"among": ["old", "new"]}], "'new', which is no label"),
        ([{}], "no record has a field"),
    ],
)
def test_wrong_candidates_are_refused(
    tmp_path: Path, records: list[dict[str, Any]], named: str
) -> None:
    labelled(tmp_path / "train.jsonl", "old", "odd")
    (tmp_path / "test.jsonl").write_text(
        "".join(json.dumps(GIVEN | record) + "\n" for record in records)
    )
    config = TokenizeConfig(tasks=True, tokenizer="word", candidates="among")
    with pytest.raises(DataError, match=named):
        make(
            Tokenize(), config, {"source": [str(tmp_path)]}, Store(tmp_path / "store"), Execution()
        )


def labelled(file: Path, *labels: str) -> None:
    file.write_text(
        "".join(json.dumps({"text": f"of {label}", "label": label}) + "\n" for label in labels)
    )


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"label": "kind"}, DataError, r"train\.jsonl, record 1: expected a label"),
        ({}, DataError, "test has the label 'new', which train has not"),
        ({"label_groups": 3}, UsageError, "there are 2 labels"),
    ],
)
def test_wrong_labels_are_refused_before_a_vocabulary_is_learnt(
    tmp_path: Path,
    settings: dict[str, Any],
    error: type[Exception],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    labelled(tmp_path / "train.jsonl", "old", "odd")
    labelled(tmp_path / "test.jsonl", "new")
    monkeypatch.setattr(
        "stages.text.huggingface.BpeTokenizer.train", lambda *_: pytest.fail("learnt a vocabulary")
    )
    with pytest.raises(error, match=message):
        config = TokenizeConfig(tasks=True, **settings)
        make(
            Tokenize(), config, {"source": [str(tmp_path)]}, Store(tmp_path / "store"), Execution()
        )
