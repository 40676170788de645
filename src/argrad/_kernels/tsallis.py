r"""Projection onto the (capped) simplex, float32 and float64: Tsallis alpha = 2 and alpha = 1.5.

With the k-th largest score $p$ of a row as origin, $b_i = \mathrm{clip}(a (w_i - p) + c, 0, 1)$ and
$z_i = b_i$ ($a = 1$) or $b_i^2$ ($a = 1/2$); the one unknown $c \in (0, 1]$ makes them sum to $k$. No sort: a
Newton step is one vectorised pass over the row, and four to eight of them are enough.

Each kernel handles rows `start` to `stop`. `solve` returns status bits: `BAD` when a NaN or +inf was
met, `FEW` when a row allows fewer than k items; results of such rows are undefined.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from argrad._kernels.choose import BAD, FEW
from argrad._kernels.select import SUM, count_bad, kth_or_none

_MAX_STEPS = 100  # half of them can be bisections, which is enough for float64


@njit(error_model="numpy", cache=True, fastmath=SUM)
def _sums_1(x, origin, c, zero, one):
    """(sum of z, its derivative in c) over items between the bounds, and the number at the cap."""
    total, slope, caps = zero, zero, zero
    for j in range(x.shape[0]):
        b = (x[j] - origin) + c
        free = (b > zero) & (b <= one)
        total += b if free else zero
        slope += one if free else zero
        caps += one if b > one else zero
    return total, slope, caps


@njit(error_model="numpy", cache=True, fastmath=SUM)
def _sums_2(x, origin, c, zero, one):
    """The same for z = b^2, a = 1/2."""
    total, slope, caps = zero, zero, zero
    half = one / (one + one)
    for j in range(x.shape[0]):
        b = (x[j] - origin) * half + c
        u = b if (b > zero) & (b <= one) else zero
        total += u * u
        slope += u
        caps += one if b > one else zero
    return total, slope, caps


@njit(error_model="numpy", cache=True)
def _newton(power, total, slope, rest):
    """The step that lowers c: Newton on the norm `total^(1/power)`, which is convex and nearly linear."""
    if power == 1:
        return (total - rest) / slope
    if rest <= 0:
        return (total - rest) / (2 * slope)
    norm = math.sqrt(total)
    return (norm - math.sqrt(rest)) * norm / slope


@njit(error_model="numpy", cache=True)
def _root(x, origin, k, power, zero, one, eps):
    """c, by Newton steps that may not leave their bracket and must halve every second time."""
    c, low, high, last, before = 1.0, 0.0, 1.0, 1.0, 2.0
    for _ in range(_MAX_STEPS):
        if power == 1:
            total, slope, caps = _sums_1(x, origin, x.dtype.type(c), zero, one)
        else:
            total, slope, caps = _sums_2(x, origin, x.dtype.type(c), zero, one)
        rest = k - np.float64(caps)
        excess = np.float64(total) - rest
        if abs(excess) <= eps * (np.float64(total) + abs(rest)):
            return c
        if excess > 0:
            high = c
        else:
            low = c
        step = _newton(power, np.float64(total), np.float64(slope), rest)
        new = c - step
        if abs(step) <= eps * c:
            return new
        if not (low <= new <= high and 2 * abs(step) <= before):
            new = 0.5 * (low + high)
        before, last, c = last, abs(new - c), new
    return c


@njit(error_model="numpy", cache=True)
def _write_1(out, x, origin, c, zero, one):
    for j in range(out.shape[0]):
        out[j] = min(max((x[j] - origin) + c, zero), one)


@njit(error_model="numpy", cache=True)
def _write_2(out, x, origin, c, zero, one):
    half = one / (one + one)
    for j in range(out.shape[0]):
        b = min(max((x[j] - origin) * half + c, zero), one)
        out[j] = b * b


@njit(error_model="numpy", nogil=True, cache=True)
def solve(start, stop, scores, k, power, out):
    """out[i] = the point for row i; `k` has one entry, or one a row; `power` = 1 / (alpha - 1) is 1 or 2."""
    status = 0
    zero, one = scores.dtype.type(0.0), scores.dtype.type(1.0)
    eps = np.float64(np.finfo(scores.dtype).eps)
    for i in range(start, stop):
        x, z, size = scores[i], out[i], k[i % k.shape[0]]
        if count_bad(x):
            status |= BAD
            continue
        if size < 0:
            status |= FEW
            continue
        if size == 0:
            z[:] = zero
            continue
        origin = kth_or_none(x, size, zero, one)
        if origin == -np.inf:
            status |= FEW
            continue
        c = scores.dtype.type(_root(x, origin, size, power, zero, one, eps))
        if power == 1:
            _write_1(z, x, origin, c, zero, one)
        else:
            _write_2(z, x, origin, c, zero, one)
    return status


@njit(error_model="numpy", cache=True, fastmath=SUM)
def _weigh_1(z, g, top, zero, one):
    """Sums of s and of s g over the items that can move; s = 1."""
    mass, pull = zero, zero
    for j in range(z.shape[0]):
        free = (z[j] > zero) & (z[j] < top)
        mass += one if free else zero
        pull += g[j] if free else zero
    return mass, pull


@njit(error_model="numpy", cache=True, fastmath=SUM)
def _weigh_2(z, g, top, zero, one):
    """The same with s = sqrt(z)."""
    mass, pull = zero, zero
    for j in range(z.shape[0]):
        s = math.sqrt(z[j]) if z[j] < top else zero
        mass += s
        pull += s * g[j] if s > zero else zero
    return mass, pull


@njit(error_model="numpy", cache=True)
def _push_1(out, z, g, q, top, zero):
    for j in range(out.shape[0]):
        free = (z[j] > zero) & (z[j] < top)
        out[j] = g[j] - q if free else zero


@njit(error_model="numpy", cache=True)
def _push_2(out, z, g, q, top, zero):
    for j in range(out.shape[0]):
        free = (z[j] > zero) & (z[j] < top)
        out[j] = math.sqrt(z[j]) * (g[j] - q) if free else zero


@njit(error_model="numpy", cache=True, fastmath=SUM)
def _weigh_0(z, g, top, zero):
    """The same with s = z (a = 0)."""
    mass, pull = zero, zero
    for j in range(z.shape[0]):
        s = z[j] if z[j] < top else zero
        mass += s
        pull += s * g[j] if s > zero else zero
    return mass, pull


@njit(error_model="numpy", cache=True)
def _push_0(out, z, g, q, top, zero):
    for j in range(out.shape[0]):
        free = (z[j] > zero) & (z[j] < top)
        out[j] = z[j] * (g[j] - q) if free else zero


@njit(error_model="numpy", nogil=True, cache=True)
def pull_back(start, stop, z, g, power, top, out):
    """out[i] = J(z[i]) g[i]; items at `top` or above are held by the cap; `power` 0 stands for a = 0."""
    zero, one = z.dtype.type(0.0), z.dtype.type(1.0)
    top = z.dtype.type(top)
    for i in range(start, stop):
        if power == 1:
            mass, pull = _weigh_1(z[i], g[i], top, zero, one)
            _push_1(out[i], z[i], g[i], pull / mass if mass > zero else zero, top, zero)
        elif power == 2:
            mass, pull = _weigh_2(z[i], g[i], top, zero, one)
            _push_2(out[i], z[i], g[i], pull / mass if mass > zero else zero, top, zero)
        else:
            mass, pull = _weigh_0(z[i], g[i], top, zero)
            _push_0(out[i], z[i], g[i], pull / mass if mass > zero else zero, top, zero)
    return 0
