"""Conditional Gumbels: their laws against closed forms and rejection, and exactness at extreme log-probabilities."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import argrad as ag
from argrad.testing import assert_cdf, assert_frequencies

INF = math.inf
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
LOGITS = torch.tensor([0.3, -1.2, 1.0, 0.0], dtype=torch.float64)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rows(logits: Tensor, count: int) -> Tensor:
    return logits.expand(count, -1).contiguous()


def truncated_cdf(location: float, upper: float):
    """P(G <= x | G <= upper) = exp(exp(loc - upper) - exp(loc - x)) for G ~ Gumbel(loc)."""
    from numpy import exp, minimum

    return lambda x: exp(exp(location - upper) - exp(location - minimum(x, upper)))


# ---- truncated -----------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("location", "upper"), [(0.0, 1.0), (0.0, -2.0), (3.0, 0.5), (-1.0, 6.0)])
def test_truncated_gumbel_law(location: float, upper: float, dtype: torch.dtype) -> None:
    logits = torch.full((100, 500), location, dtype=dtype)
    g = ag.truncated_gumbel(logits, torch.tensor(upper), generator=seeded(1))
    assert (g <= upper).all()
    if dtype == torch.float64:
        assert_cdf(g, truncated_cdf(location, upper))
    else:  # rounding puts a few draws exactly on the bound
        assert_cdf(g[g < upper], truncated_cdf(location, upper))


def test_truncated_gumbel_far_below_its_location() -> None:
    """exp(-exp(...)) underflows everywhere here: the draw is upper minus an exponential over exp(gap)."""
    g = ag.truncated_gumbel(torch.full((1000,), 200.0), torch.tensor(-200.0))
    assert g.isfinite().all()
    assert (g <= -200).all()
    g = ag.truncated_gumbel(torch.full((1000,), -1000.0), torch.tensor(500.0))
    assert (g < -900).all()


def test_truncated_gumbel_without_a_bound_is_a_gumbel() -> None:
    rng, logits = ag.CounterRNG(0), torch.randn(3, 5)
    free = ag.truncated_gumbel(logits, torch.tensor(INF), generator=rng)
    torch.testing.assert_close(free, logits + rng.gumbel(3, 5))
    assert (ag.truncated_gumbel(logits, torch.tensor(-INF)) == -INF).all()


def test_truncated_gumbel_bounds_broadcast() -> None:
    logits = torch.zeros(3, 5)
    for upper in (torch.tensor(0.0), torch.zeros(5), torch.zeros(3, 1), torch.zeros(3, 5)):
        assert (ag.truncated_gumbel(logits, upper) <= 0).all()


# ---- given the maximum ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("log_p", [-2.0, -20.0, -87.0, -100.0, -400.0, -800.0])
def test_the_maximum_is_exact(log_p: float, dtype: torch.dtype) -> None:
    """The textbook form is NaN from -87 on."""
    logits = log_p + torch.randn(300, 8, dtype=dtype)
    maximum = log_p + 3 * torch.randn(300, dtype=dtype)
    g = ag.gumbel_given_max(logits, maximum)
    assert torch.equal(g.amax(-1), maximum)
    assert g.isfinite().all()
    assert ((g == maximum[:, None]).sum(-1) == 1).double().mean() > 0.99  # others only tie by rounding


@pytest.mark.statistical
@pytest.mark.parametrize("maximum", [-1.0, 0.5, 4.0])
def test_given_max_law_in_closed_form(maximum: float) -> None:
    """The winner is softmax-distributed; the others are Gumbels truncated at the maximum."""
    g = ag.gumbel_given_max(
        rows(LOGITS, 50_000), torch.full((50_000,), maximum).double(), generator=seeded(2)
    )
    winner = g.argmax(-1)
    assert_frequencies(torch.bincount(winner, minlength=4), LOGITS.softmax(-1))
    for i in range(4):
        loser = g[winner != i, i]
        assert_cdf(loser, truncated_cdf(LOGITS[i].item(), maximum), alpha=2e-7)


@pytest.mark.statistical
def test_given_max_law_by_rejection() -> None:
    """Unconditional draws whose maximum fell near T, sorted, against conditional ones."""
    target = 2.0
    g = rows(LOGITS, 2_000_000) + ag.random.gumbel(
        (2_000_000, 4), dtype=torch.float64, generator=seeded(3)
    )
    kept = g[(g.amax(-1) - target).abs() < 0.005]
    kept = kept - kept.amax(-1, keepdim=True) + target
    drawn = ag.gumbel_given_max(
        rows(LOGITS, len(kept)), torch.full((len(kept),), target).double(), generator=seeded(4)
    )
    assert len(kept) > 3000
    for i in range(4):
        assert stats.ks_2samp(kept[:, i].numpy(), drawn[:, i].numpy()).pvalue > 2e-7
    for a, b in ((0, 1), (1, 2), (0, 3)):  # jointly: gaps of pairs
        assert (
            stats.ks_2samp(
                (kept[:, a] - kept[:, b]).numpy(), (drawn[:, a] - drawn[:, b]).numpy()
            ).pvalue
            > 2e-7
        )


@pytest.mark.statistical
def test_a_sampled_maximum_gives_back_unconditional_gumbels() -> None:
    n = 50_000
    top = LOGITS.logsumexp(-1) + ag.random.gumbel((n,), dtype=torch.float64, generator=seeded(5))
    g = ag.gumbel_given_max(rows(LOGITS, n), top, generator=seeded(6))
    for i in range(4):
        assert_cdf(g[:, i], lambda x, i=i: stats.gumbel_r.cdf(x, loc=LOGITS[i].item()), alpha=2e-7)
    correlation = torch.corrcoef((g - LOGITS).T) - torch.eye(4)
    assert correlation.abs().max() < stats.norm.isf(1e-6 / 12) / math.sqrt(n)


def test_given_max_keeps_the_order_of_the_draws() -> None:
    rng, logits = ag.CounterRNG(3), torch.randn(50, 6)
    order = (logits + rng.gumbel(50, 6)).argsort(-1)
    g = ag.gumbel_given_max(logits, torch.zeros(50), generator=rng)
    assert torch.equal(g.argsort(-1), order)


def test_given_max_against_the_textbook_form() -> None:
    """Where that one is still a number: -log(exp(-T) - exp(-Z) + exp(-G)), in float64."""
    rng, logits, t = (
        ag.CounterRNG(3),
        torch.randn(50, 6, dtype=torch.float64),
        torch.randn(50, 1, dtype=torch.float64),
    )
    g = logits + rng.gumbel(50, 6, dtype=torch.float64)
    z = g.amax(-1, keepdim=True)
    expected = -torch.log(torch.exp(-t) - torch.exp(-z) + torch.exp(-g))
    # the textbook form itself loses about three digits by cancellation
    torch.testing.assert_close(
        ag.gumbel_given_max(logits, t[:, 0], generator=rng), expected, rtol=1e-9, atol=1e-9
    )


def test_given_max_of_minus_infinity() -> None:
    """A dead beam: everything below it is dead, and has gradient 0."""
    logits = torch.randn(2, 3, requires_grad=True)
    top = torch.tensor([-INF, 1.0], requires_grad=True)
    g = ag.gumbel_given_max(logits, top)
    assert (g[0] == -INF).all()
    assert g[1].amax() == 1
    grads = torch.autograd.grad(g[1].sum(), (logits, top))
    assert all(x.isfinite().all() for x in grads)
    assert (grads[0][0] == 0).all()
    empty = torch.full((1, 3), -INF)
    assert (ag.gumbel_given_max(empty, torch.tensor([-INF])) == -INF).all()


# ---- given the winner ----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0, 1000.0])
def test_the_observed_item_wins(scale: float, dtype: torch.dtype) -> None:
    logits = (scale * torch.randn(5000, 6)).to(dtype)
    observed = torch.randint(6, (5000,))
    g = ag.gumbel_posterior(logits, observed)
    assert g.isfinite().all()
    assert torch.equal(g.argmax(-1), observed)
    best = g.gather(-1, observed[:, None])
    assert ((g >= best).sum(-1) == 1).all(), "the winner is tied"


@pytest.mark.statistical
@pytest.mark.parametrize("source", [seeded, ag.CounterRNG], ids=["torch", "counter"])
def test_posterior_law(source) -> None:
    """The maximum is Gumbel(log-sum-exp) whatever was observed; the others are truncated there."""
    n, loc = 40_000, LOGITS.logsumexp(-1).item()
    for winner in range(4):
        g = ag.gumbel_posterior(rows(LOGITS, n), torch.full((n,), winner), generator=source(7))
        assert_cdf(g[:, winner], lambda x: stats.gumbel_r.cdf(x, loc=loc), alpha=2e-7)
        other = (winner + 1) % 4
        top, low = g[:, winner].numpy(), g[:, other].numpy()
        a = LOGITS[other].item()
        from numpy import exp

        uniform = exp(exp(a - top) - exp(a - low))  # the truncated distribution function at the draw
        assert stats.kstest(uniform, "uniform").pvalue > 2e-7


@pytest.mark.statistical
@pytest.mark.parametrize("source", [seeded, ag.CounterRNG], ids=["torch", "counter"])
def test_the_posterior_of_a_draw_is_the_prior(source) -> None:
    """Marginalising over observed ~ softmax gives back independent Gumbels."""
    n = 60_000
    observed = ag.gumbel_max(rows(LOGITS, n), generator=seeded(8))
    g = ag.gumbel_posterior(rows(LOGITS, n), observed, generator=source(9))
    for i in range(4):
        assert_cdf(g[:, i], lambda x, i=i: stats.gumbel_r.cdf(x, loc=LOGITS[i].item()), alpha=2e-7)
    correlation = torch.corrcoef((g - LOGITS).T) - torch.eye(4)
    assert correlation.abs().max() < stats.norm.isf(1e-6 / 12) / math.sqrt(n)


# ---- shared --------------------------------------------------------------------------------------


def given_max(x: Tensor, **options: object) -> Tensor:
    return ag.gumbel_given_max(x, torch.zeros(x.shape[:-1], dtype=x.dtype), **options)


def truncated(x: Tensor, **options: object) -> Tensor:
    return ag.truncated_gumbel(x, torch.zeros((), dtype=x.dtype), **options)


def posterior(x: Tensor, **options: object) -> Tensor:
    return ag.gumbel_posterior(x, torch.zeros(x.shape[:-1]).long(), **options)


FUNCTIONS = [given_max, truncated, posterior]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_masks_and_dtypes(function, dtype: torch.dtype) -> None:
    logits = torch.randn(200, 6).to(dtype).requires_grad_()
    mask = torch.rand(200, 6) < 0.6
    mask[:, 0] = True
    g = function(logits, mask=mask)
    assert g.dtype == dtype
    assert torch.equal(g == -INF, ~mask)
    grad = torch.autograd.grad(g[mask].sum(), logits)[0]
    assert grad.isfinite().all()
    assert (grad[~mask] == 0).all()
    same = function(logits.masked_fill(~mask, -INF), generator=ag.CounterRNG(0))
    assert torch.equal(function(logits, mask=mask, generator=ag.CounterRNG(0)), same)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5), (0, 5), (2, 0, 5)])
def test_shapes(function, shape: tuple[int, ...]) -> None:
    assert function(torch.zeros(shape)).shape == shape


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_global_generator_is_left_alone(function) -> None:
    logits, before = torch.randn(3, 5), torch.get_rng_state()
    for source in (seeded, ag.CounterRNG):
        assert torch.equal(function(logits, generator=source(1)), function(logits, generator=source(1)))
    assert torch.equal(torch.get_rng_state(), before)


def test_other_dims() -> None:
    logits, rng = torch.randn(4, 3), ag.CounterRNG(0)
    observed = torch.tensor([0, 1, 3])
    expected = ag.gumbel_posterior(logits.T, observed, generator=rng).T
    assert torch.equal(ag.gumbel_posterior(logits, observed, dim=0, generator=rng), expected)
    top = torch.zeros(3)
    expected = ag.gumbel_given_max(logits.T, top, generator=rng).T
    assert torch.equal(ag.gumbel_given_max(logits, top, dim=0, generator=rng), expected)


def test_derivatives() -> None:
    rng = ag.CounterRNG(2)
    logits = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    top = torch.randn(2, dtype=torch.float64, requires_grad=True)
    upper = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)

    def given(x: Tensor, t: Tensor) -> Tensor:
        return ag.gumbel_given_max(x, t, generator=rng)

    def below(x: Tensor, b: Tensor) -> Tensor:
        return ag.truncated_gumbel(x, b, generator=rng)

    def after(x: Tensor) -> Tensor:
        return ag.gumbel_posterior(x, torch.tensor([1, 3]), generator=rng)

    for function, inputs in ((given, (logits, top)), (below, (logits, upper)), (after, (logits,))):
        assert gradcheck(function, inputs)
        assert gradgradcheck(function, inputs)
