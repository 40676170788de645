"""The IDX format of MNIST: a big-endian header and bytes, often gzipped."""

from __future__ import annotations

import gzip
import hashlib
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from argrad.recipes.data.places import DataError

_UBYTE = 0x08


def read_idx(path: Path, md5: str | None = None) -> np.ndarray:
    """The array in an IDX file of unsigned bytes, gzipped or not.

    Args:
        path: the file.
        md5: of the unpacked bytes; None to accept any.
    """
    data = _unpacked(path)
    if len(data) < 4 or data[:2] != b"\0\0":
        raise DataError(f"{path} is not an IDX file: it does not begin with two zero bytes. {_AGAIN}")
    kind, dims = data[2], data[3]
    if kind != _UBYTE:
        raise DataError(f"{path} holds IDX type 0x{kind:02x}; expected unsigned bytes (0x08). {_AGAIN}")
    header = 4 + 4 * dims
    if len(data) < header:
        raise DataError(f"{path} ends inside its header. {_AGAIN}")
    shape = struct.unpack(f">{dims}I", data[4:header])
    if len(data) - header != math.prod(shape):
        raise DataError(
            f"{path} says {' x '.join(map(str, shape))} = {math.prod(shape)} bytes but has {len(data) - header}: "
            f"it is truncated or damaged. {_AGAIN}"
        )
    if md5 is not None and hashlib.md5(data, usedforsecurity=False).hexdigest() != md5:
        raise DataError(
            f"{path} is a whole IDX file, but not the one of that name (its md5 differs). {_AGAIN}"
        )
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


_AGAIN = "Delete it and run again to download it, or copy it anew."


def _unpacked(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is damaged or truncated ({error}). {_AGAIN}") from None
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}. {_AGAIN}") from None
