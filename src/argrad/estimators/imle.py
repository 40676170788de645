r"""Gradients from a second arg max: I-MLE, blackbox differentiation, the identity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from argrad._autograd import straight_through
from argrad._checks import check_count, fail, is_transformed
from argrad._types import Generator, Shape
from argrad.estimators.base import Cost
from argrad.estimators.path import PathEstimator
from argrad.estimators.relaxed import as_perturbed, perturbed_refusal
from argrad.perturbed import Perturbed
from argrad.structured import StructuredDistribution


@dataclass(frozen=True)
class Imle(PathEstimator):
    r"""Implicit maximum-likelihood estimation: how the choice changes when scores follow the gradient.

    With $w = \theta + \varepsilon$ and the incoming gradient $g$,
    $$ \partial\mathcal{L}/\partial\theta \approx \frac{1}{2\lambda}\big(z(w + \lambda g) - z(w - \lambda g)\big),
       \quad \text{or} \quad \frac{1}{\lambda}\big(z(w) - z(w - \lambda g)\big) \tag{1} $$
    Needs arg max alone: any structure, an `Oracle` too. Biased. The factor $1/\lambda$, which published
    code leaves out, makes the size of the gradient right. The published form is
    `Imle(lam=10.0, symmetric=False)`; the defaults had the least error on the problems of "How to choose an
    estimator", where scores and gradients are of size 1.

    Args:
        lam: $\lambda$; small is nearly always 0, large is biased. $\lambda g$ should be of the size of the
            differences between scores.
        symmetric: the first form, a central difference, with one arg max more; else the second.
        num_samples: independent samples, averaged.

    Examples:
        >>> import torch, argrad as ag
        >>> scores = torch.randn(4, 6, requires_grad=True)
        >>> q = ag.Perturbed(ag.Subset(2), scores, noise=ag.SumOfGamma(2))
        >>> (ag.Imle().rsample(q) * torch.randn(6)).sum().backward()

    References: [niepert2021], [minervini2023].
    """

    lam: float = 1.0
    symmetric: bool = True
    num_samples: int = 1

    is_unbiased: ClassVar[bool] = False
    needs_differentiable_f: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.lam > 0:
            raise fail(type(self).__name__, "lam", "must be positive", self.lam, "Try 0.3 to 10.")
        check_count(type(self).__name__, "num_samples", self.num_samples, 1, None, "1 is enough.")

    def refusal(self, q: StructuredDistribution) -> str | None:
        """Perturbed laws, any structure."""
        return perturbed_refusal(q)

    def rsample(
        self, q: StructuredDistribution, sample_shape: Shape = (), *, generator: Generator = None
    ) -> Tensor:
        """Vertices with the gradient of Eq. (1)."""
        law = as_perturbed(q)
        perturbed, _ = law._perturb("rsample", sample_shape, generator)
        lam = perturbed.new_tensor(self.lam)
        return _SecondArgmax.apply(perturbed, lam, law, self.symmetric, None)  # type: ignore[return-value]


@dataclass(frozen=True)
class Blackbox(Imle):
    r"""Blackbox differentiation of a solver: the slope of an interpolation over a step $\lambda$.

    The second formula of `Imle`. Its authors use no noise: `Perturbed(structure, scores, noise=NoNoise())`.

    Examples:
        >>> import torch, argrad as ag
        >>> scores = torch.tensor([0.0, 1.0, 2.0], requires_grad=True)
        >>> q = ag.Perturbed(ag.OneHot(), scores, noise=ag.NoNoise())
        >>> (ag.Blackbox(lam=2.0).rsample(q) * torch.tensor([0.0, 0.0, 1.0])).sum().backward()
        >>> scores.grad
        tensor([ 0.0000, -0.5000,  0.5000])

    References: [vlastelica2020].
    """

    lam: float = 20.0
    symmetric: bool = False


@dataclass(frozen=True)
class Identity(PathEstimator):
    r"""Hand the gradient of the choice to the scores unchanged, $\partial z / \partial \theta \approx I$.

    Args:
        center: take out the mean of the gradient over an object, to which the arg max of structures
            of constant size is blind.
        num_samples: independent samples, averaged.

    Examples:
        >>> import torch, argrad as ag
        >>> scores = torch.zeros(3, requires_grad=True)
        >>> (ag.Identity().rsample(ag.Perturbed(ag.OneHot(), scores)) * torch.tensor([3.0, 0.0, 0.0])).sum().backward()
        >>> scores.grad
        tensor([ 2., -1., -1.])

    References: [sahoo2023].
    """

    center: bool = True
    num_samples: int = 1

    is_unbiased: ClassVar[bool] = False
    needs_differentiable_f: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count("Identity", "num_samples", self.num_samples, 1, None, "1 is enough.")

    def refusal(self, q: StructuredDistribution) -> str | None:
        """Perturbed laws, any structure."""
        return perturbed_refusal(q)

    def rsample(
        self, q: StructuredDistribution, sample_shape: Shape = (), *, generator: Generator = None
    ) -> Tensor:
        """Vertices whose gradient is that of the scores."""
        law = as_perturbed(q)
        hard = law.draw(sample_shape, generator=generator).hard
        scores = law.scores.masked_fill(law.scores == -torch.inf, 0.0).expand(hard.shape)
        if law.mask is not None:
            scores = scores.masked_fill(~law.mask, 0.0)
        if self.center:
            event = tuple(range(-law.structure.event_dims, 0))
            scores = scores - scores.mean(event, keepdim=True)
        return straight_through(hard, scores)


class AdaptiveImle(nn.Module, PathEstimator):
    r"""I-MLE whose $\lambda$ finds itself: it grows while the gradient is sparser than wanted.

    $\lambda = \alpha \|\theta\| / \|g\|$; after each backward pass $\alpha$ moves by `step` towards a running
    average of `target` changed parts an object (in training mode, and not inside `torch.compile`). No device
    synchronisation.

    Args:
        target: wanted number of parts that change in the second arg max, an object.
        step: change of $\alpha$ a backward pass.
        decay: of the running average.
        symmetric: the central difference.
        num_samples: independent samples, averaged.

    Examples:
        >>> import torch, argrad as ag
        >>> est, scores = ag.AdaptiveImle(), torch.randn(4, 6, requires_grad=True)
        >>> (est.rsample(ag.Perturbed(ag.Subset(2), scores)) * torch.randn(6)).sum().backward()
        >>> bool(est.alpha != 1)
        True

    References: [minervini2023].
    """

    is_unbiased: ClassVar[bool] = False
    needs_differentiable_f: ClassVar[bool] = True
    alpha: Tensor
    changed: Tensor

    def __init__(
        self,
        target: float = 1.0,
        *,
        step: float = 1e-3,
        decay: float = 0.9,
        symmetric: bool = True,
        num_samples: int = 1,
    ) -> None:
        super().__init__()
        check_count("AdaptiveImle", "num_samples", num_samples, 1, None, "1 is enough.")
        self.target, self.step, self.decay = target, step, decay
        self.symmetric, self.num_samples = symmetric, num_samples
        self.register_buffer("alpha", torch.ones(()))
        self.register_buffer("changed", torch.zeros(()))

    def refusal(self, q: StructuredDistribution) -> str | None:
        """Perturbed laws, any structure."""
        return perturbed_refusal(q)

    def rsample(
        self, q: StructuredDistribution, sample_shape: Shape = (), *, generator: Generator = None
    ) -> Tensor:
        """Vertices with the gradient of `Imle`'s Eq. (1)."""
        law = as_perturbed(q)
        perturbed, _ = law._perturb("rsample", sample_shape, generator)
        return _SecondArgmax.apply(perturbed, None, law, self.symmetric, self)  # type: ignore[return-value]

    def forward(self, f: Cost, q: StructuredDistribution, *, generator: Generator = None) -> Tensor:
        """As every estimator: the estimate, shape of the batch."""
        return self.estimate(f, q, generator=generator)

    def adapt(self, parts: Tensor) -> None:
        """Move alpha, given how many parts changed (mean over objects)."""
        self.changed.mul_(self.decay).add_(parts.to(self.changed), alpha=1 - self.decay)
        self.alpha.add_(torch.where(self.changed < self.target, self.step, -self.step)).clamp_(min=0.0)


