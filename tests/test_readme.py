"""The first block of the README runs as printed."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"


def test_the_first_block_runs(tmp_path: Path) -> None:
    block = re.search(
        r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert block is not None, "README.md has no python block"
    lines = [line for line in block[1].splitlines() if line.strip()]
    assert len(lines) <= 20, "the first block fits on the first screen"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block[1]],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert not list(tmp_path.iterdir()), "it leaves no files behind"


def test_its_tables_are_those_of_the_files() -> None:
    path = README.parent / "docs" / "readme.py"
    spec = importlib.util.spec_from_file_location("readme", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = README.read_text(encoding="utf-8")
    assert module.filled(text) == text, "run `python docs/readme.py`"
    assert "| `argrad reproduce vae` |" in text
    assert "beside `F.gumbel_softmax`" in text


def test_what_matters_is_on_the_first_screen() -> None:
    """The picture, the code, how to install it, where to go: before anyone scrolls far."""
    first = "\n".join(README.read_text(encoding="utf-8").splitlines()[:45])
    for thing in ("<picture>", "```python", "pip install", "make demo", "docs/tour.md", "docs/gallery"):
        assert thing in first, thing
