"""Are probabilities as right as they say?"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from argrad.plot.style import COLORS, INK, draw_on, styled


@styled
def reliability(
    logits: Tensor,
    labels: Tensor,
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

    Examples:
        >>> import torch, argrad as ag
        >>> logits, labels = torch.randn(200, 4), torch.arange(200) % 4
        >>> ax = ag.plot.reliability(logits, labels, bins=10, title="guessing")
        >>> ax.get_title().startswith("guessing: ECE ")
        True
    """
    from argrad.calibration import ece
    from argrad.calibration import reliability as binned

    ax = draw_on(ax, 4.2, 4.2)
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
    ax.axhline(0, color=INK, linewidth=0.8, zorder=4)
    ax.plot([0, 1], [0, 1], color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=4)
    ax.set(
        xlim=(0, 1), ylim=(-0.18, 1), xlabel="confidence", ylabel="accuracy, and share of predictions"
    )
    ax.set_yticks([0, 0.25, 0.5, 0.75, 1])
    ax.legend(loc="upper left", fontsize=7, framealpha=0.8, edgecolor="none")
    error = f"ECE {100 * ece(logits, labels, bins=bins).item():.1f} %"
    ax.set_title(f"{title}: {error}" if title else error, fontsize=10)
    return ax
