"""Many prompts at once, and how texts of imported models begin and end."""

import json
from pathlib import Path

import pytest
import torch

from stages.errors import DataError, UsageError
from stages.generation import GenerationRequest
from stages.generation.chat import chat_ids
from stages.generation.generate import (
    ends_of,
    generate,
    generate_each,
    open_writer,
    prompt_ids,
)
from stages.generation.prompts import read_prompts
from stages.inspection.reading import MemoryReader
from stages.inspection.request import Request
from tests.stages.generation.imported import Imported, imported_index

transformers = pytest.importorskip("transformers")
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}[{{ message.role }}]{{ message.content }}\n"
    "{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)
PROMPTS = ["the cat", "a dog sees the hen and the pig", "", "the"]
MEMORIES = ("external:k=5,temperature=2,lambda=0.4", "long:size=9,theta=0.1,lambda=0.2")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Imported:
    return imported_index(tmp_path_factory.mktemp("llama"), bos=True, eos_token_id=[0, 7])


def opened(found: Imported, *memory: str) -> MemoryReader:
    request = Request(source=found.index.reference, memory=memory or ("none",), device="cpu")
    return open_writer(request, found.index.store)


@pytest.mark.parametrize("memory", [(), MEMORIES])
def test_a_text_does_not_depend_on_the_others(llama: Imported, memory: tuple[str, ...]) -> None:
    reader = opened(llama, *memory)
    settings = {"max_tokens": 30, "temperature": 0.7, "seed": 5, "stop_at_eos": True}
    alone = [
        [token.id for token in generate(reader, GenerationRequest(prompt=prompt, **settings))]
        for prompt in PROMPTS
    ]
    if not memory:
        assert len({len(ids) for ids in alone}) > 1  # some end before the others
    for size in (3,) if memory else (1, 3):
        texts: dict[int, list[int]] = {number: [] for number in range(len(PROMPTS))}
        ended = {}
        ids = [reader.text.prompt_ids(prompt) for prompt in PROMPTS]
        for step in generate_each(reader, ids, GenerationRequest(batch_size=size, **settings)):
            texts[step.number] += [token.id for token in step.tokens]
            ended[step.number] = step.ended
        assert list(texts.values()) == alone
        reasons = {
            number: "length" if len(ids) == 30 else "stop" for number, ids in enumerate(alone)
        }
        assert ended == reasons


def test_the_likeliest_text_is_that_of_transformers(llama: Imported) -> None:
    """Also its end: transformers stops at the same tokens, and gives them out."""
    reader = opened(llama)
    assert ends_of(reader) == {0, 7}
    for prompt in PROMPTS[:2]:
        ids = prompt_ids(reader, GenerationRequest(prompt=prompt))
        with torch.no_grad():
            theirs = llama.theirs.generate(
                torch.tensor([ids]), max_new_tokens=20, do_sample=False, pad_token_id=0
            )[0, len(ids) :].tolist()
        wanted = GenerationRequest(prompt=prompt, max_tokens=20, temperature=0)
        found = [token.id for token in generate(reader, wanted)]
        assert found == [token for token in theirs if token not in (0, 7)]
        longer = replace_setting(wanted, stop_at_eos=False)
        assert len(list(generate(reader, longer))) == 20


def replace_setting(wanted: GenerationRequest, **changes: object) -> GenerationRequest:
    return wanted.model_copy(update=changes)


def test_a_text_ends_before_a_stop_string(llama: Imported) -> None:
    reader = opened(llama)
    settings = {"max_tokens": 20, "temperature": 0, "stop_at_eos": False}
    ids = [prompt_ids(reader, GenerationRequest(prompt="the cat"))]
    whole = "".join(
        step.tokens[0].text + step.rest
        for step in generate_each(reader, ids, GenerationRequest(**settings))
    )
    stop = whole[len(whole) // 2 : len(whole) // 2 + 3]
    steps = list(generate_each(reader, ids, GenerationRequest(stop=(stop,), **settings)))
    text = "".join(token.text for step in steps for token in step.tokens) + steps[-1].rest
    assert text == whole[: whole.find(stop)]
    assert steps[-1].ended == "stop" and len(steps) < 20


def test_a_conversation_has_the_form_of_its_tokenizer(tmp_path: Path) -> None:
    folder = tmp_path / "llama"
    messages = [{"role": "user", "content": "the cat"}]
    from tests.stages.generation import imported as importing

    saved = importing.saved

    def with_template(*given: object, **settings: object) -> object:
        made = saved(*given, **settings)
        (folder / "chat_template.jinja").write_text(TEMPLATE)
        return made

    importing.saved = with_template
    try:
        reader = opened(imported_index(tmp_path, bos=True))
    finally:
        importing.saved = saved
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    theirs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    ids = tokenizer(theirs, add_special_tokens=False).input_ids
    assert chat_ids(reader, messages) == ids and ids[0] == 1
    assert prompt_ids(reader, GenerationRequest(prompt="the cat", chat=True)) == ids


def test_a_model_without_a_template_is_named(llama: Imported) -> None:
    with pytest.raises(UsageError, match=r"model/.* has no chat template"):
        prompt_ids(opened(llama), GenerationRequest(prompt="the cat", chat=True))


def test_prompts_are_strings_or_records(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    conversation = [{"role": "user", "content": "c"}]
    lines = ["a", {"prompt": "b", "id": 3}, {"messages": conversation}]
    file.write_text("\n".join(map(json.dumps, lines[:2])) + "\n\n")
    assert [(record.prompt, record.fields) for record in read_prompts(file, False)] == [
        ("a", {"prompt": "a"}),
        ("b", {"prompt": "b", "id": 3}),
    ]
    file.write_text("\n".join(map(json.dumps, lines)))
    assert read_prompts(file, True)[2].prompt == conversation


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no prompt"),
        (b'"a"\n{', "Line 2 of .* is no JSON"),
        (b"3", "neither a string nor an object"),
        (b'{"text": "a"}', 'has no "prompt"'),
        (b'{"messages": [{"role": "user", "content": "a"}]}', 'has no "prompt"'),
        (b'"\xff"', "cannot be read as UTF-8"),
        (b'"\\ud800"', "half of a character"),
    ],
)
def test_lines_that_are_no_prompts_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_prompts(file, False)


def test_a_missing_file_of_prompts_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.jsonl does not exist"):
        read_prompts(tmp_path / "nowhere.jsonl", False)


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="--stop is empty"):
        GenerationRequest(stop=("",))
