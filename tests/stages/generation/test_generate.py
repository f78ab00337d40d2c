"""Writing text: against a loop over the bare model, and against what an evaluation says of the same
tokens.
"""

import numpy as np
import pytest
import torch

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.errors import ArtifactError, UsageError
from stages.generation.generate import GenerationRequest, generate, open_writer
from stages.generation.session import TextSession
from stages.index import BuildIndex
from stages.inspection.reading import MemoryReader, text_log_prob
from stages.inspection.request import Request
from stages.models.backbones.window_configs import TransformerConfig
from stages.models.language_model import LanguageModel
from stages.models.weights import load_model
from stages.search.config import IndexConfig
from tests.builders.evaluations import made
from tests.stages.slow_evaluation import evaluated
from tests.stages.small_store import ModelConfig, array
from tests.stages.small_text import (
    LSTM,
    MEMFORMER,
    MEMORY_TOKENS,
    SRU,
    TRANSFORMER_XL,
    built_index,
    found_neighbors,
    text_model,
    text_tokens,
)

BACKBONES = {
    "transformer": ModelConfig().model,
    "lstm": LSTM,
    "transformer-xl": TRANSFORMER_XL,
    "sru++": SRU,
    "memformer": MEMFORMER,
    "memory-transformer": MEMORY_TOKENS,
    "hashed-ngrams": TRANSFORMER_XL
    | {"lookup": {"name": "hashed-ngrams", "slots": 20, "layers": [1]}},
}
CONTEXT = 8
PROMPT = "the cat sees the dog and runs a hen and the pig"
SPALM = {"method": "spalm", "k": 3, "only_gate": False}


