"""Rows of small grey images, and strips of bar charts."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence
from html import escape

import numpy as np


def image_rows(rows: Sequence[tuple[str, np.ndarray]]) -> str:
    """Rows of grey images, `(count, height, width)` with 0 empty and 1 full ink, each under one name."""
    parts = []
    for i, (name, images) in enumerate(rows):
        first = " first" if i == 0 else ""
        source = base64.b64encode(png(_side_by_side(images))).decode("ascii")
        alt = escape(f"{len(images)} images: {name}", quote=True)
        parts.append(f'<div class="name{first}">{escape(name)}</div>')
        parts.append(
            f'<div class="{first.strip()}"><img alt="{alt}" src="data:image/png;base64,{source}"></div>'
        )
    return f'<div class="card images">{"".join(parts)}</div>'


def bar_strip(
    columns: Sequence[str], rows: Sequence[Sequence[Sequence[float]]], ends: tuple[str, str]
) -> str:
    """A grid of small bar charts, `rows[i][j]` a list of shares; the largest bar of each stands out."""
    heads = "".join(f"<b>{escape(c)}</b>" for c in columns)
    cells = "".join(_bars(cell) for row in rows for cell in row)
    foot = f'<div class="ends"><span>{escape(ends[0])}</span><span>{escape(ends[1])}</span></div>'
    return f'<div class="card"><div class="strip" style="--n:{len(columns)}">{heads}{cells}</div>{foot}</div>'


def _bars(shares: Sequence[float], height: int = 36) -> str:
    top = max(range(len(shares)), key=shares.__getitem__)
    bars = ""
    for i, share in enumerate(shares):
        h = max(round(share * height, 2), 0.6)  # a share of 0 still shows that the item is there
        mark = ' class="top"' if i == top else ""
        bars += f'<rect{mark} x="{i * 6 + 0.5}" y="{height - h:g}" width="5" height="{h:g}"/>'
    return f'<svg viewBox="0 0 {len(shares) * 6} {height}" aria-hidden="true">{bars}</svg>'


def _side_by_side(images: np.ndarray, gap: int = 1, scale: int = 8) -> np.ndarray:
    """One picture `(height, width, 2)` of grey and alpha: black ink on whatever lies behind."""
    count, height, width = images.shape
    ink = np.zeros((count, height, width + gap, 2), dtype=np.uint8)
    ink[:, :, :width, 1] = np.rint(255 * np.clip(images, 0, 1))
    joined = ink.transpose(1, 0, 2, 3).reshape(height, count * (width + gap), 2)[:, :-gap]
    # enlarged here, because not every viewer keeps the edges of pixels when it enlarges
    return joined.repeat(scale, 0).repeat(scale, 1)


def png(pixels: np.ndarray) -> bytes:
    """An 8-bit PNG file of `(height, width, 2)` grey and alpha."""
    height, width, _ = pixels.shape
    raw = b"".join(
        b"\0" + row.tobytes() for row in np.ascontiguousarray(pixels)
    )  # filter 0 on each row

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 4, 0, 0, 0)  # colour type 4: grey with alpha
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(raw, 9))
        + chunk(b"IEND", b"")
    )
