r"""The temperature figure of Jang et al. (2017): Gumbel-softmax draws and their mean as tau changes.

$$ y = \mathrm{softmax}((\log p + g)/\tau), \quad g_i \sim \mathrm{Gumbel}(0, 1), \qquad
   \mathbb{E} y \to p \text{ as } \tau \to 0, \quad \mathbb{E} y \to \text{uniform as } \tau \to \infty $$

The mean of many draws is put beside the mean by numerical integration, which is exact to about 14 digits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

import argrad as ag
from argrad._errors import InputError
from argrad.recipes import pictures
from argrad.recipes.bench import Cell, Claim, Recipe, Run, Summary, option
from argrad.recipes.charts import Series, legend, line_chart, number
from argrad.recipes.report import section


@dataclass(frozen=True, kw_only=True)
class Config:
    """What can be set."""

    probabilities: tuple[float, ...] = option(
        (0.05, 0.1, 0.05, 0.15, 0.1, 0.4, 0.15), "p of the categorical law, up to a factor", above=0
    )
    tau: tuple[float, ...] = option((0.1, 0.5, 1.0, 10.0), "temperatures", above=0, selects=True)
    steps: int = option(1000, "batches of draws", at_least=2)
    batch: int = option(10_000, "draws a batch", at_least=2)


def probabilities(config: Config) -> Tensor:
    """$p$, float64."""
    if len(config.probabilities) < 2:
        raise InputError("`--probabilities` needs at least two numbers, such as 0.3,0.7.")
    p = torch.tensor(config.probabilities, dtype=torch.float64)
    return p / p.sum()


def cells(config: Config) -> list[Cell]:
    """One for every temperature."""
    return [Cell("", f"tau = {tau:g}", settings={"tau": tau}) for tau in config.tau]


# ---- the mean of a sample ----------------------------------------------------------------------------


def mean_by_integration(log_p: np.ndarray, tau: float) -> np.ndarray:
    r"""$\mathbb{E}\, \mathrm{softmax}((\log p + g)/\tau)$, by a two-dimensional integral for any number of classes.

    Given $g$, entry $i$ of the softmax is the probability that a second Gumbel-max picks $i$. So

    $$ \mathbb{E} y_i = P\big(i = \arg\max_j \log p_j + n_j\big)
       = \int f(x - \log p_i) \prod_{j \ne i} F(x - \log p_j)\, dx, \qquad n_j = g_j + \tau \gamma_j, $$

    with independent Gumbels $g$ and $\gamma$, and $F$ and $f$ the distribution function and density of their sum.
    """
    if tau > 1:  # divide by tau: g and gamma change places, and the integrands stay smooth
        return mean_by_integration(log_p / tau, 1 / tau)
    # The trapezoid rule on analytic functions that vanish at both ends: its error is about exp(-2 pi a / h) with
    # a = pi/2, the half-width of the strip in which a Gumbel density is bounded. Tails: exp(-exp(4)), exp(-40).
    h = 1 / 8
    gamma = np.arange(-4, 40, h)
    weights = h * np.exp(-gamma - np.exp(-gamma))
    x = np.arange(-4 * (1 + tau) + log_p.min(), 40 * (1 + tau) + log_p.max(), h)
    rate = [
        np.exp(tau * gamma - (x - shift)[:, None]) for shift in log_p
    ]  # (points, nodes) for each class
    cdf = np.stack([np.exp(-r) @ weights for r in rate])  # (classes, points)
    density = np.stack([(r * np.exp(-r)) @ weights for r in rate])
    others = np.stack([np.delete(cdf, i, axis=0).prod(0) for i in range(len(log_p))])
    return h * (density * others).sum(1)


class Totals(nn.Module):
    """Sums over draws: of $y$, of $y^2$ and of the largest entry."""

    y: Tensor
    square: Tensor
    top: Tensor

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.register_buffer("y", torch.zeros(classes, dtype=torch.float64))
        self.register_buffer("square", torch.zeros(classes, dtype=torch.float64))
        self.register_buffer("top", torch.zeros((), dtype=torch.float64))

    def add(self, y: Tensor) -> None:
        """Count a batch of draws `(batch, classes)`."""
        y = y.double()
        self.y += y.sum(0)
        self.square += y.square().sum(0)
        self.top += y.amax(-1).sum()


def train(config: Config, cell: Cell, run: Run) -> dict[str, float]:
    """Draw, and compare the mean with the integral."""
    p, tau = probabilities(config), cell.settings["tau"]
    logits = p.log().float().expand(config.batch, -1)
    totals, noise = Totals(len(p)), run.generator(1)
    for _ in run.steps(config.steps, totals=totals, noise=noise):
        totals.add(ag.gumbel_softmax(logits, tau, generator=noise))
    count = config.steps * config.batch
    mean = totals.y / count
    error = ((totals.square / count - mean**2) / (count - 1)).clamp(min=0).sqrt()
    exact = torch.from_numpy(mean_by_integration(p.log().numpy(), tau))
    return {
        "distance from p": _distance(mean, p),
        "the same, by integration": _distance(exact, p),
        "distance from uniform": _distance(mean, torch.full_like(p, 1 / len(p))),
        "largest entry": float(totals.top / count),
        "errors off": float(((mean - exact).abs() / error).max()),
        **{f"mean {i + 1}": float(m) for i, m in enumerate(mean)},
        **{f"integral {i + 1}": float(m) for i, m in enumerate(exact)},
    }


def _distance(a: Tensor, b: Tensor) -> float:
    """Total variation."""
    return float((a - b).abs().sum() / 2)


# ---- what the figure shows, as sentences ---------------------------------------------------------------

# 28 comparisons of a mean with its integral: the chance that one is further off than this, were all right, is 1e-6
_ERRORS_OFF = 5.6


def claims(summary: Summary) -> list[Claim]:
    """The paper's captions."""
    found = sorted(summary.cells, key=lambda c: c.cell.settings["tau"])
    off = max(c.mean("errors off") for c in found)
    agree = f"every mean is within {_ERRORS_OFF:g} standard errors of its integral"
    return [
        Claim(agree, off <= _ERRORS_OFF, f"largest: {off:.1f}"),
        _ordered("the mean leaves p as tau grows", [c.mean() for c in found]),
        _ordered("the mean nears the uniform law", [-c.mean("distance from uniform") for c in found]),
        _ordered("draws become less like a vertex", [-c.mean("largest entry") for c in found]),
        *_limits(summary),
    ]


