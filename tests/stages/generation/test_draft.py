"""Text with drafts is the text without them, read in fewer steps."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.errors import UsageError
from stages.generation import GenerationRequest
from stages.generation.drafts import draft_exact
from stages.generation.generate import generate, open_writer
from stages.generation.sampling import draw, probabilities
from stages.generation.session import TextSession
from stages.index import BuildIndex
from stages.inspection.request import Request
from stages.search.config import IndexConfig
from stages.validation import validated
from tests.builders.evaluations import made
from tests.oracles import sampling as oracle
from tests.oracles.suffixes import contexts, shared
from tests.stages.small_store import ModelConfig, array
from tests.stages.small_text import LSTM, TRANSFORMER_XL, text_model, text_tokens

BACKBONES = {"transformer": ModelConfig().model, "lstm": LSTM, "transformer-xl": TRANSFORMER_XL}
EXACT = (
    "exact:matches=5,temperature=0.1,lambda=0.6",
    "exact-stream:matches=5,temperature=0.3,lambda=0.3",
)
PROMPT = "the cat sees the dog and runs a hen and the pig"


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    store = Store(tmp_path_factory.mktemp("store"))
    tokens = text_tokens(store, tmp_path_factory.mktemp("text"))
    made(store, BuildIndex(), IndexConfig(index="exact"), tokens)
    return tokens


@pytest.mark.parametrize(
    ("backbone", "memory"),
    [
        ("transformer", EXACT),
        ("transformer", ("local+long:size=9,theta=0.3,lambda=0.3",)),
        ("lstm", ("none",)),
        ("transformer-xl", EXACT),
    ],
)
def test_it_is_the_same_text_with_fewer_readings(
    tokens: Artifact, backbone: str, memory: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = text_model(tokens.store, tokens, BACKBONES[backbone])
    readings, read = [], TextSession.read
    request = Request(source=model.reference, memory=memory, device="cpu")
    writer = open_writer(request, tokens.store, "exact")
    monkeypatch.setattr(
        TextSession, "read", lambda *given: readings.append(len(given)) or read(*given)
    )
    for temperature, seed in ((0, 0), (0.7, 1), (1.0, 2)):
        wanted = {"prompt": PROMPT, "max_tokens": 20, "temperature": temperature, "seed": seed}
        alone = list(generate(writer, GenerationRequest(**wanted)))
        readings.clear()
        drafted = list(generate(writer, GenerationRequest(**wanted, draft="exact")))
        assert [one.id for one in drafted] == [one.id for one in alone]
        assert [one.probability for one in drafted] == pytest.approx(
            [one.probability for one in alone], rel=1e-4
        )
        right = sum(one.drafted for one in drafted)
        assert len(readings) == len(drafted) - right
        if memory == EXACT and temperature == 0:
            assert right > 3


def test_a_draft_is_what_followed_the_longest_match_and_no_longer_than_it(tokens: Artifact) -> None:
    model = text_model(tokens.store, tokens, ModelConfig().model)
    writer = open_writer(
        Request(source=model.reference, memory=("none",), device="cpu"), tokens.store, "exact"
    )
    session = TextSession(writer)
    text = session.add(writer.text.ids(PROMPT))
    ids, offsets = (
        array(tokens, "tokens.zarr", f"train/{name}") for name in ("ids", "doc_offsets")
    )
    asked, known = tuple(id + 2 for id in reversed(text.ids)), contexts(ids, offsets)
    lengths = [shared((*asked, 1), one) for one in known]
    places = [place for place, length in enumerate(lengths) if length == max(lengths)]
    ends = [offsets[offsets > place].min() for place in places]
    for most in (1, 3, 20):
        draft = draft_exact(writer, text, most)
        longest = min(most, 8, max(lengths))
        assert 0 < len(draft) <= longest
        pairs = zip(places, ends, strict=True)
        assert draft in [ids[place : min(place + longest, end)].tolist() for place, end in pairs]
    assert draft_exact(writer, text, 0) == [] and draft_exact(writer, session.add([]), 5) == []


def test_a_draft_ends_where_its_document_does(tokens: Artifact) -> None:
    model = text_model(tokens.store, tokens, ModelConfig().model)
    writer = open_writer(
        Request(source=model.reference, memory=("none",), device="cpu"), tokens.store, "exact"
    )
    ids, offsets = (
        array(tokens, "tokens.zarr", f"train/{name}") for name in ("ids", "doc_offsets")
    )
    assert len(offsets) > 2
    for begin, end in pairwise(
        offsets.tolist()
    ):  # all that is known of a document but its last two tokens
        text = TextSession(writer).add(ids[begin : end - 2].tolist())
        assert draft_exact(writer, text, 20) == ids[end - 2 : end].tolist()


def test_passages_are_those_of_tokens_that_are_read_one_by_one(tokens: Artifact) -> None:
    model = text_model(tokens.store, tokens, ModelConfig().model)
    request = Request(source=model.reference, memory=EXACT, device="cpu")
    writer = open_writer(request, tokens.store, "exact")
    wanted = {"prompt": PROMPT, "max_tokens": 12, "temperature": 0, "attribute": True}
    alone = list(generate(writer, GenerationRequest(**wanted)))
    drafted = list(generate(writer, GenerationRequest(**wanted, draft="exact")))
    assert any(token.drafted for token in drafted)
    for one, other in zip(alone, drafted, strict=True):
        assert one.attributed is not None and other.attributed is not None
        assert other.attributed.memories == pytest.approx(one.attributed.memories, abs=1e-6)
        places = [context.source.row for context in one.attributed.contexts]
        assert [context.source.row for context in other.attributed.contexts] == places


# Whole numbers of nats: equals are common, and no sum lies by rounding alone on the other side of
# top-p.
SCORES = st.lists(st.integers(-6, 0), min_size=1, max_size=12)


@given(
    SCORES,
    st.sampled_from([0.5, 1.0, 2.0]),
    st.none() | st.integers(1, 14),
    st.none() | st.sampled_from([0.1234, 0.5678, 0.9123, 0.99877]),
)
def test_temperature_top_k_and_top_p_agree_with_lists(scores, temperature, top_k, top_p):
    log_p = np.array(scores, np.float64) - np.log(np.exp(scores).sum())
    found = probabilities(log_p, temperature, top_k, top_p)
    want = oracle.probabilities(log_p.tolist(), temperature, top_k, top_p)
    assert set(np.flatnonzero(found)) == set(want)
    np.testing.assert_allclose([found[token] for token in want], list(want.values()), rtol=1e-12)


def test_temperature_zero_takes_the_likeliest_and_of_equals_the_first():
    assert probabilities(np.log([0.2, 0.4, 0.4]), temperature=0).tolist() == [0, 1, 0]


@pytest.mark.parametrize("temperature", [1e-320, 1e-9])
def test_a_temperature_near_zero_takes_the_likeliest(temperature):
    found = probabilities(np.log([0.2, 0.3, 0.5]), temperature, top_k=2)
    assert found.tolist() == [0, 0, 1]


def test_tokens_that_are_impossible_are_never_drawn():
    log_p = np.array([-np.inf, np.log(0.5), -np.inf, np.log(0.5), -np.inf])
    drawn = {
        draw(probabilities(log_p, temperature=3), np.random.default_rng(seed)) for seed in range(40)
    }
    assert drawn == {1, 3}


def test_tokens_are_drawn_as_often_as_they_are_likely():
    random = np.random.default_rng(0)
    counts = np.bincount(
        [draw(np.array([0.1, 0.0, 0.6, 0.3]), random) for _ in range(4000)], minlength=4
    )
    np.testing.assert_allclose(counts / 4000, [0.1, 0, 0.6, 0.3], atol=0.03)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"temperature": -1.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"top_k": 0}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"temperature": 0.0, "top_k": 3}, "--top-k and --top-p"),
    ],
)
def test_numbers_without_a_meaning_are_refused(settings: dict[str, float], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        validated(GenerationRequest, settings)
