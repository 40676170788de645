r"""Two gradients of the same mean: REINFORCE and reparameterisation of $\mathbb{E}_{z \sim N(a\theta + b, 1)} z^2$.

$$ \nabla_\theta = 2a\mu, \qquad \text{REINFORCE: } a (z^2 - c)\,\varepsilon, \qquad \text{path: } 2a z, \qquad
   z = \mu + \varepsilon,\ \mu = a\theta + b $$

The lecture compares them for a = 2, b = 3 in a picture; the variances have closed forms, which the table has as its
"published" numbers. Because the noise is explicit (`argrad.reparam`), the path can also be taken through antithetic,
stratified and Sobol noise, and then loses its variance altogether.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import argrad as ag
from argrad.recipes.bench import Cell, Claim, Recipe, Run, Summary, option
from argrad.recipes.charts import Series, legend, line_chart, number
from argrad.recipes.report import pair, section


@dataclass(frozen=True, kw_only=True)
class Config:
    """What can be set."""

    a: float = option(2.0, "slope of the mean")
    b: float = option(3.0, "the mean at theta = 0")
    thetas: tuple[float, ...] = option((-1.5, 0.0, 1.0), "where the gradient is measured", selects=True)
    draws: int = option(16, "samples of z a gradient; variances are multiplied by it", at_least=2)
    steps: int = option(200, "batches of gradients", at_least=2)
    batch: int = option(1000, "gradients a batch", at_least=2)
    descent: int = option(150, "steps of gradient descent in the figure", at_least=1)
    rate: float = option(0.01, "of gradient descent", above=0)


# ---- the estimators, each a mean over draws (draws, ...) -----------------------------------------------


@dataclass(frozen=True)
class Way:
    """How noise becomes a gradient.

    Attributes:
        kind: of the noise.
        gradient: of a, mu and the noise: one estimate a draw.
        variance: of one draw in closed form, for independent noise.
    """

    kind: str
    gradient: Callable[[float, Tensor, Tensor], Tensor]
    variance: Callable[[float, float], float] | None


def path(a: float, mu: Tensor, eps: Tensor) -> Tensor:
    r"""By automatic differentiation of $z^2$ through `transform`, once for each draw."""
    center = mu.expand(eps.shape).clone().requires_grad_()
    cost = ag.reparam.Normal(center, torch.ones_like(center)).transform(eps).square()
    return a * torch.autograd.grad(cost.sum(), center)[0]


def score(a: float, mu: Tensor, eps: Tensor, baseline: Tensor | float = 0.0) -> Tensor:
    r"""$(z^2 - c)\, \nabla_\theta \log p(z)$, with the derivative of the density by automatic differentiation."""
    center = mu.expand(eps.shape).clone().requires_grad_()
    law = ag.reparam.Normal(center, torch.ones_like(center))
    z = law.transform(eps).detach()
    slope = torch.autograd.grad(law.log_prob(z).sum(), center)[0]
    return a * (z.square() - baseline) * slope


WAYS = {
    "REINFORCE": Way("iid", score, lambda a, mu: a**2 * (mu**4 + 14 * mu**2 + 15)),
    "REINFORCE, best constant": Way(
        "iid", lambda a, mu, eps: score(a, mu, eps, mu**2 + 3), lambda a, mu: a**2 * (8 * mu**2 + 6)
    ),
    "reparameterisation": Way("iid", path, lambda a, mu: 4 * a**2),
    "REINFORCE, antithetic": Way("antithetic", score, None),
    "reparameterisation, antithetic": Way(
        "antithetic", path, lambda a, mu: 0.0
    ),  # z and 2 mu - z cancel
    "reparameterisation, stratified": Way("stratified", path, None),
    "reparameterisation, Sobol": Way("sobol", path, None),
}


def noise(kind: str, draws: int, count: int, g: torch.Generator) -> Tensor:
    """`count` independent designs of `draws` numbers, `(draws, count)`."""
    # every coordinate of a design is arranged by itself, so coordinates are independent repetitions
    law = ag.reparam.Normal(torch.zeros(count, dtype=torch.float64), 1.0)
    return law.noise((draws,), kind=kind, generator=g)


# ---- measuring -----------------------------------------------------------------------------------------


def cells(config: Config) -> list[Cell]:
    """One for every theta and way."""
    found = []
    for theta in config.thetas:
        mu = config.a * theta + config.b
        for name, way in WAYS.items():
            exact = None if way.variance is None else way.variance(config.a, mu)
            found.append(Cell(f"theta = {theta:g}", name, exact, {"theta": theta}))
    return found


class Moments(nn.Module):
    """Sums of gradients and of their squares."""

    first: Tensor
    second: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("first", torch.zeros((), dtype=torch.float64))
        self.register_buffer("second", torch.zeros((), dtype=torch.float64))


def train(config: Config, cell: Cell, run: Run) -> dict[str, float]:
    """Mean and variance of the gradient over many repetitions."""
    way, g = WAYS[cell.column], run.generator(1)
    mu = torch.tensor(config.a * cell.settings["theta"] + config.b, dtype=torch.float64)
    exact = 2 * config.a * mu
    moments = Moments()
    for _ in run.steps(config.steps, moments=moments, noise=g):
        eps = noise(way.kind, config.draws, config.batch, g)
        error = way.gradient(config.a, mu, eps).mean(0) - exact  # of a gradient from all draws
        moments.first += error.sum()
        moments.second += error.square().sum()
    count = config.steps * config.batch
    bias = moments.first / count
    variance = (moments.second / count - bias**2).clamp(min=0)
    return {
        "variance": float(variance) * config.draws,
        "gradient": float(exact + bias),
        "exact gradient": float(exact),
        "errors off": float(bias.abs() / (variance / count).sqrt().clamp(min=1e-12)),
    }


def descend(config: Config, way: Way, theta: float = 1.0) -> list[float]:
    """Theta after each step of gradient descent with two draws a step."""
    g, path_ = torch.Generator().manual_seed(1), [theta]
    for _ in range(config.descent):
        mu = torch.tensor(config.a * path_[-1] + config.b, dtype=torch.float64)
        gradient = way.gradient(config.a, mu, noise(way.kind, 2, 1, g)).mean().item()
        path_.append(path_[-1] - config.rate * gradient)
    return path_


# ---- the report ----------------------------------------------------------------------------------------

_ERRORS_OFF = 5.6  # 21 means: the chance that one is further off, were all right, is below 1e-6


def claims(summary: Summary) -> list[Claim]:
    """Unbiased, with the variances of the closed forms; arranged noise has less."""
    off = max(c.mean("errors off") for c in summary.cells)
    found = [
        Claim(
            f"every gradient is right to {_ERRORS_OFF:g} standard errors",
            off < _ERRORS_OFF,
            f"largest: {off:.1f}",
        )
    ]
    for name, way in WAYS.items():
        stated = [c for c in summary.cells if c.cell.column == name and c.cell.published]
        if way.variance is not None and stated:
            # 200 000 repetitions know a variance to 0.3 % or, for the heavy tails of REINFORCE, to 2 %
            gaps = [abs(c.mean() / (c.cell.published or 1) - 1) for c in stated]
            text = f"{name}: the variance is the closed form to 5 %"
            found.append(Claim(text, max(gaps) < 0.05, f"largest gap {100 * max(gaps):.1f} %"))
    for row in summary.rows:
        iid = summary[row, "reparameterisation"].mean()
        for kind in ("antithetic", "stratified", "Sobol"):
            value = summary[row, f"reparameterisation, {kind}"].mean()
            text = f"{row}: {kind} noise has less than a tenth of the variance"
            found.append(Claim(text, value < iid / 10, f"{number(value)} and {number(iid)}"))
    return found


def figures(summary: Summary) -> Sequence[str]:
    """The descents of the lecture's picture."""
    config = summary.config
    steps, goal = list(range(config.descent + 1)), -config.b / config.a
    paths = {name: descend(config, way) for name, way in WAYS.items()}
    lines = [Series(name, steps, y, i) for i, (name, y) in enumerate(paths.items())]
    gaps = [Series(s.label, steps, [abs(t - goal) for t in s.y], s.colour) for s in lines]
    note = f"the optimum is {number(goal)}"
    return [
        section(
            "Descent",
            "Gradient descent from theta = 1 with two draws a step. All estimates are right on average; what differs "
            "is how far a single one is off.",
            legend(list(paths)),
            pair(
                line_chart(lines, title="θ", note=note, x_label="step"),
                line_chart(
                    gaps,
                    title="Distance from the optimum",
                    note="logarithmic",
                    x_label="step",
                    log_y=True,
                ),
            ),
        )
    ]


