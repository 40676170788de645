"""The log of one run: a line of JSON for every stretch of steps, and TensorBoard if it is installed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from argrad.recipes.files import explained, finite, write_bytes


class Log:
    """`log.jsonl` in a folder; lines after `step` (from before a kill) are taken away first."""

    def __init__(self, folder: Path, step: int, phase: str) -> None:
        self.path = folder / "log.jsonl"
        self._phase = phase
        write_bytes(self.path, b"".join(_lines_until(self.path, step, phase)))
        self._board = _tensorboard(folder, step)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Append one line."""
        line = json.dumps(finite({"phase": self._phase, "step": step, **values}), separators=(",", ":"))
        with explained(self.path, "write"), self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        if self._board is not None:
            for name, value in values.items():
                self._board.add_scalar(f"{self._phase}/{name}", value, step)

    def close(self) -> None:
        """Let go of the files."""
        if self._board is not None:
            self._board.close()


def read_log(folder: Path) -> list[dict[str, Any]]:
    """All whole lines of a run's log."""
    path = folder / "log.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().splitlines(keepends=True) if _whole(line)]


def _lines_until(path: Path, step: int, phase: str) -> list[bytes]:
    """Whole lines of other phases, and those of this one up to `step`."""
    if not path.exists():
        return []
    lines = [line for line in path.read_bytes().splitlines(keepends=True) if _whole(line)]
    read = ((line, json.loads(line)) for line in lines)
    return [line for line, value in read if value["phase"] != phase or value["step"] <= step]


def _whole(line: bytes) -> bool:
    return line.endswith(b"}\n")


def _tensorboard(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter  # pyright: ignore[reportPrivateImportUsage]
    except ImportError:
        return None
    return SummaryWriter(folder / "tensorboard", purge_step=step + 1)
