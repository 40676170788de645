r"""The few best children of each node of a beam, in one pass over the logits.

The race of `race.py` with a key for each node: a vectorised float32 pass finds the tokens that may be
among the best, and float64 decides.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from argrad._kernels.bits import U, gumbel_64, row_keys, word
from argrad._kernels.choose import BAD, EMPTY
from argrad._kernels.race import BLOCK, _add_exps, _behind, _noisy, _sift_down, _sure
from argrad._kernels.select import count_bad, maximum


@njit(error_model="numpy", nogil=True, cache=True)
def best_children(start, stop, scores, nodes, is_open, keys, ids, logits, log_z, key):
    """Rows of the heaps `keys` (logit + Gumbel), `ids`, `logits`, in no order; and log sum exp of the row.

    Where a node is closed, or has fewer children than asked for, ids are -1 and keys -inf.
    """
    status = 0
    n, size = scores.shape[1], keys.shape[1]
    e = np.empty(BLOCK, scores.dtype)
    y = np.empty(BLOCK, np.float32)
    for i in range(start, stop):
        heap, where, score = keys[i], ids[i], logits[i]
        heap[:], where[:], score[:] = -np.inf, -1, -np.inf
        if not is_open[i]:
            continue
        k1, k2 = row_keys(key, nodes[i])
        peak, total = -np.inf, 0.0
        least = _sure(heap[0])
        for first in range(0, n, BLOCK):
            x = scores[i, first : first + BLOCK]
            if count_bad(x):
                status |= BAD
                break
            peak, total = _add_exps(x, peak, total, e)
            z = y[: x.shape[0]]
            _noisy(z, x, k1, k2, U(first))
            if maximum(z) < least:
                continue
            for j in range(z.shape[0]):
                if z[j] >= least and x[j] > -np.inf:
                    exact = np.float64(x[j]) + gumbel_64(word(k1, k2, U(first + j)))
                    if _behind(heap[0], where[0], exact, first + j):
                        heap[0], where[0], score[0] = exact, first + j, x[j]
                        _sift_down(heap, where, score, size)
                        least = _sure(heap[0])
        if peak == -np.inf:
            status |= EMPTY
        log_z[i] = peak + math.log(total)
    return status