class _SecondArgmax(torch.autograd.Function):
    """The vertex of perturbed scores; Eq. (1) backward."""

    @staticmethod
    def forward(
        perturbed: Tensor,
        lam: Tensor | None,
        law: Perturbed,
        symmetric: bool,
        adaptive: AdaptiveImle | None,
    ) -> Tensor:
        return law.structure.argmax(perturbed, mask=law.mask)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        perturbed, lam, ctx.law, ctx.symmetric, ctx.adaptive = inputs
        ctx.save_for_backward(perturbed, output)
        ctx.lam = lam

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None, None]:
        perturbed, hard = ctx.saved_tensors
        law, g, lam = ctx.law, grads[0], ctx.lam
        if ctx.adaptive is not None:
            finite = torch.where(torch.isfinite(perturbed), perturbed, 0.0)
            size = g.norm()
            lam = ctx.adaptive.alpha.to(g) * finite.norm() / torch.where(size > 0, size, 1.0)
            lam = torch.where(lam > 0, lam, 1.0)
        lower = law.structure.argmax(perturbed - lam * g, mask=law.mask)
        upper, width = hard, lam
        if ctx.symmetric:
            upper, width = law.structure.argmax(perturbed + lam * g, mask=law.mask), 2 * lam
        if ctx.adaptive is not None and ctx.adaptive.training and not is_transformed():
            objects = max(perturbed.shape[: perturbed.dim() - law.structure.event_dims].numel(), 1)
            ctx.adaptive.adapt((upper != lower).sum() / objects)
        return (upper - lower) / width, None, None, None, None
