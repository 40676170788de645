r"""Any set with a solver of your own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from argrad._checks import check_count, check_finite, fail
from argrad._errors import UnsupportedError
from argrad._types import Shape
from argrad.structures.base import Structure


@dataclass(frozen=True)
class Oracle(Structure):
    r"""A set known only by its solver: `fn(scores)` returns the best object, 0/1 or real-valued.

    Enough for `Perturbed`, perturbed optimisers, I-MLE and blackbox differentiation, which ask for
    nothing but arg max. `fn` gets scores of shape `(*batch, *event)` without gradient and must
    return the same shape.

    Args:
        fn: the solver; batched.
        event_dims: how many trailing dimensions are one object.

    Examples:
        >>> import torch, argrad as ag
        >>> largest = ag.Oracle(lambda s: (s == s.amax(-1, keepdim=True)).float())
        >>> largest.argmax(torch.tensor([1.0, 5.0, 2.0]))
        tensor([0., 1., 0.])

    References: [berthet2020], [niepert2021].
    """

    fn: Callable[[Tensor], Tensor]
    event_dims: int = 1  # type: ignore[misc]  # an instance's own, where other structures have the class's

    reasons: ClassVar[Mapping[str, str]] = {
        "*": "an `Oracle` knows its arg max only. Draw with `Perturbed`; for gradients use "
        "`PerturbedOptimizer`, `Imle` or `Blackbox`.",
        "relax": "An `Oracle` knows its arg max only; for gradients use `PerturbedOptimizer`, `Imle` or "
        "`Blackbox`. ",
    }

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise fail("Oracle", "fn", "must be a function of scores", self.fn, "")
        check_count("Oracle", "event_dims", self.event_dims, 1, None, "Usually 1 or 2.")

    def _argmax(self, scores: Tensor) -> Tensor:
        with torch.no_grad():
            z = self.fn(scores)
        if not isinstance(z, Tensor) or z.shape != scores.shape:
            shape = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
            rule = f"must return a tensor of the scores' shape {tuple(scores.shape)}"
            raise fail("Oracle", "fn", rule, f"{shape}", "")
        check_finite("Oracle", "fn", z)
        return z

    def contains(self, z: Tensor) -> Tensor:
        """Unknown."""
        self._refuse("contains")

    def count(self, event_shape: Shape) -> int:
        """Unknown."""
        raise UnsupportedError(f"`Oracle.count` has no answer: {self.reasons['*']}")

    def _enumerate(self, event_shape: torch.Size) -> Tensor:
        self._refuse("enumerate")
