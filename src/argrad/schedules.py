r"""Temperature over training: `schedule(step) -> tau`.

Fixed schedules are frozen objects; `Learnable` is a module with one parameter. Wherever a function
takes `tau`, pass `schedule(step)`; layers in `argrad.nn` keep the step themselves.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from argrad._checks import check_count, fail, is_integral


def _check_positive(call: str, **values: float) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise fail(call, name, "must be positive and finite", value, "Temperatures are above 0.")


def _check_step(call: str, step: object) -> int:
    """A whole number that is not negative, in whatever type it comes."""
    if isinstance(step, Tensor) and step.dim() == 0 and is_integral(step):
        step = int(step)
    return check_count(call, "step", step, 0, None, "0 is the first.")


class Schedule(ABC):
    """A temperature that depends on the step alone."""

    @abstractmethod
    def __call__(self, step: int) -> float:
        """The temperature at `step` (0 is the first)."""


@dataclass(frozen=True)
class Constant(Schedule):
    """The same temperature at every step.

    Examples:
        >>> import argrad as ag
        >>> ag.schedules.Constant(0.5)(1000)
        0.5
    """

    tau: float = 1.0

    def __post_init__(self) -> None:
        _check_positive("Constant", tau=self.tau)

    def __call__(self, step: int) -> float:
        """The temperature."""
        return self.tau


@dataclass(frozen=True)
class Exponential(Schedule):
    r"""$\tau = \max(\mathrm{floor},\ \mathrm{start} \cdot e^{-r t})$, renewed every `every` steps.

    The defaults are those of Jang et al. for the categorical VAE: from 1 to a floor of 0.5, $r$ in
    {1e-5, 1e-4}, renewed every 500 or 1000 steps.

    Args:
        start: temperature at step 0.
        rate: $r$, a step.
        floor: the lowest temperature.
        every: $t$ is the last multiple of `every`.

    Examples:
        >>> import argrad as ag
        >>> schedule = ag.schedules.Exponential(rate=1e-3, every=1000)
        >>> schedule(999), round(schedule(1000), 4), schedule(10**6)
        (1.0, 0.5, 0.5)

    References: [jang2017].
    """

    start: float = 1.0
    rate: float = 1e-4
    floor: float = 0.5
    every: int = 1000

    def __post_init__(self) -> None:
        _check_positive("Exponential", start=self.start, rate=self.rate, floor=self.floor)
        check_count("Exponential", "every", self.every, 1, None, "1 renews at every step.")

    def __call__(self, step: int) -> float:
        """The temperature at `step`."""
        step = _check_step("Exponential", step)
        return max(self.floor, self.start * math.exp(-self.rate * (step - step % self.every)))


@dataclass(frozen=True)
class Linear(Schedule):
    """A straight line from `start` to `end` over `steps`, constant afterwards."""

    start: float = 1.0
    end: float = 0.5
    steps: int = 10_000

    def __post_init__(self) -> None:
        _check_positive("Linear", start=self.start, end=self.end)
        check_count("Linear", "steps", self.steps, 1, None, "It is the length of the ramp.")

    def __call__(self, step: int) -> float:
        """The temperature at `step`."""
        done = min(_check_step("Linear", step) / self.steps, 1.0)
        return self.start * (1 - done) + self.end * done


@dataclass(frozen=True)
class Cosine(Schedule):
    r"""Half a cosine wave from `start` to `end` over `steps`: slow, fast, slow."""

    start: float = 1.0
    end: float = 0.5
    steps: int = 10_000

    def __post_init__(self) -> None:
        _check_positive("Cosine", start=self.start, end=self.end)
        check_count("Cosine", "steps", self.steps, 1, None, "It is the length of the ramp.")

    def __call__(self, step: int) -> float:
        """The temperature at `step`."""
        done = min(_check_step("Cosine", step) / self.steps, 1.0)
        return self.end + 0.5 * (self.start - self.end) * (1 + math.cos(math.pi * done))


class Learnable(nn.Module):
    r"""A trained temperature, $\tau = \mathrm{floor} + \log(1 + e^{\rho})$, for any step.

    Args:
        start: temperature before training.
        floor: the lowest temperature; must be below `start`.
        shape: shape of the parameter; `()` is one temperature for all.

    Examples:
        >>> import argrad as ag
        >>> tau = ag.schedules.Learnable(1.0)
        >>> round(tau(0).item(), 4), tau(0).requires_grad
        (1.0, True)
    """

    def __init__(self, start: float = 1.0, floor: float = 0.1, shape: tuple[int, ...] = ()) -> None:
        super().__init__()
        _check_positive("Learnable", start=start, floor=floor)
        if not start > floor:
            advice = "Lower `floor`, or start higher."
            raise fail("Learnable", "start", f"must be above the floor, {floor}", start, advice)
        self.floor = floor
        above = start - floor
        # the inverse of softplus, log(e^x - 1), which overflows in no other form
        self.rho = nn.Parameter(torch.full(shape, above + math.log(-math.expm1(-above))))

    def forward(self, step: int = 0) -> Tensor:
        """The temperature, with gradient."""
        return self.floor + softplus(self.rho)

    def extra_repr(self) -> str:
        """The temperature now."""
        return f"tau={self(0).detach().tolist()}, floor={self.floor}"
