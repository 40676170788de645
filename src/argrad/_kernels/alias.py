r"""Walker's alias table: build in O(n), draw in O(1). float64.

A table is an array `(n, 2)`: cell $i$ is kept with probability `table[i, 0]` and otherwise gives the
class `table[i, 1]` (an integer that float64 holds exactly). Threshold and alias share a cache line,
because a draw from a large table costs one miss and little else.
"""

from __future__ import annotations

from numba import njit

from argrad._kernels.bits import U, row_keys, uniform_64, word


@njit(error_model="numpy", nogil=True, cache=True)
def build(weights, total, table):
    """Fill `table` from weights that sum to `total`.

    Two cursors walk over the array, one on cells below the mean and one on cells above it, so that
    memory is read in order and no lists are kept. A cell that the second cursor has emptied below the
    mean is filled next, whatever its place.
    """
    n = weights.shape[0]
    mean = total / n
    rich = _next_rich(weights, mean, -1)
    if rich == n:  # all are equal, and the mean was rounded up
        for i in range(n):
            table[i, 0] = 1.0
            table[i, 1] = i
        return
    left, lost = weights[rich] / mean, 0.0
    for poor in range(n):
        cell, share = poor, weights[poor] / mean
        if share >= 1.0:
            continue
        while True:
            table[cell, 0] = share
            table[cell, 1] = rich
            gift = share - 1.0 - lost  # Kahan: a rich cell may give a million times
            less = left + gift
            lost = (less - left) - gift
            left = less
            following = _next_rich(weights, mean, rich) if left < 1.0 else n
            if left >= 1.0 or following == n:
                break  # also when rounding leaves no rich cell: the last one serves the rest
            cell, share = rich, left
            rich = following
            left, lost = weights[rich] / mean, 0.0
    while rich < n:  # what is exactly (or by rounding nearly) the mean is never given away
        table[rich, 0] = 1.0
        table[rich, 1] = rich
        rich = _next_rich(weights, mean, rich)


@njit(error_model="numpy", cache=True)
def _next_rich(weights, mean, start):
    """The first cell behind `start` that holds at least the mean; n if there is none."""
    n = weights.shape[0]
    i = start + 1
    while i < n and weights[i] / mean < 1.0:
        i += 1
    return i


@njit(error_model="numpy", nogil=True, cache=True)
def draw(start, stop, out, columns, table, key, row, column):
    """Classes for places `start` to `stop` of an array with so many columns, by one uniform each."""
    n = table.shape[0]
    place = start
    while place < stop:
        i = place // columns
        k1, k2 = row_keys(key, row + U(i))
        first = place - i * columns
        last = min(columns, first + stop - place)
        for j in range(first, last):
            x = uniform_64(word(k1, k2, column + U(j))) * n
            cell = int(x)  # below n: u <= 1 - 2^-53, and n (1 - 2^-53) never rounds up to n
            kept = x - cell < table[cell, 0]
            out[i * columns + j] = cell if kept else int(table[cell, 1])
        place += last - first
    return 0
