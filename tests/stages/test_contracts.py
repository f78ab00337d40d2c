"""The contracts of stages: what commands import before they know whether there is work."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from stages.artifacts.kinds import STAGES, StageEntry
from stages.artifacts.stage import SerialWork, ShardedWork, Stage

ROOT = Path(__file__).parents[2]
ENTRIES = {
    name: entry
    for name, entry in STAGES.targets.items()
    if isinstance(entry, StageEntry) and entry.contract.startswith("stages.")
}


def test_a_contract_is_imported_without_torch_faiss_and_zarr() -> None:
    modules = sorted({entry.contract.partition(":")[0] for entry in ENTRIES.values()})
    code = f"import sys, {', '.join(modules)}; print([m for m in ('torch', 'faiss', 'zarr') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ENTRIES)
def test_a_contract_imports_nothing_inside_a_function(name: str) -> None:
    module = ENTRIES[name].contract.partition(":")[0]
    tree = ast.parse((ROOT / module.replace(".", "/")).with_suffix(".py").read_text("utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert [node.lineno for node in imports if node not in tree.body] == []


@pytest.mark.parametrize("name", ENTRIES)
def test_a_row_names_a_contract_and_its_settings_and_work(name: str) -> None:
    contract = STAGES.load(name)
    assert issubclass(contract, Stage)
    assert contract.name == name
    assert contract.Config is STAGES.settings(name)
    assert issubclass(STAGES.work(name), SerialWork | ShardedWork)
