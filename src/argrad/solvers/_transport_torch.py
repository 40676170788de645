r"""`_kernels/transport.py` in torch, for devices without the compiled kernel. Batched, float64 inside.

The same annealing, regularised Newton step, slope line search and alternating fallback; every item of
the batch takes part in every step until all are done, and there is no alternating phase (Newton's linear
algebra is cheap where this runs).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from argrad._numerics import logsumexp

START, GROWTH, ROUGH, SLOPE, TRIES, SUPPORT = 10.0, 4.0, 0.1, 0.2, 20, 1e-12  # as in the kernel


def solve_batch(
    w: Tensor,
    r: Tensor,
    c: Tensor,
    rows_at_most: bool,
    columns_at_most: bool,
    euclidean: bool,
    tolerance: float,
    max_iterations: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """P, alpha, beta, residual, iterations of a batch `(B, n, m)`."""
    flags = (rows_at_most, columns_at_most, euclidean)
    span = _range(w, rows_at_most or columns_at_most)
    scale = torch.where(span > START, START / span, 1.0)
    goal = torch.full_like(span, tolerance)
    if euclidean:
        goal = torch.minimum(goal, (1e-14 * span).clamp_min(SUPPORT))
    rough = ROUGH * c.amax(-1)
    beta = torch.zeros_like(c)
    kappa = torch.full_like(scale, 0.1)
    iterations = torch.zeros(len(w), dtype=torch.int64, device=w.device)
    for _ in range(max_iterations):
        P, Q, alpha, g = _rows(w, scale, beta, r, c, flags)
        residual = _residual(g, beta, columns_at_most)
        done = (scale == 1) & (residual <= goal)
        if bool(done.all()):
            break
        level = (scale < 1) & (residual <= rough)
        larger = torch.where(level, (GROWTH * scale).clamp(max=1.0), scale)
        d = _newton(Q, alpha, beta, g, flags, kappa * residual)
        trial, attempts = _search(w, scale, beta, r, c, g, d, flags)
        vain = (attempts == TRIES)[:, None]
        trial = torch.where(vain, _columns(w, scale, alpha, beta, c, g, flags), trial)
        beta = torch.where(level[:, None], beta * (larger / scale)[:, None], trial).where(
            ~done[:, None], beta
        )
        kappa = torch.where(attempts == 0, kappa / 2, torch.where(attempts == 1, kappa, kappa * 4))
        kappa, scale = kappa.clamp(1e-6, 1.0), larger
        iterations += (~done & ~level).long()
    beta = beta / scale[:, None]
    P, _, alpha, g = _rows(w, torch.ones_like(scale), beta, r, c, flags)
    stuck = ((w == -math.inf).all(-1) & (r > 0)).any(-1) & (not rows_at_most)
    residual = _residual(g, beta, columns_at_most).masked_fill(stuck, math.inf)
    if euclidean:
        P = torch.where(10 * goal[:, None, None] <= P, P, 0.0)
    return P, alpha, beta, residual, iterations


def _range(w: Tensor, absolute: bool) -> Tensor:
    """Largest minus smallest finite score; with "at most", their absolute level counts too."""
    allowed = w > -math.inf
    high, low = w.amax((-2, -1)), torch.where(allowed, w, math.inf).amin((-2, -1))
    span = torch.maximum(high - low, high.abs()) if absolute else high - low
    return torch.where(span.isfinite(), span, 0.0)


def _threshold(v: Tensor, total: Tensor) -> Tensor:
    """t with sum_j max(0, v_j - t) = total, over the last dimension: the largest of the n candidates."""
    ordered = v.sort(-1, descending=True).values
    size = torch.arange(1, v.shape[-1] + 1, device=v.device, dtype=v.dtype)
    return ((ordered.cumsum(-1) - total[..., None]) / size).amax(-1)


def level(v: Tensor, total: Tensor, at_most: bool, euclidean: bool) -> Tensor:
    """The multiplier that gives exp(v - t), or (v - t)_+, the sum `total`; differentiable."""
    t = _threshold(v, total) if euclidean else logsumexp(v) - total.log()
    t = t.clamp_min(0.0) if at_most else t
    return t.masked_fill((total == 0) | (v == -math.inf).all(-1), 0.0)


def _rows(
    w: Tensor, scale: Tensor, beta: Tensor, r: Tensor, c: Tensor, flags: tuple[bool, bool, bool]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """P, Q, alpha and the columns' excess, given beta."""
    v = w * scale[:, None, None] - beta[:, None, :]
    alpha = level(v, r, flags[0], flags[2])
    x = v - alpha[:, :, None]
    P = x.clamp_min(0.0) if flags[2] else x.exp()
    Q = (P > 0).to(P.dtype) if flags[2] else P
    return P, Q, alpha, P.sum(-2) - c


def _columns(
    w: Tensor, scale: Tensor, alpha: Tensor, beta: Tensor, c: Tensor, g: Tensor, flags: tuple[bool, ...]
) -> Tensor:
    """beta, given alpha: one alternating update."""
    v = (w * scale[:, None, None] - alpha[:, :, None]).mT
    return torch.where((c == 0) | (g + c <= 0), beta, level(v, c, flags[1], flags[2]))


def _residual(g: Tensor, beta: Tensor, at_most: bool) -> Tensor:
    error = torch.where(g < 0, torch.minimum(g.abs(), beta), g) if at_most else g.abs()
    return error.amax(-1)


def _newton(
    Q: Tensor, alpha: Tensor, beta: Tensor, g: Tensor, flags: tuple[bool, ...], damping: Tensor
) -> Tensor:
    """(Hessian + damping)^-1 g over the columns that may move."""
    mass = Q.sum(-1)
    inverse = torch.where(mass > 0, 1.0, 0.0) / torch.where(mass > 0, mass, 1.0)
    if flags[0]:
        inverse = inverse * (alpha > 0)
    S = torch.diag_embed(Q.sum(-2) + damping[:, None]) - Q.mT @ (inverse[:, :, None] * Q)
    if flags[1]:
        free = ((beta > 0) | (g > 0)).to(g.dtype)
        S = S * (free[:, :, None] * free[:, None, :]) + torch.diag_embed(1.0 - free)
        g = g * free
    d = torch.linalg.solve_ex(S, g[..., None])[0][..., 0]
    return torch.where(d.isfinite(), d, 0.0)


def _search(
    w: Tensor,
    scale: Tensor,
    beta: Tensor,
    r: Tensor,
    c: Tensor,
    g: Tensor,
    d: Tensor,
    flags: tuple[bool, bool, bool],
) -> tuple[Tensor, Tensor]:
    """Steps shortened until the slope at their end is acceptable; how often, `TRIES` if in vain."""
    step = torch.ones_like(scale)
    attempts = torch.full_like(step, TRIES)
    best = beta
    for attempt in range(TRIES):
        trial = beta + step[:, None] * d
        trial = trial.clamp_min(0.0) if flags[1] else trial
        fall = ((trial - beta) * g).sum(-1)
        rise = -((trial - beta) * _rows(w, scale, trial, r, c, flags)[3]).sum(-1)
        accept = (attempts == TRIES) & (rise <= SLOPE * fall) & (fall > 0)
        best = torch.where(accept[:, None], trial, best)
        attempts = attempts.masked_fill(accept, attempt)
        if bool(((attempts < TRIES) | (fall <= 0)).all()):
            break
        step = step * (fall / (fall + rise)).nan_to_num(0.5).clamp(0.1, 0.5)
    return best, attempts
