"""Maximum spanning trees of dense graphs by Prim's algorithm, one graph at a time."""

from __future__ import annotations

import numpy as np
from numba import njit

from argrad._kernels.choose import BAD, EMPTY


@njit(error_model="numpy", cache=True)
def _symmetrise(s, edges):
    """Twice the score of each edge; returns how many entries are NaN or +inf."""
    bad = 0
    for i in range(s.shape[0]):
        for j in range(i):
            edges[i, j] = edges[j, i] = s[i, j] + s[j, i]
            bad += not (edges[i, j] < np.inf)
        bad += not (s[i, i] < np.inf)
        edges[i, i] = -np.inf
    return bad


@njit(error_model="numpy", cache=True)
def _update(row, new, best, head):
    """Edges from the new node where they beat the best known; a node in the tree has +inf."""
    for v in range(row.shape[0]):
        better = row[v] > best[v]
        best[v] = row[v] if better else best[v]
        head[v] = new if better else head[v]


@njit(error_model="numpy", cache=True, fastmath={"nnan", "nsz", "reassoc"})
def _peak(best):
    """The largest entry below +inf (which `nnan` leaves a number)."""
    peak = best.dtype.type(-np.inf)
    for v in range(best.shape[0]):
        peak = max(peak, best[v] if best[v] < np.inf else peak)
    return peak


@njit(error_model="numpy", cache=True)
def _grow(edges, best, head):
    """Grow the tree from node 0, the first of equals first; whether it reaches every node."""
    best[:] = -np.inf
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


@njit(error_model="numpy", nogil=True, cache=True)
def prim(start, stop, scores, out):
    """out[g] = the best tree's adjacency matrix; NaN if there is none, and status bits as in `choose`."""
    n = scores.shape[1]
    status = 0
    edges, best, head = np.empty((n, n), scores.dtype), np.empty(n, scores.dtype), np.zeros(n, np.int32)
    for g in range(start, stop):
        if _symmetrise(scores[g], edges):
            return BAD
        if not _grow(edges, best, head):
            status = EMPTY
            out[g] = np.nan
            continue
        out[g] = 0.0
        for v in range(1, n):
            out[g, v, head[v]] = out[g, head[v], v] = 1.0
    return status
