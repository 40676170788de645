"""Draw the pictures of the README and the documentation: `.venv/bin/python docs/pictures.py`.

Each picture comes in a light and a dark version, as SVG without fonts, so that it looks the same everywhere.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle

import argrad as ag

ASSETS = Path(__file__).resolve().parent / "assets"
# Okabe and Ito's palette: told apart with any of the common kinds of colour blindness
COLOURS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9"]
INK = {"light": "#24292f", "dark": "#d0d7de"}

TAUS = [5.0, 2.0, 1.0, 0.5, 0.1]
PROBS = torch.tensor([0.34, 0.26, 0.20, 0.12, 0.08])
DRAWS = 12
CAPTION = "twelve draws of one choice among five, with the same noise down each column"
SEED = 19  # every item wins at least once


def samples() -> torch.Tensor:
    """`(tau, draw, item)`; a `CounterRNG` repeats its noise, so that a column differs in tau alone."""
    logits = PROBS.log().expand(DRAWS, -1)
    return torch.stack([ag.gumbel_softmax(logits, tau, generator=ag.CounterRNG(SEED)) for tau in TAUS])


def _cell(axes: Axes, x: float, y: float, values: list[float]) -> None:
    """One sample: a rounded card, shared out among the items."""
    card = FancyBboxPatch(
        (x + 0.04, y + 0.04), 0.92, 0.92, boxstyle="round,pad=0,rounding_size=0.1", fc="none", ec="none"
    )
    axes.add_patch(card)
    bottom = y + 0.04
    for colour, value in zip(COLOURS, values, strict=True):
        band = Rectangle((x + 0.04, bottom), 0.92, 0.92 * value, fc=colour, ec="none")
        axes.add_patch(band)
        band.set_clip_path(card)
        bottom += 0.92 * value


def draw_strip(theme: str) -> Figure:
    """Samples from soft (top) to hard (bottom)."""
    ink = INK[theme]
    figure = Figure(figsize=(9.6, 3.95))
    axes = figure.add_axes((0, 0, 1, 1))
    for row, per_draw in enumerate(samples().tolist()):
        y = len(TAUS) - 1 - row
        label = rf"$\tau$ = {TAUS[row]:g}"
        axes.text(-0.2, y + 0.5, label, ha="right", va="center", color=ink, size=13)
        for column, values in enumerate(per_draw):
            _cell(axes, column, y, values)
    axes.text(DRAWS / 2, -0.3, CAPTION, ha="center", va="center", color=ink, size=11)
    axes.set(xlim=(-1.35, DRAWS + 0.1), ylim=(-0.55, len(TAUS) + 0.05))
    axes.set_aspect("equal")
    axes.axis("off")
    return figure


def main() -> None:
    ASSETS.mkdir(exist_ok=True)
    # text as outlines, and neither a date nor random ids: the same drawing is the same file
    with mpl.rc_context(
        {"svg.fonttype": "path", "svg.hashsalt": "argrad", "font.family": "DejaVu Sans"}
    ):
        for theme in INK:
            path = ASSETS / f"strip-{theme}.svg"
            draw_strip(theme).savefig(path, transparent=True, metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main()
