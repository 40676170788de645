r"""ReinMax with a control variate."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from argrad._autograd import straight_through
from argrad._checks import check_count, fail, is_transformed
from argrad._types import Generator, Shape
from argrad.estimators.base import Cost
from argrad.estimators.categorical import CategoricalPath, draw_one_hot, softmax_tangent
from argrad.structured import StructuredDistribution


class ReinMaxCV(nn.Module, CategoricalPath):
    r"""ReinMax with the other samples' slopes as control variate: the same mean, less variance.

    With $p = \mathrm{softmax}(\theta)$, the sample $D$, $J = \mathrm{diag}(p) - pp^\top$ and the slope $g = f'(D)$,
    `ReinMax` is $\frac12 J g + \frac12 (D - p)(D - p)^\top g$. The second half is a score function and brings the
    variance. Since $\mathbb{E}\,(D - p)(D - p)^\top = J$, for any $\bar g$ that does not depend on $D$ (here the mean
    slope at the other samples of the same item)
    $$ \hat g = \tfrac12 J g + \tfrac12 (D - p)(D - p)^\top (g - \eta \bar g) + \tfrac12 \eta J \bar g \tag{1} $$
    has the mean of `ReinMax` for every $\eta$; at $\eta = 1$ linear costs leave no variance. In general (1) is
    $R + \eta C$ with $\mathbb{E}\, C = 0$, of least variance at
    $\eta = -\mathbb{E}\langle R, C\rangle / \mathbb{E}\langle C, C\rangle$. Running averages of both are kept during
    training (not inside `torch.compile`), and $\eta$ follows them: past steps alone, which keeps the mean.

    *One sample is not enough.* An estimate $A(D, \varepsilon)\, f'(D)$ has ReinMax's mean for every cost only if
    $\mathbb{E}[A \mid D]$ is ReinMax's matrix, because the slopes at the vertices are arbitrary. ReinMax is then
    its conditional expectation, so it has the least variance of them all. The difference of a Gumbel estimator and
    its Rao-Blackwellised form, the control variate of [wang2026], has mean 0 given $D$: it cannot help.

    Args:
        eta: first $\eta$.
        num_samples: independent samples, averaged; at least 2.
        decay: of the running averages; 1 keeps `eta` as it is.

    Examples:
        >>> import torch, argrad as ag
        >>> q = ag.Gibbs(ag.OneHot(), torch.zeros(5, 3, requires_grad=True))
        >>> cost = lambda z: z @ torch.arange(3.0)
        >>> ag.ReinMaxCV(eta=1.0).evaluate(cost, q).scores_grad[0].round(decimals=4)  # a linear cost: exact
        tensor([-0.3333,  0.0000,  0.3333])

    References: [liu2023], [wang2026].
    """

    eta: Tensor
    products: Tensor

    def __init__(self, eta: float = 0.5, *, num_samples: int = 2, decay: float = 0.98) -> None:
        super().__init__()
        if not math.isfinite(eta):
            raise fail("ReinMaxCV", "eta", "must be finite", eta, "0 is `ReinMax`.")
        if not 0 <= decay <= 1:
            raise fail("ReinMaxCV", "decay", "must be from 0 to 1", decay, "0.98 is usual.")
        check_count("ReinMaxCV", "num_samples", num_samples, 2, None, "One must be left out.")
        self.num_samples, self.decay = num_samples, decay
        self.register_buffer("eta", torch.tensor(float(eta)))
        self.register_buffer("products", torch.zeros(2))  # running <R, C> and <C, C>

    def forward(self, f: Cost, q: StructuredDistribution, *, generator: Generator = None) -> Tensor:
        """As every estimator: the estimate, shape of the batch."""
        return self.estimate(f, q, generator=generator)

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
        mean = softmax_tangent(p, scores)  # J theta
        own = _outer(hard - p, theta)
        others = (own.sum(0) - own) / (len(own) - 1)
        # the coefficient of a sample's slope: as its own, and in the means of the others
        eta = self.eta.clone().to(
            mean
        )  # the hook below changes the buffer before this one is used again
        soft = 0.5 * (mean + own + eta * (mean - others))
        z = straight_through(hard, soft)
        if self.training and self.decay < 1 and z.requires_grad and not is_transformed():
            z.register_hook(lambda slope: self._adapt(slope.detach(), p, hard - p))
        return z

    @torch.no_grad()
    def _adapt(self, slope: Tensor, p: Tensor, gap: Tensor) -> None:
        """Move eta towards its best value, given the slopes at all samples."""
        others = (slope.sum(0) - slope) / (len(slope) - 1)
        reinmax = (softmax_tangent(p, slope) + _outer(gap, slope)).sum(0)
        control = (softmax_tangent(p, others) - _outer(gap, others)).sum(0)
        new = torch.stack([(reinmax * control).sum(), control.pow(2).sum()]).to(self.products)
        self.products.mul_(self.decay).add_(new)
        best = -self.products[0] / self.products[1]
        self.eta.copy_(torch.where(torch.isfinite(best), best, self.eta).clamp(-1.0, 2.0))


def _outer(gap: Tensor, x: Tensor) -> Tensor:
    r"""$(D - p)(D - p)^\top x$."""
    return gap * (gap * x).sum(-1, keepdim=True)
