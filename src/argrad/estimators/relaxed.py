r"""The path through a relaxation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from argrad._checks import check_count
from argrad._types import Generator, Shape, Tau
from argrad.backward import Backward
from argrad.estimators.path import PathEstimator
from argrad.gibbs import Gibbs
from argrad.perturbed import Perturbed
from argrad.regularizers import Regularizer
from argrad.structured import StructuredDistribution
from argrad.structures.bits import Bits
from argrad.structures.one_hot import OneHot


@dataclass(frozen=True)
class Relaxed(PathEstimator):
    r"""Replace the arg max of perturbed scores by its relaxation $z_\tau$ and differentiate (pathwise).

    Gumbel-softmax on `OneHot`, Gumbel-Sinkhorn on `Permutation`, stochastic softmax tricks on trees and
    subsets. Biased for every $\tau > 0$; the bias falls and the variance grows as $\tau \to 0$.

    Args:
        tau: temperature.
        hard: evaluate `f` at the vertex and keep the relaxed gradient (straight-through).
        regularizer: None is the structure's default.
        backward: None is `Implicit()`.
        num_samples: independent samples, averaged.

    Examples:
        >>> import torch, argrad as ag
        >>> scores = torch.zeros(5, 5, requires_grad=True)
        >>> cost = ag.Relaxed(tau=0.5)(lambda z: z[..., 0, 1], ag.Perturbed(ag.SpanningTree(), scores))
        >>> cost.backward(); scores.grad.shape
        torch.Size([5, 5])

    References: [jang2017], [maddison2017], [paulus2020].
    """

    tau: Tau = 1.0
    hard: bool = False
    regularizer: Regularizer | None = None
    backward: Backward | None = None
    num_samples: int = 1

    is_unbiased: ClassVar[bool] = False
    needs_differentiable_f: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count(type(self).__name__, "num_samples", self.num_samples, 1, None, "1 is enough.")

    def refusal(self, q: StructuredDistribution) -> str | None:
        """Perturbed laws whose structure has a relaxation."""
        reason = perturbed_refusal(q)
        if reason is None and not q.structure._relaxations(1.0):
            return "it has no relaxation. Works here: `PerturbedOptimizer`, `Imle`, `Blackbox`."
        return reason

    def rsample(
        self, q: StructuredDistribution, sample_shape: Shape = (), *, generator: Generator = None
    ) -> Tensor:
        """Relaxed points (or vertices, if `hard`) with the gradient of the relaxation."""
        return as_perturbed(q).rsample(
            sample_shape,
            tau=self.tau,
            hard=self.hard,
            regularizer=self.regularizer,
            backward=self.backward,
            generator=generator,
        )


@dataclass(frozen=True)
class GumbelST(Relaxed):
    r"""ST Gumbel-softmax: the hard sample forward, the gradient of the relaxed one backward.

    `Relaxed(hard=True)` under its usual name.

    Examples:
        >>> import torch, argrad as ag
        >>> z = ag.GumbelST(tau=0.5).rsample(ag.Gibbs(ag.OneHot(), torch.zeros(2, 3)))
        >>> z.sum(-1)
        tensor([1., 1.])

    References: [jang2017].
    """

    hard: bool = True


def as_perturbed(q: StructuredDistribution) -> Perturbed:
    """The same law as perturb-and-argmax (`q` is that already, or a Gibbs law that is one)."""
    if isinstance(q, Perturbed):
        return q
    law = Perturbed.__new__(Perturbed)  # everything that `Perturbed(...)` would check, `q` has checked
    law.__dict__.update(q.__dict__, noise=q.structure.natural_noise, noise_scale=1.0)
    return law


def perturbed_refusal(q: StructuredDistribution) -> str | None:
    """Why an estimator that needs perturb-and-argmax cannot work with `q`."""
    if isinstance(q, Gibbs) and not isinstance(q.structure, (OneHot, Bits)):
        return (
            "its Gibbs law is not perturb-and-argmax, which this estimator differentiates. Use "
            "`Perturbed(structure, scores)` (another law), or `LeaveOneOut`, `StraightThrough` on this one."
        )
    return None
