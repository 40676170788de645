"""What the relaxed laws share: logits or probabilities, a temperature, `expand`, `generator=`."""

from __future__ import annotations

import math
import weakref
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.distributions.constraints import Constraint

from argrad._checks import (
    can_read,
    check_any_allowed,
    check_event,
    check_floating,
    check_scores,
    check_shape,
    check_tau,
    fail,
    is_transformed,
)
from argrad._errors import InputError
from argrad._numerics import widen
from argrad._types import Float, Generator, Shape, Tau

_Remembered = tuple[weakref.ref[Tensor], int, Tensor]  # a sample, its version, its logarithm


def _version(x: Tensor) -> int:
    """Counts changes in place, where torch does."""
    return 0 if is_transformed() or x.is_inference() else x._version


def _copy(x: Tensor) -> Tensor:
    return x.detach().clone().requires_grad_(x.requires_grad)


class FromLogits(Distribution):
    """What the three share: `logits` or `probs`, a temperature, `expand`, `generator=`."""

    has_rsample = True

    def __init__(
        self,
        tau: Tau,
        *,
        logits: Float[Tensor, "*batch n"] | None = None,
        probs: Float[Tensor, "*batch n"] | None = None,
        validate_args: bool | None = None,
    ) -> None:
        call = type(self).__name__
        if (logits is None) == (probs is None):
            raise InputError(f"`{call}(...)` takes exactly one of `logits` and `probs`.")
        name = "logits" if probs is None else "probs"
        given = logits if probs is None else probs
        check_floating(call, name, given)
        assert given is not None
        check_event(call, name, given)
        self.logits = given if probs is None else self._logits_of(call, given)
        self._check_logits(call, name)
        self._tau = check_tau(call, tau, given.shape[:-1])
        self._last: _Remembered | None = None
        super().__init__(given.shape[:-1], given.shape[-1:], validate_args=False)
        # torch's own validation would read all arguments again; `_check_value` uses the flag
        # not torch's own default, which the first `torch.compile` of a process switches off for everyone
        self._validate_args = __debug__ if validate_args is None else validate_args

    @property
    def arg_constraints(self) -> dict[str, Constraint]:
        """As in torch.distributions; the constructor has checked it."""
        return {"logits": constraints.real_vector}

    @property
    def tau(self) -> Tau:
        """The temperature: a float, or a tensor of the batch's shape."""
        return self._tau.squeeze(-1) if isinstance(self._tau, Tensor) and self._tau.dim() else self._tau

    def expand(self, batch_shape: Shape, _instance: object = None) -> Any:
        """The same law for a larger batch, without copying."""
        new = type(self).__new__(type(self))
        batch = torch.Size(batch_shape)
        new.logits = self.logits.expand(batch + self.event_shape)
        new._tau = self._tau
        new._last = None
        Distribution.__init__(new, batch, self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @abstractmethod
    def rsample(self, sample_shape: Shape = (), *, generator: Generator = None) -> Tensor:
        """A differentiable sample."""

    def sample(self, sample_shape: Shape = (), *, generator: Generator = None) -> Tensor:
        """A sample without gradient, shape `sample_shape + batch_shape + event_shape`."""
        with torch.no_grad():
            return self.rsample(sample_shape, generator=generator)

    def _check_logits(self, call: str, name: str) -> None:
        check_scores(call, name, self.logits)
        check_any_allowed(call, self.logits)

    def _check_value(self, value: Tensor) -> None:
        """A tensor of this event's shape, without NaN."""
        call = f"{type(self).__name__}.log_prob"
        if not isinstance(value, Tensor):
            check_floating(call, "value", value)
        shape = self.batch_shape + self.event_shape
        try:
            fits = torch.broadcast_shapes(value.shape, shape)[-1:] == value.shape[-1:]
        except RuntimeError:
            fits = False
        if not fits:
            rule = f"must have the shape of a sample, {(..., *shape)}".replace("Ellipsis", "...")
            raise fail(
                call, "value", rule, f"shape {tuple(value.shape)}", "Sample dimensions come first."
            )
        if self._validate_args and can_read(value) and bool(torch.isnan(value).any()):
            raise fail(call, "value", "must not hold NaN", value, "Look for 0/0 upstream.")

    def _remember(self, value: Tensor, log_value: Tensor) -> Tensor:
        self._last = weakref.ref(value), _version(value), log_value
        return value

    def _recall(self, value: Tensor) -> Tensor | None:
        if self._last is None or self._last[0]() is not value or self._last[1] != _version(value):
            return None
        return self._last[2]

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_last": None}

    def __deepcopy__(self, memo: dict[int, object]) -> Any:
        new = self.expand(self.batch_shape)
        new.logits = _copy(self.logits)
        new._tau = _copy(self._tau) if isinstance(self._tau, Tensor) else self._tau
        return new

    def __repr__(self) -> str:
        return f"{type(self).__name__}(tau={self.tau}, logits: {tuple(self.logits.shape)})"

    @staticmethod
    def _logits_of(call: str, probs: Tensor) -> Tensor:
        if can_read(probs) and probs.numel() and not bool((probs >= 0).all()):
            raise fail(
                call, "probs", "must not be negative", probs, "Pass unnormalised scores as `logits`."
            )
        zero = probs == 0  # a probability of 0 has gradient 0, not 0 * inf
        return torch.log(probs.masked_fill(zero, 1.0)).masked_fill(zero, -math.inf)

    def _expanded_logits(self, sample_shape: Shape) -> Tensor:
        shape = check_shape(f"{type(self).__name__}.rsample", "sample_shape", sample_shape)
        return widen(self.logits).expand(shape + self.logits.shape)
