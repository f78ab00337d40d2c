from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from stages.artifacts.output import ShardOutput
from stages.encoding.carried_state import CarriedState, StateStore
from stages.encoding.encode import SplitReader
from stages.encoding.key_encoder import KeyEncoder, search_keys
from stages.encoding.window_settings import TokenRange
from stages.examples.cutting import WindowSettings
from stages.examples.examples import Corpus
from tests.stages.encoding.fake_model import AddingModel, FakeModel

EOS, TOTAL = 0, 90
IDS = np.random.default_rng(0).integers(1, 10, TOTAL)
GROUP = {"train/ids": IDS, "train/doc_offsets": np.array([0, 30, TOTAL])}
RANGES = [
    TokenRange(f"{start:02d}", start, stop)
    for start, stop in ((0, 31), (31, 52), (52, 73), (73, TOTAL))
]


def reader(**changed) -> SplitReader:
    settings = {
        "windows": WindowSettings(8, 8),
        "by_document": False,
        "device": torch.device("cpu"),
    }
    return SplitReader(Corpus(GROUP, EOS), precision="fp32", **settings | changed)


def encoder(model: FakeModel | None = None, dtype: str = "float32") -> KeyEncoder:
    return KeyEncoder(model or AddingModel(10), reader(), "hidden", dtype)


def one_pass(folder: Path) -> list[tuple[torch.Tensor, ...]]:
    """Encode the ranges one after the other, as a stage does, all states kept; returns that past
    each.
    """
    states, state, past = StateStore(folder, torch.device("cpu")), None, []
    for one in RANGES:
        state = encoder().encode("train", one.start, one.stop, state).state
        output = ShardOutput(folder)
        states.keep(output, one.key, CarriedState(one.stop, state))
        output.written(one.key)
        past.append(state)
    return past


@pytest.mark.parametrize("lost", [set(), {"31"}, {"52"}, {"31", "52"}, {"00", "31", "52"}])
def test_the_state_behind_ranges_is_that_of_the_first_pass_to_the_last_byte(tmp_path, lost):
    """Whatever shards left their states: what is read again is cut as it was then."""
    past = one_pass(tmp_path)
    for key in lost:
        (tmp_path / f"scratch/state-{key}.safetensors").unlink()
    again = encoder()
    state = again.state_behind(
        "train", reversed(RANGES[:3]), StateStore(tmp_path, torch.device("cpu"))
    )
    assert state["sum"].numpy().tobytes() == past[2]["sum"].numpy().tobytes()
    assert len(again.model.calls) == (0 if "52" not in lost else len(lost))


def test_another_cut_would_give_other_bytes(tmp_path):
    whole, past = encoder().state_past("train", 73)["sum"], one_pass(tmp_path)[2]["sum"]
    assert whole.numpy().tobytes() != past.numpy().tobytes()
    torch.testing.assert_close(whole, past)


def test_a_model_without_a_state_reads_nothing_again(tmp_path):
    plain = encoder(FakeModel(10))
    assert (
        plain.state_behind("train", reversed(RANGES), StateStore(tmp_path, torch.device("cpu")))
        is None
    )
    assert plain.state_past("train", 40) is None
    assert plain.model.calls == []


def test_keys_are_as_they_are_stored_and_searched_with_what_is_stored():
    encoded = encoder(dtype="float16").encode("train", 31, 52, None)
    exact = encoder().encode("train", 31, 52, None)
    assert encoded.keys.dtype == torch.float16 and exact.keys.dtype == torch.float32
    np.testing.assert_array_equal(encoded.tokens, IDS[31:52])
    np.testing.assert_array_equal(
        search_keys(encoded.keys), exact.keys.numpy().astype(np.float16).astype(np.float32)
    )


def test_the_encoder_of_a_datastore_reads_in_its_windows_across_documents():
    settings = {
        "context": 16,
        "stride": 4,
        "mem_length": None,
        "key": "ffn-input",
        "dtype": "float16",
    }
    model = FakeModel(10)
    one = KeyEncoder.of(SimpleNamespace(config=settings), reader(by_document=True), model)
    assert (one.reader.windows, one.reader.by_document) == (WindowSettings(16, 4), False)
    assert (one.model, one.key, one.dtype) == (model, "ffn-input", "float16")
    seen = -one.encode("train", 28, 36, None).keys[:, 1]
    np.testing.assert_array_equal(seen, [13, 14, 15, 16, 13, 14, 15, 16])


def test_shards_in_a_row_are_one_pass_each_going_on_from_the_one_before(tmp_path):
    """Also in a new process, which has what the shard before wrote; what no run needs any more is
    dropped.
    """
    past, states, keys = one_pass(tmp_path / "apart"), StateStore(tmp_path, torch.device("cpu")), []
    for number, one in enumerate(RANGES):
        if number == 2:
            states = StateStore(tmp_path, torch.device("cpu"))
        output = ShardOutput(tmp_path)
        encoded = encoder().encode_shard("train", one, reversed(RANGES[:number]), states, output)
        keys.append(encoded.keys)
        assert encoded.state["sum"].numpy().tobytes() == past[number]["sum"].numpy().tobytes()
        written = output.written(one.key)
        assert list(written.discarded) == (
            [f"scratch/state-{RANGES[number - 1].key}.safetensors"] if number else []
        )
    whole = encoder().encode("train", 0, TOTAL, None)
    torch.testing.assert_close(torch.cat(keys), whole.keys)
