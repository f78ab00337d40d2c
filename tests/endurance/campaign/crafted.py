"""Artifacts from strangers: every hash is right, the content is hostile. Refused, or read to an
end; never a crash.
"""

import hashlib
import json
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

from stages.artifacts.checksums import manifest_checksum, manifest_digest
from stages.artifacts.references import MANIFEST
from tests.endurance.campaign.case import Case, Verdict, failed, judge
from tests.endurance.campaign.mutate import damaged_bytes, damaged_json, damaged_json_text

READERS = {
    "tokens": [
        ["train", "{tokens}", "--steps", "2"],
        ["pack-batches", "{tokens}"],
        ["artifacts", "show", "{tokens}"],
    ],
    "model": [
        ["build-datastore", "{model}"],
        ["evaluate", "{model}"],
        ["generate", "{model}", "--prompt", "the", "--max-tokens", "3"],
    ],
    "lstm": [
        ["evaluate", "{lstm}"],
        ["train", "{tokens}", "--init-from", "{lstm}", "--steps", "1"],
    ],
    "datastore": [["build-index", "{datastore}"], ["evaluate", "{index}"]],
    "index": [
        ["precompute-neighbors", "{index}"],
        ["evaluate", "{index}"],
        ["inspect", "{index}", "--position", "4"],
    ],
    "neighbors": [
        ["evaluate", "{neighbors}"],
        ["train", "{neighbors}", "--method", "spalm", "--steps", "1"],
    ],
    "batches": [["train", "{batches}", "--method", "trime-ext", "--steps", "1"]],
    "report": [
        ["report", "{report}", "--output", "p.html"],
        ["compare", "{report}", "{recent}", "--samples", "20"],
    ],
    "gated": [["report", "{gated}", "--output", "p.html"]],
    "grown": [
        ["update-datastore", "{grown}", "--forget", "3"],
        ["build-index", "{grown}", "--index", "flat"],
        ["evaluate", "{grown-ivf}", "--exclude", "document", "--split", "valid"],
        ["inspect", "{grown-ivf}", "--position", "4"],
    ],
    "cut": [
        ["build-index", "{cut}", "--index", "flat"],
        ["precompute-neighbors", "{cut-ivf}", "--exact"],
    ],
}
"""Commands that read each artifact; none of what they make is in the store."""
MANIFESTS = 0.3
"""How often it is the manifest that is changed, which is one file of many."""
FACTS = ("config", "metrics")
"""What of it others compute with; most of it is the table of files."""


def crafted(case: Case) -> Verdict:
    """One file of an artifact changed and the manifests signed anew, or the manifest itself."""
    name = case.random.choice(list(READERS))
    command = case.random.choice(READERS[name])
    needed = {case.world.made[part[1:-1]].reference for part in command if part.startswith("{")}
    case.world.copy(case.store, needed.union(*map(case.world.ancestors, needed)))
    artifact = case.store / case.world.made[name].reference
    files = [path for path in sorted(artifact.rglob("*")) if path.is_file()]
    path = artifact / MANIFEST if case.random.random() < MANIFESTS else case.random.choice(files)
    how = _craft(case, path)
    case.note(f"{path.relative_to(case.store)}: {how}; {' '.join(command)}")
    with suppress(
        AttributeError, KeyError, TypeError, ValueError, RecursionError
    ):  # of a manifest that is none
        _sign(case.store, artifact, path)
    verdict = judge(case.memlm(*[case.world.filled(part) for part in command]))
    return failed(f"{command[0]}: {verdict.why}") if verdict.judgement == "failed" else verdict


def _craft(case: Case, path: Path) -> str:
    data = path.read_bytes()
    if path.name == "zarr.json" and case.random.random() < 0.3:
        return _declare(case, path)
    if path.name == MANIFEST:
        text, how = damaged_json_text(
            case.random, path.read_text(), case.random.choice([(), FACTS])
        )
        path.write_text(text)
    elif path.suffix == ".json" and case.random.random() < 0.8:
        text, how = damaged_json_text(case.random, path.read_text())
        path.write_text(text)
    elif path.suffix == ".safetensors" and case.random.random() < 0.8:
        length = struct.unpack("<Q", data[:8])[0]
        header, how = damaged_json(case.random, json.loads(data[8 : 8 + length]))
        made = json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(made)) + made + data[8 + length :])
    elif "c" in path.parts[-3:] and case.random.random() < 0.8:
        value = case.random.choice(
            [b"\xff\xff", b"\x00\x28\x6b\xee", b"\xff\xff\xff\x7f", b"\x00\x00\xc0\x7f", b"\x01"]
        )
        start = case.random.randrange(0, max(1, len(data) - 24), 8)
        end = case.random.choice([start + 8, len(data) - 24])
        path.write_bytes(
            data[:start] + (value * len(data))[: max(0, end - start)] + data[max(start, end) :]
        )
        how = f"bytes {start} to {end} now {value.hex()}"
    else:
        content, how = damaged_bytes(case.random, data)
        path.write_bytes(content)
    return how


def _declare(case: Case, path: Path) -> str:
    """Other rows, in one piece or many, than the files of an array hold."""
    content = json.loads(path.read_text())
    if content["node_type"] == "group":
        path.write_text(path.read_text().replace("group", "array"))
        return "a group that says it is an array"
    rows = case.random.choice(
        [0, 1, content["shape"][0] + 1, content["shape"][0] * 2, 10**9, 10**12, 2**63]
    )
    shard = case.random.choice([1, content["shape"][0], rows])
    content["shape"][0] = rows
    content["chunk_grid"]["configuration"]["chunk_shape"][0] = shard
    content["codecs"][0]["configuration"]["chunk_shape"][0] = case.random.choice([1, shard])
    path.write_text(json.dumps(content))
    return f"{rows} rows in shards of {shard}"


def _sign(store: Path, artifact: Path, path: Path) -> None:
    """Put a changed file's size and hash into its manifest, and seal this and all that was made
    from it anew.
    """
    manifest = json.loads((artifact / MANIFEST).read_text())
    if path.name != MANIFEST:
        content = path.read_bytes()
        entry = {"bytes": len(content), "blake2b": hashlib.blake2b(content).hexdigest()}
        manifest["files"][path.relative_to(artifact).as_posix()] = entry
    _seal(store, artifact, manifest)


def _seal(store: Path, artifact: Path, manifest: dict[str, Any]) -> None:
    """Write a manifest with its digest, and those of what was made from it."""
    manifest["digest"] = manifest_digest(manifest)
    manifest["checksum"] = manifest_checksum(manifest)
    (artifact / MANIFEST).write_text(json.dumps(manifest))
    for other in store.glob(f"*/*/{MANIFEST}"):
        made = json.loads(other.read_text())
        reference = manifest["kind"], manifest["id"]
        records = [
            record
            for record in made["inputs"].values()
            if (record["kind"], record["id"]) == reference
        ]
        for record in records:
            record["digest"] = manifest["digest"]
        if records:
            _seal(store, other.parent, made)


ATTACKS = {"crafted": crafted}
