r"""Two temperatures: one for the value, one for the gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from argrad._autograd import straight_through
from argrad._checks import check_count, check_tau
from argrad._types import Generator, Shape
from argrad.estimators.path import PathEstimator
from argrad.estimators.relaxed import Relaxed, as_perturbed
from argrad.structured import StructuredDistribution


@dataclass(frozen=True)
class DecoupledST(PathEstimator):
    r"""The relaxed point at a low temperature forward, the gradient at a higher one backward.

    Args:
        tau_forward: temperature of the value; None evaluates `f` at the vertex itself.
        tau_backward: temperature of the gradient.
        num_samples: independent samples, averaged.

    Examples:
        >>> import torch, argrad as ag
        >>> z = ag.DecoupledST(tau_forward=None).rsample(ag.Gibbs(ag.OneHot(), torch.zeros(2, 3)))
        >>> z.sum(-1)
        tensor([1., 1.])

    References: [shah2024].
    """

    tau_forward: float | None = 0.3
    tau_backward: float = 1.0
    num_samples: int = 1

    is_unbiased: ClassVar[bool] = False
    needs_differentiable_f: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for tau in (self.tau_forward, self.tau_backward):
            if tau is not None:
                check_tau("DecoupledST", tau, ())  # type: ignore[arg-type]
        check_count("DecoupledST", "num_samples", self.num_samples, 1, None, "1 is enough.")

    def refusal(self, q: StructuredDistribution) -> str | None:
        """As `Relaxed`."""
        return Relaxed().refusal(q)

    def rsample(
        self, q: StructuredDistribution, sample_shape: Shape = (), *, generator: Generator = None
    ) -> Tensor:
        """The forward point with the backward point's gradient."""
        law = as_perturbed(q)
        draw = law.draw(sample_shape, tau=self.tau_backward, generator=generator)
        assert draw.soft is not None
        value = draw.hard
        if self.tau_forward is not None:
            value = law.structure.relax(draw.perturbed.detach(), self.tau_forward, mask=law.mask)
        return straight_through(value, draw.soft)
