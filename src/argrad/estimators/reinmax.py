r"""ReinMax."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from argrad._autograd import straight_through
from argrad._checks import check_count, check_tau
from argrad._types import Generator
from argrad.estimators.categorical import CategoricalPath, draw_one_hot, softmax_tangent


@dataclass(frozen=True)
class ReinMax(CategoricalPath):
    r"""A hard sample with a second-order straight-through gradient.

    With $p = \mathrm{softmax}(\theta)$, the sample $D$, $\pi = (D + \mathrm{softmax}(\theta/\tau))/2$ and the
    softmax Jacobian $J(\pi) = \mathrm{diag}(\pi) - \pi\pi^\top$:
    $$ \nabla_\theta \approx \big(2 J(\pi) - \tfrac12 J(p)\big)\, \nabla_D f(D) $$
    At $\tau = 1$ exact for quadratic costs (Heun's method), biased beyond; on some costs
    worse than plain straight-through, so measure (`argrad.diagnose`).

    Args:
        tau: temperature of the softmax in $\pi$; the authors use 1 to 1.5.
        num_samples: independent samples, averaged.

    Examples:
        >>> import torch, argrad as ag
        >>> scores = torch.zeros(2, 3, requires_grad=True)
        >>> z = ag.ReinMax().rsample(ag.Gibbs(ag.OneHot(), scores))
        >>> (z * torch.arange(3.0)).sum().backward(); bool((scores.grad.sum(-1).abs() < 1e-6).all())
        True

    References: [liu2023].
    """

    tau: float = 1.0
    num_samples: int = 1

    def __post_init__(self) -> None:
        check_tau("ReinMax", self.tau, ())  # type: ignore[arg-type]
        check_count("ReinMax", "num_samples", self.num_samples, 1, None, "1 is enough.")

    def _one_hot(self, scores: Tensor, generator: Generator) -> Tensor:
        hard = draw_one_hot(scores, generator)
        p = scores.detach().softmax(-1)
        middle = 0.5 * (hard + (p if self.tau == 1 else (scores.detach() / self.tau).softmax(-1)))
        soft = 2 * softmax_tangent(middle, scores) - 0.5 * softmax_tangent(p, scores)
        return straight_through(hard, soft)
