r"""Regularised transport by a Newton method on the dual: one kernel for Sinkhorn, matchings, Birkhoff.

An item is $\max_P \langle w, P\rangle - \Omega(P)$ over $P \ge 0$ with row sums $r$ and column sums $c$,
each side either "equal" or "at most". With multipliers $\alpha$ (rows) and $\beta$ (columns),
$P = \exp(w - \alpha - \beta)$ for $\Omega = \sum P \log P - P$ and $P = (w - \alpha - \beta)_+$ for
$\Omega = \tfrac12 \|P\|^2$. Given $\beta$, each row's $\alpha_i$ is explicit (`_rows`); what is left is a
convex function of $\beta$ whose gradient is minus the excess $g_j = \sum_i P_{ij} - c_j$ and whose
Hessian is $\mathrm{diag}(Q^\top 1) - Q^\top \mathrm{diag}(1 / Q1) Q$, $Q = P$ or its support.

Four parts make it fast and safe at any temperature:
1. Annealing: scores are scaled down until their range is `START`, then up by `GROWTH` a level.
2. While alternating updates (Sinkhorn) shrink the residual fast enough to pay, they are used.
3. Else a Newton step, regularised by `kappa * residual`, which keeps it about 1/kappa long.
4. A line search on the slope; where it fails, an alternating update, which always descends.
Measured on seven kinds of scores, n = 20 and 60, tau from 1 to 0.001: 1e-10 within 70 iterations for
"equal", within 100 for "at most".
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from argrad._kernels.vectors import (
    copy,
    dot_difference,
    exp_minus,
    fill,
    max_of,
    scale_matrix,
    subtract,
    subtract_multiple,
    sum_of,
    times,
)

START = 10.0  # range of the scores at the first level
GROWTH = 4.0  # factor from a level to the next
ROUGH = 0.1  # residual, relative to the marginals, at which a level is left
KAPPA = 0.1  # first regularisation; halved after a full step, times 4 after a hard line search
SLOPE = 0.2  # a step may end on a rising slope of this fraction of the falling slope at its start
TRIES = 20  # line search
SUPPORT = 1e-12  # the Euclidean residual that settles which entries are 0, whatever the tolerance
NEGLIGIBLE = 1e-18  # products below this are not visible beside the regularisation


@njit(error_model="numpy")
def _threshold(v, total):
    """t with sum_j max(0, v_j - t) = total, by Michelot's shrinking support (exact, no sort)."""
    t = max_of(v) - total
    while True:
        above, count = 0.0, 0
        for j in range(v.shape[0]):
            if v[j] > t:
                above += v[j]
                count += 1
        better = (above - total) / count if count else t
        if not better > t:
            return t
        t = better


@njit(error_model="numpy")
def _entropic_row(p, r, at_most):
    """p (holding w - beta) becomes exp(p - alpha), with the sum r or at most r; returns alpha."""
    peak = max_of(p)
    exp_minus(p, peak)
    total = sum_of(p)
    alpha = peak + math.log(total / r)
    if at_most and alpha < 0.0:
        times(p, math.exp(peak))
        return 0.0
    times(p, r / total)
    return alpha


@njit(error_model="numpy")
def _euclidean_row(p, support, r, at_most):
    """p (holding w - beta) becomes (p - alpha)_+, with the sum r or at most r; returns alpha."""
    alpha = _threshold(p, r)
    if at_most and alpha < 0.0:
        alpha = 0.0
    for j in range(p.shape[0]):
        p[j] = max(0.0, p[j] - alpha)
        support[j] = 1.0 if p[j] > 0.0 else 0.0
    return alpha


@njit(error_model="numpy")
def _rows(w, beta, r, c, at_most, euclidean, P, Q, alpha, g):
    """Given beta: the rows' multipliers, P, Q, and the columns' excess g. True if a row has no pair."""
    stuck = False
    for j in range(g.shape[0]):
        g[j] = -c[j]
    for i in range(w.shape[0]):
        p = P[i]
        subtract(p, w[i], beta)
        if r[i] == 0.0 or max_of(p) == -np.inf:
            stuck |= r[i] > 0.0 and not at_most
            fill(p, 0.0)
            fill(Q[i], 0.0)
            alpha[i] = 0.0
        elif euclidean:
            alpha[i] = _euclidean_row(p, Q[i], r[i], at_most)
        else:
            alpha[i] = _entropic_row(p, r[i], at_most)
        subtract_multiple(g, -1.0, p)
    return stuck


