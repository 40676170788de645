"""Draw the picture of each structure's page: `.venv/bin/python docs/structures/pictures.py [name ...]`.

Every number in them is computed by argrad from fixed seeds. Each picture comes in a light and a dark version, as SVG
with text as outlines, in `docs/assets/structures/`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib as mpl
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, Rectangle
from torch import Tensor

import argrad as ag

ASSETS = Path(__file__).resolve().parents[1] / "assets" / "structures"
# Okabe and Ito's palette: told apart with any of the common kinds of colour blindness
BLUE, ORANGE, GREEN, PINK, SKY = "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9"
INK = {"light": "#24292f", "dark": "#d0d7de"}
PAPER = {"light": "#ffffff", "dark": "#1e2129"}
WIDTH = 9.6


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ---- shared strokes ------------------------------------------------------------------------------


def panels(ratios: Sequence[float], height: float) -> tuple[Figure, list[Axes]]:
    """Empty drawing areas side by side."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots(1, len(ratios), width_ratios=list(ratios), squeeze=False)[0]
    for ax in axes:
        ax.axis("off")
    return figure, list(axes)


def title(ax: Axes, text: str, ink: str) -> None:
    ax.set_title(text, color=ink, size=11, pad=4)


def cells(ax: Axes, values: Tensor, ink: str, colour: str = BLUE) -> None:
    """A matrix of numbers in [0, 1] as squares from clear to full, with the number where it matters."""
    rows, columns = values.shape
    for i, row in enumerate(values.tolist()):
        for j, v in enumerate(row):
            ax.add_patch(Rectangle((j, -i - 1), 1, 1, fc=(colour, max(v, 0.0)), ec=(ink, 0.25), lw=0.6))
            if v > 0.005:
                shade = "white" if v > 0.65 else ink
                text = "1" if v > 0.995 else f"{v:.2f}"[1:]
                ax.text(j + 0.5, -i - 0.5, text, ha="center", va="center", size=8, color=shade)
    ax.set(xlim=(-0.05, columns + 0.05), ylim=(-rows - 0.05, 0.05), aspect="equal")


def scored(ax: Axes, values: Tensor, ink: str) -> None:
    """A matrix of real scores: numbers on shades of orange (below 0: none)."""
    rows, columns = values.shape
    top = values[torch.isfinite(values)].max().item()
    for i, row in enumerate(values.tolist()):
        for j, v in enumerate(row):
            shade = max(v, 0) / top * 0.8
            ax.add_patch(Rectangle((j, -i - 1), 1, 1, fc=(ORANGE, shade), ec=(ink, 0.25), lw=0.6))
            ax.text(j + 0.5, -i - 0.5, f"{v:.1f}", ha="center", va="center", size=8, color=ink)
    ax.set(xlim=(-0.05, columns + 0.05), ylim=(-rows - 0.05, 0.05), aspect="equal")


def line(ax: Axes, a: tuple[float, float], b: tuple[float, float], weight: float, colour: str) -> None:
    """An edge as wide and as opaque as its weight."""
    if weight > 0.01:
        style = {"lw": 0.6 + 5 * weight, "alpha": 0.25 + 0.75 * weight, "solid_capstyle": "round"}
        ax.plot([a[0], b[0]], [a[1], b[1]], color=colour, zorder=1, **style)


def node(ax: Axes, at: tuple[float, float], label: str, theme: str, radius: float = 0.11) -> None:
    ax.add_patch(Circle(at, radius, fc=PAPER[theme], ec=INK[theme], lw=1.2, zorder=3))
    ax.text(*at, label, ha="center", va="center", size=9, color=INK[theme], zorder=4)


# ---- one picture a structure ---------------------------------------------------------------------


