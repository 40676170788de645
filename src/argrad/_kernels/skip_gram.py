r"""Skip-gram by stochastic gradient descent, in place: many tiny steps that no tensor library can batch.

A pair (input word c, target word w) is compared with a few *candidates*: the target and noise words, or the
inner nodes on the target's path in a tree. Each candidate $t$ has a row $u_t$, an offset $o_t$ and a sign
$\sigma_t$ (+1 data or right, -1 noise or left), and the loss is $-\sum_t \log \mathrm{sigmoid}(\sigma_t (u_t
\cdot v_c + o_t))$: the kernel of `argrad.losses`, whose autograd the tests compare it with.

Threads write to the same tables without locks ("Hogwild"): updates are sparse and rarely meet. One thread is
deterministic.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from argrad._kernels.bits import F, U, row_keys, uniform_64, word

_REDUCE = {"reassoc", "nsz", "nnan", "contract"}


@njit(error_model="numpy", forceinline=True, fastmath=_REDUCE)
def _dot(a, b):
    total = F(0.0)
    for i in range(a.shape[0]):
        total += a[i] * b[i]
    return total


@njit(error_model="numpy", forceinline=True, fastmath=_REDUCE)
def _add(out, scale, x):
    for i in range(out.shape[0]):
        out[i] += scale * x[i]


@njit(error_model="numpy", cache=True, nogil=True)
def update(v, rows, offset, learn_offset, candidates, signs, count, rate, change):
    """One step of descent for one pair; `v` is the input word's vector, `change` scratch of its size.

    All candidates see the same `v`: it moves when they are done.
    """
    change[:] = F(0.0)
    for j in range(count):
        t = candidates[j]
        u = rows[t]
        score = _dot(v, u) + offset[t]
        # the derivative of log sigmoid(sign * score); at large scores exp overflows to inf, and 1 / inf is 0
        step = F(rate * signs[j]) / F(1.0 + math.exp(min(F(signs[j]) * score, F(80.0))))
        _add(change, step, u)
        _add(u, step, v)
        if learn_offset:
            offset[t] += step
    _add(v, F(1.0), change)


@njit(error_model="numpy", forceinline=True)
def _draw(table, bits):
    """A class from an alias table, as `_kernels.alias.draw`."""
    x = uniform_64(bits) * table.shape[0]
    cell = int(x)
    return cell if x - cell < table[cell, 0] else int(table[cell, 1])


@njit(error_model="numpy", nogil=True, cache=True)
def train(
    start, stop, tokens, ends, keep, window, vectors, rows, offset, learn_offset,
    table, k, path, sign, rate, key, row, column,
):  # fmt: skip
    """Train on sentences `start` to `stop`; sentence i is `tokens[ends[i] : ends[i + 1]]`.

    With `k` > 0 the candidates are the target and k draws of the alias `table`; with k = 0 they are the
    target's `path`, whose `sign` is 0 behind its end. A token stays with probability `keep` of its word;
    the window shrinks to a random size for each token. Returns 0.
    """
    size = max(k + 1, path.shape[1])
    candidates, signs = np.empty(size, np.int64), np.full(size, F(-1.0))
    change = np.empty(vectors.shape[1], F)
    longest = 0
    for i in range(start, stop):
        longest = max(longest, ends[i + 1] - ends[i])
    kept = np.empty(longest, np.int64)
    for i in range(start, stop):
        k1, k2 = row_keys(key, row + U(i))
        place = column
        length = 0
        for p in range(ends[i], ends[i + 1]):
            if keep[tokens[p]] >= 1.0 or uniform_64(word(k1, k2, place)) < keep[tokens[p]]:
                kept[length] = tokens[p]
                length += 1
            place += U(1)
        for p in range(length):
            reach = 1 + int(uniform_64(word(k1, k2, place)) * window)
            place += U(1)
            count = k + 1
            candidates[0] = kept[p]
            signs[0] = F(1.0)
            if k == 0:
                count = 0
                while count < path.shape[1] and sign[kept[p], count] != 0:
                    candidates[count] = path[kept[p], count]
                    signs[count] = F(sign[kept[p], count])
                    count += 1
            for q in range(max(0, p - reach), min(length, p + reach + 1)):
                if q == p:
                    continue
                for j in range(1, k + 1):
                    candidates[j] = _draw(table, word(k1, k2, place))
                    place += U(1)
                update(
                    vectors[kept[q]], rows, offset, learn_offset, candidates, signs, count, rate, change
                )
    return 0
