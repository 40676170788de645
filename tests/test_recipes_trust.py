"""The recipes calibrate, open-set and reinforce-vs-reparam: their parts, and their smoke runs."""

from __future__ import annotations

import pytest
import torch

import argrad as ag
from argrad.cli import main
from argrad.recipes import calibrate, open_set, reinforce_vs_reparam
from argrad.testing import assert_mean
from smoke_run import smoke

# ---- reinforce-vs-reparam ----------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("name", reinforce_vs_reparam.WAYS)
def test_every_way_estimates_the_gradient_with_its_variance(name):
    way = reinforce_vs_reparam.WAYS[name]
    a, mu = 2.0, torch.tensor(1.5, dtype=torch.float64)
    eps = reinforce_vs_reparam.noise(way.kind, 16, 5000, torch.Generator().manual_seed(0))
    gradient = way.gradient(a, mu, eps).mean(0)
    assert_mean(gradient, 2 * a * mu.item())
    if way.variance is not None:
        # the variance of 5000 estimates is known to a few percent; antithetic pairs have none at all
        exact = way.variance(a, mu.item())
        assert 16 * gradient.var().item() == pytest.approx(exact, rel=0.25, abs=1e-20)


def test_smoke_run_of_the_two_gradients(tmp_path):
    results, page = smoke("reinforce-vs-reparam", tmp_path)
    assert len(results["cells"]) == 3 * len(reinforce_vs_reparam.WAYS)
    published = {(c["row"], c["column"]): c["published"] for c in results["cells"]}
    assert published["theta = 0", "REINFORCE"] == 888
    assert published["theta = 0", "REINFORCE, best constant"] == 312
    assert "Descent" in page and "the optimum is" in page


# ---- calibrate -----------------------------------------------------------------------------------------


def test_noise_is_where_it_is_said_to_be():
    config = calibrate.Config(label_noise=0.5)
    x, y = calibrate.noisy_digits(config, "pixel noise", torch.Generator().manual_seed(0))
    clean, wrong = calibrate.noisy_digits(config, "label noise", torch.Generator().manual_seed(0))
    assert (x - clean).std().item() == pytest.approx(0.45, rel=0.02)  # 115 008 pixels know it to 0.2 %
    changed = (y != wrong).float().mean().item()
    assert changed == pytest.approx(
        0.45, abs=0.05
    )  # half are drawn anew, a tenth of these stay; 1797 digits


def test_smoke_run_of_calibration(tmp_path):
    results, page = smoke("calibrate", tmp_path)
    cells = {(c["row"], c["column"]): c["metrics"] for c in results["cells"]}
    for row in calibrate.ROWS:
        before, after = cells[row, "as trained"], cells[row, "temperature"]
        assert before["right"] == after["right"]
        assert before["scale"] == [1.0]
    assert "Confidence and accuracy" in page
    assert page.count('class="chart"') >= 2


def test_calibration_refuses_an_unknown_row(capsys, tmp_path):
    assert main(["reproduce", "calibrate", "--rows", "rain", "--out", str(tmp_path)]) != 0
    assert "there is no row 'rain'" in capsys.readouterr().err


# ---- open-set ------------------------------------------------------------------------------------------


def test_unknown_inputs_are_outside_of_the_data():
    problem = open_set.toy(open_set.Config(test=500), torch.Generator().manual_seed(0))
    for points in problem.unknown.values():
        assert len(points) == 500
        assert torch.cdist(points, open_set.CENTRES).amin() > 4 * open_set.SPREAD
    digits = open_set.digits(open_set.Config(), torch.Generator().manual_seed(0))
    assert set(digits.y.tolist()) == set(digits.labels.tolist()) == set(range(6))
    assert len(digits.x) + len(digits.test) + len(digits.unknown["6 to 9"]) == 1797


@pytest.mark.parametrize("name", open_set.WAYS)
def test_every_way_has_a_network_and_a_score(name):
    way, config = open_set.WAYS[name], open_set.Config(hidden=(8,), gan_hidden=8, test=20)
    g = torch.Generator().manual_seed(0)
    problem = open_set.toy(config, g)
    gan = open_set.build(config, way, problem)
    outliers = None if way.source is None else way.source(problem, g)
    loss = open_set.loss_of(way, gan.classifier, problem.x[:16], problem.y[:16], outliers)
    assert bool(loss.isfinite())
    found = open_set.measure(way, gan.classifier, problem)
    assert 0 <= found["AUROC"] <= 100 and "AUROC, box of 20" in found
    if way.gan:
        step = gan.step(problem.x[:16], problem.y[:16], gan.optimizers(), generator=g)
        assert isinstance(step, ag.openset.GanStep)


def test_smoke_run_of_open_sets(tmp_path):
    results, page = smoke("open-set", tmp_path)
    auroc = {(c["row"], c["column"]): c["mean"] for c in results["cells"]}
    assert auroc["toy", "kl shell"] > auroc["toy", "cross-entropy"]
    assert page.count("<figure>") == 3  # a plane for each way on the toy
    assert "data:image/png;base64," in page


def test_open_sets_refuse_an_unknown_column(capsys, tmp_path):
    assert main(["reproduce", "open-set", "--columns", "magic", "--out", str(tmp_path)]) != 0
    assert "there is no 'magic'" in capsys.readouterr().err
