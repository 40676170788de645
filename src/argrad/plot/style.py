"""One look for all figures: Okabe and Ito's colours, thin lines, sizes for a column of print."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from argrad._errors import ArgradError

# Okabe and Ito's palette: distinct for colour-blind readers and in print.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
INK, FAINT = "#333333", "#C8CED6"
SHADES = "Blues"  # from nothing to full: light is less on paper, too

STYLE: dict[str, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "pdf.fonttype": 42,  # text stays text
}

_P = ParamSpec("_P")
_R = TypeVar("_R")


def styled(plot: Callable[_P, _R]) -> Callable[_P, _R]:
    """Draw in the style above, whatever the caller's is, and leave the caller's as it was."""

    @functools.wraps(plot)
    def run(*args: _P.args, **options: _P.kwargs) -> _R:
        with _pyplot().rc_context(STYLE):
            return plot(*args, **options)

    return run


def draw_on(ax: Any, width: float, height: float, *, bare: bool = False) -> Any:
    """The caller's axes, or those of a new figure; `bare` ones show nothing but what is drawn."""
    if ax is None:
        _, ax = _pyplot().subplots(figsize=(width, height), layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    if bare:
        ax.set(xticks=[], yticks=[], aspect="equal")
        ax.spines[:].set_visible(False)
    return ax


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ArgradError('Plots need matplotlib: `pip install "argrad[plot]"`.') from error
    return plt
