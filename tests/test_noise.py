"""Every noise of `cases.py`: the public contract, its law, its divergence."""

from __future__ import annotations

import math

import mpmath
import pytest
import torch
from scipy import stats
from torch.autograd import gradcheck, gradgradcheck

import argrad as ag
from argrad._gamma import gamma
from argrad.testing import assert_cdf, assert_mean, check_noise
from cases import NOISES

LAWS = {
    ag.Gumbel(): stats.gumbel_r.cdf,
    ag.Logistic(): stats.logistic.cdf,
    ag.Normal(): stats.norm.cdf,
    ag.NegExponential(): lambda x: 1 - stats.expon.cdf(-x),
    ag.ExponentialRace(): stats.expon.cdf,
}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_contract(noise: ag.Noise) -> None:
    check_noise(noise)
    assert eval(repr(noise), vars(ag)) == noise
    assert hash(noise) == hash(eval(repr(noise), vars(ag)))


def test_the_contract_check_finds_what_it_looks_for() -> None:
    class Shifted(ag.Gumbel):
        def _draw(self, shape, **options):
            return 0.1 + super()._draw(shape, **options)

    class Global(ag.Gumbel):
        def _draw(self, shape, **options):
            return torch.rand(tuple(shape)).to(options["dtype"])

    for wrong in (Shifted(), Global()):
        with pytest.raises(AssertionError):
            check_noise(wrong)


@pytest.mark.statistical
@pytest.mark.parametrize("noise", LAWS, ids=repr)
def test_law(noise: ag.Noise) -> None:
    assert_cdf(noise.sample((200_000,), dtype=torch.float32, generator=seeded(1)), LAWS[noise])


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_like_has_the_form_of_the_scores(noise: ag.Noise) -> None:
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        scores = torch.zeros(2, 3, 4, dtype=dtype)
        draw = noise.like(scores, generator=ag.CounterRNG(0))
        assert draw.shape == scores.shape
        assert draw.dtype == dtype
        assert draw.isfinite().all()
        assert torch.equal(draw, noise.like(scores, generator=ag.CounterRNG(0)))


@pytest.mark.statistical
@pytest.mark.parametrize("source", [seeded, ag.CounterRNG], ids=["torch", "counter"])
@pytest.mark.parametrize("concentration", [0.02, 0.2, 1.0, 2.5, 30.0])
def test_gamma(concentration: float, source) -> None:
    x = gamma(concentration, (100, 1000), dtype=torch.float64, generator=source(2))
    assert_cdf(x, lambda v: stats.gamma.cdf(v, concentration))


@pytest.mark.statistical
@pytest.mark.parametrize(("k", "terms"), [(1, 1), (1, 10), (4, 10), (10, 5)])
def test_sum_of_gamma_adds_up_to_the_largest_of_exponentials(k: int, terms: int) -> None:
    """sum_i E_i / i is the maximum of s exponentials (Renyi), whose distribution function is known."""
    x = ag.SumOfGamma(k, terms).sample((20_000, k), dtype=torch.float64, generator=seeded(3)).sum(-1)
    assert_cdf(x + math.log(terms), lambda v: (-torch.expm1(-torch.as_tensor(v))).numpy() ** terms)


@pytest.mark.statistical
def test_sum_of_gamma_in_half_precision_has_the_same_mean() -> None:
    for dtype in (torch.bfloat16, torch.float16):
        x = ag.SumOfGamma(3).sample((20_000, 3), dtype=dtype, generator=seeded(4))
        harmonic = sum(1 / i for i in range(1, 11))
        assert_mean(
            x.float().sum(-1), harmonic - math.log(10)
        )  # rounding errors average out below 1e-5


@pytest.mark.statistical
def test_a_race_of_exponentials_is_a_softmax_draw() -> None:
    logits = torch.tensor([1.0, 0.0, -1.0]).expand(50_000, 3)
    race = ag.ExponentialRace()
    w = race.perturb(logits, race.like(logits, generator=seeded(5)))
    ag.testing.assert_frequencies(torch.bincount(w.argmax(-1), minlength=3), logits[0].softmax(-1))
    closed = race.perturb(torch.tensor([0.0, -math.inf]), torch.ones(2))
    assert closed[1] == -math.inf


@pytest.mark.statistical
@pytest.mark.parametrize("level", [-1e4, -300.0, -95.0, 95.0, 300.0, 1e4])
def test_a_race_at_any_level_is_the_same_race(level: float) -> None:
    """exp(-scores) overflows below -88 and is 0 above 104 in float32."""
    logits = torch.tensor([1.0, 0.0, -1.0, -math.inf]).expand(50_000, 4)
    race = ag.ExponentialRace()
    w = race.perturb(logits + level, race.like(logits, generator=seeded(6)))
    assert bool(w[:, :3].isfinite().all()) and bool((w[:, :3] < 0).all())
    ag.testing.assert_frequencies(torch.bincount(w.argmax(-1), minlength=4), logits[0].softmax(-1))


