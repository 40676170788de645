r"""The toy problem of `docs/estimators/index.md`: one Gaussian, two estimators, everything in closed form.

    .venv/bin/python docs/estimators/toy.py

$z = \mu + \epsilon$ with $\mu = a\theta + b$, cost $f(z) = z^2$: the exact gradient for $\theta$ is $2a\mu$. Measures
means and variances, writes the table between `<!-- toy -->` and `<!-- end -->`, draws `assets/estimators/toy-*.svg`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from argrad.random import normal

A, B, DRAWS = 2.0, 3.0, 1_000_000
DOCS = Path(__file__).resolve().parents[1]
PAGE, ASSETS = DOCS / "estimators" / "index.md", DOCS / "assets" / "estimators"
INK = {"light": "#24292f", "dark": "#d0d7de"}
COLOURS = {"score function": "#0072B2", "with baseline": "#009E73", "path": "#E69F00"}
BLOCK = re.compile(r"(<!-- toy -->\n)(.*?)(<!-- end -->)", re.DOTALL)


class Figures(NamedTuple):
    """Of one estimator at one theta."""

    mean: float
    variance: float


def closed_form(theta: float) -> dict[str, Figures]:
    """The exact mean and variance of each estimator."""
    mu = A * theta + B
    variances = {
        "score function": A**2 * (mu**4 + 14 * mu**2 + 15),
        "with baseline": A**2 * (8 * mu**2 + 10),
        "path": 4 * A**2,
    }
    return {name: Figures(2 * A * mu, v) for name, v in variances.items()}


def measured(theta: float, seed: int = 0) -> dict[str, Figures]:
    """The same from samples, with the gradients as autograd gives them."""
    g = torch.Generator().manual_seed(seed)
    epsilon = normal((DRAWS,), dtype=torch.float64, generator=g)
    leaf = torch.full((DRAWS,), theta, dtype=torch.float64, requires_grad=True)
    mu = A * leaf + B
    z = (mu + epsilon).detach()  # a sample: no path
    log_p = -0.5 * (z - mu) ** 2
    losses = {
        "score function": z**2 * log_p,
        "with baseline": (z**2 - (mu.detach() ** 2 + 1)) * log_p,
        "path": (mu + epsilon) ** 2,
    }
    grads = {n: torch.autograd.grad(x.sum(), leaf, retain_graph=True)[0] for n, x in losses.items()}
    return {name: Figures(x.mean().item(), x.var().item()) for name, x in grads.items()}


def table(thetas: tuple[float, ...] = (-1.5, -1.0, 0.0, 1.0)) -> str:
    lines = [
        "| $\\theta$ | $\\mu$ | exact gradient | estimator | mean | variance | variance, closed form |"
    ]
    lines.append("|--:|--:|--:|---|--:|--:|--:|")
    for theta in thetas:
        exact = closed_form(theta)
        for name, seen in measured(theta).items():
            true = exact[name]
            first = (
                f"| {theta:g} | {A * theta + B:g} | {true.mean:g} "
                if name == "score function"
                else "| | | "
            )
            lines.append(
                f"{first}| {name} | {round(seen.mean, 2) + 0.0:.2f} | {seen.variance:.1f} | {true.variance:.0f} |"
            )
    note = f"*Measured by `docs/estimators/toy.py` from {DRAWS:,} draws each.*"
    return "\n".join([*lines, "", note, ""])


def _style(ax: Axes, ink: str, label: str) -> None:
    ax.patch.set_alpha(0)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(ink)
    ax.tick_params(colors=ink, labelsize=9, which="both")
    ax.set_xlabel(r"$\theta$", color=ink)
    ax.set_title(label, color=ink, size=11)
    ax.grid(alpha=0.25)


def draw(theme: str) -> Figure:
    """Means with one standard deviation, and variances: lines in closed form, dots measured."""
    ink = INK[theme]
    figure = Figure(figsize=(9.6, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    grid = torch.linspace(-3, 1, 81).tolist()
    dots = [-3 + 0.5 * i for i in range(9)]
    seen = {theta: measured(theta) for theta in dots}
    for name, colour in COLOURS.items():
        lines = [closed_form(t)[name] for t in grid]
        low, high = ([f.mean + s * f.variance**0.5 for f in lines] for s in (-1, 1))
        left.fill_between(grid, low, high, color=colour, alpha=0.25, lw=0, label=f"{name} ± 1 s.d.")
        left.plot(dots, [seen[t][name].mean for t in dots], "o", ms=4, color=colour)
        right.plot(grid, [f.variance for f in lines], color=colour, lw=2.2, label=name)
        right.plot(dots, [seen[t][name].variance for t in dots], "o", ms=5, color=colour)
    left.plot(grid, [closed_form(t)["path"].mean for t in grid], color=ink, lw=1.4)
    left.set(ylim=(-110, 110))
    right.set(yscale="log")
    _style(left, ink, "one estimate of the gradient")
    _style(right, ink, "variance (lines: closed form, dots: measured)")
    left.legend(frameon=False, labelcolor=ink, fontsize=9, loc="upper left")
    right.legend(frameon=False, labelcolor=ink, fontsize=9, loc="upper center")
    return figure


def main() -> None:
    torch.set_num_threads(1)
    ASSETS.mkdir(parents=True, exist_ok=True)
    settings = {"svg.fonttype": "path", "svg.hashsalt": "argrad", "font.family": "DejaVu Sans"}
    with mpl.rc_context(settings):
        for theme in INK:
            path = ASSETS / f"toy-{theme}.svg"
            draw(theme).savefig(path, transparent=True, metadata={"Date": None, "Creator": None})
    if PAGE.exists():
        text = table()
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(BLOCK.sub(lambda m: m[1] + text + m[3], page), encoding="utf-8")


if __name__ == "__main__":
    main()
