"""From soft to hard: relaxed one-hot samples at several temperatures."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from argrad._checks import fail
from argrad._types import Generator
from argrad.gumbel import gumbel_softmax
from argrad.plot.style import COLORS, INK, SHADES, draw_on, styled
from argrad.random import gumbel

_CORNERS = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.5, math.sqrt(3) / 2]], dtype=torch.float64)


@styled
def simplex(
    logits: Tensor,
    tau: float = 1.0,
    *,
    draws: int = 300,
    names: tuple[str, str, str] = ("A", "B", "C"),
    generator: Generator = None,
    ax: Any = None,
) -> Any:
    r"""Gumbel-softmax samples of three items on their triangle, coloured by the item that wins.

    The ring is $\mathrm{softmax}(\theta)$, the mean of the hard samples at every temperature; the cross is the mean
    of the soft ones.

    Args:
        logits: $\theta$, three numbers.
        tau: temperature.
        draws: how many samples.
        names: of the items.
        generator: `torch.Generator`, `CounterRNG`, or None for torch's global generator.
        ax: matplotlib axes to draw on.

    Examples:
        >>> import torch, argrad as ag
        >>> ax = ag.plot.simplex(torch.tensor([0.5, 0.0, -0.5]), 0.5, generator=ag.CounterRNG(0))
        >>> ax.get_title()
        'τ = 0.5'

    References: [jang2017], [maddison2017].
    """
    if logits.numel() != 3:
        raise fail(
            "plot.simplex", "logits", "must be three numbers", logits, "A triangle has 3 corners."
        )
    ax = draw_on(ax, 3.4, 3.2, bare=True)
    theta = logits.detach().flatten().double()
    y = gumbel_softmax(theta.expand(draws, 3), tau, generator=generator)
    ax.fill(*_CORNERS.T.tolist(), facecolor="#F6F8FA", edgecolor=INK, linewidth=0.8, zorder=1)
    for i, name in enumerate(names):
        points = (y[y.argmax(-1) == i] @ _CORNERS).T.tolist()
        ax.scatter(*points, s=9, color=COLORS[i], alpha=0.6, linewidths=0, zorder=2)
        outward = (_CORNERS[i] - _CORNERS.mean(0)) * 0.12 + _CORNERS[i]
        ax.text(*outward.tolist(), name, color=COLORS[i], ha="center", va="center", weight="bold")
    ax.plot(
        *(y.mean(0) @ _CORNERS).tolist(), "+", color=INK, markersize=10, markeredgewidth=2, zorder=4
    )
    ring = {"markerfacecolor": "none", "markersize": 9, "markeredgewidth": 1.8, "zorder": 3}
    ax.plot(*(theta.softmax(-1) @ _CORNERS).tolist(), "o", color=INK, **ring)
    ax.set(xlim=(-0.14, 1.14), ylim=(-0.13, 1.03), title=f"τ = {tau:g}")
    return ax


@styled
def temperature_strip(
    logits: Tensor,
    taus: tuple[float, ...] = (5.0, 2.0, 1.0, 0.5, 0.1),
    *,
    draws: int = 12,
    generator: Generator = None,
    ax: Any = None,
) -> Any:
    """Relaxed one-hot samples from soft to hard: a row a temperature, the same noise down each column.

    Args:
        logits: scores of the items, any number of them.
        taus: temperatures, from top to bottom.
        draws: how many samples side by side.
        generator: `torch.Generator`, `CounterRNG`, or None for torch's global generator.
        ax: matplotlib axes to draw on.

    Examples:
        >>> import torch, argrad as ag
        >>> ax = ag.plot.temperature_strip(torch.zeros(4), (2.0, 0.1), generator=ag.CounterRNG(0))
        >>> [label.get_text() for label in ax.get_yticklabels()]
        ['τ = 2', 'τ = 0.1']
    """
    ax = draw_on(ax, 8.0, 0.4 * len(taus) + 0.3)
    theta = logits.detach().flatten()
    noise = gumbel((draws, theta.numel()), dtype=theta.dtype, generator=generator)
    rows = [((theta + noise) / tau).softmax(-1).flatten() for tau in taus]
    ax.imshow(torch.stack(rows).numpy(), aspect="auto", cmap=SHADES, vmin=0, vmax=1)
    ax.set_yticks(range(len(taus)), [f"τ = {tau:g}" for tau in taus])
    ax.set_xticks([])
    ax.tick_params(length=0)
    for draw in range(1, draws):
        ax.axvline(draw * theta.numel() - 0.5, color="white", linewidth=3)
    ax.spines[:].set_visible(False)
    return ax
