"""Tokenizers of pretrained models: ids, and the tokens that no text has."""

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.errors import UsageError
from stages.pretrained.location import locate
from stages.pretrained.tokenizer import read_tokenizer, same_tokenizer
from stages.text.files import file_digest
from stages.text.huggingface import PretrainedTokenizer, SpecialTokens, open_tokenizer
from stages.text.records import TextFile, read_corpus
from stages.text.spool import Spool, TextRange, write_spool
from stages.tokenization import spooling
from stages.tokenize import Tokenize, TokenizeConfig
from tests.builders.limits import limit
from tests.stages.notes import Notes
from tests.stages.pretrained.tiny import TEXT, saved, tiny_tokenizer

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


def test_ids_are_those_of_transformers_across_lines_with_an_end_behind_each_document(
    folder, tmp_path
):
    path, _ = folder
    files = []
    for number, text in enumerate(TEXT):
        file = tmp_path / f"{number}.txt"
        file.write_text(text)
        files.append(TextFile(str(file), "txt", file_digest(str(file)), 10**6))
    (shard,) = write_spool(
        read_corpus(files, "file"), 0, lambda name: _below(tmp_path / "spool", name)
    )
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
    other = (
        (tmp_path / "tokenizer.json").read_text().replace('"the"', '"teh"').replace("Ġsat", "Ġtas")
    )
    (tmp_path / "tokenizer.json").write_text(other)
    assert not same_tokenizer(locate(str(path)), tokenizer.special, tmp_path / "tokenizer.json")


def unigram(pre_tokenizer):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.UnigramTrainer(
        vocab_size=60, special_tokens=["<unk>", "</s>"], unk_token="<unk>"
    )
    trainer.show_progress = False
    tokenizer.train_from_iterator(TEXT * 3, trainer)
    return tokenizer


def word_piece():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = (
        normalizers.BertNormalizer(),
        pre_tokenizers.BertPreTokenizer(),
    )
    special = ["[UNK]", "[CLS]", "[SEP]"]
    tokenizer.train_from_iterator(
        TEXT * 3, trainers.WordPieceTrainer(special_tokens=special, show_progress=False)
    )
    return tokenizer


def byte_level(**settings):
    tokenizer = tiny_tokenizer()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(**settings)
    return tokenizer


KINDS = {
    "byte-level": (lambda: byte_level(add_prefix_space=False), "<|endoftext|>", True),
    "byte-level, a space before each text": (
        lambda: byte_level(add_prefix_space=True),
        "<|endoftext|>",
        False,
    ),
    "byte-level, in one part": (
        lambda: byte_level(add_prefix_space=False, use_regex=False),
        "<|endoftext|>",
        False,
    ),
    "Metaspace": (lambda: unigram(pre_tokenizers.Metaspace()), "</s>", False),
    "Metaspace, in one part": (
        *(
            lambda: unigram(pre_tokenizers.Metaspace(prepend_scheme="first", split=False)),
            "</s>",
            False,
        ),
    ),
    "WordPiece": (word_piece, "[SEP]", False),
}


@pytest.mark.parametrize("kind", KINDS)
def test_ids_of_documents_longer_than_a_shard_are_those_of_transformers(
    tmp_path, monkeypatch, kind
):
    """Many cuts would change them, and where none is safe there is none."""
    make_tokenizer, end, cut = KINDS[kind]
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=make_tokenizer(), eos_token=end
    ).save_pretrained(tmp_path)
    limit(monkeypatch, shard_characters=60)
    monkeypatch.setattr(spooling, "LONG", 200)
    written, write_spool = [], spooling.write_spool

    def watched(*arguments):
        for shard in write_spool(*arguments):
            written.append(shard)
            yield shard

    monkeypatch.setattr(spooling, "write_spool", watched)
    long = "".join(TEXT) * 5 + "a line \nand another\n\n  and more\nthe end"
    (tmp_path / "long.txt").write_text(long)
    (tmp_path / "short.txt").write_text(TEXT[0])
    files = [str(tmp_path / "long.txt"), str(tmp_path / "short.txt")]

    notes = Notes()
    execution = Execution(device="cpu", reporter=notes, checkpoint_seconds=0)
    references = {"source": [], "tokenizer": str(tmp_path), "train": files}
    config = TokenizeConfig(tokenizer="given")
    tokens = make(Tokenize(), config, references, Store(tmp_path / "store"), execution).artifact
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs.backend_tokenizer.pre_tokenizer is not None
    ends = [theirs.eos_token_id]
    wanted = [theirs(text, add_special_tokens=False).input_ids + ends for text in (long, TEXT[0])]
    assert tokens.zarr("tokens.zarr")["train/ids"][:].tolist() == [*wanted[0], *wanted[1]]
    assert tokens.zarr("tokens.zarr")["train/doc_offsets"][:].tolist() == [
        0,
        len(wanted[0]),
        sum(map(len, wanted)),
    ]
    assert len(written) > 3 if cut else len(written) == 2
    said = f"a document of {len(long):,} characters stays whole"
    assert [said in warning for warning in notes.warnings if "whole" in warning] == (
        [] if cut else [True]
    )


def _below(folder, name):
    folder.mkdir(exist_ok=True)
    return folder / name
