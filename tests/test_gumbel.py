"""Gumbel-softmax, Gumbel-max, Gumbel-top-k: laws, gradients, masks, temperatures, and the kernel's twin."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import argrad as ag
from argrad import gumbel
from argrad.testing import assert_cdf, assert_frequencies, assert_mean

INF = math.inf
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
HALF = [torch.bfloat16, torch.float16]
LOGITS = torch.tensor([0.3, -1.2, 2.0, 0.0, -0.5])


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rows(logits: Tensor, count: int) -> Tensor:
    return logits.expand(count, -1).contiguous()


def counts(index: Tensor, n: int) -> Tensor:
    return torch.bincount(index.reshape(-1), minlength=n)


# ---- the law of one choice -----------------------------------------------------------------------


def choices(way: str, logits: Tensor, generator: object) -> Tensor:
    if way == "max":
        return ag.gumbel_max(logits, generator=generator)
    if way == "topk":
        return ag.gumbel_topk(logits, 1, generator=generator).indices[..., 0]
    if way == "soft":
        return ag.gumbel_softmax(logits, 0.3, generator=generator).argmax(-1)
    return ag.gumbel_softmax(logits, 2.0, hard=True, generator=generator).argmax(-1)


@pytest.mark.statistical
@pytest.mark.parametrize("source", [seeded, ag.CounterRNG], ids=["torch", "counter"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
@pytest.mark.parametrize("way", ["max", "topk", "soft", "hard"])
def test_gumbel_max_law(way: str, dtype: torch.dtype, source) -> None:
    index = choices(way, rows(LOGITS.to(dtype), 100_000), source(1))
    assert_frequencies(counts(index, 5), LOGITS.double().softmax(-1))


@pytest.mark.statistical
@pytest.mark.parametrize("n", [1, 2, 255, 256, 257, 700])
def test_gumbel_max_law_across_blocks(n: int) -> None:
    """The kernel sums blocks of 256 items."""
    logits = torch.linspace(-3, 3, n)[torch.randperm(n)]
    for source in (seeded(2), ag.CounterRNG(2)):
        index = ag.gumbel_max(rows(logits, 50_000), generator=source)
        assert_frequencies(counts(index, n), logits.double().softmax(-1))


@pytest.mark.statistical
@pytest.mark.parametrize("p", [1e-5, 1e-6])
@pytest.mark.parametrize("rare_first", [False, True])
@pytest.mark.parametrize("way", ["max", "topk", "soft"])
def test_rare_classes_are_drawn(way: str, rare_first: bool, p: float) -> None:
    """The slow tests in test_random.py go to 1e-8."""
    pair = torch.tensor([math.log(p), 0.0] if rare_first else [0.0, math.log(p)])
    index = choices(way, rows(pair, 3_000_000), seeded(3))
    hits = int((index == (0 if rare_first else 1)).sum())
    low, high = stats.binom.cdf(hits, 3_000_000, p), stats.binom.sf(hits - 1, 3_000_000, p)
    assert min(low, high) > 5e-7


def test_gumbel_max_inverts_the_distribution_function() -> None:
    """Row by row: the uniform behind a draw can be had from a generator in the same state."""
    rows_, n = 100_000, 600
    logits = torch.full((n,), -7.0, dtype=torch.float64)
    logits[torch.tensor([0, 255, 256, 511, 599])] = 0.0
    u = ag.random.uniform((rows_, 1), dtype=torch.float64, generator=seeded(5))[:, 0]
    index = ag.gumbel_max(rows(logits, rows_), generator=seeded(5))
    expected = torch.searchsorted(logits.softmax(-1).cumsum(-1), u, right=True).clamp(max=n - 1)
    assert torch.equal(index, expected)


def test_float32_sums_do_not_forget_small_items() -> None:
    """1 + 5e-8 is 1 in float32; the uniforms above 1 - 5e-8 must still reach the second item."""
    from numpy import array, uint64

    rng, scores = ag.CounterRNG(0), torch.tensor([[0.0, math.log(5e-8)]]).numpy()
    key, found = rng.words.numpy().view(uint64), 0
    for start in range(0, 200_000_000, 10_000_000):
        u = rng.shift(rows=start).uniform(10_000_000, 1, dtype=torch.float64)
        for row in (u[:, 0] * (1 + 5e-8) > 1).nonzero()[:, 0].tolist():
            out = array([-1])
            gumbel._kernels().draw_one(0, 1, scores, out, key, uint64(start + row), uint64(0))
            assert out[0] == 1
            found += 1
        if found:
            break
    assert found


@pytest.mark.statistical
def test_the_maximum_is_independent_of_its_place() -> None:
    g = rows(LOGITS.double(), 100_000) + ag.random.gumbel(
        (100_000, 5), dtype=torch.float64, generator=seeded(4)
    )
    top, index = g.max(-1)
    location = LOGITS.double().logsumexp(-1)
    assert_cdf(top, lambda x: stats.gumbel_r.cdf(x, loc=location.item()))
    for i in range(5):
        assert_cdf(top[index == i], lambda x: stats.gumbel_r.cdf(x, loc=location.item()), alpha=2e-7)


# ---- without replacement -------------------------------------------------------------------------


def plackett_luce(p: Tensor, order: tuple[int, ...]) -> float:
    left, result = 1.0, 1.0
    for i in order:
        result *= p[i].item() / left
        left -= p[i].item()
    return result


@pytest.mark.statistical
@pytest.mark.parametrize("source", [seeded, ag.CounterRNG], ids=["torch", "counter"])
@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_topk_is_sampling_without_replacement(k: int, source) -> None:
    logits = LOGITS[:4]
    p = logits.double().softmax(-1)
    top = ag.gumbel_topk(rows(logits, 100_000), k, generator=source(5))
    code = (top.indices * 4 ** torch.arange(k)).sum(-1)
    expected = torch.zeros(4**k)
    for order in itertools.permutations(range(4), k):
        expected[sum(i * 4**j for j, i in enumerate(order))] = plackett_luce(p, order)
    assert expected.sum().item() == pytest.approx(1)
    assert_frequencies(counts(code, 4**k), expected)


@pytest.mark.statistical
@pytest.mark.parametrize("k", [1, 2, 3])
def test_kappa_makes_unbiased_weights(k: int) -> None:
    """E sum_i p_i / q_i(kappa) f(i) = E f, with q_i = P(item i is drawn | kappa); f = 1 and f = i."""
    top = ag.gumbel_topk(rows(LOGITS.double(), 100_000), k, generator=seeded(6))
    q = -torch.expm1(-torch.exp(top.log_prob - top.kappa[:, None]))
    weight = top.log_prob.exp() / q
    f = torch.stack([weight.sum(-1), (weight * top.indices).sum(-1)], -1)
    p = LOGITS.double().softmax(-1)
    assert_mean(f, torch.tensor([1.0, (p * torch.arange(5)).sum().item()]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 5, 256, 1000])
def test_topk_is_the_sorted_race(n: int, dtype: torch.dtype) -> None:
    """With a CounterRNG everything can be recomputed: log softmax + noise, sorted."""
    rng = ag.CounterRNG(3)
    logits = torch.randn(4, n, dtype=dtype) * 3
    log_p = logits.double().log_softmax(-1)
    noisy = log_p + rng.gumbel(4, n, dtype=dtype).double()
    for k in {1, min(3, n), n}:
        top = ag.gumbel_topk(logits, k, generator=rng)
        value, index = noisy.topk(k, -1)
        assert torch.equal(top.indices, index)
        # float32 log-probabilities of size 10
        tolerance = (
            {"rtol": 1e-6, "atol": 3e-6} if dtype == torch.float32 else {"rtol": 1e-13, "atol": 1e-13}
        )
        torch.testing.assert_close(top.perturbed.double(), value, **tolerance)
        torch.testing.assert_close(top.log_prob.double(), log_p.gather(-1, index), **tolerance)
        assert top.valid.all()
        rest = noisy.scatter(-1, index, -INF).amax(-1)
        torch.testing.assert_close(top.kappa.double(), rest, **tolerance)


def test_topk_does_not_depend_on_a_constant_in_the_logits() -> None:
    base = torch.tensor([[0.0, 1.0, 2.0, -3.0]])
    for shift in (1e4, -1e5):
        a, b = (ag.gumbel_topk(x, 2, generator=ag.CounterRNG(1)) for x in (base, base + shift))
        for x, y in zip(a, b, strict=True):
            torch.testing.assert_close(x, y)


def test_topk_gradients() -> None:
    logits = torch.randn(3, 6, dtype=torch.float64, requires_grad=True)
    rng = ag.CounterRNG(0)

    def log_prob(x: Tensor) -> Tensor:
        return ag.gumbel_topk(x, 3, generator=rng).log_prob

    assert gradcheck(log_prob, logits)
    assert gradgradcheck(log_prob, logits)
    top = ag.gumbel_topk(logits, 3, generator=rng)
    expected = torch.autograd.grad(logits.log_softmax(-1).gather(-1, top.indices).sum(), logits)[0]
    torch.testing.assert_close(torch.autograd.grad(top.perturbed.sum(), logits)[0], expected)
    assert not top.kappa.requires_grad


def test_topk_along_another_dim() -> None:
    logits, rng = torch.randn(3, 7, 2), ag.CounterRNG(0)
    moved = ag.gumbel_topk(logits.movedim(1, -1), 4, generator=rng)
    top = ag.gumbel_topk(logits, 4, dim=1, generator=rng)
    for name in ("indices", "log_prob", "perturbed", "valid"):
        assert torch.equal(getattr(top, name), getattr(moved, name).movedim(-1, 1)), name
    assert torch.equal(top.kappa, moved.kappa)
    assert top.indices.shape == (3, 4, 2)
    assert top.kappa.shape == (3, 2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_topk_result_dtypes_and_shapes(dtype: torch.dtype) -> None:
    for shape in ((5,), (2, 5), (2, 3, 5), (0, 5)):
        top = ag.gumbel_topk(torch.zeros(shape, dtype=dtype), 2)
        assert top.indices.shape == top.log_prob.shape == top.perturbed.shape == (*shape[:-1], 2)
        assert top.kappa.shape == shape[:-1]
        assert top.indices.dtype == torch.int64
        assert {top.log_prob.dtype, top.perturbed.dtype, top.kappa.dtype} == {dtype}


# ---- gumbel_softmax: what torch's own tests ask --------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "dim"), [((5,), 0), ((4, 5), -1), ((4, 5), 0), ((2, 3, 4, 5), 1)])
def test_rows_sum_to_one(shape: tuple[int, ...], dim: int, dtype: torch.dtype) -> None:
    logits = torch.randn(shape).to(dtype)
    soft = ag.gumbel_softmax(logits, dim=dim)
    assert soft.shape == logits.shape
    assert soft.dtype == dtype
    assert soft.min() >= 0
    # a sum of five rounded numbers
    total = soft.double().sum(dim)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=3 * torch.finfo(dtype).eps)
    hard = ag.gumbel_softmax(logits, hard=True, dim=dim)
    assert torch.equal(hard.sum(dim), torch.ones_like(hard.sum(dim)))
    assert ((hard == 0) | (hard == 1)).all()


@pytest.mark.statistical
def test_hard_samples_have_the_softmax_law_whatever_the_temperature() -> None:
    for tau in (0.05, 1.0, 50.0):
        z = ag.gumbel_softmax(rows(LOGITS, 50_000), tau, hard=True, generator=seeded(7))
        assert_frequencies(z.sum(0), LOGITS.double().softmax(-1))


@pytest.mark.parametrize("dtype", DTYPES)
def test_straight_through_has_the_gradient_of_the_soft_sample(dtype: torch.dtype) -> None:
    logits = torch.randn(20, 7).to(dtype).requires_grad_()
    weight = torch.randn(20, 7).to(dtype)
    soft, hard = (
        ag.gumbel_softmax(logits, 0.7, hard, generator=ag.CounterRNG(2)) for hard in (False, True)
    )
    assert torch.equal(hard.argmax(-1), soft.argmax(-1))
    a, b = (torch.autograd.grad((y * weight).sum(), logits)[0] for y in (soft, hard))
    assert torch.equal(a, b)
    assert a.abs().sum() > 0


def test_positional_arguments_are_those_of_torch() -> None:
    """`F.gumbel_softmax(logits, tau, hard)`, with `dim` by keyword."""
    logits = torch.randn(4, 5)
    ours, theirs = (
        ag.gumbel_softmax(logits, 0.5, True, dim=0),
        F.gumbel_softmax(logits, 0.5, True, dim=0),
    )
    assert ours.shape == theirs.shape
    assert torch.equal(ours.sum(0), theirs.sum(0))


@pytest.mark.statistical
def test_the_relaxed_law_is_that_of_torch() -> None:
    """The first coordinate, ours against torch's (two-sample Kolmogorov-Smirnov)."""
    logits = rows(LOGITS, 20_000)
    for tau in (0.3, 1.0, 3.0):
        ours = ag.gumbel_softmax(logits, tau, generator=seeded(8))[:, 0]
        theirs = F.gumbel_softmax(logits, tau)[:, 0]
        assert stats.ks_2samp(ours.numpy(), theirs.numpy()).pvalue > 1e-6


