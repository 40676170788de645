"""Scores of the plane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from argrad.plot.style import COLORS, SHADES, draw_on, styled


@styled
def surface(
    score: Callable[[Tensor], Tensor],
    extent: float,
    points: Tensor | None = None,
    *,
    title: str = "",
    resolution: int = 120,
    ax: Any = None,
) -> Any:
    """A score of the plane, from -extent to extent: light where it is low, dark where it is high.

    Args:
        score: points `(n, 2)` -> numbers `(n)`.
        extent: half the width of the square that is shown.
        points: `(m, 2)`, drawn as dots.
        title: what is shown.
        resolution: points a side.
        ax: matplotlib axes to draw on.

    Examples:
        >>> import torch, argrad as ag
        >>> ax = ag.plot.surface(lambda x: -x.norm(dim=-1), 2.0, torch.zeros(1, 2), title="distance")
        >>> ax.get_title()
        'distance'
    """
    ax = draw_on(ax, 3.4, 3.4)
    line = torch.linspace(-extent, extent, resolution)
    grid = torch.cartesian_prod(line, line)
    with torch.no_grad():
        values = score(grid).reshape(resolution, resolution).mT  # first coordinate to the right
    box = (-extent, extent, -extent, extent)
    ax.imshow(values.numpy(), origin="lower", extent=box, cmap=SHADES, interpolation="bilinear")
    if points is not None:
        ax.scatter(*points.T.numpy(), s=3, color=COLORS[1], linewidths=0, alpha=0.7)
    ax.set(xticks=[-extent, 0, extent], yticks=[-extent, 0, extent])
    ax.set_title(title, fontsize=9)
    return ax
