"""Tokenizers made here, opened by transformers."""

import pytest

from stages.artifacts.store import Store
from stages.export.export import write_tokenizer
from stages.lineage.corpus import token_text
from stages.tokenize import Tokenize, TokenizeConfig
from tests.stages.export.made import made, texts

transformers = pytest.importorskip("transformers")
TEXT = "The cat sat\non the  mät, and the\n\ncat.\n"


@pytest.mark.parametrize("lowercase", [False, True], ids=["as it is", "lower case"])
@pytest.mark.parametrize("kind", ["word", "char", "byte", "bpe"])
def test_a_text_begins_with_eos_and_has_the_same_ids(tmp_path, kind, lowercase):
    config = TokenizeConfig(tokenizer=kind, lowercase=lowercase)
    tokens = made(Store(tmp_path / "store"), Tokenize(), config, source=[], **texts(tmp_path))
    (tmp_path / "out").mkdir()
    write_tokenizer(tokens, 64, tmp_path / "out")
    (tmp_path / "out/config.json").write_text('{"model_type": "gpt2"}')
    theirs, ours = transformers.AutoTokenizer.from_pretrained(tmp_path / "out"), token_text(tokens)
    assert theirs(TEXT).input_ids == [ours.eos, *ours.ids(TEXT)]
    assert (theirs.bos_token_id, theirs.eos_token_id, theirs.model_max_length) == (ours.eos, ours.eos, 64)
    if kind in ("byte", "bpe"):
        assert theirs.decode(theirs(TEXT).input_ids[1:]) == (TEXT.lower() if lowercase else TEXT)
