"""The Gaussian VAE: its ways against closed forms, its parts, and the command."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from argrad.cli import main
from argrad.recipes import gaussian_toy, gaussian_vae
from argrad.recipes.bench.run import Run
from argrad.recipes.data import load
from argrad.recipes.gaussian_model import WAYS, ScoreWay, Vae, kl
from argrad.recipes.gaussian_vae import RECIPE, Stages
from argrad.reparam import Normal
from interruptions import resumed_and_whole

G = torch.Generator


def test_the_kl_has_no_stray_halves():
    """The lecture prints 0.3069 for this one."""
    q = Normal(torch.tensor([[1.0]]), torch.tensor([[2.0]]))
    torch.testing.assert_close(kl(q), torch.tensor([0.5 * (4 + 1 - 1 - math.log(4))]))


@pytest.mark.statistical
@pytest.mark.parametrize("name", WAYS)
def test_every_way_is_unbiased(name: str):
    """E (c . z)^2 = (c . mu)^2 + sum c^2 sigma^2: the gradients for mu and log sigma are known."""
    c = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    encoded = torch.tensor([0.3, -0.2, 1.0, -0.5, 0.2, 0.0], dtype=torch.float64)
    mu, log_sigma = encoded.chunk(2)
    exact = torch.cat([2 * (c @ mu) * c, 2 * c**2 * (2 * log_sigma).exp()])
    way, rows = WAYS[name](), 20_000
    if isinstance(way, ScoreWay):
        way.mean.fill_(1.0)
        way.eval()
    leaf = encoded.expand(rows, -1).clone().requires_grad_()
    value = way(lambda z: (z @ c) ** 2, Vae.law(leaf), G().manual_seed(0))
    (grads,) = torch.autograd.grad(value.sum(), leaf)
    z = (grads.mean(0) - exact) / (grads.std(0) / rows**0.5)
    limit = stats.norm.isf(1e-6 / 2 / 6)  # six comparisons, alpha = 1e-6 for the test
    assert z.abs().max() < limit
    mean = (c @ mu) ** 2 + (c**2 * (2 * log_sigma).exp()).sum()
    assert abs(value.mean() - mean) < limit * value.std() / rows**0.5


@pytest.mark.parametrize("name", WAYS)
def test_every_way_trains_what_is_inside_the_cost(name: str):
    weight = nn.Parameter(torch.tensor(2.0))
    q = Vae.law(torch.zeros(5, 4, requires_grad=True))
    seen: list[Tensor] = []

    def cost(z: Tensor) -> Tensor:
        seen.append(z.detach())
        return weight * (z**2).sum(-1)

    WAYS[name]()(cost, q, G().manual_seed(0)).sum().backward()
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, (seen[0] ** 2).sum(-1).mean(0).sum())


def test_the_running_mean_is_read_before_it_learns():
    way = ScoreWay(1, "running")
    first, second = torch.tensor([[1.0, 3.0]]), torch.tensor([[10.0, 20.0]])
    assert way.advantage(first).tolist() == [[-1.0, 1.0]]  # nothing seen yet: these themselves
    assert way.advantage(second).tolist() == [[8.0, 18.0]]
    assert way.mean.item() == pytest.approx(0.95 * 2 + 0.05 * 15)
    way.eval()
    way.advantage(second)
    assert way.mean.item() == pytest.approx(0.95 * 2 + 0.05 * 15)


def test_leave_one_out_takes_the_mean_of_the_others():
    cost = torch.tensor([[1.0], [2.0], [6.0]])
    assert ScoreWay(3, "others").advantage(cost).flatten().tolist() == [-3.0, -1.5, 4.5]


def test_the_stages_are_those_of_the_paper():
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], 1e-3)
    stages, seen = Stages(optimizer, 3280), []
    for step in range(3280):
        stages.step(step)
        seen.append(round(optimizer.param_groups[0]["lr"], 6))
    runs = {rate: seen.count(rate) for rate in dict.fromkeys(seen)}
    rates = [round(1e-4 * round(10 ** (1 - i / 7), 1), 6) for i in range(8)]
    assert runs == {rate: 3**i for i, rate in enumerate(rates)}


def test_the_bound_is_the_likelihood_of_a_decoder_that_ignores_z(tmp_path: Path):
    """Then q may be anything: its part cancels, and the bound is exact up to its importance weights."""
    torch.manual_seed(0)
    images = load("digits")
    config = replace(RECIPE.smoke, test_images=20, test_samples=4000)
    model = Vae(64, (5,), 2, torch.full((64,), 0.3))
    with torch.no_grad():
        for parameter in model.decoder[0].parameters():
            parameter.zero_()
    found = gaussian_vae.evaluate(config, model, images, Run(tmp_path, 0))
    x = gaussian_vae.held_out(images, 20)
    exact = model.cost(torch.zeros(1, 20, 2), x).mean().item()
    # weights p(z)/q(z) of a q near the prior: deviation below 2 each, mean over 4000 x 20 draws
    assert found["-bound"] == pytest.approx(exact, abs=0.05)
    assert found["-ELBO"] == pytest.approx(exact + found["KL"], abs=0.05)


def test_the_toy_has_the_closed_variances():
    claims = list(gaussian_toy.claims())
    assert len(claims) == 3
    assert all(claim.holds for claim in claims)
    assert [gaussian_toy.WAYS[1].variance(mu) for mu in (0.0, 3.0, 5.0)] == [60, 888, 3960]


def test_an_interrupted_run_ends_with_the_same_numbers(tmp_path: Path):
    config = replace(RECIPE.smoke, steps=12)
    cell = next(c for c in RECIPE.cells(config) if "running" in c.column)
    resumed, whole = resumed_and_whole(RECIPE, config, cell, tmp_path, stop=5)
    assert resumed == whole


def test_the_smoke_run(tmp_path: Path):
    assert main(["reproduce", "gaussian-vae", "--smoke", "--out", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "gaussian-vae" / "results.json").read_text())
    assert [c["column"] for c in results["cells"]] == list(WAYS)
    assert all(c["band"] is not None and c["in_band"] for c in results["cells"])
    page = (tmp_path / "gaussian-vae" / "report.html").read_text("utf-8")
    assert page.count("<img") == 1 + 2 * len(WAYS) and "best constant" in page


def test_columns_are_chosen_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    config = replace(RECIPE.config, columns=("reinforce", "leaveoneout(4)"))
    assert [c.column for c in RECIPE.cells(config)] == ["REINFORCE", "LeaveOneOut(4)"]
    assert main(["reproduce", "gaussian-vae", "--columns", "none", "--out", str(tmp_path)]) == 2
    assert "there is no column 'none'" in capsys.readouterr().err
