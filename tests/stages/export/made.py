"""Models of the store for exports."""

import torch

from stages.artifacts.artifact import Artifact
from stages.artifacts.make import make
from stages.artifacts.stage import Execution
from stages.artifacts.store import Store
from stages.config import StageConfig
from stages.import_model import ImportConfig, ImportModel
from stages.models.backbone import Inputs
from stages.models.weights import load_model
from stages.tokenize import Tokenize, TokenizeConfig
from tests.stages.small_store import VOCABULARY, small_model, small_tokens

WORDS = "the cat sat on the mat and the dog sat on the cat\n"


def made(store: Store, stage, config: StageConfig, **references) -> Artifact:
    return make(stage, config, references, store, Execution(device="cpu")).artifact


TRANSFORMER = {
    **{
        "backbone": "transformer",
        "layers": 2,
        "width": 16,
        "heads": 2,
        "ffn_width": 24,
        "dropout": 0.1,
    },
    "max_positions": 16,
}


def random_model(store: Store, **settings) -> Artifact:
    """A tiny model with random weights; usually a Transformer, two layers of two heads."""
    model = (
        settings
        if settings.get("backbone", "transformer") != "transformer"
        else {**TRANSFORMER, **settings}
    )
    memory = {"k": 4} if settings.get("gate") else None
    return small_model(
        store, small_tokens(store), model={"vocab_size": VOCABULARY, **model}, memory=memory
    )


def texts(folder) -> dict[str, list[str]]:
    """Files of the three splits."""
    files = {}
    for split, times in {"train": 30, "valid": 6, "test": 6}.items():
        (folder / f"{split}.txt").write_text(WORDS * times)
        files[split] = [str(folder / f"{split}.txt")]
    return files


def tokens_of(store: Store, folder, checkpoint) -> Artifact:
    """Tokens of a pretrained tokenizer."""
    config = TokenizeConfig(tokenizer="given")
    return made(store, Tokenize(), config, source=[], tokenizer=str(checkpoint), **texts(folder))


def imported(store: Store, tokens: Artifact, checkpoint) -> Artifact:
    """A pretrained model."""
    config = ImportConfig(segment_length=16)
    return made(store, ImportModel(), config, source=tokens.reference, checkpoint=str(checkpoint))


@torch.no_grad()
def log_probs(model: Artifact, tokens: torch.Tensor) -> torch.Tensor:
    """Of memlm, [B·L, V], without a prefix."""
    ours = load_model(model.path, "cpu")
    return ours.log_probs(ours.backbone(Inputs(ours.vocabulary.embed(tokens))).hidden.flatten(0, 1))


@torch.no_grad()
def reloaded(folder, tokens: torch.Tensor) -> torch.Tensor:
    """Of the folder's model, read by transformers."""
    from transformers import AutoModelForCausalLM

    return (
        AutoModelForCausalLM.from_pretrained(folder)
        .eval()(tokens)
        .logits.log_softmax(-1)
        .flatten(0, 1)
    )
