"""Permutations as matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from argrad._checks import fail
from argrad.plot.style import INK, SHADES, draw_on, styled


@styled
def permutation_matrix(
    matrix: Tensor, *, items: Sequence[str] | None = None, title: str = "", ax: Any = None
) -> Any:
    r"""A permutation, hard or soft: item $j$ (column) at place $i$ (row), dark where $P_{ij}$ is near 1.

    Args:
        matrix: shape `(n, n)`, numbers from 0 to 1.
        items: names of the columns.
        title: what is shown.
        ax: matplotlib axes to draw on.

    Examples:
        >>> import torch, argrad as ag
        >>> scores = torch.randn(5, 5, generator=torch.Generator().manual_seed(0))
        >>> ax = ag.plot.permutation_matrix(ag.Permutation().relax(scores, 0.3), items="abcde", title="soft")
        >>> [label.get_text() for label in ax.get_xticklabels()]
        ['a', 'b', 'c', 'd', 'e']
    """
    if matrix.dim() != 2:
        raise fail(
            "plot.permutation_matrix", "matrix", "must be a matrix", matrix, "Draw one at a time."
        )
    rows, columns = matrix.shape
    ax = draw_on(ax, 0.8 + 0.36 * columns, 0.8 + 0.36 * rows)
    values = matrix.detach().double().cpu()
    ax.imshow(values.numpy(), cmap=SHADES, vmin=0, vmax=1)
    if max(rows, columns) <= 12:  # more would not be legible
        for i, row in enumerate(values.tolist()):
            for j, value in enumerate(row):
                if value >= 0.005:
                    color = "white" if value > 0.6 else INK
                    text = "1" if value > 0.995 else f"{value:.2f}"[1:]
                    ax.text(j, i, text, ha="center", va="center", fontsize=7, color=color)
    names = range(1, columns + 1) if items is None else items
    ax.set_xticks(range(columns), [str(name) for name in names])
    ax.set_yticks(range(rows), [str(i + 1) for i in range(rows)])
    ax.set(xlabel="item", ylabel="place", title=title)
    ax.tick_params(length=0)
    ax.set_xticks([j - 0.5 for j in range(1, columns)], minor=True)
    ax.set_yticks([i - 0.5 for i in range(1, rows)], minor=True)
    ax.grid(which="minor", color="white", linewidth=1.5)
    ax.tick_params(which="minor", length=0)
    ax.spines[:].set_visible(False)
    return ax
