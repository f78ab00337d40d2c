"""What no distilled memory can be made of, or read with: exit codes, and the way out that is told."""

import json
from collections.abc import Mapping

import pytest

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from tests.builders.distilled import trained
from tests.cli.conftest import Memlm
from tests.stages.small_text import built_index, found_neighbors, text_model, text_tokens

TRAIN = ("train", "--precision", "fp32", "--steps", 1, "--batch-tokens", 16)
DECODER = ("--method", "memory-decoder", "--segment-length", 8)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Artifact]:
    """Artifacts by name; some of them fit no distilled memory."""
    folder = tmp_path_factory.mktemp("text")
    store = Store(folder / "store")
    tokens = text_tokens(store, folder)
    base = trained(store, tokens, method="lm")
    index = built_index(store, base)
    kept = built_index(store, base, index="ivf-flat", lists=2, keep=0.5)
    of_test = built_index(store, base, {"split": "test"})
    chosen = {"k": 9, "queries": ("train",), "exclude": "document"}
    neighbors = found_neighbors(store, index, **chosen)
    mlp = trained(store, neighbors, base, method="mlp-memory", memory={"layers": 1})
    (folder / "characters").mkdir()
    return {
        "base": base,
        "other": text_model(store, tokens),
        "wider": trained(store, tokens, method="lm", model={"width": 16, "heads": 2, "layers": 1}),
        "characters": text_model(store, text_tokens(store, folder / "characters", "char")),
        "kept": kept,
        "mlp": mlp,
        "near": neighbors,
        "of_test": found_neighbors(store, of_test, **chosen),
        "own": found_neighbors(store, index, **chosen | {"exclude": "none"}),
        "queries": found_neighbors(store, index, **chosen | {"queries": ("test",)}),
    }


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("train", "{queries}", *DECODER), 4, "--queries test,train"),
        (("train", "{own}", *DECODER), 4, "--exclude self"),
        (("train", "{of_test}", *DECODER), 2, "memlm build-datastore --split train"),
        (("train", "{near}", *DECODER, "--set", "memory.k=10"), 4, "train --set memory.k=9"),
        (("train", "{near}", *DECODER, "--set", "memory.alpha=1.5"), 2, "memory.alpha"),
        (("train", "{near}", *DECODER, "--set", "memory.layers=2"), 2, "memory.layers"),
        (("train", "{near}", *DECODER, "--init-from", "{characters}"), 4, "vocabulary"),
        (("train", "{near}", "--method", "mlp-memory"), 2, "--init-from"),
        (("precompute-neighbors", "{kept}"), 4, "memlm build-index {kept.datastore}"),
        (("evaluate", "{base}", "--memory", "decoder:lambda=0.2"), 2, "model=REF"),
        (
            ("evaluate", "{base}", "--memory", "decoder:model={characters},lambda=0.1"),
            4,
            "tokenized",
        ),
        (
            ("evaluate", "{base}", "--memory", "decoder:model=model/gone,lambda=0.1"),
            4,
            "model/gone",
        ),
        (
            ("evaluate", "{other}", "--memory", "mlp:model={mlp},lambda=0.2"),
            4,
            "--init-from {other}",
        ),
        (
            ("evaluate", "{wider}", "--memory", "mlp:model={mlp},lambda=0.2"),
            4,
            "--init-from {wider}",
        ),
        (("evaluate", "{base}", "--memory", "mlp:model={other},lambda=0.2"), 2, "mlp-memory"),
        (("generate", "{other}", "--memory", "mlp:model={mlp},lambda=0.2"), 4, "{base}"),
    ],
)
def test_what_does_not_fit_ends_with_its_exit_code(
    memlm: Memlm, made: Mapping[str, Artifact], words: tuple[str, ...], code: int, says: str
) -> None:
    store = made["base"].store
    names = {name: Reference(artifact) for name, artifact in made.items()}
    filled = [str(word).format(**names) for word in words]
    ended = memlm(*filled, "--store", store.root)
    assert ended.code == code, ended.err
    assert says.format(**names) in " ".join(ended.err.split())
    assert "Traceback" not in ended.err


class Reference(str):
    """The reference of an artifact, and that of the datastore that it was made of."""

    datastore: str

    def __new__(cls, artifact: Artifact) -> "Reference":
        made = super().__new__(cls, artifact.reference)
        record = artifact.manifest.inputs.get("datastore")
        made.datastore = "" if record is None else record.reference
        return made


def test_an_ensemble_with_itself_is_told(memlm: Memlm, made: Mapping[str, Artifact]) -> None:
    base = made["base"].reference
    words = ("evaluate", base, "--memory", f"decoder:model={base},lambda=0.1")
    ended = memlm(*words, "--store", made["base"].store.root, "--device", "cpu")
    assert ended.code == 0 and "an ensemble with itself" in ended.err


def test_a_plan_counts_the_labels_on_disk(memlm: Memlm, made: Mapping[str, Artifact]) -> None:
    typed = (*TRAIN, made["near"].reference, *DECODER, "--store", made["base"].store.root, "--json")
    scratch = []
    for alpha in (0, 0.5):
        planned = memlm("plan", *typed, "--set", f"memory.alpha={alpha}")
        (stage,) = json.loads(planned.out)["stages"]
        scratch.append(stage["scratch"])
    tokens = made["base"].input("tokens").metrics["splits"]["train"]["tokens"]
    # A token and a share for each of nine neighbours.
    assert scratch[1] - scratch[0] == tokens * 9 * (4 + 4)
