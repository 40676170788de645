"""Rows of grey images that a cell leaves in its folder for the report."""

from __future__ import annotations

import io
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from argrad.recipes.bench import CellResult, Run
from argrad.recipes.files import write_bytes

_NAME = "images.npy"


def save(run: Run, rows: Tensor, side: int) -> None:
    """Keep rows of images, shape `(rows, count, side * side)`, values from 0 to 1."""
    buffer = io.BytesIO()
    np.save(buffer, rows.unflatten(-1, (side, side)).numpy().astype(np.float16))
    write_bytes(run.folder / _NAME, buffer.getvalue())


def of(result: CellResult) -> Sequence[np.ndarray]:
    """The rows of the first seed, each `(count, side, side)`; none if they are not there."""
    path = result.jobs[0].folder / _NAME if result.jobs else None
    return list(np.load(path)) if path is not None and path.is_file() else []
