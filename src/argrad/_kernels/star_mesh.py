r"""Sums over all spanning arborescences by star-mesh elimination, one graph at a time, in plain float64.

A graph comes as log-weights `arcs[head, child]`: `m + 1` heads, the root first, and `m` children; the
weights `w` are scaled so that each column's largest is 1. Inside there are two root rows, 0 and 1, and
node v is row v + 2. Row 0 is an ordinary root. Arcs of row 1 count as infinitely small, which sums over
trees with exactly one of them: in powers of a common factor t of row 1, only the leading one is kept.

Elimination of node k, with $a$ its column, $b$ its row and $d = \sum_i a_i$:

$$ w_{ij} \leftarrow w_{ij} + p_i b_j, \quad p_i = a_i / d, \qquad Z = \prod_k d_k \tag{1} $$

With $D = \partial \log Z / \partial w$, putting node k back into the graph (the old D is a block of the new):

$$ D_{kj} = \sum_i p_i D_{ij}, \qquad D_{ik} = (1 + x_i - \sum_l p_l x_l)/d, \quad x_i = \sum_j D_{ij} b_j \tag{2} $$

Weights are only ever added, so each is right to a few ulp at any scale. In (2) $p_i x_i$ is an expected
number of children, at most m, so marginals $w D$ are right to a few m ulp of 1.

Weights that underflow are lost, and that is checked afterwards: losing $\Delta$ changes $Z$ by a factor
$\det(I + X)$, where $|X_{uv}| \le m \Delta \max D$. A graph with $\max D$ below `LIMIT` is right to rounding; any
other is reported in `ok` (see `trusted`), and the caller does it again in the log domain.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from argrad._kernels.exp import exp_64

# Times 2.3e-308, the smallest normal number, and m^2 it is below 1e-20 up to m = 1000.
LIMIT = 1e280
SUM = {"reassoc", "nsz"}  # lets LLVM add in vector lanes


@njit(error_model="numpy", cache=True)
def weigh(arcs, single, c, w):
    """w = exp(arcs - shifts), without a diagonal; returns the sum of the shifts, which are left in `c`.

    Each child has one head, so a column's shift moves every tree alike; so does the root row's, when
    every tree has one root arc (`single`).
    """
    m = arcs.shape[1]
    c[:m] = -np.inf
    for h in range(m + 1):
        for j in range(m):
            w[h, j] = arcs[h, j]
        if h > 0:
            w[h, h - 1] = -np.inf
        if h > 0 or not single:
            for j in range(m):
                c[j] = max(c[j], w[h, j])
    top = -np.inf if single else 0.0
    for j in range(m):
        c[j] = 0.0 if c[j] == -np.inf else c[j]
        top = max(top, w[0, j] - c[j]) if single else top
    top = 0.0 if top == -np.inf else top
    for h in range(m + 1):
        below = top if h == 0 else 0.0
        for j in range(m):
            w[h, j] = exp_64(
                (w[h, j] - c[j]) - below
            )  # in this order the largest is exp(0) at any scale
    return c[:m].sum() + top


@njit(error_model="numpy", cache=True)
def load(w, single, e):
    """The rows of `w` at their places in `e`; `single` puts the root into row 1."""
    e[:2] = 0.0
    e[1 if single else 0] = w[0]
    e[2:] = w[1:]


@njit(error_model="numpy", cache=True)
def times(e, w, single, out):
    """out = e * w, rows of `e` as in `load`, with a zero diagonal."""
    for j in range(w.shape[1]):
        out[0, j] = e[1 if single else 0, j] * w[0, j]
    for v in range(w.shape[1]):
        for j in range(w.shape[1]):
            out[v + 1, j] = e[v + 2, j] * w[v + 1, j]
        out[v + 1, v] = 0.0


@njit(error_model="numpy", cache=True)
def ordinary(e, k):
    """The sum of node k's column without row 1."""
    total = e[0, k]
    for i in range(2, k + 2):
        total += e[i, k]
    return total


@njit(error_model="numpy", cache=True)
def eliminate(e, single, d, small, b):
    """Eq. (1) in place: afterwards `e[i, k]` is p_i and `e[k + 2, j]` is b_j of node k.

    `small[k]` marks a node that row 1 alone can reach: it becomes the one child of the root, and what
    it reaches is from then on reached by row 0. `b` is scratch. Returns log Z.
    """
    log_z = 0.0
    count = 0
    for k in range(d.shape[0] - 1, -1, -1):
        d[k] = ordinary(e, k)
        small[k] = d[k] == 0.0
        if small[k]:
            count += 1
            d[k] = e[1, k]
            e[: k + 2, k] = 0.0
            e[0, k] = d[k]
        log_z += np.log(d[k])
        b[:k] = e[k + 2, :k]  # a copy, or the loop below would not vectorise
        for i in range(k + 2):
            p = e[i, k] / d[k]
            e[i, k] = p
            for j in range(k):
                e[i, j] += p * b[j]
    return log_z if count == single else -np.inf


@njit(error_model="numpy", cache=True, fastmath=SUM)
def differentiate(e, d, small, x, g):
    """Eq. (2): fill `g` with D, rows as in `e`. `x` is scratch, `(2, m + 2)`."""
    x, row = x[0], x[1]
    for k in range(d.shape[0]):
        row[:k] = 0.0
        mean = 0.0
        for i in range(k + 2):
            p = e[i, k]
            total = 0.0
            for j in range(k):
                total += g[i, j] * e[k + 2, j]
                row[j] += p * g[i, j]
            x[i] = total
            mean += p * total
        for i in range(k + 2):
            value = 0.0 if small[k] else (1.0 + x[i] - mean) / d[k]
            # rounding can make it negative where the true value is next to 0 (and NaN must stay)
            g[i, k] = 0.0 if value < 0.0 else value
        g[1, k] = (1.0 if small[k] else x[1]) / d[k]
        g[k + 2, :k] = row[:k]
        g[k + 2, k] = 0.0


@njit(error_model="numpy", cache=True)
def trusted(arcs, log_z, small, g):
    """Whether nothing that matters underflowed: every derivative is below `LIMIT` (NaN is not).

    And nodes that row 1 alone reaches (the last apart) are so because every other arc into them is
    forbidden, not because the weights of such arcs became 0.
    """
    for k in range(1, small.shape[0]):
        for h in range(1, arcs.shape[0]):
            if small[k] and h != k + 1 and arcs[h, k] > -np.inf:
                return False
    high = 0
    for i in range(g.shape[0]):
        for j in range(g.shape[1]):
            high += not (g[i, j] < LIMIT)
    return high == 0 and -np.inf < log_z < np.inf


@njit(error_model="numpy", nogil=True, cache=True)
def marginals(start, stop, arcs, single, log_z, out, ok):
    """log Z and w * D of graphs `start` to `stop`; `ok` says which are right."""
    m = arcs.shape[2]
    w, e, g, x = np.empty((m + 1, m)), np.empty((m + 2, m)), np.empty((m + 2, m)), np.empty((2, m + 2))
    d, small = np.empty(m), np.empty(m, np.bool_)
    for n in range(start, stop):
        scale = weigh(arcs[n], single, d, w)
        load(w, single, e)
        log_z[n] = eliminate(e, single, d, small, x[0]) + scale
        differentiate(e, d, small, x, g)
        ok[n] = trusted(arcs[n], log_z[n], small, g)
        times(g, w, single, out[n])
    return 0
