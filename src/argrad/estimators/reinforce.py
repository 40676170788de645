r"""The score-function estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from argrad._checks import check_count
from argrad._types import Generator
from argrad.estimators.base import Cost, Estimator
from argrad.estimators.score import draw_scored, score_refusal
from argrad.structured import StructuredDistribution


@dataclass(frozen=True)
class Reinforce(Estimator):
    r"""REINFORCE, the score-function estimator: $f(z)\, \nabla \log p(z)$.

    $$ \nabla \mathbb{E} f = \mathbb{E}\big[(f(z) - b)\, \nabla \log p(z)\big] \tag{1} $$
    Unbiased for any cost, also a black box, and for any constant $b$; its variance is usually the largest.

    Args:
        num_samples: independent samples, averaged.
        baseline: the constant $b$.

    Examples:
        >>> import torch, argrad as ag
        >>> scores = torch.zeros(5, requires_grad=True)
        >>> cost = ag.Reinforce(8)(lambda z: z[..., 0], ag.Gibbs(ag.Subset(2), scores))
        >>> cost.backward(); scores.grad.shape
        torch.Size([5])

    References: [williams1992].
    """

    num_samples: int = 1
    baseline: float = 0.0

    is_unbiased: ClassVar[bool] = True
    needs_differentiable_f: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_count("Reinforce", "num_samples", self.num_samples, 1, None, "1 is enough.")

    def refusal(self, q: StructuredDistribution) -> str | None:
        """Any law with a log-probability."""
        return score_refusal(q)

    def _estimate(self, f: Cost, q: StructuredDistribution, generator: Generator) -> Tensor:
        drawn = draw_scored(q, self.num_samples, generator)
        cost = f(drawn.z)
        weights = (cost.detach() - self.baseline) / self.num_samples  # Eq. (1)
        return drawn.add_score(cost.mean(0), weights)
