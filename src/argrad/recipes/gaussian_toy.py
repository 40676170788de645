r"""The example that the lecture takes before its VAE: minimise $\mathbb{E}_{z \sim N(a\theta + b, 1)}\, z^2$.

With $\mu = a\theta + b$ the gradient is $2a\mu$. One draw $z = \mu + \epsilon$ estimates it in three ways, and the
variance of each has a closed form:

| way | estimate | variance |
|---|---|---|
| reparameterisation | $2az$ | $4a^2$ |
| REINFORCE | $a z^2 \epsilon$ | $a^2(\mu^4 + 14\mu^2 + 15)$ |
| with the best constant, $\mu^2 + 3$ | $a (z^2 - \mu^2 - 3) \epsilon$ | $a^2(8\mu^2 + 6)$ |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from argrad.recipes.bench import Claim
from argrad.recipes.charts import Series, legend, line_chart, number
from argrad.recipes.report import Row, section, table

A, B = 2.0, 3.0  # the lecture's
THETAS = (-1.5, 0.0, 1.0)  # the first is the optimum, -b/a
DRAWS = 1_000_000


@dataclass(frozen=True)
class ToyWay:
    """A way to estimate the gradient: of a draw, and the variance of that."""

    name: str
    gradient: Callable[[float, Tensor], Tensor]
    variance: Callable[[float], float]


WAYS = (
    ToyWay("reparameterisation", lambda mu, eps: 2 * A * (mu + eps), lambda mu: 4 * A**2),
    ToyWay(
        "REINFORCE",
        lambda mu, eps: A * (mu + eps) ** 2 * eps,
        lambda mu: A**2 * (mu**4 + 14 * mu**2 + 15),
    ),
    ToyWay(
        "REINFORCE, best constant",
        lambda mu, eps: A * ((mu + eps) ** 2 - mu**2 - 3) * eps,
        lambda mu: A**2 * (8 * mu**2 + 6),
    ),
)


def measured(way: ToyWay, theta: float) -> tuple[float, float]:
    """Mean and variance of the estimate over many draws."""
    eps = torch.randn(DRAWS, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    gradient = way.gradient(A * theta + B, eps)
    return gradient.mean().item(), gradient.var().item()


def claims() -> Iterator[Claim]:
    """The measured moments are the closed ones."""
    for way in WAYS:
        found = [measured(way, theta) for theta in THETAS]
        exact = [(2 * A * (A * t + B), way.variance(A * t + B)) for t in THETAS]
        # a mean of a million draws, to six of its deviations; a variance to 5 %, ten times its own deviation
        means = all(
            abs(m - g) < 6 * (v / DRAWS) ** 0.5 for (m, _), (g, v) in zip(found, exact, strict=True)
        )
        spread = all(abs(s / v - 1) < 0.05 for (_, s), (_, v) in zip(found, exact, strict=True))
        said = ", ".join(
            f"{number(s)} ({number(v)})" for (_, s), (_, v) in zip(found, exact, strict=True)
        )
        yield Claim(
            f"toy: gradient and variance of {way.name} are the closed forms", means and spread, said
        )


def descend(way: ToyWay, steps: int, rate: float = 0.01, start: float = 1.0) -> list[float]:
    """Theta after each step of gradient descent with one draw a step; every way sees the same noise."""
    noise = torch.randn(steps, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    thetas = [start]
    for eps in noise:
        thetas.append(thetas[-1] - rate * way.gradient(A * thetas[-1] + B, eps).item())
    return thetas


def figures() -> Sequence[str]:
    """Variances beside their closed forms, and the descents."""
    headers = [
        "one draw",
        *(f"variance at θ = {t:g}" for t in THETAS),
        *(f"exact at θ = {t:g}" for t in THETAS),
    ]
    rows = [
        Row(
            way.name,
            "",
            i,
            [measured(way, t)[1] for t in THETAS] + [way.variance(A * t + B) for t in THETAS],
        )
        for i, way in enumerate(WAYS)
    ]
    paths = [Series(way.name, list(range(151)), descend(way, 150), i) for i, way in enumerate(WAYS)]
    chart = line_chart(
        paths,
        title="θ by gradient descent, one draw a step",
        note="the optimum is −1.5",
        x_label="step",
    )
    return [
        section(
            "The lecture's example",
            f"Minimise E z² for z normal with mean {A:g}θ + {B:g} and variance 1. All three estimates are right on "
            "average; their variances differ by a factor of up to 250, and with them the paths.",
            table(headers, rows),
            legend([way.name for way in WAYS]),
            chart,
        )
    ]
