r"""Tsallis-regularised choice of k items for any alpha >= 1, in float64 arithmetic.

As `argrad.solvers.tsallis`: with the k-th largest score as origin,
$z_i = \min(1, \rho \exp_a(x_i \rho^{-a}))$, and $u = -\log \rho \ge 0$ makes them sum to $k$. Items outside
the support at $u = 0$ never enter it, so that only the others are looked at.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from argrad._kernels.bits import scalar
from argrad._kernels.choose import BAD, FEW
from argrad._kernels.exp import exp_64
from argrad._kernels.select import SUM, count_bad, kth_or_none

_MAX_STEPS = 200
_EPS = 2.0**-52


@njit(error_model="numpy", cache=True)
def _gather(work, x, origin, a):
    """Items that can be above 0, seen from the origin; for a = 0 their exponentials."""
    size = 0
    for j in range(x.shape[0]):
        work[size] = min(np.float64(x[j]) - origin, 100.0)  # more is capped for certain: u < 100
        size += work[size] * a > -1.0 if a > 0.0 else work[size] > -np.inf
    if a == 0.0:
        _exp_(work[:size])
    return size


@njit(error_model="numpy", cache=True)
def _exp_(x):
    for j in range(x.shape[0]):
        x[j] = exp_64(x[j])


@njit(error_model="numpy", cache=True, fastmath=SUM)
def _sums_0(e, u):
    """a = 0: (sum of z, sum of slopes) over the free items, and the number at the cap."""
    total, caps = 0.0, 0.0
    rho = math.exp(-u)
    for j in range(e.shape[0]):
        free = (e[j] * rho < 1.0) | (e[j] <= 1.0)
        total += e[j] * rho if free else 0.0
        caps += 0.0 if free else 1.0
    return total, total, caps


@scalar
def _log1p(y):
    """log(1 + y) for y > -1, within 2 ulp; LLVM can vectorise it."""
    b = 1.0 + y
    i = np.float64(b).view(np.int64)
    e = (i - 0x3FE6A09E667F3BCD) >> 52
    f = np.int64(i - (e << 52)).view(np.float64) - 1.0  # mantissa in [sqrt(1/2), sqrt 2), less 1
    s = f / (2.0 + f)  # log(1 + f) = 2 artanh(s); |s| < 0.172, so the rest of the series is below 1e-17
    q = s * s
    p = 1.0 / 23.0
    p = p * q + 1.0 / 21.0
    p = p * q + 1.0 / 19.0
    p = p * q + 1.0 / 17.0
    p = p * q + 1.0 / 15.0
    p = p * q + 1.0 / 13.0
    p = p * q + 1.0 / 11.0
    p = p * q + 1.0 / 9.0
    p = p * q + 1.0 / 7.0
    p = p * q + 1.0 / 5.0
    p = p * q + 1.0 / 3.0
    tail = 2.0 * s * q * p + np.float64(e) * 1.90821492927058770002e-10 + (y - (b - 1.0)) / b
    return np.float64(e) * 6.93147180369123816490e-01 + (2.0 * s + tail)


@scalar
def _value(x, u, a, lift):
    """z, its slope z^(1-a), and whether it is below the cap; lift = exp(a u)."""
    y = a * x * lift
    live = y > -1.0
    y = y if live else 0.0
    log_z = _log1p(y) / a - u
    free = (log_z < 0.0) | (x <= 0.0)
    z = exp_64(min(log_z, 0.0)) if live else 0.0
    return z, z * lift / (1.0 + y) if free else 0.0, free


@njit(error_model="numpy", cache=True)
def _fill(z, s, caps, x, u, a):
    """Values and slopes of the free items, 1 for each at the cap."""
    lift = math.exp(a * u)
    for j in range(x.shape[0]):
        value, s[j], free = _value(x[j], u, a, lift)
        z[j] = value if free else 0.0
        caps[j] = 0.0 if free else 1.0


@njit(error_model="numpy", cache=True, fastmath=SUM)
def _sum(x):
    total = 0.0
    for j in range(x.shape[0]):
        total += x[j]
    return total


@njit(error_model="numpy", cache=True)
def _sums(work, size, u, a):
    """The same as `_sums_0` for a > 0. (`fastmath` would undo the compensation inlined from `_log1p`.)"""
    z, s, caps = work[1, :size], work[2, :size], work[3, :size]
    _fill(z, s, caps, work[0, :size], u, a)
    return _sum(z), _sum(s), _sum(caps)


@njit(error_model="numpy", cache=True)
def _step(total, slope, rest, u, a):
    """Newton on (sum of z)^a, as a step of u; NaN where that is beyond the end."""
    if rest <= 0.0:
        step = (total - rest) / slope
    elif a == 0.0:
        return total * math.log(total / rest) / slope
    else:
        step = -total * math.expm1(-a * math.log(total / rest)) / (a * slope)
    if a == 0.0:
        return step
    bend = a * step * math.exp(a * u)
    return -math.log1p(-bend) / a if bend < 1.0 else np.nan


@njit(error_model="numpy", cache=True)
def _root(work, size, k, n, a):
    """u, by Newton steps that may not leave their bracket and must halve every second time."""
    u, low, high = 0.0, 0.0, 1.0 + math.log(max(n - k + 1.0, 1.0))
    last, before = high, high
    for _ in range(_MAX_STEPS):
        if a == 0.0:
            total, slope, caps = _sums_0(work[0, :size], u)
        else:
            total, slope, caps = _sums(work, size, u, a)
        rest = k - caps
        excess = total - rest
        if abs(excess) <= 2 * _EPS * (total + abs(rest)):
            return u
        if excess > 0:
            low = u
        else:
            high = u
        if high - low <= _EPS * (1.0 + u):
            return low
        step = _step(total, slope, rest, u, a)
        if abs(step) <= _EPS * (1.0 + u):
            return u
        new = u + step
        if not (low <= new <= high and 2 * abs(step) <= before):
            new = 0.5 * (low + high)
        before, last, u = last, abs(new - u), new
    return u


@njit(error_model="numpy", cache=True)
def _write_0(out, work, x, origin, u, k, below_one):
    """a = 0; a free item never rounds to 1 (that is how the backward pass knows that it can move)."""
    n = x.shape[0]
    z, full = work[1, :n], work[3, :n]
    for j in range(n):
        d = (np.float64(x[j]) - origin) - u
        full[j] = 1.0 if d >= 0.0 else 0.0
        z[j] = exp_64(min(d, 0.0)) if d < 0.0 else 0.0
    total = _sum(z)
    scale = (k - _sum(full)) / total if total > 0.0 else 1.0  # the sum to the last digit
    for j in range(n):
        value = min(x.dtype.type(z[j] * scale), below_one)
        out[j] = value if full[j] == 0.0 else x.dtype.type(1.0)


@njit(error_model="numpy", cache=True)
def _write(out, work, x, origin, u, a, k, below_one):
    """a > 0; what rounding left over goes where a change costs least (it matters for a > 1)."""
    n = x.shape[0]
    for j in range(n):
        work[0, j] = min(np.float64(x[j]) - origin, 100.0)
    total, slope, caps = _sums(work, n, u, a)
    z, s, full = work[1], work[2], work[3]
    miss = (k - caps - total) / slope if slope > 0.0 else 0.0
    for j in range(n):
        free = (full[j] == 0.0) & ((u > 0.0) | (z[j] < 1.0))
        value = x.dtype.type(max(z[j] + s[j] * miss, 0.0))
        out[j] = min(value, below_one) if free else x.dtype.type(1.0)


@njit(error_model="numpy", nogil=True, cache=True)
def solve(start, stop, scores, k, order, out):
    """out[i] = the point for row i; `k` and `order` = alpha - 1 have one entry, or one a row.

    Status bits as in `tsallis.py`.
    """
    status = 0
    zero, one = scores.dtype.type(0.0), scores.dtype.type(1.0)
    below_one = scores.dtype.type(1.0 - 0.5 * np.finfo(scores.dtype).eps)
    n = scores.shape[1]
    work = np.empty((4, n + 1))
    for i in range(start, stop):
        x, size, a = scores[i], k[i % k.shape[0]], order[i % order.shape[0]]
        if count_bad(x):
            status |= BAD
            continue
        if size < 0:
            status |= FEW
            continue
        if size == 0:
            out[i] = zero
            continue
        origin = kth_or_none(x, size, zero, one)
        if origin == -np.inf:
            status |= FEW
            continue
        u = _root(work, _gather(work[0], x, origin, a), size, n, a)
        if a == 0.0:
            _write_0(out[i], work, x, np.float64(origin), u, size, below_one)
        else:
            _write(out[i], work, x, np.float64(origin), u, a, size, below_one)
    return status
