"""Text: reading corpora, documents and paragraphs, tokenizers, token streams."""

from stages.registry import Registry

TOKENIZERS = Registry(
    "tokenizer",
    {
        "word": "stages.text.word:WordTokenizer",
        "char": "stages.text.char:CharTokenizer",
        "byte": "stages.text.byte:ByteTokenizer",
        "bpe": "stages.text.bpe:BpeTokenizer",
    },
)
