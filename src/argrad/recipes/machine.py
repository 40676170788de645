"""What a number was measured on."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import torch

import argrad


def facts() -> dict[str, object]:
    """Processor, system, versions and date, ready for JSON."""
    versions = {name: metadata.version(name) for name in ("torch", "numpy", "scipy", "numba")}
    return {
        "cpu": processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "os": platform.platform(),
        "python": platform.python_version(),
        "argrad": argrad.__version__,
        **versions,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def described() -> dict[str, str]:
    """The same in two lines, for a page."""
    f = facts()
    return {
        "Machine": f"{f['cpu']}, {f['cores']} cores, {platform.system()}",
        "Versions": f"argrad {f['argrad']}, torch {f['torch']}, Python {f['python']}",
    }


def processor() -> str:
    """The name of the CPU as far as the system tells."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8", errors="replace").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