@pytest.fixture(scope="module")
def tokens(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return text_tokens(store, tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def models(store: Store, tokens: Artifact) -> dict[str, Artifact]:
    return {name: text_model(store, tokens, model) for name, model in BACKBONES.items()}


@pytest.fixture(scope="module")
def indexes(store: Store, models: dict[str, Artifact]) -> dict[str, Artifact]:
    return {name: built_index(store, model) for name, model in models.items()}


def writer(store: Store, source: Artifact, *memory: str, **settings) -> MemoryReader:
    return open_writer(
        Request(source=source.reference, memory=memory or None, device="cpu", **settings), store
    )


def window_begin(position: int) -> int:
    """Where the window of a position begins; they overlap by half."""
    begin = 0
    while begin + CONTEXT <= position:
        begin += CONTEXT // 2
    return begin


def slow_text(
    model: Artifact, prompt: list[int], number: int, seed: int, temperature: float
) -> list[int]:
    """Plain sampling: every token's context is read from its beginning, or from that of its window."""
    network, random = load_model(model.path, "cpu"), np.random.default_rng(seed)
    ids = [model.input("tokens").metrics["eos_id"], *prompt]
    for _ in range(number):
        read = ids if network.config.carries_state else ids[window_begin(len(ids) - 1) :]
        with torch.no_grad():
            hidden = network.encode(torch.tensor([read])).hidden[:, -1]
        weights = (network.log_probs(hidden)[0].double() / temperature).exp().tolist()
        wanted, token, passed = random.random() * sum(weights), 0, weights[0]
        while passed <= wanted:
            token += 1
            passed += weights[token]
        ids.append(token)
    return ids[1 + len(prompt) :]


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("prompt", ["", PROMPT])
def test_without_memory_it_is_plain_sampling(store, models, backbone, prompt):
    reader = writer(store, models[backbone], "none")
    wanted = GenerationRequest(prompt=prompt, max_tokens=30, temperature=0.8, seed=3)
    found = [written.id for written in generate(reader, wanted)]
    assert found == slow_text(models[backbone], reader.text.ids(prompt), 30, 3, 0.8)


MEMSIZER = ModelConfig().model | {"attention": {"name": "memsizer", "slots": 3}}


CACHED = "long:size=9,theta=0.3,lambda=0.3"


@pytest.mark.parametrize(
    ("positions", "memory", "draft", "attention"),
    [
        ("learned", "none", "none", "softmax"),
        ("sinusoidal", CACHED, "none", "softmax"),
        ("learned", CACHED, "exact", "softmax"),
        ("sinusoidal", "none", "exact", "softmax"),
        ("learned", CACHED, "none", "memsizer"),
        ("sinusoidal", "none", "none", "memsizer"),
        ("sinusoidal", CACHED, "exact", "memsizer"),
    ],
)
def test_each_token_of_a_window_is_read_once(
    store, tokens, monkeypatch, positions, memory, draft, attention
):
    """In float64: the same text and probabilities as of windows that are read anew for every token."""
    if draft == "exact":
        made(store, BuildIndex(), IndexConfig(index="exact"), tokens)
    layer = MEMSIZER if attention == "memsizer" else ModelConfig().model
    model = text_model(store, tokens, layer | {"positions": positions})
    reader = open_writer(
        Request(source=model.reference, memory=(memory,), device="cpu"), store, draft
    )
    reader.range_reader.model.double()
    read, encode = [], LanguageModel.encode
    monkeypatch.setattr(
        LanguageModel, "encode", lambda *given: read.append(given[1].shape[1]) or encode(*given)
    )
    for prompt in ("", "the cat sees"):
        wanted = GenerationRequest(prompt=prompt, max_tokens=20, seed=3, draft=draft)
        read.clear()
        found = list(generate(reader, wanted))
        if draft == "none":
            start = len(reader.text.ids(prompt))
            places = range(start + 1, start + 20)
            # A window that ends is read anew from half its length back.
            begins = [window_begin(place) > window_begin(place - 1) for place in places]
            after = [CONTEXT // 2 + 1 if anew else 1 for anew in begins]
            assert read == [start + 1, *after]
        with monkeypatch.context() as plain:
            plain.setattr(TransformerConfig, "in_pieces", False)
            same = list(generate(reader, wanted))
        assert [one.id for one in found] == [one.id for one in same]
        np.testing.assert_allclose(
            [one.probability for one in found], [one.probability for one in same], rtol=1e-10
        )


def test_a_seed_repeats_itself_and_another_writes_another_text(store, indexes):
    reader = writer(
        store, indexes["transformer"], "external:k=5,lambda=0.3", "long:size=9,theta=0.2,lambda=0.2"
    )
    texts = [
        [
            written.id
            for written in generate(
                reader, GenerationRequest(prompt=PROMPT, max_tokens=25, seed=seed)
            )
        ]
        for seed in (1, 1, 2)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_temperature_zero_takes_the_likeliest_of_the_final_distribution(store, indexes):
    reader = writer(store, indexes["lstm"], "external:k=5,lambda=0.6")
    session = TextSession(reader)
    text = session.add(reader.text.ids(PROMPT))
    for written in generate(reader, GenerationRequest(prompt=PROMPT, max_tokens=12, temperature=0)):
        log_p = session.step()[0].numpy()
        assert written.id == log_p.argmax()
        assert written.probability == pytest.approx(np.exp(log_p.max()))
        session.put([text], [written.id])


def forced(reader: MemoryReader, ids: np.ndarray, prompt: int) -> list[float]:
    """Log-probabilities that writing would give to tokens that stand there already."""
    session, found = TextSession(reader), []
    text = session.add(ids[:prompt].tolist())
    for token in ids[prompt:].tolist():
        found.append(float(session.step()[0, token]))
        session.put([text], [token])
    return found


CACHE = "long:size=20,theta=0.5,lambda=0.3"
KNN = "external:k=6,temperature=2,lambda=0.4"
JOINT_THEN_KNN = (
    "long:size=9,theta=0.3,reader=joint,alpha=-1",
    "external:k=6,similarity=dot,temperature=2,lambda=0.4",
)


@pytest.mark.parametrize(
    ("backbone", "memory"),
    [
        ("transformer", (CACHE,)),
        ("transformer", (KNN,)),
        ("transformer", JOINT_THEN_KNN),
        ("lstm", (KNN, CACHE)),
        ("transformer-xl", (KNN, CACHE)),
    ],
)
def test_a_text_is_as_likely_as_an_evaluation_says(store, indexes, backbone, memory):
    stride = None if backbone != "transformer" else CONTEXT // 2
    want = array(evaluated(store, indexes[backbone], *memory, stride=stride), "scores.zarr", "logp")
    ids = array(indexes[backbone].find("tokens"), "tokens.zarr", "test/ids").astype(np.int64)
    reader = writer(store, indexes[backbone], *memory)
    for prompt in (0, 13):
        np.testing.assert_allclose(forced(reader, ids, prompt), want[prompt:], atol=2e-5)


@pytest.mark.parametrize(
    ("memory", "stride"),
    [
        (("local:theta=0.5,lambda=0.3",), 1),
        (("local+long:size=12,theta=0.5,reader=joint",), 3),
        (("local+long+external:size=12,k=5,similarity=scaled-dot,key=ffn-input,reader=joint",), 8),
    ],
)
def test_in_the_windows_that_are_asked_for(store, indexes, memory, stride):
    scores = evaluated(store, indexes["transformer"], *memory, stride=stride)
    ids = array(indexes["transformer"].find("tokens"), "tokens.zarr", "test/ids").astype(np.int64)
    found = forced(writer(store, indexes["transformer"], *memory, stride=stride), ids, 13)
    np.testing.assert_allclose(found, array(scores, "scores.zarr", "logp")[13:], atol=2e-5)


def test_neighbours_may_come_from_another_encoder_that_carries_state(store, models, indexes):
    memory = "external:k=6,temperature=2,lambda=0.4"
    scores = evaluated(
        store,
        models["transformer"],
        memory,
        references={"index": indexes["lstm"]},
        stride=CONTEXT // 2,
    )
    reader = writer(store, models["transformer"], memory, index=indexes["lstm"].reference)
    ids = array(models["transformer"].input("tokens"), "tokens.zarr", "test/ids").astype(np.int64)
    found = forced(reader, ids, 13)
    np.testing.assert_allclose(found, array(scores, "scores.zarr", "logp")[13:], atol=2e-5)


@pytest.mark.parametrize(
    ("encoder", "memory"), [("transformer", ()), ("lstm", ("long:size=9,theta=0.3,lambda=0.2",))]
)
def test_a_gate_reads_neighbours_that_are_searched_for(store, tokens, models, encoder, memory):
    index = built_index(store, models[encoder], {"key": "hidden"}, metric="ip")
    model = text_model(
        store, tokens, TRANSFORMER_XL | {"gate": "vector"},
        neighbors=found_neighbors(store, index, k=3), method="spalm", memory=SPALM, seed=4,
    )  # fmt: skip
    scores = evaluated(store, model, *memory)
    ids = array(tokens, "tokens.zarr", "test/ids").astype(np.int64)
    reader = writer(store, model, *memory)
    np.testing.assert_allclose(
        forced(reader, ids, 13), array(scores, "scores.zarr", "logp")[13:], atol=2e-5
    )
    train = array(tokens, "tokens.zarr", "train/ids")
    written = list(
        generate(reader, GenerationRequest(prompt=PROMPT, max_tokens=9, top_k=3, attribute=True))
    )
    assert any(one.attributed.entered for one in written)
    assert all(
        train[near.source.row] == one.id for one in written for near in one.attributed.entered
    )


def test_an_end_of_text_that_stops_is_left_out(store, models):
    reader = writer(store, models["lstm"], "none")
    whole = [
        written.id
        for written in generate(reader, GenerationRequest(prompt="", max_tokens=200, seed=0))
    ]
    stopped = [
        written.id
        for written in generate(
            reader, GenerationRequest(prompt="", max_tokens=200, seed=0, stop_at_eos=True)
        )
    ]
    assert reader.text.eos in whole
    assert stopped == whole[: whole.index(reader.text.eos)]


def test_attribution_adds_up_and_names_the_true_places(store, indexes):
    memory = "external:k=7,temperature=2,lambda=0.4", "long:size=11,theta=0.5,lambda=0.2"
    reader = writer(store, indexes["transformer"], *memory)
    prompt = reader.text.ids(PROMPT)
    written = list(
        generate(reader, GenerationRequest(prompt=PROMPT, max_tokens=25, attribute=True))
    )
    train = array(indexes["transformer"].find("tokens"), "tokens.zarr", "train/ids")
    session = TextSession(writer(store, indexes["transformer"], "none"))
    text = session.add(prompt)
    ids = prompt + [one.id for one in written]
    told = 0
    for number, one in enumerate(written):
        model = float(session.step()[0, one.id].exp())
        session.put([text], [one.id])
        assert one.probability == pytest.approx(
            0.6 * 0.8 * model + sum(one.attributed.memories), abs=1e-5
        )
        for context in one.attributed.contexts:
            place, corpus = context.source.row, train if context.back is None else ids
            assert corpus[place] == one.id
            assert context.back in (None, len(prompt) + number - place)
            told += 1
        assert sum(context.carried for context in one.attributed.contexts) <= one.probability + 1e-6
    assert told > 25


def test_without_memory_nothing_is_attributed(store, models):
    (one,) = generate(
        writer(store, models["lstm"], "none"),
        GenerationRequest(prompt="", max_tokens=1, attribute=True),
    )
    assert (one.attributed.memories, one.attributed.contexts) == ([], [])


def test_what_cannot_be_read_is_refused(store, models, indexes):
    with pytest.raises(UsageError, match=r"one number is needed for temperature, lambda.*--report"):
        writer(store, indexes["lstm"], "external:lambda=tune")
    with pytest.raises(UsageError, match="reads a datastore"):
        writer(store, models["lstm"], "external:lambda=0.3")
    with pytest.raises(UsageError, match="no source is called 'extern'"):
        writer(store, models["lstm"], "extern:lambda=0.3")
    report = evaluated(store, models["transformer"], "long:size=9,theta=0.3,lambda=0.2")
    with pytest.raises(ArtifactError, match=r"evaluated model/.*, not model/"):
        writer(store, models["lstm"], report=report.reference)


@pytest.mark.parametrize("base", ["transformer", "lstm"])
@pytest.mark.parametrize("student", ["transformer", "lstm", "transformer-xl"])
def test_a_decoder_reads_along_and_quotes_nothing(store, tokens, models, base, student):
    decoder = text_model(store, tokens, BACKBONES[student], seed=9)
    reading = f"decoder:model={decoder.reference},lambda=0.4,temperature=1.5"
    reader = writer(store, models[base], reading)
    wanted = GenerationRequest(prompt=PROMPT, max_tokens=11, seed=3, attribute=True)
    written = list(generate(reader, wanted))

    ids = [token.id for token in written]
    prompt = reader.text.ids(PROMPT)
    read = text_log_prob(reader, [*prompt, *ids]) - text_log_prob(reader, prompt)
    assert sum(np.log(token.probability) for token in written) == pytest.approx(read, abs=1e-3)
    for token in written:
        assert 0 < token.attributed.memories[0] <= min(0.4, token.probability) + 1e-6
        assert token.attributed.contexts == []
