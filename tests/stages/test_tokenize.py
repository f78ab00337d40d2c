import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from tokenizers import Tokenizer

from stages.artifacts.arrays import ArrayLayout
from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.errors import ArtifactError, DataError, UsageError
from stages.text.config import TokenizeConfig
from stages.text.documents import DocumentNames
from stages.text.files import pydoc_topics
from stages.text.tokens import open_split
from stages.tokenization.work import TokenizeWork
from stages.tokenize import Tokenize
from tests.builders.limits import limit
from tests.builders.tokenizing import Crash, crash_after, run, tokenize, write
from tests.oracles import text as oracle
from tests.stages.notes import Notes

TEXT = "One  line .\n\n A second PARAGRAPH\nof two lines\n \nthe end , the end\n"
ARTICLES = "".join(
    f" \n = Title {i} = \n \n {'some words ' * i}\n \n = = Part = = \n \n one line\n"
    for i in range(1, 12)
)


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many shards of few lines, rows of a few tokens."""
    limit(monkeypatch, shard_characters=25)
    monkeypatch.setattr("stages.tokenization.assembly.ROW_BYTES", 56)


def arrays(artifact: Artifact, split: str) -> dict[str, np.ndarray]:
    return {
        name: array[:]
        for name, array in vars(open_split(artifact.zarr("tokens.zarr"), split)).items()
    }


@pytest.mark.usefixtures("small_shards")
@pytest.mark.parametrize("rule", ["file", "line", "blank-line", "wikitext"])
def test_words_documents_and_paragraphs_are_those_of_the_oracle(rule: str, tmp_path: Path) -> None:
    texts = {"train": TEXT + ARTICLES, "valid": "the end\nunknown words"}
    files = {split: [write(tmp_path / f"{split}.txt", text)] for split, text in texts.items()}
    artifact = tokenize(tmp_path / "store", files, documents=rule)
    types, learned = oracle.word_vocabulary(texts["train"]), oracle.word_tokens(texts["train"])
    for split, text in texts.items():
        tokens = oracle.word_tokens(text)
        documents = oracle.documents(text, rule)
        paragraphs = [p for document in documents for p in oracle.paragraphs(document)]
        found = arrays(artifact, split)
        assert [types[i] for i in found["ids"]] == [w if w in types else "<unk>" for w in tokens]
        sizes = [len(oracle.word_tokens(document)) for document in documents]
        assert found["doc_offsets"].tolist() == np.cumsum([0, *sizes]).tolist()
        sizes = [len(oracle.word_tokens(paragraph)) for paragraph in paragraphs]
        assert found["paragraph_ends"].tolist() == np.cumsum(sizes).tolist()
        assert found["paragraph_hashes"].tolist() == list(map(oracle.paragraph_hash, paragraphs))
        assert artifact.metrics["splits"][split] == {
            "tokens": len(tokens),
            "documents": len(documents),
            "paragraphs": len(paragraphs),
            "characters": len(text),
            "bytes": len(text.encode()),
            "words": len(tokens),
            "unknown_rate": sum(w not in types or w == "<unk>" for w in tokens) / len(tokens),
            "types": len({w if w in types else "<unk>" for w in tokens}),
            "own_types": _own_types(
                *({w if w in types else "<unk>" for w in words} for words in (learned, tokens))
            ),
            **{
                "line_ends": text.count("\n"),
                "curly_quotes": 0,
                "straight_quotes": text.count('"'),
            },
        }
    assert (types[artifact.metrics["eos_id"]], types[artifact.metrics["unk_id"]]) == (
        "<eos>",
        "<unk>",
    )


def _own_types(learned: set[str], own: set[str]) -> float:
    return len(own - learned) / len(own)


def test_crlf_is_read_as_lf(tmp_path: Path) -> None:
    text = "“One” line\nand a 'second' one\n\nthe end\n" * 40
    made = {}
    for name, written in {"lf": text, "crlf": text.replace("\n", "\r\n")}.items():
        file = tmp_path / f"{name}.txt"
        file.write_bytes(written.encode())
        record = write(tmp_path / f"{name}.jsonl", json.dumps({"text": written}) + "\n")
        for kind, path in {"txt": file, "jsonl": record}.items():
            made[name, kind] = tokenize(tmp_path / name, {"train": [str(path)]}, tokenizer="char")
    for kind in ("txt", "jsonl"):
        one, other = made["lf", kind], made["crlf", kind]
        assert arrays(one, "train")["ids"].tolist() == arrays(other, "train")["ids"].tolist()
        assert one.metrics == other.metrics


@pytest.mark.parametrize(
    ("test", "told"),
    [
        ("a b c d e f\n" * 40, None),
        ("a b c d e f " * 40 + "\n", "lines of 12 characters in train, of 481 in test"),
        ("a b c d e f\r" * 40, "lines of 12 characters in train, of 480 in test"),
        ('"a" b c "d"\n' * 40, 'quotes “ ” in train, " " in test'),
    ],
    ids=["alike", "lines", "lines that end with CR alone", "quotes"],
)
def test_splits_that_differ_in_form_are_told(test: str, told: str | None, tmp_path: Path) -> None:
    train = "“a” b “c” d\n" * 40 if '"' in test else "a b c d e f\n" * 40
    spoken = Notes()
    files = {
        "train": [write(tmp_path / "train.txt", train)],
        "test": [write(tmp_path / "test.txt", test)],
    }
    run(tmp_path / "store", files, spoken, tokenizer="char")
    (warning,) = [one for one in spoken.warnings if "differ in form" in one] or [None]
    assert (warning is None) if told is None else (told in str(warning))


@pytest.mark.usefixtures("small_shards")
@pytest.mark.parametrize("tokenizer", ["word", "char", "byte", "bpe"])
@pytest.mark.parametrize("lowercase", [False, True])
def test_the_published_tokenizer_gives_the_ids_of_each_document(
    tokenizer: str, lowercase: bool, tmp_path: Path
) -> None:
    texts = ["Größe\n\nthe  cat\n", TEXT, "the mat\nthe END\n"]
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    files = {"train": [write(tmp_path / "a.jsonl", lines)]}
    artifact = tokenize(tmp_path / "store", files, tokenizer=tokenizer, lowercase=lowercase)
    published = Tokenizer.from_file(str(artifact.file("tokenizer.json")))
    found = arrays(artifact, "train")
    offsets = found["doc_offsets"]
    for text, start, stop in zip(texts, offsets, offsets[1:], strict=False):
        assert found["ids"][start:stop].tolist() == published.encode(text).ids
    metrics = artifact.metrics
    assert metrics["vocabulary_size"] == published.get_vocab_size()
    assert metrics["eos_id"] == published.token_to_id("<eos>")
    assert metrics["splits"]["train"]["characters"] == sum(map(len, texts))
    assert metrics["tokenizer"] == tokenizer


def test_results_depend_on_no_shard_and_block_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"source": [write(tmp_path / "a.txt", ARTICLES * 3)]}
    settings = {"tokenizer": "bpe", "vocab_size": 280, "documents": "wikitext"}
    limit(monkeypatch, raw_block=11, shard_characters=40)
    monkeypatch.setattr("stages.text.huggingface.BATCH_CHARACTERS", 30)
    small = tokenize(tmp_path / "small", files, **settings)
    monkeypatch.undo()
    large = tokenize(tmp_path / "large", files, **settings)
    assert small.manifest.files == large.manifest.files
    assert small.metrics == large.metrics
    assert small.id == large.id


def test_a_file_of_one_giant_line_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "anarchism originated as a term of abuse " * 40
    files = {"train": [write(tmp_path / "text8", text)]}
    whole = tokenize(tmp_path / "whole", files)
    limit(monkeypatch, longest_piece=64, shard_characters=100)
    cut = tokenize(tmp_path / "cut", files)
    assert cut.manifest.files == whole.manifest.files
    assert cut.metrics["splits"]["train"]["tokens"] == 40 * 7 + 1


def split_sizes(artifact: Artifact) -> dict[str, int]:
    return {split: metrics["documents"] for split, metrics in artifact.metrics["splits"].items()}


@pytest.mark.parametrize(
    ("lines", "documents", "said"), [(1000, None, True), (999, None, False), (1000, "line", False)]
)
def test_of_a_document_of_many_paragraphs_it_is_said_how_they_become_documents(
    tmp_path: Path, lines: int, documents: str | None, said: bool
) -> None:
    train = write(
        tmp_path / "a.txt", "".join(f"a man in a hat number {line}\n" for line in range(lines))
    )
    spoken = Notes()
    run(tmp_path / "s", {"train": [train]}, spoken, documents=documents)
    assert any("1,000 paragraphs" in line for line in spoken.infos) == said


@pytest.mark.usefixtures("small_shards")
def test_one_corpus_is_split_at_documents_and_train_alone_makes_the_vocabulary(
    tmp_path: Path,
) -> None:
    lines = [f"word{i:02d} \n" for i in range(20)]
    files = {"source": [write(tmp_path / "a.txt", "".join(lines))]}
    spoken = Notes()
    artifact = run(
        tmp_path / "s", files, spoken, documents="line", split=(0.5, 0.25, 0.25)
    ).artifact
    assert split_sizes(artifact) == {"train": 10, "valid": 5, "test": 5}
    assert artifact.metrics["vocabulary_size"] == 12
    assert artifact.metrics["splits"]["valid"]["unknown_rate"] == 0.5
    assert artifact.metrics["splits"]["train"]["share"] == pytest.approx(0.5, abs=0.03)
    assert {split: artifact.metrics["splits"][split]["types"] for split in ("train", "valid")} == {
        "train": 11,
        "valid": 2,
    }
    forms = [
        warning
        for warning in spoken.warnings
        if "The texts differ" in warning or "<unk>" in warning
    ]
    assert forms == spoken.warnings[: len(forms)]
    few = spoken.warnings[len(forms) :]
    assert [re.findall(r"^\w+|[\d,]*\d", one) for one in few] == [
        ["train", "20", "10,000"],
        *([split, "10", "10,000"] for split in ("valid", "test")),
    ]
    assert all("--split" in one for one in few)


def test_the_default_split_and_default_vocabulary_are_part_of_the_identity(tmp_path: Path) -> None:
    files = {"source": ["builtin:pydocs"]}
    artifact = tokenize(tmp_path, files, tokenizer="bpe", vocab_size=None, documents=None)
    assert artifact.config["split"] == [0.9, 0.05, 0.05] and artifact.config["vocab_size"] == 1024
    # Each version of Python brings another number of topics.
    assert sum(split_sizes(artifact).values()) == len(pydoc_topics())
    spelled = run(tmp_path, files, tokenizer="bpe", vocab_size=1024, split=(0.9, 0.05, 0.05))
    assert (spelled.status, spelled.artifact.id) == ("cached", artifact.id)


def test_the_default_is_bpe_of_a_size_that_is_said(tmp_path: Path) -> None:
    spoken = Notes()
    files = {"train": [write(tmp_path / "a.txt", TEXT * 2000)]}
    artifact = run(tmp_path / "s", files, spoken, tokenizer="bpe", vocab_size="auto").artifact
    assert TokenizeConfig() == TokenizeConfig(tokenizer="bpe", vocab_size="auto", min_count="auto")
    assert (artifact.config["vocab_size"], artifact.metrics["tokenizer"]) == (1024, "bpe")
    assert any("1,024 types" in info and "132.0 kB" in info for info in spoken.infos)


@pytest.mark.parametrize(("extra", "count", "unknown"), [("", 2, "once"), (" <unk> ", 1, "kept")])
def test_words_seen_once_are_unknown_unless_the_text_has_unknown_words(
    extra: str, count: int, unknown: str, tmp_path: Path
) -> None:
    spoken = Notes()
    files = {"train": [write(tmp_path / "a.txt", "the cat\nthe dog\n" + extra)]}
    artifact = run(tmp_path / "s", files, spoken, tokenizer="word").artifact
    types = Tokenizer.from_file(str(artifact.file("tokenizer.json"))).get_vocab()
    assert artifact.config["min_count"] == count
    assert types.keys() == {"the", "<eos>", "<unk>", *(["cat", "dog"] if count == 1 else [])}
    assert artifact.metrics["splits"]["train"]["unknown_rate"] == (2 / 6 if count == 2 else 1 / 8)
    assert any(unknown in info for info in spoken.infos)
    assert run(tmp_path / "s", files, tokenizer="word", min_count=count).status == "cached"


@pytest.mark.parametrize(("test", "warned"), [("the cat\n", False), ("an emu\n", True)])
def test_a_split_of_unknown_words_is_warned_of(test: str, warned: bool, tmp_path: Path) -> None:
    spoken = Notes()
    files = {
        "train": [write(tmp_path / "a.txt", "the cat\n" * 9)],
        "test": [write(tmp_path / "b.txt", test)],
    }
    run(tmp_path / "s", files, spoken, tokenizer="word")
    assert any("test are <unk>" in one for one in spoken.warnings) == warned


def test_words_without_spaces_and_large_vocabularies_are_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoken = Notes()
    monkeypatch.setattr("stages.tokenization.size_warnings.MANY_TYPES", 3)
    run(
        tmp_path / "s", {"train": [write(tmp_path / "a.txt", "我们在一起。\n他说好吧。\n")]}, spoken
    )
    script, size = spoken.warnings
    assert "--tokenizer bpe" in script
    assert "4 types" in size
    assert all(figure in size for figure in ("0.002048 million", "32.8 kB", " 0%"))
    run(tmp_path / "s", {"train": [write(tmp_path / "b.txt", "a b\n")]}, spoken, tokenizer="char")
    assert len(spoken.warnings) == 3


def test_two_shares_make_no_test(tmp_path: Path) -> None:
    files = {"source": [write(tmp_path / "a.txt", "a b\n" * 20)]}
    artifact = tokenize(tmp_path / "s", files, documents="line", split=(0.75, 0.25))
    assert split_sizes(artifact) == {"train": 15, "valid": 5}
    assert artifact.config["split"] == [0.75, 0.25]


def test_documents_keep_their_names_which_are_in_no_digest(tmp_path: Path) -> None:
    texts = {"Emma": "a b\nc\n", "Persuasion": "d\n", "": "e\n"}
    lines = [json.dumps({"text": text, "title": title}) for title, text in texts.items()]
    plain, other = write(tmp_path / "f.txt", "x\ny\n"), write(tmp_path / "g.txt", "x\ny\n")
    books = write(tmp_path / "books.jsonl", "\n".join(lines))
    artifact = tokenize(
        tmp_path / "s", {"source": [books, plain]}, documents="line", split=(0.5, 0.25, 0.25)
    )
    named = {
        split: DocumentNames.read(artifact.path, split) for split in ("train", "valid", "test")
    }
    found = [
        named[split].of(i) for split, size in split_sizes(artifact).items() for i in range(size)
    ]
    assert sorted(map(str, found)) == [
        "Emma",
        "Emma",
        "Persuasion",
        "books.jsonl:3",
        "f.txt",
        "f.txt",
    ]
    first = tokenize(tmp_path / "one", {"train": [plain]})
    second = tokenize(tmp_path / "two", {"train": [other]})
    assert first.manifest.files != second.manifest.files
    assert (first.id, first.digest) == (second.id, second.digest)


def test_the_longest_record_is_no_part_of_the_work(tmp_path: Path) -> None:
    files = {"train": [write(tmp_path / "a.jsonl", '{"text": "one two"}\n')]}
    with pytest.raises(DataError, match=r"a\.jsonl, line 1: the record is larger than 10 B"):
        run(tmp_path / "s", files, tokenizer="char", max_record_bytes=10)
    tokenize(tmp_path / "s", files, tokenizer="char")
    assert run(tmp_path / "s", files, tokenizer="char", max_record_bytes=100).status == "cached"


def test_too_few_documents_are_bad_data(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="The text has 1 document, too few for 3 splits"):
        run(tmp_path / "s", {"source": [write(tmp_path / "a.txt", TEXT)]})


def test_identity_is_content_in_order_never_names(tmp_path: Path) -> None:
    a, b = write(tmp_path / "a.txt", "one\n"), write(tmp_path / "b.txt", "two\n")
    copy, as_json = (
        write(tmp_path / "copy.txt", "one\n"),
        write(tmp_path / "a.jsonl", '{"text": "one\\n"}'),
    )
    store = tmp_path / "s"
    first = tokenize(store, {"train": [a, b]})
    assert run(store, {"train": [copy, b]}).status == "cached"
    assert tokenize(store, {"train": [b, a]}).id != first.id
    assert tokenize(store, {"train": [a], "valid": [b]}).id != first.id
    assert tokenize(store, {"train": [as_json]}).id != tokenize(store, {"train": [a]}).id
    jsonl_text = write(tmp_path / "records.txt", '{"text": "one\\n"}')
    assert arrays(tokenize(store, {"train": [jsonl_text]}, documents="jsonl"), "train")[
        "ids"
    ].tolist() == [1, 0]


def test_another_artifacts_tokenizer_and_its_file(tmp_path: Path) -> None:
    store = tmp_path / "s"
    made = tokenize(store, {"train": [write(tmp_path / "a.txt", TEXT)]}, lowercase=True)
    other = {"test": [write(tmp_path / "b.txt", "The new END\n")]}
    by_artifact = tokenize(store, {**other, "tokenizer": made.reference})
    by_file = tokenize(
        store, {**other, "tokenizer": str(made.file("tokenizer.json"))}, tokenizer="given"
    )
    assert by_artifact.input("tokenizer").id == made.id
    assert by_artifact.config["tokenizer"] == "given" and by_artifact.metrics["tokenizer"] == "word"
    assert by_artifact.manifest.files == by_file.manifest.files
    assert (
        by_artifact.file("tokenizer.json").read_bytes() == made.file("tokenizer.json").read_bytes()
    )
    names = {
        id: name
        for name, id in Tokenizer.from_file(str(made.file("tokenizer.json"))).get_vocab().items()
    }
    assert [names[id] for id in arrays(by_artifact, "test")["ids"].tolist()] == [
        "the",
        "<unk>",
        "end",
        "<eos>",
    ]


def crash(*given: Any) -> Any:
    raise Crash


@pytest.mark.usefixtures("small_shards")
@pytest.mark.parametrize("done", [0, 1, 5])
def test_a_crash_costs_no_committed_shard(
    done: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"source": [write(tmp_path / "a.txt", ARTICLES)]}
    settings: dict[str, Any] = {"tokenizer": "bpe", "vocab_size": 270, "documents": "wikitext"}
    expected = tokenize(tmp_path / "whole", files, **settings)
    with monkeypatch.context() as patch, pytest.raises(Crash):
        crash_after(patch, "run_shard", done)
        run(tmp_path / "s", files, **settings)
    spoken = Notes()
    with monkeypatch.context() as patch:
        encoded = crash_after(patch, "run_shard", -1)
        patch.setattr(
            "stages.tokenization.spooling._scan", lambda job: pytest.fail("read the text again")
        )
        patch.setattr(
            "stages.tokenization.spooling._make_tokenizer", lambda *a: pytest.fail("trained again")
        )
        outcome = run(tmp_path / "s", files, spoken, **settings)
    total = encoded() + done
    assert total > 10
    assert f"resumed: {done} of {total} shards" in spoken.infos
    assert outcome.status == "resumed"
    assert outcome.artifact.manifest.files == expected.manifest.files
    assert outcome.artifact.metrics == expected.metrics


@pytest.mark.usefixtures("small_shards")
@pytest.mark.parametrize("done", [1, 7, 12])
def test_a_crash_costs_no_words_that_are_split(
    done: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"source": [write(tmp_path / "a.txt", ARTICLES)]}
    expected = tokenize(tmp_path / "whole", files, documents="wikitext")
    with monkeypatch.context() as patch, pytest.raises(Crash):
        crash_after(patch, "run_shard", done)
        run(tmp_path / "s", files, documents="wikitext")
    outcome = run(tmp_path / "s", files, documents="wikitext")
    assert outcome.status == "resumed"
    assert outcome.artifact.manifest.files == expected.manifest.files
    assert outcome.artifact.metrics == expected.metrics


@pytest.mark.usefixtures("small_shards")
@pytest.mark.parametrize("tokenizer", [pytest.param("word", marks=pytest.mark.endurance), "bpe"])
def test_two_workers_make_what_one_makes(tokenizer: str, tmp_path: Path) -> None:
    files = {"source": [write(tmp_path / "a.txt", ARTICLES)]}
    settings: dict[str, Any] = {"tokenizer": tokenizer, "documents": "wikitext", "lowercase": True}
    one = tokenize(tmp_path / "one", files, **settings)
    config = TokenizeConfig(**settings)
    two = make(Tokenize(), config, files, Store(tmp_path / "two"), Execution(workers=2)).artifact
    assert (two.manifest.files, two.metrics) == (one.manifest.files, one.metrics)


@pytest.mark.usefixtures("small_shards")
def test_a_crash_while_putting_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "train": [write(tmp_path / "a.txt", ARTICLES)],
        "test": [write(tmp_path / "b.txt", TEXT)],
    }
    expected = tokenize(tmp_path / "whole", files)
    from stages.artifacts.draft import Draft

    written: list[int] = []
    original = Draft.write

    def counting(draft: Draft, layout: ArrayLayout, shard: int, block: np.ndarray) -> None:
        written.append(shard)
        original(draft, layout, shard, block)

    def dying(draft: Draft, layout: ArrayLayout, shard: int, block: np.ndarray) -> None:
        if len(written) == 5:
            raise Crash
        counting(draft, layout, shard, block)

    with monkeypatch.context() as patch, pytest.raises(Crash):
        patch.setattr(Draft, "write", dying)
        run(tmp_path / "s", files)
    with monkeypatch.context() as patch:
        crash_after(patch, "run_shard", 0)
        patch.setattr(Draft, "write", counting)
        outcome = run(tmp_path / "s", files)
    assert outcome.artifact.manifest.files == expected.manifest.files
    assert len(written) == sum("/c/" in name for name in expected.manifest.files)


def test_a_file_that_changes_after_hashing_is_bad_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    write(path, "before\n")
    original = TokenizeWork.plan

    def change_then_plan(*arguments: Any) -> Any:
        write(path, "after\n")
        return original(*arguments)

    monkeypatch.setattr(TokenizeWork, "plan", change_then_plan)
    with pytest.raises(DataError, match=r"a\.txt changed while it was being read"):
        run(tmp_path / "s", {"train": [str(path)]})
    assert not Store(tmp_path / "s").artifacts()


def test_bad_input_names_file_and_place(tmp_path: Path) -> None:
    good = gzip.compress(TEXT.encode())
    bad = {
        "empty.txt": (b"", r"empty\.txt is empty"),
        "binary.txt": (b"ELF\0", r"binary\.txt looks binary: it has a zero byte \(NUL\) at byte 3"),
        "book.pdf": (
            b"%PDF-1.4\n%\xe2\xe3",
            r"book\.pdf is a PDF, not plain text; save it as a text file",
        ),
        "latin.txt": (b"caf\xe9", r"latin\.txt is not UTF-8 at byte 3"),
        "torn.txt.gz": (good[:-5], r"torn\.txt\.gz is truncated: it ends at byte"),
        "wrong.jsonl": (b'{"text": "a"}\n{"text"', r"wrong\.jsonl, line 2: no valid JSON"),
        "other.jsonl": (
            b'{"body": "a"}\n',
            r"other\.jsonl, line 1: expected a JSON object with a field",
        ),
    }
    for name, (content, message) in bad.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=message):
            run(tmp_path / "s", {"train": [str(tmp_path / name)]})
    with pytest.raises(DataError, match=r"missing\.txt does not exist"):
        run(tmp_path / "s", {"train": [str(tmp_path / "missing.txt")]})
    assert not Store(tmp_path / "s").artifacts() and not list(tmp_path.glob("s/tokens/.*-partial"))


@pytest.mark.parametrize(
    ("references", "settings", "message"),
    [
        ({}, {}, "Which text"),
        ({"source": ["a"], "valid": ["a"]}, {}, "both alone .* and for valid"),
        ({"train": ["a"]}, {"split": (0.8, 0.1, 0.1)}, "named by split already"),
        ({"valid": ["a"]}, {}, "comes from train"),
        ({"valid": ["a"]}, {"tokenizer": "given"}, "Which tokenizer"),
        (
            {"valid": ["a"], "tokenizer": "t.json"},
            {"vocab_size": 300},
            "A given tokenizer has its own",
        ),
    ],
)
def test_usage_is_checked_before_files(
    references: dict[str, Any], settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        run(tmp_path, references, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tokenizer": "words"}, "did you mean 'word'"),
        ({"vocab_size": 0}, "greater than 0"),
        ({"tokenizer": "word", "vocab_size": 2}, "at least 3 types"),
        ({"vocab_size": 10**23}, "less than or equal to 16777216"),
        ({"min_count": 2}, "goes with the word tokenizer, not with bpe"),
        ({"tokenizer": "word", "min_count": 0}, "greater than 0"),
        ({"split": (0.9,)}, "two shares, of train and valid, or three"),
        ({"split": (0.9, 0.2)}, "shares of train and valid sum to 1.1"),
        ({"tokenizer": "bpe", "vocab_size": 256}, "at least 257"),
        ({"tokenizer": "byte", "vocab_size": 300}, "fixed size"),
        ({"split": (0.9, 0.2, 0.1)}, "sum to 1.2, not to 1"),
        ({"split": (1.0, -0.1, 0.1)}, "less than 1"),
        ({"split": (float("nan"), 0.5, 0.5)}, "greater than 0|finite"),
        ({"documents": "chapter"}, "'file', 'line', 'blank-line', 'wikitext' or 'jsonl'"),
        ({"tokenizer": "given", "lowercase": True}, "lowercase"),
    ],
)
def test_nonsense_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TokenizeConfig(**settings)


def test_bytes_need_no_train(tmp_path: Path) -> None:
    artifact = tokenize(
        tmp_path / "s", {"test": [write(tmp_path / "a.txt", "aé")]}, tokenizer="byte"
    )
    assert arrays(artifact, "test")["ids"].tolist() == list("aé".encode())
    with pytest.raises(ArtifactError, match=r"has no file tokens\.zarr/train"):
        open_split(artifact.zarr("tokens.zarr"), "train")
