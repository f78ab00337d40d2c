"""Texts of a session: as an evaluation scores them, together as alone, and as transformers reads."""

from pathlib import Path

import numpy as np
import pytest
import torch

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.errors import UsageError
from stages.generation.generate import open_writer
from stages.generation.session import TextSession
from stages.inspection.reading import MemoryReader
from stages.inspection.request import Request
from stages.models.language_model import LanguageModel
from stages.retrieval.neighbors import IndexSearch
from tests.stages.generation.imported import Imported, imported_index
from tests.stages.slow_evaluation import evaluated
from tests.stages.small_store import ModelConfig, array
from tests.stages.small_text import LSTM, TRANSFORMER_XL, built_index, text_model, text_tokens

transformers = pytest.importorskip("transformers")
CACHE = "long:size=20,theta=0.5,lambda=0.3"
KNN = "external:k=6,temperature=2,lambda=0.4"
STREAM = "exact-stream:matches=5,temperature=0.3,lambda=0.3"
OWN = {"transformer": ModelConfig().model, "lstm": LSTM, "transformer-xl": TRANSFORMER_XL}


@pytest.fixture(scope="module")
def indexes(store: Store, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    tokens = text_tokens(store, tmp_path_factory.mktemp("text"))
    models = {name: text_model(store, tokens, model) for name, model in OWN.items()}
    return {name: built_index(store, model) for name, model in models.items()}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Imported:
    return imported_index(tmp_path_factory.mktemp("llama"))


def opened(index: Artifact, *memory: str, **settings: int) -> MemoryReader:
    request = Request(source=index.reference, memory=memory, device="cpu", **settings)
    return open_writer(request, index.store)


@pytest.mark.parametrize("backbone", OWN)
@pytest.mark.parametrize("memory", [(KNN, CACHE), (STREAM,), ("local:theta=0.5,lambda=0.3",)])
def test_a_prompt_is_scored_as_an_evaluation_scores_it(
    store: Store, indexes: dict[str, Artifact], backbone: str, memory: tuple[str, ...]
) -> None:
    index, stride = indexes[backbone], 4 if backbone == "transformer" else None
    scores = evaluated(store, index, *memory, stride=stride)
    ids = array(index.find("tokens"), "tokens.zarr", "test/ids").astype(int).tolist()
    session = TextSession(opened(index, *memory, **({"stride": stride} if stride else {})))
    text = session.add(ids)
    (found,) = session.score([text], top=3)
    np.testing.assert_allclose(found.log_p, array(scores, "scores.zarr", "logp"), atol=2e-5)
    assert (np.diff(found.top_log_p) <= 0).all()
    is_first = found.top_ids[:, 0] == ids
    assert (found.log_p[is_first] == found.top_log_p[is_first, 0]).all()
    assert found.is_best[is_first].all()
    # It goes on as a text that was not scored.
    whole, other = session.step([text]), session.step([session.add(ids)])
    torch.testing.assert_close(whole, other, rtol=0, atol=2e-5)


@pytest.mark.parametrize("memory", [("none",), (KNN, CACHE)])
def test_texts_together_are_texts_alone(
    llama: Imported, memory: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come and go, outgrow their windows, and share each pass of the model and each search."""
    reader = opened(llama.index, *memory, context=16)
    random = np.random.default_rng(0)
    written = [random.integers(2, 290, length + 24).tolist() for length in (3, 9, 15)]
    passes, searches = list[int](), list[int]()
    encode, search = LanguageModel.encode, IndexSearch.search
    alone = []
    for ids in written:
        session = TextSession(reader)
        text = session.add(ids[:-24])
        rows = []
        for token in ids[-24:]:
            rows.append(session.step()[0])
            session.put([text], [token])
        alone.append(torch.stack(rows))

    monkeypatch.setattr(
        LanguageModel, "encode", lambda *given: passes.append(len(given[1])) or encode(*given)
    )
    monkeypatch.setattr(
        IndexSearch, "search", lambda *given: searches.append(len(given[1])) or search(*given)
    )
    session, started = TextSession(reader), dict[int, int]()
    texts = {}
    for step in range(28):
        for number in range(3):
            if step == 2 * number:  # one after the other
                texts[number], started[number] = session.add(written[number][:-24]), step
            if number in texts and step - started[number] == 24:
                session.drop(texts.pop(number))
        passes.clear(), searches.clear()
        log_p = session.step()
        for row, (number, text) in zip(log_p, texts.items(), strict=True):
            place = step - started[number]
            torch.testing.assert_close(row, alone[number][place], rtol=0, atol=1e-5)
            session.put([text], [written[number][place - 24]])
        if step == 5:  # later, windows are read anew
            assert passes == [3]
        assert searches == ([] if memory == ("none",) else [len(texts)])


@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize("memory", [("none",), (KNN, CACHE), (STREAM,)])
def test_prompts_scored_together_are_prompts_scored_alone(
    llama: Imported,
    memory: tuple[str, ...],
    goes_on: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = opened(llama.index, *memory)  # windows of 40
    random = np.random.default_rng(1)
    # The longest outgrows its window; a prompt of one token has no score.
    prompts = [random.integers(2, 290, length).tolist() for length in (9, 1, 60, 35, 11)]
    alone = []
    behind = []
    for ids in prompts:
        session = TextSession(reader)
        text = session.add(ids)
        alone += session.score([text], top=2)
        behind.append(session.step([text])[0])

    passes = list[tuple[int, ...]]()
    encode = LanguageModel.encode
    monkeypatch.setattr(
        LanguageModel,
        "encode",
        lambda *given: passes.append(tuple(given[1].shape)) or encode(*given),
    )
    session = TextSession(reader)
    texts = [session.add(ids) for ids in prompts]
    together = session.score(texts, top=2, goes_on=goes_on)
    assert passes[0] == (3, 34 + goes_on)
    for scores, wanted in zip(together, alone, strict=True):
        for array_, wanted_array in zip(scores, wanted, strict=True):
            np.testing.assert_allclose(array_, wanted_array, rtol=0, atol=1e-5)

    passes.clear()
    steps = session.step(texts)
    torch.testing.assert_close(steps, torch.stack(behind), rtol=0, atol=1e-5)
    # Only the prompt without a score is still to be read.
    assert passes == [(1, 1)] or not goes_on

    # What follows is as behind a prompt that was scored alone.
    session.put(texts, [7] * len(texts))
    again = TextSession(reader)
    others = [again.add([*ids, 7]) for ids in prompts]
    torch.testing.assert_close(session.step(), again.step(others), rtol=0, atol=1e-5)


@pytest.mark.parametrize("backbone", OWN)
def test_prompts_of_own_models_are_scored_together_as_alone(
    indexes: dict[str, Artifact], backbone: str
) -> None:
    reader = opened(indexes[backbone], KNN, CACHE)
    prompts = [[2, 3, 4, 5, 6], [7, 3], [2, 2, 5]]
    session = TextSession(reader)
    together = session.score([session.add(ids) for ids in prompts])
    for ids, scores in zip(prompts, together, strict=True):
        session = TextSession(reader)
        (wanted,) = session.score([session.add(ids)])
        np.testing.assert_allclose(scores.log_p, wanted.log_p, rtol=0, atol=1e-5)


@pytest.mark.parametrize("bos", [False, True])
def test_a_prompt_begins_as_in_transformers(tmp_path: Path, bos: bool, llama: Imported) -> None:
    found = imported_index(tmp_path, bos=True) if bos else llama
    tokenizer = transformers.AutoTokenizer.from_pretrained(found.folder)
    reader = opened(found.index, "none")
    assert reader.range_reader.split_reader.windows.context == (39 if bos else 40)
    prompt = "the cat sees\n\na dog"
    ids = tokenizer(prompt).input_ids
    assert reader.text.prompt_ids(prompt) == ids and (ids[0] == 1) == bos

    session = TextSession(reader)
    text = session.add(ids)
    (scores,) = session.score([text])
    with torch.no_grad():
        whole = found.theirs(torch.tensor([ids])).logits[0].log_softmax(-1)
    assert np.isnan(scores.log_p[0]) and text.ids == ids
    wanted = whole[range(len(ids) - 1), ids[1:]]
    np.testing.assert_allclose(scores.log_p[1:], wanted, atol=1e-5)
    torch.testing.assert_close(session.step()[0], whole[-1], rtol=0, atol=1e-5)


def test_an_empty_prompt_begins_after_the_first_token_of_a_split(llama: Imported) -> None:
    session = TextSession(opened(llama.index, "none"))
    text = session.add([])
    assert text.ids == [session.reader.text.start]
    assert session.step().shape == (1, 320)


def test_ids_that_are_no_tokens_are_refused(llama: Imported) -> None:
    session = TextSession(opened(llama.index, "none"))
    for id in (-1, 320):
        with pytest.raises(UsageError, match="knows 0 to 319"):
            session.add([5, id])
    assert session.texts == []