def one_hot(theme: str) -> Figure:
    """How three relaxations walk from the centre of the simplex to the winner as tau falls."""
    ink = INK[theme]
    figure, (left, right) = panels((1.15, 1), 3.6)
    corners = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.5, math.sqrt(3) / 2]])
    left.plot(*torch.cat([corners, corners[:1]]).T.tolist(), color=ink, lw=1.2)
    w = torch.tensor([0.2, 1.0, 0.75])
    taus = torch.logspace(1.6, -2.5, 300)
    ways = [("Entropy: softmax", ag.Entropy(), BLUE), ("Tsallis(1.5): entmax", ag.Tsallis(1.5), GREEN)]
    ways.append(("Euclidean: sparsemax", ag.Euclidean(), ORANGE))
    for name, regularizer, colour in ways:
        z = ag.OneHot().relax(w.expand(len(taus), 3), taus, regularizer=regularizer)
        left.plot(*(z @ corners).T.tolist(), color=colour, lw=2.4, label=name)
        right.plot(taus, z.amin(-1), color=colour, lw=2.4)
    for corner, label in zip(
        [(-0.03, -0.06), (1.03, -0.06), (0.5, 0.91)], ["0.2", "1.0", "0.75"], strict=True
    ):
        left.text(*corner, f"score {label}", ha="center", va="center", size=10, color=ink)
    left.plot(0.5, math.sqrt(3) / 6, "o", color=ink, ms=4)
    left.text(0.48, math.sqrt(3) / 6 + 0.05, r"$\tau\to\infty$", ha="right", size=10, color=ink)
    left.legend(frameon=False, labelcolor=ink, fontsize=9, loc="upper left")
    left.set(aspect="equal", xlim=(-0.55, 1.15), ylim=(-0.12, 1.0))
    curve_axes(right, ink, r"temperature $\tau$", "weight of the worst item")
    right.set(xscale="log", xlim=(0.03, 40))
    return figure


def curve_axes(ax: Axes, ink: str, x: str, y: str) -> None:
    """Switch a drawing area to plain axes in the ink of the theme."""
    ax.axis("on")
    ax.patch.set_alpha(0)
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(ink)
    ax.tick_params(colors=ink, labelsize=9, which="both")
    ax.set_xlabel(x, color=ink, size=10)
    ax.set_ylabel(y, color=ink, size=10)
    ax.grid(alpha=0.25)


def bits(theme: str) -> Figure:
    """A bit's soft value against its perturbed score."""
    ink = INK[theme]
    figure, axes = panels((1, 1), 2.9)
    w = torch.linspace(-3, 3, 301)[:, None]
    names = [("BinaryEntropy", ag.BinaryEntropy()), ("Euclidean", ag.Euclidean())]
    for ax, (name, regularizer) in zip(axes, names, strict=True):
        for tau, colour in ((2.0, SKY), (1.0, BLUE), (0.3, GREEN)):
            z = ag.Bits().relax(w, tau, regularizer=regularizer)[:, 0]
            ax.plot(w[:, 0], z, color=colour, lw=2.2, label=rf"$\tau$ = {tau:g}")
        ax.plot([-3, 0, 0, 3], [0, 0, 1, 1], color=ORANGE, lw=1.6, ls="--", label="arg max")
        curve_axes(ax, ink, r"perturbed score $w_i$", r"$z_i$")
        title(ax, name, ink)
    axes[0].legend(frameon=False, labelcolor=ink, fontsize=9)
    return figure


def subset(theme: str) -> Figure:
    """All relaxations of one perturbed score vector."""
    ink = INK[theme]
    k, tau, w = 3, 1.0, torch.tensor([2.6, 2.1, 1.9, 1.7, 0.9, 0.4, -0.3, -1.2])
    kinds = {
        "Euclidean": ag.Euclidean(),
        "Tsallis(1.5)": ag.Tsallis(1.5),
        "Entropy": ag.Entropy(),
        "BinaryEntropy": ag.BinaryEntropy(),
        "ExponentialFamily": ag.ExponentialFamily(),
        "SuccessiveSoftmax": ag.SuccessiveSoftmax(),
    }
    rows = {"arg max": ag.Subset(k).argmax(w)}
    rows |= {name: ag.Subset(k).relax(w, tau, regularizer=f) for name, f in kinds.items()}
    figure, (ax,) = panels((1,), 4.1)
    cells(ax, torch.stack(list(rows.values())), ink)
    for i, (name, z) in enumerate(rows.items()):
        ax.text(-0.2, -i - 0.5, name, ha="right", va="center", size=10, color=ink)
        largest = f"sum {z.sum():.2f}, largest {z.max():.2f}"
        ax.text(8.2, -i - 0.5, largest, ha="left", va="center", size=9, color=ink)
    for j, score in enumerate(w.tolist()):
        ax.text(j + 0.5, 0.25, f"{score:g}", ha="center", va="center", size=9, color=ink)
    ax.text(-0.2, 0.25, "perturbed score", ha="right", va="center", size=10, color=ink)
    ax.set(xlim=(-3.2, 11.2), ylim=(-7.1, 0.6))
    return figure


