"""Models that write their answers in words: what their heads and vocabularies gain. Free of torch."""

from typing import TYPE_CHECKING

from stages.errors import UsageError
from stages.lineage.corpus import tokenizer_of
from stages.methods.config import TRAIN
from stages.models.config import BackboneConfig
from stages.models.head_settings import LanguageSettings

if TYPE_CHECKING:
    from stages.artifacts.artifact import Artifact


def writing_model(model: BackboneConfig, tokens: "Artifact", *, asks: bool) -> BackboneConfig:
    """The model that writes its answers; its vocabulary gains `<ans>`, `<gen>`, and a token for
    each task.

    Args:
        asks: whether documents have questions with answers of their own, not labels alone.
    Raises: UsageError for labels that cannot be written.
    """
    types = int(tokens.metrics["vocabulary_size"])
    if not model.scores_tokens:
        raise UsageError(
            f"Answers in words are written token by token, and a {model.backbone} scores no tokens."
        )
    if model.cutoffs:
        raise UsageError("Answers in words add tokens to a full softmax: leave model.cutoffs out.")
    answers = spelled_labels(tokens)
    longest = int(tokens.metrics["splits"][TRAIN]["longest_answer"]) if asks else None
    head = LanguageSettings(answers=answers, longest=longest, first=types)
    return with_task_tokens(model, tokens, head)


def with_task_tokens(
    model: BackboneConfig, tokens: "Artifact", head: LanguageSettings
) -> BackboneConfig:
    """The model with a head, and a vocabulary that has `<ans>`, `<gen>` and a token for each task
    in addition.
    """
    size = max(int(model.vocab_size or 0), head.first + 2 + len(tokens.metrics["tasks"]))
    return model.model_copy(update={"head": head, "vocab_size": size})


def spelled_labels(tokens: "Artifact") -> tuple[tuple[int, ...], ...]:
    """Tokens of the name of each label. Raises: UsageError for words that are not in the
    vocabulary.
    """
    names = tokens.metrics["labels"]
    tokenizer = tokenizer_of(tokens)
    spellings = []
    for name in names:
        ids = tuple(map(int, tokenizer.encode_texts([name])[0]))
        if not ids or tokenizer.unk_id in ids:
            raise UsageError(
                f"Label {name!r} of {tokens.reference} has words that are not in the vocabulary, so no model can spell "
                "it: tokenize with --tokenizer bpe, or a smaller --min-count."
            )
        spellings.append(ids)
    return tuple(spellings)
