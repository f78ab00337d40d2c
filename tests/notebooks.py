"""Runs a notebook without Jupyter: cells in order in one namespace, outputs kept as Jupyter keeps
them.

    python -m tests.notebooks docs/tutorials/notebook.ipynb

writes the outputs of a run, in a folder of its own, into the notebook.
"""

import ast
import io
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

TOPLEVEL = Path(__file__).parent.parent / "memlm_cli" / "toplevel"
"""Where `import memlm` finds its module before memlm is installed."""
SHOWN = {"image/svg+xml": "_repr_svg_", "text/html": "_repr_html_"}


def executed(notebook: Mapping[str, Any], **values: Any) -> dict[str, Any]:
    """The notebook with the outputs of all cells, run in this folder.

    Args:
        values: assignments `name = …` of the notebook that have another value here.
    Raises: whatever a cell raises.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    cells, count = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            outputs = _outputs(_parsed("".join(cell["source"]), values), namespace, count)
            cell = {**cell, "execution_count": count, "outputs": outputs}
        cells.append(cell)
    return {**notebook, "cells": cells}


def _parsed(source: str, values: Mapping[str, Any]) -> ast.Module:
    tree = ast.parse(source)
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name = statement.targets[0].id
            if name in values:
                statement.value = ast.copy_location(ast.Constant(values[name]), statement.value)
    return tree


def _outputs(tree: ast.Module, namespace: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """What a cell prints, and what its last line shows."""
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    out, value = io.StringIO(), None
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        exec(compile(tree, "cell", "exec"), namespace)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), namespace)
    found: list[dict[str, Any]] = []
    if out.getvalue():
        found.append(
            {
                "name": "stdout",
                "output_type": "stream",
                "text": out.getvalue().splitlines(keepends=True),
            }
        )
    if value is not None:
        found.append(
            {
                "data": _shown(value),
                "execution_count": count,
                "metadata": {},
                "output_type": "execute_result",
            }
        )
    return found


def _shown(value: Any) -> dict[str, list[str]]:
    """The richest of its pictures, and its text."""
    rich = next((type for type, method in SHOWN.items() if hasattr(value, method)), None)
    data = {} if rich is None else {rich: getattr(value, SHOWN[rich])()}
    return {
        type: text.splitlines(keepends=True)
        for type, text in {**data, "text/plain": repr(value)}.items()
    }


def main(path: Path) -> None:
    notebook = json.loads(path.read_text("utf-8"))
    sys.path.insert(0, str(TOPLEVEL))
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        os.environ.pop("MEMLM_STORE", None)
        found = executed(notebook)
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
