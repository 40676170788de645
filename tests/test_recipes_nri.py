"""The recipe nri-tree: layouts as networkx has them, factorised messages, three laws, the smoke run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

import argrad as ag
from argrad.cli import main
from argrad.recipes import nri_tree
from argrad.recipes.bench import Run
from argrad.recipes.data.layouts import Layouts, layouts, spring_step
from argrad.recipes.nri_model import (
    LAWS,
    VARIANCE,
    Decoder,
    Encoder,
    edges,
    negative_log_likelihood,
    roll_out,
)

G = torch.Generator


# ---- layouts -------------------------------------------------------------------------------------


def test_a_frame_is_one_iteration_of_networkx() -> None:
    made = layouts(3, 7, 2, G().manual_seed(0))
    x = torch.randn(3, 7, 2, generator=G().manual_seed(1), dtype=torch.float64)
    ours = spring_step(x, made.trees.double())
    for start, tree, moved in zip(x, made.trees, ours, strict=True):
        graph = nx.from_numpy_array(tree.numpy())
        before = {i: start[i].numpy() for i in range(7)}
        after = nx.spring_layout(graph, pos=before, iterations=1, threshold=1e-10)
        theirs = torch.tensor(np.stack([after[i] for i in range(7)]))
        torch.testing.assert_close(moved, theirs, rtol=1e-6, atol=1e-6)


def test_layouts_are_motions_of_trees() -> None:
    made = layouts(20, 6, 5, G().manual_seed(0))
    assert made.frames.shape == (20, 5, 6, 2) and bool(ag.SpanningTree().contains(made.trees).all())
    assert made.frames.abs().amax() == 1 and made.frames.mean(2).abs().amax() < 1e-5
    torch.testing.assert_close(
        spring_step(made.frames[:, 1], made.trees), made.frames[:, 2], rtol=1e-5, atol=1e-5
    )


# ---- the decoder ---------------------------------------------------------------------------------


def usual(decoder: Decoder, x: Tensor, z: Tensor) -> Tensor:
    """Every pair by itself: what Eq. (1) of the model must add up to."""
    n = z.shape[-1]
    h = decoder.edge.in_features
    total = torch.zeros(*x.shape[:-1], h)
    for r in range(n):
        for s in range(n):
            if s != r:
                first = (decoder.sender(x[:, :, s]) + decoder.receiver(x[:, :, r])).relu()
                there = decoder.edge(first[..., :h]) * z[:, s, r, None, None]
                absent = decoder.none(first[..., h:]) * (1 - z[:, s, r, None, None])
                total[:, :, r] += there + absent
    return x + decoder.node(torch.cat([x, total], -1))


def test_factorised_messages_are_those_of_all_pairs() -> None:
    torch.manual_seed(0)
    decoder, x, z = Decoder(6), torch.randn(2, 3, 4, 2), torch.rand(2, 4, 4)
    torch.testing.assert_close(decoder(x, z), usual(decoder, x, z), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ahead", [1, 3, 4, 9, 20])
def test_a_roll_out_starts_anew_from_what_was_seen(ahead: int) -> None:
    torch.manual_seed(0)
    decoder, frames, z = Decoder(4), torch.randn(2, 10, 4, 2), torch.rand(2, 4, 4)
    found = roll_out(decoder, frames, z, ahead)
    x, expected = frames[:, :1], []
    for t in range(9):
        x = decoder(frames[:, t : t + 1] if t % ahead == 0 else x, z)
        expected.append(x)
    torch.testing.assert_close(found, torch.cat(expected, 1), rtol=1e-4, atol=1e-5)


def test_the_likelihood_is_gaussian() -> None:
    frames, predicted = torch.randn(2, 4, 3, 2), torch.randn(2, 3, 3, 2)
    law = torch.distributions.Normal(predicted, VARIANCE**0.5)
    constant = torch.distributions.Normal(0.0, VARIANCE**0.5).log_prob(torch.zeros(()))
    exact = -(law.log_prob(frames[:, 1:]) - constant).sum((1, 2, 3)) / 3
    torch.testing.assert_close(negative_log_likelihood(predicted, frames), exact, rtol=1e-4, atol=1e-2)


# ---- laws of edges -------------------------------------------------------------------------------


@pytest.mark.parametrize("column", LAWS)
def test_every_law_draws_edges(column: str) -> None:
    scores = torch.randn(5, 6, 6, generator=G().manual_seed(0), requires_grad=True)
    law = edges(column, scores)
    z = law.matrix(law.q.sample(generator=G().manual_seed(1)))
    assert z.shape == (5, 6, 6) and bool((z.diagonal(dim1=1, dim2=2) == 0).all())
    if column != nri_tree.INDEPENDENT:
        assert torch.equal(z, z.mT) and bool((z.sum((1, 2)) == 10).all())
    assert bool(ag.SpanningTree().contains(z).all()) == (column == nri_tree.TREE)
    soft = law.matrix(law.q.rsample(tau=0.5, generator=G().manual_seed(1)))
    (soft.square().sum() + law.kl().sum()).backward()
    assert scores.grad is not None and bool(scores.grad.isfinite().all())
    assert law.kl().shape == (5,) and bool((law.kl() >= 0).all())


def test_the_encoder_does_not_know_the_names_of_nodes() -> None:
    torch.manual_seed(0)
    encoder, frames = Encoder(4, 8).eval(), torch.randn(2, 4, 5, 2)
    order = torch.tensor([3, 1, 4, 0, 2])
    moved = encoder(frames[:, :, order])
    torch.testing.assert_close(moved, encoder(frames)[:, order][:, :, order], rtol=1e-4, atol=1e-5)


def test_agreement_takes_the_better_of_edges_and_their_complement() -> None:
    true = layouts(10, 6, 2, G().manual_seed(0)).trees
    off = 1 - torch.eye(6)
    assert nri_tree.agreement(true, true) == (100, 100)
    assert nri_tree.agreement((1 - true) * off, true) == (100, 100)
    everything = nri_tree.agreement(off.expand(10, 6, 6), true)
    assert everything.recall == 100 and everything.precision == pytest.approx(100 / 3)


def test_blank_frames_follow_those_that_are_seen() -> None:
    frames = torch.randn(2, 3, 4, 2)
    padded = nri_tree.with_blanks(frames, 5)
    assert torch.equal(padded[:, :3], frames) and padded.shape == (2, 5, 4, 2)
    assert not padded[:, 3:].any()


@pytest.mark.parametrize("steps", [2, 3])
def test_frames_behind_the_opening_have_no_part_in_it(
    steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where they hold noise instead, a model of two steps is the same and one of three steps is another."""
    sizes = {"frames": (5,), "nodes": 4, "graphs": 40, "test_graphs": 10, "batch": 20, "hidden": 4}
    config = nri_tree.Config(**sizes, steps=steps, opening=3, opening_steps=2, starts=1)
    monkeypatch.setattr(nri_tree, "evaluate", lambda model, *rest: {"model": model})

    def parameters(name: str) -> Tensor:
        torch.manual_seed(0)
        run, cell = Run(tmp_path / name, 0), nri_tree.cells(config)[-1]
        run.folder.mkdir()
        model: Any = nri_tree.train(config, cell, run)["model"]
        return parameters_to_vector(model.parameters())

    def spoilt(*args: Any) -> Layouts:
        got, g = layouts(*args), G().manual_seed(1)
        late = torch.randn(got.frames[:, 3:].shape, generator=g)
        return Layouts(torch.cat([got.frames[:, :3], late], 1), got.trees)

    clean = parameters("clean")
    monkeypatch.setattr(nri_tree, "layouts", spoilt)
    assert torch.equal(clean, parameters("spoilt")) == (steps == 2)


