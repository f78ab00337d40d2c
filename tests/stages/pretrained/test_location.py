"""What is read of a folder, and what never is."""

import json
from pathlib import Path

import pytest

from stages.errors import DataError
from stages.pretrained.location import Location, is_location, locate
from tests.stages.pretrained.tiny import saved


def test_a_folder_without_a_model_is_told(tmp_path):
    with pytest.raises(DataError, match=r"no config\.json"):
        locate(str(tmp_path)).weights()
    with pytest.raises(
        DataError,
        match=r"does not exist; expected a folder with a model, a \.gguf file, or hf:NAME",
    ):
        locate(str(tmp_path / "other"))
    (tmp_path / "novel.txt").write_text("It was a dark night.")
    with pytest.raises(DataError, match=r"novel\.txt is no model; expected a folder"):
        locate(str(tmp_path / "novel.txt"))


def test_pickles_are_named_and_not_read(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytest_model.bin").write_bytes(b"no pickle is opened")
    with pytest.raises(
        DataError, match=r"no weights as safetensors, but pytest_model.bin, a pickle"
    ):
        locate(str(tmp_path)).weights()


def test_weights_are_those_that_transformers_reads_and_all_of_them(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    for name in ("a.safetensors", "b.safetensors", "consolidated.safetensors"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(
        DataError, match=r"index\.json that names a\.safetensors: copy all files of the model there"
    ):
        locate(str(tmp_path)).weights()
    index = tmp_path / "model.safetensors.index.json"
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    no_names = (
        {"x": "a.safetensors", "y": "pytorch_model.bin"},
        {"x": "a", "y": 1},
        {"x": ["a.safetensors"]},
    )
    for wrong in ({}, {"x": "../a.safetensors"}, *no_names):
        index.write_text(json.dumps({"weight_map": wrong}))
        with pytest.raises(DataError):
            locate(str(tmp_path)).weights()
    index.write_text("{}")
    with pytest.raises(DataError):
        locate(str(tmp_path)).weights()
    index.write_text(
        json.dumps(
            {"weight_map": {"x": "b.safetensors", "y": "a.safetensors", "z": "b.safetensors"}}
        )
    )
    named = ["config.json", index.name, "a.safetensors", "b.safetensors"]
    assert [file.name for file in locate(str(tmp_path)).weights()] == named
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(
        DataError, match=r"lacks b\.safetensors, one of the 2 files that model\.safetensors\.index"
    ):
        locate(str(tmp_path)).weights()


def test_an_adapter_is_to_be_merged_first(tmp_path):
    pytest.importorskip("transformers")
    saved(tmp_path, "gpt2")
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(DataError, match=r"holds an adapter .*: load the model with it, merge both"):
        locate(str(tmp_path)).weights()


def test_a_gguf_file_in_a_folder_is_to_be_named_itself(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "x.gguf").write_bytes(b"")
    with pytest.raises(DataError, match=r"no weights as safetensors, but x\.gguf: name that file"):
        locate(str(tmp_path)).weights()


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_code_of_its_own_is_never_run(tmp_path, name):
    (tmp_path / name).write_text(json.dumps({"auto_map": {"AutoConfig": "evil.Config"}}))
    with pytest.raises(DataError, match="wants code of its own to be run"):
        locate(str(tmp_path))


@pytest.mark.parametrize("content", ["", "[1]", "[" * 100_000])
def test_settings_that_are_none_are_told(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(DataError, match=r"config\.json"):
        locate(str(tmp_path))


def test_the_files_of_a_model_are_its_settings_and_all_of_its_weights(tmp_path):
    pytest.importorskip("transformers")
    saved(tmp_path, "gpt2")
    assert [file.name for file in locate(str(tmp_path)).weights()] == [
        "config.json",
        "model.safetensors",
    ]
    assert is_location(str(tmp_path)) and is_location("hf:gpt2") and not is_location("tokens/abc")
    (tmp_path / "manifest.json").write_text("{}")
    assert not is_location(str(tmp_path))  # the folder of a tokens artifact is an artifact


def test_a_folder_is_no_reference_to_the_store_unless_it_is_called_as_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "model/mine", "tokens/abc"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "model/mine/tokenizer.json").write_text("{}")
    assert [is_location(name) for name in ("mine", "model/mine", "tokens/abc")] == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize("name", ["transformers_weights", "configuration_files"])
def test_settings_that_send_transformers_to_other_files_are_refused(
    tmp_path: Path, name: str
) -> None:
    value = "other.safetensors" if name == "transformers_weights" else ["config.4.0.json"]
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", name: value}))
    with pytest.raises(DataError, match=f"config.json sends transformers to other files .{name}"):
        locate(str(tmp_path))


def test_only_the_named_files_are_seen(tmp_path: Path) -> None:
    for name in ("config.json", "generation_config.json", "adapter_config.json"):
        (tmp_path / name).write_text("{}")
    with Location(str(tmp_path), tmp_path).isolated([tmp_path / "config.json"]) as folder:
        assert [file.name for file in Path(folder).iterdir()] == ["config.json"]
        assert Path(folder, "config.json").read_text() == "{}"
