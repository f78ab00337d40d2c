"""What is asked of an imported causal model, with memories: all from what transformers computes of
its windows.
"""

import json
import math
from typing import Any, NamedTuple

import pytest
import torch

from memlm_cli import notebook
from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.evaluate import Evaluate, EvaluateConfig
from stages.import_model import ImportConfig, ImportModel
from stages.tokenize import Tokenize, TokenizeConfig
from tests.cli.conftest import Memlm
from tests.oracles import neural_cache as oracle
from tests.stages.pretrained.tiny import saved
from tests.stages.small_text import built_index, story

transformers = pytest.importorskip("transformers")
CONTEXT = 16
TEXT = " ".join(story(2, 7).split())
KNN = "external:k=5,temperature=2,lambda=0.4"
CACHE = "long:size=7,theta=0.05,lambda=0.3"


class Imported(NamedTuple):
    """An index of an imported model, and the model and tokenizer as transformers has them."""

    index: Artifact
    model: Any
    tokenizer: Any


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Imported:
    folder = tmp_path_factory.mktemp("imported")
    theirs = saved(folder / "llama", "llama", bos=True)
    store, spec = Store(folder / "store"), str(folder / "llama")
    files = {}
    for seed, (split, lines) in enumerate({"train": 27, "valid": 6, "test": 6}.items()):
        (folder / f"{split}.txt").write_text(story(lines, seed))
        files[split] = [str(folder / f"{split}.txt")]
    tokens = make(
        Tokenize(),
        TokenizeConfig(tokenizer="given"),
        {"tokenizer": spec, **files},
        store,
        Execution(),
    )
    references = {"source": tokens.artifact.reference, "checkpoint": spec}
    model = make(
        ImportModel(), ImportConfig(segment_length=CONTEXT), references, store, Execution()
    )
    return Imported(
        built_index(store, model.artifact), theirs, transformers.AutoTokenizer.from_pretrained(spec)
    )


