"""memlm under lm-evaluation-harness: numbers are those of `evaluate` and `inspect`."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("lm_eval")

from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager

from memlm_cli import notebook
from memlm_cli.harness import MemlmLM, main
from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.errors import UsageError
from stages.inspection.reading import continuation_scores, text_log_prob
from tests.cli.conftest import Memlm
from tests.stages.pretrained.tiny import saved, tiny_tokenizer
from tests.stages.small_text import LSTM, built_index, story, text_model, text_tokens

CONTEXT = 12
READINGS = ["external:k=5,temperature=2,lambda=0.4", "long:size=7,theta=0.5,lambda=0.1"]
TASK = """
task: small_last_word
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
output_type: loglikelihood
test_split: test
doc_to_text: "{{{{text.split(' ')[:-1]|join(' ')}}}}"
doc_to_target: "{{{{' '+text.split(' ')[-1]}}}}"
metric_list: [{{metric: perplexity, aggregation: perplexity, higher_is_better: false}},
              {{metric: acc, aggregation: mean, higher_is_better: true}}]
"""
WRITE = """
task: small_writing
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
output_type: generate_until
test_split: test
doc_to_text: "{{{{text}}}}"
doc_to_target: "the"
generation_kwargs: {{until: ["cat"], max_gen_toks: 5}}
metric_list: [{{metric: exact_match}}]
"""


@pytest.fixture(scope="module", params=["transformer", "lstm"])
def index(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp(request.param)
    store = Store(folder / "store")
    model = None if request.param == "transformer" else LSTM
    return built_index(store, text_model(store, text_tokens(store, folder, "bpe"), model))


def opened(index: Artifact, **settings: Any) -> MemlmLM:
    return MemlmLM(index.reference, store=str(index.store.root), device="cpu", **settings)


def request(*arguments: Any) -> Any:
    return SimpleNamespace(args=arguments)


def told(memlm: Memlm, index: Artifact, text: str) -> list[dict[str, Any]]:
    """What `memlm inspect` tells of a text."""
    words = [word for reading in READINGS for word in ("--memory", reading)]
    root = ["--store", index.store.root, "--device", "cpu", "--json", "--contexts", 0]
    return json.loads(memlm("inspect", index.reference, *root, "--text", text, *words).out)[
        "tokens"
    ]


def test_a_continuation_is_scored_as_inspect_reads_the_whole(memlm: Memlm, index: Artifact) -> None:
    lm = opened(index, memory=READINGS)
    pairs = [("the cat", " sees the hen"), ("", "the cat runs"), ("a dog ", "and")]
    answers = lm.loglikelihood([request(*pair) for pair in pairs], disable_tqdm=True)
    for (context, continuation), (log_p, _) in zip(pairs, answers, strict=True):
        tokens = told(memlm, index, context + continuation)[len(context.split()) :]
        assert log_p == pytest.approx(sum(np.log(token["final"]) for token in tokens), abs=1e-5)


def test_greedy_is_what_generation_would_write(index: Artifact) -> None:
    lm = opened(index, memory=READINGS)
    (written,) = lm.generate_until(
        [request("the cat", {"until": [], "max_gen_toks": 3})], disable_tqdm=True
    )
    likeliest, other = lm.loglikelihood(
        [request("the cat", written), request("the cat", " pig pig pig")], True
    )
    assert likeliest[1] and not other[1]
    cut = written.split()[1]
    (short,) = lm.generate_until(
        [request("the cat", {"until": cut, "max_gen_toks": 3})], disable_tqdm=True
    )
    assert short == written[: written.find(cut)]


def test_a_rolling_text_is_read_in_windows_of_an_evaluation(memlm: Memlm, index: Artifact) -> None:
    text = " ".join(story(9, 5).split())
    lm = opened(index, memory=READINGS)
    (rolled,) = lm.loglikelihood_rolling([request(text)], disable_tqdm=True)
    assert rolled == pytest.approx(
        sum(np.log(token["final"]) for token in told(memlm, index, text)), abs=1e-3
    )
    assert len(text.split()) > 2 * lm._reader.loaded.range_reader.split_reader.windows.context


@pytest.mark.parametrize("length", [9, 12, 13, 29])
def test_rolling_windows_of_hf_are_those_of_hf(
    pretrained: tuple[Artifact, Path], length: int
) -> None:
    """Documents below one window of 12 tokens, of one, of one and a part, and of several."""
    from lm_eval.models.huggingface import HFLM

    model, folder = pretrained
    text = "The cat sat on the mat.\n" * 9
    theirs = HFLM(str(folder), device="cpu", dtype="float32", max_length=CONTEXT)
    text = theirs.tokenizer.decode(theirs.tok_encode(text)[:length])
    assert len(theirs.tok_encode(text)) == length
    (expected,) = theirs.loglikelihood_rolling([request(text)], disable_tqdm=True)
    (hf,) = opened(model, windows="hf").loglikelihood_rolling([request(text)], disable_tqdm=True)
    assert hf == pytest.approx(expected, rel=1e-6)
    (default,) = opened(model).loglikelihood_rolling([request(text)], disable_tqdm=True)
    same_windows = length <= CONTEXT
    assert (default == pytest.approx(expected, rel=1e-6)) == same_windows


END = "<|endoftext|>"
SENTENCES = "The cat sat on the mat.\n" * 9


@pytest.mark.parametrize(
    "pair",
    [
        ("", " cat"),
        ("The cat", " sat"),
        ("The cat ", "sat"),
        (END, " cat"),
        (END, END),
        (END + END, " cat"),
        ("", END + "The"),
        ("The cat", END),
        (SENTENCES, " cat"),
        (SENTENCES, "sat on"),
        ("\x00", "\x00"),
        ("é", "\u0301"),
    ],
)
def test_unusual_requests_are_scored_as_by_hf(
    pretrained: tuple[Artifact, Path], pair: tuple[str, str]
) -> None:
    """Special tokens alone, contexts longer than the window, half a character."""
    from lm_eval.models.huggingface import HFLM

    model, folder = pretrained
    theirs = HFLM(str(folder), device="cpu", dtype="float32", max_length=CONTEXT)
    ((expected, likeliest),) = theirs.loglikelihood([request(*pair)], disable_tqdm=True)
    ((log_p, best),) = opened(model).loglikelihood([request(*pair)], disable_tqdm=True)
    assert log_p == pytest.approx(expected, rel=1e-5)
    assert best == likeliest


@pytest.mark.parametrize("context", ["", "The cat", END, SENTENCES.strip()])
@pytest.mark.parametrize("memory", ["none", "long:size=100,theta=0.5,lambda=0.3"])
def test_an_empty_continuation_is_certain(
    pretrained: tuple[Artifact, Path], context: str, memory: str
) -> None:
    """Hf ends with an IndexError or an AssertionError."""
    lm = opened(pretrained[0], memory=memory)
    answers = lm.loglikelihood([request(context, ""), request("The cat", " sat")], True)
    assert answers[0] == (0.0, True)
    assert answers[1] == lm.loglikelihood([request("The cat", " sat")], True)[0]


@pytest.mark.parametrize(
    ("context", "inputs", "continuation"), [("The c", "The c", "at"), ("", END, END)]
)
def test_a_continuation_without_ids_of_its_own_is_scored_by_itself(
    pretrained: tuple[Artifact, Path], context: str, inputs: str, continuation: str
) -> None:
    """`cat` is one token, in which the context melts; a lone `<eos>` is scored behind `<eos>`."""
    import torch
    from transformers import AutoModelForCausalLM

    lm = opened(pretrained[0])
    ((log_p, _),) = lm.loglikelihood([request(context, continuation)], True)
    ids, targets = lm.tok_encode(inputs), lm.tok_encode(continuation)
    theirs = AutoModelForCausalLM.from_pretrained(pretrained[1], dtype=torch.float32).eval()
    with torch.no_grad():
        scores = theirs(torch.tensor([ids + targets[:-1]])).logits[0].log_softmax(-1)
    expected = sum(float(scores[len(ids) - 1 + i, id]) for i, id in enumerate(targets))
    assert log_p == pytest.approx(expected, rel=1e-5)


def test_a_continuation_longer_than_the_window_has_all_its_tokens(
    pretrained: tuple[Artifact, Path],
) -> None:
    lm = opened(pretrained[0])
    ((log_p, _),) = lm.loglikelihood([request("", SENTENCES)], True)
    assert len(lm.tok_encode(SENTENCES)) > 2 * CONTEXT
    (rolled,) = lm.loglikelihood_rolling([request(SENTENCES)], True)
    assert log_p == pytest.approx(rolled, rel=1e-5)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Artifact, Path]:
    """A GPT-2 with random weights, which reads windows of `CONTEXT` tokens; and its folder."""
    from transformers import PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("gpt2")
    saved(folder, "gpt2")
    end = "<|endoftext|>"
    PreTrainedTokenizerFast(
        tokenizer_object=tiny_tokenizer(), bos_token=end, eos_token=end
    ).save_pretrained(folder)
    text = folder / "text.txt"
    text.write_text("The cat sat on the mat.\nThe dog sat.\n" * 20)
    store = notebook.open(folder / "store")
    tokens = store.run("tokenize", train=text, tokenizer=str(folder))
    imported = store.run("import-model", str(folder), tokens.reference, segment_length=CONTEXT)
    return Store(folder / "store").get(imported.reference), folder


def test_windows_of_hf_need_a_model_that_reads_windows(index: Artifact) -> None:
    with pytest.raises(UsageError, match="neither evaluate nor hf"):
        opened(index, windows="disjoint")
    if index.find("encoder").config["model"]["backbone"] == "lstm":
        with pytest.raises(UsageError, match="carries its state"):
            opened(index, windows="hf")
    else:
        with pytest.raises(UsageError, match="stride"):
            opened(index, windows="hf", stride=2)


def test_a_window_of_hf_is_a_stream_with_its_memories(
    pretrained: tuple[Artifact, Path],
) -> None:
    """A cache sees the tokens of its own window: the last window's context, too."""
    lm = opened(pretrained[0], windows="hf", memory="long:size=100,theta=0.5,lambda=0.3")
    text = "The cat sat on the mat.\nThe dog sat on the cat"
    ids = lm.tok_encode(text)
    left = len(ids) - CONTEXT
    assert 0 < left < CONTEXT
    (rolled,) = lm.loglikelihood_rolling([request(text)], disable_tqdm=True)
    first, _ = continuation_scores(lm._reader.loaded, [], ids[:CONTEXT])
    last, _ = continuation_scores(lm._reader.loaded, ids[left - 1 : CONTEXT], ids[CONTEXT:])
    assert rolled == pytest.approx(first.sum() + last.sum(), abs=1e-6)


