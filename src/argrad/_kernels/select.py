r"""Order statistics of one row by vectorised counting. float32 and float64."""

from __future__ import annotations

import numpy as np
from numba import njit

SUM = {"reassoc", "nsz"}  # lets LLVM add in vector lanes
EXTREME = {"reassoc", "nsz", "nnan"}  # and compare: only where NaN has been ruled out
_MAX_COUNTS = 40  # then the values are closer together than 2^-40 of their range, and are sorted


@njit(error_model="numpy", cache=True, fastmath=EXTREME)
def maximum(x):
    peak = x[0]
    for j in range(x.shape[0]):
        peak = max(peak, x[j])
    return peak


@njit(error_model="numpy", cache=True)
def count_bad(x):
    """How many entries are NaN or +inf."""
    bad = 0
    for j in range(x.shape[0]):
        bad += not (x[j] < np.inf)
    return bad


@njit(error_model="numpy", cache=True, fastmath=SUM)
def count(x, least, zero, one):
    """How many items are >= least (in x's own type, so that all lanes have one width)."""
    total = zero
    for j in range(x.shape[0]):
        total += one if x[j] >= least else zero
    return total


@njit(error_model="numpy", cache=True, fastmath=EXTREME)
def _lowest(x, least, infinity):
    """The smallest of the items >= least."""
    lowest = infinity
    for j in range(x.shape[0]):
        lowest = min(lowest, x[j] if x[j] >= least else infinity)
    return lowest


@njit(error_model="numpy", cache=True)
def _kth_largest(x, k, low, high, zero, one):
    """By bisection on the value, between the extremes: a dozen vectorised counts beat a quickselect."""
    for _ in range(_MAX_COUNTS):
        middle = x.dtype.type(0.5 * np.float64(low) + 0.5 * np.float64(high))
        if middle <= low or middle >= high:  # nothing in between: ties
            return high if count(x, high, zero, one) >= k else low
        above = count(x, middle, zero, one)
        if above == k:
            return _lowest(x, middle, one / zero)
        if above > k:
            low = middle
        else:
            high = middle
    return np.sort(x)[x.shape[0] - k]


@njit(error_model="numpy", cache=True)
def kth_or_none(x, k, zero, one):
    """The k-th largest score; -inf if fewer are allowed."""
    peak = maximum(x)
    if k == 1 or peak == -np.inf:
        return peak
    least = np.finfo(x.dtype).min
    allowed = count(x, least, zero, one)
    if allowed < k:
        return -one / zero
    lowest = _lowest(x, least, one / zero)
    return lowest if allowed == k else _kth_largest(x, k, lowest, peak, zero, one)
