r"""The one contract of all gradient estimators.

    loss = est(f, q).mean(); loss.backward()

`f` maps samples `(S, *batch, *event)` to costs `(S, *batch)`; `q` is a distribution with gradient in its
scores; the result has the shape of the batch. Its value estimates $\mathbb{E}_{z \sim q} f(z)$. Its
gradient estimates the gradient of that expectation: for the scores of `q`, for parameters inside `f`,
and for other estimators that `f` itself calls (several random variables are nested closures, each with
an estimator of its own; there is no tape and no global state).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from argrad import random
from argrad._checks import all_finite, can_read, describe
from argrad._errors import InputError, InputTypeError, UnsupportedError
from argrad._types import Generator
from argrad.gibbs import Gibbs
from argrad.perturbed import Perturbed
from argrad.structured import StructuredDistribution

Cost = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Estimate:
    """What `Estimator.evaluate` saw.

    Attributes:
        value: the estimate of the expected cost, shape of the batch.
        scores_grad: the estimate of its gradient for the scores, shape of the scores.
        samples: every batch of points at which `f` was evaluated, in order.
        costs: the costs there.
        evaluations: number of evaluations of `f` an item of the batch.

    Examples:
        >>> import torch, argrad as ag
        >>> seen = ag.LeaveOneOut(4).evaluate(lambda z: z[..., 0], ag.Gibbs(ag.OneHot(), torch.zeros(2, 3)))
        >>> seen.value.shape, seen.scores_grad.shape, seen.evaluations
        (torch.Size([2]), torch.Size([2, 3]), 4)
    """

    value: Tensor
    scores_grad: Tensor
    samples: tuple[Tensor, ...]
    costs: tuple[Tensor, ...]
    evaluations: int


class Estimator(ABC):
    """A way to estimate the gradient of an expected cost.

    Stateless estimators are frozen dataclasses; those with parameters or running averages are
    `nn.Module`s as well.

    Examples:
        >>> import torch, argrad as ag
        >>> q = ag.Gibbs(ag.Subset(2), torch.zeros(8, 5, requires_grad=True))
        >>> for est in (ag.LeaveOneOut(4), ag.MuProp(), ag.StraightThrough()):  # one contract for all
        ...     est(lambda z: (z[..., 0] - z[..., 1]) ** 2, q).mean().backward()
        >>> ag.Rebar().works_with(q), ag.LeaveOneOut.is_unbiased
        (False, True)
    """

    # ==== must define =============================================================================

    is_unbiased: ClassVar[bool]
    """Whether the expected gradient is exact for every cost."""

    needs_differentiable_f: ClassVar[bool]
    """Whether `f` is differentiated for its input (so evaluated at relaxed points, or there hard)."""

    @abstractmethod
    def _estimate(self, f: Cost, q: StructuredDistribution, generator: Generator) -> Tensor:
        """The surrogate, shape of the batch: right value, right gradient. `f` is already checked."""

    # ==== may define ==============================================================================

    def refusal(self, q: StructuredDistribution) -> str | None:
        """Why this estimator cannot work with `q` and what can, or None if it can."""
        del q
        return None

    @property
    def evaluations_of_f(self) -> int | None:
        """How often `f` is evaluated an item; None if it depends on `q`."""
        return getattr(self, "num_samples", None)

    # ==== do not touch ============================================================================

    def works_with(self, q: StructuredDistribution) -> bool:
        """Whether this estimator is defined for `q`."""
        return self.refusal(q) is None

    def estimate(self, f: Cost, q: StructuredDistribution, *, generator: Generator = None) -> Tensor:
        """The estimate, shape of the batch; calling the estimator does the same."""
        name = type(self).__name__
        if not isinstance(q, StructuredDistribution):
            raise InputTypeError(
                f"`{name}(...)(f, q)`: q must be `argrad.Gibbs` or `argrad.Perturbed`; got "
                f"{type(q).__name__}. Write `Gibbs(OneHot(), logits)` for categoricals."
            )
        if not callable(f):
            raise InputTypeError(f"`{name}(...)(f, q)`: f must be a function; got {type(f).__name__}.")
        random.check_generator(name, generator)
        reason = self.refusal(q)
        if reason is not None:
            raise UnsupportedError(f"Cannot combine `{name}` with {q.structure!r}: {reason}")
        result = self._estimate(lambda z: checked_cost(name, f, q, z), q, generator)
        if can_read(result) and not all_finite(result):
            raise InputError(
                f"`{name}(...)(f, q)`: the costs of f are so large that the estimate overflows; got "
                f"{describe(result.detach())}. Scale f down, or compute in float64."
            )
        if torch.is_grad_enabled() and not result.requires_grad:
            raise InputError(
                f"`{name}(...)(f, q)`: nothing here needs a gradient: neither the scores of q nor a "
                "parameter inside f. Call `scores.requires_grad_()`, or use `torch.no_grad()` if only the "
                "value is wanted."
            )
        return result

    def __call__(self, f: Cost, q: StructuredDistribution, *, generator: Generator = None) -> Tensor:
        """As `estimate`."""
        return self.estimate(f, q, generator=generator)

    def evaluate(self, f: Cost, q: StructuredDistribution, *, generator: Generator = None) -> Estimate:
        """The estimate with everything behind it, for whoever wants to look; touches no `.grad`."""
        samples: list[Tensor] = []
        costs: list[Tensor] = []

        def watched(z: Tensor) -> Tensor:
            cost = f(z)
            samples.append(z.detach())
            if isinstance(cost, Tensor):
                costs.append(cost.detach())
            return cost

        with torch.enable_grad():
            scores = q.scores.detach().requires_grad_()
            value = self.estimate(watched, q.with_scores(scores), generator=generator)
            (grad,) = torch.autograd.grad(value.sum(), scores)
        count = sum(len(z) for z in samples)
        return Estimate(value.detach(), grad, tuple(samples), tuple(costs), count)


def checked_cost(name: str, f: Cost, q: StructuredDistribution, z: Tensor) -> Tensor:
    """`f(z)`, with a sentence if its shape or values cannot be right."""
    cost = f(z)
    expected = z.shape[:1] + q.batch_shape
    if not isinstance(cost, Tensor):
        raise InputTypeError(
            f"`{name}(...)(f, q)`: f must return a tensor of costs, shape {tuple(expected)} for samples of "
            f"shape {tuple(z.shape)}; got {type(cost).__name__}."
        )
    if cost.shape != expected:
        fewer = cost.dim() < len(expected)
        advice = (
            "If one cost covers several variables of an example, write `q.independent(1)`, which joins "
            "the last batch dimension to the event."
            if fewer
            else "Sum over the event's dimensions."
        )
        raise InputError(
            f"`{name}(...)(f, q)`: f must return one cost for each sample and item, shape "
            f"{tuple(expected)} for samples of shape {tuple(z.shape)}; got {tuple(cost.shape)}. {advice}"
        )
    if can_read(cost) and not all_finite(cost):
        raise InputError(
            f"`{name}(...)(f, q)`: f must return finite costs; got {describe(cost)}. "
            "Look for a logarithm of 0 or an overflow inside f."
        )
    return cost


def is_gibbs(q: StructuredDistribution) -> bool:
    """Whether the law of `q` is a Gibbs law (so that it has a log-probability)."""
    return isinstance(q, Gibbs) or (isinstance(q, Perturbed) and q.is_gibbs)


def no_gradient(name: str) -> InputError:
    """The sentence for a black box given to an estimator that differentiates f."""
    return InputError(
        f"`{name}(...)(f, q)` differentiates f, but f's costs do not depend on its input by the graph (a "
        "black box, a `.detach()`, an arg max, or integer arithmetic inside). Score-function estimators need "
        "only values: `LeaveOneOut`, `Reinforce`."
    )
