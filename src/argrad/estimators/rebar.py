r"""REBAR and RELAX: a relaxation as control variate."""

from __future__ import annotations

import math
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from argrad import random
from argrad._checks import check_count, check_tau
from argrad._numerics import masked_scores
from argrad._types import Generator
from argrad.conditional_gumbel import gumbel_posterior
from argrad.estimators.base import Cost, Estimator, is_gibbs, no_gradient
from argrad.estimators.exact import as_gibbs
from argrad.structured import StructuredDistribution
from argrad.structures.bits import Bits
from argrad.structures.one_hot import OneHot


class Coupled(NamedTuple):
    """Perturbed scores that chose `hard`, and others drawn given that choice; functions of `scores`."""

    hard: Tensor
    free: Tensor
    given: Tensor


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

    def surrogate(self, f: Cost, relaxed: Tensor) -> Tensor:
        """The control variate at relaxed points, `(S, *batch)`; scaled by `eta` afterwards."""
        return f(relaxed)

    def _estimate(self, f: Cost, q: StructuredDistribution, generator: Generator) -> Tensor:
        law = as_gibbs(q)
        original = masked_scores(law.scores, law.mask)
        with torch.enable_grad():
            scores = original.detach().requires_grad_()
            couple = couple_noise(law.structure, scores, self.num_samples, generator)
            tau, eta = self.log_tau.exp().to(scores), self.eta.to(scores)
            free, given = (_relaxed(law.structure, w, tau) for w in (couple.free, couple.given))
            control, at_given = (eta * self.surrogate(f, point) for point in (free, given))
            difference = (control - at_given).sum()
            path = None
            if difference.requires_grad:
                (path,) = torch.autograd.grad(
                    difference, scores, create_graph=self._trains(), allow_unused=True
                )
            if path is None:
                raise no_gradient(type(self).__name__)
        cost = f(couple.hard)
        score = couple.hard - law.mean.detach()  # the gradient of log p(z): z - E z
        event = (1,) * len(q.event_shape)
        weight = (cost.detach() - at_given).reshape(*cost.shape, *event)
        samples = self.num_samples
        estimate = (weight * score).mean(0) + path / samples  # Eq. (1)
        change = torch.where(torch.isfinite(original), original - original.detach(), 0.0)
        result = cost.mean(0) + q._sum_event(change * estimate.detach())
        return result + self._training_term(estimate, q) if self._trains() else result

    def _trains(self) -> bool:
        return torch.is_grad_enabled() and any(p.requires_grad for p in self.parameters())

    def _training_term(self, estimate: Tensor, q: StructuredDistribution) -> Tensor:
        r"""Value 0; gradient $\nabla_\phi \hat g^2$ for the control variate's parameters, and no others.

        $\mathbb{E} \hat g$ does not depend on $\phi$, so this is an unbiased gradient of the variance.
        """
        parameters = [p for p in self.parameters() if p.requires_grad]
        square = q._sum_event(estimate**2)
        grads = torch.autograd.grad(square.sum(), parameters, allow_unused=True)
        term = square.new_zeros(())
        for parameter, grad in zip(parameters, grads, strict=True):
            if grad is not None:
                term = term + ((parameter - parameter.detach()) * grad.detach()).sum().to(term)
        return (term / max(q.batch_shape.numel(), 1)).expand(q.batch_shape)


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

    def surrogate(self, f: Cost, relaxed: Tensor) -> Tensor:
        """f + r at relaxed points, or r alone."""
        batch = relaxed.dim() - self._event
        extra = self.network(relaxed.flatten(batch))
        extra = extra.squeeze(-1) if extra.dim() == batch + 1 else extra
        return f(relaxed) + extra if self.use_f else extra

    def _estimate(self, f: Cost, q: StructuredDistribution, generator: Generator) -> Tensor:
        self._event = len(q.event_shape)
        return super()._estimate(f, q, generator)


def couple_noise(
    structure: OneHot | Bits | object, scores: Tensor, count: int, generator: Generator
) -> Coupled:
    """`count` draws: the choice, the perturbed scores behind it, and fresh ones given the choice.

    Both are differentiable functions of the scores; bits are one-hots of two classes.
    """
    first, second = random.split(generator, 2)
    theta = scores.expand(count, *scores.shape)
    two = torch.stack([torch.zeros_like(theta), theta], -1) if isinstance(structure, Bits) else theta
    noise = random.gumbel(two.shape, dtype=two.dtype, device=two.device, generator=first)
    free = two + noise
    index = free.detach().argmax(-1)
    given = gumbel_posterior(two, index, generator=second)
    hard = torch.zeros_like(two).scatter_(-1, index[..., None], 1.0)
    if isinstance(structure, Bits):
        return Coupled(hard[..., 1], free[..., 1] - free[..., 0], given[..., 1] - given[..., 0])
    return Coupled(hard.detach(), free, given)


def _relaxed(structure: object, perturbed: Tensor, tau: Tensor) -> Tensor:
    closed = perturbed == -math.inf
    x = perturbed.masked_fill(closed, 0.0) / tau
    if isinstance(structure, Bits):
        return torch.sigmoid(x).masked_fill(closed, 0.0)
    return x.masked_fill(closed, -math.inf).softmax(-1)
