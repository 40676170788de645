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
from argrad.gibbs import Gibbs
from argrad.gumbel import gumbel_topk
from argrad.sequences.ratios import both_log_ratios
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

    def _draw(self, law: Gibbs, generator: Generator) -> tuple[Tensor, Tensor]:
        """Vertices `(S, *batch, *event)` in the order of drawing, and their log-probabilities."""
        support = law.enumerate_support()
        with torch.no_grad():
            # (count, *batch); over the whole support, so that huge scores lose no digits of the sum 1
            log_p = law._log_prob(support).log_softmax(0)
        count = min(self.num_samples, len(support))
        top = gumbel_topk(log_p, count, dim=0, generator=generator)
        index = top.indices.reshape(top.indices.shape + (1,) * len(law.event_shape))
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
        law = as_gibbs(q)
        z, log_p = self._draw(law, generator)
        cost = f(z)
        phi = log_p.movedim(0, -1)  # (*batch, k)
        one, two = both_log_ratios(phi)
        weights = torch.exp(phi + one)
        table = torch.exp(phi[..., None, :] + two)  # (*batch, s, t)
        values = cost.detach().movedim(0, -1)
        baseline = (table * values[..., None, :]).sum(-1).movedim(-1, 0)
        weights = weights.movedim(-1, 0)
        value = (weights * cost).sum(0)
        return add_score(value, law, z, weights * (cost.detach() - baseline))


@dataclass(frozen=True)
class SumAndSample(DistinctSamples):
    r"""Sum the first k - 1 distinct samples exactly and let the last stand for the rest.

    With $P = \sum_{i < k} p_i$ and the mean cost of the first ones as baseline,
    $$ \sum_{i < k} p_i f_i + (1 - P) f_k, \qquad
       \nabla \mathbb{E} f \approx \sum_{i < k} (f_i - b) \nabla p_i + (1 - P)(f_k - b) \nabla \log p_k, \quad
       b = \frac1P \sum_{i < k} p_i f_i $$
    Unbiased: given the first ones $b$ is a constant, and its factor has the mean
    $\sum_{i < k} \nabla p_i + \sum_{i \ge k} \nabla p_i = 0$.

    Args:
        num_samples: k; the whole support if it is smaller (then exact).
        baseline: False is the published form, $b = 0$.

    Examples:
        >>> import torch, argrad as ag
        >>> q = ag.Gibbs(ag.OneHot(), torch.zeros(5, requires_grad=True))
        >>> ag.SumAndSample(3)(lambda z: z @ torch.arange(5.0), q).shape
        torch.Size([])

    References: [liu2019].
    """

    num_samples: int = 4
    baseline: bool = True

    def __post_init__(self) -> None:
        check_count("SumAndSample", "num_samples", self.num_samples, 1, None, "1 is REINFORCE.")

    def _estimate(self, f: Cost, q: StructuredDistribution, generator: Generator) -> Tensor:
        law = as_gibbs(q)
        z, log_p = self._draw(law, generator)
        cost = f(z)
        p = log_p.exp()[:-1]  # of the summed ones
        total = p.sum(0)
        weights = torch.cat([p, (1 - total).clamp(min=0.0)[None]])
        gap = cost.detach()
        if self.baseline and len(p):
            gap = gap - (p * gap[:-1]).sum(0) / total
        return add_score((weights * cost).sum(0), law, z, weights * gap)
