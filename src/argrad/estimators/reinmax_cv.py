r"""ReinMax with a control variate."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from argrad._autograd import straight_through
from argrad._checks import check_count, fail
from argrad._types import Generator, Shape
from argrad.estimators.categorical import CategoricalPath, draw_one_hot, softmax_tangent
from argrad.structured import StructuredDistribution


@dataclass(frozen=True)
class ReinMaxCV(CategoricalPath):
    r"""ReinMax with the other samples' slopes as control variate: the same mean, less variance.

    With $p = \mathrm{softmax}(\theta)$, the sample $D$, $J = \mathrm{diag}(p) - pp^\top$ and the slope $g = f'(D)$,
    `ReinMax` is $\frac12 J g + \frac12 (D - p)(D - p)^\top g$. The second half is a score function and brings the
    variance. Since $\mathbb{E}\,(D - p)(D - p)^\top = J$, for any $\bar g$ that does not depend on $D$ (here the mean
    slope at the other samples of the same item)
    $$ \hat g = \tfrac12 J g + \tfrac12 (D - p)(D - p)^\top (g - \eta \bar g) + \tfrac12 \eta J \bar g \tag{1} $$
    has the mean of `ReinMax` for every $\eta$; at $\eta = 1$ linear costs leave no variance.

    *One sample is not enough.* An estimate $A(D, \varepsilon)\, f'(D)$ has ReinMax's mean for every cost only if
    $\mathbb{E}[A \mid D]$ is ReinMax's matrix, because the slopes at the vertices are arbitrary. ReinMax is then
    its conditional expectation, so it has the least variance of them all. The difference of a Gumbel estimator and
    its Rao-Blackwellised form, the control variate of [wang2026], has mean 0 given $D$: it cannot help.

    Args:
        eta: $\eta$; the best value depends on how much slopes differ between samples (`argrad.diagnose`).
        num_samples: independent samples, averaged; at least 2.

    Examples:
        >>> import torch, argrad as ag
        >>> q = ag.Gibbs(ag.OneHot(), torch.zeros(5, 3, requires_grad=True))
        >>> cost = lambda z: z @ torch.arange(3.0)
        >>> ag.ReinMaxCV(eta=1.0).evaluate(cost, q).scores_grad[0]  # a linear cost: exact
        tensor([-0.3333,  0.0000,  0.3333])

    References: [liu2023], [wang2026].
    """

    eta: float = 0.5
    num_samples: int = 2

    def __post_init__(self) -> None:
        if not math.isfinite(self.eta):
            raise fail("ReinMaxCV", "eta", "must be finite", self.eta, "0 is `ReinMax`.")
        check_count("ReinMaxCV", "num_samples", self.num_samples, 2, None, "One must be left out.")

    def rsample(
        self, q: StructuredDistribution, sample_shape: Shape = (), *, generator: Generator = None
    ) -> Tensor:
        """Vertices with this estimator's gradient; the first dimension of `sample_shape` is that of Eq. (1)."""
        if not sample_shape or sample_shape[0] < 2:
            advice = "The others are the control variate of each; with one alone use `ReinMax`."
            rule = "must start with at least 2 samples"
            raise fail("ReinMaxCV.rsample", "sample_shape", rule, tuple(sample_shape), advice)
        return super().rsample(q, sample_shape, generator=generator)

    def _one_hot(self, scores: Tensor, generator: Generator) -> Tensor:
        hard = draw_one_hot(scores, generator)
        p = scores.detach().softmax(-1)
        theta = scores.masked_fill(scores == -math.inf, 0.0)
        gap = hard - p
        mean = softmax_tangent(p, scores)  # J theta
        own = gap * (gap * theta).sum(-1, keepdim=True)  # (D - p)(D - p)^T theta
        others = (own.sum(0) - own) / (len(own) - 1)
        # the coefficient of a sample's slope: as its own, and in the means of the others
        return straight_through(hard, 0.5 * (mean + own + self.eta * (mean - others)))
