r"""Tensors to the CPU kernels that solve one row at a time, and their complaints to sentences."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from argrad._checks import bad_values, check_allowed, negative_size
from argrad._kernels.threads import run_rows


@functools.cache
def _kernels(module: str) -> ModuleType:
    """The compiled kernels, imported (with numba) on first use."""
    return importlib.import_module(f"argrad._kernels.{module}")


def _rows(x: Tensor) -> np.ndarray:
    """`(*batch, n)` as a matrix; shares memory if contiguous, as every output is."""
    x = x.detach()
    return (x if x.dim() == 2 else x.reshape(-1, x.shape[-1])).contiguous().numpy()


def solve_rows(
    module: str, call: str, scores: Tensor, k: Tensor | None, size: int, *args: object
) -> None:
    """`solve` of `_kernels/{module}.py` over all rows; tensors among `args` are outputs.

    `k` is None, and then `size` is meant, or int64 of shape `(*batch, 1)`.
    """
    if scores.numel() == 0:
        return
    kernels, flat = _kernels(module), _rows(scores)
    sizes = np.array((size,)) if k is None else _rows(k)[:, 0]
    outs = [_rows(x) if isinstance(x, Tensor) else x for x in args]
    status = run_rows(kernels.solve, len(flat), flat.size, flat, sizes, *outs)
    if status & kernels.BAD:
        raise bad_values(call, "scores", scores)
    if status:
        check_allowed(call, size if k is None else k, scores)
        raise negative_size(call, torch.as_tensor(size) if k is None else k)


def pull_rows(module: str, *args: object) -> None:
    """`pull_back` of `_kernels/{module}.py` over all rows; the first argument is a tensor."""
    flat = [_rows(x) if isinstance(x, Tensor) else x for x in args]
    first = flat[0]
    if isinstance(first, np.ndarray) and first.size:
        run_rows(_kernels(module).pull_back, len(first), first.size, *flat)


def in_front(size: int, dims: tuple[int | None, ...], args: tuple[Any, ...]) -> list[Any]:
    """Arguments of an operator, the dimension that `vmap` maps over made the first of each tensor."""
    return [
        x if not isinstance(x, Tensor) else x.expand(size, *x.shape) if d is None else x.movedim(d, 0)
        for x, d in zip(args, dims, strict=True)
    ]
