"""What the two laws over a structure, `Gibbs` and `Perturbed`, share: shapes, masks, joining, mode."""

from __future__ import annotations

from typing import Any, Self

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.distributions.constraints import Constraint

from argrad._checks import check_count
from argrad._errors import InputTypeError
from argrad._types import Bool, Float, Shape
from argrad.structures.base import Structure


class StructuredDistribution(Distribution):
    """A law over the vertices of a structure, one for each item of the batch.

    Args:
        structure: the set Z.
        scores: theta, shape `(*batch, *event)`.
        mask: True = allowed, broadcastable to `scores`.
    """

    def __init__(
        self,
        structure: Structure,
        scores: Float[Tensor, "..."],
        *,
        mask: Bool[Tensor, "..."] | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(structure, Structure):
            raise InputTypeError(
                f"`{type(self).__name__}(structure=...)` must be a structure such as `argrad.OneHot()`; "
                f"got {structure!r}."
            )
        # checked, masked and widened once; the methods below and the estimators work on these
        self._cleaned = structure._clean(type(self).__name__, scores, mask)
        self.structure, self.scores, self.mask, self._joined = structure, scores, mask, 0
        self._set_shapes()
        if validate_args is not None:
            self._validate_args = validate_args

    def _set_shapes(self) -> None:
        split = self.scores.dim() - self.structure.event_dims - self._joined
        Distribution.__init__(
            self, self.scores.shape[:split], self.scores.shape[split:], validate_args=False
        )

    @property
    def arg_constraints(self) -> dict[str, Constraint]:
        """As in torch.distributions; the constructor has checked it."""
        return {"scores": constraints.real}

    @property
    def support(self) -> Constraint:
        """Zeros and ones (that form an object of the structure: `structure.contains`)."""
        return constraints.independent(constraints.boolean, len(self.event_shape))

    @property
    def joined(self) -> int:
        """How many batch dimensions were joined to the event by `independent`."""
        return self._joined

    def _copy(self, **changes: Any) -> Self:
        new = type(self).__new__(type(self))
        new.__dict__.update(self.__dict__)
        new.__dict__.update(changes)
        new._set_shapes()
        return new

    def with_scores(self, scores: Float[Tensor, "..."]) -> Self:
        """The same law with other scores (of any batch shape)."""
        cleaned = self.structure._clean(type(self).__name__, scores, self.mask)
        return self._copy(scores=scores, _cleaned=cleaned)

    def independent(self, dims: int = 1) -> Self:
        """Join the last `dims` batch dimensions to the event, as `torch.distributions.Independent` does.

        Twenty categoricals of one example then share one cost: log-probabilities and entropies are
        summed over them.
        """
        most = len(self.batch_shape)
        check_count("independent", "dims", dims, 0, most, f"There are {most} batch dimensions.")
        return self._copy(_joined=self._joined + dims)

    def expand(self, batch_shape: Shape, _instance: object = None) -> Self:
        """The same law for a larger batch, without copying."""
        scores = self.scores.expand(torch.Size(batch_shape) + self.event_shape)
        mask = None if self.mask is None else self.mask.expand(self.scores.shape).expand(scores.shape)
        return self._copy(scores=scores, mask=mask, _cleaned=self._cleaned.expand(scores.shape))

    @property
    def mode(self) -> Tensor:
        """The best vertex for the scores."""
        return self.structure.argmax(self.scores, mask=self.mask)

    def _sum_joined(self, x: Tensor) -> Tensor:
        return x.flatten(x.dim() - self._joined).sum(-1) if self._joined else x

    def _sum_event(self, x: Tensor) -> Tensor:
        """Sum over the whole event, joined dimensions included."""
        return x.flatten(x.dim() - len(self.event_shape)).sum(-1)

    def __repr__(self) -> str:
        shape = tuple(self.scores.shape)
        return f"{type(self).__name__}({self.structure!r}, scores: {shape}, batch {tuple(self.batch_shape)})"
