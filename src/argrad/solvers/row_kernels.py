r"""Tensors to the CPU kernels that solve one row at a time, and their complaints to sentences."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType

import numpy as np
from torch import Tensor

from argrad._checks import bad_values, check_allowed, is_transformed
from argrad._kernels.threads import run_rows
from argrad.solvers.order import Size


def on_cpu(scores: Tensor) -> bool:
    """Whether a kernel may be used: on the CPU, in eager mode, outside transforms."""
    return scores.is_cpu and not is_transformed()


@functools.cache
def _kernels(module: str) -> ModuleType:
    """The compiled kernels, imported (with numba) on first use."""
    return importlib.import_module(f"argrad._kernels.{module}")


def _rows(x: Tensor) -> np.ndarray:
    """`(*batch, n)` as a matrix; shares memory if contiguous, as every output is."""
    x = x.detach()
    return (x if x.dim() == 2 else x.reshape(-1, x.shape[-1])).contiguous().numpy()


def run(module: str, call: str, scores: Tensor, k: Size, *args: object) -> None:
    """`solve` of `_kernels/{module}.py` over all rows; tensors among `args` are outputs."""
    if scores.numel() == 0:
        return
    kernels, flat = _kernels(module), _rows(scores)
    sizes = np.array((k,)) if isinstance(k, int) else _rows(k.expand(*scores.shape[:-1], 1))[:, 0]
    outs = [_rows(x) if isinstance(x, Tensor) else x for x in args]
    status = run_rows(kernels.solve, len(flat), flat.size, flat, sizes, *outs)
    if status & kernels.BAD:
        raise bad_values(call, "scores", scores)
    if status:
        check_allowed(call, k, scores)


def pull(module: str, *args: object) -> None:
    """`pull_back` of `_kernels/{module}.py` over all rows; the first argument is a tensor."""
    flat = [_rows(x) if isinstance(x, Tensor) else x for x in args]
    first = flat[0]
    if isinstance(first, np.ndarray) and first.size:
        run_rows(_kernels(module).pull_back, len(first), first.size, *flat)
