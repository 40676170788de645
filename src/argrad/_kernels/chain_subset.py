r"""k of n items on a line with scores for neighbours, one row at a time. Arithmetic in float64.

A row is `x[:n]`, scores of items, and `x[n:]`, scores of neighbours chosen together. Backwards over the
items, $h_i(c, b)$ is the total weight of choices from item i on, when c items are chosen before it and b says
whether item i - 1 is:

$$ h_i(c, b) = h_{i+1}(c, 0) + e^{\theta_i + b \theta_{n+i-1}} h_{i+1}(c+1, 1), \qquad h_n(k, \cdot) = 1 $$

The share of the second term, `rho[i, b, c]`, is the probability of choosing i in that state; marginals and
draws are a walk forwards with it. Weights within a row may span any range (a strong attraction of
neighbours makes most counts rare), so each is a float64 and a power of $2^{256}$: sums of positive numbers,
accurate to rounding, with neither overflow nor logarithms. Each kernel handles rows `start` to `stop` and
returns `EMPTY` if one of them allows nothing.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from argrad._kernels.choose import EMPTY

_UP, _DOWN = 2.0**256, 2.0**-256
_HIGH, _LOW = 2.0**128, 2.0**-128
_LOG = 256.0 * math.log(2.0)
_NEVER = -(1 << 40)  # the exponent of 0


@njit(error_model="numpy", cache=True)
def _wide_exp(x):
    """exp(x) as (number, exponent of 2^256)."""
    if x == -np.inf:
        return 0.0, _NEVER
    power = math.floor(x / _LOG + 0.5)
    return math.exp(x - power * _LOG), int(power)


@njit(error_model="numpy", cache=True)
def _step(first, stop, f0, e0, f1, e1, weight, power, f, e, rho):
    """f = f0[c] + weight f1[c + 1] for c from `first` to `stop`, and the share of the second term."""
    for c in range(first, stop):
        product, d = weight * f1[c + 1], power + e1[c + 1] - e0[c]
        a = f0[c] * (1.0 if d <= 0 else (_DOWN if d == 1 else 0.0))
        b = product * (1.0 if d >= 0 else (_DOWN if d == -1 else 0.0))
        total = a + b
        rho[c] = b / total if total > 0 else 0.0
        shift = 1 if total >= _HIGH else (-1 if total < _LOW else 0)
        f[c] = total * (_DOWN if shift == 1 else (_UP if shift == -1 else 1.0))
        e[c] = e0[c] + max(d, 0) + shift if total > 0 else _NEVER


@njit(error_model="numpy", cache=True)
def _chances(x, n, k, rho):
    """Fill rho `(n, 2, k + 1)` and return log Z."""
    f, e = np.zeros((2, 2, k + 2)), np.full((2, 2, k + 2), _NEVER)
    f[n % 2, :, k] = 1.0
    e[n % 2, :, k] = 0
    for i in range(n - 1, -1, -1):
        now, after = i % 2, (i + 1) % 2
        first, stop = max(0, k - (n - i)), min(i, k) + 1
        for b in range(2 if i else 1):
            weight, power = _wide_exp(x[i] + x[n + i - 1] if b else x[i])
            _step(
                first, stop, f[after, 0], e[after, 0], f[after, 1], e[after, 1],
                weight, power, f[now, b], e[now, b], rho[i, b],
            )  # fmt: skip
    return math.log(f[0, 0, 0]) + e[0, 0, 0] * _LOG if f[0, 0, 0] > 0 else -np.inf


@njit(error_model="numpy", nogil=True, cache=True)
def infer(start, stop, scores, k, log_z, mu):
    """log_z[r] and, unless mu has no columns, the marginals mu[r]."""
    status = 0
    n = (scores.shape[1] + 1) // 2
    most = k[start:stop].max()
    rho, now, after = np.empty((n, 2, most + 1)), np.empty((2, most + 2)), np.empty((2, most + 2))
    for r in range(start, stop):
        log_z[r] = -np.inf if k[r] > n else _chances(scores[r], n, k[r], rho)
        if log_z[r] == -np.inf:
            status = EMPTY
            mu[r] = 0.0
        elif mu.shape[1]:
            _walk(rho, n, k[r], now, after, mu[r])
    return status


@njit(error_model="numpy", cache=True)
def _walk(rho, n, k, now, after, mu):
    """Marginals from the probabilities now[b, c] of the states before each item."""
    now[:] = 0.0
    now[0, 0] = 1.0
    for i in range(n):
        first, stop = max(0, k - (n - i)), min(i, k) + 1
        after[:] = 0.0
        alone, pair = 0.0, 0.0
        for c in range(first, stop):
            a, b = now[0, c] * rho[i, 0, c], now[1, c] * rho[i, 1, c] if i else 0.0
            alone += a
            pair += b
            after[1, c + 1] = a + b
            after[0, c] = now[0, c] - a + (now[1, c] - b if i else 0.0)
        mu[i] = alone + pair
        if i:
            mu[n + i - 1] = pair
        now, after = after, now


@njit(error_model="numpy", nogil=True, cache=True)
def hessian_product(start, stop, scores, k, v, out):
    """out[r] = d marginals(scores[r] + s v[r]) / ds at s = 0."""
    n = (scores.shape[1] + 1) // 2
    most = k[start:stop].max()
    rho, change = np.empty((n, 2, most + 1)), np.empty((n + 1, 2, most + 2))
    state = np.empty((2, 2, 2, most + 2))
    for r in range(start, stop):
        out[r] = 0.0
        if k[r] <= n and _chances(scores[r], n, k[r], rho) > -np.inf:
            _changes(rho, n, k[r], v[r], change)
            _walk_tangent(rho, n, k[r], v[r], change, state, out[r])
    return 0


@njit(error_model="numpy", cache=True)
def _changes(rho, n, k, v, change):
    """change[i, b, c] = derivative of log h."""
    change[:] = 0.0
    for i in range(n - 1, -1, -1):
        for b in range(2 if i else 1):
            extra = v[i] + v[n + i - 1] if b else v[i]
            for c in range(max(0, k - (n - i)), min(i, k) + 1):
                p = rho[i, b, c]
                change[i, b, c] = (1 - p) * change[i + 1, 0, c] + p * (extra + change[i + 1, 1, c + 1])


@njit(error_model="numpy", cache=True)
def _walk_tangent(rho, n, k, v, change, state, out):
    """The derivative of `_walk`; state[0] has probabilities, state[1] their derivatives."""
    state[:] = 0.0
    now, after = state[0], state[1]  # each (value or derivative, b, c)
    now[0, 0, 0] = 1.0
    for i in range(n):
        after[:] = 0.0
        for b in range(2 if i else 1):
            extra = v[i] + v[n + i - 1] if b else v[i]
            total = 0.0
            for c in range(max(0, k - (n - i)), min(i, k) + 1):
                p = rho[i, b, c]
                d_p = p * (1 - p) * (extra + change[i + 1, 1, c + 1] - change[i + 1, 0, c])
                d_chosen = now[1, b, c] * p + now[0, b, c] * d_p
                after[0, 1, c + 1] += now[0, b, c] * p
                after[0, 0, c] += now[0, b, c] * (1 - p)
                after[1, 1, c + 1] += d_chosen
                after[1, 0, c] += now[1, b, c] - d_chosen
                total += d_chosen
            out[i] += total
            if b:
                out[n + i - 1] = total
        now, after = after, now


@njit(error_model="numpy", nogil=True, cache=True)
def argmax(start, stop, scores, k, bits):
    """bits[r] = the best choice of row r; of several, the one with the earliest items."""
    status = 0
    n = (scores.shape[1] + 1) // 2
    most = k[start:stop].max()
    take, value = np.empty((n, 2, most + 1), np.bool_), np.empty((2, 2, most + 2))
    for r in range(start, stop):
        bits[r] = 0
        if k[r] > n or _best(scores[r], n, k[r], value, take) == -np.inf:
            status = EMPTY
            continue
        c, b = 0, 0
        for i in range(n):
            b = int(take[i, b, c])
            c += b
            bits[r, i] = b
    return status


@njit(error_model="numpy", cache=True)
def _best(x, n, k, value, take):
    """As `_chances`, with maxima for sums; take[i, b, c] says whether to choose i."""
    value[:] = -np.inf
    value[n % 2, :, k] = 0.0
    for i in range(n - 1, -1, -1):
        now, after = i % 2, (i + 1) % 2
        for b in range(2 if i else 1):
            score = x[i] + x[n + i - 1] if b else x[i]
            for c in range(max(0, k - (n - i)), min(i, k) + 1):
                chosen = score + value[after, 1, c + 1]
                take[i, b, c] = chosen >= value[after, 0, c]
                value[now, b, c] = max(chosen, value[after, 0, c])
    return value[0, 0, 0]


@njit(error_model="numpy", nogil=True, cache=True)
def sample(start, stop, scores, k, uniform, bits):
    """bits[s, r] = a draw from row r with the uniforms uniform[s, r], one an item."""
    status = 0
    n = (scores.shape[1] + 1) // 2
    rho = np.empty((n, 2, k[start:stop].max() + 1))
    for r in range(start, stop):
        if k[r] > n or _chances(scores[r], n, k[r], rho) == -np.inf:
            status = EMPTY
            continue
        for s in range(bits.shape[0]):
            c, b = 0, 0
            for i in range(n):
                b = int(uniform[s, r, i] < rho[i, b, c])
                c += b
                bits[s, r, i] = b
    return status
