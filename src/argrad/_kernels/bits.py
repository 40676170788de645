r"""Counter-based random numbers: 64 bits from (key, row, column), and what is made of them.

A row's two keys are splitmix64 outputs of the call's keys and the row number; a column's bits are a
splitmix64 round with the second key folded in half-way, so that two rows never share a sequence.
`argrad.random` has the same integer arithmetic in torch.

All of it is branch-free: LLVM turns a loop over columns into AVX code (about 2 ns a Gumbel, one core).
Nothing is `fastmath`, so a number does not depend on its place in the loop.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from argrad import _counter

F = np.float32
U = np.uint64
I = np.int32  # noqa: E741

GOLDEN, MIX_1, MIX_2 = U(_counter.GOLDEN), U(_counter.MIX_1), U(_counter.MIX_2)
ROW_2 = U(_counter.ROW_2)


def scalar(function):
    """Compile a function of numbers, to be inlined wherever it is called (else nothing vectorises)."""
    return njit(error_model="numpy", forceinline=True)(function)


@scalar
def splitmix(x):
    """The finaliser of splitmix64: a bijection of 64-bit words."""
    x = (x ^ (x >> U(30))) * MIX_1
    y = (x ^ (x >> U(27))) * MIX_2
    return y ^ (y >> U(31))


@scalar
def row_keys(key, row):
    """Two keys of a row, from the two words of the call."""
    return splitmix((key[0] ^ row) * GOLDEN), splitmix((key[1] ^ row) * ROW_2)


@scalar
def word(k1, k2, column):
    """64 random bits of a column, given its row's keys."""
    x = (column ^ k1) * GOLDEN
    y = ((x ^ (x >> U(30))) * MIX_1) ^ k2
    z = (y ^ (y >> U(27))) * MIX_2
    return z ^ (z >> U(31))


@scalar
def half_unit(z):
    """The upper 62 bits as a number in (0, 1/2], dense near 0 (down to 2^-64)."""
    high = F(I(z >> U(33))) * F(2.0**-32)
    low = (F(I((z >> U(2)) & U(0x7FFFFFFF))) + F(0.5)) * F(2.0**-63)
    return high + low


@scalar
def minus_log(x):
    """-log(x) for positive normal float32, within 1 ulp (Cephes' polynomial)."""
    i = F(x).view(I)
    e = I(I(i - I(0x3F3504F3)) >> I(23))
    f = I(i - I(e << I(23))).view(F) - F(1.0)  # mantissa in [sqrt(1/2), sqrt 2), less 1
    k = F(e)
    p = F(7.0376836292e-2)
    p = p * f + F(-1.1514610310e-1)
    p = p * f + F(1.1676998740e-1)
    p = p * f + F(-1.2420140846e-1)
    p = p * f + F(1.4249322787e-1)
    p = p * f + F(-1.6668057665e-1)
    p = p * f + F(2.0000714765e-1)
    p = p * f + F(-2.4999993993e-1)
    p = p * f + F(3.3333331174e-1)
    g = f * f
    tail = p * f * g + k * F(-2.12194440e-4) - F(0.5) * g
    return -(f + tail + k * F(0.693359375))


@scalar
def exponential_32(z):
    r"""Exp(1), accurate at both ends: $-\log w$ or $-\log(1 - w)$, $w \in (0, 1/2]$, by the lowest bit.

    $\log(1 - w) = \log x + ((1 - x) - w)/x$ with $x$ the rounded $1 - w$: tiny $w$ survive.
    """
    w = half_unit(z)
    s = F(I(z & U(1)))
    x = s + (F(1.0) - s - s) * w  # w, or 1 - w
    return minus_log(x) + s * (w - (F(1.0) - x)) / x


@scalar
def gumbel_32(z):
    """Gumbel(0, 1) = -log Exp(1)."""
    return minus_log(exponential_32(z))


@scalar
def logistic_32(z):
    r"""Logistic(0, 1) $= \pm(\log(1 - w) - \log w)$, the sign from the lowest bit."""
    w = half_unit(z)
    x = F(1.0) - w
    s = F(1.0) - F(2.0) * F(I(z & U(1)))
    return s * (minus_log(w) - minus_log(x) - (w - (F(1.0) - x)) / x)


@scalar
def uniform_32(z):
    """Uniform in (0, 1): 62 bits near 0, never 0 and never 1."""
    high = F(I(z >> U(33))) * F(2.0**-31)
    low = (F(I((z >> U(2)) & U(0x7FFFFFFF))) + F(0.5)) * F(2.0**-62)
    u = high + low
    return min(u, F(1.0 - 2.0**-24))


@scalar
def cosine_of_turns(u):
    r"""$\cos(2 \pi u)$ for $u \in [0, 1]$: a sine polynomial of the distance to the quarter turns."""
    t = abs(F(2.0) * u - F(1.0)) - F(0.5)  # in [-1/2, 1/2]; cos(2 pi u) = sin(pi t)
    q = t * t
    p = F(0.0776576623)  # least squares on [-1/2, 1/2]: error below 2e-7
    p = p * q + F(-0.598291278)
    p = p * q + F(2.55007744)
    p = p * q + F(-5.1677103)
    p = p * q + F(3.14159274)
    return p * t


@scalar
def normal_32(z, z2):
    r"""Normal(0, 1) by Box-Muller, $\sqrt{2 E} \cos(2 \pi u)$: beyond 9 standard deviations."""
    radius = np.sqrt(F(2.0) * exponential_32(z))
    return radius * cosine_of_turns(F(I(z2 >> U(33))) * F(2.0**-31))


# ---- float64: the same bits, library logarithms --------------------------------------------------


@scalar
def half_unit_64(z):
    """As `half_unit`, from the same 62 bits."""
    high = float(I(z >> U(33))) * 2.0**-32
    low = (float(I((z >> U(2)) & U(0x7FFFFFFF))) + 0.5) * 2.0**-63
    return high + low


@scalar
def exponential_64(z):
    """As `exponential_32`."""
    w = half_unit_64(z)
    return -math.log1p(-w) if z & U(1) else -math.log(w)


@scalar
def gumbel_64(z):
    """As `gumbel_32`."""
    return -math.log(exponential_64(z))


@scalar
def logistic_64(z):
    """As `logistic_32`."""
    w = half_unit_64(z)
    value = math.log1p(-w) - math.log(w)
    return -value if z & U(1) else value


@scalar
def uniform_64(z):
    """As `uniform_32`, 53 bits at the upper end."""
    return min(2.0 * half_unit_64(z), 1.0 - 2.0**-53)


@scalar
def normal_64(z, z2):
    """As `normal_32`."""
    return math.sqrt(2.0 * exponential_64(z)) * math.cos(2.0 * math.pi * uniform_64(z2))
