"""Files that are whole or absent, and a sentence when the disk says no."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from argrad._errors import ArgradError, InputError


class StorageError(ArgradError, OSError):
    """A file could not be read or written; what was written before is still whole."""


@contextlib.contextmanager
def explained(path: Path, verb: str) -> Iterator[None]:
    """Turn an `OSError` into a sentence that names the file and says what to do."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise StorageError(
            f"cannot {verb} {path}: {reason}. What was saved before is whole: free some space or choose another "
            "--out, then run the same command to go on from there."
        ) from None


def write_bytes(path: Path, data: bytes) -> None:
    """Write the whole file or leave the old one: a killed process or a full disk never leaves half of it."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with explained(path, "write"):
        try:
            with part.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    """Write JSON, whole or not at all; numbers that are not finite become null."""
    write_text(path, json.dumps(finite(value), indent=1, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """What `write_json` wrote, or None if there is no such file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StorageError(
            f"cannot read {path}: {error}. Delete it, and its part is done anew."
        ) from None


def finite(value: Any) -> Any:
    """The same value with NaN and infinities replaced by None, which JSON can say."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the folder against other processes; the system lets go of it when this one ends, however it ends."""
    try:
        import fcntl
    except ImportError:  # Windows: two runs of one command at the same time are then not noticed
        yield
        return
    with explained(folder, "write"), (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(
                f"another process is training the cell in {folder}. Wait for it, or choose another --out."
            ) from None
        yield


def make_folder(path: Path, flag: str = "--out") -> Path:
    """Make the folder if it is missing and see that files can be written there."""
    try:
        path = path.expanduser().resolve()
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".argrad-{os.getpid()}.part"
        probe.touch()
        probe.unlink()
    except (OSError, RuntimeError) as error:  # RuntimeError: `~nobody`, a loop of links
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"`{flag} {path}` cannot be used as a folder: {reason}. Choose another place."
        ) from None
    return path
