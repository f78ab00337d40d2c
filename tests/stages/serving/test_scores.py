"""Scores of prompts are those of `memlm evaluate --save-token-scores`, and of another door."""

import math
from pathlib import Path
from typing import Any

import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.evaluate import Evaluate, EvaluateConfig
from stages.import_model import ImportConfig, ImportModel
from stages.index import BuildIndex
from stages.inspection.settings import Request
from stages.models.language_model import LanguageModel
from stages.search.config import IndexConfig
from stages.serving.engine import Engine
from stages.tokenize import Tokenize, TokenizeConfig
from tests.stages.pretrained.tiny import saved
from tests.stages.serving.address import serving
from tests.stages.serving.conftest import READINGS, WINDOW, wide_model
from tests.stages.small_text import LSTM, built_index, story, text_model, text_tokens

EXACT = "exact:matches=20,temperature=0.7,lambda=0.3"


def made(store: Store, stage: Any, config: Any, **references: str) -> Artifact:
    return make(stage, config, references, store, Execution(device="cpu")).artifact


def imported_index(store: Store, folder: Path) -> Artifact:
    """An index of a small model of transformers whose tokenizer begins texts with `bos`."""
    saved(folder / "llama", "llama", bos=True)
    spec, files = str(folder / "llama"), {}
    for seed, (split, lines) in enumerate({"train": 27, "valid": 6, "test": 9}.items()):
        (folder / f"{split}.txt").write_text(story(lines, seed))
        files[split] = [str(folder / f"{split}.txt")]
    config, references = TokenizeConfig(tokenizer="given"), {"tokenizer": spec, **files}
    tokens = make(Tokenize(), config, references, store, Execution()).artifact
    model = made(
        store,
        ImportModel(),
        ImportConfig(segment_length=WINDOW),
        source=tokens.reference,
        checkpoint=spec,
    )
    return built_index(store, model)


@pytest.fixture(scope="module", params=["transformer", "lstm", "llama"])
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp(request.param)
    store = Store(folder / "store")
    if request.param == "llama":
        return imported_index(store, folder)
    tokens = text_tokens(store, folder, "bpe")
    if request.param == "lstm":
        return built_index(store, text_model(store, tokens, LSTM))
    return built_index(store, wide_model(store, tokens))


@pytest.mark.parametrize("memory", [None, READINGS, (EXACT,)], ids=["none", "knn+cache", "exact"])
def test_scores_of_a_prompt_are_those_of_evaluate(
    source: Artifact, memory: tuple[str, ...] | None
) -> None:
    store, exact = source.store, memory == (EXACT,)
    references = {"source": source.find("encoder").reference if exact else source.reference}
    if exact:
        corpus = source.find("corpus")
        index = made(store, BuildIndex(), IndexConfig(index="exact"), source=corpus.reference)
        references["index"] = index.reference
    config = EvaluateConfig(memory=memory or ("none",), save_token_scores=True)
    report = made(store, Evaluate(), config, **references)
    split = source.find("corpus").zarr("tokens.zarr")
    # A prompt is one document, and exact matches end where a document does.
    length = min(WINDOW, int(split["test/doc_offsets"][:2][1])) if exact else WINDOW
    want = report.zarr("scores.zarr")["logp"][:length]
    ids = split["test/ids"][:length].tolist()

    asked = {"memory": memory or ("none",), "index": references.get("index"), "device": "cpu"}
    engine = Engine.open(Request(source=references["source"], **asked), store, "small")
    with serving(engine) as address:
        reply = address.complete(
            prompt=[[engine.start, *ids], ids], echo=True, logprobs=1, max_tokens=0
        )
    behind_start, alone = (choice["logprobs"] for choice in reply.json["choices"])
    assert behind_start["token_logprobs"][1:] == pytest.approx(want.tolist(), abs=1e-5)
    # Where a tokenizer puts nothing before a text, memories do not know its first token.
    if memory is None or engine.text.start is None:
        # The two are of unequal length, so that one of them is padded.
        later = behind_start["token_logprobs"][2:]
        assert alone["token_logprobs"][1:] == pytest.approx(later, abs=1e-5)


def test_the_most_probable_token_has_exactly_the_largest_number(source: Artifact) -> None:
    request = Request(source=source.reference, memory=READINGS, device="cpu")
    engine = Engine.open(request, source.store, "small")
    with serving(engine) as address:
        written = address.complete(prompt="the cat", temperature=0, max_tokens=8, logprobs=1).json[
            "choices"
        ][0]["logprobs"]
        ids = engine.text.prompt_ids("the cat")
        new = written_ids(engine, ids, len(written["tokens"]))
        tokens = [*ids, *new]
        scored = address.complete(prompt=tokens, echo=True, logprobs=1, max_tokens=0)
    lists = scored.json["choices"][0]["logprobs"]
    for found, first in ((written, 0), (lists, len(ids))):
        own = found["token_logprobs"][first:]
        assert own and own == [max(top.values()) for top in found["top_logprobs"][first:]]
    assert lists["token_logprobs"][len(ids) :] == pytest.approx(written["token_logprobs"], abs=1e-4)


def test_prompts_of_one_request_are_read_in_one_pass(
    source: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request(source=source.reference, memory=READINGS, device="cpu")
    engine = Engine.open(request, source.store, "small")
    prompts = ["the cat sees", "a dog and the hen", "the"]
    fields = {"echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0}
    rows = list[int]()
    encode = LanguageModel.encode

    with serving(engine) as address:
        alone = [address.complete(prompt=prompt, **fields) for prompt in prompts]
        monkeypatch.setattr(
            LanguageModel, "encode", lambda *given: rows.append(len(given[1])) or encode(*given)
        )
        together = address.complete(prompt=prompts, **fields)
    wanted = [reply.json["choices"][0]["logprobs"]["token_logprobs"] for reply in alone]
    for choice, numbers in zip(together.json["choices"], wanted, strict=True):
        assert choice["logprobs"]["token_logprobs"][1:] == pytest.approx(numbers[1:], abs=1e-5)
    # A model with a state reads each text by itself.
    carries_state = engine.model.config.carries_state
    assert rows == ([1, 1, 1] if carries_state else [3])


def test_attribution_explains_the_numbers_that_are_listed(source: Artifact) -> None:
    request = Request(source=source.reference, memory=READINGS, device="cpu")
    with serving(Engine.open(request, source.store, "small")) as address:
        reply = address.complete(
            prompt="the cat", seed=2, max_tokens=6, logprobs=0, echo=True, memlm={"attribution": 1}
        )
    (choice,) = reply.json["choices"]
    tokens = choice["memlm"]["tokens"]
    listed = choice["logprobs"]["token_logprobs"][-len(tokens) :]
    known = [(token["p"], log_p) for token, log_p in zip(tokens, listed, strict=True) if log_p]
    assert len(known) > 2
    assert [p for p, _ in known] == pytest.approx([math.exp(log_p) for _, log_p in known], abs=1e-5)


def written_ids(engine: Engine, ids: list[int], number: int) -> list[int]:
    """The most probable tokens behind a prompt."""
    with engine.reading("small", ids) as text:
        for _ in range(number):
            (log_p,) = engine.next_log_probs("small", [(text, ())])
            engine.accept("small", text, [int(log_p.argmax())])
        return text.ids[len(ids) :]