@pytest.mark.parametrize("tau", [0.01, 0.3, 1.0, 7.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_formula(dtype: torch.dtype, tau: float) -> None:
    rng = ag.CounterRNG(4)
    logits = torch.randn(6, 300, dtype=dtype) * 2
    noise = rng.gumbel(6, 300, dtype=dtype).double()
    exact = ((logits.double() + noise) / tau).softmax(-1)
    soft = ag.gumbel_softmax(logits, tau, generator=rng).double()
    # the argument of exp has relative error eps and size 10 / tau
    tolerance = torch.finfo(dtype).eps * 4 * (1 + 20 / tau)
    torch.testing.assert_close(soft, exact, rtol=tolerance, atol=tolerance * 1e-3)


# ---- the kernel and its torch twin ---------------------------------------------------------------


def twin(logits: Tensor, tau: float | Tensor, rng: ag.CounterRNG) -> Tensor:
    if isinstance(tau, Tensor) and tau.dim():
        tau = tau.reshape(*logits.shape[:-1], 1)
    return gumbel._softmax(logits, tau, rng)


@pytest.mark.parametrize("tau", [0.1, 1.0, torch.tensor(0.5), torch.tensor([0.2, 1.0, 4.0])], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_softmax_kernel_equals_twin(dtype: torch.dtype, tau: float | Tensor) -> None:
    logits = torch.randn(3, 513, dtype=dtype)
    logits[0, ::7] = -INF
    weight = torch.randn_like(logits)
    results = []
    for function in (ag.gumbel_softmax, twin):
        x = logits.clone().requires_grad_()
        if function is twin:
            y = twin(x, tau, ag.CounterRNG(1))
        else:
            y = ag.gumbel_softmax(x, tau, generator=ag.CounterRNG(1))
        results.append((y.detach(), torch.autograd.grad((y * weight).sum(), x)[0]))
    (y, grad), (y_twin, grad_twin) = results
    torch.testing.assert_close(y, y_twin, rtol=0, atol=1e-6)
    torch.testing.assert_close(grad, grad_twin, rtol=0, atol=1e-5)
    assert (y[0, ::7] == 0).all()
    assert (grad[0, ::7] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_max_and_topk_kernels_equal_twins(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.randn(50, 300, dtype=dtype)
    logits[:, ::5] = -INF
    rng = ag.CounterRNG(6)
    index, top = ag.gumbel_max(logits, generator=rng), ag.gumbel_topk(logits, 20, generator=rng)
    monkeypatch.setattr(gumbel, "_use_kernel", lambda scores: False)
    assert torch.equal(index, ag.gumbel_max(logits, generator=rng))
    again = ag.gumbel_topk(logits, 20, generator=rng)
    assert torch.equal(index, top.indices[:, 0])
    assert torch.equal(top.indices, again.indices)
    for name in ("log_prob", "perturbed", "kappa"):
        torch.testing.assert_close(getattr(top, name), getattr(again, name), rtol=1e-5, atol=2e-6)


def test_draws_do_not_depend_on_chunks_or_order() -> None:
    rng, logits = ag.CounterRNG(0), torch.randn(10, 40)
    whole = ag.gumbel_topk(logits, 5, generator=rng)
    for i in (0, 3, 9):
        row = ag.gumbel_topk(logits[i : i + 1], 5, generator=rng.shift(rows=i))
        assert torch.equal(row.indices[0], whole.indices[i])
        soft = ag.gumbel_softmax(logits[i], generator=rng.shift(rows=i))
        assert torch.equal(soft, ag.gumbel_softmax(logits, generator=rng)[i])
    left, right = (
        ag.gumbel_topk(logits[:, a:b], 1, generator=rng.shift(columns=a))
        for a, b in ((0, 25), (25, 40))
    )
    scores = [
        (part.perturbed[:, 0] + logits[:, a:b].logsumexp(-1))
        for part, (a, b) in ((left, (0, 25)), (right, (25, 40)))
    ]
    winner = torch.where(scores[0] > scores[1], left.indices[:, 0], right.indices[:, 0] + 25)
    assert torch.equal(winner, ag.gumbel_max(logits, generator=rng))


@pytest.mark.parametrize("count", [1, 2, 5])
def test_threads_do_not_change_a_draw(count: int, threads) -> None:
    logits = torch.randn(600, 700)  # enough work for several threads
    functions = [
        lambda g: ag.gumbel_softmax(logits, generator=g),
        lambda g: ag.gumbel_max(logits, generator=g),
        lambda g: ag.gumbel_topk(logits, 3, generator=g).indices,
    ]
    for function in functions:
        for source in (seeded, ag.CounterRNG):
            expected = function(source(3))
            with threads(count):
                assert torch.equal(function(source(3)), expected)


# ---- temperatures --------------------------------------------------------------------------------


def test_temperature_shapes() -> None:
    logits, rng = torch.randn(3, 4, 5), ag.CounterRNG(0)
    one = ag.gumbel_softmax(logits, 0.5, generator=rng)
    for tau in (
        torch.tensor(0.5),
        torch.full((4,), 0.5),
        torch.full((3, 1), 0.5),
        torch.full((3, 4), 0.5),
        torch.full((3, 4, 1), 0.5),
        torch.full((1, 1, 1), 0.5, dtype=torch.float64),
        torch.tensor(1) / 2,
    ):
        assert torch.equal(ag.gumbel_softmax(logits, tau, generator=rng), one)
    assert torch.equal(
        ag.gumbel_softmax(logits, 2, generator=rng), ag.gumbel_softmax(logits, 2.0, generator=rng)
    )


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_a_temperature_a_row(shape: tuple[int, ...]) -> None:
    logits, rng = torch.randn(3, 6), ag.CounterRNG(0)
    tau = torch.tensor([0.1, 1.0, 5.0])
    result = ag.gumbel_softmax(logits, tau.reshape(shape), generator=rng)
    for i in range(3):
        expected = ag.gumbel_softmax(logits[i], tau[i].item(), generator=rng.shift(rows=i))
        torch.testing.assert_close(result[i], expected)


def test_a_temperature_with_keepdim_along_dim() -> None:
    logits, rng = torch.randn(6, 3), ag.CounterRNG(0)
    tau = torch.tensor([0.1, 1.0, 5.0])
    expected = ag.gumbel_softmax(logits, tau, dim=0, generator=rng)
    assert torch.equal(ag.gumbel_softmax(logits, tau[None], dim=0, generator=rng), expected)


@pytest.mark.parametrize("shape", [(), (3,), (3, 1)])
def test_gradient_for_the_temperature(shape: tuple[int, ...]) -> None:
    logits = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    logits.data[0, 1] = -INF
    tau = (0.5 + torch.rand(shape, dtype=torch.float64)).requires_grad_()
    rng = ag.CounterRNG(1)
    open_ = logits.detach() > -INF

    def soft(values: Tensor, tau: Tensor) -> Tensor:
        x = torch.full_like(logits, -INF).masked_scatter(open_, values)
        return ag.gumbel_softmax(x, tau, generator=rng)

    values = logits.detach()[open_].requires_grad_()
    assert gradcheck(soft, (values, tau))
    assert gradgradcheck(soft, (values, tau))
    grad = torch.autograd.grad(
        (ag.gumbel_softmax(logits, tau, generator=rng) ** 2).sum(), (logits, tau)
    )
    assert all(g.isfinite().all() for g in grad)
    assert grad[0][0, 1] == 0


def test_a_temperature_changed_in_place_does_not_change_the_gradient() -> None:
    logits, tau = torch.randn(3, 5, requires_grad=True), torch.full((3,), 0.5)
    y = ag.gumbel_softmax(logits, tau)
    tau.mul_(2)
    (gradient,) = torch.autograd.grad((y * torch.arange(5.0)).sum(), logits)
    expected = y * (torch.arange(5.0) - (y * torch.arange(5.0)).sum(-1, keepdim=True)) / 0.5
    torch.testing.assert_close(gradient, expected.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("trained", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tau", [1e-3, 1e-30, 1e-38, 1e-45, 1e-300, 1e30, 1e38, 1e300])
def test_extreme_temperatures_are_finite(tau: float, dtype: torch.dtype, trained: bool) -> None:
    logits = (torch.randn(200, 5) * 1e4).to(dtype).requires_grad_()
    if trained and not 1e-44 < tau < 1e39:
        return  # not a float32 number
    temperature = torch.tensor(tau, requires_grad=True) if trained else tau
    y = ag.gumbel_softmax(logits, temperature, mask=torch.arange(5) != 2)
    assert y.isfinite().all() and (y[:, 2] == 0).all()
    torch.testing.assert_close(y.double().sum(-1), torch.ones(200).double(), rtol=0, atol=0.02)
    grad = torch.autograd.grad((y * torch.randn_like(y)).sum(), logits)[0]
    assert grad.isfinite().all()


@pytest.mark.parametrize("dtype", [*HALF, torch.float32])
def test_large_logits_keep_the_noise(dtype: torch.dtype) -> None:
    """Equal logits of 1e4 are a fair coin: subtracting the maximum first keeps the noise's digits."""
    logits = torch.full((20_000, 2), 1e4, dtype=dtype)
    for index in (ag.gumbel_max(logits), ag.gumbel_softmax(logits, 1e-3).argmax(-1)):
        assert_frequencies(counts(index, 2), torch.tensor([0.5, 0.5]))
    logits[:, 1] = -1e4
    assert (ag.gumbel_max(logits) == 0).all()
    y = ag.gumbel_softmax(logits, 1e-3)
    assert torch.equal(y, torch.tensor([[1.0, 0.0]], dtype=dtype).expand_as(y))


@pytest.mark.parametrize("value", [-3e38, 3e38])
def test_logits_at_the_end_of_the_range(value: float) -> None:
    logits = torch.tensor([[value, 0.0, 1.0]], requires_grad=True)
    y = ag.gumbel_softmax(logits, 0.1)
    assert y.isfinite().all()
    assert torch.autograd.grad(y.square().sum(), logits)[0].isfinite().all()
    assert ag.gumbel_max(logits).item() in ((0,) if value > 0 else (1, 2))


# ---- masks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("how", ["mask", "-inf"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_forbidden_items_have_probability_and_gradient_zero(
    dtype: torch.dtype, how: str, hard: bool
) -> None:
    mask = torch.rand(500, 7) < 0.5
    mask[:, 3] = True
    logits = torch.randn(500, 7).to(dtype)
    if how == "-inf":
        x, options = logits.masked_fill(~mask, -INF).requires_grad_(), {}
    else:
        x, options = logits.clone().requires_grad_(), {"mask": mask}
    y = ag.gumbel_softmax(x, 0.5, hard, **options)
    assert (y[~mask] == 0).all()
    grad = torch.autograd.grad((y * torch.randn_like(y)).sum(), x)[0]
    assert (grad[~mask] == 0).all()
    assert grad.isfinite().all()
    chosen = ag.gumbel_max(x, **options)
    assert mask.gather(-1, chosen[:, None]).all()
    top = ag.gumbel_topk(x, 1, **options)
    assert mask.gather(-1, top.indices).all()
    grad = torch.autograd.grad(top.log_prob.sum(), x)[0]
    assert (grad[~mask] == 0).all()
    assert grad.isfinite().all()


def test_a_mask_hides_nan_and_broadcasts() -> None:
    logits = torch.randn(2, 3, 4)
    logits[..., 1] = math.nan
    mask = torch.tensor([True, False, True, True])
    for y in (
        ag.gumbel_softmax(logits, mask=mask),
        ag.gumbel_softmax(logits.mT, mask=mask[:, None], dim=1).mT,
    ):
        assert y.isfinite().all()
        assert (y[..., 1] == 0).all()


@pytest.mark.statistical
def test_a_mask_is_removal() -> None:
    mask = torch.tensor([True, False, True, True, False])
    for source in (seeded(1), ag.CounterRNG(1)):
        index = ag.gumbel_max(rows(LOGITS, 50_000), mask=mask, generator=source)
        p = LOGITS.double().masked_fill(~mask, -INF).softmax(-1)
        assert_frequencies(counts(index, 5), p)


def test_a_mask_removes_the_same_item_as_minus_infinity() -> None:
    logits, mask = torch.randn(10, 6), torch.rand(10, 6) < 0.7
    mask[:, 0] = True
    for function in (
        lambda x, **o: ag.gumbel_softmax(x, **o),
        lambda x, **o: ag.gumbel_max(x, **o),
        lambda x, **o: ag.gumbel_topk(x, 1, **o).perturbed,
    ):
        a = function(logits, mask=mask, generator=ag.CounterRNG(0))
        b = function(logits.masked_fill(~mask, -INF), generator=ag.CounterRNG(0))
        assert torch.equal(a, b)


# ---- forms of input ------------------------------------------------------------------------------


def test_non_contiguous_input() -> None:
    rng, base = ag.CounterRNG(0), torch.randn(6, 8, 10)
    for x in (
        base.mT,
        base[::2, 1:, ::3],
        base[:, 0].expand(6, 10),
        base[0, 0].expand(5, 10),
        base[0].T,
    ):
        plain = x.contiguous()
        assert torch.equal(ag.gumbel_softmax(x, generator=rng), ag.gumbel_softmax(plain, generator=rng))
        assert torch.equal(ag.gumbel_max(x, generator=rng), ag.gumbel_max(plain, generator=rng))
        a, b = (ag.gumbel_topk(y, 3, generator=rng) for y in (x, plain))
        assert torch.equal(a.perturbed, b.perturbed)
    x = torch.randn(10, 6, requires_grad=True)
    y = ag.gumbel_softmax(x.T, generator=rng)
    grad = torch.autograd.grad(y.square().sum(), x)[0]
    plain = x.detach().T.contiguous().requires_grad_()
    expected = torch.autograd.grad(ag.gumbel_softmax(plain, generator=rng).square().sum(), plain)[0]
    assert torch.equal(grad, expected.T)


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
def test_any_dim(dim: int) -> None:
    logits, rng = torch.randn(3, 4, 5), ag.CounterRNG(0)
    expected = ag.gumbel_softmax(logits.movedim(dim, -1), generator=rng).movedim(-1, dim)
    assert torch.equal(ag.gumbel_softmax(logits, dim=dim, generator=rng), expected)
    index = ag.gumbel_max(logits, dim=dim, generator=rng)
    assert torch.equal(index, expected.argmax(dim))


@pytest.mark.parametrize("shape", [(0, 5), (2, 0, 5), (0, 3, 5)])
def test_an_empty_batch_is_empty(shape: tuple[int, ...]) -> None:
    logits = torch.zeros(shape, requires_grad=True)
    y = ag.gumbel_softmax(logits, hard=True)
    assert y.shape == shape
    y.sum().backward()
    assert ag.gumbel_max(logits).shape == shape[:-1]
    assert ag.gumbel_topk(logits, 2).indices.shape == (*shape[:-1], 2)


def test_one_item_is_always_chosen() -> None:
    logits = torch.randn(4, 1, requires_grad=True)
    assert torch.equal(ag.gumbel_softmax(logits), torch.ones(4, 1))
    assert torch.equal(ag.gumbel_max(logits), torch.zeros(4).long())
    top = ag.gumbel_topk(logits, 1)
    assert torch.equal(top.log_prob, torch.zeros(4, 1))
    assert (top.kappa == -INF).all()


def test_requires_grad_or_not() -> None:
    logits = torch.randn(3, 4)
    assert not ag.gumbel_softmax(logits).requires_grad
    assert ag.gumbel_softmax(logits.requires_grad_()).requires_grad
    with torch.no_grad():
        assert not ag.gumbel_softmax(logits, hard=True).requires_grad
        assert not ag.gumbel_topk(logits, 2).log_prob.requires_grad
    with torch.inference_mode():
        assert ag.gumbel_softmax(logits, hard=True).shape == (3, 4)


def test_the_global_generator_is_left_alone() -> None:
    logits = torch.randn(3, 4, requires_grad=True)
    before = torch.get_rng_state()
    for generator in (seeded(), ag.CounterRNG(0)):
        ag.gumbel_softmax(logits, generator=generator).sum().backward()
        ag.gumbel_max(logits, generator=generator)
        ag.gumbel_topk(logits, 2, generator=generator)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("source", [seeded, ag.CounterRNG], ids=["torch", "counter"])
def test_same_state_same_numbers(source) -> None:
    logits = torch.randn(3, 4)
    for function in (
        ag.gumbel_softmax,
        ag.gumbel_max,
        lambda x, generator: ag.gumbel_topk(x, 2, generator=generator),
    ):
        a, b = (function(logits, generator=source(9)) for _ in range(2))
        assert all(map(torch.equal, a, b))


# ---- anything at once ----------------------------------------------------------------------------


@st.composite
def problems(draw) -> tuple[Tensor, Tensor, dict[str, object]]:
    """Logits of any shape, dtype and size, with a mask or -inf, a temperature and a dim."""
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    dim = draw(st.integers(-len(shape), len(shape) - 1))
    dtype = draw(st.sampled_from(DTYPES))
    generator = seeded(draw(st.integers(0, 10_000)))
    scale = draw(st.sampled_from([0.0, 1.0, 30.0, 1e4]))
    logits = (scale * torch.randn(shape, generator=generator)).to(dtype)
    allowed = torch.rand(shape, generator=generator) < draw(st.sampled_from([0.3, 1.0]))
    allowed = allowed | one_hot_along(logits.float().argmax(dim, keepdim=True), shape, dim)
    options: dict[str, object] = {
        "tau": draw(st.sampled_from([1e-3, 0.3, 1.0, 20.0])),
        "hard": draw(st.booleans()),
        "dim": dim,
    }
    if draw(st.booleans()):
        options["mask"] = allowed
    else:
        logits = logits.masked_fill(~allowed, -INF)
    return logits, allowed, options


def one_hot_along(index: Tensor, shape: list[int], dim: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.bool).scatter(dim, index, True)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(problems())
def test_any_problem(problem: tuple[Tensor, Tensor, dict[str, object]]) -> None:
    logits, allowed, options = problem
    x = logits.requires_grad_()
    y = ag.gumbel_softmax(x, **options)
    assert y.shape == logits.shape
    assert y.dtype == logits.dtype
    assert y.isfinite().all()
    assert (y[~allowed] == 0).all()
    total = y.double().sum(options["dim"])
    assert (total - 1).abs().max() <= 5 * torch.finfo(logits.dtype).eps  # five items at most
    grad = torch.autograd.grad((y * torch.randn_like(y)).sum(), x)[0]
    assert grad.isfinite().all()
    assert (grad[~allowed] == 0).all()
    rest = {name: options[name] for name in ("dim", "mask") if name in options}
    index = ag.gumbel_max(x, **rest)
    assert index.shape == total.shape
    assert allowed.gather(options["dim"], index.unsqueeze(options["dim"])).all()
    k = int(allowed.sum(options["dim"]).min())
    top = ag.gumbel_topk(x, k, **rest)
    assert allowed.gather(options["dim"], top.indices).all()
    assert top.log_prob.isfinite().all()
    assert (top.perturbed.diff(dim=options["dim"]) <= 0).all()


@pytest.mark.parametrize("tau", [1.0, 0.5])
def test_many_short_rows_have_the_gradient_of_the_formula(tau: float) -> None:
    """Of y_i = softmax(x / tau): y_i (g_i - <g, y>) / tau, by a kernel for many rows and by torch for few."""
    g = torch.Generator().manual_seed(0)
    for rows in (3, 400):
        logits = torch.randn(rows, 10, dtype=torch.float64, generator=g, requires_grad=True)
        slope = torch.randn(rows, 10, dtype=torch.float64, generator=g)
        y = ag.gumbel_softmax(logits, tau=tau, generator=g)
        (found,) = torch.autograd.grad((y * slope).sum(), logits)
        y = y.detach()
        torch.testing.assert_close(found, y * (slope - (slope * y).sum(-1, keepdim=True)) / tau)
