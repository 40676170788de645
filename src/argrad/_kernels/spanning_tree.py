"""Maximum spanning trees of dense graphs by Prim's algorithm, one graph at a time.

A float32 edge fits into one int64 together with its two ends, so that a step of the algorithm is one
vector loop: larger of two keys, and the largest of all. float64 edges go through values and ends apart.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from argrad._kernels.choose import BAD, EMPTY

MOST_NODES = 0x10000  # that the ends in a key have room for
_END = 0xFFFF
_LOWEST, _JOINED = np.int64(-(2**63)), np.int64(2**63 - 1)  # below and above every edge's key
_NO_EDGE = np.int64(-0x7F800001) << 32  # the value part of the key of a score of -inf


@njit(error_model="numpy", cache=True)
def _symmetrise(s, edges):
    """Scores of undirected edges: halved first, as sums of the largest floats overflow, and without -0.0."""
    half, zero = s.dtype.type(0.5), s.dtype.type(0.0)
    for i in range(s.shape[0]):
        for j in range(i):
            edges[i, j] = edges[j, i] = half * s[i, j] + half * s[j, i] + zero
        edges[i, i] = s[i, i]


@njit(error_model="numpy", cache=True)
def _count_bad(edges):
    """How many entries are NaN or +inf."""
    bad = np.int32(0)
    flat, limit = edges.reshape(-1), edges.dtype.type(np.inf)
    for i in range(flat.shape[0]):
        bad += np.int32(0) if flat[i] < limit else np.int32(1)
    return bad


@njit(error_model="numpy", nogil=True, cache=True)
def prim(start, stop, scores, out):
    """out[g] = the best tree's adjacency matrix; NaN if there is none, and status bits as in `choose`."""
    n = scores.shape[1]
    status = 0
    edges, best, head = np.empty((n, n), scores.dtype), np.empty(n, scores.dtype), np.zeros(n, np.int32)
    for g in range(start, stop):
        _symmetrise(scores[g], edges)
        if _count_bad(edges):
            return BAD
        if not _grow(edges, best, head):
            status = EMPTY
            out[g] = np.nan
            continue
        out[g] = 0.0
        for v in range(1, n):
            out[g, v, head[v]] = out[g, head[v], v] = 1.0
    return status


@njit(error_model="numpy", nogil=True, cache=True)
def prim_32(start, stop, scores, out):
    """`prim` for float32 and at most `MOST_NODES` nodes."""
    n = scores.shape[1]
    status = 0
    edges, keys = np.empty((n, n), np.float32), np.empty((n, n), np.int64)
    bits, best, tree = edges.view(np.int32), np.empty(n, np.int64), np.empty(n, np.int64)
    for g in range(start, stop):
        _symmetrise(scores[g], edges)
        if _count_bad(edges):
            return BAD
        _pack(bits, keys)
        if not _grow_packed(keys, best, tree):
            status = EMPTY
            out[g] = np.nan
            continue
        out[g] = 0.0
        for k in range(n - 1):
            v, u = _END - (tree[k] >> 16 & _END), _END - (tree[k] & _END)
            out[g, v, u] = out[g, u, v] = 1.0
    return status


# ---- values and ends in one key ------------------------------------------------------------------


@njit(error_model="numpy", cache=True)
def _pack(bits, keys):
    """keys[u, v] = score, then minus v, then minus u, so that of equal scores the first nodes' is largest."""
    for u in range(bits.shape[0]):
        for v in range(bits.shape[1]):
            b = bits[u, v]
            # integers in the order of the floats
            order = b ^ ((b >> np.int32(31)) & np.int32(0x7FFFFFFF))
            keys[u, v] = (np.int64(order) << 32) | ((_END - v) << 16) | (_END - u)
        keys[u, u] = _JOINED


@njit(error_model="numpy", cache=True)
def _grow_packed(keys, best, tree):
    """As `_grow`; tree[k] is the key of the edge that joins k-th."""
    n = best.shape[0]
    for v in range(n):
        best[v] = _LOWEST
    new, worst = np.uint64(0), _JOINED
    for k in range(n - 1):
        after_peak = _LOWEST
        for v in range(n):
            best[v] = max(best[v], keys[new, v])  # row `new` marks `new` itself as joined
            after_peak = max(after_peak, best[v] + np.int64(1))  # joined wraps round to the lowest
        tree[k] = after_peak - np.int64(1)
        worst = min(worst, tree[k])
        new = np.uint64(_END) - (np.uint64(tree[k] >> 16) & np.uint64(_END))
    return worst > (_NO_EDGE | np.int64(0xFFFFFFFF))


# ---- values and ends apart -----------------------------------------------------------------------


@njit(error_model="numpy", cache=True)
def _grow(edges, best, head):
    """Grow the tree from node 0, the first of equals first; whether it reaches every node."""
    best[:] = -np.inf
    head[:] = 0
    new = 0
    for _ in range(best.shape[0] - 1):
        best[new] = np.inf
        _update(edges[new], new, best, head)
        peak = _peak(best)
        if peak == -np.inf:
            return False
        new = 0
        while best[new] != peak:
            new += 1
    return True


@njit(error_model="numpy", cache=True)
def _update(row, new, best, head):
    """Edges from the new node where they beat the best known; a node in the tree has +inf."""
    for v in range(row.shape[0]):
        better = row[v] > best[v] or (row[v] == best[v] and new < head[v])
        best[v] = row[v] if better else best[v]
        head[v] = new if better else head[v]


@njit(error_model="numpy", cache=True, fastmath={"nnan", "nsz", "reassoc"})
def _peak(best):
    """The largest entry below +inf (which `nnan` leaves a number)."""
    peak = best.dtype.type(-np.inf)
    for v in range(best.shape[0]):
        peak = max(peak, best[v] if best[v] < np.inf else peak)
    return peak
