"""A forecast of the number of tokens against the tokens themselves."""

from pathlib import Path

import pytest

from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.text import survey
from stages.text.files import file_digest
from stages.text.records import TextFile
from stages.text.survey import token_bytes
from stages.tokenize import Tokenize, TokenizeConfig
from tests.stages.small_text import story


@pytest.mark.parametrize("sample", [survey.SAMPLE_BYTES, 20_000])
def test_the_number_of_tokens_is_foretold(tmp_path: Path, sample: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "SAMPLE_BYTES", sample)
    text = tmp_path / "text.txt"
    text.write_text(story(3000, 0))
    config = TokenizeConfig(tokenizer="bpe", vocab_size=300)
    store = Store(tmp_path / "store")
    made = make(Tokenize(), config, {"train": [str(text)]}, store, Execution()).artifact
    tokens = made.metrics["splits"]["train"]["tokens"] - 1
    told = text.stat().st_size / token_bytes([TextFile(str(text), "txt", file_digest(str(text)))])(300)
    assert told == pytest.approx(tokens, rel=0.001 if sample > text.stat().st_size else 0.05)
