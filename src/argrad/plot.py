"""Figures, with matplotlib (`pip install "argrad[plot]"`); never imported by the core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
