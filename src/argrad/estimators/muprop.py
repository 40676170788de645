r"""First-order control variates: MuProp and DARN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from argrad._checks import check_count, is_transformed
from argrad._numerics import masked_scores
from argrad._types import Generator
from argrad.estimators.base import Cost, Estimator, is_gibbs, no_gradient
from argrad.estimators.exact import as_gibbs
from argrad.estimators.score import add_score
from argrad.structured import StructuredDistribution
from argrad.structures.bits import Bits
from argrad.structures.one_hot import OneHot


@dataclass(frozen=True)
class MuProp(Estimator):
    r"""REINFORCE on what a first-order expansion at the mean leaves over, plus the expansion's exact gradient.

    With $\mu = \mathbb{E} z$ and $h(z) = f(\mu) + \langle f'(\mu), z - \mu\rangle$:
    $$ \nabla \mathbb{E} f = \mathbb{E}\big[(f(z) - h(z))\, \nabla \log p(z)\big] + f'(\mu)^\top \nabla\mu $$
    Unbiased; no variance for linear costs. Any structure with marginals.

    Args:
        num_samples: independent samples, averaged.

    Examples:
        >>> import torch, argrad as ag
        >>> scores = torch.zeros(3, requires_grad=True)
        >>> ag.MuProp()(lambda z: z @ torch.tensor([0.0, 0.0, 3.0]), ag.Gibbs(ag.OneHot(), scores)).backward()
        >>> scores.grad
        tensor([-0.3333, -0.3333,  0.6667])

    References: [gu2016].
    """

    num_samples: int = 1

    is_unbiased: ClassVar[bool] = True
    needs_differentiable_f: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count("MuProp", "num_samples", self.num_samples, 1, None, "1 is enough.")

    @property
    def evaluations_of_f(self) -> int:
        """One at the mean, one a sample."""
        return self.num_samples + 1

    def refusal(self, q: StructuredDistribution) -> str | None:
        """Laws with marginals."""
        if is_gibbs(q) and q.structure.has_log_partition:
            return None
        return "its mean is not known. Unbiased here: `LeaveOneOut` on `Perturbed`."

    def _estimate(self, f: Cost, q: StructuredDistribution, generator: Generator) -> Tensor:
        law = as_gibbs(q)
        mean = law.mean
        at_mean, slope = value_and_slope("MuProp", f, mean.detach()[None])
        z = law.sample((self.num_samples,), generator=generator)
        cost = f(z)
        event = tuple(range(-len(q.event_shape), 0))
        expansion = at_mean + (slope * (z - mean.detach())).sum(event)
        path = (slope[0] * (mean - mean.detach())).sum(event)
        weights = (cost.detach() - expansion) / self.num_samples
        return add_score(cost.mean(0) + path, law, z, weights)


@dataclass(frozen=True)
class Darn(Estimator):
    r"""The DARN baseline: an expansion at the sample itself, $b(z) = f(z) + \langle f'(z), \bar z - z\rangle$.

    $$ \nabla_{\theta_i} \approx \langle f'_i(z), z_i - \bar z_i\rangle\, \nabla \log p(z_i) $$
    with $\bar z$ the centre (1/2 for bits, 1/n for one-hots). One evaluation; exact for quadratic costs of
    a bit, biased otherwise, because the baseline depends on the sample.

    Args:
        num_samples: independent samples, averaged.

    Examples:
        >>> import torch, argrad as ag
        >>> scores = torch.zeros(2, 4, requires_grad=True)
        >>> ag.Darn()(lambda z: z[..., 0] ** 2, ag.Gibbs(ag.Bits(), scores)).sum().backward()
        >>> scores.grad.shape
        torch.Size([2, 4])

    References: [gregor2014], [gu2016].
    """

    num_samples: int = 1

    is_unbiased: ClassVar[bool] = False
    needs_differentiable_f: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count("Darn", "num_samples", self.num_samples, 1, None, "1 is enough.")

    def refusal(self, q: StructuredDistribution) -> str | None:
        """One-hots and bits."""
        if isinstance(q.structure, (OneHot, Bits)) and is_gibbs(q):
            return None
        return "it is defined for `OneHot` and `Bits`. Unbiased here: `MuProp`, `LeaveOneOut`."

    def _estimate(self, f: Cost, q: StructuredDistribution, generator: Generator) -> Tensor:
        law = as_gibbs(q)
        z = law.sample((self.num_samples,), generator=generator)
        cost, slope = cost_and_slope("Darn", f, z)
        if isinstance(law.structure, Bits):
            centred, mean = slope * (z - 0.5), law.mean
            score = (z - mean.detach()) * (law.scores - law.scores.detach())
        else:
            scores = masked_scores(law.scores, law.mask)
            open_ = (scores > -torch.inf).to(z.dtype)
            centre = open_ / open_.sum(-1, keepdim=True)
            centred = (slope * (z - centre)).sum(-1, keepdim=True)
            log_p = torch.log_softmax(scores, -1)
            score = torch.where(z > 0, log_p - log_p.detach(), 0.0)
        event = tuple(range(-len(q.event_shape), 0))
        return (cost + (centred * score).sum(event)).mean(0)


def value_and_slope(name: str, f: Cost, z: Tensor) -> tuple[Tensor, Tensor]:
    """`f(z)` and its derivative for `z`, both constants: nothing reaches the parameters of `f`."""
    cost, slope = cost_and_slope(name, f, z, keep=False)
    return cost.detach(), slope


def cost_and_slope(name: str, f: Cost, z: Tensor, *, keep: bool = True) -> tuple[Tensor, Tensor]:
    """`f(z)`, with the gradient of its parameters if `keep`, and its derivative for `z` as a constant."""
    if is_transformed():
        cost, pull_back = torch.func.vjp(f, z.detach())[:2]
        (slope,) = pull_back(torch.ones_like(cost))
        return cost, slope.detach()
    with torch.enable_grad():
        point = z.detach().requires_grad_()
        cost = f(point)
        if not cost.requires_grad:
            raise no_gradient(name)
        (slope,) = torch.autograd.grad(cost.sum(), point, retain_graph=keep, allow_unused=True)
    if slope is None:
        raise no_gradient(name)
    return cost, slope
