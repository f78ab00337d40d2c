"""Texts of the campaign in one folder to be carried: `python -m tests.gpu.pack DATA TEXTS`.

DATA holds `code-sympy/sympy.jsonl.xz`, `formal-unimath/unimath.jsonl.xz` and
`novels-large/novels-large.jsonl.xz`:
a record a line with `name`, `split` and `text`. TEXTS gets NAME-SPLIT.jsonl.xz, 17 MB in all.

What a machine with PyTorch may lack beside them is 55 MB of wheels, of its Python:

    pip download --no-deps --only-binary :all: --python-version 3.12 --platform manylinux_2_28_x86_64
        --platform manylinux_2_17_x86_64 -d WHEELS faiss-cpu zarr numcodecs donfig google-crc32c lightning-fabric
        rank-bm25 zstandard pydantic pydantic-core annotated-types typing-inspection
        matplotlib contourpy cycler fonttools kiwisolver pillow pyparsing python-dateutil six

and there `pip install --no-index --no-deps --target SITE WHEELS/*.whl`, with SITE in PYTHONPATH.
"""

import argparse
import json
import lzma
from pathlib import Path

SOURCES = {
    "code": "code-sympy/sympy.jsonl.xz",
    "proofs": "formal-unimath/unimath.jsonl.xz",
    "novels": "novels-large/novels-large.jsonl.xz",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("texts", type=Path)
    given = parser.parse_args()
    given.texts.mkdir(parents=True, exist_ok=True)
    for name, source in SOURCES.items():
        pack(given.data / source, given.texts, name)
    size = sum(path.stat().st_size for path in given.texts.glob("*.jsonl.xz"))
    print(f"{given.texts}: {size / 1e6:.1f} MB")


def pack(source: Path, texts: Path, name: str) -> None:
    """Cut one file of records by their splits."""
    with lzma.open(source, "rt", encoding="utf-8", newline="\n") as lines:
        records = [json.loads(line) for line in lines]
    for split in ("train", "valid", "test"):
        with lzma.open(texts / f"{name}-{split}.jsonl.xz", "wt", encoding="utf-8") as file:
            for record in records:
                if record["split"] == split:
                    kept = {"name": record["name"], "text": record["text"]}
                    file.write(json.dumps(kept, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
