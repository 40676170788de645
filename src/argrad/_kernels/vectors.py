"""Loops over float64 vectors, one each, so that LLVM vectorises them.

Numba takes seconds to compile `out[:] = x` (it brings the formatting of broadcasting errors along); these
take none. Reductions may reorder (`_REDUCE`), nothing else may.
"""

from __future__ import annotations

import numpy as np
from numba import njit

_REDUCE = {"reassoc", "nsz", "nnan"}  # lets LLVM sum and maximise in vector lanes


@njit(error_model="numpy", forceinline=True)
def exp_64(x):
    """exp(x) for x <= 0 within 2 ulp, 0 below -708.4: branch-free, so that loops vectorise."""
    x = max(x, -709.0)
    shifted = x * 1.4426950408889634 + 6755399441055744.0  # the low bits now hold round(x / log 2)
    k = shifted - 6755399441055744.0
    t = x - k * 0.693147180369123816490 - k * 1.90821492927058770002e-10
    p = 1.0 / 6227020800.0  # Taylor to t^13: error 4e-18 for |t| <= log(2) / 2
    p = p * t + 1.0 / 479001600.0
    p = p * t + 1.0 / 39916800.0
    p = p * t + 1.0 / 3628800.0
    p = p * t + 1.0 / 362880.0
    p = p * t + 1.0 / 40320.0
    p = p * t + 1.0 / 5040.0
    p = p * t + 1.0 / 720.0
    p = p * t + 1.0 / 120.0
    p = p * t + 1.0 / 24.0
    p = p * t + 1.0 / 6.0
    p = p * t + 0.5
    p = p * t + 1.0
    p = p * t + 1.0
    exponent = np.int64((np.float64(shifted).view(np.int64) + 1023) << 52)
    return p * exponent.view(np.float64)


@njit(error_model="numpy", fastmath=_REDUCE)
def max_of(x):
    """The largest; -inf if there is none."""
    peak = -np.inf
    for j in range(x.shape[0]):
        peak = max(peak, x[j])
    return peak


@njit(error_model="numpy", fastmath=_REDUCE)
def sum_of(x):
    """The sum."""
    total = 0.0
    for j in range(x.shape[0]):
        total += x[j]
    return total


@njit(error_model="numpy", fastmath=_REDUCE)
def dot_difference(a, b, g):
    """<a - b, g>."""
    total = 0.0
    for j in range(g.shape[0]):
        total += (a[j] - b[j]) * g[j]
    return total


@njit(error_model="numpy")
def subtract(out, a, b):
    """out = a - b."""
    for j in range(out.shape[0]):
        out[j] = a[j] - b[j]


@njit(error_model="numpy")
def subtract_multiple(y, factor, x):
    """y -= factor * x."""
    for j in range(y.shape[0]):
        y[j] -= factor * x[j]


@njit(error_model="numpy")
def exp_minus(x, peak):
    """x = exp(x - peak), for peak = max x."""
    for j in range(x.shape[0]):
        x[j] = exp_64(x[j] - peak)


@njit(error_model="numpy")
def copy(out, x):
    """out = x."""
    for j in range(out.shape[0]):
        out[j] = x[j]


@njit(error_model="numpy")
def fill(x, value):
    """Every entry becomes `value`."""
    for j in range(x.shape[0]):
        x[j] = value


@njit(error_model="numpy")
def scale_matrix(out, w, factor):
    """out = factor * w."""
    for i in range(w.shape[0]):
        for j in range(w.shape[1]):
            out[i, j] = factor * w[i, j]


@njit(error_model="numpy")
def times(x, factor):
    """x *= factor."""
    for j in range(x.shape[0]):
        x[j] *= factor