def chain_subset(theme: str) -> Figure:
    """The same unary scores with and without a liking for neighbours."""
    ink = INK[theme]
    n, k = 14, 4
    unary = 1.2 * torch.randn(n, generator=generator(2))
    unary[6:10] = torch.tensor([1.5, 0.7, 0.8, 1.4])
    figure, (ax,) = panels((1,), 2.1)
    plain = ag.Subset(k).marginals(unary)
    linked = ag.ChainSubset(k).marginals(torch.cat([unary, torch.full((n - 1,), 2.0)]))
    rows = [("Subset(4)", plain), ("ChainSubset(4)", linked[:n])]
    cells(ax, torch.stack([z for _, z in rows]), ink)
    for i, (name, _) in enumerate(rows):
        ax.text(-0.2, -i - 0.5, name, ha="right", va="center", size=10, color=ink)
    for j, score in enumerate(unary.tolist()):
        ax.text(j + 0.5, 0.3, f"{score:.1f}", ha="center", va="center", size=8.5, color=ink)
    ax.text(-0.2, 0.3, "unary scores", ha="right", va="center", size=10, color=ink)
    for j, weight in enumerate(linked[n:].tolist()):
        if weight > 0.02:
            arc = {"lw": 0.6 + 5 * weight, "alpha": 0.3 + 0.7 * weight, "color": GREEN}
            ax.add_patch(
                FancyArrowPatch(
                    (j + 0.55, -2.1),
                    (j + 1.45, -2.1),
                    arrowstyle="-",
                    connectionstyle="arc3,rad=0.45",
                    **arc,
                )
            )
    ax.text(-0.2, -2.4, "pairs chosen together", ha="right", va="center", size=10, color=ink)
    ax.set(xlim=(-3.6, n + 0.1), ylim=(-2.7, 0.6))
    return figure


def permutation(theme: str) -> Figure:
    """One perturbed matrix, relaxed and chosen."""
    ink = INK[theme]
    w = 1.5 * torch.randn(5, 5, generator=generator(5))
    p = ag.Permutation()
    figure, axes = panels((1,) * 5, 2.3)
    scored(axes[0], w, ink)
    title(axes[0], "scores + noise", ink)
    for ax, tau in zip(axes[1:3], (1.0, 0.3), strict=True):
        cells(ax, p.relax(w, tau), ink)
        title(ax, rf"Sinkhorn, $\tau$ = {tau:g}", ink)
    cells(axes[3], p.relax(w, 1.0, regularizer=ag.Euclidean()), ink)
    title(axes[3], r"Euclidean, $\tau$ = 1", ink)
    cells(axes[4], p.argmax(w), ink, GREEN)
    title(axes[4], "arg max", ink)
    return figure


def matching(theme: str) -> Figure:
    """Three places, five items: full and partial, soft and hard."""
    ink = INK[theme]
    w = torch.tensor(
        [[2.0, 1.6, -1.0, -0.5, 0.3], [1.9, 0.2, -0.8, -1.0, 0.1], [-0.4, -0.9, -0.3, -1.2, -0.7]]
    )
    figure, axes = panels((1,) * 4, 2.6)
    full, part = ag.Matching(), ag.Matching(partial=True)
    shown = [
        ("full, soft", full.relax(w, 0.5), BLUE),
        ("full, arg max", full.argmax(w), GREEN),
        ("partial, soft", part.relax(w, 0.5), BLUE),
        ("partial, arg max", part.argmax(w), GREEN),
    ]
    for ax, (name, z, colour) in zip(axes, shown, strict=True):
        left = [(0.0, 2.0 - i) for i in range(3)]
        right = [(1.6, 2.5 - 0.75 * j) for j in range(5)]
        for i, a in enumerate(left):
            for j, b in enumerate(right):
                line(ax, a, b, z[i, j].item(), colour)
        for i, a in enumerate(left):
            node(ax, a, "abc"[i], theme, 0.15)
        for j, b in enumerate(right):
            node(ax, b, str(j + 1), theme, 0.15)
        title(ax, name, ink)
        ax.set(xlim=(-0.3, 1.9), ylim=(-0.8, 2.8), aspect="equal")
    return figure


