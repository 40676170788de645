"""Gumbel-softmax and entropy of rows too short to fill vector lanes: a tile of rows, turned, lanes over the rows.

Rows of ten (the classes of a latent variable) take 6 ns an item this way instead of 18. The same noise and the
same statuses as `choose.gumbel_softmax`; results differ by rounding.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from argrad._kernels.bits import U, row_keys, word
from argrad._kernels.choose import BAD, EMPTY, _exp, _gumbel

TILE = 64  # rows
_FLOOR = np.float32(-1000.0)  # exp of it is 0 in float32 and float64, and 0 times it is 0


@njit(error_model="numpy")
def _turn_in(tile, scores, first, rows):
    """Copy rows to columns; 1 if a NaN or +inf is among them."""
    bad = 0
    for r in range(rows):
        for j in range(scores.shape[1]):
            x = scores[first + r, j]
            bad |= not (x < np.inf)
            tile[j * TILE + r] = x
    return bad


@njit(error_model="numpy")
def _turn_out(out, first, rows, tile, total):
    for r in range(rows):
        for j in range(out.shape[1]):
            out[first + r, j] = tile[j * TILE + r] * total[r]


@njit(error_model="numpy")
def _max_into(peak, x):
    for r in range(x.shape[0]):
        peak[r] = max(peak[r], x[r])


@njit(error_model="numpy")
def _perturb(x, peak, k1, k2, column):
    """x += Gumbel - peak; subtracting first keeps the noise's digits."""
    for r in range(x.shape[0]):
        z = word(k1[r], k2[r], column)
        x[r] = (x[r] - peak[r]) + _gumbel(z, x[r])


@njit(error_model="numpy")
def _exp_and_add(x, peak, scale, total):
    for r in range(x.shape[0]):
        y = _exp((x[r] - peak[r]) * scale[r], x[r])
        x[r] = y
        total[r] += y


@njit(error_model="numpy", nogil=True, cache=True)
def gumbel_softmax(start, stop, scores, scale, out, key, row, column):
    """out[i] = softmax((scores[i] + Gumbel) * scale[i]), scale = 1 / tau."""
    n = scores.shape[1]
    tile = np.empty(n * TILE, scores.dtype)  # flat: a slice of a matrix would not count as contiguous
    peak, total = np.empty(TILE, scores.dtype), np.empty(TILE, scores.dtype)
    scales = np.empty(TILE, scores.dtype)
    k1, k2 = np.empty(TILE, np.uint64), np.empty(TILE, np.uint64)
    status = 0
    for first in range(start, stop, TILE):
        rows = min(TILE, stop - first)
        if _turn_in(tile, scores, first, rows):
            status |= BAD
        peak[:] = -np.inf
        for j in range(n):
            _max_into(peak, tile[j * TILE : j * TILE + rows])
        for r in range(rows):
            if peak[r] == -np.inf:
                status |= EMPTY
            k1[r], k2[r] = row_keys(key, row + U(first + r))
            scales[r] = scale[(first + r) % scale.shape[0]]
        for j in range(n):
            _perturb(tile[j * TILE : j * TILE + rows], peak, k1, k2, column + U(j))
        peak[:] = -np.inf
        for j in range(n):
            _max_into(peak, tile[j * TILE : j * TILE + rows])
        total[:] = 0.0
        for j in range(n):
            _exp_and_add(tile[j * TILE : j * TILE + rows], peak, scales, total)
        for r in range(rows):
            total[r] = (total[r] / total[r]) / total[r]  # 1 / total, in its own type
        _turn_out(out, first, rows, tile, total)
    return status


@njit(error_model="numpy", nogil=True, cache=True)
def softmax_backward(start, stop, grad, soft, scale, out):
    """out[i, j] = soft[i, j] (grad[i, j] - <grad[i], soft[i]>) scale[i]."""
    n = soft.shape[1]
    for i in range(start, stop):
        inner = soft[i, 0] * grad[i, 0]
        for j in range(1, n):
            inner += soft[i, j] * grad[i, j]
        s = scale[i % scale.shape[0]]
        for j in range(n):
            out[i, j] = soft[i, j] * (grad[i, j] - inner) * s
    return 0


@njit(error_model="numpy")
def _weigh(x, weight, peak, total, moment):
    """weight = exp(x - peak) with its sum and its mean of x - peak, which stays in x; -inf becomes finite there."""
    for r in range(x.shape[0]):
        below = max(x[r] - peak[r], x[r] * 0 + _FLOOR) if x[r] > -np.inf else peak[r] * 0 + _FLOOR
        y = _exp(below, x[r])
        weight[r] = y
        x[r] = below
        total[r] += y
        moment[r] += y * below


@njit(error_model="numpy", nogil=True, cache=True)
def entropy(start, stop, scores, value, slope):
    """value[i] = H(softmax(scores[i])), slope[i, j] = dH/dscores[i, j] = -p_j (scores[i, j] - E scores[i])."""
    n = scores.shape[1]
    tile, weight = np.empty(n * TILE, scores.dtype), np.empty(n * TILE, scores.dtype)
    peak, total = np.empty(TILE, scores.dtype), np.empty(TILE, scores.dtype)
    moment = np.empty(TILE, scores.dtype)
    status = 0
    for first in range(start, stop, TILE):
        rows = min(TILE, stop - first)
        if _turn_in(tile, scores, first, rows):
            status |= BAD
        peak[:] = -np.inf
        total[:] = 0.0
        moment[:] = 0.0
        for j in range(n):
            _max_into(peak, tile[j * TILE : j * TILE + rows])
        for j in range(n):
            here = slice(j * TILE, j * TILE + rows)
            _weigh(tile[here], weight[here], peak, total, moment)
        for r in range(rows):
            if peak[r] == -np.inf:
                status |= EMPTY
            moment[r] /= total[r]
            value[first + r] = max(
                math.log(total[r]) - moment[r], 0.0
            )  # rounding must not make it negative
            total[r] = (total[r] / total[r]) / total[r]  # 1 / total, in its own type
            for j in range(n):
                at = j * TILE + r
                slope[first + r, j] = weight[at] * total[r] * (moment[r] - tile[at])
    return status
