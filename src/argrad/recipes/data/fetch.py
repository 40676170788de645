"""Downloads: into the cache, checked, and whole or absent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from argrad.recipes.data import places
from argrad.recipes.data.places import DataError
from argrad.recipes.files import write_bytes

TIMEOUT = 30  # seconds without a byte


def fetch(name: str, urls: Sequence[str], file: str) -> Path:
    """Download `file` of the data set `name` from the first of `urls` (folders) that has it.

    The caller checks what the file holds (a mirror may have packed it anew, so a hash of the unpacked bytes is
    what counts) and calls `forget` if it is wrong.
    """
    target = places.cache() / name / file
    if target.exists():
        return target
    reasons = []
    for url in urls:
        try:
            data = _download(f"{url}/{file}")
        except Exception as error:  # whatever the network can do; every reason is shown
            reasons.append(f"{url}: {_reason(error)}")
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(target, data)
        return target
    raise DataError(
        f"{file} of {name!r} is not here and could not be downloaded ({'; '.join(reasons)}). Put the files of {name} "
        f"into FOLDER/{name} and set ARGRAD_DATA=FOLDER, or take data that needs no download: --data digits."
    )


def forget(path: Path) -> None:
    """Remove a download that turned out wrong; files outside the cache are not touched."""
    if places.cache().resolve() in path.resolve().parents:
        path.unlink(missing_ok=True)


def _download(url: str) -> bytes:
    import tempfile

    import pooch

    get = pooch.HTTPDownloader(progressbar=False, timeout=TIMEOUT)
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / "part"
        get(url, str(part), None)
        return part.read_bytes()


def _reason(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return text if len(text) < 160 else text[:157] + "..."
