"""Tags along a line, one row at a time. Arrays of float32 or float64, arithmetic in float64.

A row's scores are `x[t, i, j]`, tag i at place t and j at t + 1. Backwards, the log-weight of all
continuations makes each step a Markov transition `p[t, i, j]` = P(j at t + 1 | i at t), a softmax; then
everything asked for is a walk forwards, with probabilities only. Continuations are kept relative to the
best one, so that digits do not depend on the length. Each kernel handles rows `start` to `stop` and
returns `EMPTY` if one of them allows no tags.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from argrad._kernels.choose import EMPTY
from argrad._kernels.exp import exp_64

_REDUCE = {"reassoc", "nsz", "nnan"}


@njit(error_model="numpy", cache=True, fastmath=_REDUCE)
def _max_of_sum(a, b):
    peak = -np.inf
    for j in range(a.shape[0]):
        peak = max(peak, a[j] + b[j])
    return peak


@njit(error_model="numpy", cache=True)
def _exp_of_sum(out, a, b, peak):
    for j in range(out.shape[0]):
        out[j] = exp_64(a[j] + b[j] - peak)


@njit(error_model="numpy", cache=True, fastmath=_REDUCE)
def _normalise(out):
    """Divide by the sum, and return it."""
    total = 0.0
    for j in range(out.shape[0]):
        total += out[j]
    scale = 1.0 / total
    for j in range(out.shape[0]):
        out[j] *= scale
    return total


@njit(error_model="numpy", cache=True)
def _softmax_of_sum(out, a, b):
    """out = softmax(a + b), or 0 if all is forbidden; returns the log of the sum of exponentials."""
    peak = _max_of_sum(a, b)
    if peak == -np.inf:
        out[:] = 0.0
        return peak
    _exp_of_sum(out, a, b, peak)
    return peak + math.log(_normalise(out))


@njit(error_model="numpy", cache=True)
def _transitions(x, p, first):
    """Transitions p (of the last places only if p is shorter) and the law `first` of tag 0; returns log Z."""
    tags = x.shape[1]
    weight, after, zero = np.empty(tags), np.zeros(tags), np.zeros(tags)
    total = 0.0
    for t in range(x.shape[0] - 1, -1, -1):
        for i in range(tags):
            weight[i] = _softmax_of_sum(p[t % p.shape[0], i], x[t, i], after)
        peak = weight.max()
        if peak == -np.inf:
            return peak
        total += peak
        after[:] = weight - peak
    return total + _softmax_of_sum(first, after, zero)


@njit(error_model="numpy", nogil=True, cache=True)
def infer(start, stop, scores, log_z, mu):
    """log_z[r] and, unless mu has no steps, the marginals mu[r]."""
    status = 0
    tags = scores.shape[2]
    p = np.empty((max(1, mu.shape[1]), tags, tags))
    now, after = np.empty(tags), np.empty(tags)
    for r in range(start, stop):
        log_z[r] = _transitions(scores[r], p, now)
        if log_z[r] == -np.inf:
            status = EMPTY
            mu[r] = 0.0
            continue
        for t in range(mu.shape[1]):
            after[:] = 0.0
            for i in range(tags):
                _arrive(after, mu[r, t, i], p[t, i], now[i])
            now[:] = after
    return status


@njit(error_model="numpy", cache=True)
def _arrive(after, mu, p, now):
    """mu = now * p, and add it to `after`."""
    for j in range(p.shape[0]):
        both = now * p[j]
        after[j] += both
        mu[j] = both


@njit(error_model="numpy", nogil=True, cache=True)
def hessian_product(start, stop, scores, v, out):
    """out[r] = d marginals(scores[r] + s v[r]) / ds at s = 0."""
    steps, tags = scores.shape[1], scores.shape[2]
    p, change = np.empty((steps, tags, tags)), np.zeros((steps + 1, tags))
    now, after, d_now, d_after = np.empty(tags), np.empty(tags), np.empty(tags), np.empty(tags)
    for r in range(start, stop):
        out[r] = 0.0
        if _transitions(scores[r], p, now) == -np.inf:
            continue
        for t in range(steps - 1, -1, -1):  # change = derivative of the log-weight of continuations
            for i in range(tags):
                change[t, i] = _expect(p[t, i], v[r, t, i], change[t + 1])
        d_now[:] = now * (change[0] - (now * change[0]).sum())
        for t in range(steps):
            after[:] = 0.0
            d_after[:] = 0.0
            for i in range(tags):
                _arrive_tangent(
                    after,
                    d_after,
                    out[r, t, i],
                    p[t, i],
                    v[r, t, i],
                    change[t + 1],
                    change[t, i],
                    now[i],
                    d_now[i],
                )
            now[:] = after
            d_now[:] = d_after
    return 0


@njit(error_model="numpy", cache=True, fastmath=_REDUCE)
def _expect(p, a, b):
    """The mean of a + b under p."""
    total = 0.0
    for j in range(p.shape[0]):
        total += p[j] * (a[j] + b[j])
    return total


@njit(error_model="numpy", cache=True)
def _arrive_tangent(after, d_after, out, p, v, ahead, mean, now, d_now):
    """The derivative of `_arrive`, where log p changes by v + ahead - mean."""
    for j in range(p.shape[0]):
        change = p[j] * (d_now + now * (v[j] + ahead[j] - mean))
        after[j] += now * p[j]
        d_after[j] += change
        out[j] = change


@njit(error_model="numpy", nogil=True, cache=True)
def argmax(start, stop, scores, tags):
    """tags[r] = the best tags of row r; of several, the first in the order of the alphabet."""
    status = 0
    steps, size = scores.shape[1], scores.shape[2]
    best = np.empty((steps, size), np.int64)
    value, after = np.empty(size), np.empty(size)
    for r in range(start, stop):
        after[:] = 0.0
        for t in range(steps - 1, -1, -1):
            for i in range(size):
                total = scores[r, t, i] + after
                best[t, i] = total.argmax()
                value[i] = total[best[t, i]]
            after[:] = value
        tags[r, 0] = after.argmax()
        for t in range(steps):
            tags[r, t + 1] = best[t, tags[r, t]]
        if after.max() == -np.inf:
            status = EMPTY
    return status


@njit(error_model="numpy", nogil=True, cache=True)
def sample(start, stop, scores, uniform, tags):
    """tags[s, r] = a draw from row r with the uniforms uniform[s, r], one a place."""
    status = 0
    steps, size = scores.shape[1], scores.shape[2]
    p, first = np.empty((steps, size, size)), np.empty(size)
    for r in range(start, stop):
        if _transitions(scores[r], p, first) == -np.inf:
            status = EMPTY
            continue
        for s in range(tags.shape[0]):
            tag = _pick(first, uniform[s, r, 0])
            tags[s, r, 0] = tag
            for t in range(steps):
                tag = _pick(p[t, tag], uniform[s, r, t + 1])
                tags[s, r, t + 1] = tag
    return status


@njit(error_model="numpy", cache=True)
def _pick(p, u):
    """An index with probability p[j]; never one of probability 0."""
    choice, left = 0, u
    for j in range(p.shape[0]):
        if p[j] > 0:
            choice = j
            left -= p[j]
            if left < 0:
                break
    return choice
