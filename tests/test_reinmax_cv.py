"""ReinMaxCV has ReinMax's mean for every eta, by enumeration of the samples, and less variance."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

import argrad as ag
from argrad._diagnose import replicate_gradients
from argrad.estimators import reinmax, reinmax_cv
from argrad.testing import z_bound

F64 = torch.float64
N = 4


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


COSTS = {
    "linear": lambda x: x @ seeded(x.shape[-1], seed=1),
    "quadratic": lambda x: (
        x @ seeded(x.shape[-1], seed=1)
        + ((x @ seeded(x.shape[-1], x.shape[-1], seed=2)) * x).sum(-1) / x.shape[-1] ** 0.5
    ),
    "tanh": lambda x: torch.tanh(x @ seeded(x.shape[-1], 6, seed=3)) @ seeded(6, seed=4),
}


def moments(monkeypatch, estimator: ag.Estimator, module, cost, samples: int) -> tuple[Tensor, Tensor]:
    """Mean and summed variance over everything that `samples` draws of one categorical can be."""
    outcomes = torch.tensor(list(itertools.product(range(N), repeat=samples)))  # (N^S, S)
    hard = torch.eye(N, dtype=F64)[outcomes].movedim(1, 0)  # (S, N^S, N)
    monkeypatch.setattr(module, "draw_one_hot", lambda scores, generator: hard)
    theta = seeded(N, seed=5)
    grads = estimator.evaluate(cost, ag.Gibbs(ag.OneHot(), theta.expand(len(outcomes), N))).scores_grad
    weights = theta.softmax(-1)[outcomes].prod(-1)[:, None]
    mean = (weights * grads).sum(0)
    return mean, (weights * (grads - mean) ** 2).sum()


@pytest.mark.parametrize("cost", COSTS.values(), ids=COSTS)
@pytest.mark.parametrize("eta", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("samples", [2, 3])
def test_mean_is_that_of_reinmax(monkeypatch, cost, eta: float, samples: int) -> None:
    expected, _ = moments(monkeypatch, ag.ReinMax(), reinmax, cost, 1)
    mean, _ = moments(
        monkeypatch, ag.ReinMaxCV(eta, num_samples=samples, decay=1.0), reinmax_cv, cost, samples
    )
    torch.testing.assert_close(mean, expected, atol=1e-13, rtol=1e-12)  # rounding of float64


def test_eta_zero_is_reinmax_and_linear_costs_have_no_variance(monkeypatch) -> None:
    for cost in COSTS.values():
        _, plain = moments(monkeypatch, ag.ReinMax(num_samples=2), reinmax, cost, 2)
        _, none = moments(monkeypatch, ag.ReinMaxCV(0.0, decay=1.0), reinmax_cv, cost, 2)
        torch.testing.assert_close(none, plain)
    _, left = moments(monkeypatch, ag.ReinMaxCV(1.0, decay=1.0), reinmax_cv, COSTS["linear"], 2)
    assert left < 1e-28


def best(monkeypatch, cost) -> tuple[float, float, float]:
    """The best eta, and the variance there and at 0: a parabola through three points, by enumeration."""
    at = {}
    for eta in (-1, 0, 1):
        estimator = ag.ReinMaxCV(eta, decay=1.0).double()
        at[eta] = moments(monkeypatch, estimator, reinmax_cv, cost, 2)[1].item()
    curvature, slope = (at[1] + at[-1]) / 2 - at[0], (at[1] - at[-1]) / 2
    return -slope / (2 * curvature), at[0] - slope**2 / (4 * curvature), at[0]


@pytest.mark.statistical
@pytest.mark.parametrize("cost", COSTS.values(), ids=COSTS)
def test_eta_finds_its_best_value(monkeypatch, cost) -> None:
    eta, least, plain = best(monkeypatch, cost)
    assert least < plain
    monkeypatch.undo()
    est = ag.ReinMaxCV(decay=0.999)
    q = ag.Gibbs(ag.OneHot(), seeded(N, seed=5).expand(20_000, N))
    est.evaluate(cost, q, generator=torch.Generator().manual_seed(0))
    # a ratio of means of 20 000: within a few per cent
    assert abs(est.eta.item() - eta) < 0.1
    found = est.eta.clone()
    est.eval().evaluate(cost, q)
    assert torch.equal(found, est.eta)


@pytest.mark.statistical
@pytest.mark.parametrize("name", COSTS)
def test_less_variance_with_several_variables(name: str) -> None:
    """Three categoricals of four classes, eta as it was found, as many evaluations for both."""
    cost = COSTS[name]
    q = ag.Gibbs(ag.OneHot(), seeded(3, 4, seed=6)).independent(1)

    def f(z: Tensor) -> Tensor:
        return cost(z.flatten(-2))

    controlled = ag.ReinMaxCV()
    replicate_gradients(controlled, f, q, 20_000, torch.Generator().manual_seed(9))
    first, second = (
        replicate_gradients(e, f, q, 40_000, torch.Generator().manual_seed(i))[0].flatten(1)
        for i, e in enumerate((ag.ReinMax(num_samples=2), controlled.eval()))
    )
    # each is known to about 1 %; how much is gained depends on the cost, nothing is lost on any
    ratio = second.var(0).sum() / first.var(0).sum()
    assert ratio < {"linear": 0.01, "quadratic": 0.9, "tanh": 1.02}[name]
    gap = first.mean(0) - second.mean(0)
    error = torch.sqrt((first.var(0) + second.var(0)) / len(first))
    z = torch.where(gap.abs() < 1e-12, 0.0, gap / error)
    assert z.abs().max() < z_bound(len(gap))


def test_one_sample_is_refused() -> None:
    q = ag.Gibbs(ag.OneHot(), torch.zeros(3, requires_grad=True))
    with pytest.raises(ag.InputError, match="at least 2"):
        ag.ReinMaxCV(num_samples=1)
    with pytest.raises(ag.InputError, match="use `ReinMax`"):
        ag.ReinMaxCV().rsample(q)
    assert ag.ReinMaxCV().rsample(q, (2, 5)).shape == (2, 5, 3)
