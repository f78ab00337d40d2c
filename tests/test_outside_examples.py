"""The examples of the documentation run unchanged, and memory helps in each of them."""

import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import torch

from stages.models.layers import STREAM_ATTENTION
from tests.notebooks import TOPLEVEL

EXAMPLES = Path(__file__).parent.parent / "docs" / "examples"
SENTENCE = "the {0} of the {1} sees the {1} of the {0} and then the {0} sleeps .\n"
NAMES = ("cat", "dog", "owl", "fox", "hen", "bee")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Run on one thread: tiny products are slower on several."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def example(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Load an example as a module, with `import memlm` as in an installation."""
    monkeypatch.syspath_prepend(str(TOPLEVEL))
    monkeypatch.setattr(STREAM_ATTENTION, "targets", dict(STREAM_ATTENTION.targets))
    spec = spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def test_each_fits_on_a_few_pages() -> None:
    lines = {file.name: len(file.read_text("utf-8").splitlines()) for file in EXAMPLES.glob("*.py")}
    assert len(lines) >= 3 and max(lines.values()) <= 180, lines


def stories(seed: int, count: int) -> str:
    picked = torch.randint(len(NAMES), (count, 2), generator=torch.Generator().manual_seed(seed))
    return "".join(SENTENCE.format(*(NAMES[number] for number in pair)) for pair in picked.tolist())


def tiny_model(folder: Path, text: str) -> None:
    """Save a GPT-2 with random weights, and a tokenizer of the words of a text."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    words = sorted(set(text.split()))
    tokenizer = Tokenizer(
        models.WordLevel({word: number for number, word in enumerate(words)}, unk_token=".")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"n_layer": 1, "n_embd": 16, "n_head": 2, "n_positions": 256}
    GPT2LMHeadModel(GPT2Config(vocab_size=len(words), **sizes)).save_pretrained(folder)


def test_knn_lm_looks_up_what_a_model_has_seen_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("transformers")
    texts = {"train": stories(0, 60), "valid": stories(1, 20), "test": stories(2, 20)}
    files = {split: tmp_path / f"{split}.txt" for split in texts}
    for split, file in files.items():
        file.write_text(texts[split])
    tiny_model(tmp_path / "model", texts["train"])
    alone, with_memory = example("knn_lm", monkeypatch).main(
        str(tmp_path / "model"), *map(str, files.values())
    )
    assert with_memory < 0.6 * alone
    assert f"with memory {with_memory:.2f}" in capsys.readouterr().out


def test_a_neural_cache_knows_recent_words(monkeypatch: pytest.MonkeyPatch) -> None:
    module = example("neural_cache", monkeypatch)
    drawn = torch.randint(400, (300,), generator=torch.Generator().manual_seed(0)).tolist()
    topics = [
        f"the word{name} is a word{name} and no word{name + 1} at all . " * 3 for name in drawn
    ]
    alone, with_memory = module.main("".join(topics), steps=30)
    assert with_memory < 0.8 * alone


def test_a_custom_layer_remembers_earlier_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    module = example("memory_layer", monkeypatch)
    alone, with_memory = module.main(steps=150)
    assert with_memory < 0.85 * alone
