"""Executes docs/notebook.ipynb in place, in a folder with the reports of the demo: `python tools/notebook.py`.

The notebook is kept with its outputs, so that GitHub, Jupyter and the site show it as it is. Nothing of Jupyter is needed: a
cell is run as Python, and its last expression is shown, as notebooks do.
"""

import ast
import contextlib
import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).resolve().parents[1] / "docs" / "notebook.ipynb"


def read_notebook() -> dict[str, Any]:
    """The notebook as JSON."""
    content: dict[str, Any] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    return content


def execute(notebook: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The notebook with the outputs of its cells, which are run in a folder, one after the other."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, number = [], 0
    with contextlib.chdir(folder) if hasattr(contextlib, "chdir") else _in(folder):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                number += 1
                outputs = _outputs("".join(cell["source"]), names, number)
                cell = {**cell, "execution_count": number, "outputs": outputs}
            cells.append(cell)
    return {**notebook, "cells": cells}


@contextlib.contextmanager
def _in(folder: Path) -> Any:
    # Python 3.10 has no contextlib.chdir.
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _outputs(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """What a cell prints, and the value of its last line if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if text := printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(keepends=True)
        outputs.append({"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data})
    return outputs


def as_text(notebook: dict[str, Any]) -> str:
    """A notebook as Jupyter writes it."""
    return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def main() -> None:
    """Execute the notebook with the demo as `nsys2prv demo` writes it."""
    from nsys2prv.demo import write_reports
    from nsys2prv.demo.run_demo import cluster_of_demo

    with tempfile.TemporaryDirectory() as folder:
        (reports := Path(folder) / "reports").mkdir()
        write_reports(reports, cluster_of_demo())
        NOTEBOOK.write_text(as_text(execute(read_notebook(), Path(folder))), encoding="utf-8")


if __name__ == "__main__":
    main()
