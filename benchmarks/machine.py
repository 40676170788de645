"""What a figure was measured on."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import torch


def facts() -> dict[str, object]:
    """Processor, system, versions, date, load and commit, ready for JSON."""
    versions = {name: metadata.version(name) for name in ("torch", "numpy", "scipy", "numba")}
    return {
        "cpu": _cpu(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "os": platform.platform(),
        "python": platform.python_version(),
        **versions,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "load_average": [round(x, 2) for x in os.getloadavg()],
        "commit": _git("rev-parse", "--short=12", "HEAD"),
        "uncommitted_changes": bool(_git("status", "--porcelain", "--", "src")),
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _git(*args: str) -> str:
    try:
        run = subprocess.run(
            ["git", *args], cwd=Path(__file__).parent.parent, capture_output=True, text=True
        )
    except FileNotFoundError:
        return "unknown"
    return run.stdout.strip() if run.returncode == 0 else "unknown"