def spanning_tree(theme: str) -> Figure:
    """Edge probabilities as the temperature falls, and the best tree."""
    ink = INK[theme]
    n = 7
    w = 1.3 * torch.randn(n, n, generator=generator(8))
    w = (w + w.mT) / math.sqrt(2)
    figure, axes = panels((1,) * 4, 2.7)
    tree = ag.SpanningTree()
    shown = [(rf"$\tau$ = {tau:g}", tree.relax(w, tau), BLUE) for tau in (4.0, 1.0, 0.3)]
    shown.append(("arg max", tree.argmax(w), GREEN))
    turn = [math.pi / 2 + 2 * math.pi * i / n for i in range(n)]
    places = [(math.cos(t), math.sin(t)) for t in turn]
    for ax, (name, z, colour) in zip(axes, shown, strict=True):
        for i in range(n):
            for j in range(i):
                line(ax, places[i], places[j], z[i, j].item(), colour)
        for i, at in enumerate(places):
            node(ax, at, str(i), theme, 0.13)
        title(ax, name, ink)
        ax.set(xlim=(-1.25, 1.25), ylim=(-1.2, 1.25), aspect="equal")
    return figure


WORDS = ("root", "she", "saw", "the", "dog", "bark")


def arborescence(theme: str) -> Figure:
    """Heads of words: arc probabilities above, the best tree below."""
    ink = INK[theme]
    n = len(WORDS)
    w = 0.8 * torch.randn(n, n, generator=generator(3))
    for head, child in ((0, 2), (2, 1), (4, 3), (2, 5), (5, 4)):
        w[head, child] += 2.2
    figure, axes = panels((1, 1), 2.3)
    a = ag.Arborescence(root=0)
    shown = [(r"relaxed, $\tau$ = 1", a.relax(w), BLUE), ("arg max", a.argmax(w), GREEN)]
    for ax, (name, z, colour) in zip(axes, shown, strict=True):
        for head in range(n):
            for child in range(n):
                weight = z[head, child].item()
                if weight > 0.02:
                    bend = -0.55 if head < child else 0.55
                    arrow = FancyArrowPatch(
                        (head + 0.08 * (1 if head < child else -1), 0.25),
                        (child, 0.25),
                        connectionstyle=f"arc3,rad={bend}",
                        arrowstyle=f"-|>,head_length={2.5 + 3 * weight},head_width={1.2 + 2 * weight}",
                        lw=0.6 + 2.6 * weight,
                        alpha=0.2 + 0.8 * weight,
                        color=colour,
                        shrinkA=0,
                        shrinkB=0,
                    )
                    ax.add_patch(arrow)
        for i, word in enumerate(WORDS):
            style = {"style": "italic"} if i == 0 else {}
            ax.text(i, 0, word, ha="center", va="center", size=10, color=ink, **style)
        title(ax, name, ink)
        ax.set(xlim=(-0.4, n - 0.6), ylim=(-0.2, 1.45))
    return figure


