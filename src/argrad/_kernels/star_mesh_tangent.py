r"""The derivative of `star_mesh` in a direction, step for step: the Hessian of $\log Z$ times a vector.

Each line is the product rule for one of `eliminate` or `differentiate`. Derivatives are relative: that of a
weight is at most a path's length times the weight, so nothing is lost to cancellation that the
marginals themselves would not lose.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from argrad._kernels.star_mesh import (
    SUM,
    differentiate,
    eliminate,
    load,
    ordinary,
    times,
    trusted,
    weigh,
)


@njit(error_model="numpy", cache=True)
def eliminate_tangent(e, d, small, t, d_dot, b):
    """The derivative of `eliminate` in the direction `t`, in place: `t[i, k]` becomes that of p_i."""
    b, b_dot = b[0], b[1]
    for k in range(d.shape[0] - 1, -1, -1):
        d_dot[k] = t[1, k] if small[k] else ordinary(t, k)
        b[:k] = e[k + 2, :k]
        b_dot[:k] = t[k + 2, :k]
        for i in range(k + 2):
            p = e[i, k]
            p_dot = 0.0 if small[k] else (t[i, k] - p * d_dot[k]) / d[k]
            t[i, k] = p_dot
            for j in range(k):
                t[i, j] += p_dot * b[j] + p * b_dot[j]


@njit(error_model="numpy", cache=True, fastmath=SUM)
def differentiate_tangent(e, d, small, t, d_dot, g, x, g_dot):
    """The derivative of `differentiate`: fill `g_dot` with that of D."""
    x, row = x[0], x[1]
    for k in range(d.shape[0]):
        row[:k] = 0.0
        mean = 0.0
        for i in range(k + 2):
            p, p_dot = e[i, k], t[i, k]
            total, total_dot = 0.0, 0.0
            for j in range(k):
                total += g[i, j] * e[k + 2, j]
                total_dot += g_dot[i, j] * e[k + 2, j] + g[i, j] * t[k + 2, j]
                row[j] += p_dot * g[i, j] + p * g_dot[i, j]
            x[i] = total_dot
            mean += p * total_dot + p_dot * total
        for i in range(k + 2):
            g_dot[i, k] = 0.0 if small[k] else (x[i] - mean - d_dot[k] * g[i, k]) / d[k]
        g_dot[1, k] = ((0.0 if small[k] else x[1]) - d_dot[k] * g[1, k]) / d[k]
        g_dot[k + 2, :k] = row[:k]
        g_dot[k + 2, k] = 0.0


@njit(error_model="numpy", nogil=True, cache=True)
def hessian_product(start, stop, arcs, directions, single, out, ok):
    """The Hessian of log Z for log-weights times `directions`: v * w * D + w * (derivative of D)."""
    m = arcs.shape[2]
    e, g, t, s = np.empty((m + 2, m)), np.empty((m + 2, m)), np.empty((m + 2, m)), np.empty((m + 2, m))
    w, x = np.empty((m + 1, m)), np.empty((2, m + 2))
    d, d_dot, small = np.empty(m), np.empty(m), np.empty(m, np.bool_)
    for n in range(start, stop):
        weigh(arcs[n], single, d, w)
        load(w, single, e)
        log_z = eliminate(e, single, d, small, x[0])
        differentiate(e, d, small, x, g)
        load(w * directions[n], single, t)
        eliminate_tangent(e, d, small, t, d_dot, x)
        differentiate_tangent(e, d, small, t, d_dot, g, x, s)
        load(directions[n], single, e)
        times(s + g * e, w, single, out[n])
        ok[n] = trusted(arcs[n], log_z, small, g) and np.isfinite(out[n].sum())
    return 0
