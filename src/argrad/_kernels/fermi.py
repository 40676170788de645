r"""Sigmoids that sum to k, in float64 arithmetic; as `argrad.solvers.fermi`.

A row's items are split at the gap between the k-th and the (k+1)-th score. What the best k lack and what
the others hold are then sums of $o e^{\pm t} / (1 + o e^{\pm t})$ over two arrays of odds $o \le 1$, and the
threshold $t$ makes them equal.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from argrad._kernels.choose import BAD, FEW
from argrad._kernels.exp import exp_64
from argrad._kernels.select import EXTREME, SUM, count, count_bad, kth_or_none

_MAX_STEPS = 200
_EPS = 2.0**-52
_WIDE = 40.0  # half a gap, from where on t does not depend on it


@njit(error_model="numpy", cache=True, fastmath=EXTREME)
def _below(x, bound, none):
    """The largest item below `bound`."""
    best = none
    for j in range(x.shape[0]):
        best = max(best, x[j] if x[j] < bound else none)
    return best


@njit(error_model="numpy", cache=True)
def _split(work, x, p, r, d):
    """Odds of the best items from the left end of `work`, of the others from the right; where they meet."""
    left, right = 0, x.shape[0]
    for j in range(x.shape[0]):
        if x[j] >= p:
            work[left] = (np.float64(p) - x[j]) - d
            left += 1
        else:
            right -= 1
            work[right] = (np.float64(x[j]) - r) - d
    for j in range(x.shape[0]):
        work[j] = exp_64(work[j])
    return left


@njit(error_model="numpy", cache=True, fastmath=SUM)
def _shares(odds, factor):
    """Sums of o / (1 + o) and of its derivative."""
    share, slope = 0.0, 0.0
    for j in range(odds.shape[0]):
        o = odds[j] * factor
        q = 1.0 / (1.0 + o)
        share += o * q
        slope += o * q * q
    return share, slope


@njit(error_model="numpy", cache=True)
def _root(best, others, surplus, k, n):
    """t, by Newton steps on log R - log L inside a bracket."""
    low, high = -1.0 - math.log(k), 1.0 + math.log(n - k)
    t, last, before = 0.0, high - low, high - low
    for _ in range(_MAX_STEPS):
        lack, lack_slope = _shares(best, math.exp(t))
        hold, hold_slope = _shares(others, math.exp(-t))
        hold += surplus
        if abs(hold - lack) <= 2 * _EPS * (hold + lack):
            return t
        if hold > lack:
            low = t
        else:
            high = t
        step = math.log(hold / lack) / (hold_slope / hold + lack_slope / lack)
        if abs(step) <= _EPS * (1.0 + abs(t)):
            return t
        new = t + step
        if not (low <= new <= high and 2 * abs(step) <= before):
            new = 0.5 * (low + high)
        before, last, t = last, abs(new - t), new
    return t


@njit(error_model="numpy", cache=True)
def _write(z, rest, x, p, r, d, t):
    """Sigmoids of both signs, each to its own relative accuracy."""
    for j in range(x.shape[0]):
        best = x[j] >= p
        y = np.float64(p) - x[j] + t if best else np.float64(x[j]) - r - t
        o = exp_64(min(y - d, 700.0))
        q = 1.0 / (1.0 + o)
        z[j] = q if best else o * q
        rest[j] = o * q if best else q


@njit(error_model="numpy", cache=True)
def _decided(z, rest, x, full):
    """All (allowed) items or none."""
    for j in range(x.shape[0]):
        z[j] = full and x[j] > -np.inf
        rest[j] = 1 - z[j]


@njit(error_model="numpy", nogil=True, cache=True)
def solve(start, stop, scores, k, z, rest):
    """z[i] and 1 - z[i] for row i; `k` has one entry, or one a row. Status bits as ever."""
    status = 0
    zero, one = scores.dtype.type(0.0), scores.dtype.type(1.0)
    lowest = np.finfo(scores.dtype).min
    n = scores.shape[1]
    work = np.empty(n)
    for i in range(start, stop):
        x, size = scores[i], k[i % k.shape[0]]
        if count_bad(x):
            status |= BAD
            continue
        allowed = count(x, lowest, zero, one)
        if size == 0 or size == allowed:
            _decided(z[i], rest[i], x, size > 0)
            continue
        if size > allowed or size < 0:
            status |= FEW
            continue
        p = kth_or_none(x, size, zero, one)
        surplus = np.float64(count(x, p, zero, one)) - size
        r = p if surplus > 0 else _below(x, p, -one / zero)
        d = 0.5 * (np.float64(p) - np.float64(r))
        meet = _split(work, x, p, r, min(d, _WIDE))
        t = _root(work[:meet], work[meet:], surplus, np.float64(size), np.float64(n))
        _write(z[i], rest[i], x, p, r, d, t)
    return status


@njit(error_model="numpy", cache=True, fastmath=SUM)
def _weigh(z, rest, g, zero):
    """Sums of s and of s g, s = z (1 - z)."""
    mass, pull = zero, zero
    for j in range(z.shape[0]):
        s = z[j] * rest[j]
        mass += s
        pull += s * g[j] if s > zero else zero
    return mass, pull


@njit(error_model="numpy", cache=True)
def _push(out, z, rest, g, q, zero):
    for j in range(out.shape[0]):
        s = z[j] * rest[j]
        out[j] = s * (g[j] - q) if s > zero else zero


@njit(error_model="numpy", nogil=True, cache=True)
def pull_back(start, stop, z, rest, g, out):
    """out[i] = J(z[i]) g[i]."""
    zero = z.dtype.type(0.0)
    for i in range(start, stop):
        mass, pull = _weigh(z[i], rest[i], g[i], zero)
        q = pull / mass if mass > zero else zero
        _push(out[i], z[i], rest[i], g[i], q, zero)
    return 0