@torch.no_grad()
def computed(imported: Imported, ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Of windows behind the token that the model expects there: scores [T, V] and hidden states [T,
    d] of inputs.

    The first input is that token itself, so that the first window is what transformers' tokenizer
    makes of a text.
    """
    bos = imported.tokenizer.bos_token_id
    inputs, scores, hidden = [bos, *ids[:-1]], [], []
    for start in range(0, len(inputs), CONTEXT):
        before = [bos] if start else []
        window = torch.tensor([[*before, *inputs[start : start + CONTEXT]]])
        found = imported.model(window, output_hidden_states=True)
        scores.append(found.logits[0, len(before) :])
        hidden.append(found.hidden_states[-1][0, len(before) :])
    return torch.cat(scores).double(), torch.cat(hidden).double()


def log_probs(imported: Imported, ids: list[int]) -> list[float]:
    """Of each token."""
    scores = computed(imported, ids)[0].log_softmax(-1)
    return scores[range(len(ids)), ids].tolist()


def text_ids(imported: Imported, text: str = TEXT) -> list[int]:
    ids: list[int] = imported.tokenizer(text, add_special_tokens=False).input_ids
    return ids


@pytest.mark.parametrize("local", [False, True])
def test_caches_read_the_hidden_states_of_transformers(imported: Imported, local: bool) -> None:
    memory = "local+long:size=7,reader=joint,temperature=20" if local else CACHE
    config = EvaluateConfig(memory=(memory,), save_token_scores=True)
    references = {"source": imported.index.find("encoder").reference}
    report = make(
        Evaluate(), config, references, imported.index.store, Execution(device="cpu")
    ).artifact
    ids = imported.index.find("corpus").zarr("tokens.zarr")["test/ids"][:].tolist()
    scores, hidden = computed(imported, ids)
    wanted = []
    for t, token in enumerate(ids):
        window = t // CONTEXT * CONTEXT if local else None
        read = oracle.positions_read(t, size=7, window_start=window)
        entries = oracle.memory(hidden.tolist(), ids, t, read, "dot", 1 / 20 if local else 0.05)
        if local:
            p = oracle.joint(scores[t].tolist(), entries, 0.0)
        else:
            p = oracle.interpolated(scores[t].softmax(-1).tolist(), entries, 0.3)
        wanted.append(math.log(p[token]))
    found = report.zarr("scores.zarr")["logp"][:]
    torch.testing.assert_close(
        torch.from_numpy(found).double(), torch.tensor(wanted).double(), rtol=1e-3, atol=1e-3
    )


def test_inspect_tells_the_scores_of_transformers(memlm: Memlm, imported: Imported) -> None:
    root = ["--store", imported.index.store.root, "--device", "cpu", "--text", TEXT, "--json"]
    told = json.loads(memlm("inspect", imported.index.reference, *root, "--memory", "none").out)[
        "tokens"
    ]
    ids = text_ids(imported)
    assert [token["id"] for token in told] == ids
    assert [math.log(token["final"]) for token in told] == pytest.approx(
        log_probs(imported, ids), abs=1e-3
    )
    read = memlm(
        "inspect",
        imported.index.reference,
        *root,
        "--memory",
        KNN,
        "--memory",
        CACHE,
        "--contexts",
        2,
    )
    assert any(token["contexts"] for token in json.loads(read.out)["tokens"])


def test_generate_writes_what_transformers_finds_likeliest(
    memlm: Memlm, imported: Imported
) -> None:
    root = [
        "--store",
        imported.index.store.root,
        "--device",
        "cpu",
        "--max-tokens",
        4,
        "--prompt",
        "the cat",
    ]
    ids = imported.tokenizer("the cat").input_ids
    assert ids == [imported.tokenizer.bos_token_id, *text_ids(imported, "the cat")]
    for _ in range(4):
        ids.append(int(imported.model(torch.tensor([ids])).logits[0, -1].argmax()))
    told = memlm(
        "generate",
        imported.index.reference,
        *root,
        "--memory",
        "none",
        "--temperature",
        0,
        "--json",
    )
    assert [token["id"] for token in json.loads(told.out)["tokens"]] == ids[-4:]
    read = memlm(
        "generate",
        imported.index.reference,
        *root,
        "--memory",
        KNN,
        "--memory",
        CACHE,
        "--attribute",
    )
    assert read.code == 0 and read.out


def test_a_notebook_scores_and_writes_with_memories(memlm: Memlm, imported: Imported) -> None:
    store, ids = notebook.open(imported.index.store.root), text_ids(imported)
    alone = store.read(imported.index.reference, memory="none", device="cpu").score(TEXT)
    assert alone["id"].tolist() == ids
    assert alone["logp"].tolist() == pytest.approx(log_probs(imported, ids), abs=1e-3)
    reader = store.read(imported.index.reference, memory=[KNN, CACHE], device="cpu")
    scores = reader.score(TEXT)
    assert (
        scores["logp_lm"] == pytest.approx(alone["logp"], abs=1e-5) and (scores["gain"] != 0).any()
    )
    root = [
        "--store",
        imported.index.store.root,
        "--device",
        "cpu",
        "--memory",
        KNN,
        "--memory",
        CACHE,
    ]
    told = memlm(
        "generate", imported.index.reference, *root, "--max-tokens", 5, "--prompt", "the cat"
    ).out
    assert reader.generate("the cat", max_tokens=5) + "\n" == told


def test_the_harness_scores_what_transformers_scores(imported: Imported) -> None:
    pytest.importorskip("lm_eval")
    from types import SimpleNamespace

    from memlm_cli.harness import MemlmLM

    def request(*arguments: Any) -> Any:
        return SimpleNamespace(args=arguments)

    where = {"store": str(imported.index.store.root), "device": "cpu"}
    lm = MemlmLM(imported.index.reference, memory=None, **where)
    context, continuation = "the cat", " sees the dog"
    ids, behind = text_ids(imported, context + continuation), text_ids(imported, context)
    assert ids[: len(behind)] == behind
    ((log_p, _),) = lm.loglikelihood([request(context, continuation)], disable_tqdm=True)
    assert log_p == pytest.approx(sum(log_probs(imported, ids)[len(behind) :]), abs=1e-3)
    (rolled,) = lm.loglikelihood_rolling([request(TEXT)], disable_tqdm=True)
    assert rolled == pytest.approx(sum(log_probs(imported, text_ids(imported))), abs=1e-2)
    with_memories = MemlmLM(imported.index.reference, memory=[KNN, CACHE], **where)
    ((other, _),) = with_memories.loglikelihood([request(context, continuation)], disable_tqdm=True)
    assert other != pytest.approx(log_p, abs=1e-3)
    assert with_memories.generate_until(
        [request(context, {"until": [], "max_gen_toks": 3})], disable_tqdm=True
    )
