"""Who holds a document, against texts that are read and compared one by one."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.draft import Draft
from stages.artifacts.store import Store
from stages.datastore import BuildDatastore, DatastoreConfig
from stages.errors import UsageError
from stages.forgetting.question import DocumentQuestion, named
from stages.forgetting.rules import Ledger, held_by_others, holdings
from stages.forgetting.search import Answer, find_holders
from stages.forgetting.spans import ROWS, Holding, RowSpan, Way, spelled
from stages.lineage.corpus import token_text
from stages.reporting import Silent
from stages.text.spool import NAMES
from stages.update import UpdateDatastore
from stages.updating.config import UpdateConfig
from tests.stages.forgetting.conftest import Held, documents, indexed, made, story, tokenized
from tests.stages.small_store import array
from tests.stages.small_text import text_model

MARY = DocumentQuestion(frozenset({"mary.txt"}))


def asked(store: Store, question: DocumentQuestion = MARY) -> Answer:
    return find_holders(store, question, Silent())


def by_reference(answer: Answer) -> dict[str, list[Holding]]:
    found: dict[str, list[Holding]] = {}
    for holding in answer.holdings:
        found.setdefault(holding.reference, []).append(holding)
    return found


def text_at(tokens: Artifact, ids: np.ndarray) -> str:
    return token_text(tokens).decoded(ids.tolist())


def document_ids(tokens: Artifact, number: int) -> list[int]:
    offsets = array(tokens, "tokens.zarr", "train/doc_offsets")
    return array(tokens, "tokens.zarr", "train/ids")[offsets[number] : offsets[number + 1]].tolist()


def test_each_artifact_made_of_a_document_holds_it_and_no_other_does(held: Held) -> None:
    answer = asked(held.store)
    assert not answer.unread and not answer.alike
    assert by_reference(answer).keys() == {one.reference for one in held.holders()}
    ways = {one.reference: one.way for one in answer.holdings}
    assert ways[held.learned.reference] == Way.LEARNED
    assert ways[held.report.reference] == Way.QUOTED
    (quoted,) = by_reference(answer)[held.report.reference]
    assert quoted.files == ("scores.zarr",)


def test_rows_are_those_of_the_document(held: Held) -> None:
    found = by_reference(asked(held.store))
    wanted = document_ids(held.tokens, 1)
    ids = array(held.tokens, "tokens.zarr", "train/ids")
    values = array(held.datastore, "datastore.zarr", "values")
    for artifact, text in ((held.tokens, ids), (held.datastore, values), (held.index, values)):
        (holding,) = found[artifact.reference]
        (span,) = holding.document_spans
        assert text[span.start : span.stop].tolist() == wanted
        assert span.document == "mary.txt"
    assert found[held.exact.reference][0].document_spans == (
        found[held.tokens.reference][0].document_spans[0].moved(ROWS),
    )
    (segments,) = found[held.batches.reference][0].document_spans
    offsets = array(held.tokens, "tokens.zarr", "train/doc_offsets")
    assert [segments.start, segments.stop] == [offsets[1] // 16, -(-offsets[2] // 16)]


def test_a_copy_in_another_document_is_found_to_the_token(held: Held) -> None:
    found = by_reference(asked(held.store))
    ids = array(held.tokens, "tokens.zarr", "train/ids")
    lines = documents()["mary.txt"].splitlines(keepends=True)[2:9]
    for artifact in held.holders():
        (holding,) = found[artifact.reference]
        assert {span.document for span in holding.copies} == {"anna.txt"}, artifact.reference
    (copy,) = found[held.tokens.reference][0].copies
    text = text_at(held.tokens, ids[copy.start : copy.stop])
    assert "".join(lines).strip() in text and len(text) < len("".join(lines)) + 20


def test_without_copies_only_names_count(held: Held) -> None:
    found = asked(held.store, DocumentQuestion(frozenset({"mary.txt"}), copied=0))
    assert by_reference(found).keys() == {one.reference for one in held.holders()}
    assert not [holding for holding in found.holdings if holding.copies]
    assert not found.tokens


def test_a_changed_datastore_holds_only_what_is_left(own_store: Store, held: Held) -> None:
    forget = UpdateConfig(forget=("mary.txt",))
    once = made(own_store, UpdateDatastore(), forget, source=held.datastore)
    index = indexed(own_store, once)
    both = UpdateConfig(forget=("mary.txt", "anna.txt"))
    clean = made(own_store, UpdateDatastore(), both, source=held.datastore)
    own_store.remove(*(one.reference for one in held.holders()), held.figures.reference)
    found = by_reference(asked(own_store, DocumentQuestion(text=documents()["mary.txt"])))
    assert found.keys() == {once.reference, index.reference}
    values = array(once, "datastore.zarr", "values")
    (span,) = found[once.reference][0].spans
    assert (span.part, span.document) == (ROWS, "anna.txt")
    assert "9f86d081884c7d65" in text_at(held.public, values[span.start : span.stop])
    assert "9f86d081884c7d65" not in text_at(held.public, array(clean, "datastore.zarr", "values"))
    assert not asked(own_store).holdings, "nobody has the name"


def test_one_name_in_two_corpora_is_found_in_both(own_store: Store, tmp_path: Path) -> None:
    other = tokenized(own_store, tmp_path / "other", {"mary.txt": story(77), "b": story(78)})
    answer = asked(own_store)
    ways = [one.way for one in by_reference(answer)[other.reference]]
    assert ways == [Way.TEXT, Way.VOCABULARY]
    spans = by_reference(answer)[other.reference][0].spans
    assert [(span.part, span.start, span.document) for span in spans] == [("train", 0, "mary.txt")]


def test_another_tokenizer_hides_no_copy(own_store: Store, tmp_path: Path) -> None:
    renamed = {"first.txt": story(70), "other.txt": documents()["mary.txt"]}
    words = tokenized(own_store, tmp_path / "words", renamed, tokenizer="word", min_count=1)
    letters = tokenized(own_store, tmp_path / "letters", renamed, tokenizer="char")
    found = by_reference(asked(own_store))
    for tokens in (words, letters):
        copies = found[tokens.reference][0].copies
        assert {(span.part, span.document) for span in copies} == {
            ("train", "other.txt"),
            ("valid", "other.txt"),
        }
        whole = document_ids(tokens, 1)
        assert len(whole) - 2 <= copies[0].rows <= len(whole)


def test_a_short_fact_is_found_wherever_it_stands(own_store: Store, tmp_path: Path) -> None:
    fact = "room 14 has the code 4f2a99"
    texts = {
        "alone.txt": fact + "\n",
        "inside.txt": f"{story(80, 2)}we know that {fact}. {story(81, 2)}",
        "near.txt": f"{story(82, 2)}room 14 has the code 4f2b99 {story(83, 2)}",
    }
    public = next(one for one in own_store.artifacts("tokens") if one.config["tokenizer"] == "bpe")
    tokens = tokenized(own_store, tmp_path / "facts", texts, of=public)
    found = by_reference(asked(own_store, DocumentQuestion(frozenset({"alone.txt"}))))
    (holding,) = found[tokens.reference]
    assert {span.document for span in holding.document_spans} == {"alone.txt"}
    assert {span.document for span in holding.copies} == {"inside.txt"}
    (span,) = [span for span in holding.copies if span.part == "train"]
    text = text_at(tokens, array(tokens, "tokens.zarr", "train/ids")[span.start : span.stop])
    assert text.strip() in fact and len(text) > len(fact) - 10


def test_part_of_a_split_holds_no_more_than_its_rows(own_store: Store, held: Held) -> None:
    for fraction, expected in ((0.3, True), (0.1, False)):
        config = DatastoreConfig(fraction=fraction)
        part = made(own_store, BuildDatastore(), config, source=held.model, tokens=held.tokens)
        found = by_reference(asked(own_store)).get(part.reference, [])
        assert bool(found) == expected
        for holding in found:
            assert [span.stop for span in holding.spans] == [part.metrics["rows"]]


def test_an_index_of_some_rows_holds_only_these(own_store: Store, held: Held) -> None:
    some = indexed(own_store, held.datastore, index="ivf-flat", lists=2, keep=0.02, seed=3)
    counts = array(some, "counts.zarr", "counts")
    found = by_reference(asked(own_store, DocumentQuestion(frozenset({"mary.txt"}), copied=0)))
    (whole,) = found[held.datastore.reference][0].spans
    kept = whole.start + np.flatnonzero(counts[whole.start : whole.stop])
    spans = [span for one in found.get(some.reference, ()) for span in one.spans]
    assert [(s.start, s.stop) for s in spans] == ([(kept[0], kept[-1] + 1)] if len(kept) else [])


def test_models_learn_from_what_they_begin_with_and_imported_ones_from_nothing(
    own_store: Store, held: Held, tmp_path: Path
) -> None:
    neighbors = own_store.get(held.neighbors.reference)
    reader = text_model(own_store, held.public, neighbors=neighbors, seed=5)
    answer = asked(own_store)
    assert by_reference(answer)[reader.reference][0].way == Way.LEARNED
    ledger = Ledger({one.reference: one for one in own_store.artifacts()})
    ledger.holdings |= {ref: tuple(some) for ref, some in by_reference(answer).items()}
    model = own_store.get(held.learned.reference)
    assert holdings(model, (), ledger)
    model.manifest = model.manifest.model_copy(update={"stage": "import-model"})
    assert not holdings(model, (), ledger)


def test_an_artifact_of_a_kind_without_a_rule_holds_what_its_inputs_hold(held: Held) -> None:
    answer = asked(held.store)
    ledger = Ledger({one.reference: one for one in held.store.artifacts()})
    ledger.holdings |= {ref: tuple(some) for ref, some in by_reference(answer).items()}
    ((way, spans, _),) = held_by_others(held.exact, (), ledger)
    assert way == Way.DERIVED
    assert list(spans) == list(by_reference(answer)[held.tokens.reference][0].spans)
    assert not list(*(spans for _, spans, _ in held_by_others(held.model, (), ledger)))


def test_damage_is_named_and_what_depends_on_it_too(own_store: Store, held: Held) -> None:
    manifest = own_store.root / held.figures.reference / "manifest.json"
    manifest.write_text("{")
    file = own_store.root / held.tokens.reference / "names/train.jsonl"
    file.write_bytes(file.read_bytes().replace(b"mary", b"mara"))
    answer = asked(own_store)
    assert answer.unread.keys() == {held.tokens.reference, held.figures.reference}
    assert "is damaged" in answer.unread[held.tokens.reference]


def test_what_was_made_from_something_that_is_gone_is_named(own_store: Store, held: Held) -> None:
    shutil.rmtree(own_store.root / held.tokens.reference)
    answer = asked(own_store)
    assert {held.datastore.reference, held.learned.reference} <= answer.unread.keys()
    assert f"was made from {held.tokens.reference}" in answer.unread[held.datastore.reference]


def interrupted(store: Store, kind: str, digit: str, **inputs: Any) -> Path:
    """The folder of work that was interrupted after its first part."""
    folder = store.draft_folder(kind, digit * 12)
    draft = Draft(folder, {"id": digit * 12, "inputs": inputs})
    draft.add("part.bin").write_bytes(b"\0")
    draft.commit("part")
    draft.close()
    return folder


def test_interrupted_work_that_has_read_it_is_named(own_store: Store, held: Held) -> None:
    interrupted(own_store, "datastore", "0", corpus=held.tokens.record.model_dump())
    spool = interrupted(own_store, "tokens", "1") / "scratch" / "text"
    spool.mkdir(parents=True)
    (spool / NAMES).write_text('{"documents": 1, "name": "mary.txt"}\n')
    (spool / "000000.txt").write_text(documents()["mary.txt"])
    interrupted(own_store, "tokens", "2")
    (own_store.root / "model" / ".333333333333-removed").mkdir()
    expected = {
        f"datastore/.{'0' * 12}-partial",
        f"tokens/.{'1' * 12}-partial",
        f"model/.{'3' * 12}-removed",
    }
    for question in (MARY, DocumentQuestion(text=documents()["mary.txt"])):
        found = asked(own_store, question).holdings
        assert {one.reference for one in found if one.way == Way.UNFINISHED} == expected


def test_a_name_that_nobody_has_brings_those_that_resemble_it(held: Held) -> None:
    answer = asked(held.store, DocumentQuestion(frozenset({"mray.txt"})))
    assert not answer.holdings and answer.alike[0] == "mary.txt"


def test_names_come_from_words_and_from_files(tmp_path: Path) -> None:
    file = tmp_path / "names"
    file.write_text("a b.txt\r\n\n12\n")
    assert named(["x", f"@{file}", "name:12", "name:@y"]) == {"x", "a b.txt", "12", "@y"}
    file.write_text("\n")
    for words in ([], [f"@{file}"], [""], ["@nowhere"]):
        with pytest.raises(UsageError):
            named(words)


def test_places_are_spelled_with_the_last_row_included() -> None:
    spans = [RowSpan("train", n, n + 2, "a") for n in range(0, 50, 10)]
    assert spelled(spans) == "train 0-1, 10-11, 20-21 and 2 more"
    assert (
        spelled([RowSpan("valid", 5, 6, None), RowSpan("train", 0, 1500, "b")])
        == "train 0-1,499; valid 5"
    )
