r"""ReinMax with a Gumbel control variate."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from argrad import random
from argrad._autograd import straight_through
from argrad._checks import check_count, check_tau
from argrad._types import Generator
from argrad.estimators.categorical import CategoricalPath, draw_one_hot, softmax_tangent
from argrad.estimators.gumbel_rao import conditional_softmax


@dataclass(frozen=True)
class ReinMaxCV(CategoricalPath):
    r"""ReinMax plus a multiple of two Gumbel estimators that have the same mean.

    At $\theta_D = \log((p + D)/2)$, where ReinMax takes its first Jacobian, straight-through Gumbel-softmax (one
    draw of the noise given $D$) and its Rao-Blackwellised form (the mean of $K$ draws) agree in the mean:
    $$ \nabla_\theta \approx \big(2 J(\pi_D) - \tfrac12 J(p)\big) g
       + \eta\, \big(\mathrm{GR}_K(\theta_D) - \mathrm{STGS}(\theta_D)\big)\, g, \quad g = \nabla_D f(D) $$
    The bias is that of `ReinMax` for every $\eta$. Whether the correction lowers the variance depends on the
    cost: `argrad.diagnose` tells; $\eta = 0$ is `ReinMax`.

    Args:
        eta: size of the correction.
        tau: temperature of the Gumbel estimators.
        inner_samples: $K$.
        num_samples: independent samples, averaged.

    Examples:
        >>> import torch, argrad as ag
        >>> z = ag.ReinMaxCV().rsample(ag.Gibbs(ag.OneHot(), torch.zeros(2, 3, requires_grad=True)))
        >>> z.sum(-1).tolist()
        [1.0, 1.0]

    References: [wang2026], [liu2023].
    """

    eta: float = 0.1
    tau: float = 1.0
    inner_samples: int = 10
    num_samples: int = 1

    def __post_init__(self) -> None:
        check_tau("ReinMaxCV", self.tau, torch.Size())
        check_count("ReinMaxCV", "inner_samples", self.inner_samples, 1, None, "10 are usual.")
        check_count("ReinMaxCV", "num_samples", self.num_samples, 1, None, "1 is enough.")

    def _one_hot(self, scores: Tensor, generator: Generator) -> Tensor:
        outer, many, single = random.split(generator, 3)
        hard = draw_one_hot(scores, outer)
        p = scores.detach().softmax(-1)
        middle = 0.5 * (hard + p)
        soft = 2 * softmax_tangent(middle, scores) - 0.5 * softmax_tangent(p, scores)
        # theta_D as a function of the scores with derivative 1: its Jacobians are those at theta_D
        closed = scores == -math.inf
        moving = scores.masked_fill(closed, 0.0)
        theta = (torch.log(middle) + moving - moving.detach()).masked_fill(closed, -math.inf)
        rao = conditional_softmax(theta, hard, self.tau, self.inner_samples, many)
        one = conditional_softmax(theta, hard, self.tau, 1, single)
        return straight_through(hard, soft + self.eta * (rao - one))