def test_long_texts_are_read_in_blocks(index: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = opened(index, memory=READINGS)._reader.loaded
    ids = reader.text.ids(" ".join(story(20, 6).split()))
    whole = text_log_prob(reader, ids)
    monkeypatch.setattr("stages.inspection.reading.BLOCK_TOKENS", 7)
    assert text_log_prob(reader, ids) == pytest.approx(whole, abs=1e-4)


def test_a_long_context_is_one_window_of_the_last_inputs(index: Artifact) -> None:
    reader = opened(index, memory="none")._reader.loaded
    ids = reader.text.ids(" ".join(story(9, 7).split()))
    log_p, _ = continuation_scores(reader, ids[:-2], ids[-2:])
    inputs = ids[:-1]
    if not reader.range_reader.carries_state:
        inputs = inputs[-reader.range_reader.split_reader.windows.context :]
    else:
        inputs = [reader.text.eos, *inputs]
    assert log_p == pytest.approx(direct(reader.range_reader.model, inputs, ids[-2:]), abs=1e-5)
    assert len(continuation_scores(reader, ids[:3], ids[3:])[0]) == len(ids) - 3


def direct(model: Any, inputs: list[int], targets: list[int]) -> list[float]:
    import torch

    with torch.no_grad():
        hidden = model.encode(torch.tensor([inputs])).hidden[0, -len(targets) :]
        log_p = model.log_probs(hidden)
    return [float(log_p[row, target]) for row, target in enumerate(targets)]


def test_the_harness_runs_tasks_and_agrees_with_evaluate(
    index: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last word of each passage, with kNN-LM: perplexity a word and accuracy."""
    passages = [" ".join(story(2, seed).split()) for seed in range(20, 26)]
    file, tasks = tmp_path / "test.jsonl", tmp_path / "tasks"
    file.write_text("".join(json.dumps({"text": passage}) + "\n" for passage in passages))
    tasks.mkdir()
    (tasks / "last.yaml").write_text(TASK.format(file=file))
    (tasks / "write.yaml").write_text(WRITE.format(file=file))
    store = notebook.open(index.store.root)
    corpus = store.run("tokenize", test=file, tokenizer=index.find("corpus").reference)
    asked = {"tokens": corpus, "score": "last-word", "reset": "document", "device": "cpu"}
    if index.find("encoder").config["model"]["backbone"] == "transformer":
        asked["context"] = (
            16  # the longest passage: a window that ends inside of one would know less
        )
    report = store.run("evaluate", index.reference, memory=READINGS[0], **asked)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    results = simple_evaluate(
        model="memlm",
        model_args=f"ref={index.reference},report={report.reference},store={index.store.root}",
        device="cpu",
        tasks=["small_last_word", "small_writing"],
        task_manager=TaskManager(include_path=str(tasks), include_defaults=False),
        bootstrap_iters=0,
    )
    last = results["results"]["small_last_word"]
    rows = report.metrics["rows"]
    nll = rows[1]["nll"] * report.metrics["tokens"] / len(passages)
    assert last["perplexity,none"] == pytest.approx(np.exp(nll), rel=1e-4)
    assert last["acc,none"] == pytest.approx(rows[1]["accuracy"])
    assert results["config"]["memlm"]["memories"][0]["k"] == 5
    assert "exact_match,none" in results["results"]["small_writing"]


def test_no_memory_is_the_model_alone(index: Artifact) -> None:
    """The harness hands `memory=none` on as None."""
    alone, default = opened(index, memory=None), opened(index)
    assert alone._reader.memories == [] and default._reader.memories[0]["sources"] == ["external"]


def test_words_whose_eos_is_the_newline_are_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    model = text_model(store, text_tokens(store, tmp_path))
    with pytest.raises(UsageError, match="--tokenizer bpe"):
        MemlmLM(model.reference, store=str(store.root), device="cpu")


def test_options_reach_what_reads(index: Artifact) -> None:
    settings = {"until": [], "max_gen_toks": 2, "do_sample": True, "temperature": 1.0, "top_k": 0}
    assert opened(index, memory="none").generate_until(
        [request("the cat", settings)], disable_tqdm=True
    )
    with pytest.raises(UsageError, match="CUDA_VISIBLE_DEVICES"):
        MemlmLM(index.reference, store=str(index.store.root), device="cuda:1")
    MemlmLM(index.reference, store=str(index.store.root), device="cpu:0")
    with pytest.raises(UsageError, match="long"):
        opened(index, memory="none", long_length=3)


def test_the_device_that_the_harness_says_unasked_is_any_that_is_there(index: Artifact) -> None:
    from lm_eval.config.evaluate_config import EvaluatorConfig

    unasked = EvaluatorConfig().device
    assert unasked == "cuda:0"
    MemlmLM(index.reference, store=str(index.store.root), device=unasked)


def test_what_it_cannot_do_is_bad_usage(
    index: Artifact, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError):
        opened(index, batch_size=8)
    with pytest.raises(UsageError, match="seed"):
        opened(index, sead=1)
    monkeypatch.setattr(
        "lm_eval.__main__.cli_evaluate", lambda: MemlmLM("model/none", store=str(index.store.root))
    )
    assert main() == 4
    assert "model/none" in capsys.readouterr().err
