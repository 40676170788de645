"""The temperature recipe: the integral, and the command."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import expit, softmax

from argrad.cli import main
from argrad.recipes.temperature import mean_by_integration


@pytest.mark.parametrize("tau", [0.05, 0.5, 1.0, 3.0, 50.0])
def test_two_classes_agree_with_the_logistic_integral(tau):
    """For two classes E y is the mean of a sigmoid under logistic noise."""
    log_p = np.log([0.2, 0.8])
    gap = log_p[0] - log_p[1]
    expected = quad(
        lambda x: expit((gap + x) / tau) * expit(x) * expit(-x), -60, 60, points=[-gap], limit=500
    )
    # quad states its own error; the trapezoid rule is exact to rounding
    assert mean_by_integration(log_p, tau)[0] == pytest.approx(expected[0], abs=expected[1] + 1e-13)


@pytest.mark.parametrize("tau", [0.01, 0.3, 1.0, 7.0, 1000.0])
def test_the_mean_is_a_law_and_changes_places_with_the_temperature(tau):
    log_p = np.log([0.05, 0.1, 0.05, 0.15, 0.1, 0.4, 0.15])
    mean = mean_by_integration(log_p, tau)
    assert mean.sum() == pytest.approx(1, abs=1e-13)  # rounding of a few thousand terms
    assert mean[0] == pytest.approx(mean[2], abs=1e-15)
    # the argument behind `tau > 1`, from the other side: the same law with g and gamma exchanged
    np.testing.assert_allclose(mean_by_integration(log_p / tau, 1 / tau), mean, rtol=1e-12)


def test_the_limits_are_p_and_uniform():
    log_p = np.log([0.1, 0.2, 0.7])
    # E y - p is of order tau^2, E y - 1/n of order 1/tau
    np.testing.assert_allclose(mean_by_integration(log_p, 1e-4), [0.1, 0.2, 0.7], atol=1e-7)
    np.testing.assert_allclose(mean_by_integration(log_p, 1e5), softmax(log_p / 1e5), atol=1e-8)


def test_the_smoke_run_keeps_its_bands_and_draws_the_figure(tmp_path):
    assert main(["reproduce", "temperature", "--smoke", "--out", str(tmp_path)]) == 0
    results = json.loads((tmp_path / "temperature" / "results.json").read_text())
    assert len(results["cells"]) == 4
    for cell in results["cells"]:
        assert cell["band"] is not None and cell["in_band"]
        # alpha = 1e-6 for 28 comparisons, see `_ERRORS_OFF`
        assert cell["metrics"]["errors off"][0] < 5.6
    page = (tmp_path / "temperature" / "report.html").read_text("utf-8")
    assert (
        "categorical" in page and page.count("<rect") == 6 * 5 * 7
    )  # mean and five draws, five columns


def test_other_laws_and_temperatures_and_a_wrong_one(tmp_path, capsys):
    small = ["--smoke", "--steps", "2", "--batch", "100", "--out", str(tmp_path)]
    assert main(["reproduce", "temperature", "--probabilities", "3,7", "--tau", "2", *small]) == 0
    results = json.loads((tmp_path / "temperature" / "results.json").read_text())
    assert [c["column"] for c in results["cells"]] == ["tau = 2"]
    assert main(["reproduce", "temperature", "--probabilities", "1", *small]) == 2
    assert "at least two numbers" in capsys.readouterr().err
