r"""The smoothed arg max."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from argrad._checks import check_count
from argrad._errors import UnsupportedError
from argrad._numerics import masked_scores
from argrad._types import Generator, Shape
from argrad.estimators.base import Cost
from argrad.estimators.path import PathEstimator
from argrad.estimators.relaxed import as_perturbed, perturbed_refusal
from argrad.structured import StructuredDistribution


@dataclass(frozen=True)
class PerturbedOptimizer(PathEstimator):
    r"""The mean vertex $\bar z(\theta) = \mathbb{E}\, z(\theta + \sigma\varepsilon)$ and its Jacobian, by sampling.

    $$ \frac{\partial \bar z}{\partial \theta} = \frac{1}{\sigma}\,
       \mathbb{E}[z(\theta + \sigma\varepsilon)\, \nabla\nu(\varepsilon)^\top], \quad e^{-\nu} \text{ the density} $$
    Value and Jacobian of the *mean* are unbiased, with the other samples as baseline; a cost of the
    mean is a biased estimate of the mean cost unless it is linear. Needs arg max alone: any structure,
    an `Oracle` too.

    Args:
        num_samples: vertices averaged into one point, at least 2.

    Examples:
        >>> import torch, argrad as ag
        >>> q = ag.Perturbed(ag.Permutation(), torch.zeros(3, 3, requires_grad=True))
        >>> ag.PerturbedOptimizer(100).rsample(q).sum(-1).round()
        tensor([1., 1., 1.], grad_fn=<RoundBackward0>)

    References: [berthet2020].
    """

    num_samples: int = 10

    is_unbiased: ClassVar[bool] = False
    needs_differentiable_f: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count(
            "PerturbedOptimizer", "num_samples", self.num_samples, 2, None, "One is the baseline."
        )

    @property
    def evaluations_of_f(self) -> int:
        """One: at the mean."""
        return 1

    def refusal(self, q: StructuredDistribution) -> str | None:
        """Perturbed laws whose noise has a density."""
        reason = perturbed_refusal(q)
        if reason is None:
            try:
                as_perturbed(q).noise.log_prob(torch.zeros(1))
            except UnsupportedError:
                return "its noise has no density. Use Gumbel, Normal or Logistic noise."
        return reason

    def rsample(
        self, q: StructuredDistribution, sample_shape: Shape = (), *, generator: Generator = None
    ) -> Tensor:
        """Means of `num_samples` vertices each, with the Jacobian of the expected vertex."""
        law = as_perturbed(q)
        count = self.num_samples
        draw = law.draw((count, *sample_shape), generator=generator)
        z = draw.hard
        scores = masked_scores(law.scores, law.mask).expand(z.shape) / law.noise_scale
        log_density = law._noise_log_prob(scores, draw.perturbed.detach() / law.noise_scale)
        log_density = log_density.reshape(log_density.shape + (1,) * law.structure.event_dims)
        advantage = (z - z.mean(0)) * (count / (count - 1))  # less the mean of the others
        return (z + advantage * (log_density - log_density.detach())).mean(0)

    def _estimate(self, f: Cost, q: StructuredDistribution, generator: Generator) -> Tensor:
        return f(self.rsample(q, (1,), generator=generator)).squeeze(0)
