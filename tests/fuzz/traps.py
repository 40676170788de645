"""What a fuzz run must notice, on purpose; `--traps` calls these instead of argrad."""

from __future__ import annotations

import os
import time
from typing import Any

import torch

from fuzz.inputs import Draw


def _hang(d: Draw) -> Any:
    time.sleep(1000)


def _crash(d: Draw) -> Any:
    os._exit(7)


def _nan(d: Draw) -> Any:
    return {"loss": torch.tensor([1.0, float("nan")])}


def _nan_gradient(d: Draw) -> Any:
    x = torch.zeros(2, requires_grad=True)
    d.leaves.append(x)
    return (x * x).sum().sqrt()


def _error(d: Draw) -> Any:
    raise IndexError("index 5 is out of bounds")


def _layout(d: Draw) -> Any:
    """Forgets the strides."""
    return torch.zeros(2) if d.plain else torch.ones(2)


def _fine(d: Draw) -> Any:
    return torch.zeros(2)


TRAPS = {
    "hang": _hang,
    "fine": _fine,
    "crash": _crash,
    "nan": _nan,
    "gradient": _nan_gradient,
    "layout": _layout,  # number 5: each fifth call is made again with other strides
    "error": _error,
}
