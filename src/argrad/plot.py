"""Figures, with matplotlib (`pip install "argrad[plot]"`); never imported by the core."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from argrad._errors import ArgradError

if TYPE_CHECKING:
    from argrad._diagnose import Report
    from argrad._types import Generator

# Okabe and Ito's palette: distinct for colour-blind readers and in print.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")


def _axes(ax: Any, width: float = 5.0, height: float = 3.6) -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ArgradError('Plots need matplotlib: `pip install "argrad[plot]"`.') from error
    if ax is None:
        _, ax = plt.subplots(figsize=(width, height), layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def bias_variance(report: Report, *, ax: Any = None) -> Any:
    """Bias against standard deviation of each estimator in a `diagnose` report, both relative to |exact|."""
    ax = _axes(ax)
    rows = [r for r in report.rows if not r.verdict.startswith("refused")]
    floor = 1e-4
    for i, row in enumerate(rows):
        size = row.relative_bias if row.relative_bias > floor else floor
        ax.scatter(row.variance**0.5 or floor, size, s=40, color=COLORS[i % len(COLORS)], zorder=3)
        ax.annotate(
            row.name,
            (row.variance**0.5 or floor, size),
            xytext=(5, 4),
            textcoords="offset points",
            fontsize=8,
        )
    ax.set(xscale="log", yscale="log", xlabel="standard deviation", ylabel="relative bias")
    ax.set_ylim(bottom=floor / 2)
    ax.grid(alpha=0.3)
    return ax


def temperature_strip(
    logits: torch.Tensor,
    taus: tuple[float, ...] = (5.0, 2.0, 1.0, 0.5, 0.1),
    *,
    draws: int = 12,
    generator: Generator = None,
    ax: Any = None,
) -> Any:
    """Relaxed one-hot samples from soft to hard: a row a temperature, the same noise down each column."""
    from argrad.random import gumbel

    ax = _axes(ax, 8.0, 0.9 * len(taus))
    noise = gumbel((draws, logits.numel()), generator=generator)
    rows = [((logits.flatten() + noise) / tau).softmax(-1).flatten() for tau in taus]
    ax.imshow(torch.stack(rows).numpy(), aspect="auto", cmap="Blues", vmin=0, vmax=1)
    ax.set_yticks(range(len(taus)), [f"τ = {tau:g}" for tau in taus])
    ax.set_xticks([])
    for draw in range(1, draws):
        ax.axvline(draw * logits.numel() - 0.5, color="white", linewidth=2)
    ax.spines[:].set_visible(False)
    return ax


def reliability(
    logits: torch.Tensor,
    labels: torch.Tensor,
    *,
    bins: int = 15,
    title: str = "",
    ax: Any = None,
) -> Any:
    """A reliability diagram: accuracy by confidence, its gap to the diagonal, and how many predictions are where.

    Args:
        logits: `(n, classes)`.
        labels: `(n)`.
        bins: of equal width.
        title: what is shown.
        ax: matplotlib axes to draw on.
    """
    from argrad.calibration import ece
    from argrad.calibration import reliability as binned

    ax = _axes(ax, 4.2, 4.2)
    table = binned(logits, labels, bins=bins)
    left, width = table.edges[:-1].numpy(), 1 / bins
    accuracy, confidence = (x.nan_to_num(0.0).numpy() for x in (table.accuracy, table.confidence))
    share = (table.count / table.count.sum()).numpy()
    shown = share > 0
    over = confidence > accuracy
    options: dict[str, Any] = {"width": width, "align": "edge", "edgecolor": "white", "linewidth": 0.8}
    lower, gap = np.minimum(accuracy, confidence), np.abs(confidence - accuracy)
    few = (table.count < 5).numpy()  # a bin of one is right or wrong, whatever it says
    for which, color, label in (
        (shown, COLORS[0], None),
        (shown & over, COLORS[1], "too sure: confidence above accuracy"),
        (shown & ~over, COLORS[2], "not sure enough: accuracy above"),
    ):
        height, bottom = (lower, 0 * lower) if label is None else (gap, lower)
        for part, alpha in ((which & ~few, 1.0), (which & few, 0.25)):
            bars: dict[str, Any] = {"color": color, "alpha": alpha, "bottom": bottom[part], "zorder": 2}
            drawn = ax.bar(left[part], height[part], **bars, **options)
            if label is not None and alpha == 1 and len(drawn):
                drawn.set_label(label)
    ax.bar(left, -0.16 * share / share.max(), color="#888888", zorder=2, **options)
    ax.axhline(0, color="#444444", linewidth=0.8, zorder=4)
    ax.plot([0, 1], [0, 1], color="#444444", linewidth=1, linestyle=(0, (4, 3)), zorder=4)
    ax.set(
        xlim=(0, 1), ylim=(-0.18, 1), xlabel="confidence", ylabel="accuracy, and share of predictions"
    )
    ax.set_yticks([0, 0.25, 0.5, 0.75, 1])
    ax.legend(loc="upper left", fontsize=7, framealpha=0.8, edgecolor="none")
    error = f"ECE {100 * ece(logits, labels, bins=bins).item():.1f} %"
    ax.set_title(f"{title}: {error}" if title else error, fontsize=10)
    return ax


def surface(
    score: Callable[[torch.Tensor], torch.Tensor],
    extent: float,
    points: torch.Tensor | None = None,
    *,
    title: str = "",
    resolution: int = 120,
    ax: Any = None,
) -> Any:
    """A score of the plane, from -extent to extent: light where it is low, dark where it is high; dots are `points`."""
    ax = _axes(ax, 3.4, 3.4)
    line = torch.linspace(-extent, extent, resolution)
    grid = torch.cartesian_prod(line, line)
    with torch.no_grad():
        values = score(grid).reshape(resolution, resolution).mT  # first coordinate to the right
    box = (-extent, extent, -extent, extent)
    ax.imshow(values.numpy(), origin="lower", extent=box, cmap="Blues", interpolation="bilinear")
    if points is not None:
        ax.scatter(*points.T.numpy(), s=3, color=COLORS[1], linewidths=0, alpha=0.7)
    ax.set(xticks=[-extent, 0, extent], yticks=[-extent, 0, extent])
    ax.set_title(title, fontsize=9)
    return ax
