"""What a figure was measured on."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from argrad.recipes import machine


def facts() -> dict[str, object]:
    """Processor, system, versions, date, load and commit, ready for JSON."""
    return {
        **machine.facts(),
        "load_average": [round(x, 2) for x in os.getloadavg()],
        "commit": _git("rev-parse", "--short=12", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain", "--", "src")),
    }


def _git(*args: str) -> str:
    try:
        run = subprocess.run(
            ["git", *args], cwd=Path(__file__).parent.parent, capture_output=True, text=True
        )
    except FileNotFoundError:
        return "unknown"
    return run.stdout.strip() if run.returncode == 0 else "unknown"