def bands(tight: float) -> dict[tuple[str, str], tuple[float, float]]:
    """Around the closed forms; below a tenth of them for arranged noise."""
    return {
        ("*", "reparameterisation"): (16 * (1 - tight), 16 * (1 + tight)),
        ("*", "reparameterisation, antithetic"): (0.0, 1e-9),
        ("*", "reparameterisation, *"): (0.0, 1.6),
        ("theta = 0", "REINFORCE"): (888 * (1 - tight), 888 * (1 + tight)),
    }


RECIPE = Recipe(
    name="reinforce-vs-reparam",
    title="REINFORCE and reparameterisation of a Gaussian, with independent and with arranged noise",
    about=(
        "Minimise the mean of z squared for a normal z of mean a theta + b and variance 1. The table shows the "
        "variance of the gradient, a draw: that of the mean of 16 draws, times 16, so that independent noise has "
        "the variance of one draw and arranged noise shows what it saves. The lecture has a picture and no "
        "numbers; those called published are closed forms (its density lacks the 2 of 2 sigma squared; with it, "
        "its two gradients agree)."
    ),
    source="lecture of R. Xu, 2019; closed forms",
    metric="variance",
    unit="variance of the gradient, a draw",
    config=Config(),
    smoke=Config(steps=4),
    full=Config(steps=2000),
    cells=cells,
    train=train,
    bands={"smoke": bands(0.25), "default": bands(0.05), "full": bands(0.05)},
    claims=claims,
    figures=figures,
    digits=2,
)
