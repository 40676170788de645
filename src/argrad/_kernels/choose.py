r"""Noise fused with the choice it is for: softmax, one draw, top-k. float32 and float64.

Each kernel handles rows `start` to `stop` and returns status bits: `BAD` when a NaN or +inf was met,
`EMPTY` when a row had nothing to choose, `FEW` when it had fewer items than asked for. The caller
turns them into sentences; results of such rows are undefined.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, types
from numba.extending import overload

from argrad._kernels.bits import F, I, U, gumbel_32, gumbel_64, row_keys, scalar, uniform_64, word

BAD, EMPTY, FEW = 1, 2, 4
BLOCK = 256
_REDUCE = {"reassoc", "nsz", "nnan"}  # lets LLVM sum and maximise in vector lanes


def _gumbel(z, like):
    """Gumbel(0, 1) in the dtype of `like`."""
    raise NotImplementedError("only inside compiled kernels")


@overload(_gumbel, jit_options={"forceinline": True})
def _gumbel_of(z, like):
    if like == types.float32:
        return lambda z, like: gumbel_32(z)
    return lambda z, like: gumbel_64(z)


@scalar
def _exp_32(x):
    """exp(x) for x <= 0 within 2 ulp, exactly 0 below about -104 (so for -inf too)."""
    x = max(x, F(-120.0))
    n = I(x * F(1.44269504088896341) - F(0.5))
    k = F(n)
    r = x - k * F(0.693359375) + k * F(2.12194440e-4)
    p = F(1.9875691500e-4)
    p = p * r + F(1.3981999507e-3)
    p = p * r + F(8.3334519073e-3)
    p = p * r + F(4.1665795894e-2)
    p = p * r + F(1.6666665459e-1)
    p = p * r + F(5.0000001201e-1)
    p = p * r * r + r + F(1.0)
    half = I(n >> I(1))  # 2^n in two factors, so that results below 2^-126 round to denormals or 0
    rest = I(n - half)
    scale = I(I(half + I(127)) << I(23)).view(F)
    return p * scale * I(I(rest + I(127)) << I(23)).view(F)


def _exp(x, like):
    raise NotImplementedError("only inside compiled kernels")


@overload(_exp, jit_options={"forceinline": True})
def _exp_of(x, like):
    if like == types.float32:
        return lambda x, like: _exp_32(x)
    return lambda x, like: math.exp(x)


@njit(error_model="numpy", cache=True, fastmath=_REDUCE)
def _max(x):
    peak = x[0]
    for j in range(x.shape[0]):
        peak = max(peak, x[j])
    return peak


@njit(error_model="numpy", cache=True)
def _count_bad(x):
    """How many entries are NaN or +inf."""
    bad = 0
    for j in range(x.shape[0]):
        bad += not (x[j] < np.inf)
    return bad


@njit(error_model="numpy", cache=True, fastmath=_REDUCE)
def _sum(x):
    total = x[0] - x[0]  # a zero of x's own type: 0 would widen the sum to float64
    for j in range(x.shape[0]):
        total += x[j]
    return total


@njit(error_model="numpy", cache=True, fastmath=_REDUCE)
def _sum_64(x):
    """In float64: a float32 sum forgets items of probability below 6e-8."""
    total = 0.0
    for j in range(x.shape[0]):
        total += x[j]
    return total


@njit(error_model="numpy", cache=True)
def _perturb(out, scores, peak, k1, k2, column):
    """out = scores - peak + Gumbel; subtracting first keeps the noise's digits."""
    for j in range(out.shape[0]):
        z = word(k1, k2, column + U(j))
        out[j] = (scores[j] - peak) + _gumbel(z, out[j])


@njit(error_model="numpy", cache=True)
def _exp_minus(out, x, peak):
    for j in range(out.shape[0]):
        out[j] = _exp(x[j] - peak, out[j])


@njit(error_model="numpy", cache=True)
def _exp_minus_(x, peak, scale):
    """x = exp((x - peak) * scale) in place (two views of the same memory would stop the vectoriser)."""
    for j in range(x.shape[0]):
        x[j] = _exp((x[j] - peak) * scale, x[j])


@njit(error_model="numpy", cache=True)
def _times(out, factor):
    for j in range(out.shape[0]):
        out[j] *= factor


@njit(error_model="numpy", cache=True)
def _row_status(row):
    """(status, maximum)."""
    peak = _max(row)
    if _count_bad(row):
        return BAD, peak
    return (EMPTY if peak == -np.inf else 0), peak


