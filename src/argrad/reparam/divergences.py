r"""KL divergences that `torch.distributions` lacks, registered there: `kl_divergence(p, q)` finds them.

Closed where a closed form exists; for two logistics of different scale, and where a Kumaraswamy law meets a
power of itself, by a quadrature whose error is that of float64.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Beta, Exponential, Gamma, Kumaraswamy, Normal, Weibull
from torch.distributions.kl import register_kl
from torch.nn.functional import softplus

from argrad._numerics import log1mexp
from argrad.reparam.base import log_upper
from argrad.reparam.location_scale import Logistic
from argrad.reparam.rademacher import Rademacher

_EULER = 0.57721566490153286  # Euler and Mascheroni's constant


# ---- Weibull, with the exponential as k = 1 --------------------------------------------------------


def _weibull(p: Weibull | Exponential) -> tuple[Tensor, Tensor]:
    if isinstance(p, Exponential):
        return 1 / p.rate, torch.ones_like(p.rate)
    return p.scale, p.concentration


@register_kl(Weibull, Weibull)
@register_kl(Weibull, Exponential)
@register_kl(Exponential, Weibull)
def _kl_weibull(p: Weibull | Exponential, q: Weibull | Exponential) -> Tensor:
    r"""With $E \log z = \log\lambda - \gamma/k$ and $E z^m = \lambda^m \Gamma(1 + m/k)$ [bauckhage2013]."""
    (a, k), (b, m) = _weibull(p), _weibull(q)
    log_z = a.log() - _EULER / k
    power = torch.exp(m * (a.log() - b.log()) + torch.lgamma(1 + m / k))
    return k.log() - k * a.log() - m.log() + m * b.log() + (k - m) * log_z + power - 1


@register_kl(Weibull, Gamma)
def _kl_weibull_gamma(p: Weibull, q: Gamma) -> Tensor:
    log_z = p.scale.log() - _EULER / p.concentration
    cross = q.concentration * q.rate.log() - torch.lgamma(q.concentration)
    return -p.entropy() - cross - (q.concentration - 1) * log_z + q.rate * p.mean


# ---- logistic --------------------------------------------------------------------------------------


@register_kl(Logistic, Normal)
def _kl_logistic_normal(p: Logistic, q: Normal) -> Tensor:
    square = (p.variance + (p.loc - q.loc) ** 2) / q.scale**2
    return 0.5 * square + q.scale.log() + 0.5 * math.log(2 * math.pi) - p.entropy()


@register_kl(Logistic, Logistic)
def _kl_logistic(p: Logistic, q: Logistic) -> Tensor:
    r"""$-\log q = \log s + |y| + 2\log(1 + e^{-|y|})$: the mean of $|y|$ is known, the rest is quadrature."""
    shift, ratio = (q.loc - p.loc) / p.scale, q.scale / p.scale
    distance = 2 * (0.5 * shift.abs() + softplus(-shift.abs())) / ratio  # E|x - d| = 2 log(2 cosh(d/2))
    rest = 2 * _mean_of_peak(shift.double(), ratio.double()).to(shift.dtype)
    return ratio.log() + distance + rest - 2


def _mean_of_peak(shift: Tensor, ratio: Tensor) -> Tensor:
    r"""$E \log(1 + e^{-|x - d|/r})$ for standard logistic $x$.

    In units of the wider of the two bumps everything is smooth on the scale 1, but for the kink at $x = d$.
    """
    node, weight = _panels()
    node, weight = node.to(shift.device), weight.to(shift.device)
    d, r = shift[..., None], ratio[..., None]
    narrow = (r < 1).detach()
    # r < 1: x = d + r y with y in (0, 40) on both sides. r >= 1: x in (-40, 40), broken at d.
    cut = d.clamp(-40.0, 40.0)
    total = torch.zeros_like(shift)
    for side in (-1.0, 1.0):
        width = torch.where(narrow, 40 * r, 40 - side * cut)
        start = torch.where(narrow, d, cut)
        x = start + side * width * node
        density = torch.exp(-x.abs() - 2 * softplus(-x.abs()))
        peak = softplus(-(x - d).abs() / r)
        total = total + (width * weight * density * peak).sum(-1)
    return total


@functools.cache
def _panels(count: int = 30, order: int = 16) -> tuple[Tensor, Tensor]:
    """Gauss and Legendre's rule on `count` equal parts of (0, 1)."""
    x, w = np.polynomial.legendre.leggauss(order)
    left = np.arange(count)[:, None]
    nodes, weights = ((left + 0.5 * (x + 1)) / count).ravel(), np.tile(0.5 * w / count, count)
    return torch.from_numpy(nodes), torch.from_numpy(weights)


# ---- Kumaraswamy -----------------------------------------------------------------------------------


@register_kl(Kumaraswamy, Kumaraswamy)
def _kl_kumaraswamy(p: Kumaraswamy, q: Kumaraswamy) -> Tensor:
    a, b = q.concentration1, q.concentration0
    cross = a.log() + b.log() + (a - 1) * _log_mean(p) + (b - 1) * _log_complement(p, a)
    return -p.entropy() - cross


@register_kl(Kumaraswamy, Beta)
def _kl_kumaraswamy_beta(p: Kumaraswamy, q: Beta) -> Tensor:
    a, b = q.concentration1, q.concentration0
    log_beta = torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)
    one = torch.ones_like(p.concentration1)
    cross = (a - 1) * _log_mean(p) + (b - 1) * _log_complement(p, one) - log_beta
    return -p.entropy() - cross


def _log_mean(p: Kumaraswamy) -> Tensor:
    r"""$E \log x = -(\gamma + \psi(b + 1))/a$."""
    return -(_EULER + torch.digamma(p.concentration0 + 1)) / p.concentration1


def _log_complement(p: Kumaraswamy, power: Tensor) -> Tensor:
    r"""$E \log(1 - x^{c})$: with $u = x^a \sim \mathrm{Beta}(1, b)$, it is $E \log(1-u) = -1/b$ and a smooth rest."""
    a, b, c = (t.double()[..., None] for t in (p.concentration1, p.concentration0, power))
    eps, weight = _double_exponential()
    log_1_u = log_upper(eps.to(a.device)) / b  # log(1 - u); u has the upper tail (1 - u)^b
    log_u = log1mexp(log_1_u)
    rest = log1mexp(c / a * log_u) - log_1_u
    # towards u = 1 both vanish alike, and their ratio is c/a
    rest = torch.where(log_1_u < -30, (c / a).log(), rest)
    value = (weight.to(a.device) * rest).sum(-1) - 1 / b[..., 0]
    return value.to(power.dtype)


@functools.cache
def _double_exponential(step: float = 0.02, end: float = 4.0) -> tuple[Tensor, Tensor]:
    """Two-sided noise and weights of the rule of Takahasi and Mori, for integrands singular at the ends."""
    t = torch.arange(-end, end + step / 2, step, dtype=torch.float64)
    tail = torch.sigmoid(-math.pi * torch.sinh(t.abs()))
    weight = step * math.pi * torch.cosh(t) * tail * (1 - tail)
    return torch.where(t < 0, -2 * tail, 2 * tail), weight / weight.sum()


@register_kl(Rademacher, Rademacher)
def _kl_rademacher(p: Rademacher, q: Rademacher) -> Tensor:
    return torch.zeros(torch.broadcast_shapes(p.batch_shape, q.batch_shape), dtype=p.dtype)
