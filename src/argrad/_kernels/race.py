r"""The race $\theta_i + \varepsilon_i$ over items that come in pieces: tiles of a matrix product, or a stream.

Item $i$ passes the threshold $T$ when its exponential $E_i = e^{-\varepsilon_i}$ is below $e^{\theta_i - T}$. The
exponentials $e^{\theta_i - \text{peak}}$ are needed anyway, for the log-sum-exp, and $E_i$ has a lower bound that takes
no logarithm. So a vectorised float32 pass finds the few items that may pass, and only they get their Gumbel, in
float64. The outcome does not depend on how the items were cut. Log-sum-exps are kept as (peak, total).
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, types
from numba.extending import overload

from argrad._kernels.bits import F, I, U, gumbel_64, half_unit, row_keys, scalar, word
from argrad._kernels.choose import _REDUCE, BAD, _exp_32, _sum_64
from argrad._kernels.exp import exp_64
from argrad._kernels.select import count_bad, maximum

BLOCK = 256


def _exp(x, like):
    raise NotImplementedError("only inside compiled kernels")


@overload(_exp, jit_options={"forceinline": True})
def _exp_of(x, like):
    if like == types.float32:
        return lambda x, like: _exp_32(x)
    return lambda x, like: exp_64(x)


@njit(error_model="numpy", cache=True)
def _exp_minus(out, x, peak):
    for j in range(out.shape[0]):
        out[j] = _exp(x[j] - peak, out[j])


@scalar
def _least(z):
    """A lower bound of the exponential made of these bits, by tangents.

    It is -log(1 - w) >= w, or -log w >= log 2 + 1 - 2 w, with w in (0, 1/2] and by the lowest bit.
    """
    w = half_unit(z)
    s = F(I(z & U(1)))
    return s * w + (F(1.0) - s) * (F(1.693) - w - w)


@njit(error_model="numpy", cache=True, fastmath=_REDUCE)
def _count(e, ratio, k1, k2, column):
    """How many of neighbouring items may pass: their exponential may be below `e * ratio`."""
    count = F(0.0)
    for j in range(e.shape[0]):
        count += F(1.0) if _least(word(k1, k2, column + U(j))) < F(e[j]) * ratio else F(0.0)
    return count


@njit(error_model="numpy", cache=True, fastmath=_REDUCE)
def _count_at(e, ratio, k1, k2, ids):
    """The same for ids that are written down."""
    count = F(0.0)
    for j in range(e.shape[0]):
        count += F(1.0) if _least(word(k1, k2, U(ids[j]))) < F(e[j]) * ratio else F(0.0)
    return count


@scalar
def _ratio(peak, threshold):
    """exp(peak - threshold), with room for the rounding of float32; inf when the bound is of no use.

    No Gumbel exceeds 45, so that what passes a threshold above peak - 40 has an exponential e^(x - peak)
    above 10^-37, which float32 can hold; below that, every item may pass.
    """
    return F(math.exp(peak - threshold) * 1.0001) if threshold > peak - 40.0 else F(np.inf)


@njit(error_model="numpy", cache=True)
def _add_exps(x, top, peak, total, e):
    """(peak, total) after the items of x, whose maximum is `top` > -inf; e = exp(x - peak)."""
    if top > peak:
        total *= math.exp(peak - top)
        peak = np.float64(top)
    _exp_minus(e, x, x.dtype.type(peak))
    return peak, total + _sum_64(e)


@njit(error_model="numpy", cache=True)
def _behind(key, i, other, j):
    """Whether (key, i) comes after (other, j) in the falling order; equal keys stand by rising id."""
    return key < other or (key == other and i > j)


@njit(error_model="numpy", cache=True)
def _sift_down(keys, ids, scores, size):
    """Restore the heap order (last of the falling order on top) after the top was replaced."""
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            return
        right = child + 1
        if right < size and _behind(keys[right], ids[right], keys[child], ids[child]):
            child = right
        if not _behind(keys[child], ids[child], keys[i], ids[i]):
            return
        keys[i], keys[child] = keys[child], keys[i]
        ids[i], ids[child] = ids[child], ids[i]
        scores[i], scores[child] = scores[child], scores[i]
        i = child


@njit(error_model="numpy", nogil=True, cache=True)
def add_tile(start, stop, tile, first_id, keys, ids, scores, sums, key, row, column):
    """Enter items `first_id ...` of rows `start` to `stop` into each row's heap and log-sum-exp."""
    status = 0
    n, size = tile.shape[1], keys.shape[1]
    buffer = np.empty(BLOCK, tile.dtype)
    for i in range(start, stop):
        k1, k2 = row_keys(key, row + U(i))
        heap, where, score = keys[i], ids[i], scores[i]
        peak, total = sums[i, 0], sums[i, 1]
        for first in range(0, n, BLOCK):
            x = tile[i, first : first + BLOCK]
            top = maximum(x)
            if count_bad(x):
                status |= BAD
            elif top > -np.inf:
                e = buffer[: x.shape[0]]
                peak, total = _add_exps(x, top, peak, total, e)
                ratio, column_0 = _ratio(peak, heap[0]), column + U(first)
                if ratio < np.inf and _count(e, ratio, k1, k2, column_0) == 0:
                    continue
                for j in range(x.shape[0]):
                    z = word(k1, k2, column_0 + U(j))
                    if x[j] > -np.inf and (ratio == np.inf or _least(z) < F(e[j]) * ratio):
                        exact, item = np.float64(x[j]) + gumbel_64(z), first_id + first + j
                        if _behind(heap[0], where[0], exact, item):
                            heap[0], where[0], score[0] = exact, item, x[j]
                            _sift_down(heap, where, score, size)
                            ratio = _ratio(peak, heap[0])
        sums[i, 0], sums[i, 1] = peak, total
    return status


@njit(error_model="numpy", nogil=True, cache=True)
def scan(start, stop, ids, first_id, x, threshold, keys, found, scores, filled, sums, key):
    """Write items of x[start:stop] above the threshold behind the `filled` first entries of the buffers.

    Stops before a block that might not fit. `ids` may be empty: then item j has the id `first_id + j`.
    Returns where it stopped, how many entries are filled, and the status.
    """
    k1, k2 = row_keys(key, U(0))
    buffer = np.empty(BLOCK, x.dtype)
    peak, total = sums[0], sums[1]
    status, at = 0, start
    while at < stop and filled + BLOCK <= keys.shape[0]:
        part = x[at : min(at + BLOCK, stop)]
        size = part.shape[0]
        at += size
        top = maximum(part)
        if count_bad(part):
            status |= BAD
            break
        if top == -np.inf:
            continue
        e = buffer[:size]
        peak, total = _add_exps(part, top, peak, total, e)
        ratio, first = _ratio(peak, threshold), at - size
        if ratio < np.inf:
            if ids.shape[0]:
                count = _count_at(e, ratio, k1, k2, ids[first:at])
            else:
                count = _count(e, ratio, k1, k2, U(first_id + first))
            if count == 0:
                continue
        for j in range(size):
            item = ids[first + j] if ids.shape[0] else first_id + first + j
            z = word(k1, k2, U(item))
            if part[j] > -np.inf and (ratio == np.inf or _least(z) < F(e[j]) * ratio):
                exact = np.float64(part[j]) + gumbel_64(z)
                if exact >= threshold:
                    keys[filled], found[filled], scores[filled] = exact, item, part[j]
                    filled += 1
    sums[0], sums[1] = peak, total
    return at, filled, status
