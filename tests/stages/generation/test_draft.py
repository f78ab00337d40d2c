"""Text with drafts is the text without them, read in fewer steps."""

from itertools import pairwise

import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.generation.generate import GenerationRequest, draft_exact, generate, open_writer
from stages.generation.stream import Stream
from stages.index import BuildIndex
from stages.inspection.request import Request
from stages.search.config import IndexConfig
from tests.oracles.suffixes import contexts, shared
from tests.stages.small_store import ModelConfig, array
from tests.stages.small_text import LSTM, TRANSFORMER_XL, text_model, text_tokens
from tests.stages.test_evaluate import made

BACKBONES = {"transformer": ModelConfig().model, "lstm": LSTM, "transformer-xl": TRANSFORMER_XL}
EXACT = ("exact:matches=5,temperature=0.1,lambda=0.6", "exact-stream:matches=5,temperature=0.3,lambda=0.3")
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
    model, readings, read_range = text_model(tokens.store, tokens, BACKBONES[backbone]), [], Stream.read_range
    request = Request(source=model.reference, memory=memory, device="cpu")
    writer = open_writer(request, tokens.store, "exact")
    monkeypatch.setattr(Stream, "read_range", lambda *given: readings.append(len(given)) or read_range(*given))
    for temperature, seed in ((0, 0), (0.7, 1), (1.0, 2)):
        wanted = {"prompt": PROMPT, "max_tokens": 20, "temperature": temperature, "seed": seed}
        alone = list(generate(writer, GenerationRequest(**wanted)))
        readings.clear()
        drafted = list(generate(writer, GenerationRequest(**wanted, draft="exact")))
        assert [one.id for one in drafted] == [one.id for one in alone]
        assert [one.probability for one in drafted] == pytest.approx([one.probability for one in alone], rel=1e-4)
        right = sum(one.drafted for one in drafted)
        assert len(readings) == len(drafted) - right
        if memory == EXACT and temperature == 0:
            assert right > 3


def test_a_draft_is_what_followed_the_longest_match(tokens: Artifact) -> None:
    model = text_model(tokens.store, tokens, ModelConfig().model)
    writer = open_writer(Request(source=model.reference, memory=("none",), device="cpu"), tokens.store, "exact")
    stream = Stream(writer, writer.text.ids(PROMPT))
    ids, offsets = (array(tokens, "tokens.zarr", f"train/{name}") for name in ("ids", "doc_offsets"))
    asked, known = tuple(id + 2 for id in reversed(stream.tokens)), contexts(ids, offsets)
    lengths = [shared((*asked, 1), one) for one in known]
    places = [place for place, length in enumerate(lengths) if length == max(lengths)]
    ends = [offsets[offsets > place].min() for place in places]
    for most in (1, 3, 20):
        draft = draft_exact(stream, most)
        assert 0 < len(draft) <= min(most, 8)
        pairs = zip(places, ends, strict=True)
        assert draft in [ids[place : min(place + min(most, 8), end)].tolist() for place, end in pairs]
    assert draft_exact(stream, 0) == [] and draft_exact(Stream(writer, []), 5) == []


def test_a_draft_ends_where_its_document_does(tokens: Artifact) -> None:
    model = text_model(tokens.store, tokens, ModelConfig().model)
    writer = open_writer(Request(source=model.reference, memory=("none",), device="cpu"), tokens.store, "exact")
    ids, offsets = (array(tokens, "tokens.zarr", f"train/{name}") for name in ("ids", "doc_offsets"))
    assert len(offsets) > 2
    for begin, end in pairwise(offsets.tolist()):  # all that is known of a document but its last two tokens
        assert draft_exact(Stream(writer, ids[begin : end - 2].tolist()), 20) == ids[end - 2 : end].tolist()


def test_it_names_no_passages() -> None:
    with pytest.raises(ValueError, match="leave --draft out"):
        GenerationRequest(draft="exact", attribute=True)
