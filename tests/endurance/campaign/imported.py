"""Imported folders whose parts disagree: settings of another model, weights that are missing or of
other shapes.
"""

import json
import os
import shutil
import struct
import subprocess
import sys
from functools import cache
from pathlib import Path

from tests.endurance.campaign.case import Case, Verdict, failed, judge
from tests.endurance.campaign.mutate import damaged_bytes, damaged_json, damaged_json_text
from tests.endurance.campaign.process import REPOSITORY, Limits
from tests.endurance.campaign.world import BY_PARAGRAPH, FILES, World

FAMILIES = ("gpt2", "llama", "mixtral", "bert")
MAKE = (
    "import sys; from pathlib import Path; from tests.stages.pretrained import tiny; "
    "[(tiny.saved_encoder if name == 'bert' else tiny.saved)(Path(sys.argv[1], name), name) for name in sys.argv[2:]]"
)
LIMITS = Limits(cpu_seconds=90, wall_seconds=900)
"""Reading any model takes seconds, that of transformers first."""


@cache
def pretrained(world: World) -> Path:
    """Folders of tiny models, made once a process."""
    folder = world.folder / f"pretrained-{os.getpid()}"
    command = [sys.executable, "-c", MAKE, str(folder), *FAMILIES]
    subprocess.run(command, check=True, capture_output=True, cwd=REPOSITORY)
    return folder


def imported_parts(case: Case) -> Verdict:
    """A model's folder with one part changed, or taken from another; its tokens are those of the
    folder before.
    """
    family = case.random.choice(FAMILIES)
    folder = case.folder / "model"
    shutil.copytree(pretrained(case.world) / family, folder)
    tokens = case.memlm("tokenize", *FILES, *BY_PARAGRAPH, "--tokenizer", "model", limits=LIMITS)
    if tokens.code != 0:
        return failed(f"tokenize: code {tokens.code}: {tokens.err[-200:]}")
    how = _change(case, folder, family)
    case.note(f"{family}: {how}")
    ended = case.memlm("import-model", "model", tokens.reference, limits=LIMITS)
    verdict = judge(ended)
    if verdict.judgement != "harmless":
        return verdict
    return judge(case.memlm("evaluate", ended.reference, "--split", "test", limits=LIMITS))


def _change(case: Case, folder: Path, family: str) -> str:
    way = case.random.choice(
        ["settings", "settings", "settings", "weights", "weights", "bytes", "exchanged"]
    )
    if family == "bert" and case.random.random() < 0.5:
        way = "sentences"
    if way == "settings":
        file = folder / "config.json"
        text, how = damaged_json_text(case.random, file.read_text())
        file.write_text(text)
        return f"config.json: {how}"
    if way == "weights":
        file = folder / "model.safetensors"
        data = file.read_bytes()
        length = struct.unpack("<Q", data[:8])[0]
        header, how = damaged_json(case.random, json.loads(data[8 : 8 + length]))
        made = json.dumps(header).encode()
        file.write_bytes(struct.pack("<Q", len(made)) + made + data[8 + length :])
        return f"head of the weights: {how}"
    if way == "bytes":
        file = case.random.choice(sorted(path for path in folder.iterdir() if path.is_file()))
        content, how = damaged_bytes(case.random, file.read_bytes())
        file.write_bytes(content)
        return f"{file.name}: {how}"
    if way == "sentences":
        return _sentences(case, folder)
    other = case.random.choice([name for name in FAMILIES if name != family])
    file = folder / case.random.choice(["config.json", "model.safetensors", "tokenizer.json"])
    shutil.copy(pretrained(case.world) / other / file.name, file)
    return f"{file.name} of {other}"


def _sentences(case: Case, folder: Path) -> str:
    """The files that sentence-transformers writes beside an encoder, with one value changed."""
    types = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    written = {
        "modules.json": [
            {"path": path, "type": f"sentence_transformers.models.{one}"}
            for path, one in types.items()
        ],
        "sentence_bert_config.json": {"max_seq_length": 12, "do_lower_case": False},
        "1_Pooling/config.json": {
            "pooling_mode_cls_token": True,
            "pooling_mode_mean_tokens": False,
        },
    }
    name = case.random.choice(list(written))
    written[name], how = damaged_json(case.random, written[name])
    (folder / "1_Pooling").mkdir()
    for file, content in written.items():
        (folder / file).write_text(json.dumps(content))
    return f"{name}: {how}"


ATTACKS = {"imported-parts": imported_parts}