@njit(error_model="numpy")
def _columns(w, alpha, beta, c, g, at_most, euclidean, v):
    """Given alpha: the columns' multipliers (one alternating update)."""
    for j in range(beta.shape[0]):
        if c[j] == 0.0 or g[j] + c[j] <= 0.0:
            continue
        if euclidean:
            for i in range(v.shape[0]):
                v[i] = w[i, j] - alpha[i]
            beta[j] = _threshold(v, c[j])
        else:
            beta[j] += math.log((g[j] + c[j]) / c[j])
        if at_most:
            beta[j] = max(beta[j], 0.0)


@njit(error_model="numpy")
def _residual(g, beta, at_most):
    """The largest error of a column sum; for "at most" the violation of complementary slackness."""
    worst = 0.0
    for j in range(g.shape[0]):
        error = abs(g[j])
        if at_most and g[j] < 0.0:
            error = min(error, beta[j])
        worst = max(worst, error)
    return worst


@njit(error_model="numpy")
def _hessian(Q, alpha, row_at_most, S):
    """Upper triangle of diag(Q^T 1) - Q^T diag(1 / Q1) Q; slack rows have no second term."""
    for j in range(S.shape[0]):
        fill(S[j], 0.0)
    for i in range(Q.shape[0]):
        q = Q[i]
        total = sum_of(q)
        for j in range(q.shape[0]):
            S[j, j] += q[j]
        if total == 0.0 or (row_at_most and alpha[i] == 0.0):
            continue
        for j in range(q.shape[0]):
            if q[j] > NEGLIGIBLE * total:
                subtract_multiple(S[j, j:], q[j] / total, q[j:])


@njit(error_model="numpy")
def _solve(S, d):
    """Solve S x = d in place, S symmetric positive definite, given by its upper triangle."""
    m = d.shape[0]
    for k in range(m):
        for i in range(k + 1, m):
            factor = S[k, i] / S[k, k]
            if factor != 0.0:
                subtract_multiple(S[i, i:], factor, S[k, i:])
                d[i] -= factor * d[k]
    for k in range(m - 1, -1, -1):
        x = d[k]
        for i in range(k + 1, m):
            x -= S[k, i] * d[i]
        d[k] = x / S[k, k]


@njit(error_model="numpy")
def _newton(Q, alpha, beta, g, row_at_most, column_at_most, damping, S, d):
    """d = (Hessian + damping)^-1 g over the columns that may move."""
    _hessian(Q, alpha, row_at_most, S)
    copy(d, g)
    for j in range(d.shape[0]):
        S[j, j] += damping
        if column_at_most and beta[j] == 0.0 and g[j] <= 0.0:  # held at its bound
            fill(S[j], 0.0)
            fill(S[:, j], 0.0)
            S[j, j] = 1.0
            d[j] = 0.0
    _solve(S, d)


@njit(error_model="numpy")
def _range(w, absolute):
    """Largest minus smallest finite score; with "at most", their absolute level counts too."""
    low, high = np.inf, -np.inf
    for i in range(w.shape[0]):
        for j in range(w.shape[1]):
            if w[i, j] > -np.inf:
                low = min(low, w[i, j])
                high = max(high, w[i, j])
    if high == -np.inf:
        return 0.0
    return max(high - low, abs(high)) if absolute else high - low


@njit(error_model="numpy")
def _drop_below(P, least):
    """Entries below `least` are 0 at the optimum; their derivative must be 0 as well."""
    for i in range(P.shape[0]):
        for j in range(P.shape[1]):
            P[i, j] = P[i, j] if P[i, j] >= least else 0.0


