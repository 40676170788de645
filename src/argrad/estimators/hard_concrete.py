r"""The hard Concrete gate."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from argrad._checks import check_count, check_tau, fail
from argrad._types import Float, Generator, Shape
from argrad.estimators.path import PathEstimator
from argrad.estimators.relaxed import as_perturbed
from argrad.structured import StructuredDistribution
from argrad.structures.bits import Bits


@dataclass(frozen=True)
class HardConcrete(PathEstimator):
    r"""A relaxed bit, stretched and cut, so that it is exactly 0 or 1 with positive probability.

    $$ s = \sigma((\theta + L)/\tau), \quad L \sim \mathrm{Logistic}(0, 1), \qquad
       z = \min(1, \max(0,\ \gamma + (\zeta - \gamma)\, s)) \tag{1} $$
    $$ P(z > 0) = \sigma\big(\theta - \tau \log(-\gamma/\zeta)\big) \tag{2} $$
    The gradient is that of (1): 0 where the bit is cut. Biased as an estimator for bits, like every
    relaxation; as a model of its own (gates, $L_0$ penalties) it is what it is, and (2) is its penalty.

    Args:
        tau: temperature; the authors' 2/3.
        low: $\gamma < 0$.
        high: $\zeta > 1$.
        num_samples: independent samples, averaged.

    Examples:
        >>> import torch, argrad as ag
        >>> theta = torch.tensor([-9.0, 0.0, 9.0], requires_grad=True)
        >>> z = ag.HardConcrete().rsample(ag.Gibbs(ag.Bits(), theta))
        >>> z[0].item(), z[2].item()
        (0.0, 1.0)
        >>> ag.HardConcrete().open_prob(torch.zeros(1))
        tensor([0.8318])

    References: [louizos2018].
    """

    tau: float = 2 / 3
    low: float = -0.1
    high: float = 1.1
    num_samples: int = 1

    def __post_init__(self) -> None:
        check_tau("HardConcrete", self.tau, torch.Size())
        check_count("HardConcrete", "num_samples", self.num_samples, 1, None, "1 is enough.")
        if not self.low < 0:
            raise fail("HardConcrete", "low", "must be negative", self.low, "The authors use -0.1.")
        if not self.high > 1:
            raise fail("HardConcrete", "high", "must be above 1", self.high, "The authors use 1.1.")

    def refusal(self, q: StructuredDistribution) -> str | None:
        """Bits."""
        if isinstance(q.structure, Bits):
            return None
        return "it cuts single bits. Works here: `Relaxed`, `Imle`; unbiased: `LeaveOneOut`."

    def rsample(
        self, q: StructuredDistribution, sample_shape: Shape = (), *, generator: Generator = None
    ) -> Tensor:
        """Eq. (1)."""
        s = as_perturbed(q).rsample(sample_shape, tau=self.tau, generator=generator)
        return (self.low + (self.high - self.low) * s).clamp(0.0, 1.0)

    def open_prob(self, scores: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Eq. (2), the probability that a bit is not 0."""
        return torch.sigmoid(scores - self.tau * math.log(-self.low / self.high))
