"""What a stochastic beam search found, as a tree."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from argrad._checks import check_count
from argrad.plot.style import COLORS, FAINT, INK, draw_on, styled

if TYPE_CHECKING:
    from argrad.sequences.sample import SequenceSample

_Prefix = tuple[int, ...]


@styled
def beam_tree(
    sample: SequenceSample,
    row: int = 0,
    *,
    spell: Callable[[int], str] = str,
    ax: Any = None,
) -> Any:
    r"""The sampled sequences as a tree of their prefixes, from left to right.

    Behind each sequence stand its log-probability $\phi$ and its perturbed value $G$, which puts them in order; the
    darker the way, the more of the sample's probability goes through it. The title has $\kappa$, the largest value
    that was not drawn.

    Args:
        sample: what `stochastic_beam_search` returned.
        row: which row of its batch.
        spell: the text of a token.
        ax: matplotlib axes to draw on.

    Examples:
        >>> import torch, argrad as ag
        >>> table = torch.arange(12.0).view(4, 3) / 4
        >>> def step(token, state):
        ...     state = state if token is None else token
        ...     return table[state], state
        >>> start = torch.tensor([3])
        >>> sample = ag.stochastic_beam_search(step, start, 4, eos=0, max_len=4, generator=ag.CounterRNG(0))
        >>> ax = ag.plot.beam_tree(sample, spell=".ab".__getitem__)
        >>> ax.get_title().startswith("κ = ")
        True

    References: [kool2019].
    """
    check_count(
        "plot.beam_tree", "row", row, 0, sample.tokens.shape[0] - 1, "It is a row of the batch."
    )
    leaves = _leaves(sample, row)
    places, mass = _layout(leaves)
    depth = max(x for x, _ in places.values())
    ax = draw_on(ax, 1.1 * depth + 2.6, 0.34 * len(leaves) + 0.7)
    for prefix, (x, y) in places.items():
        if prefix:
            _branch(ax, places[prefix[:-1]], (x, y), mass[prefix])
            text = {"ha": "center", "va": "center_baseline", "fontsize": 8, "color": INK, "zorder": 4}
            ax.text(x, y, spell(prefix[-1]), **text, bbox=_BOX)
    ax.plot(0, places[()][1], "o", color=INK, markersize=5, zorder=4)
    for prefix, (log_prob, perturbed) in leaves.items():
        label = f"φ {log_prob:.2f}   G {perturbed:.2f}"
        ax.text(depth + 0.35, places[prefix][1], label, va="center_baseline", fontsize=8, color=INK)
        ax.plot([places[prefix][0], depth + 0.3], [places[prefix][1]] * 2, ":", color=FAINT, zorder=1)
    ax.set(xlim=(-0.2, depth + 2.2), ylim=(-len(leaves) + 0.4, 0.6), xticks=[], yticks=[])
    ax.set_title(f"κ = {sample.kappa[row].item():.2f}")
    ax.spines[:].set_visible(False)
    return ax


_BOX = {"boxstyle": "round,pad=0.3", "facecolor": "white", "edgecolor": INK, "linewidth": 0.8}


def _leaves(sample: SequenceSample, row: int) -> dict[_Prefix, tuple[float, float]]:
    """Sequence -> log-probability and perturbed value, those with a common beginning side by side."""
    found = {}
    for i in range(sample.tokens.shape[1]):
        if bool(sample.valid[row, i]):
            tokens = tuple(sample.tokens[row, i, : int(sample.length[row, i])].tolist())
            found[tokens] = sample.log_prob[row, i].item(), sample.perturbed[row, i].item()
    return dict(sorted(found.items()))


def _layout(
    leaves: dict[_Prefix, tuple[float, float]],
) -> tuple[dict[_Prefix, tuple[float, float]], dict[_Prefix, float]]:
    """Places of all prefixes, and the share of the sample's probability that goes through each."""
    spans: dict[_Prefix, list[int]] = {}
    mass: dict[_Prefix, float] = {}
    total = sum(math.exp(log_prob) for log_prob, _ in leaves.values())
    for y, (tokens, (log_prob, _)) in enumerate(leaves.items()):
        for length in range(len(tokens) + 1):
            spans.setdefault(tokens[:length], []).append(y)
            mass[tokens[:length]] = mass.get(tokens[:length], 0.0) + math.exp(log_prob) / total
    places = {p: (float(len(p)), -(ys[0] + ys[-1]) / 2) for p, ys in spans.items()}
    return places, mass


def _branch(ax: Any, start: tuple[float, float], end: tuple[float, float], share: float) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    (x0, y0), (x1, y1) = start, end
    middle = (x0 + x1) / 2
    curve = Path([(x0, y0), (middle, y0), (middle, y1), (x1, y1)], [Path.MOVETO] + 3 * [Path.CURVE4])
    look = {"linewidth": 1 + 5 * share, "alpha": 0.35 + 0.65 * share}
    ax.add_patch(PathPatch(curve, facecolor="none", edgecolor=COLORS[0], zorder=2, **look))
