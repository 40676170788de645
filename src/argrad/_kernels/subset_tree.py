r"""Sets of $k$ of $n$ items, one row at a time: a balanced tree of Poisson-binomial distributions.

$e_k(w) = e^{ck} \prod_i (1 + w_i e^{-c}) \, P(S = k)$, where $S$ counts independent items chosen with
$p_i = \sigma(\log w_i - c)$, holds for any tilt $c$. With $c$ such that $E S = k$ the number wanted is the
mode of $S$, of order $1/\sqrt n$, and every number on the way is a probability, a sum of positive products.
So plain float64 arithmetic is accurate to rounding whatever the scores; what is dropped (below
`TINY`) changes a marginal by less than $10^{-140}$. A node keeps the counts from `lo` on that matter, a few
standard deviations of them, so the cost is $O(n \min(k, \sigma \log n))$ or so.

Level 0 of the tree has the items, node i of level l the items `i * 2^l` to `(i + 1) * 2^l - 1`; `span` has
the first count kept and the number of counts kept of each node.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from argrad._kernels.exp import exp_64

# Products of two numbers above it are normal numbers (denormals are slow).
TINY = 1e-150


@njit(error_model="numpy", cache=True)
def _chances(x, c, p):
    """p = sigmoid(x - c). Apart from the sum: reassociation would break the rounding inside exp_64."""
    for i in range(x.shape[0]):
        e = exp_64(-abs(x[i] - c))
        p[i] = (1.0 if x[i] >= c else e) / (1.0 + e)


@njit(error_model="numpy", cache=True, fastmath={"reassoc", "nsz"})
def _moments(p):
    """Mean and variance of the number of items chosen with probabilities p."""
    mean, variance = 0.0, 0.0
    for i in range(p.shape[0]):
        mean += p[i]
        variance += p[i] * (1.0 - p[i])
    return mean, variance


@njit(error_model="numpy", cache=True)
def tilt(x, k, allowed, p):
    """c such that the items of the row `x`, chosen with probability sigmoid(x - c), are k on average.

    Newton's method on the log odds of the mean, kept within a bracket. k = 0 and k = allowed, where c
    is infinite, aim half an item off: P(S = k) is at least 1/2 there. `p` is scratch. An error of a tenth of a standard
    deviation in the mean costs P(S = k) half a per cent, which no digit of a result notices.
    """
    target = min(max(k, 0.5), allowed - 0.5)
    odds = math.log(target / (allowed - target))
    low, high = np.inf, -np.inf
    for i in range(x.shape[0]):
        if x[i] > -np.inf:
            low, high = min(low, x[i]), max(high, x[i])
    low, high = low - odds, high - odds
    c = 0.5 * (low + high)
    for _ in range(100):
        _chances(x, c, p)
        mean, variance = _moments(p)
        error = mean - target
        if error * error <= 0.01 * variance or error * error < 1e-4:
            break
        if error > 0:
            low = c
        else:
            high = c
        slope = variance * allowed / (mean * (allowed - mean))
        c += (math.log(mean / (allowed - mean)) - odds) / slope
        if not (low < c < high):
            c = 0.5 * (low + high)
    return c


@njit(error_model="numpy", cache=True)
def layout(n, k):
    """Number of levels, and for each: first node, number of nodes, first number, numbers a node."""
    levels = 1
    while (1 << (levels - 1)) < n:
        levels += 1
    table = np.zeros((levels + 1, 4), np.int64)
    for level in range(levels):
        nodes = (n + (1 << level) - 1) >> level
        width = min(1 << level, k) + 1
        table[level, 1] = nodes
        table[level, 3] = width
        table[level + 1, 0] = table[level, 0] + nodes
        table[level + 1, 2] = table[level, 2] + nodes * width
    return levels, table


@njit(error_model="numpy", cache=True)
def convolve(out, a, b, shift):
    """out[i + j + shift] += a[i] b[j], as far as `out` reaches."""
    if a.shape[0] > b.shape[0]:
        a, b = b, a
    for i in range(a.shape[0]):
        first = max(0, -i - shift)
        stop = min(b.shape[0], out.shape[0] - i - shift)
        factor = a[i]
        for j in range(first, stop):
            out[i + j + shift] += factor * b[j]


@njit(error_model="numpy", cache=True)
def correlate(out, g, b, shift):
    """out[j] += b[i] g[i + j + shift], as far as `g` reaches: the transpose of `convolve`."""
    for i in range(b.shape[0]):
        first = max(0, -i - shift)
        stop = min(out.shape[0], g.shape[0] - i - shift)
        factor = b[i]
        for j in range(first, stop):
            out[j] += factor * g[i + j + shift]


@njit(error_model="numpy", cache=True)
def node(table, level, i, span, x):
    """The numbers of node i of a level, and the count that the first one is for."""
    at = table[level, 0] + i
    start = table[level, 2] + i * table[level, 3]
    return x[start : start + span[at, 1]], span[at, 0]


@njit(error_model="numpy", cache=True)
def _leaves(x, c, k, table, span, poly):
    """P(item not chosen), P(item chosen), without those below TINY or beyond k."""
    for i in range(x.shape[0]):
        e = exp_64(-abs(x[i] - c))
        small, large = e / (1.0 + e), 1.0 / (1.0 + e)
        p, q = (large, small) if x[i] >= c else (small, large)
        low = 1 if q < TINY else 0
        high = 0 if p < TINY or k == 0 else 1
        span[i, 0], span[i, 1] = low, high - low + 1
        start = i * table[0, 3]
        poly[start] = p if low else q
        if high > low:
            poly[start + 1] = p


@njit(error_model="numpy", cache=True)
def _merge(level, i, k, table, span, poly, work):
    """Node i of a level from its two children: convolve, cut the ends below TINY."""
    at = table[level, 0] + i
    start = table[level, 2] + i * table[level, 3]
    a, low_a = node(table, level - 1, 2 * i, span, poly)
    if 2 * i + 1 == table[level - 1, 1]:
        span[at] = low_a, a.shape[0]
        poly[start : start + a.shape[0]] = a
        return
    b, low_b = node(table, level - 1, 2 * i + 1, span, poly)
    low = low_a + low_b
    size = max(0, min(a.shape[0] + b.shape[0] - 1, k + 1 - low))
    out = work[:size]
    out[:] = 0.0
    convolve(out, a, b, 0)
    first = 0
    while first < size and out[first] < TINY:
        first += 1
    while size > first and out[size - 1] < TINY:
        size -= 1
    span[at] = low + first, size - first
    poly[start : start + size - first] = out[first:size]


@njit(error_model="numpy", cache=True)
def grow(x, c, k, levels, table, span, poly, work):
    """All nodes, from the items up."""
    _leaves(x, c, k, table, span, poly)
    for level in range(1, levels):
        for i in range(table[level, 1]):
            _merge(level, i, k, table, span, poly, work)


@njit(error_model="numpy", cache=True)
def root_weights(k, c, at_most, levels, table, span, poly, outer):
    """Set the root's `outer`: 1 at count k alone, or exp(c (count - k)) up to k. Returns the total."""
    root, low = node(table, levels - 1, 0, span, poly)
    out, _ = node(table, levels - 1, 0, span, outer)
    total = 0.0
    for j in range(root.shape[0]):
        missing = k - low - j
        if at_most:
            out[j] = exp_64(-c * missing)
        else:
            out[j] = 1.0 if missing == 0 else 0.0
        total += out[j] * root[j]
    return total


