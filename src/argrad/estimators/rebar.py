r"""REBAR and RELAX: a relaxation as control variate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from argrad._checks import check_count, check_tau, is_transformed
from argrad._numerics import masked_scores
from argrad._types import Generator
from argrad.estimators.base import Cost, Estimator, is_gibbs, no_gradient
from argrad.estimators.coupling import couple_noise, relax_coupled
from argrad.estimators.exact import as_gibbs
from argrad.gibbs import Gibbs
from argrad.structured import StructuredDistribution
from argrad.structures.bits import Bits
from argrad.structures.one_hot import OneHot

Parameters = Mapping[str, Tensor]
Slopes = dict[str, Tensor]


class Rebar(nn.Module, Estimator):
    r"""REINFORCE with the relaxed cost as control variate; its own mean is removed by the path.

    With $w = \theta + \varepsilon$, $z = \arg\max w$, $\tilde w$ drawn given $z$, and $\sigma_\tau$ the relaxation:
    $$ \hat g = \big(f(z) - \eta f(\sigma_\tau(\tilde w))\big)\, \nabla\log p(z)
       + \eta\,\nabla f(\sigma_\tau(w)) - \eta\,\nabla f(\sigma_\tau(\tilde w)) \tag{1} $$
    Unbiased for every $\eta$ and $\tau$, which are trained to least variance by the same backward pass (a
    term of value 0 and linear in them, so data-parallel training and accumulation stay in step). `f` is
    evaluated at the sample and at two relaxed points; the latter feed nothing but the scores.

    Args:
        tau: first temperature.
        eta: first scale.
        num_samples: independent samples, averaged.
        train: whether `tau` and `eta` are parameters.

    Examples:
        >>> import torch, argrad as ag
        >>> est, scores = ag.Rebar(), torch.zeros(4, 3, requires_grad=True)
        >>> est(lambda z: (z[..., 0] - 0.4) ** 2, ag.Gibbs(ag.OneHot(), scores)).mean().backward()
        >>> est.log_tau.grad is not None
        True

    References: [tucker2017], [grathwohl2018].
    """

    is_unbiased: ClassVar[bool] = True
    needs_differentiable_f: ClassVar[bool] = True

    def __init__(
        self, tau: float = 0.5, *, eta: float = 1.0, num_samples: int = 1, train: bool = True
    ) -> None:
        super().__init__()
        name = type(self).__name__
        check_tau(name, tau, torch.Size())
        check_count(name, "num_samples", num_samples, 1, None, "1 is enough.")
        self.num_samples = num_samples
        self.log_tau = nn.Parameter(torch.tensor(math.log(tau)), requires_grad=train)
        self.eta = nn.Parameter(torch.tensor(float(eta)), requires_grad=train)

    @property
    def evaluations_of_f(self) -> int:
        """The sample and two relaxed points."""
        return 3 * self.num_samples

    def refusal(self, q: StructuredDistribution) -> str | None:
        """Laws whose noise can be drawn given the choice."""
        if isinstance(q.structure, (OneHot, Bits)) and is_gibbs(q):
            return None
        return (
            f"{type(self).__name__} needs noise given the choice, known for `OneHot` and `Bits`. "
            "Unbiased here: `LeaveOneOut`, `Reinforce`, `MuProp`."
        )

    def forward(self, f: Cost, q: StructuredDistribution, *, generator: Generator = None) -> Tensor:
        """As every estimator: the estimate, shape of the batch."""
        return self.estimate(f, q, generator=generator)

    def _estimate(self, f: Cost, q: StructuredDistribution, generator: Generator) -> Tensor:
        law = as_gibbs(q)
        scores = masked_scores(law.scores, law.mask)
        solve = self._by_func if is_transformed() else self._by_autograd
        cost, estimate, slopes = solve(f, law, scores.detach(), generator)
        change = torch.where(torch.isfinite(scores), scores - scores.detach(), 0.0)
        result = cost.mean(0) + q._sum_event(change * estimate.detach())
        return result + self._training_term(slopes, result) if slopes else result

    def _by_autograd(
        self, f: Cost, law: Gibbs, scores: Tensor, generator: Generator
    ) -> tuple[Tensor, Tensor, Slopes]:
        """Costs of the samples, Eq. (1), and the slopes of its square for the control variate's parameters."""
        trained = [(name, p) for name, p in self.named_parameters() if p.requires_grad]
        trained = trained if torch.is_grad_enabled() else []
        with torch.enable_grad():
            scores = scores.requires_grad_()
            hard, free, given = self._controls(f, law, scores, dict(self.named_parameters()), generator)
            path = _slope(type(self).__name__, (free - given).sum(), scores, bool(trained))
            cost = f(hard)
            estimate = self._combine(law, hard, cost, given, path)
            if not trained:
                return cost, estimate, {}
            square = estimate.pow(2).sum()
            grads = torch.autograd.grad(square, [p for _, p in trained], allow_unused=True)
        pairs = zip(trained, grads, strict=True)
        return cost, estimate, {name: grad for (name, _), grad in pairs if grad is not None}

    def _by_func(
        self, f: Cost, law: Gibbs, scores: Tensor, generator: Generator
    ) -> tuple[Tensor, Tensor, Slopes]:
        """The same inside `torch.compile` and `torch.func`, where gradients are functions of functions."""

        def square(own: Parameters) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            def gap(theta: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
                hard, free, given = self._controls(f, law, theta, own, generator)
                return (free - given).sum(), (hard, given)

            path, (hard, given) = torch.func.grad(gap, has_aux=True)(scores)
            cost = f(hard)
            estimate = self._combine(law, hard, cost, given, path)
            return estimate.pow(2).sum(), (cost, estimate)

        own = {name: p.detach() for name, p in self.named_parameters()}
        slopes, (cost, estimate) = torch.func.grad(square, has_aux=True)(own)
        trained = {name for name, p in self.named_parameters() if p.requires_grad}
        return cost, estimate, {name: grad for name, grad in slopes.items() if name in trained}

    def _controls(
        self, f: Cost, law: Gibbs, scores: Tensor, own: Parameters, generator: Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Hard samples, and the control variate at the relaxed points behind them and given them."""
        couple = couple_noise(law.structure, scores, self.num_samples, generator)
        perturbed = torch.cat([couple.free, couple.given])  # one evaluation of f for both
        points = relax_coupled(law.structure, perturbed, own["log_tau"].exp().to(scores))
        free, given = (own["eta"].to(scores) * self._control(f, points, law, own)).chunk(2)
        return couple.hard, free, given

    def _control(self, f: Cost, points: Tensor, law: Gibbs, own: Parameters) -> Tensor:
        """The control variate at relaxed points, `(S, *batch)`, before it is scaled by `eta`."""
        del law, own
        return f(points)

    def _combine(self, law: Gibbs, hard: Tensor, cost: Tensor, given: Tensor, path: Tensor) -> Tensor:
        """Eq. (1), the mean over samples; the gradient of log p(z) is z - E z."""
        weight = (cost.detach() - given).reshape(cost.shape + (1,) * len(law.event_shape))
        return (weight * (hard - law.mean.detach())).mean(0) + path / self.num_samples

    def _training_term(self, slopes: Slopes, like: Tensor) -> Tensor:
        r"""Value 0, shape of the batch; gradient $\nabla_\phi \hat g^2$ for the control variate, and nothing else.

        $\mathbb{E} \hat g$ does not depend on $\phi$, so this is an unbiased gradient of the variance.
        """
        own = dict(self.named_parameters())
        terms = [((own[n] - own[n].detach()) * slope.detach()).sum() for n, slope in slopes.items()]
        total = torch.stack([term.to(like.dtype) for term in terms]).sum()
        return (total / max(like.numel(), 1)).expand(like.shape)


class Relax(Rebar):
    r"""REBAR with a free-form control variate, $c_\phi(z_\tau) = f(z_\tau) + r_\phi(z_\tau)$, or $r_\phi$ alone.

    Args:
        network: $r_\phi$: module from relaxed points `(S, *batch, event size)` to `(S, *batch)` or
            `(S, *batch, 1)`.
        tau: first temperature.
        eta: first scale.
        num_samples: independent samples, averaged.
        use_f: False leaves `f` out of the control variate: a black box then works too.

    Examples:
        >>> import torch, argrad as ag
        >>> est = ag.Relax(torch.nn.Linear(3, 1), use_f=False)
        >>> scores = torch.zeros(4, 3, requires_grad=True)
        >>> est(lambda z: (z.argmax(-1) == 1).float(), ag.Gibbs(ag.OneHot(), scores)).mean().backward()

    References: [grathwohl2018].
    """

    def __init__(
        self,
        network: nn.Module,
        tau: float = 0.5,
        *,
        eta: float = 1.0,
        num_samples: int = 1,
        use_f: bool = True,
    ) -> None:
        super().__init__(tau, eta=eta, num_samples=num_samples)
        self.network, self.use_f = network, use_f

    @property
    def evaluations_of_f(self) -> int:
        """The sample, and two relaxed points if `use_f`."""
        return (3 if self.use_f else 1) * self.num_samples

    def _control(self, f: Cost, points: Tensor, law: Gibbs, own: Parameters) -> Tensor:
        """f + r at relaxed points, or r alone."""
        batch = points.dim() - len(law.event_shape)
        extra = self._call_network(points.flatten(batch), own)
        extra = extra.squeeze(-1) if extra.dim() == batch + 1 else extra
        return f(points) + extra if self.use_f else extra

    def _call_network(self, points: Tensor, own: Parameters) -> Tensor:
        if not is_transformed():
            return self.network(points)
        start = "network."
        parts = {name.removeprefix(start): p for name, p in own.items() if name.startswith(start)}
        return torch.func.functional_call(self.network, parts, (points,))


def _slope(name: str, value: Tensor, point: Tensor, create_graph: bool) -> Tensor:
    """The derivative of `value` for `point`, with a sentence if there is none."""
    if not value.requires_grad:
        raise no_gradient(name)
    (slope,) = torch.autograd.grad(value, point, create_graph=create_graph, allow_unused=True)
    if slope is None:
        raise no_gradient(name)
    return slope
