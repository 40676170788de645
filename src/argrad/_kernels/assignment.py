r"""Maximum-weight assignment by shortest augmenting paths (Jonker and Volgenant), float64, in batch.

Costs are minus the scores, rows are the shorter side. Every row must get a column; an unmatched column
keeps the price 0. Two phases:
1. Row reduction: each free row bids for its cheapest column, lowering that column's price by the margin
   to its second choice, and displaces whoever was there. Matches most rows in about two passes.
2. For each row still free, Dijkstra's algorithm over reduced costs finds the cheapest alternating path to
   a free column; prices along it are updated so that reduced costs stay non-negative.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from argrad._kernels.memory import matrices_32, matrices_64
from argrad._kernels.vectors import fill, subtract

BAD, INFEASIBLE = 1, 2
_REDUCE = {"reassoc", "nsz", "nnan"}


@njit(error_model="numpy", fastmath=_REDUCE)
def _min(x):
    best = np.inf
    for j in range(x.shape[0]):
        best = min(best, x[j])
    return best


@njit(error_model="numpy")
def _find(x, value, row_of):
    """An index that holds `value`: the first free column, else the first (so ties end at once)."""
    m = x.shape[0]
    best = 2 * m
    for j in range(m):  # branch-free, to vectorise
        rank = j + m if row_of[j] >= 0 else j
        best = min(best, rank if x[j] == value else 2 * m)
    return best - m if best >= m else best


@njit(error_model="numpy")
def _reduce_rows(cost, price, row_of, column_of, free, work):
    """Phase 1; returns the number of rows left free, listed in `free`."""
    n = cost.shape[0]
    waiting = n
    for i in range(n):
        free[i] = i
    budget = 4 * n  # bids; ties and near-ties could otherwise bid for ever
    for _ in range(2):
        left, k = 0, 0
        while k < waiting:
            i = free[k]
            k += 1
            while i >= 0:
                subtract(work, cost[i], price)
                first = _min(work)
                if first == np.inf:
                    return -1
                j = _find(work, first, row_of)
                work[j] = np.inf
                second = _min(work)
                budget -= 1
                displaced = row_of[j]
                strict = first < second < np.inf and budget > 0
                if strict:
                    price[j] -= second - first
                row_of[j] = i
                column_of[i] = j
                i = -1
                if displaced >= 0:
                    column_of[displaced] = -1
                    if strict:
                        i = displaced  # bids again at once
                    else:
                        free[left] = displaced  # `left` never passes `k`
                        left += 1
        waiting = left
        if budget <= 0:
            break
    return waiting


@njit(error_model="numpy")
def _relax(best, via, cost, price, offset, i):
    """Paths that go on through row i. Closed columns have the price -inf: no path is shorter there."""
    for j in range(best.shape[0]):
        through = cost[j] - price[j] - offset
        shorter = through < best[j]
        best[j] = through if shorter else best[j]
        via[j] = i if shorter else via[j]


@njit(error_model="numpy")
def _augment(cost, price, row_of, column_of, source, best, via, open_price, closed, length):
    """Phase 2 for one free row; False if no path exists."""
    m = cost.shape[1]
    subtract(best, cost[source], price)
    for j in range(m):
        via[j] = source
        open_price[j] = price[j]
    count = 0
    while True:
        shortest = _min(best)  # apart from `_relax`: fused, neither loop vectorises
        if shortest == np.inf:
            return False
        j = _find(best, shortest, row_of)
        if row_of[j] < 0:
            break
        closed[count] = j
        length[count] = shortest
        count += 1
        best[j], open_price[j] = np.inf, -np.inf
        i = row_of[j]
        _relax(best, via, cost[i], open_price, cost[i, j] - price[j] - shortest, i)
    for k in range(count):
        price[closed[k]] += length[k] - shortest
    while True:  # flip the path, from its end back to the source
        i = via[j]
        row_of[j] = i
        j, column_of[i] = column_of[i], j
        if i == source:
            return True


@njit(error_model="numpy")
def _load(w, cost, partial):
    """cost = -w, transposed if w has more rows than columns; True if w holds NaN or +inf."""
    bad = False
    flip = w.shape[0] > w.shape[1]
    for i in range(w.shape[0]):
        for j in range(w.shape[1]):
            x = w[i, j]
            bad |= not (x < np.inf)
            cost_here = 0.0 if partial and not x > 0.0 else -x
            if flip:
                cost[j, i] = cost_here
            else:
                cost[i, j] = cost_here
    return bad


@njit(error_model="numpy")
def _first_prices(cost, price):
    """A column's least cost when all columns must be matched (square), else 0."""
    n, m = cost.shape
    fill(price, np.inf if n == m else 0.0)
    if n < m:
        return
    for i in range(n):
        for j in range(m):
            price[j] = min(price[j], cost[i, j])
    for j in range(m):
        price[j] = 0.0 if price[j] == np.inf else price[j]  # no pair at all; phase 2 will tell


@njit(error_model="numpy")
def _solve(cost, price, row_of, column_of, free, best, via, open_price, closed, length):
    """Both phases; False if the forbidden pairs leave no assignment of all rows."""
    _first_prices(cost, price)
    fill(row_of, -1)
    fill(column_of, -1)
    waiting = _reduce_rows(cost, price, row_of, column_of, free, best)
    if waiting < 0:
        return False
    for k in range(waiting):
        if not _augment(cost, price, row_of, column_of, free[k], best, via, open_price, closed, length):
            return False
    return True


@njit(error_model="numpy", nogil=True, cache=True)
def assignment_32(start, stop, scores, partial, out, n, m):
    """`_assign` for float32 matrices at the addresses `scores` and `out`."""
    return _assign(start, matrices_32(scores, stop, n, m), partial, matrices_32(out, stop, n, m))


@njit(error_model="numpy", nogil=True, cache=True)
def assignment_64(start, stop, scores, partial, out, n, m):
    """`_assign` for float64 matrices at the addresses `scores` and `out`."""
    return _assign(start, matrices_64(scores, stop, n, m), partial, matrices_64(out, stop, n, m))


@njit(error_model="numpy")
def _assign(start, scores, partial, out):
    """From item `start`: out[b] = 1 at the chosen pairs, else 0; NaN at the first pair if there is no way."""
    flip = scores.shape[1] > scores.shape[2]
    n, m = min(scores.shape[1], scores.shape[2]), max(scores.shape[1], scores.shape[2])
    reals, whole = np.empty((n + 4, m)), np.empty((5, m), np.int64)  # two allocations in place of ten
    cost, price, best, open_price, length = (
        reals[:n],
        reals[n],
        reals[n + 1],
        reals[n + 2],
        reals[n + 3],
    )
    row_of, via, closed, column_of, free = whole[0], whole[1], whole[2], whole[3, :n], whole[4, :n]
    status = 0
    for b in range(start, scores.shape[0]):
        fill(out[b].reshape(-1), 0.0)
        if _load(scores[b], cost, partial):
            status |= BAD
            continue
        if not _solve(cost, price, row_of, column_of, free, best, via, open_price, closed, length):
            status |= INFEASIBLE
            out[b, 0, 0] = np.nan
            continue
        for i in range(n):
            j = column_of[i]
            if partial and not cost[i, j] < 0.0:
                continue
            if flip:
                out[b, j, i] = 1
            else:
                out[b, i, j] = 1
    return status