def test_a_race_stays_as_it_is_where_it_fits() -> None:
    race, scores = ag.ExponentialRace(), torch.linspace(-80.0, 60.0, 12)
    draw = race.like(scores, generator=seeded(7))
    assert torch.equal(race.perturb(scores, draw), -draw * torch.exp(-scores))


def test_a_race_of_matrices_has_one_unit_for_each() -> None:
    scores = torch.tensor([[[-500.0, -400.0], [-499.0, -500.5]], [[3.0, 0.0], [1.0, 2.0]]])
    race = ag.ExponentialRace()
    w = race.perturb(scores, torch.ones(2, 2, 2), event_dims=2)
    exact = -torch.exp(-scores.double())
    for mine, other in zip(w.double(), exact, strict=True):
        ratio = mine / other
        # one constant, as exact as float32 arguments of exp near 500: 2^-24 * 500
        torch.testing.assert_close(ratio / ratio[0, 0], torch.ones(2, 2).double(), rtol=1e-4, atol=0)
    # sums of different sizes: the trees of a graph far down are those of the graph itself
    graph = torch.randn(200, 5, 5, generator=seeded(8))
    draw = race.like(graph, generator=seeded(9))
    near, far = (race.perturb(graph + c, draw, event_dims=2) for c in (0.0, -300.0))
    same = (ag.Arborescence().argmax(near) == ag.Arborescence().argmax(far)).flatten(1).all(-1)
    assert float(same.float().mean()) > 0.99  # scores near 300 are rounded to 3e-5


def test_divergences_are_exact() -> None:
    """Against mpmath, also where the direct forms cancel."""
    shifts = torch.tensor(
        [-30.0, -2.0, -0.31, -0.29, -1e-3, -1e-6, 0.0, 1e-4, 0.1, 0.3, 5.0, 40.0]
    ).double()
    with mpmath.workdps(50):
        exact = [
            0.0 if s == 0 else float(s * mpmath.coth(mpmath.mpf(s) / 2) - 2) for s in shifts.tolist()
        ]
        gumbel = [float(mpmath.mpf(s) + mpmath.exp(-mpmath.mpf(s)) - 1) for s in shifts.tolist()]
    # the series leaves out a relative 2e-11
    torch.testing.assert_close(
        ag.Logistic().kl(shifts), torch.tensor(exact, dtype=torch.float64), rtol=1e-10, atol=0
    )
    torch.testing.assert_close(
        ag.Gumbel().kl(shifts), torch.tensor(gumbel, dtype=torch.float64), rtol=1e-9, atol=1e-15
    )
    assert torch.equal(ag.Normal().kl(shifts), shifts**2 / 2)


@pytest.mark.parametrize("noise", [ag.Gumbel(), ag.Logistic(), ag.Normal()], ids=repr)
def test_derivatives(noise: ag.Noise) -> None:
    x = torch.tensor([-5.0, -0.2, 0.0, 0.1, 3.0], dtype=torch.float64, requires_grad=True)
    for function in (noise.log_prob, noise.kl):
        assert gradcheck(function, x)
        assert gradgradcheck(function, x)


def test_log_densities_far_out() -> None:
    x = torch.tensor([-80.0, -40.0, 40.0, 1e4], dtype=torch.float64)
    torch.testing.assert_close(
        ag.Logistic().log_prob(x), torch.tensor(stats.logistic.logpdf(x.numpy())), rtol=1e-12, atol=0
    )
    torch.testing.assert_close(
        ag.Gumbel().log_prob(x[1:]),
        torch.tensor(stats.gumbel_r.logpdf(x[1:].numpy())),
        rtol=1e-12,
        atol=0,
    )


def test_what_has_no_closed_form_says_so() -> None:
    with pytest.raises(
        ag.UnsupportedError, match=r"`SumOfGamma\(k=3, terms=10\)` has no closed-form density"
    ):
        ag.SumOfGamma(3).log_prob(torch.zeros(2))
    with pytest.raises(
        ag.UnsupportedError, match=r"no closed-form KL between two locations. Use Gumbel"
    ):
        ag.NegExponential().kl(torch.zeros(2))
    for bad in (0, -1, 2.5, True):
        with pytest.raises(
            ag.InputError, match=r"`SumOfGamma\(k=...\)` must be an integer of at least 1"
        ):
            ag.SumOfGamma(bad)
    with pytest.raises(ag.InputError, match=r"`gamma\(concentration=...\)` must be positive"):
        gamma(0.0, (2,))
