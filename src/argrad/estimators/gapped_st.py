r"""Gapped straight-through."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from argrad._autograd import straight_through
from argrad._checks import check_count, check_tau
from argrad._types import Generator
from argrad.estimators.categorical import CategoricalPath, draw_one_hot


@dataclass(frozen=True)
class GappedST(CategoricalPath):
    r"""Straight-through with logits moved just enough that the sample wins by a gap, without Gumbel noise.

    With the sample $i$: $\theta_i$ is raised to $\max\theta$, every other $\theta_j$ lowered to at most
    $\max\theta - \mathrm{gap}$; the gradient is that of $\mathrm{softmax}(\cdot/\tau)$ there, the moves held
    constant.

    Args:
        tau: temperature.
        gap: the margin.
        num_samples: independent samples, averaged.

    Examples:
        >>> import torch, argrad as ag
        >>> z = ag.GappedST().rsample(ag.Gibbs(ag.OneHot(), torch.zeros(2, 3)))
        >>> z.sum(-1)
        tensor([1., 1.])

    References: [fan2022].
    """

    tau: float = 1.0
    gap: float = 1.0
    num_samples: int = 1

    def __post_init__(self) -> None:
        check_tau("GappedST", self.tau, ())  # type: ignore[arg-type]
        check_count("GappedST", "num_samples", self.num_samples, 1, None, "1 is enough.")

    def _one_hot(self, scores: Tensor, generator: Generator) -> Tensor:
        hard = draw_one_hot(scores, generator)
        closed = scores == -math.inf
        theta = scores.masked_fill(closed, 0.0)
        fixed = theta.detach()
        top = fixed.masked_fill(closed, -math.inf).amax(-1, keepdim=True)
        raised = (top - fixed) * hard
        lowered = (fixed + self.gap - top).clamp(min=0.0) * (1 - hard)
        x = ((theta + raised - lowered) / self.tau).masked_fill(closed, -math.inf)
        return straight_through(hard, x.softmax(-1))
