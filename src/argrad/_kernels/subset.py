"""Sets of k of n items: log-partition and marginals, their derivative, exact draws. float64.

Each kernel handles rows `start` to `stop` and returns `EMPTY` if one of them allows no set.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from argrad._kernels.choose import EMPTY
from argrad._kernels.subset_tree import (
    allowed_and_tilt,
    constant,
    convolve,
    correlate,
    descend,
    grow,
    layout,
    node,
    root_weights,
)


@njit(error_model="numpy", cache=True)
def _allocate(n, k):
    """The tree's shape, and memory for it: spans, numbers, scratch."""
    levels, table = layout(n, k)
    return (
        levels,
        table,
        np.empty((table[levels, 0], 2), np.int64),
        np.empty(table[levels, 2]),
        np.empty(n + 1),
    )


@njit(error_model="numpy", nogil=True, cache=True)
def infer(start, stop, scores, k, at_most, log_z, mu):
    """log_z[r] and, unless mu has no columns, the marginals mu[r]."""
    status = 0
    levels, table, span, poly, work = _allocate(scores.shape[1], k[start:stop].max())
    outer = np.empty_like(poly)
    for r in range(start, stop):
        x = scores[r]
        fine, c = allowed_and_tilt(x, k[r], at_most, work)
        if not fine:
            status = EMPTY
            log_z[r] = -np.inf
            mu[r] = 0.0
            continue
        grow(x, c, k[r], levels, table, span, poly, work)
        z = root_weights(k[r], c, at_most, levels, table, span, poly, outer)
        log_z[r] = constant(x, k[r], c) + math.log(z)
        if mu.shape[1]:
            descend(levels, table, span, poly, outer)
            _marginals(mu[r], z, table, span, poly, outer)
    return status


@njit(error_model="numpy", cache=True)
def _marginals(mu, z, table, span, poly, outer):
    for i in range(mu.shape[0]):
        last = i * table[0, 3] + span[i, 1] - 1
        chosen = span[i, 0] + span[i, 1] == 2  # whether "chosen" is among the counts kept
        mu[i] = min(1.0, poly[last] * outer[last] / z) if chosen else 0.0


@njit(error_model="numpy", nogil=True, cache=True)
def hessian_product(start, stop, scores, k, at_most, v, out):
    """out[r] = d marginals(scores[r] + t v[r]) / dt at t = 0: each number of the tree with its tangent."""
    levels, table, span, poly, work = _allocate(scores.shape[1], k[start:stop].max())
    outer, d_poly, d_outer = np.empty_like(poly), np.empty_like(poly), np.empty_like(poly)
    for r in range(start, stop):
        fine, c = allowed_and_tilt(scores[r], k[r], at_most, work)
        if not fine:
            out[r] = 0.0
            continue
        grow(scores[r], c, k[r], levels, table, span, poly, work)
        z = root_weights(k[r], c, at_most, levels, table, span, poly, outer)
        descend(levels, table, span, poly, outer)
        _marginals(out[r], z, table, span, poly, outer)
        # With |set| = k a constant added to v changes nothing; without its mean less is cancelled below.
        mean = 0.0 if at_most or k[r] == 0 else (out[r] * v[r]).sum() / k[r]
        _leaf_tangents(v[r], mean, table, span, poly, d_poly)
        _grow_tangents(levels, table, span, poly, d_poly)
        _descend_tangents(levels, table, span, poly, d_poly, outer, d_outer)
        _marginal_tangents(out[r], z, levels, table, span, poly, d_poly, outer, d_outer)
    return 0


@njit(error_model="numpy", cache=True)
def _leaf_tangents(v, mean, table, span, poly, d_poly):
    """d sigmoid(x) = p q v; an item that is certainly in or out does not move."""
    for i in range(v.shape[0]):
        at = i * table[0, 3]
        if span[i, 1] == 2:
            d_poly[at + 1] = poly[at] * poly[at + 1] * (v[i] - mean)
            d_poly[at] = -d_poly[at + 1]
        else:
            d_poly[at] = 0.0


@njit(error_model="numpy", cache=True)
def _grow_tangents(levels, table, span, poly, d_poly):
    for level in range(1, levels):
        for i in range(table[level, 1]):
            out, low = node(table, level, i, span, d_poly)
            a, low_a = node(table, level - 1, 2 * i, span, poly)
            d_a, _ = node(table, level - 1, 2 * i, span, d_poly)
            if 2 * i + 1 == table[level - 1, 1]:
                out[:] = d_a
                continue
            b, low_b = node(table, level - 1, 2 * i + 1, span, poly)
            d_b, _ = node(table, level - 1, 2 * i + 1, span, d_poly)
            out[:] = 0.0
            convolve(out, d_a, b, low_a + low_b - low)
            convolve(out, a, d_b, low_a + low_b - low)


