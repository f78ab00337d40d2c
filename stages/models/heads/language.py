"""The language head: it has no weights, for the vocabulary scores what follows `<ans>`."""

from torch import nn

from stages.models.heads.language_settings import LanguageSettings


class Language(nn.Module):
    """Says that a model answers in tokens; `stages.methods.stream.spelled` writes and reads them."""

    def __init__(self, width: int, settings: LanguageSettings) -> None:
        super().__init__()