@njit(error_model="numpy", nogil=True, cache=True)
def gumbel_softmax(start, stop, scores, scale, out, key, row, column):
    """out[i] = softmax((scores[i] + Gumbel) * scale[i]), scale = 1 / tau."""
    status = 0
    for i in range(start, stop):
        state, peak = _row_status(scores[i])
        status |= state
        if state:
            continue
        k1, k2 = row_keys(key, row + U(i))
        y = out[i]
        _perturb(y, scores[i], peak, k1, k2, column)
        _exp_minus_(y, _max(y), scale[i % scale.shape[0]])
        total = _sum(y)
        _times(y, (total / total) / total)  # 1 / total, in total's own type
    return status


@njit(error_model="numpy", nogil=True, cache=True)
def draw_one(start, stop, scores, out, key, row, column):
    """out[i] ~ Categorical(softmax(scores[i])), by one uniform and the inverse distribution function."""
    status = 0
    n = scores.shape[1]
    blocks = (n + BLOCK - 1) // BLOCK
    mass = np.empty(blocks, np.float64)
    e = np.empty(min(n, BLOCK), scores.dtype)
    for i in range(start, stop):
        state, peak = _row_status(scores[i])
        status |= state
        if state:
            continue
        for b in range(blocks):
            part = scores[i, b * BLOCK : (b + 1) * BLOCK]
            _exp_minus(e[: part.shape[0]], part, peak)
            mass[b] = _sum_64(e[: part.shape[0]])
        k1, k2 = row_keys(key, row + U(i))
        left = uniform_64(word(k1, k2, column)) * mass.sum()
        b = 0
        last = 0
        for c in range(blocks):  # the block in which the uniform falls
            if mass[c] > 0:
                last = c
        while b < last and left >= mass[b]:
            left -= mass[b]
            b += 1
        part = scores[i, b * BLOCK : (b + 1) * BLOCK]
        _exp_minus(e[: part.shape[0]], part, peak)
        choice = -1
        for j in range(part.shape[0]):  # the item within the block; items of mass 0 are passed over
            if e[j] > 0:
                choice = j
                left -= e[j]
                if left < 0:
                    break
        out[i] = b * BLOCK + choice
    return status


@njit(error_model="numpy", cache=True)
def _sift_down(values, ids, size):
    """Restore the heap order (smallest on top) after the top was replaced."""
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            return
        right = child + 1
        if right < size and values[right] < values[child]:
            child = right
        if values[i] <= values[child]:
            return
        values[i], values[child] = values[child], values[i]
        ids[i], ids[child] = ids[child], ids[i]
        i = child


@njit(error_model="numpy", nogil=True, cache=True)
def gumbel_topk(start, stop, scores, values, ids, log_p, key, row, column):
    """The largest of log softmax(scores[i]) + Gumbel in falling order, where, and log softmax there.

    One column more than the number asked for, when the row is long enough, is the threshold kappa.
    Everything is relative to the row's maximum, so that a constant in the scores costs no digits.
    """
    status = 0
    n, m = scores.shape[1], values.shape[1]
    x = np.empty(BLOCK, scores.dtype)
    for i in range(start, stop):
        state, peak = _row_status(scores[i])
        status |= state
        if state:
            continue
        k1, k2 = row_keys(key, row + U(i))
        heap, where = values[i], ids[i]
        heap[:] = -np.inf
        where[:] = -1
        total = 0.0
        for first in range(0, n, BLOCK):
            part = scores[i, first : first + BLOCK]
            y = x[: part.shape[0]]
            _exp_minus(y, part, peak)
            total += _sum_64(y)
            _perturb(y, part, peak, k1, k2, column + U(first))
            if _max(y) > heap[0]:
                for j in range(y.shape[0]):
                    if y[j] > heap[0]:
                        heap[0] = y[j]
                        where[0] = first + j
                        _sift_down(heap, where, m)
        for size in range(m - 1, 0, -1):  # heap sort: falling order
            heap[0], heap[size] = heap[size], heap[0]
            where[0], where[size] = where[size], where[0]
            _sift_down(heap, where, size)
        log_z = math.log(total)
        for j in range(m):
            log_p[i, j] = (scores[i, where[j]] - peak) - log_z if where[j] >= 0 else -np.inf
            heap[j] -= log_z
    return status
