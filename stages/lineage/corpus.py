"""The corpus of a model: its training tokens, or others with the same vocabulary."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stages.artifacts.artifact import Artifact
from stages.artifacts.store import Store
from stages.errors import ArtifactError, DataError, UsageError, content_of, nearest
from stages.examples import EXAMPLES, STREAMS
from stages.models.config import BackboneConfig, model_of
from stages.text.tokens import SPLITS

if TYPE_CHECKING:
    from stages.text.excerpt import TokenText
    from stages.text.tokenizer import TextTokenizer

TOKENIZER = "tokenizer.json"


def corpus_of(encoder: Artifact, references: Mapping[str, Any], store: Store) -> Artifact:
    """The tokens for a model to read: `references["tokens"]`, else its training tokens.

    Raises: ArtifactError if the tokens have another tokenizer, or are pairs for a model of one
        language, or the reverse.
    """
    training_tokens = encoder.input("tokens")
    if references.get("tokens") is None:
        return training_tokens
    tokens = store.get(references["tokens"], "tokens")
    require_sources(model_of(encoder), tokens)
    require_same_tokenizer(training_tokens, tokens, encoder)
    return tokens


def require_same_tokenizer(training_tokens: Artifact, tokens: Artifact, encoder: Artifact) -> None:
    """Check that ids mean the same in both tokens artifacts. Raises: ArtifactError."""
    if tokenizer_digest(training_tokens) != tokenizer_digest(tokens):
        raise ArtifactError(
            f"{tokens.reference} was tokenized differently from what {encoder.reference} was trained "
            "on; tokenize it with the model's tokenizer: "
            + training_tokens.advise("tokenize", "--tokenizer", training_tokens.reference, "FILE")
        )


def tokenizer_digest(tokens: Artifact) -> str:
    """Digest of the bytes of a tokens artifact's tokenizer."""
    return tokens.manifest.files[TOKENIZER]["blake2b"]


def token_text(tokens: Artifact) -> "TokenText":
    """Encoder and decoder of a tokens artifact. Raises: ArtifactError if its file holds another
    tokenizer, or none.
    """
    from stages.text.excerpt import TokenText

    # a file that differs from the manifest is damaged, whatever error it raises
    with content_of(tokens.file(TOKENIZER), DataError):
        text = TokenText(tokens.file(TOKENIZER), tokens.metrics)
        _require_vocabulary(tokens, text.vocabulary_size)
        return text


def tokenizer_of(tokens: Artifact) -> "TextTokenizer":
    """The tokenizer of a tokens artifact. Raises: see `token_text`."""
    from stages.text.huggingface import open_tokenizer

    with content_of(tokens.file(TOKENIZER), DataError):
        tokenizer = open_tokenizer(tokens.file(TOKENIZER))
        _require_vocabulary(tokens, tokenizer.vocabulary_size)
        return tokenizer


def _require_vocabulary(tokens: Artifact, size: int) -> None:
    if size != tokens.metrics["vocabulary_size"]:
        raise ValueError(
            f"{size} token types, where the manifest says {tokens.metrics['vocabulary_size']}"
        )


def array_digests(tokens: Artifact, name: str) -> dict[str, str]:
    """Digests of the files of an array (`train/ids`) or of all arrays of a split, by their names
    below it.
    """
    below = f"tokens.zarr/{name}/"
    files = tokens.manifest.files
    return {
        path.removeprefix(below): files[path]["blake2b"] for path in files if path.startswith(below)
    }


def require_split(tokens: Artifact, split: str) -> None:
    """Check that tokens have a split, and that it is not empty. Raises: ArtifactError, with the
    remedy.
    """
    splits = tokens.metrics["splits"]
    making = tokens.advise("tokenize", "--tokenizer", tokens.reference, f"--{split}", "FILE")
    if split not in splits:
        near = nearest(split, splits)
        mend = f"; did you mean {near!r}?" if near else "."
        if split in SPLITS:
            mend = f"; tokens that have one: {making}"
        raise ArtifactError(
            f"{tokens.reference} has no split {split!r} (it has: {', '.join(splits)}){mend}"
        )
    if not splits[split]["tokens"]:
        raise ArtifactError(
            f"Split {split!r} of {tokens.reference} has no tokens; give it some text: {making}"
        )


def require_tune_split(tokens: Artifact, split: str) -> None:
    """Raises: ArtifactError if this split for tuning is missing; the message says how to do without
    it.
    """
    splits = tokens.metrics["splits"]
    if split not in splits:
        raise ArtifactError(
            f"{tokens.reference} has no split {split!r} to tune on: name another with --tune-split "
            f"({', '.join(splits)}), or give numbers in place of tune."
        )
    if not splits[split]["tokens"]:
        raise ArtifactError(
            f"Split {split!r} of {tokens.reference} has no tokens to tune on: name another with --tune-split, "
            "or give numbers in place of tune."
        )


def require_text(model: Artifact) -> Artifact:
    """A model of text. Raises: ArtifactError if it has learnt labels."""
    if model_of(model).head is not None:
        raise ArtifactError(
            f"{model.reference} has learnt labels, and predicts no tokens: "
            f"{model.advise('evaluate-tasks', model.reference)} scores it. Elsewhere take a model of text."
        )
    return model


def require_scoring(model: Artifact) -> Artifact:
    """A model that scores tokens. Raises: ArtifactError, naming the purpose of the model, if it
    only makes keys, or has learnt labels."""
    require_text(model)
    if not model_of(model).scores_tokens:
        raise ArtifactError(
            f"{model.reference} is an encoder: it makes keys, and scores no tokens. Find neighbours with it "
            f"({model.advise('build-datastore', model.reference)}, memlm build-index, memlm precompute-neighbors), and "
            "read them with a model over the same tokens: memlm evaluate MODEL --neighbors NEIGHBORS."
        )
    return model


def require_sources(model: BackboneConfig, tokens: Artifact) -> None:
    """Check that a translation model gets pairs, and another model text of one language. Raises:
    ArtifactError.
    """
    kind = tokens.metrics.get("examples", STREAMS)
    if model.reads.source and not EXAMPLES.settings(kind).source:
        raise ArtifactError(
            f"{tokens.reference} is text of one language, and a model with the backbone {model.backbone} translates: "
            "give it pairs of sentences (memlm tokenize --source LANGUAGE --target LANGUAGE)."
        )
    if EXAMPLES.settings(kind).source and not model.reads.source:
        raise ArtifactError(
            f"{tokens.reference} holds pairs of sentences, and the backbone {model.backbone} reads no source: "
            "take another (--backbone encoder-decoder, --model mt-small), or tokenize one language alone."
        )


def require_key(model: Artifact, key: str) -> None:
    """Check that a model has the representation for searching memory. Raises: UsageError."""
    config = model_of(model)
    if key not in config.reads.keys:
        raise UsageError(
            f"{model.reference} ({config.backbone}) has no key {key!r}; it has: {', '.join(config.reads.keys)}."
        )
