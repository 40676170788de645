"""Fill the rows of an array with noise: one kernel a law, float32 or float64 by the array's dtype.

Written out, one function a law, because numba keeps compiled code on disk only for plain functions of
a module; made in a factory, each law would be compiled again in every process (a second each).
"""

from __future__ import annotations

import numpy as np
from numba import njit, types
from numba.extending import overload

from argrad._kernels import bits
from argrad._kernels.bits import U, row_keys, word

SHORT, TILE = (
    16,
    64,
)  # a row of fewer numbers does not fill the vector lanes; rows that are made at a time
SECOND = U(0x5851F42D4C957F2D)  # turns a row key into the key of a second, independent word


def _by_dtype(narrow, wide):
    """`f(bits, like)`: `narrow(bits)` if `like` is float32, `wide(bits)` otherwise."""

    def of_word(z, like):
        raise NotImplementedError("only inside compiled kernels")

    @overload(of_word, jit_options={"forceinline": True})
    def choose(z, like):
        if like == types.float32:
            return lambda z, like: narrow(z)
        return lambda z, like: wide(z)

    return of_word


_gumbel = _by_dtype(bits.gumbel_32, bits.gumbel_64)
_exponential = _by_dtype(bits.exponential_32, bits.exponential_64)
_logistic = _by_dtype(bits.logistic_32, bits.logistic_64)
_uniform = _by_dtype(bits.uniform_32, bits.uniform_64)


def _normal(z, second, like):
    """From two words."""
    raise NotImplementedError("only inside compiled kernels")


@overload(_normal, jit_options={"forceinline": True})
def _normal_of(z, second, like):
    if like == types.float32:
        return lambda z, second, like: bits.normal_32(z, second)
    return lambda z, second, like: bits.normal_64(z, second)


@njit(error_model="numpy")
def _gumbel_column(out, k1, k2, column):
    for r in range(out.shape[0]):
        out[r] = _gumbel(word(k1[r], k2[r], column), out[r])


@njit(error_model="numpy")
def _gumbel_short(start, stop, out, key, row, column):
    """The same numbers, lanes over the rows of a tile."""
    k1, k2 = np.empty(TILE, np.uint64), np.empty(TILE, np.uint64)
    made = np.zeros(TILE, out.dtype)
    for first in range(start, stop, TILE):
        rows = min(TILE, stop - first)
        for r in range(rows):
            k1[r], k2[r] = row_keys(key, row + U(first + r))
        for j in range(out.shape[1]):
            _gumbel_column(made, k1, k2, column + U(j))
            for r in range(rows):
                out[first + r, j] = made[r]
    return 0


@njit(error_model="numpy", nogil=True, cache=True)
def gumbel(start, stop, out, key, row, column):
    """Gumbel(0, 1) in rows `start` to `stop`."""
    if out.shape[1] < SHORT:
        return _gumbel_short(start, stop, out, key, row, column)
    for i in range(start, stop):
        k1, k2 = row_keys(key, row + U(i))
        x = out[i]
        for j in range(x.shape[0]):
            x[j] = _gumbel(word(k1, k2, column + U(j)), x[j])
    return 0


@njit(error_model="numpy", nogil=True, cache=True)
def exponential(start, stop, out, key, row, column):
    """Exp(1)."""
    for i in range(start, stop):
        k1, k2 = row_keys(key, row + U(i))
        x = out[i]
        for j in range(x.shape[0]):
            x[j] = _exponential(word(k1, k2, column + U(j)), x[j])
    return 0


@njit(error_model="numpy", nogil=True, cache=True)
def logistic(start, stop, out, key, row, column):
    """Logistic(0, 1)."""
    for i in range(start, stop):
        k1, k2 = row_keys(key, row + U(i))
        x = out[i]
        for j in range(x.shape[0]):
            x[j] = _logistic(word(k1, k2, column + U(j)), x[j])
    return 0


@njit(error_model="numpy", nogil=True, cache=True)
def bits_of(start, stop, scores, out, key, row, column):
    """out[i, j] = 1 with probability sigmoid(scores[i mod m, j]), m the number of rows of scores."""
    for i in range(start, stop):
        k1, k2 = row_keys(key, row + U(i))
        theta, bit = scores[i % scores.shape[0]], out[i]
        for j in range(bit.shape[0]):
            bit[j] = theta[j] + _logistic(word(k1, k2, column + U(j)), theta[j]) > 0
    return 0


@njit(error_model="numpy", nogil=True, cache=True)
def uniform(start, stop, out, key, row, column):
    """Uniform on (0, 1)."""
    for i in range(start, stop):
        k1, k2 = row_keys(key, row + U(i))
        x = out[i]
        for j in range(x.shape[0]):
            x[j] = _uniform(word(k1, k2, column + U(j)), x[j])
    return 0


@njit(error_model="numpy", nogil=True, cache=True)
def normal(start, stop, out, key, row, column):
    """Normal(0, 1), two words a number."""
    for i in range(start, stop):
        k1, k2 = row_keys(key, row + U(i))
        x = out[i]
        for j in range(x.shape[0]):
            c = column + U(j)
            x[j] = _normal(word(k1, k2, c), word(k1 ^ SECOND, k2, c), x[j])
    return 0
