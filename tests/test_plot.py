"""Figures: what is drawn is what was computed, and matplotlib stays out of everything else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
import torch

import argrad as ag

mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def no_figures_left() -> Iterator[None]:
    yield
    plt.close("all")


def keep(ax: Any, name: str) -> None:
    """Every figure can be drawn; kept where `ARGRAD_SCREENSHOTS` says."""
    folder = os.environ.get("ARGRAD_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        ax.figure.savefig(Path(folder) / f"plot-{name}.png", dpi=150)
    ax.figure.canvas.draw()


def beam_sample() -> ag.SequenceSample:
    table = torch.tensor([[-0.5, 0.8, 0.4], [0.6, -0.4, 0.5], [0.2, 0.9, -0.6]])

    def step(token, state):
        state = state if token is None else token
        return table[state], state

    return ag.stochastic_beam_search(
        step, torch.tensor([0, 0]), 5, eos=0, max_len=4, generator=ag.CounterRNG(3)
    )


def test_simplex_shows_every_sample_in_the_winners_colour() -> None:
    logits = torch.tensor([0.8, 0.2, -0.6])
    ax = ag.plot.simplex(logits, 0.3, draws=120, generator=ag.CounterRNG(1))
    keep(ax, "simplex")
    winners = ag.gumbel_max(logits.double().expand(120, 3), generator=ag.CounterRNG(1))
    drawn = [len(points.get_offsets()) for points in ax.collections if len(points.get_offsets()) > 0]
    assert drawn == [c for c in torch.bincount(winners, minlength=3).tolist() if c]
    with pytest.raises(ag.InputError, match="three numbers"):
        ag.plot.simplex(torch.zeros(4))


def test_temperature_strip_is_softmax_of_the_same_noise() -> None:
    logits, rng = torch.tensor([1.0, 0.0, -1.0]), ag.CounterRNG(2)
    ax = ag.plot.temperature_strip(logits, (2.0, 0.5, 0.1), draws=6, generator=rng)
    keep(ax, "strip")
    shown = torch.as_tensor(ax.images[0].get_array().filled())
    torch.testing.assert_close(
        shown[1].view(6, 3), ag.gumbel_softmax(logits.expand(6, 3), 0.5, generator=rng)
    )


def test_bias_variance_has_a_row_an_estimator() -> None:
    q = ag.Gibbs(ag.OneHot(), torch.tensor([0.3, -0.5, 0.2, 0.0]).double())
    made = [
        ag.Reinforce(),
        ag.LeaveOneOut(4),
        ag.StraightThrough(),
        ag.GumbelST(),
        ag.LocalExpectation(),
        ag.Arm(),
    ]
    cost = lambda z: (z * torch.tensor([1.0, 4.0, 2.0, 0.0]).double()).sum(-1) ** 3  # noqa: E731
    report = ag.diagnose(cost, q, made, replicates=300, generator=torch.Generator().manual_seed(0))
    ax = report.plot()
    keep(ax, "bias-variance")
    rows = [label.get_text() for label in ax.get_yticklabels()]
    assert set(rows) == {type(e).__name__ for e in made} - {"Arm"}  # which is refused: not bits
    least = min((r for r in report.rows if r.mse == r.mse), key=lambda r: r.mse)
    assert rows[-1] == least.name  # on top


def test_reliability_diagram() -> None:
    g = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(2000, 5, generator=g)
    labels = ag.gumbel_max(logits / 2, generator=g)
    ax = ag.plot.reliability(logits, labels, bins=10, title="twice too sure")
    keep(ax, "reliability")
    assert (
        ax.get_title()
        == f"twice too sure: ECE {100 * ag.calibration.ece(logits, labels, bins=10):.1f} %"
    )


def test_surface() -> None:
    ax = ag.plot.surface(lambda x: x[:, 0], 2.0, torch.zeros(3, 2), resolution=11)
    keep(ax, "surface")
    shown = ax.images[0].get_array().filled()
    assert shown[:, 0].max() == -2 and shown[:, -1].min() == 2  # the first coordinate to the right


@pytest.mark.parametrize("directed", [False, True])
def test_graphs_draw_each_edge_once(directed: bool) -> None:
    scores = torch.randn(6, 6, generator=torch.Generator().manual_seed(1))
    made = ag.Arborescence() if directed else ag.SpanningTree()
    for name, z in (("soft", made.relax(scores, 0.5)), ("hard", made.argmax(scores))):
        ax = ag.plot.graph(z, directed=directed, names="ABCDEF", title=name)
        keep(ax, f"graph-{name}-{'directed' if directed else 'undirected'}")
        visible = z > 0.01
        edges = int(visible.sum()) if directed else int(visible.triu(1).sum())
        assert len(ax.patches) == edges + 6
    with pytest.raises(ag.InputError, match="square matrix"):
        ag.plot.graph(scores[:3])


def test_trees_stand_on_their_root() -> None:
    scores = torch.randn(7, 7, generator=torch.Generator().manual_seed(2))
    directed = ag.plot.tree(ag.Arborescence(root=2).argmax(scores), root=2, names="abcdefg")
    keep(directed, "tree")
    undirected = ag.plot.tree(ag.SpanningTree().argmax(scores), root=4)
    for ax, top in ((directed, "c"), (undirected, "4")):
        assert len(ax.patches) == 6 + 7
        highest = max(ax.texts, key=lambda text: text.get_position()[1])
        assert highest.get_text() == top
        places = {text.get_position() for text in ax.texts}
        assert len(places) == 7
    with pytest.raises(ag.InputError, match="must reach every node"):
        ag.plot.tree(torch.zeros(3, 3))


def test_permutation_matrices() -> None:
    scores = torch.randn(5, 5, generator=torch.Generator().manual_seed(3))
    soft = ag.plot.permutation_matrix(ag.Permutation().relax(scores, 0.5), items="abcde", title="soft")
    hard = ag.plot.permutation_matrix(ag.Permutation().argmax(scores))
    keep(soft, "permutation-soft")
    assert [text.get_text() for text in hard.texts] == ["1"] * 5
    with pytest.raises(ag.InputError, match="must be a matrix"):
        ag.plot.permutation_matrix(torch.zeros(2, 3, 3))


def test_beam_tree_has_every_prefix_and_every_number() -> None:
    sample = beam_sample()
    ax = ag.plot.beam_tree(sample, 1, spell="·ab".__getitem__)
    keep(ax, "beam")
    texts = [text.get_text() for text in ax.texts]
    for log_prob, perturbed in zip(sample.log_prob[1], sample.perturbed[1], strict=True):
        assert f"φ {log_prob:.2f}   G {perturbed:.2f}" in texts
    sequences = [tuple(t[:n].tolist()) for t, n in zip(sample.tokens[1], sample.length[1], strict=True)]
    prefixes = {s[:i] for s in sequences for i in range(1, len(s) + 1)}
    assert len(ax.patches) == len(prefixes)
    with pytest.raises(ag.InputError, match="row"):
        ag.plot.beam_tree(sample, 2)


def test_plots_draw_where_they_are_told_and_leave_the_style_alone() -> None:
    before = mpl.rcParams.copy()
    figure, axes = plt.subplots(1, 2)
    assert ag.plot.graph(torch.ones(3, 3), ax=axes[0]) is axes[0]
    assert ag.plot.simplex(torch.zeros(3), ax=axes[1]) is axes[1]
    assert len(plt.get_fignums()) == 1 and figure.axes == list(axes)
    assert mpl.rcParams == before


def test_nothing_else_needs_matplotlib() -> None:
    hidden = "import sys; sys.modules['matplotlib'] = None"
    code = "import argrad as ag, torch; ag.plot; ag.gumbel_max(torch.zeros(3))"
    check = (
        f"{hidden}\n{code}\ntry: ag.plot.graph(torch.ones(2, 2))\nexcept ag.ArgradError as e: print(e)"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert 'pip install "argrad[plot]"' in done.stdout