def _limits(summary: Summary) -> Iterator[Claim]:
    if low := summary.find("", "tau = 0.1"):
        yield Claim("at tau = 0.1 the mean is p to 0.01", low.mean() < 0.01, number(low.mean()))
    if high := summary.find("", "tau = 10"):
        off = high.mean("distance from uniform")
        yield Claim("at tau = 10 the mean is uniform to 0.03", off < 0.03, number(off))


def _ordered(text: str, values: list[float]) -> Claim:
    holds = all(a < b for a, b in pairwise(values))
    return Claim(text, holds, ", ".join(number(abs(v)) for v in values))


def figures(summary: Summary) -> Sequence[str]:
    """The strip of the paper, and the mean for all temperatures between."""
    config = summary.config
    p = probabilities(config)
    cells_ = [c for c in summary.cells if "mean 1" in c.metrics]
    taus = [c.cell.settings["tau"] for c in cells_]
    means = [[c.mean(f"mean {i + 1}") for i in range(len(p))] for c in cells_]
    strip = pictures.bar_strip(
        ["categorical", *(f"τ {number(t)}" for t in taus)],
        [[p.tolist(), *means], *draws(p, taus, 5)],
        ("top: mean of all draws; below: single draws, along a row with the same noise", ""),
    )
    return [
        section(
            "Draws and their mean",
            "At a low temperature a draw is nearly a vertex and the mean nearly p. As the temperature grows draws "
            "become smooth, and draw and mean become uniform. The winner of a row does not depend on the temperature.",
            strip,
        ),
        section(
            "The mean at every temperature",
            "By numerical integration: one line for each class, from p on the left to uniform on the right.",
            *_mean_chart(p),
        ),
    ]


def draws(p: Tensor, taus: Sequence[float], count: int) -> Iterator[list[list[float]]]:
    """Rows of one draw at each temperature, the vertex first, all of a row with the same noise."""
    for seed in range(count):
        g = ag.random.gumbel(
            (len(p),), dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
        )
        w = p.log() + g
        soft = [torch.softmax(w / tau, -1).tolist() for tau in taus]
        yield [torch.eye(len(p))[w.argmax()].tolist(), *soft]


def _mean_chart(p: Tensor) -> tuple[str, str]:
    powers = np.linspace(-1.5, 1.5, 31)
    lines = np.stack([mean_by_integration(p.log().numpy(), 10.0**power) for power in powers], 1)
    labels = [f"p = {number(share)}" for share in p.tolist()]
    series = [
        Series(s, powers.tolist(), y.tolist(), i)
        for i, (s, y) in enumerate(zip(labels, lines, strict=True))
    ]
    chart = line_chart(series, title="E y", x_label="log10 τ", y_range=(0.0, float(lines.max())))
    return legend(labels), chart


_BY_INTEGRATION = {"tau = 0.1": 0.00119, "tau = 0.5": 0.02994, "tau = 1": 0.08542, "tau = 10": 0.24478}


def _bands(half_width: float) -> dict[tuple[str, str], tuple[float, float]]:
    """Around the distances by integration, about six standard deviations of the sampled ones wide."""
    return {("", name): (d - half_width, d + half_width) for name, d in _BY_INTEGRATION.items()}


RECIPE = Recipe(
    name="temperature",
    title="Gumbel-softmax draws and their mean as the temperature changes",
    about=(
        "One categorical law p over seven classes, ten million Gumbel-softmax draws at each temperature. The table "
        "shows the distance (total variation) of the mean draw from p. The paper has the picture but neither p nor "
        "numbers, so p is ours, and the numbers are checked against numerical integration instead: given the "
        "noise, an entry of the softmax is the chance that a second Gumbel-max picks it, so E y is the law of an "
        "arg max under the noise g + tau g', a two-dimensional integral whatever the number of classes."
    ),
    source="Jang, Gu and Poole 2017, Figure 1",
    metric="distance from p",
    unit="distance of E y from p, total variation",
    config=Config(),
    smoke=Config(steps=20),
    full=Config(steps=10_000),
    cells=cells,
    train=train,
    bands={"smoke": _bands(8e-3), "default": _bands(1e-3), "full": _bands(4e-4)},
    claims=claims,
    figures=figures,
    digits=4,
)
