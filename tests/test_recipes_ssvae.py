"""The semi-supervised VAE: its bound against quadrature, its objective, its parts, and the command."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import argrad as ag
from argrad.cli import main
from argrad.recipes import ssvae_speed
from argrad.recipes.bench.run import Run
from argrad.recipes.data import load
from argrad.recipes.ssvae import COLUMNS, RECIPE, labelled_images, pull_at, temperature
from argrad.recipes.ssvae_model import Batch, SemiSupervisedVae, estimator, loss
from interruptions import resumed_and_whole

G = torch.Generator


@pytest.fixture
def small() -> tuple[SemiSupervisedVae, Batch]:
    torch.manual_seed(0)
    model = SemiSupervisedVae("dense", 3, 4, 6, 1).double()
    x = torch.bernoulli(torch.full((5, 9), 0.4, dtype=torch.float64), generator=G().manual_seed(1))
    return model, Batch(x, x[:2], torch.tensor([0, 3]))


def test_the_cost_and_the_entropy_bound_the_likelihood(small):
    """E U = -ELBO, at least -log p(x), which for one number z is a quadrature."""
    model, batch = small
    z = torch.linspace(-8, 8, 1601, dtype=torch.float64)
    weight = torch.exp(-0.5 * z**2) / math.sqrt(2 * math.pi) * 0.01
    with torch.no_grad():
        y = torch.eye(4, dtype=torch.float64)
        pixels = model.decode(y[:, None].expand(-1, 1601, -1), z[None, :, None].expand(4, -1, -1))
        log_p = -torch.nn.functional.softplus(pixels).sum(-1) + torch.einsum(
            "yzd,bd->byz", pixels, batch.x
        )
        likelihood = (log_p.exp() * weight).sum((1, 2)) / 4
        q = ag.Gibbs(ag.OneHot(), model.classifier(batch.x))
        h, g = model.image(batch.x), G().manual_seed(2)
        draws = torch.stack(
            [ag.Exact()(lambda y: model.cost(batch.x, h, y, g), q) - q.entropy() for _ in range(2000)]
        )
    error = draws.std(0) / 2000**0.5
    gap = draws.mean(0) + likelihood.log()  # KL(q(y, z|x) || p(y, z|x))
    assert (gap > -6 * error).all()
    assert (
        gap < 2
    ).all()  # q is not trained, but near the prior, and so is the posterior of nine pixels


def test_marginalisation_is_the_sum_over_classes(small):
    model, batch = small
    found = loss(model, batch, ag.Exact(), G().manual_seed(3), alpha=0.5, share=0.25)
    g = G().manual_seed(3)
    both = torch.cat([batch.x, batch.labelled])
    p = model.classifier(both)[:5].softmax(-1)
    h = model.image(both)
    costs = model.cost(batch.x, h[:5], torch.eye(4).double()[:, None].expand(4, 5, 4), g)
    free = (p.mT * costs).sum(0) + (p * p.log()).sum(-1)
    known = model.cost(batch.labelled, h[5:], torch.eye(4).double()[[0, 3]][None], g)
    right = -model.classifier(batch.labelled).log_softmax(-1)[[0, 1], [0, 3]]
    expected = free.mean() + 0.25 * known.mean() + 0.5 * right.mean()
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("column", COLUMNS)
def test_pull_is_the_share_of_the_gradient_that_reaches_the_classifier(small, column):
    model, batch = small
    grads = {}
    for pull in (0.0, 0.25, 1.0):
        value = loss(
            model, batch, estimator(column, 0.7), G().manual_seed(4), alpha=0.0, share=1.0, pull=pull
        )
        names = [model.classifier[0].weight, model.pixels.weight]
        grads[pull] = torch.autograd.grad(value, names)
    assert not grads[0.0][0].any()
    torch.testing.assert_close(grads[0.25][0], grads[1.0][0] / 4)
    torch.testing.assert_close(grads[0.25][1], grads[1.0][1])  # the decoder learns all the same


def test_labels_are_the_same_number_of_each_class():
    images = load("digits")
    x, y = labelled_images(images, 30, G().manual_seed(0))
    assert x.shape == (30, 64) and torch.bincount(y).tolist() == [3] * 10
    again, _ = labelled_images(images, 30, G().manual_seed(0))
    other, _ = labelled_images(images, 30, G().manual_seed(1))
    assert torch.equal(x, again) and not torch.equal(x, other)


def test_pull_and_temperature_follow_the_run():
    config = replace(RECIPE.config, steps=1000, pull_from=0.2, pull_by=0.4)
    assert [pull_at(config, s) for s in (0, 200, 300, 400, 999)] == [0, 0, pytest.approx(0.5), 1, 1]
    assert {pull_at(RECIPE.full, s) for s in (0, 1, 99_999)} == {1.0}
    tau = temperature(config)
    assert tau(0) == 1 and 0.5 < tau(699) < 0.6 and tau(800) == 0.5
    assert temperature(RECIPE.full)(1999) == 1
    assert temperature(RECIPE.full)(2000) == pytest.approx(math.exp(-0.06))


@pytest.mark.parametrize(("network", "side"), [("dense", 8), ("mixed", 8), ("mixed", 28), ("conv", 28)])
def test_every_network_takes_every_size(network, side):
    model = SemiSupervisedVae(network, side, 10, 12, 3)
    x = torch.bernoulli(torch.full((4, side * side), 0.3))
    batch = Batch(x, x[:2], torch.tensor([1, 2]))
    value = loss(model, batch, ag.Relaxed(tau=0.5), G().manual_seed(0), alpha=1.0, share=0.1)
    value.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_an_interrupted_run_ends_with_the_same_numbers(tmp_path: Path):
    config = replace(RECIPE.smoke, steps=8, network="mixed", test_images=50)  # with dropout
    cell = RECIPE.cells(config)[1]
    resumed, whole = resumed_and_whole(RECIPE, config, cell, tmp_path, stop=4)
    assert resumed == whole


def test_times_survive_an_interruption(tmp_path: Path, small):
    model, batch = small
    first = ssvae_speed.measure(model, batch, 3, Run(tmp_path, 0))
    assert first["value"] == pytest.approx(
        first["ms of marginalisation"] / first["ms of Gumbel-softmax"]
    )
    assert ssvae_speed.measure(model, batch, 3, Run(tmp_path, 0)) == first  # nothing left to do


def test_the_smoke_run(tmp_path: Path):
    assert main(["reproduce", "ssvae", "--smoke", "--out", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "ssvae" / "results.json").read_text())
    assert [c["column"] for c in results["cells"] if c["row"] == "accuracy"] == list(COLUMNS)
    assert all(c["band"] is not None and c["in_band"] for c in results["cells"])
    assert all(
        math.isfinite(c["metrics"]["-ELBO"][0]) for c in results["cells"] if c["row"] == "accuracy"
    )
    page = (tmp_path / "ssvae" / "report.html").read_text("utf-8")
    assert page.count("<img") == 2 * len(COLUMNS) and "9.9" in page


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--columns", "none"], "there is no column 'none'"),
        (["--rows", "none"], "there is no row 'none'"),
        (["--network", "conv"], "`--network conv` is for images of 28 x 28"),
    ],
)
def test_wrong_options_are_answered_by_a_sentence(tmp_path: Path, capsys, flags, sentence):
    assert main(["reproduce", "ssvae", "--smoke", *flags, "--out", str(tmp_path)]) == 2
    assert sentence in capsys.readouterr().err


def test_a_set_without_labels_is_refused():
    images = replace(load("digits"), labels=())
    with pytest.raises(ag.InputError, match="has no labels"):
        labelled_images(images, 100, G())
