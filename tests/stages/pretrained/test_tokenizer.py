"""Tokenizers of pretrained models: ids, and the tokens that no text has."""

import pytest

from stages.errors import UsageError
from stages.pretrained.location import locate
from stages.pretrained.tokenizer import read_tokenizer, same_tokenizer
from stages.text.corpus import read_corpus
from stages.text.files import file_digest
from stages.text.given import open_tokenizer
from stages.text.pretrained import PretrainedTokenizer, SpecialTokens
from stages.text.records import TextFile
from stages.text.spool import Spool, TextRange, write_spool
from tests.stages.pretrained.tiny import TEXT, saved

transformers = pytest.importorskip("transformers")


@pytest.fixture(params=[False, True], ids=["plain", "bos"])
def folder(request, tmp_path):
    saved(tmp_path / "model", "gpt2", bos=request.param)
    return tmp_path / "model", request.param


def test_what_ends_a_document_begins_a_split_and_stands_before_a_window(folder):
    path, bos = folder
    tokenizer = read_tokenizer(locate(str(path)), None)
    assert tokenizer.special == (SpecialTokens(0, 1, 1) if bos else SpecialTokens(0, 0, None))
    assert read_tokenizer(locate(str(path)), "<s>").eos_id == 1
    with pytest.raises(UsageError, match="has no token '<no>'"):
        read_tokenizer(locate(str(path)), "<no>")


def test_ids_are_those_of_transformers_across_lines_with_an_end_behind_each_document(folder, tmp_path):
    path, _ = folder
    files = []
    for number, text in enumerate(TEXT):
        file = tmp_path / f"{number}.txt"
        file.write_text(text)
        files.append(TextFile(str(file), "txt", file_digest(str(file)), 10**6))
    (shard,) = write_spool(read_corpus(files, "file"), 0, lambda name: _below(tmp_path / "spool", name))
    pieces = Spool(tmp_path / "spool").pieces(TextRange(shard.number, 0, shard.pieces))
    theirs = transformers.AutoTokenizer.from_pretrained(path)
    wanted = [id for text in TEXT for id in (*theirs(text, add_special_tokens=False).input_ids, 0)]
    ids, ends = read_tokenizer(locate(str(path)), None).encode(pieces)
    assert ids.tolist() == wanted
    assert ends[-1] == len(ids) and (ends[1:] >= ends[:-1]).all() and len(ends) == shard.pieces


def test_what_was_written_is_opened_as_the_same(folder, tmp_path):
    path, _ = folder
    tokenizer = read_tokenizer(locate(str(path)), None)
    tokenizer.save(tmp_path / "tokenizer.json")
    again = open_tokenizer(tmp_path / "tokenizer.json")
    assert isinstance(again, PretrainedTokenizer) and again.special == tokenizer.special
    assert again.encode_texts(TEXT)[0].tolist() == tokenizer.encode_texts(TEXT)[0].tolist()
    assert same_tokenizer(locate(str(path)), tokenizer.special, tmp_path / "tokenizer.json")
    other = (tmp_path / "tokenizer.json").read_text().replace('"the"', '"teh"').replace("Ġsat", "Ġtas")
    (tmp_path / "tokenizer.json").write_text(other)
    assert not same_tokenizer(locate(str(path)), tokenizer.special, tmp_path / "tokenizer.json")


def _below(folder, name):
    folder.mkdir(exist_ok=True)
    return folder / name
