r"""Antithetic pairs of bits: ARM and DisARM."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from argrad import random
from argrad._checks import check_count
from argrad._numerics import masked_scores
from argrad._types import Generator
from argrad.estimators.base import Cost, Estimator, is_gibbs
from argrad.estimators.exact import as_gibbs
from argrad.structured import StructuredDistribution
from argrad.structures.bits import Bits
from argrad.structures.one_hot import OneHot


@dataclass(frozen=True)
class Arm(Estimator):
    r"""Augment-REINFORCE-merge: two samples of the bits from one uniform and its mirror image.

    $$ \hat g = \big(f(1[u > \sigma(-\theta)]) - f(1[u < \sigma(\theta)])\big)\,(u - \tfrac12) $$
    Unbiased for any cost, also a black box; two evaluations of `f` for each pair.

    Args:
        num_pairs: independent pairs, averaged.

    Examples:
        >>> import torch, argrad as ag
        >>> scores = torch.zeros(5, 3, requires_grad=True)
        >>> ag.Arm()(lambda b: (b.sum(-1) > 1).float(), ag.Gibbs(ag.Bits(), scores)).mean().backward()
        >>> scores.grad.shape
        torch.Size([5, 3])

    References: [yin2019].
    """

    num_pairs: int = 1

    is_unbiased: ClassVar[bool] = True
    needs_differentiable_f: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_count(type(self).__name__, "num_pairs", self.num_pairs, 1, None, "1 is enough.")

    @property
    def evaluations_of_f(self) -> int:
        """Two a pair."""
        return 2 * self.num_pairs

    def refusal(self, q: StructuredDistribution) -> str | None:
        """Bits."""
        if isinstance(q.structure, Bits) and is_gibbs(q):
            return None
        return (
            "it is defined for `Bits`. For `OneHot` use `DisArm`; unbiased everywhere: `LeaveOneOut`."
        )

    def _estimate(self, f: Cost, q: StructuredDistribution, generator: Generator) -> Tensor:
        law = as_gibbs(q)
        scores = masked_scores(law.scores, law.mask)
        u = random.uniform(
            (self.num_pairs, *scores.shape),
            dtype=scores.dtype,
            device=scores.device,
            generator=generator,
        )
        return pair_estimate(f, q, scores, u, self._weights)

    def _weights(self, theta: Tensor, u: Tensor, first: Tensor, second: Tensor) -> Tensor:
        """The factor of f(first) - f(second) for each bit."""
        return torch.where(torch.isfinite(theta), u - 0.5, 0.0)


@dataclass(frozen=True)
class DisArm(Arm):
    r"""DisARM: ARM with the uniform integrated out, so always at most its variance.

    $$ \hat g = \tfrac12 \big(f(b) - f(\tilde b)\big)\, (-1)^{\tilde b}\, 1[b \ne \tilde b]\; \sigma(|\theta|) $$
    One-hots are taken apart into yes/no questions, one a class (stick breaking); the answers are bits.

    Args:
        num_pairs: independent pairs, averaged.

    Examples:
        >>> import torch, argrad as ag
        >>> scores = torch.zeros(5, 3, requires_grad=True)
        >>> ag.DisArm()(lambda z: (z.argmax(-1) > 1).float(), ag.Gibbs(ag.OneHot(), scores)).mean().backward()
        >>> scores.grad.shape
        torch.Size([5, 3])

    References: [dong2020], [dong2021].
    """

    def refusal(self, q: StructuredDistribution) -> str | None:
        """Bits and one-hots."""
        if isinstance(q.structure, (Bits, OneHot)) and is_gibbs(q):
            return None
        return "it is defined for `Bits` and `OneHot`. Unbiased here: `LeaveOneOut`, `Reinforce`."

    def _weights(self, theta: Tensor, u: Tensor, first: Tensor, second: Tensor) -> Tensor:
        sign = 1.0 - 2.0 * second
        return 0.5 * sign * (first != second) * torch.sigmoid(theta.abs())

    def _estimate(self, f: Cost, q: StructuredDistribution, generator: Generator) -> Tensor:
        if isinstance(q.structure, Bits):
            return Arm._estimate(self, f, q, generator)
        law = as_gibbs(q)
        scores = masked_scores(law.scores, law.mask)
        sticks = stick_scores(scores)
        options = {"dtype": scores.dtype, "device": scores.device, "generator": generator}
        u = random.uniform((self.num_pairs, *sticks.shape), **options)
        return pair_estimate(lambda bits: f(first_yes(bits)), q, sticks, u, self._weights)


def pair_estimate(f: Cost, q: StructuredDistribution, scores: Tensor, u: Tensor, weights) -> Tensor:
    """The mean cost of both samples, with the gradient (f(b) - f(b~)) * weights for the bits' scores."""
    theta = scores.detach()
    first = (u > torch.sigmoid(-theta)).to(scores.dtype)
    second = (u < torch.sigmoid(theta)).to(scores.dtype)
    costs = f(torch.cat([first, second]))
    one, two = costs.chunk(2)
    gap = (one - two).detach()
    gap = gap.reshape(gap.shape + (1,) * (scores.dim() - (gap.dim() - 1)))
    gradient = (gap * weights(theta, u, first, second)).mean(0)
    change = torch.where(torch.isfinite(theta), scores - theta, 0.0)
    batch = len(q.batch_shape)
    return 0.5 * (one + two).mean(0) + (change * gradient).flatten(batch).sum(-1)


def stick_scores(scores: Tensor) -> Tensor:
    r"""Log-odds of "this class, given none before": $\theta_k - \log\sum_{j>k} e^{\theta_j}$, n - 1 of them."""
    closed = scores == -math.inf
    theta = scores.masked_fill(closed, -1e30)
    rest = theta.flip(-1).logcumsumexp(-1).flip(-1)
    return (theta[..., :-1] - rest[..., 1:]).clamp(-1e4, 1e4)


def first_yes(bits: Tensor) -> Tensor:
    """The one-hot of the first 1 among n - 1 bits, of the last class if there is none."""
    none_before = torch.cat([torch.ones_like(bits[..., :1]), (1 - bits).cumprod(-1)], -1)
    return none_before * torch.cat([bits, torch.ones_like(bits[..., :1])], -1)