def test_the_best_start_goes_on(tmp_path: Path) -> None:
    """Of one that was trained and one that was not."""
    sizes = {"frames": (5,), "nodes": 5, "graphs": 200, "batch": 20, "hidden": 16}
    config, run = nri_tree.Config(**sizes, steps=60), Run(tmp_path, 0)
    cell, seen = nri_tree.cells(config)[-1], layouts(200, 5, 5, G().manual_seed(0))
    torch.manual_seed(0)
    starts = [nri_tree.Start(config, cell, run, seen, number) for number in range(2)]
    for step in range(30):
        starts[1].step(step)
    assert nri_tree.choose(starts, seen.frames, 30) is starts[1]
    assert all(start.model.training for start in starts)


# ---- the recipe ----------------------------------------------------------------------------------


def test_the_smoke_run_draws_graphs(tmp_path: Path) -> None:
    assert main(["reproduce", "nri-tree", "--smoke", "--out", str(tmp_path)]) == 0
    page = (tmp_path / "nri-tree" / "report.html").read_text()
    assert page.count('aria-label="a graph"') == 4 * 6
    cells = json.loads((tmp_path / "nri-tree" / "results.json").read_text())["cells"]
    assert [c["column"] for c in cells] == list(LAWS)
    tree = cells[-1]["metrics"]
    found = (
        tree["recall"][0] / tree["precision"][0]
    )  # edges found, of those there are: a tree, or its complement
    assert found == pytest.approx(1) or found == pytest.approx(12 / 8)


def test_an_unknown_column_gets_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["reproduce", "nri-tree", "--columns", "Star", "--out", str(tmp_path)]) == 2
    assert "there is no column 'Star'" in capsys.readouterr().err
