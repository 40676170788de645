r"""Exact random arborescences by undoing a star-mesh elimination, O(m^2) a tree whatever the scores.

Nodes and rows as in `star_mesh`. A random tree of the smaller graph becomes one of the larger, with node k
put back, in three steps:

1. each arc (i, j) goes through k with probability $p_i b_j / w'_{ij}$, its share in $w'_{ij} = w_{ij} + p_i b_j$;
2. the children j of those arcs, the set J, become children of k;
3. k's head is drawn from $p$ among the nodes that do not descend from J (all, if J is empty).

Right, because for given direct arcs and J the sum over the smaller graph's heads of J is
$\prod_J b_j \sum_{i \in C} a_i$ with C the nodes of step 3, by Cayley's formula for forests: what the larger
graph has. Step 1 is done once for all k: a new arc draws the first node that it will go through.

The tables of a graph are plain numbers (`LINEAR`) or, beyond the range of float64, logarithms (`LOG`).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from argrad._kernels.bits import U, row_keys, uniform_64, word
from argrad._kernels.star_mesh import differentiate, eliminate, load, trusted, weigh

NO_TREE, LOG, LINEAR = -1, 0, 1


@njit(error_model="numpy", nogil=True, cache=True)
def factor(start, stop, arcs, single, direct, tables, small, kind):
    """The weights and the elimination's p and b of graphs `start` to `stop`; `LOG` = not done."""
    m = arcs.shape[2]
    w, g, x, d = np.empty((m + 1, m)), np.empty((m + 2, m)), np.empty((2, m + 2)), np.empty(m)
    for n in range(start, stop):
        weigh(arcs[n], single, d, w)
        load(w, single, direct[n])
        load(w, single, tables[n])
        log_z = eliminate(tables[n], single, d, small[n], x[0])
        differentiate(tables[n], d, small[n], x, g)
        kind[n] = LINEAR if trusted(arcs[n], log_z, small[n], g) else LOG
    return 0


@njit(error_model="numpy", cache=True)
def _pick(weights, size, u):
    """An index drawn with these weights; those of weight 0 are never drawn."""
    left = u * weights[:size].sum()
    choice = -1
    for i in range(size):
        if weights[i] > 0.0:
            choice = i
            left -= weights[i]
            if left < 0.0:
                break
    return choice


@njit(error_model="numpy", cache=True)
def _to_linear(logs, size):
    peak = logs[:size].max()
    for i in range(size):
        logs[i] = np.exp(logs[i] - peak) if logs[i] > -np.inf else 0.0


@njit(error_model="numpy", cache=True)
def _draw_through(i, j, k, direct, table, b, linear, u, x):
    """The first node after k that the new arc (i, j) goes through, or m if none."""
    m = direct.shape[1]
    size = m - k - 1
    for s in range(size):
        p, q = table[i, k + 1 + s], b[j, k + 1 + s]
        x[s] = p * q if linear else p + q
    x[size] = direct[i, j]
    if not linear:
        _to_linear(x, size + 1)
    return k + 1 + _pick(x, size + 1, u)


@njit(error_model="numpy", cache=True)
def _mark_descendants(k, parent, through, below, path):
    """below[v] = whether v descends from (or is) a node whose arc goes through k."""
    below[:k] = -1
    for start in range(k):
        length, v = 0, start
        while v >= 0 and below[v] < 0 and through[v] != k:
            path[length] = v
            length += 1
            v = parent[v] - 2
        answer = 0 if v < 0 else (1 if through[v] == k else below[v])
        for s in range(length):
            below[path[s]] = answer
        if length == 0:
            below[start] = answer


@njit(error_model="numpy", cache=True)
def _draw_head(k, table, below, linear, u, x):
    """Step 3, rows 0 and 2 to k + 1: row 1 has been dealt with."""
    for i in range(k + 2):
        outside = i == 0 or (i > 1 and below[i - 2] == 0)
        x[i] = table[i, k] if outside else (0.0 if linear else -np.inf)
    if not linear:
        _to_linear(x, k + 2)
    return _pick(x, k + 2, u)


@njit(error_model="numpy", cache=True)
def _draw_tree(direct, table, b, small, linear, keys, parent, through, scratch, x):
    """parent[v] = the row of v's head."""
    below, path = scratch[0], scratch[1]
    k1, k2, column = keys
    count = U(0)
    for k in range(parent.shape[0]):
        fresh, infinitely_small = True, small[k]
        for j in range(k):
            if through[j] == k:
                fresh = False
                infinitely_small = infinitely_small or parent[j] == 1
        if infinitely_small:
            head = 1  # an arc from row 1 went through k, or no other row reaches k
        else:
            if fresh:
                below[:k] = 0
            else:
                _mark_descendants(k, parent, through, below, path)
            head = _draw_head(k, table, below, linear, uniform_64(word(k1, k2, column + count)), x)
            count += U(1)
        parent[k], through[k] = head, k
        for j in range(k + 1):
            if through[j] == k:
                if j < k:
                    parent[j] = k + 2
                u = uniform_64(word(k1, k2, column + count))
                through[j] = _draw_through(parent[j], j, k, direct, table, b, linear, u, x)
                count += U(1)


@njit(error_model="numpy", nogil=True, cache=True)
def sample(start, stop, direct, tables, small, kind, words, heads):
    """heads[r] = a tree of graph r modulo their number: the head of each child, root row first."""
    graphs, m = small.shape
    parent, through = np.empty(m, np.int64), np.empty(m, np.int64)
    scratch, x, b = np.empty((2, m), np.int64), np.empty(m + 2), np.empty((m, m))
    for g in range(graphs):
        b[:] = tables[g, 2:].T
        t, linear = tables[g], kind[g] == LINEAR
        for r in range(start + (g - start) % graphs, stop, graphs):
            if kind[g] == NO_TREE:
                heads[r] = -1
                continue
            k1, k2 = row_keys(words, words[2] + U(r))
            keys = (k1, k2, words[3])
            _draw_tree(direct[g], t, b, small[g], linear, keys, parent, through, scratch, x)
            heads[r] = np.maximum(parent - 1, 0)
    return 0