def chain(theme: str) -> Figure:
    """A trellis: marginals of tags and of neighbouring pairs, with the best path."""
    ink = INK[theme]
    length, tags = 8, 3
    g = generator(12)
    unary = 1.8 * torch.randn(length, tags, generator=g)
    pairwise = (0.8 * torch.eye(tags)).expand(length - 1, tags, tags)
    scores = ag.Chain.scores(unary, pairwise)
    mu = ag.Chain().marginals(scores)
    best = ag.Chain.tags(ag.Chain().argmax(scores)).tolist()
    figure, (ax,) = panels((1,), 2.7)
    place = mu.sum(-1)  # the tag of each place but the last
    place = torch.cat([place, mu[-1:].sum(-2)])
    for t in range(length - 1):
        for i in range(tags):
            for j in range(tags):
                line(ax, (1.3 * t, -i), (1.3 * (t + 1), -j), mu[t, i, j].item(), BLUE)
    path = [1.3 * t for t in range(length)], [-b for b in best]
    ax.plot(*path, color=ORANGE, lw=1.8, ls=(0, (4, 3)), zorder=2)
    for t in range(length):
        for i in range(tags):
            p = place[t, i].item()
            ax.add_patch(Circle((1.3 * t, -i), 0.2, fc=PAPER[theme], ec=ink, lw=0.8, zorder=3))
            ax.add_patch(Circle((1.3 * t, -i), 0.2, fc=(BLUE, p), ec="none", zorder=4))
            shade = "white" if p > 0.65 else ink
            ax.text(1.3 * t, -i, f"{p:.2f}"[1:] if p < 0.995 else "1", ha="center", va="center",
                    size=7.5, color=shade, zorder=5)  # fmt: skip
        ax.text(1.3 * t, 0.5, f"place {t + 1}", ha="center", size=9, color=ink)
    for i in range(tags):
        ax.text(-0.45, -i, "ABC"[i], ha="right", va="center", size=10, color=ink)
    ax.set(xlim=(-0.8, 1.3 * (length - 1) + 0.4), ylim=(-tags + 0.6, 0.85), aspect="equal")
    return figure


def best_path(scores: Tensor) -> Tensor:
    """The corner-to-corner path of largest total score, moving right or down; `(*batch, n, n)`."""
    n = scores.shape[-1]
    total = torch.full((*scores.shape[:-2], n + 1, n + 1), -math.inf)
    total[..., 0, 1] = total[..., 1, 0] = 0.0
    for i in range(n):
        for j in range(n):
            before = torch.maximum(total[..., i, j + 1], total[..., i + 1, j])
            total[..., i + 1, j + 1] = before + scores[..., i, j]
    on_path = torch.zeros_like(scores)
    flat, up = total.reshape(-1, n + 1, n + 1), on_path.view(-1, n, n)
    for row in range(len(flat)):  # follow the larger predecessor back from the end
        i = j = n - 1
        while i >= 0 and j >= 0:
            up[row, i, j] = 1.0
            i, j = (i - 1, j) if flat[row, i, j + 1] >= flat[row, i + 1, j] else (i, j - 1)
    return on_path


def oracle(theme: str) -> Figure:
    """A user's own solver: the best path through a grid, chosen, perturbed, averaged."""
    ink = INK[theme]
    n = 7
    g = generator(4)
    ground = torch.rand(n, n, generator=g) * 2
    paths = ag.Oracle(best_path, event_dims=2)
    q = ag.Perturbed(paths, ground, noise=ag.Normal(), noise_scale=0.5)
    figure, axes = panels((1,) * 4, 2.7)
    scored(axes[0], ground, ink)
    title(axes[0], "scores", ink)
    cells(axes[1], paths.argmax(ground), ink, GREEN)
    title(axes[1], "arg max", ink)
    cells(axes[2], q.sample(generator=g), ink, GREEN)
    title(axes[2], "a perturbed choice", ink)
    cells(axes[3], q.sample((400,), generator=g).mean(0), ink)
    title(axes[3], "mean of 400", ink)
    return figure


PICTURES: dict[str, Callable[[str], Figure]] = {
    "one_hot": one_hot,
    "bits": bits,
    "subset": subset,
    "chain_subset": chain_subset,
    "permutation": permutation,
    "matching": matching,
    "spanning_tree": spanning_tree,
    "arborescence": arborescence,
    "chain": chain,
    "oracle": oracle,
}


def main(names: Sequence[str]) -> None:
    ASSETS.mkdir(parents=True, exist_ok=True)
    # text as outlines, and neither a date nor random ids: the same drawing is the same file
    settings = {"svg.fonttype": "path", "svg.hashsalt": "argrad", "font.family": "DejaVu Sans"}
    with mpl.rc_context(settings):
        for name in names or PICTURES:
            for theme in INK:
                path = ASSETS / f"{name}-{theme}.svg"
                figure = PICTURES[name](theme)
                figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    main(sys.argv[1:])
