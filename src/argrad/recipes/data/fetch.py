"""Downloads: into the cache, checked, and whole or absent."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from argrad.recipes.data import places
from argrad.recipes.data.places import DataError
from argrad.recipes.files import explained, sweep
from argrad.recipes.locks import alone

_T = TypeVar("_T")
TIMEOUT = 30  # seconds without a byte
_PATIENCE = 900.0  # seconds for another process to finish the same download
_ADVICE = "Set ARGRAD_CACHE to a folder that can be written to and has space."


def fetch(name: str, urls: Sequence[str], file: str, read: Callable[[Path], _T]) -> _T:
    """What `read` makes of `file` of the data set `name`, downloaded unless it is in the cache already.

    Args:
        name: folder in the cache.
        urls: folders that have the file; the first one whose copy is good is taken.
        file: its name there.
        read: raises a `DataError` if the file is not what it should be. It is asked before the file gets its
            name, so a wrong or truncated one never stays; a mirror may have packed it anew, so the bytes of the file
            itself are not compared.
    """
    folder = places.cache() / name
    with explained(folder, "make", _ADVICE):
        folder.mkdir(parents=True, exist_ok=True)
    busy = f"another process is downloading to {folder}. Wait for it."
    with alone(folder, busy, patience=_PATIENCE, advice=_ADVICE):  # several workers start at once
        sweep(folder)
        if (folder / file).exists():
            try:
                return read(folder / file)
            except DataError:
                pass  # damaged since it was downloaded; it is replaced below
        return _from_first(name, urls, folder / file, read)


def _from_first(name: str, urls: Sequence[str], target: Path, read: Callable[[Path], _T]) -> _T:
    part = target.with_name(f".argrad-{os.getpid()}.part")
    reasons = []
    for url in urls:
        try:
            _download(f"{url}/{target.name}", part)
            value = read(part)
            with explained(target, "write", _ADVICE):
                part.replace(target)
            return value
        except DataError as error:
            reasons.append(f"{url}: {str(error).replace(str(part), 'what came')}")
        except OSError as error:  # of the network or the disk; requests' errors are among them
            reasons.append(f"{url}: {_reason(error)}")
        finally:
            part.unlink(missing_ok=True)
    raise DataError(
        f"{target.name} of {name!r} is not here and could not be downloaded ({'; '.join(reasons)}). Put the files of "
        f"{name} into FOLDER/{name} and set ARGRAD_DATA=FOLDER, or take data that needs no download: --data digits."
    )


def _download(url: str, part: Path) -> None:
    import pooch

    pooch.HTTPDownloader(progressbar=False, timeout=TIMEOUT)(url, str(part), None)


def _reason(error: OSError) -> str:
    from requests import exceptions

    if isinstance(error, exceptions.HTTPError) and error.response is not None:
        return f"HTTP {error.response.status_code}"
    if isinstance(error, exceptions.Timeout):
        return f"no answer within {TIMEOUT} s"
    if isinstance(error, exceptions.ChunkedEncodingError):
        return "the connection broke off"
    if isinstance(error, exceptions.ConnectionError):
        return "no connection"
    return error.strerror or str(error).partition("\n")[0]
