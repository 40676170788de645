"""Elementary functions against mpmath, and their gradients where naive forms are NaN."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from argrad._autograd import straight_through
from argrad._numerics import (
    LOG_ZERO,
    compute_dtype,
    log1mexp,
    logaddexp,
    logsumexp,
    masked_scores,
    widen,
    xlogy,
)

INF = math.inf


def gradient(y: Tensor, x: Tensor) -> Tensor:
    return torch.autograd.grad(y.sum(), x)[0]


def leaf(*values: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.tensor(values, dtype=dtype, requires_grad=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_log1mexp_is_accurate_to_a_few_ulp(dtype: torch.dtype) -> None:
    x = -torch.logspace(-30, 1.9, 400, dtype=dtype)  # below -87 a float32 result is denormal
    with mpmath.workdps(60):
        exact = [float(mpmath.log(1 - mpmath.exp(mpmath.mpf(v)))) for v in x.tolist()]
    # two elementary functions, each within an ulp or two
    exact = torch.tensor(exact, dtype=torch.float64)
    torch.testing.assert_close(log1mexp(x).double(), exact, rtol=8 * torch.finfo(dtype).eps, atol=0)


def test_log1mexp_at_its_ends() -> None:
    x = leaf(0.0, -INF, -1e-300)
    y = log1mexp(x)
    assert y[0] == -INF
    assert y[1] == 0
    grad = gradient(y[:2], x)
    assert grad[:2].tolist() == [0.0, 0.0]


def test_log1mexp_derivatives() -> None:
    x = leaf(-1e-3, -0.5, -math.log(2), -1.0, -30.0)
    assert gradcheck(log1mexp, x)
    assert gradgradcheck(log1mexp, leaf(-0.2, -0.5, -1.0, -30.0))


def test_logsumexp_agrees_with_torch() -> None:
    x = torch.randn(3, 4, 5, dtype=torch.float64)
    for dim in (0, -1, (0, 2), (-1, -2)):
        for keepdim in (False, True):
            torch.testing.assert_close(logsumexp(x, dim, keepdim), torch.logsumexp(x, dim, keepdim))
    assert logsumexp(x, ()) is x
    assert logsumexp(x + 1e4).isfinite().all()


def test_logsumexp_of_nothing_has_gradient_zero() -> None:
    x = torch.tensor([[-INF, -INF], [-INF, 2.0]], dtype=torch.float64, requires_grad=True)
    y = logsumexp(x)
    assert y.tolist() == [-INF, 2.0]
    assert torch.autograd.grad(y[1], x, retain_graph=True)[0].tolist() == [[0, 0], [0, 1]]
    assert gradient(y, x).tolist() == [[0, 0], [0, 1]]
    twice = torch.autograd.grad(logsumexp(x).exp().sum(), x, create_graph=True)[0]
    assert torch.isfinite(gradient(twice, x)).all()


def test_logsumexp_derivatives() -> None:
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    assert gradcheck(logsumexp, x)
    assert gradgradcheck(logsumexp, x)


@pytest.mark.parametrize("zero", [-INF, LOG_ZERO])
def test_logaddexp_has_finite_second_derivatives_next_to_log_zero(zero: float) -> None:
    a, b = leaf(1.0, zero, zero), leaf(2.0, 0.5, zero)
    y = logaddexp(a, b)
    assert y[0].item() == pytest.approx(math.log(math.exp(1) + math.exp(2)))
    assert y[1] == 0.5
    first = torch.autograd.grad(y[:2].sum(), (a, b), create_graph=True)
    second = torch.autograd.grad(sum(g.sum() for g in first), (a, b))
    assert all(torch.isfinite(g).all() for g in (*first, *second))


def test_xlogy_is_zero_at_zero() -> None:
    x, y = leaf(0.0, 0.0, 2.0), leaf(0.0, 3.0, 3.0)
    value = xlogy(x, y)
    assert value.tolist() == [0.0, 0.0, 2 * math.log(3)]
    gx, gy = torch.autograd.grad(value.sum(), (x, y))
    assert gx.tolist() == [0.0, 0.0, math.log(3)]
    assert gy.tolist() == pytest.approx([0.0, 0.0, 2 / 3])


def test_masked_scores() -> None:
    x = leaf(1.0, math.nan, 3.0)
    mask = torch.tensor([True, False, True])
    y = masked_scores(x, mask)
    assert y.tolist() == [1.0, -INF, 3.0]
    assert gradient(y[mask], x).tolist() == [1.0, 0.0, 1.0]
    assert masked_scores(x, None) is x


def test_half_precision_is_computed_in_float32() -> None:
    for dtype, wide in {
        torch.float16: torch.float32,
        torch.bfloat16: torch.float32,
        torch.float32: torch.float32,
        torch.float64: torch.float64,
    }.items():
        assert compute_dtype(dtype) == wide
        assert widen(torch.zeros(1, dtype=dtype)).dtype == wide


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_straight_through_is_bitwise_the_vertex(dtype: torch.dtype) -> None:
    soft = torch.rand(1000, 7).softmax(-1).to(dtype).requires_grad_()
    hard = torch.zeros_like(soft).scatter(-1, soft.argmax(-1, keepdim=True), 1.0)
    z = straight_through(hard, soft)
    assert torch.equal(z, hard)
    weight = torch.randn_like(soft)
    assert torch.equal(torch.autograd.grad((z * weight).sum(), soft)[0], weight)


# ---- what the kernels compute with ---------------------------------------------------------------


def apply(function: Callable, x: np.ndarray) -> np.ndarray:
    """A compiled function of a number, at every entry."""
    from numba import njit

    @njit(error_model="numpy")
    def loop(x, out):
        for i in range(x.shape[0]):
            out[i] = function(x[i])

    out = np.empty_like(x)
    loop(x, out)
    return out


def ulps(value: np.ndarray, exact: np.ndarray) -> float:
    step = np.spacing(np.maximum(np.abs(exact).astype(value.dtype), np.finfo(value.dtype).tiny))
    return float(np.max(np.abs(value - exact) / step))


def test_logarithm_of_the_kernels() -> None:
    from argrad._kernels import bits

    random = np.random.default_rng(0)
    x = np.exp2(random.uniform(-64, 6, 100_000)).astype(np.float32)
    x = np.concatenate([x, np.linspace(0.5, 2, 100_001, dtype=np.float32)])
    assert ulps(apply(bits.minus_log, x), -np.log(x.astype(np.float64))) < 1
    assert apply(bits.minus_log, np.float32([1.0]))[0] == 0


def test_exponentials_of_the_kernels() -> None:
    from argrad._kernels import choose, exp

    x = -np.random.default_rng(1).uniform(0, 87, 100_000)
    narrow = x.astype(np.float32)
    assert ulps(apply(choose._exp_32, narrow), np.exp(narrow.astype(np.float64))) < 2
    assert ulps(apply(exp.exp_64, 8 * x), np.exp(8 * x.astype(np.longdouble))) < 2
    assert apply(choose._exp_32, np.float32([0, -104, -200, -3e38, -np.inf])).tolist() == [
        1,
        0,
        0,
        0,
        0,
    ]
    assert apply(exp.exp_64, np.array([0, -746, -1e4, -1e308, -np.inf])).tolist() == [1, 0, 0, 0, 0]
    assert apply(choose._exp_32, np.float32([-100]))[0] > 0  # a denormal number


def test_cosine_of_the_kernels() -> None:
    from argrad._kernels import bits

    u = np.linspace(0, 1, 100_001, dtype=np.float32)
    error = apply(bits.cosine_of_turns, u) - np.cos(2 * np.pi * u.astype(np.float64))
    assert np.abs(error).max() < 2e-7
