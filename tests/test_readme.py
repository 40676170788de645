"""The first block of the README runs as printed."""

from __future__ import annotations

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
