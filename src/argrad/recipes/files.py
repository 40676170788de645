"""Files that are whole or absent, places that can be written to, and a sentence when the disk says no."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from argrad._errors import ArgradError, InputError

GO_ON = (
    "What was saved before is whole: free some space or choose another --out, then run the same command to go on "
    "from there."
)


class StorageError(ArgradError, OSError):
    """A file could not be read or written; what was written before is still whole."""


@contextlib.contextmanager
def explained(path: Path, verb: str, advice: str = GO_ON) -> Iterator[None]:
    """Turn an `OSError` into a sentence that names the file and says what to do."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"cannot {verb} {path}: {_reason(error)}. {advice}") from None


# ---- writing ---------------------------------------------------------------------------------------


def write_bytes(path: Path, data: bytes, advice: str = GO_ON) -> None:
    """Write the whole file or leave the old one: a killed process or a full disk never leaves half of it."""
    part = _beside(path)
    with explained(path, "write", advice):
        try:
            with part.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def write_text(path: Path, text: str, advice: str = GO_ON) -> None:
    """Write a text file, whole or not at all."""
    write_bytes(path, text.encode(), advice)


def write_json(path: Path, value: Any) -> None:
    """Write JSON, whole or not at all; numbers that are not finite become null."""
    write_text(path, json.dumps(finite(value), indent=1, allow_nan=False) + "\n")


def append_line(path: Path, text: str) -> None:
    """Add a line to a file; when it does not fit on the disk, none of it stays."""
    data = f"{text}\n".encode()
    with explained(path, "write"), path.open("ab", buffering=0) as file:
        before = file.seek(0, os.SEEK_END)
        try:
            if file.write(data) != len(data):  # how a system says that the rest did not fit
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except BaseException:
            file.truncate(before)
            raise


def sweep(folder: Path) -> None:
    """Remove what processes left that were killed in the middle of `write_bytes`."""
    with explained(folder, "tidy"):
        for part in folder.glob(".argrad-*.part"):
            if not _is_anothers(part):
                part.unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    return path.with_name(f".argrad-{os.getpid()}.part")


def _is_anothers(part: Path) -> bool:
    """Whether a process that is running now, and is not this one, may be writing it."""
    pid = part.name.removeprefix(".argrad-").removesuffix(".part")
    if not pid.isdecimal() or int(pid) == os.getpid() or os.name == "nt":  # where signal 0 would end it
        return False
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


# ---- reading ---------------------------------------------------------------------------------------


def read_json(path: Path) -> Any:
    """What `write_json` wrote, or None if there is no such file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StorageError(
            f"cannot read {path}: {_reason(error)}. Delete it, and its part is done anew."
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


# ---- places ----------------------------------------------------------------------------------------


def make_folder(path: Path, flag: str = "--out") -> Path:
    """Make the folder if it is missing and see that files can be written there."""
    with _usable(flag, path, "used as a folder"):
        path = path.expanduser().resolve()
        path.mkdir(parents=True, exist_ok=True)
        _try_to_write(path / "any")
    return path


def check_writable(flag: str, path: Path) -> Path:
    """The resolved path, or a sentence why no file can be written there."""
    with _usable(flag, path, "written"):
        path = path.expanduser().resolve()
        if path.exists() and not path.is_file():
            kind = "a folder" if path.is_dir() else "not a regular file"
            raise InputError(
                f"`{flag} {path}` is {kind}. Give the name of a file, such as report.html."
            )
        if not path.parent.is_dir():
            raise InputError(
                f"`{flag} {path}`: the folder {path.parent} does not exist. Make it first."
            )
        _try_to_write(path)
    return path


@contextlib.contextmanager
def _usable(flag: str, path: Path, how: str) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError) as error:  # RuntimeError: `~nobody`, a loop of links
        raise InputError(
            f"`{flag} {path}` cannot be {how}: {_reason(error)}. Choose another place."
        ) from None


def _try_to_write(path: Path) -> None:
    probe = _beside(path)
    probe.touch()
    probe.unlink(missing_ok=True)  # another process may tidy up


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
