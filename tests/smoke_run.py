"""A smoke run of a recipe as a person starts it: its results, and its page."""

from __future__ import annotations

import json
from pathlib import Path

from argrad.cli import main
from argrad.recipes import find


def smoke(name: str, folder: Path, *options: str) -> tuple[dict, str]:
    """Run it in `folder`; every number stays inside its band, and every cell has one."""
    assert main(["reproduce", name, "--smoke", "--quiet", *options, "--out", str(folder)]) == 0
    done = folder / name
    results = json.loads((done / "results.json").read_text())
    if not options:
        recipe = find(name)
        assert len(results["cells"]) == len(recipe.cells(recipe.smoke))
    page = (done / "report.html").read_text("utf-8")
    assert "<html" in page
    return results, page
