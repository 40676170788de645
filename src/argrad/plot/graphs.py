"""Graphs and trees, from the matrices that structures give."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from argrad._checks import fail
from argrad.plot.style import COLORS, INK, draw_on, styled

_Point = tuple[float, float]
_RADIUS = 0.13


@styled
def graph(
    weights: Tensor,
    *,
    directed: bool = False,
    names: Sequence[str] | None = None,
    title: str = "",
    color: str = COLORS[0],
    ax: Any = None,
) -> Any:
    """Nodes on a circle, edges as wide and as opaque as their weights: a hard tree, or the probabilities of a soft one.

    Args:
        weights: shape `(n, n)`, numbers from 0 to 1: `SpanningTree` (symmetric) or `Arborescence` `[head, child]`.
        directed: draw arrows from head to child.
        names: of the nodes.
        title: what is shown.
        color: of the edges.
        ax: matplotlib axes to draw on.

    Examples:
        >>> import torch, argrad as ag
        >>> soft = ag.SpanningTree().marginals(torch.zeros(5, 5))
        >>> ax = ag.plot.graph(soft, title="each edge is as likely as any other")
        >>> len(ax.patches)  # 10 edges and 5 nodes
        15
    """
    n = _check_square("plot.graph", weights)
    ax = draw_on(ax, 2.8, 2.9, bare=True)
    turns = [2 * math.pi * i / n - math.pi / 2 for i in range(n)]
    places = [(math.cos(t), -math.sin(t)) for t in turns]
    for i, row in enumerate(weights.detach().tolist()):
        for j, weight in enumerate(row):
            if weight > 0.01 and (i != j if directed else i < j):
                look = (color, 0.5 + 4 * weight, 0.2 + 0.8 * min(weight, 1.0))
                _edge(ax, places[i], places[j], *look, arrow=directed, bend=0.18)
    _nodes(ax, places, names)
    ax.set(xlim=(-1.25, 1.25), ylim=(-1.25, 1.25), title=title)
    return ax


@styled
def tree(
    arcs: Tensor,
    root: int = 0,
    *,
    names: Sequence[str] | None = None,
    title: str = "",
    color: str = COLORS[0],
    ax: Any = None,
) -> Any:
    """A rooted tree from top to bottom: a vertex of `Arborescence`, or of `SpanningTree` seen from a root.

    Args:
        arcs: 0/1, shape `(n, n)`, `[head, child]` or symmetric.
        root: number of the node on top.
        names: of the nodes.
        title: what is shown.
        color: of the arcs.
        ax: matplotlib axes to draw on.

    Examples:
        >>> import torch, argrad as ag
        >>> scores = torch.randn(6, 6, generator=torch.Generator().manual_seed(0))
        >>> ax = ag.plot.tree(ag.Arborescence(root=0).argmax(scores))
        >>> len(ax.patches)  # 5 arcs and 6 nodes
        11
    """
    n = _check_square("plot.tree", arcs)
    places = _layers(arcs, root)
    if len(places) < n:
        missing = sorted(set(range(n)) - set(places))
        advice = "Draw a hard tree from its own root; soft ones are `plot.graph`'s."
        raise fail(
            "plot.tree", "arcs", f"must reach every node from {root}", f"none to {missing}", advice
        )
    width = max(x for x, _ in places.values()) + 1
    depth = 1 - min(y for _, y in places.values())
    ax = draw_on(ax, max(0.55 * width + 0.5, 2.0), 0.6 * depth + 0.5, bare=True)
    for head in places:
        for child in _children(arcs, head, places):
            _edge(ax, places[head], places[child], color, 1.5, 1.0, arrow=True, bend=0.0)
    _nodes(ax, [places[i] for i in range(n)], names, radius=0.22)
    ax.set(xlim=(-0.5, width - 0.5), ylim=(0.5 - depth, 0.5), title=title)
    return ax


def _check_square(call: str, matrix: Tensor) -> int:
    if matrix.dim() != 2 or matrix.shape[0] != matrix.shape[1]:
        raise fail(call, "weights", "must be a square matrix", matrix, "Draw one graph at a time.")
    return matrix.shape[0]


def _children(arcs: Tensor, head: int, places: dict[int, _Point]) -> list[int]:
    """The nodes below `head`: one level down, so that a symmetric matrix is read away from the root."""
    found = (arcs[head] > 0.5).nonzero().flatten().tolist()
    return [c for c in found if c in places and places[c][1] < places[head][1]]


def _layers(arcs: Tensor, root: int) -> dict[int, _Point]:
    """Node -> place: leaves side by side, parents above the middle of their children."""
    places: dict[int, _Point] = {}
    seen = {root}
    free = 0

    def visit(node: int, depth: int) -> float:
        nonlocal free
        below = [c for c in (arcs[node] > 0.5).nonzero().flatten().tolist() if c not in seen]
        seen.update(below)
        centres = [visit(child, depth + 1) for child in below]
        if not centres:
            free += 1
        x = (centres[0] + centres[-1]) / 2 if centres else free - 1.0
        places[node] = (x, -float(depth))
        return x

    visit(root, 0)
    return places


def _edge(
    ax: Any,
    start: _Point,
    end: _Point,
    color: str,
    width: float,
    alpha: float,
    *,
    arrow: bool,
    bend: float,
) -> None:
    from matplotlib.patches import FancyArrowPatch

    look = {
        "linewidth": width,
        "alpha": alpha,
        "color": color,
        "zorder": 2,
        "mutation_scale": 8 + 1.5 * width,
    }
    if arrow:  # ends at the rim of the node
        look |= {"arrowstyle": "-|>", "connectionstyle": f"arc3,rad={bend}", "shrinkA": 8, "shrinkB": 8}
    else:
        look |= {"arrowstyle": "-", "shrinkA": 0, "shrinkB": 0}
    ax.add_patch(FancyArrowPatch(start, end, **look))


def _nodes(
    ax: Any, places: Sequence[_Point], names: Sequence[str] | None, radius: float = _RADIUS
) -> None:
    from matplotlib.patches import Circle

    for i, place in enumerate(places):
        ax.add_patch(Circle(place, radius, facecolor="white", edgecolor=INK, linewidth=1.0, zorder=3))
        text = str(i) if names is None else names[i]
        ax.text(*place, text, ha="center", va="center_baseline", fontsize=8, color=INK, zorder=4)