@njit(error_model="numpy", cache=True)
def descend(levels, table, span, poly, outer):
    """outer[node] = weight of everything outside the node given its count, from the root down."""
    for level in range(levels - 1, 0, -1):
        for i in range(table[level, 1]):
            g, low = node(table, level, i, span, outer)
            a, low_a = node(table, level - 1, 2 * i, span, poly)
            out_a, _ = node(table, level - 1, 2 * i, span, outer)
            if 2 * i + 1 == table[level - 1, 1]:
                out_a[:] = g
                continue
            b, low_b = node(table, level - 1, 2 * i + 1, span, poly)
            out_b, _ = node(table, level - 1, 2 * i + 1, span, outer)
            out_a[:] = 0.0
            out_b[:] = 0.0
            correlate(out_a, g, b, low_a + low_b - low)
            correlate(out_b, g, a, low_a + low_b - low)


@njit(error_model="numpy", cache=True)
def allowed_and_tilt(x, k, at_most, work):
    """(is some set allowed, tilt) of a row."""
    allowed = 0
    p = work[: x.shape[0]]
    for i in range(x.shape[0]):
        allowed += x[i] > -np.inf
    if allowed == 0:
        return at_most or k == 0, 0.0
    if not at_most:
        return k <= allowed, tilt(x, k, allowed, p)
    # Down to at most k only: a positive tilt makes all of `root_weights` at most 1.
    return True, max(0.0, tilt(x, k, allowed, p)) if k < allowed else 0.0


@njit(error_model="numpy", cache=True)
def constant(x, k, c):
    """c k + sum of log(1 + exp(x - c)), so that log e_k = this + log P(S = k)."""
    total = c * k
    for i in range(x.shape[0]):
        d = x[i] - c
        total += max(d, 0.0) + math.log1p(exp_64(-abs(d)))
    return total
