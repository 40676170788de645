r"""How to differentiate a relaxation $z_\tau(w)$: analytically, through the solver, or numerically."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from argrad._checks import fail


class Backward(ABC):  # noqa: B024  (a marker; the rule is applied in `Structure.relax`)
    """A way to differentiate a relaxed solution.

    Examples:
        >>> import torch, argrad as ag
        >>> scores, w = torch.zeros(3, requires_grad=True), torch.tensor([1.0, 0.0, 0.0])
        >>> for rule in (ag.Implicit(), ag.Unrolled(), ag.FiniteDifference()):
        ...     z = ag.OneHot().relax(scores, backward=rule)
        ...     print((torch.autograd.grad((z * w).sum(), scores)[0] * 9).round().tolist())
        [2.0, -1.0, -1.0]
        [2.0, -1.0, -1.0]
        [2.0, -1.0, -1.0]
    """


@dataclass(frozen=True)
class Implicit(Backward):
    """The analytic derivative at the solution (implicit function theorem): exact, cheap, the default.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.Subset(2).relax(torch.zeros(4), backward=ag.Implicit())
        tensor([0.5000, 0.5000, 0.5000, 0.5000])
    """


@dataclass(frozen=True)
class Unrolled(Backward):
    """Automatic differentiation through the steps of the solver; memory grows with their number.

    For permutations and matchings the steps are a fixed number of alternating ones, as in published code
    (`sinkhorn_unrolled`, `matching_unrolled`): right to about 1e-3 at temperatures above 0.3, not far below.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.Permutation().relax(torch.zeros(2, 2), backward=ag.Unrolled())
        tensor([[0.5000, 0.5000],
                [0.5000, 0.5000]])
    """


@dataclass(frozen=True)
class FiniteDifference(Backward):
    r"""A central difference along the incoming gradient; needs nothing but the forward solver.

    $$ \frac{d\mathcal{L}}{dw} \approx
       \frac{z_\tau(w + \epsilon\, g) - z_\tau(w - \epsilon\, g)}{2 \epsilon},
       \quad g = \frac{\partial \mathcal{L}}{\partial z_\tau} \tag{1} $$
    Right because the Jacobian of $z_\tau$ is symmetric. The step is `eps` divided by the largest
    entry of $g$ in each item, so that the size of the loss does not matter.

    Args:
        eps: step in units of the scores.

    Examples:
        >>> import torch, argrad as ag
        >>> scores = torch.zeros(3, requires_grad=True)
        >>> ag.OneHot().relax(scores, backward=ag.FiniteDifference(1e-3))[0].backward()
        >>> (scores.grad * 9).round()
        tensor([ 2., -1., -1.])

    References: [domke2010], [paulus2020].
    """

    eps: float = 1e-2

    def __post_init__(self) -> None:
        if not self.eps > 0:
            raise fail("FiniteDifference", "eps", "must be positive", self.eps, "1e-2 is usual.")


def finite_difference(
    solve: Callable[[Tensor], Tensor], scores: Tensor, eps: float, event_dims: int
) -> Tensor:
    """`solve(scores)` with the backward of Eq. (1)."""
    return _FiniteDifference.apply(scores, solve, eps, event_dims)  # type: ignore[return-value]


class _FiniteDifference(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(
        scores: Tensor, solve: Callable[[Tensor], Tensor], eps: float, event_dims: int
    ) -> Tensor:
        return solve(scores)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])
        _, ctx.solve, ctx.eps, ctx.event_dims = inputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (scores,) = ctx.saved_tensors
        g = grads[0]
        size = g.detach().abs().amax(tuple(range(-ctx.event_dims, 0)), keepdim=True)
        step = ctx.eps / torch.where(size > 0, size, 1.0)
        difference = ctx.solve(scores + step * g) - ctx.solve(scores - step * g)  # Eq. (1)
        return difference / (2 * step), None, None, None
