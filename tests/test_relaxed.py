"""Distributions: the contract of `torch.distributions`, densities against torch and by integration, samples by KS."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch
import torch.distributions as D
from scipy import stats
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import argrad as ag
from argrad.testing import assert_cdf, assert_frequencies
from cases import DISTRIBUTIONS, DistributionCase

INF = math.inf
LOGITS = torch.tensor([0.5, -1.0, 1.5], dtype=torch.float64)
HALF = [torch.bfloat16, torch.float16]
every = pytest.mark.parametrize("case", DISTRIBUTIONS, ids=lambda case: case.name)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# ---- the contract of every distribution ----------------------------------------------------------


@every
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_shapes(case: DistributionCase, batch: tuple[int, ...]) -> None:
    q = case.make(torch.randn(*batch, 5))
    assert q.batch_shape == batch
    assert q.event_shape == (5,)
    for sample_shape in ((), (4,), (4, 2), torch.Size([3])):
        z = q.sample(sample_shape)
        assert z.shape == (*sample_shape, *batch, 5)
        assert not z.requires_grad
        if case.differentiable:
            assert q.rsample(sample_shape).shape == z.shape
            log_prob = q.log_prob(q.sample(sample_shape))
            assert log_prob.shape == (*sample_shape, *batch)
            assert log_prob.isfinite().all()


@every
def test_expand(case: DistributionCase) -> None:
    q = case.make(torch.randn(3, 4))
    wide = q.expand((5, 3))
    assert type(wide) is type(q)
    assert wide.batch_shape == (5, 3)
    assert wide.event_shape == (4,)
    assert wide.sample((2,)).shape == (2, 5, 3, 4)
    z, expected = wide.sample(generator=ag.CounterRNG(0)), q.sample((5,), generator=ag.CounterRNG(0))
    assert torch.equal(z, expected)
    if case.differentiable:
        assert torch.equal(wide.log_prob(z), q.log_prob(expected))


@every
def test_generators(case: DistributionCase) -> None:
    q = case.make(torch.randn(3, 4))
    before = torch.get_rng_state()
    for source in (seeded, ag.CounterRNG):
        assert torch.equal(q.sample((2,), generator=source(1)), q.sample((2,), generator=source(1)))
    one = seeded()
    assert not torch.equal(q.sample((20,), generator=one), q.sample((20,), generator=one))
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(ag.InputTypeError, match=r"generator=...\)` must be a `torch.Generator`"):
        q.sample(generator=3)


@every
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, *HALF])
def test_dtypes(case: DistributionCase, dtype: torch.dtype) -> None:
    if "tensor" in case.name and dtype in HALF:
        dtype = torch.float32
    q = case.make(torch.randn(3, 4).to(dtype))
    z = q.sample((50,))
    assert z.dtype == dtype
    assert z.isfinite().all()
    if case.differentiable:
        assert q.log_prob(z).dtype == dtype
        assert q.log_prob(z).isfinite().all()


@every
def test_copies(case: DistributionCase) -> None:
    logits = torch.randn(3, 4)
    q = case.make(logits)
    q.sample()
    for other in (copy.deepcopy(q), pickle.loads(pickle.dumps(q))):
        assert type(other) is type(q)
        assert torch.equal(
            other.sample((5,), generator=ag.CounterRNG(0)), q.sample((5,), generator=ag.CounterRNG(0))
        )
    expected = q.sample((5,), generator=ag.CounterRNG(0))
    other = copy.deepcopy(q)
    logits.add_(torch.randn(3, 4) * 10)
    assert torch.equal(other.sample((5,), generator=ag.CounterRNG(0)), expected)
    assert repr(q).startswith(type(q).__name__)


@every
def test_gradients_reach_the_logits(case: DistributionCase) -> None:
    if not case.differentiable:
        return
    logits = torch.randn(3, 4, requires_grad=True)
    q = case.make(logits)
    z = q.rsample((10,))
    grad = torch.autograd.grad((z * torch.randn(10, 3, 4)).sum(), logits)[0]
    assert grad.isfinite().all()
    assert grad.abs().sum() > 0
    z = case.make(logits).sample((10,))
    q = case.make(logits)
    z = q.sample((10,))
    grad = torch.autograd.grad(q.log_prob(z).sum(), logits)[0]
    assert grad.isfinite().all()


@every
def test_an_independent_wrapper(case: DistributionCase) -> None:
    if case.differentiable:
        q = D.Independent(case.make(torch.randn(2, 3)), 1)
        z = q.sample((4,))
        assert q.log_prob(z).shape == (4,)


# ---- RelaxedOneHot -------------------------------------------------------------------------------


@pytest.mark.parametrize("tau", [0.3, 0.7, 1.0, 2.0])
def test_one_hot_density_agrees_with_torch(tau: float) -> None:
    theirs = D.RelaxedOneHotCategorical(torch.tensor(tau, dtype=torch.float64), logits=LOGITS)
    ours = ag.RelaxedOneHot(tau, logits=LOGITS)
    y = theirs.sample((100,))
    y = y[(y > 1e-12).all(-1)]  # torch clamps below its eps
    torch.testing.assert_close(ours.log_prob(y), theirs.log_prob(y), rtol=1e-8, atol=1e-8)
    by_probs = ag.RelaxedOneHot(tau, probs=3 * LOGITS.softmax(-1))
    torch.testing.assert_close(by_probs.log_prob(y), ours.log_prob(y))


@pytest.mark.parametrize("tau", [0.5, 1.0, 3.0])
def test_one_hot_density_integrates_to_one(tau: float) -> None:
    """n = 2, over u = logit(y_1): dy = y (1 - y) du."""
    q = ag.RelaxedOneHot(tau, logits=LOGITS[:2])
    u = torch.linspace(-150, 150, 60_001, dtype=torch.float64)
    log_y = torch.stack([torch.nn.functional.logsigmoid(u), torch.nn.functional.logsigmoid(-u)], -1)
    density = torch.exp(q.log_prob_log(log_y) + log_y.sum(-1))
    assert torch.trapezoid(density, u).item() == pytest.approx(1, abs=1e-9)


@pytest.mark.statistical
@pytest.mark.parametrize("tau", [0.05, 0.5, 2.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_hot_samples_have_the_density(tau: float, dtype: torch.dtype) -> None:
    """tau (log y_1 - log y_2) is logistic around theta_1 - theta_2; and the argmax is a softmax draw."""
    q = ag.RelaxedOneHot(tau, logits=LOGITS.to(dtype))
    log_y = q.rsample_log((50_000,), generator=seeded(1)).double()
    gap = tau * (log_y[:, 0] - log_y[:, 1])
    assert_cdf(gap, lambda x: stats.logistic.cdf(x, loc=1.5))
    assert_frequencies(torch.bincount(log_y.argmax(-1), minlength=3), LOGITS.softmax(-1))


@pytest.mark.statistical
def test_one_hot_score_has_mean_zero() -> None:
    """E d log p / d theta = 0, a test of the normalisation for n = 3 (and of -inf)."""
    for logits in (LOGITS, torch.tensor([0.5, -INF, 1.0, 0.0], dtype=torch.float64)):
        x = logits.expand(40_000, -1).clone().requires_grad_()
        q = ag.RelaxedOneHot(0.7, logits=x)
        y = q.sample(generator=seeded(2))
        score = torch.autograd.grad(q.log_prob(y).sum(), x)[0]
        ag.testing.assert_mean(score, 0.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALF])
@pytest.mark.parametrize("tau", [0.05, 0.01])
def test_cold_samples_have_a_finite_density(tau: float, dtype: torch.dtype) -> None:
    """Their coordinates are exact zeros in float32; the remembered logarithms are not."""
    logits = torch.randn(500, 10).to(dtype).requires_grad_()
    q = ag.RelaxedOneHot(tau, logits=logits)
    y = q.rsample()
    log_prob = q.log_prob(y)
    assert log_prob.isfinite().all()
    grad = torch.autograd.grad(log_prob.sum(), logits)[0]
    assert grad.isfinite().all()
    if dtype == torch.float32:
        exact = ag.RelaxedOneHot(tau, logits=logits.detach().double())
        log_y = q.rsample_log(generator=ag.CounterRNG(0)).double()
        ours = q.log_prob_log(log_y.float())
        # sums of ten terms of size 100 in float32
        torch.testing.assert_close(ours.double(), exact.log_prob_log(log_y), rtol=1e-5, atol=1e-2)


def test_large_logits_keep_the_noise() -> None:
    rng = ag.CounterRNG(0)
    base = torch.tensor([0.0, 1.0, -2.0]).expand(100, 3)
    a, b = (
        ag.RelaxedOneHot(0.1, logits=base + shift).rsample_log(generator=rng)
        for shift in (0.0, 2.0**20)
    )
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_a_forbidden_item_is_a_smaller_simplex() -> None:
    logits = torch.tensor([0.5, -INF, 1.0], requires_grad=True)
    q = ag.RelaxedOneHot(0.5, logits=logits)
    y = q.rsample((100,))
    assert (y[:, 1] == 0).all()
    grad = torch.autograd.grad(y.square().sum() + q.log_prob(y).sum(), logits)[0]
    assert grad.isfinite().all()
    assert grad[1] == 0
    small = ag.RelaxedOneHot(0.5, logits=torch.tensor([0.5, 1.0]))
    y = torch.tensor([0.3, 0.0, 0.7])
    torch.testing.assert_close(q.log_prob(y), small.log_prob(y[[0, 2]]))
    assert q.log_prob(torch.tensor([0.3, 0.1, 0.6])) == -INF


def test_zero_probabilities_have_gradient_zero() -> None:
    probs = torch.tensor([0.0, 0.5, 0.5], requires_grad=True)
    for kind in (ag.RelaxedOneHot, ag.GumbelSoftmax):
        z = kind(0.5, probs=probs).rsample((10,))
        grad = torch.autograd.grad((z * torch.randn(10, 3)).sum(), probs)[0]
        assert grad.isfinite().all()
        assert grad[0] == 0


# ---- RelaxedBits ---------------------------------------------------------------------------------


@pytest.mark.parametrize("tau", [0.3, 1.0, 2.0])
def test_bits_density_agrees_with_torch(tau: float) -> None:
    theirs = D.Independent(D.RelaxedBernoulli(torch.tensor(tau, dtype=torch.float64), logits=LOGITS), 1)
    ours = ag.RelaxedBits(tau, logits=LOGITS)
    y = theirs.sample((100,))
    y = y[((y > 1e-9) & (y < 1 - 1e-9)).all(-1)]
    torch.testing.assert_close(ours.log_prob(y), theirs.log_prob(y), rtol=1e-7, atol=1e-7)
    by_probs = ag.RelaxedBits(tau, probs=LOGITS.sigmoid())
    torch.testing.assert_close(by_probs.log_prob(y), ours.log_prob(y))


@pytest.mark.parametrize("tau", [0.5, 1.0, 3.0])
def test_bits_density_integrates_to_one(tau: float) -> None:
    q = ag.RelaxedBits(tau, logits=LOGITS[:1])
    u = torch.linspace(-150, 150, 60_001, dtype=torch.float64)[:, None]
    jacobian = torch.nn.functional.logsigmoid(u) + torch.nn.functional.logsigmoid(-u)
    density = torch.exp(q.log_prob_logit(u) + jacobian[:, 0])
    assert torch.trapezoid(density, u[:, 0]).item() == pytest.approx(1, abs=1e-9)


@pytest.mark.statistical
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("tau", [0.05, 1.0])
def test_bits_have_the_density(tau: float, dtype: torch.dtype) -> None:
    logit = (
        ag.RelaxedBits(tau, logits=LOGITS.to(dtype))
        .rsample_logit((50_000,), generator=seeded(3))
        .double()
    )
    for i in range(3):
        assert_cdf(
            tau * logit[:, i], lambda x, i=i: stats.logistic.cdf(x, loc=LOGITS[i].item()), alpha=3e-7
        )


@pytest.mark.parametrize("dtype", [torch.float32, *HALF])
def test_cold_bits_have_a_finite_density(dtype: torch.dtype) -> None:
    logits = (3 * torch.randn(500, 6)).to(dtype).requires_grad_()
    q = ag.RelaxedBits(0.05, logits=logits)
    log_prob = q.log_prob(q.rsample())
    assert log_prob.isfinite().all()
    assert torch.autograd.grad(log_prob.sum(), logits)[0].isfinite().all()


def test_a_forbidden_bit_is_zero() -> None:
    logits = torch.tensor([0.5, -INF], requires_grad=True)
    tau = torch.tensor(0.3, requires_grad=True)
    q = ag.RelaxedBits(tau, logits=logits)
    y = q.rsample((50,))
    assert (y[:, 1] == 0).all()
    grads = torch.autograd.grad(y.sum() + q.log_prob(y).sum(), (logits, tau))
    assert all(g.isfinite().all() for g in grads)
    assert grads[0][1] == 0
    one = ag.RelaxedBits(0.3, logits=torch.tensor([0.5]))
    torch.testing.assert_close(q.log_prob(torch.tensor([0.2, 0.0])), one.log_prob(torch.tensor([0.2])))


# ---- both relaxed laws ---------------------------------------------------------------------------

RELAXED = [ag.RelaxedOneHot, ag.RelaxedBits]


@pytest.mark.parametrize("kind", RELAXED)
def test_derivatives(kind) -> None:
    logits = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    tau = torch.tensor([0.4, 1.3], dtype=torch.float64, requires_grad=True)
    y = kind(tau.detach(), logits=logits.detach()).sample(generator=seeded(4)).clone()

    def sample(x: Tensor, t: Tensor) -> Tensor:
        return kind(t, logits=x).rsample(generator=ag.CounterRNG(0))

    def density(x: Tensor, t: Tensor) -> Tensor:
        return kind(t, logits=x).log_prob(y)

    for function in (sample, density):
        assert gradcheck(function, (logits, tau))
        assert gradgradcheck(function, (logits, tau))


@pytest.mark.parametrize("kind", RELAXED)
def test_the_remembered_logarithm_is_that_of_the_sample(kind) -> None:
    q = kind(1.0, logits=torch.randn(20, 4, dtype=torch.float64))
    first = q.rsample()
    expected = q.log_prob(first)
    second = q.rsample()  # the first is forgotten, and recomputed from its value
    torch.testing.assert_close(q.log_prob(first), expected, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(q.log_prob(second.clone()), q.log_prob(second), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("kind", RELAXED)
def test_a_sample_changed_in_place_is_not_remembered(kind) -> None:
    q = kind(1.0, logits=torch.randn(20, 4, dtype=torch.float64))
    y = q.sample()
    y.copy_(y.flip(-1))
    torch.testing.assert_close(q.log_prob(y), q.log_prob(y.clone()))


@pytest.mark.parametrize("kind", RELAXED)
def test_temperatures_a_row(kind) -> None:
    logits, tau = torch.randn(3, 4), torch.tensor([0.2, 1.0, 3.0])
    q = kind(tau, logits=logits)
    assert torch.equal(q.tau, tau)
    y = kind(1.0, logits=logits).sample().clamp(1e-3, 1 - 1e-3)
    y = y / y.sum(-1, keepdim=True) if kind is ag.RelaxedOneHot else y
    for i in range(3):
        single = kind(tau[i].item(), logits=logits[i])
        torch.testing.assert_close(q.log_prob(y)[i], single.log_prob(y[i]))
    assert torch.equal(q.expand((5, 3)).tau, tau)


# ---- GumbelSoftmax -------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("draw", ["sample", "rsample"])
def test_gumbel_softmax_is_a_categorical(draw: str) -> None:
    q = ag.GumbelSoftmax(0.3, logits=LOGITS)
    z = getattr(q, draw)((50_000,), generator=seeded(5))
    assert ((z == 0) | (z == 1)).all()
    assert torch.equal(z.sum(-1), torch.ones(50_000).double())
    assert_frequencies(z.sum(0), LOGITS.softmax(-1))


def test_gumbel_softmax_answers_as_one_hot_categorical() -> None:
    q, theirs = ag.GumbelSoftmax(0.3, logits=LOGITS), D.OneHotCategorical(logits=LOGITS)
    z = theirs.enumerate_support()
    torch.testing.assert_close(q.log_prob(z), theirs.log_prob(z))
    torch.testing.assert_close(q.entropy(), theirs.entropy())
    torch.testing.assert_close(q.mean, theirs.mean)
    torch.testing.assert_close(q.variance, theirs.variance)
    torch.testing.assert_close(q.probs, theirs.probs)
    assert torch.equal(q.mode, theirs.mode)
    assert torch.equal(q.enumerate_support(), z)
    batched = ag.GumbelSoftmax(0.3, logits=LOGITS.expand(2, 3))
    assert batched.enumerate_support().shape == (3, 2, 3)
    assert batched.enumerate_support(expand=False).shape == (3, 1, 3)
    assert torch.equal(q.log_prob(torch.nn.functional.one_hot(torch.tensor(1), 3)), q.log_prob(z[1]))


def test_gumbel_softmax_divergence() -> None:
    p, q = ag.GumbelSoftmax(1.0, logits=LOGITS), ag.GumbelSoftmax(0.5, logits=torch.zeros(3).double())
    expected = D.kl_divergence(
        D.OneHotCategorical(logits=LOGITS), D.OneHotCategorical(logits=torch.zeros(3).double())
    )
    torch.testing.assert_close(D.kl_divergence(p, q), expected)
    narrow = ag.GumbelSoftmax(1.0, logits=torch.tensor([0.0, -INF, 0.0]).double())
    assert D.kl_divergence(narrow, q).item() == pytest.approx(math.log(1.5))
    assert D.kl_divergence(q, narrow) == INF


def test_gumbel_softmax_gradient_is_that_of_straight_through() -> None:
    logits = torch.randn(4, 3, requires_grad=True)
    rng, weight = ag.CounterRNG(0), torch.randn(4, 3)
    z = ag.GumbelSoftmax(0.7, logits=logits).rsample(generator=rng)
    y = ag.gumbel_softmax(logits, 0.7, generator=rng)
    a, b = (torch.autograd.grad((x * weight).sum(), logits)[0] for x in (z, y))
    assert torch.equal(a, b)


def test_gumbel_softmax_temperatures_belong_to_the_batch_not_to_the_samples() -> None:
    """As many samples as rows: `(3, 1)` would broadcast the wrong way without an error."""
    logits, tau = torch.randn(3, 4, requires_grad=True), torch.tensor([0.1, 1.0, 9.0])
    rng, weight = ag.CounterRNG(0), torch.randn(3, 3, 4)
    z = ag.GumbelSoftmax(tau, logits=logits).rsample((3,), generator=rng)
    y = ag.gumbel_softmax(logits.expand(3, 3, 4), tau.expand(3, 3), generator=rng)
    a, b = (torch.autograd.grad((x * weight).sum(), logits)[0] for x in (z, y))
    torch.testing.assert_close(a, b)


def test_gumbel_softmax_with_forbidden_items() -> None:
    logits = torch.tensor([0.0, -INF, 1.0], requires_grad=True)
    q = ag.GumbelSoftmax(0.5, logits=logits)
    grad = torch.autograd.grad(q.entropy() + q.log_prob(torch.tensor([1.0, 0.0, 0.0])), logits)[0]
    assert grad.isfinite().all()
    assert grad[1] == 0
    assert q.log_prob(torch.tensor([0.0, 1.0, 0.0])) == -INF
    assert (q.sample((100,))[:, 1] == 0).all()


def test_convert_to_one_hot_takes_the_first_of_equals() -> None:
    z = ag.GumbelSoftmax.convert_to_one_hot(torch.tensor([[0.5, 0.5], [0.1, 0.9]]))
    assert z.tolist() == [[1, 0], [0, 1]]


# ---- sentences -----------------------------------------------------------------------------------

KINDS = [ag.RelaxedOneHot, ag.RelaxedBits, ag.GumbelSoftmax]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "takes exactly one of `logits` and `probs`"),
        ({"logits": torch.zeros(3), "probs": torch.ones(3)}, "takes exactly one of"),
        ({"logits": torch.zeros(3).long()}, "must be floating point"),
        ({"logits": [0.0, 1.0]}, "must be a tensor; got list"),
        ({"logits": torch.tensor([0.0, math.nan])}, "must not hold NaN"),
        ({"logits": torch.tensor([0.0, INF])}, "must not hold NaN or \\+inf"),
        ({"logits": torch.tensor(0.0)}, "must have at least 1 dimension"),
        ({"logits": torch.zeros(2, 0)}, "must offer at least one item"),
        ({"probs": torch.tensor([-0.1, 0.5])}, "probs=...\\)` must"),
        ({"probs": torch.tensor([math.nan, 0.5])}, "probs=...\\)` must"),
        ({"tau": 0.0, "logits": torch.zeros(3)}, "tau=...\\)` must be positive"),
        (
            {"tau": torch.ones(5), "logits": torch.zeros(2, 3)},
            "tau=...\\)` must be a number or broadcast",
        ),
    ],
    ids=str,
)
def test_wrong_arguments(kind, options: dict[str, object], message: str) -> None:
    with pytest.raises(ag.ArgradError, match=message) as error:
        kind(**{"tau": 1.0, **options})
    assert kind.__name__ in str(error.value)


def test_a_row_without_items() -> None:
    logits = torch.tensor([[0.0, 1.0], [-INF, -INF]])
    for kind in (ag.RelaxedOneHot, ag.GumbelSoftmax):
        with pytest.raises(ag.InputError, match="1 of 2 rows \\(first: row 1\\)"):
            kind(1.0, logits=logits)
    assert (ag.RelaxedBits(1.0, logits=logits).sample()[1] == 0).all()  # bits do not compete


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_values(kind) -> None:
    q = kind(1.0, logits=torch.zeros(2, 3))
    for bad, message in (
        (torch.full((2, 3), math.nan), "must not hold NaN"),
        (torch.full((2, 4), 0.25), "must have the shape of a sample"),
        (torch.full((5, 3, 3), 1 / 3), "must have the shape of a sample"),
        ("z", "must be a tensor"),
    ):
        with pytest.raises(ag.ArgradError, match=message) as error:
            q.log_prob(bad)
        assert f"{kind.__name__}.log_prob" in str(error.value)


def test_values_outside_the_support() -> None:
    simplex = ag.RelaxedOneHot(1.0, logits=torch.zeros(3))
    for bad in ([0.5, 0.6, 0.1], [1.2, -0.1, -0.1]):
        with pytest.raises(ag.InputError, match="must be on the simplex"):
            simplex.log_prob(torch.tensor(bad))
    with pytest.raises(ag.InputError, match="got exact zeros"):
        simplex.log_prob(torch.tensor([1.0, 0.0, 0.0]))
    with pytest.raises(ag.InputError, match="must be strictly between 0 and 1"):
        ag.RelaxedBits(1.0, logits=torch.zeros(2)).log_prob(torch.tensor([0.5, 1.0]))
    with pytest.raises(ag.InputError, match="must be one-hot"):
        ag.GumbelSoftmax(1.0, logits=torch.zeros(3)).log_prob(torch.tensor([0.5, 0.5, 0.0]))
    unchecked = ag.RelaxedOneHot(1.0, logits=torch.zeros(3), validate_args=False)
    assert unchecked.log_prob(torch.tensor([0.5, 0.6, 0.1])).isfinite()


def test_values_are_checked_after_torch_compile_too() -> None:
    """Dynamo switches off `Distribution`'s default validation for the whole process."""
    before = D.Distribution._validate_args
    try:
        D.Distribution.set_default_validate_args(False)
        with pytest.raises(ag.InputError, match="must be on the simplex"):
            ag.RelaxedOneHot(1.0, logits=torch.zeros(3)).log_prob(torch.tensor([0.5, 0.6, 0.1]))
    finally:
        D.Distribution.set_default_validate_args(before)
