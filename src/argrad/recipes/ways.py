"""The ways of getting a gradient through a categorical choice that the demo compares.

To add one, append a `Way` to `relaxations`. Estimators join by themselves: every public one that says
`demo = True`, besides one of each family.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

import argrad
from argrad._autograd import straight_through

Sampler = Callable[[Tensor, int, torch.Generator], Tensor]  # logits, step, generator -> z
Cost = Callable[[Tensor], Tensor]  # (S, *batch, latents, classes) -> (S, *batch)


@dataclass(frozen=True, kw_only=True)
class Way:
    """A name and either a differentiable sampler or an estimator `est(f, q, generator=...)`."""

    name: str
    note: str  # one line under the name in the report
    sample: Sampler | None = None
    estimator: Any = None

    def expected_cost(self, f: Cost, logits: Tensor, step: int, generator: torch.Generator) -> Tensor:
        """An estimate of E f, shape of the batch, whose backward pass is this way's gradient."""
        if self.sample is not None:
            return f(self.sample(logits, step, generator)[None])[0]
        from argrad.perturbed import Perturbed
        from argrad.structures.one_hot import OneHot

        q = Perturbed(OneHot(), logits).independent(1)  # an image's choices share one cost
        return self.estimator(f, q, generator=generator)

    def parameters(self) -> list[nn.Parameter]:
        """What the estimator itself trains (control variates)."""
        return list(self.estimator.parameters()) if isinstance(self.estimator, nn.Module) else []


def all_ways(steps: int) -> list[Way]:
    """Every way there is, for a training run of `steps`."""
    return [*relaxations(steps), *estimators()]


def relaxations(steps: int) -> list[Way]:
    """Gumbel-softmax soft, annealed and straight-through, and the plain straight-through estimator."""
    # Jang et al.: tau = max(0.5, exp(-r t)), here with r such that the floor is reached at 70 % of the run.
    schedule = argrad.schedules.Exponential(rate=math.log(2) / max(0.7 * steps, 1), every=1)

    def soft(logits: Tensor, step: int, generator: torch.Generator) -> Tensor:
        return argrad.gumbel_softmax(logits, 1.0, generator=generator)

    def annealed(logits: Tensor, step: int, generator: torch.Generator) -> Tensor:
        return argrad.gumbel_softmax(logits, schedule(step), generator=generator)

    def hard(logits: Tensor, step: int, generator: torch.Generator) -> Tensor:
        return argrad.gumbel_softmax(logits, 1.0, hard=True, generator=generator)

    return [
        Way(name="Gumbel-softmax, soft", note="relaxed choices, temperature 1", sample=soft),
        Way(name="Gumbel-softmax, annealed", note="relaxed, temperature 1 to 0.5", sample=annealed),
        Way(
            name="Gumbel-softmax, hard", note="hard choices, gradient of the relaxed ones", sample=hard
        ),
        Way(
            name="Straight-through",
            note="hard choices, gradient of the probabilities",
            sample=straight_through_probabilities,
        ),
    ]


def hard_sample(logits: Tensor, generator: torch.Generator) -> Tensor:
    """One-hot choices without gradient."""
    return one_hot(argrad.gumbel_max(logits, generator=generator), logits.shape[-1]).to(logits.dtype)


def straight_through_probabilities(logits: Tensor, step: int, generator: torch.Generator) -> Tensor:
    """A hard sample with the gradient of its mean.

    References: [bengio2013].
    """
    return straight_through(hard_sample(logits, generator), logits.softmax(-1))


def estimators() -> list[Way]:
    """One public estimator of each family and those flagged `demo = True`, with default arguments."""
    modules = vars(argrad)["_names"]
    names = sorted(name for name, module in modules.items() if module.split(".")[0] == "estimators")
    classes = [getattr(argrad, name) for name in names]
    return [
        Way(name=cls.__name__, note=_first_line(cls), estimator=cls())
        for cls in classes
        if inspect.isclass(cls) and getattr(cls, "demo", cls.__name__ in _FAMILIES)
    ]


# second-order straight-through; score function with a baseline; the same with a relaxed control variate
_FAMILIES = ("ReinMax", "LeaveOneOut", "Rebar")


def _first_line(cls: type) -> str:
    from argrad._catalogue import plain_summary

    return plain_summary(inspect.getdoc(cls) or "")
