"""Where data may be: `ARGRAD_DATA`, `../shared/data`, what Debian installs, the cache that downloads go to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from argrad._errors import ArgradError


class DataError(ArgradError, ValueError):
    """A data file that is missing, incomplete or not what its name says; the message says what to do."""


def cache() -> Path:
    """Where downloads go: `ARGRAD_CACHE`, or the user's cache folder."""
    if set_ := os.environ.get("ARGRAD_CACHE"):
        return Path(set_).expanduser()
    try:
        import pooch
    except ImportError:
        raise DataError(
            'downloads need pooch, which is not installed. Run: pip install "argrad[recipes]", or set ARGRAD_DATA to '
            "a folder that has the data."
        ) from None
    return Path(pooch.os_cache("argrad"))


def folders() -> Iterator[Path]:
    """The folders in which data sets are looked for, in order."""
    if named := os.environ.get("ARGRAD_DATA"):
        place = Path(named).expanduser()
        if not place.is_dir():
            raise DataError(
                f"ARGRAD_DATA names {named}, which is not a folder. Correct it or unset it."
            )
        yield place
    yield Path("../shared/data")
    yield Path("/usr/share/datasets")  # Debian's
    yield cache()


def find(name: str, *files: str) -> Path | None:
    """The first folder `PLACE/name` that has one of `files`, or None."""
    for place in folders():
        folder = place / name
        if any((folder / file).is_file() for file in files):
            return folder
    return None
