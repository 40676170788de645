"""What is wrong with an estimator: its bias, or its spread."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from argrad.plot.style import COLORS, FAINT, INK, draw_on, styled

if TYPE_CHECKING:
    from argrad._diagnose import Report, Row


@styled
def bias_variance(report: Report, *, ax: Any = None) -> Any:
    r"""Bias and standard deviation of each estimator of a `diagnose` report, a row each, the least error on top.

    $$ \mathrm{MSE} = \mathrm{bias}^2 + \mathrm{variance} $$
    Averaging estimates moves the disc and the bar to the left, never the diamond. A hollow diamond is a bias that
    could not be told from 0.

    Args:
        report: what `argrad.diagnose` measured; estimators that it refused are left out.
        ax: matplotlib axes to draw on.

    Examples:
        >>> import torch, argrad as ag
        >>> q = ag.Gibbs(ag.OneHot(), torch.zeros(3))
        >>> report = ag.diagnose(lambda z: z[..., 0], q, [ag.Reinforce(), ag.LeaveOneOut()], replicates=20)
        >>> ax = ag.plot.bias_variance(report)
        >>> ax.get_xlabel()
        'error of one estimate'
    """
    rows = [r for r in report.rows if not r.verdict.startswith("refused")]
    rows.sort(key=lambda r: -r.mse)
    ax = draw_on(ax, 5.4, 0.8 + 0.26 * max(len(rows), 3))
    low = _floor(rows)
    for y, row in enumerate(rows):
        bias = math.sqrt(max(row.mse - row.variance, 0.0))
        biased = row.verdict == "biased"
        ax.axhline(y, color=FAINT, linewidth=0.6, zorder=1)
        ax.plot(max(math.sqrt(row.mse), low), y, "|", color=INK, markersize=13, zorder=2)
        ax.plot(max(math.sqrt(row.variance), low), y, "o", color=COLORS[0], markersize=6, zorder=3)
        face = COLORS[1] if biased else "white"
        ax.plot(max(bias, low), y, "D", color=COLORS[1], markerfacecolor=face, markersize=6, zorder=4)
    ax.set(xscale="log", xlabel="error of one estimate", ylim=(-0.7, len(rows) - 0.3))
    ax.set_xlim(left=low / 1.3)
    ax.set_yticks(range(len(rows)), [row.name for row in rows])
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    _legend(ax)
    return ax


def _floor(rows: list[Row]) -> float:
    """Where nothing is drawn as little: a decade below the least spread that there is."""
    spreads = [math.sqrt(r.variance) for r in rows if r.variance > 1e-18]
    return 10.0 ** math.floor(math.log10(min(spreads, default=1.0))) / 10


def _legend(ax: Any) -> None:
    for marker, color, size, text in (
        ("D", COLORS[1], 6, "bias"),
        ("o", COLORS[0], 6, "standard deviation"),
        ("|", INK, 13, "both"),
    ):
        ax.plot([], [], marker, color=color, markersize=size, label=text)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, handletextpad=0.2)
