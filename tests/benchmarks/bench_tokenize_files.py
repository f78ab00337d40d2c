"""Processor time of `tokenize` on files, and a digest of all that it wrote but its manifest.

    python -m tests.benchmarks.bench_tokenize_files FILE… [--tokenizers word,bpe] [--workers \\
        1,2] [--documents wikitext]

For real text, beside `bench_tokenize`, whose text is made. The plainest loop of that script is
timed on the same files. With workers, time is that of the first process and half that of the two of
them. Two versions that write the same have the same digest.
"""

import argparse
import hashlib
import resource
import tempfile
import time
from pathlib import Path

from tests.benchmarks.bench_tokenize import plain

VOCABULARY = 16_000


def digest(folder: Path) -> str:
    """Of the names and bytes of all files of an artifact but the manifest, which tells when it was
    made.
    """
    content = hashlib.sha256()
    for file in sorted(
        path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json"
    ):
        content.update(str(file.relative_to(folder)).encode() + file.read_bytes())
    return content.hexdigest()[:16]


def children() -> float:
    taken = resource.getrusage(resource.RUSAGE_CHILDREN)
    return taken.ru_utime + taken.ru_stime


def measure(files: list[str], tokenizer: str, workers: int, documents: str | None) -> str:
    from stages.artifacts.make import make
    from stages.artifacts.stage import Execution
    from stages.artifacts.store import Store
    from stages.tokenize import Tokenize, TokenizeConfig

    own = {"word": {"min_count": 1}, "bpe": {"vocab_size": VOCABULARY}}.get(tokenizer, {})
    config = TokenizeConfig.model_validate({"tokenizer": tokenizer, "documents": documents, **own})
    with tempfile.TemporaryDirectory() as folder:
        wall, cpu, theirs = time.perf_counter(), time.process_time(), children()
        made = make(
            Tokenize(), config, {"train": files}, Store(folder), Execution(workers=workers)
        ).artifact
        wall, cpu, theirs = (
            time.perf_counter() - wall,
            time.process_time() - cpu,
            children() - theirs,
        )
        return (
            f"{tokenizer:5} {workers} workers {cpu + theirs / max(1, workers):7.2f} s of CPU "
            f"(all processes {cpu + theirs:.2f}, wall {wall:.1f}) {made.reference} {digest(made.path)}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+")
    parser.add_argument("--tokenizers", default="word,bpe")
    parser.add_argument("--workers", default="1,2")
    parser.add_argument("--documents")
    arguments = parser.parse_args()
    print(f"{sum(Path(file).stat().st_size for file in arguments.files) / 1e6:.1f} MB")
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        for file in arguments.files:
            plain(Path(file), Path(folder))
        print(f"plainest loop     {time.process_time() - began:7.2f} s of CPU", flush=True)
    for tokenizer in arguments.tokenizers.split(","):
        for workers in map(int, arguments.workers.split(",")):
            print(measure(arguments.files, tokenizer, workers, arguments.documents), flush=True)


if __name__ == "__main__":
    main()
