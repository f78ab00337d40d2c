"""Text: reading corpora, documents and paragraphs, tokenizers, token streams."""

from stages.registry import Registry

TOKENIZERS = Registry(
    "tokenizer",
    {
        "word": "stages.text.simple_tokenizers:WordTokenizer",
        "char": "stages.text.simple_tokenizers:CharTokenizer",
        "byte": "stages.text.simple_tokenizers:ByteTokenizer",
        "bpe": "stages.text.huggingface:BpeTokenizer",
    },
)
