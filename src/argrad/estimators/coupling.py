r"""Perturbed scores that made a choice, and fresh ones given that choice: the coupling behind REBAR and RELAX."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from argrad import random
from argrad._numerics import one_hot
from argrad._types import Generator
from argrad.conditional_gumbel import gumbel_posterior
from argrad.structures.base import Structure
from argrad.structures.bits import Bits


class Coupled(NamedTuple):
    """Perturbed scores that chose `hard`, and others drawn given that choice; functions of `scores`."""

    hard: Tensor
    free: Tensor
    given: Tensor


def couple_noise(structure: Structure, scores: Tensor, count: int, generator: Generator) -> Coupled:
    """`count` draws for one-hots or bits; both kinds of perturbed scores are differentiable in `scores`."""
    first, second = random.split(generator, 2)
    if isinstance(structure, Bits):
        return _couple_bits(scores, count, first, second)
    theta = scores.expand(count, *scores.shape)
    noise = random.gumbel(theta.shape, dtype=theta.dtype, device=theta.device, generator=first)
    free = theta + noise
    index = free.detach().argmax(-1)
    given = gumbel_posterior(theta, index, generator=second)
    return Coupled(one_hot(index[..., None], theta), free, given)


def _couple_bits(scores: Tensor, count: int, first: Generator, second: Generator) -> Coupled:
    r"""Logistic noise $L$ given the sign $s$ of $\theta + L$.

    The inverse distribution function on the half-line of that sign, at a uniform with log-odds $L'$, is
    $s\,\mathrm{softplus}(L' + \mathrm{softplus}(s\theta))$.
    """
    options = {"dtype": scores.dtype, "device": scores.device}
    shape = (count, *scores.shape)
    noise, fresh = (random.logistic(shape, generator=g, **options) for g in (first, second))
    closed = scores == -math.inf
    theta = scores.masked_fill(closed, 0.0)
    free = (theta + noise).masked_fill(closed, -math.inf)
    hard = (free.detach() > 0).to(scores.dtype)
    sign = 2.0 * hard - 1.0
    given = sign * _softplus(fresh + _softplus(sign * theta))
    return Coupled(hard, free, given.masked_fill(closed, -math.inf))


def _softplus(x: Tensor) -> Tensor:
    """`F.softplus` switches to the identity at 20, where float64 still sees the difference."""
    return -logsigmoid(-x)


def relax_coupled(structure: Structure, perturbed: Tensor, tau: Tensor) -> Tensor:
    """The soft point of perturbed scores at a temperature that may be trained."""
    closed = perturbed == -math.inf
    x = perturbed.masked_fill(closed, 0.0) / tau
    if isinstance(structure, Bits):
        return torch.sigmoid(x).masked_fill(closed, 0.0)
    return x.masked_fill(closed, -math.inf).softmax(-1)
