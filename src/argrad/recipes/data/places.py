"""Where data may be: `ARGRAD_DATA`, `../shared/data`, what Debian installs, the cache that downloads go to."""

from __future__ import annotations

import os
from pathlib import Path

from argrad._errors import ArgradError


class DataError(ArgradError, ValueError):
    """A data file that is missing, incomplete or not what its name says; the message says what to do."""


def cache() -> Path:
    """Where downloads go: the user's cache folder, or `ARGRAD_CACHE`."""
    if set_ := os.environ.get("ARGRAD_CACHE"):
        return Path(set_).expanduser()
    import pooch

    return Path(pooch.os_cache("argrad"))


def folders() -> list[Path]:
    """The folders in which data sets are looked for, in order."""
    named = os.environ.get("ARGRAD_DATA")
    if named is not None and not Path(named).expanduser().is_dir():
        raise DataError(f"ARGRAD_DATA names {named}, which is not a folder. Correct it or unset it.")
    first = [Path(named).expanduser()] if named else []
    return [*first, Path("../shared/data"), Path("/usr/share/datasets"), cache()]  # the third: Debian's


def find(name: str, *files: str) -> Path | None:
    """The first folder `PLACE/name` that has one of `files`, or None."""
    for place in folders():
        folder = place / name
        if any((folder / file).is_file() for file in files):
            return folder
    return None
