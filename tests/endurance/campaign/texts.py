"""Input files that are no text, or text of a kind that nobody writes: tokens, or a refusal that
names the file.
"""

import gzip
import json
import lzma
from collections.abc import Callable
from random import Random

import zstandard

from tests.endurance.campaign.case import Case, Verdict, failed, judge
from tests.endurance.campaign.mutate import damaged_bytes

TOKENIZERS = ["word", "char", "byte", "bpe"]
DOCUMENTS = ["file", "line", "blank-line", "wikitext", "jsonl"]
PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}


def bad_text(case: Case) -> Verdict:
    """A file of hostile content, perhaps packed, perhaps damaged then, read with any tokenizer."""
    name, content = _content(case.random)
    suffix, packing = (
        case.random.choice([".txt", ".txt", ".jsonl"]),
        case.random.choice([*PACK, ""]),
    )
    data = PACK[packing](content)
    if case.random.random() < 0.3:
        data, how = damaged_bytes(case.random, data)
        name += f", {how}"
    file = case.folder / f"bad{suffix}{packing}"
    file.write_bytes(data)
    arguments = ["tokenize", "--tokenizer", case.random.choice(TOKENIZERS)]
    if case.random.random() < 0.4:
        arguments += ["--documents", case.random.choice(DOCUMENTS)]
    where = case.random.choice(
        [["--train", file.name], ["--train", "train.txt", "--test", file.name], [file.name]]
    )
    case.note(f"{name} in {file.name}: {' '.join([*arguments, *where])}")
    ended = case.memlm(*arguments, *where, small_shards=case.random.random() < 0.2)
    verdict = judge(ended)
    if verdict.judgement == "refused" and ended.code == 4:
        return failed(f"code 4 for an input file: {ended.err[-200:]}")
    return verdict


def _content(random: Random) -> tuple[str, bytes]:
    name = random.choice(list(CONTENTS))
    return name, CONTENTS[name](random)


def _records(random: Random) -> bytes:
    odd = [
        '{"text": 1}',
        "{}",
        "[]",
        "null",
        '{"text": "\\ud800"}',
        '{"text": null}',
        '{"text": ""}',
        "1e999",
        "{",
    ]
    good = [json.dumps({"text": f"the cat sees the {n}"}) for n in ("dog", "hen")]
    return "\n".join(random.choices([*odd, *good, *good], k=random.randint(1, 6))).encode()


CONTENTS: dict[str, Callable[[Random], bytes]] = {
    "nothing": lambda random: b"",
    "one byte": lambda random: random.randbytes(1),
    "random bytes": lambda random: random.randbytes(random.randint(2, 20_000)),
    "zeros": lambda random: bytes(50_000),
    "newlines": lambda random: b"\n" * 300_000,
    "blanks": lambda random: (
        random.choice([b" ", b"\t", b" \n", b"\r", "\u2028".encode()]) * 200_000
    ),
    "one long word": lambda random: b"x" * 1_000_000,
    "one long line": lambda random: b"the cat " * 100_000,
    "all of Unicode": lambda random: "".join(map(chr, range(1, 0xD800))).encode(),
    "combining marks": lambda random: ("e" + "\u0301" * 5000).encode() * 10,
    "escapes": lambda random: b"\x1b[2J\x1b]0;title\x07 the cat\n" * 50,
    "UTF-16": lambda random: "the cat sees the dog\n".encode("utf-16") * 50,
    "Latin-1": lambda random: "caf\u00e9 \u00fcber\n".encode("latin-1") * 50,
    "a byte order mark": lambda random: b"\xef\xbb\xbfthe cat\n" * 50,
    "special tokens": lambda random: b"<eos> <unk> <pad> </s> [UNK] <|endoftext|>\n" * 50,
    "headings of wikitext": lambda random: b" = a =\n\n = = b = =\n = \n" * 200,
    "carriage returns": lambda random: b"the cat\r\nsees\r\n\r\n" * 300,
    "deep JSON": lambda random: b'{"text": ' + b"[" * 100_000 + b"\n",
    "a long JSON string": lambda random: b'{"text": "' + b"a b" * 300_000 + b'"}\n',
    "odd records": _records,
    "blank records": lambda random: b" \n" * 50_000 + b'{"text": "x"}',
    "two frames": lambda random: gzip.compress(b"the cat\n") * 3 + b"tail",
    "digits": lambda random: b" ".join(str(random.randrange(10**9)).encode() for _ in range(5000)),
}
ATTACKS = {"bad-text": bad_text}
