r"""What happens at the nodes of a tree of sequences: a race between tokens, or a code that is read.

In the race float32 noise finds the best tokens; their values are then computed in float64, from the same bits.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from argrad._kernels.bits import U, gumbel_64, row_keys, word
from argrad._kernels.choose import (
    BLOCK,
    _exp_minus,
    _max,
    _perturb,
    _row_status,
    _sift_down,
    _sum_64,
)


@njit(error_model="numpy", nogil=True, cache=True)
def best_children(start, stop, scores, nodes, is_open, noisy, ids, log_p, key):
    """The largest sums of log softmax(scores[i]) and Gumbel, in no order; where; and log softmax there.

    Where a node is closed, or has fewer children than asked for, ids are -1 and the others -inf.
    """
    status = 0
    n, size = scores.shape[1], noisy.shape[1]
    x = np.empty(BLOCK, scores.dtype)
    heap = np.empty(size, scores.dtype)
    for i in range(start, stop):
        where = ids[i]
        heap[:], where[:], noisy[i], log_p[i] = -np.inf, -1, -np.inf, -np.inf
        if not is_open[i]:
            continue
        state, peak = _row_status(scores[i])
        status |= state
        if state:
            continue
        k1, k2 = row_keys(key, nodes[i])
        total = 0.0
        for first in range(0, n, BLOCK):
            part = scores[i, first : first + BLOCK]
            y = x[: part.shape[0]]
            _exp_minus(y, part, peak)
            total += _sum_64(y)
            _perturb(y, part, peak, k1, k2, U(first))
            if _max(y) > heap[0]:
                for j in range(y.shape[0]):
                    if y[j] > heap[0]:
                        heap[0], where[0] = y[j], first + j
                        _sift_down(heap, where, size)
        log_z = math.log(total)
        for j in range(size):
            if where[j] >= 0:
                log_p[i, j] = np.float64(scores[i, where[j]]) - np.float64(peak) - log_z
                noisy[i, j] = log_p[i, j] + gumbel_64(word(k1, k2, U(where[j])))
    return status


@njit(error_model="numpy", cache=True)
def _pick(e, left):
    """The place in e (masses of a block) where `left` falls, and what is left of it there."""
    choice, rest = -1, 0.0
    for j in range(e.shape[0]):
        if e[j] > 0:  # what has no mass is passed over
            choice, rest = j, left
            left -= e[j]
            if left < 0:
                break
    return choice, rest


@njit(error_model="numpy", nogil=True, cache=True)
def read_codes(start, stop, scores, is_open, codes, tokens, log_p, rest, resolution):
    """Tokens by the inverse distribution function at `codes[i]`, any number of them for a row of scores."""
    status = 0
    n = scores.shape[1]
    blocks = (n + BLOCK - 1) // BLOCK
    mass = np.empty(blocks, np.float64)
    e = np.empty(BLOCK, scores.dtype)
    for i in range(start, stop):
        tokens[i], log_p[i], rest[i], resolution[i] = 0, 0.0, 0.0, 1.0
        if not is_open[i]:
            continue
        state, peak = _row_status(scores[i])
        status |= state
        if state:
            continue
        last = 0
        for b in range(blocks):
            part = scores[i, b * BLOCK : (b + 1) * BLOCK]
            _exp_minus(e[: part.shape[0]], part, peak)
            mass[b] = _sum_64(e[: part.shape[0]])
            if mass[b] > 0:
                last = b
        total = mass.sum()
        for c in range(codes.shape[1]):
            left = codes[i, c] * total
            b = 0
            while b < last and left >= mass[b]:
                left -= mass[b]
                b += 1
            part = scores[i, b * BLOCK : (b + 1) * BLOCK]
            _exp_minus(e[: part.shape[0]], part, peak)
            j, inside = _pick(e[: part.shape[0]], left)
            width = np.float64(e[j])
            tokens[i, c] = b * BLOCK + j
            log_p[i, c] = np.float64(part[j]) - np.float64(peak) - math.log(total)
            rest[i, c] = min(max(inside / width, 0.0), 1.0)
            resolution[i, c] = min(2.0**-52 * total / width, 1.0)
    return status
