r"""Weights that turn distinct samples into estimates of expectations, and their baselines.

$\sum_{s \in S} w_s f(s)$ estimates $\mathbb{E} f$, and $\sum_{s \in S} w_s (f(s) - b_s) \nabla\log p_s$ its
gradient. $\phi_s = \log p_s$; $\kappa$ is the largest perturbed log-probability outside S.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from argrad._numerics import logsumexp
from argrad.sequences.plackett_luce import log_remaining
from argrad.sequences.ratios import leave_one_out_log_ratio

Kind: TypeAlias = Literal["unordered", "importance", "normalized", "hindsight", "sum_and_sample"]
KINDS: tuple[str, ...] = ("unordered", "importance", "normalized", "hindsight", "sum_and_sample")


def log_survival(x: Tensor) -> Tensor:
    r"""$\log P(G > x) = \log(1 - \exp(-e^{-x}))$ for a Gumbel(0), accurate in both tails."""
    y = torch.exp(-x.clamp(min=-6.0))  # below -6, P = 1 to the last digit
    series = -x - y / 2 + y**2 / 24 - y**4 / 2880
    near = torch.log(-torch.expm1(-y))
    return torch.where(x >= 10.0, series, near)


def unordered(phi: Tensor, valid: Tensor) -> Tensor:
    r"""$w_s = p_s R(S, s)$, the expectation of every other kind given the set; they sum to 1."""
    complete = _is_complete(valid)
    safe = phi.masked_fill(complete, -math.log(2 * phi.shape[-1]))  # any set that is not everything
    log_w = torch.where(complete, phi, safe + leave_one_out_log_ratio(safe))
    return torch.exp(log_w - logsumexp(log_w, keepdim=True))  # 1e-12 of quadrature


def importance(phi: Tensor, kappa: Tensor) -> Tensor:
    r"""$w_s = p_s / q_s$, where $q_s = P(G_s > \kappa)$; unbiased."""
    return torch.exp(phi - log_inclusion(phi, kappa)).masked_fill(phi == -math.inf, 0.0)


def log_inclusion(phi: Tensor, kappa: Tensor) -> Tensor:
    r"""$\log q_s = \log P(G_s > \kappa)$; 0 when everything was drawn."""
    everything = (kappa == -math.inf)[..., None]
    gap = kappa.masked_fill(kappa == -math.inf, 0.0)[..., None] - phi.clamp(min=-1e300)
    return log_survival(gap).masked_fill(everything, 0.0)


def sum_and_sample(phi: Tensor, valid: Tensor) -> Tensor:
    r"""$w_s = p_s$, except the last, which stands for the rest: $1 - \sum_{i<k} p_i$."""
    last = valid.sum(-1, keepdim=True) - 1
    rest = log_remaining(phi).gather(-1, last.clamp(min=0))
    place = torch.arange(phi.shape[-1], device=phi.device)
    return torch.where((place == last) & valid, rest, phi).exp()


class Advantages(NamedTuple):
    """Weights, and what multiplies each sample's score, both `(*batch, k)`."""

    weights: Tensor
    advantage: Tensor


def unordered_advantages(phi: Tensor, valid: Tensor, reward: Tensor) -> Advantages:
    r"""$f_s - \sum_t p_t R^{D \setminus s}(S, t) f_t$: given s, the sum has the expectation $\mathbb{E} f$."""
    weights = unordered(phi, valid)
    complete = _is_complete(valid)
    safe = phi.masked_fill(complete, -math.log(2 * phi.shape[-1]))
    table = torch.exp(safe[..., None, :] + leave_one_out_log_ratio(safe, order=2))  # (*batch, s, t)
    table = torch.where(complete[..., None], weights[..., None, :], table)
    return Advantages(weights, reward - (table * reward[..., None, :]).sum(-1))


def importance_advantages(phi: Tensor, kappa: Tensor, reward: Tensor) -> Advantages:
    r"""$f_s (1 - p_s + p_s / q_s) - \sum_t w_t f_t$, which is unbiased, though seldom of small variance."""
    weights = importance(phi, kappa)
    mean = (weights * reward).sum(-1, keepdim=True)
    return Advantages(weights, reward * (1 - phi.exp() + weights) - mean)


def centred(weights: Tensor, reward: Tensor) -> Advantages:
    """Reward minus its weighted mean."""
    return Advantages(weights, reward - (weights * reward).sum(-1, keepdim=True))


def _is_complete(valid: Tensor) -> Tensor:
    """Fewer samples than asked for: they are the whole support, and their probabilities its law."""
    return ~valid.all(-1, keepdim=True)
