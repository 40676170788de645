r"""Estimators from distinct samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from argrad._checks import check_count
from argrad._types import Generator
from argrad.estimators.base import Cost, Estimator, is_gibbs
from argrad.estimators.exact import as_gibbs
from argrad.estimators.score import add_score
from argrad.gumbel import gumbel_topk
from argrad.sequences.ratios import leave_one_out_log_ratio
from argrad.structured import StructuredDistribution


class DistinctSamples(Estimator):
    """Draws `num_samples` different vertices (the first ones of a Gumbel-top-k over all of them)."""

    num_samples: int
    is_unbiased: ClassVar[bool] = True
    needs_differentiable_f: ClassVar[bool] = False

    def refusal(self, q: StructuredDistribution) -> str | None:
        """Gibbs laws that can be listed."""
        if is_gibbs(q) and q.structure.has_log_partition:
            return None
        return "its vertices cannot be listed with probabilities. Unbiased here: `LeaveOneOut`."

    def _draw(self, q: StructuredDistribution, generator: Generator) -> tuple[Tensor, Tensor]:
        """Vertices `(S, *batch, *event)` in the order of drawing, and their log-probabilities."""
        law = as_gibbs(q)
        support = law.enumerate_support()
        with torch.no_grad():
            log_p = law._log_prob(support)  # (count, *batch)
        count = min(self.num_samples, len(support))
        top = gumbel_topk(log_p, count, dim=0, generator=generator)
        index = top.indices.reshape(top.indices.shape + (1,) * len(q.event_shape))
        z = support.gather(0, index.expand(count, *support.shape[1:]))
        return z, log_p.gather(0, top.indices)


@dataclass(frozen=True)
class UnorderedSet(DistinctSamples):
    r"""The unordered-set estimator: distinct samples, weighted by $p_s R(S, s)$, with a built-in baseline.

    $$ \nabla \mathbb{E} f \approx \sum_{s \in S} \nabla p_s\, R(S, s) \Big(f_s - \sum_{t \in S}
       p_t\, R^{D \setminus s}(S, t)\, f_t\Big) $$
    Unbiased; of all estimators from k distinct samples the one of least variance. Pays when a few
    vertices hold most of the probability.

    Args:
        num_samples: k; the whole support if it is smaller (then exact).

    Examples:
        >>> import torch, argrad as ag
        >>> q = ag.Gibbs(ag.OneHot(), torch.zeros(5, requires_grad=True))
        >>> value = ag.UnorderedSet(5)(lambda z: z @ torch.arange(5.0), q)  # all five: exact
        >>> round(value.item(), 4)
        2.0

    References: [kool2020].
    """

    num_samples: int = 4

    def __post_init__(self) -> None:
        check_count("UnorderedSet", "num_samples", self.num_samples, 2, None, "One is the baseline.")

    def _estimate(self, f: Cost, q: StructuredDistribution, generator: Generator) -> Tensor:
        z, log_p = self._draw(q, generator)
        cost = f(z)
        phi = log_p.detach().movedim(0, -1)  # (*batch, k)
        weights = torch.exp(phi + leave_one_out_log_ratio(phi))
        table = torch.exp(phi[..., None, :] + leave_one_out_log_ratio(phi, order=2))  # (*batch, s, t)
        values = cost.detach().movedim(0, -1)
        baseline = (table * values[..., None, :]).sum(-1).movedim(-1, 0)
        weights = weights.movedim(-1, 0)
        value = (weights * cost).sum(0)
        return add_score(value, as_gibbs(q), z, weights * (cost.detach() - baseline))


@dataclass(frozen=True)
class SumAndSample(DistinctSamples):
    r"""Sum the first k - 1 distinct samples exactly and let the last stand for the rest.

    $$ \sum_{i < k} p_i f_i + \Big(1 - \sum_{i < k} p_i\Big) f_k $$

    Args:
        num_samples: k; the whole support if it is smaller (then exact).

    Examples:
        >>> import torch, argrad as ag
        >>> q = ag.Gibbs(ag.OneHot(), torch.zeros(5, requires_grad=True))
        >>> ag.SumAndSample(3)(lambda z: z @ torch.arange(5.0), q).shape
        torch.Size([])

    References: [liu2019].
    """

    num_samples: int = 4

    def __post_init__(self) -> None:
        check_count("SumAndSample", "num_samples", self.num_samples, 1, None, "1 is REINFORCE.")

    def _estimate(self, f: Cost, q: StructuredDistribution, generator: Generator) -> Tensor:
        z, log_p = self._draw(q, generator)
        cost = f(z)
        p = log_p.detach().exp()
        weights = torch.cat([p[:-1], (1 - p[:-1].sum(0, keepdim=True)).clamp(min=0.0)])
        return add_score((weights * cost).sum(0), as_gibbs(q), z, weights * cost.detach())
