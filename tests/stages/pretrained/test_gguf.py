"""GGUF files: the model and the tokenizer in them, and what is said of one that is damaged."""

from pathlib import Path

import pytest
import torch

from stages.errors import DataError
from stages.pretrained.location import locate
from stages.pretrained.model import describe
from stages.pretrained.tokenizer import read_tokenizer, same_tokenizer
from tests.stages.pretrained.tiny import TEXT, V, imported, saved_gguf, tiny_tokenizer

pytest.importorskip("transformers")
gguf = pytest.importorskip("gguf")


@torch.no_grad()
def test_log_probabilities_are_those_of_the_model_that_was_written(tmp_path):
    theirs = saved_gguf(tmp_path / "tiny.gguf")
    tokens = torch.randint(V, (3, 30), generator=torch.Generator().manual_seed(1))
    ours = imported(tmp_path / "tiny.gguf")
    wanted = theirs(tokens).logits.log_softmax(-1)
    torch.testing.assert_close(
        ours.log_probs(ours.encode(tokens).hidden), wanted, rtol=1e-4, atol=2e-5
    )
    assert ours.config.reads.longest_context == 40 and ours.config.last_ffn == "layers.1.mlp"


@pytest.mark.parametrize("bos", [False, True])
def test_its_tokenizer_gives_the_ids_that_were_written(tmp_path, bos):
    saved_gguf(tmp_path / "tiny.gguf", bos)
    location = locate(str(tmp_path / "tiny.gguf"))
    tokenizer = read_tokenizer(location, None)
    wanted = [id for text in TEXT for id in tiny_tokenizer().encode(text).ids]
    assert [id for text in TEXT for id in tokenizer.encode_texts([text])[0].tolist()] == wanted
    assert tokenizer.special.eos == 0 and tokenizer.special.prefix == (1 if bos else None)
    tokenizer.save(tmp_path / "tokenizer.json")
    assert same_tokenizer(location, tokenizer.special, tmp_path / "tokenizer.json")


@pytest.mark.parametrize("kept", [0.999, 0.9, 0.5, 0.01])
@pytest.mark.parametrize(
    "read", [lambda file: describe(file, None), lambda file: read_tokenizer(file, None)]
)
def test_a_file_cut_short_is_said_to_be_one(tmp_path, kept, read):
    file = tmp_path / "tiny.gguf"
    saved_gguf(file)
    content = file.read_bytes()
    file.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(DataError) as raised:
        read(locate(str(file)))
    left = f"{int(kept * len(content)):,}"
    assert str(raised.value) == (
        f"{file} is cut short or damaged: its {left} bytes are not what it says that it holds. Download or copy it "
        "again, and compare its size with that of the original."
    )


@pytest.mark.parametrize("count", [1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
@pytest.mark.parametrize("place", [8, 16, 24, None])
def test_counts_that_the_file_cannot_hold_are_refused_before_they_are_counted(
    tmp_path, place, count
):
    """Of weights, of settings, of the letters of a name, and of the texts of a list."""
    file = tmp_path / "tiny.gguf"
    saved_gguf(file)
    content = file.read_bytes()
    if place is None:
        place = content.index(b"tokenizer.ggml.tokens") + len(b"tokenizer.ggml.tokens") + 8
    file.write_bytes(content[:place] + count.to_bytes(8, "little") + content[place + 8 :])
    for read in (
        lambda: describe(locate(str(file)), None),
        lambda: read_tokenizer(locate(str(file)), None),
    ):
        with pytest.raises(DataError, match="cut short or damaged"):
            read()


@pytest.mark.parametrize(
    "read", [lambda file: describe(file, None), lambda file: read_tokenizer(file, None)]
)
def test_a_list_of_numbers_that_the_file_cannot_hold_is_refused_before_it_is_read(
    tmp_path, monkeypatch, read
):
    """Behind the file, the reader of gguf would go on with numbers of no bytes."""
    file, name = tmp_path / "tiny.gguf", b"tokenizer.ggml.token_type"
    saved_gguf(file)
    content = file.read_bytes()
    kind = content.index(name) + len(name) + 4  # behind the type of the setting, an array
    numbers = gguf.GGUFValueType.UINT8.to_bytes(4, "little") + (1 << 62).to_bytes(8, "little")
    file.write_bytes(content[:kind] + numbers + content[kind + len(numbers) :])
    monkeypatch.setattr(gguf, "GGUFReader", lambda *_: pytest.fail("it is read"))
    with pytest.raises(DataError, match="cut short or damaged"):
        read(locate(str(file)))


@pytest.mark.parametrize("content", [b"", b"GG", b"no GGUF file, but text"])
def test_a_file_of_another_kind_is_told(tmp_path, content):
    (tmp_path / "tiny.gguf").write_bytes(content)
    with pytest.raises(
        DataError, match=r"tiny\.gguf is no GGUF file: it does not begin with the letters GGUF\."
    ):
        describe(locate(str(tmp_path / "tiny.gguf")), None)


def test_a_file_of_an_unknown_architecture_is_not_called_damaged(tmp_path):
    saved_gguf(tmp_path / "tiny.gguf")
    content = (tmp_path / "tiny.gguf").read_bytes()
    (tmp_path / "tiny.gguf").write_bytes(content.replace(b"llama", b"lemma"))
    with pytest.raises(DataError, match=r"cannot be read: .*lemma.* is not supported"):
        describe(locate(str(tmp_path / "tiny.gguf")), None)


def fields_of(file: Path) -> list[tuple[int, int]]:
    """Places and sizes of numbers in the header: lengths, types, counts, dimensions, offsets."""
    reader = gguf.GGUFReader(file)
    parts = [part for field in reader.fields.values() for part in field.parts[:8]]
    parts += [part for tensor in reader.tensors[:2] for part in tensor.field.parts]
    numbers = [part for part in parts if part.dtype != "uint8"]
    beginning = reader.data.ctypes.data
    return [(part.ctypes.data - beginning, part.itemsize) for part in numbers]


def test_a_number_of_the_header_that_is_changed_is_refused_or_read(tmp_path) -> None:
    """A sample of all numbers, each huge."""
    file = tmp_path / "tiny.gguf"
    saved_gguf(file)
    content = file.read_bytes()
    changed = tmp_path / "changed.gguf"
    refused = 0
    for place, size in fields_of(file)[::4]:
        huge = (1 << 8 * size) - 1
        changed.write_bytes(
            content[:place] + huge.to_bytes(size, "little") + content[place + size :]
        )
        try:
            describe(locate(str(changed)), None)
            read_tokenizer(locate(str(changed)), None)
        except DataError:
            refused += 1
    assert refused > 10


def test_a_size_that_the_file_cannot_hold_is_refused_before_the_model_is_built(tmp_path) -> None:
    file, name = tmp_path / "tiny.gguf", b"llama.feed_forward_length"
    saved_gguf(file)
    content = file.read_bytes()
    place = content.index(name) + len(name) + 4
    file.write_bytes(content[:place] + (1 << 31).to_bytes(4, "little") + content[place + 4 :])
    with pytest.raises(DataError, match="its settings have intermediate_size = 2,147,483,648"):
        describe(locate(str(file)), None)
