"""Peak memory as a clock: a line whose `clock` is a `Peak` compares megabytes instead of seconds."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

SELF = Path("/proc/self")
LIBC = ctypes.CDLL(None)


class Peak:
    """A clock that moves on by the megabytes that a step needed on top of what the process had before."""

    def __init__(self) -> None:
        self.megabytes = 0.0

    def __call__(self) -> float:
        return self.megabytes

    def of(self, step: Callable[[], Any]) -> Callable[[], Any]:
        """The same step, which moves the clock."""

        def measured() -> Any:
            LIBC.malloc_trim(
                0
            )  # what was freed goes back to the system, or it would hide what is needed
            (SELF / "clear_refs").write_text("5")  # Linux: the peak starts again from now
            before = status("VmRSS")
            result = step()
            self.megabytes += max(status("VmHWM") - before, 0.0)
            return result

        return measured


def status(name: str) -> float:
    """A line of /proc/self/status in megabytes: VmRSS is the memory now, VmHWM the most so far."""
    lines = (SELF / "status").read_text().splitlines()
    (line,) = (x for x in lines if x.startswith(name))
    return int(line.split()[1]) / 1024
