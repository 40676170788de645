"""Run the notebooks and keep what they show: `.venv/bin/python notebooks/run.py [NAME ...]`.

Each `NAME.py` beside this file is the source, in cells: `# %% [markdown]` begins words, `# %%` begins code. The
`NAME.ipynb` made from it holds the outputs of a fresh kernel.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
NAMES = ("gumbel_softmax", "which_estimator", "latent_trees")


def cells(name: str) -> list[tuple[str, str]]:
    """(kind, text) of every cell of a source."""
    source = (HERE / f"{name}.py").read_text(encoding="utf-8")
    found = []
    for block in re.split(r"^# %%", source, flags=re.MULTILINE)[1:]:
        head, _, text = block.partition("\n")
        words = "markdown" in head
        if words:
            text = re.sub(r"^# ?", "", text, flags=re.MULTILINE)
        found.append(("markdown" if words else "code", text.strip()))
    return found


def notebook(name: str) -> Any:
    """The notebook of a source, without outputs."""
    made = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    )
    for place, (kind, text) in enumerate(cells(name)):
        new = nbformat.v4.new_markdown_cell if kind == "markdown" else nbformat.v4.new_code_cell
        cell = new(text)
        cell["id"] = f"{name}-{place}"  # the same each time
        made.cells.append(cell)
    return made


def executed(name: str) -> Any:
    """The notebook with the outputs of a fresh kernel."""
    made = notebook(name)
    NotebookClient(made, timeout=600, kernel_name="python3").execute()
    for cell in made.cells:
        cell.metadata.pop("execution", None)  # times of day
    return made


def main(names: list[str]) -> None:
    for name in names or NAMES:
        start = time.perf_counter()
        nbformat.write(executed(name), HERE / f"{name}.ipynb")
        size = (HERE / f"{name}.ipynb").stat().st_size
        print(f"{name:20}{time.perf_counter() - start:6.1f} s{size / 1024:8.0f} kB")


if __name__ == "__main__":
    main(sys.argv[1:])
