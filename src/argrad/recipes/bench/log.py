"""The log of one run: a line of JSON for every stretch of steps, and TensorBoard if it is installed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from argrad.recipes.files import append_line, explained, finite, write_bytes

_ABOUT = ("phase", "step", "of", "seconds")  # what a line says besides the logged values


class Log:
    """`log.jsonl` in a folder; lines after `step` (from before a kill) are taken away first."""

    def __init__(self, folder: Path, phase: str, step: int, total: int) -> None:
        self.path = folder / "log.jsonl"
        self._phase, self._total = phase, total
        write_bytes(self.path, b"".join(_lines_until(self.path, step, phase)))
        with explained(folder, "write"):
            self._board = _tensorboard(folder, step)

    def write(self, step: int, values: Mapping[str, float], seconds: float) -> None:
        """Append one line."""
        line = {"phase": self._phase, "step": step, "of": self._total, **values}
        line["seconds"] = round(seconds, 2)
        append_line(self.path, json.dumps(finite(line), separators=(",", ":")))
        if self._board is not None:
            with explained(self.path.parent / "tensorboard", "write"):
                for name, value in values.items():
                    self._board.add_scalar(f"{self._phase}/{name}", value, step)

    def close(self) -> None:
        """Let go of the files."""
        if self._board is not None:
            self._board.close()


class NoLog(Log):
    """The log of a rank that leaves writing to rank 0."""

    def __init__(self, folder: Path, phase: str, step: int, total: int) -> None:
        pass

    def write(self, step: int, values: Mapping[str, float], seconds: float) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


def read_log(folder: Path) -> list[dict[str, Any]]:
    """All whole lines of a run's log."""
    return [json.loads(line) for line in _whole_lines(folder / "log.jsonl")]


def last_line(folder: Path) -> dict[str, Any] | None:
    """The newest whole line, without reading all of a long log."""
    path = folder / "log.jsonl"
    if not path.exists():
        return None
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - 4096))  # a line is shorter
        lines = [line for line in file.read().splitlines(keepends=True) if _is_whole(line)]
    return json.loads(lines[-1]) if lines else None


def first_value(line: Mapping[str, Any]) -> float | None:
    """The first logged value of a line that is a number."""
    values = (v for k, v in line.items() if k not in _ABOUT and v is not None)
    return next(values, None)


def _lines_until(path: Path, step: int, phase: str) -> list[bytes]:
    """Whole lines of other phases, and those of this one up to `step`."""
    read = ((line, json.loads(line)) for line in _whole_lines(path))
    return [line for line, value in read if value["phase"] != phase or value["step"] <= step]


def _whole_lines(path: Path) -> list[bytes]:
    if not path.exists():
        return []
    with explained(path, "read"):
        return [line for line in path.read_bytes().splitlines(keepends=True) if _is_whole(line)]


def _is_whole(line: bytes) -> bool:
    return line.startswith(b"{") and line.endswith(b"}\n")


def _tensorboard(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter  # pyright: ignore[reportPrivateImportUsage]
    except ImportError:
        return None
    return SummaryWriter(folder / "tensorboard", purge_step=step + 1)
