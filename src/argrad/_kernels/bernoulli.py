"""Negative log-likelihood of bits, value and slope in one pass: one exponential and one division each, no logarithm."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from argrad._kernels.choose import _exp

LANES = 64
_FLUSH = 100 * LANES  # a product of a hundred factors of at most 2 is below the largest float32


@njit(error_model="numpy")
def _block(logits, x, slope, product, linear, zero, one):
    r"""slope = sigmoid(l) - x; product *= 1 + exp(-|l|); linear += max(l, 0) - x l, a lane for each place."""
    for k in range(logits.shape[0]):
        logit = logits[k]
        e = _exp(-abs(logit), logit)
        both = one + e
        slope[k] = (one if logit >= zero else e) / both - x[k]
        product[k] *= both
        linear[k] += max(logit, zero) - x[k] * logit


@njit(error_model="numpy", nogil=True, cache=True)
def nll(start, stop, logits, x, value, slope):
    """value[i] = sum_j softplus(logits[i, j]) - x[i, j] logits[i, j] and its slope; `x` is repeated down the rows."""
    n = logits.shape[1]
    product, linear = np.empty(LANES, logits.dtype), np.empty(LANES, logits.dtype)
    for i in range(start, stop):
        at = i % x.shape[0]
        product[:] = 1.0
        linear[:] = 0.0
        one, zero = (
            product[0],
            linear[0],
        )  # constants of the logits' own type: others would widen the lanes
        total = 0.0
        for j in range(0, n, LANES):
            if j % _FLUSH == 0:
                for k in range(LANES):
                    total += math.log(product[k])
                    product[k] = 1.0
            end = min(j + LANES, n)
            _block(logits[i, j:end], x[at, j:end], slope[i, j:end], product, linear, zero, one)
        for k in range(LANES):
            total += math.log(product[k]) + linear[k]
        value[i] = total
    return 0