@njit(error_model="numpy", cache=True)
def _descend_tangents(levels, table, span, poly, d_poly, outer, d_outer):
    root, _ = node(table, levels - 1, 0, span, d_outer)
    root[:] = 0.0
    for level in range(levels - 1, 0, -1):
        for i in range(table[level, 1]):
            d_g, low = node(table, level, i, span, d_outer)
            g, _ = node(table, level, i, span, outer)
            if 2 * i + 1 == table[level - 1, 1]:
                out, _ = node(table, level - 1, 2 * i, span, d_outer)
                out[:] = d_g
                continue
            for child in range(2 * i, 2 * i + 2):
                out, low_a = node(table, level - 1, child, span, d_outer)
                b, low_b = node(table, level - 1, child ^ 1, span, poly)
                d_b, _ = node(table, level - 1, child ^ 1, span, d_poly)
                out[:] = 0.0
                correlate(out, d_g, b, low_a + low_b - low)
                correlate(out, g, d_b, low_a + low_b - low)


@njit(error_model="numpy", cache=True)
def _marginal_tangents(mu, z, levels, table, span, poly, d_poly, outer, d_outer):
    """The derivative of p g / z, in place of mu = p g / z."""
    d_root, _ = node(table, levels - 1, 0, span, d_poly)
    weights, _ = node(table, levels - 1, 0, span, outer)
    d_z = (d_root * weights).sum()
    for i in range(mu.shape[0]):
        last = i * table[0, 3] + span[i, 1] - 1
        chosen = span[i, 0] + span[i, 1] == 2
        change = d_poly[last] * outer[last] + poly[last] * d_outer[last]
        mu[i] = (change - mu[i] * d_z) / z if chosen else 0.0


@njit(error_model="numpy", nogil=True, cache=True)
def sample(start, stop, scores, k, at_most, uniform, out):
    """out[s, r] = a set drawn from row r with the uniforms uniform[s, r].

    From the root down, the count of a node is split between its children in proportion to the product
    of their probabilities, by the uniform in the column of the first item of the right child; column 0
    draws the root's count where it is free.
    """
    status = 0
    n = scores.shape[1]
    levels, table, span, poly, work = _allocate(n, k[start:stop].max())
    outer = np.empty_like(poly)
    count = np.empty((levels, n), np.int64)
    for r in range(start, stop):
        fine, c = allowed_and_tilt(scores[r], k[r], at_most, work)
        if not fine:
            status = EMPTY
            continue
        grow(scores[r], c, k[r], levels, table, span, poly, work)
        root_weights(k[r], c, at_most, levels, table, span, poly, outer)
        root, low = node(table, levels - 1, 0, span, poly)
        weights, _ = node(table, levels - 1, 0, span, outer)
        for s in range(out.shape[0]):
            count[levels - 1, 0] = low + _pick(root, weights, 0, root.shape[0], 0, uniform[s, r, 0])
            _split(count, levels, table, span, poly, uniform[s, r])
            for i in range(n):
                out[s, r, i] = count[0, i]
    return status


@njit(error_model="numpy", cache=True)
def _split(count, levels, table, span, poly, uniform):
    for level in range(levels - 1, 0, -1):
        for i in range(table[level, 1]):
            total = count[level, i]
            if 2 * i + 1 == table[level - 1, 1]:
                count[level - 1, 2 * i] = total
                continue
            a, low_a = node(table, level - 1, 2 * i, span, poly)
            b, low_b = node(table, level - 1, 2 * i + 1, span, poly)
            # b[::-1][end + j] is the right child's number when the left child has a's j-th count
            end = low_a + low_b + b.shape[0] - 1 - total
            first, stop = max(0, -end), min(a.shape[0], b.shape[0] - end)
            j = first
            if stop - first > 1:
                u = uniform[(2 * i + 1) << (level - 1)]
                j = _pick(a, b[::-1], first, stop, end, u)
            count[level - 1, 2 * i] = low_a + j
            count[level - 1, 2 * i + 1] = total - low_a - j


@njit(error_model="numpy", cache=True)
def _pick(a, b, first, stop, shift, u):
    """j in [first, stop) with probability proportional to a[j] b[j + shift]."""
    total = 0.0
    for j in range(first, stop):
        total += a[j] * b[j + shift]
    left = u * total
    choice = first
    for j in range(first, stop):
        weight = a[j] * b[j + shift]
        if weight > 0:
            choice = j
            left -= weight
            if left < 0:
                break
    return choice