@njit(error_model="numpy")
def _search(w, r, c, flags, beta, g, d, P, Q, trial, trial_alpha, trial_g):
    """Shorten the step d until the slope at its end is acceptable; returns the attempts, -1 in vain."""
    row_at_most, column_at_most, euclidean = flags
    step = 1.0
    for attempt in range(TRIES):
        for j in range(d.shape[0]):
            trial[j] = beta[j] + step * d[j]
            if column_at_most:
                trial[j] = max(trial[j], 0.0)
        fall = dot_difference(trial, beta, g)
        if not fall > 0.0:
            return -1
        _rows(w, trial, r, c, row_at_most, euclidean, P, Q, trial_alpha, trial_g)
        rise = -dot_difference(trial, beta, trial_g)
        if rise <= SLOPE * fall:
            return attempt
        step *= min(0.5, max(0.1, fall / (fall + rise)))
    return -1


@njit(error_model="numpy")
def _next_kappa(kappa, attempt):
    """Trust the quadratic model more after a full step, less after a hard line search."""
    if attempt == 0:
        return max(0.5 * kappa, 1e-6)
    return kappa if attempt == 1 else min(4.0 * kappa, 1.0)


@njit(error_model="numpy")
def _solve_item(w, r, c, flags, tolerance, max_iterations, P, alpha, beta, Q, S, scaled):
    """One matrix; returns (residual, iterations)."""
    row_at_most, column_at_most, euclidean = flags
    n, m = w.shape
    g, d, trial, trial_g = np.empty(m), np.empty(m), np.empty(m), np.empty(m)
    column, trial_alpha = np.empty(n), np.empty(n)
    span = _range(w, row_at_most or column_at_most)
    scale = START / span if span > START else 1.0
    scale_matrix(scaled, w, scale)
    rough = ROUGH * max_of(c)
    goal = min(tolerance, max(SUPPORT, 1e-14 * span)) if euclidean else tolerance
    newton_cost = 1.0 + m / 12.0  # in alternating updates, measured
    kappa, iterations, last = KAPPA, 0, np.inf
    alternate, known, stuck = True, False, False
    fill(beta, 0.0)
    while True:
        if not known:
            stuck = _rows(scaled, beta, r, c, row_at_most, euclidean, P, Q, alpha, g)
        residual = np.inf if stuck else _residual(g, beta, column_at_most)
        give_up = stuck or iterations >= max_iterations
        if scale < 1.0 and (residual <= rough or give_up):  # the next level
            target = 1.0 if give_up else min(1.0, GROWTH * scale)
            times(beta, target / scale)
            scale = target
            scale_matrix(scaled, w, scale)
            alternate, known, last = True, False, np.inf
            continue
        if residual <= goal or give_up:
            if euclidean:
                _drop_below(P, 10.0 * goal)
            return residual, iterations
        iterations += 1
        alternate &= last == np.inf or (residual / last) ** newton_cost < 0.1
        last = residual
        attempt = -1
        if not alternate:
            _newton(Q, alpha, beta, g, row_at_most, column_at_most, kappa * residual, S, d)
            attempt = _search(scaled, r, c, flags, beta, g, d, P, Q, trial, trial_alpha, trial_g)
            kappa = _next_kappa(kappa, attempt if attempt >= 0 else TRIES)
        known = attempt >= 0
        if known:
            copy(beta, trial)
            copy(alpha, trial_alpha)
            copy(g, trial_g)
        else:
            _columns(scaled, alpha, beta, c, g, column_at_most, euclidean, column)


@njit(error_model="numpy", nogil=True, cache=True)
def transport(
    start, stop, w, r, c, row_at_most, column_at_most, euclidean, tolerance, max_iterations,
    P, alpha, beta, residual, iterations,
):  # fmt: skip
    """Solve items `start` to `stop`; all arrays float64 with the batch first. Returns 0."""
    n, m = w.shape[1], w.shape[2]
    S, support, scaled = np.empty((m, m)), np.empty((n, m)), np.empty((n, m))
    flags = (row_at_most, column_at_most, euclidean)
    for b in range(start, stop):
        Q = support if euclidean else P[b]
        residual[b], iterations[b] = _solve_item(
            w[b], r[b], c[b], flags, tolerance, max_iterations, P[b], alpha[b], beta[b], Q, S, scaled
        )
    return 0
