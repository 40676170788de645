"""One process at a time in a folder."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from argrad.recipes.files import GO_ON, StorageError, explained

_POLL = 0.1  # seconds between two tries


@contextlib.contextmanager
def alone(folder: Path, busy: str, *, patience: float = 0.0, advice: str = GO_ON) -> Iterator[None]:
    """Hold the folder against other processes; the system lets go of it when this one ends, however it ends.

    Args:
        folder: which must exist; a file `lock` stays in it.
        busy: the sentence for when another process holds it.
        patience: seconds to wait for that process.
        advice: what to do when the folder cannot be written to.
    """
    with explained(folder, "lock", advice):
        file = (folder / "lock").open("w")
    with file:
        deadline = time.monotonic() + patience
        while not _locked(file, folder, advice):
            if time.monotonic() > deadline:
                raise StorageError(busy)
            time.sleep(_POLL)
        yield


def _locked(file: IO[str], folder: Path, advice: str) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows: two runs of one command at the same time are then not noticed
        return True
    with explained(folder, "lock", advice):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
