"""Unrolled matchings: the exact solvers' values and gradients, masks, transforms."""

from __future__ import annotations

import math
from functools import partial as fix

import pytest
import torch
from torch import Tensor

from argrad._errors import InputError
from argrad.backward import finite_difference
from argrad.solvers.alternating import matching_unrolled
from argrad.solvers.birkhoff import birkhoff_projection
from argrad.solvers.matching import entropic_matching, euclidean_matching
from argrad.solvers.sinkhorn import sinkhorn_unrolled

EXACT = {False: entropic_matching, True: euclidean_matching}
BOTH = pytest.mark.parametrize("euclidean", [False, True])
PARTIAL = pytest.mark.parametrize("partial", [False, True])


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@BOTH
@PARTIAL
@pytest.mark.parametrize("tau", [1.0, 0.3])
@pytest.mark.parametrize("shape", [(5, 5), (3, 6), (6, 3), (1, 4), (4, 1), (1, 1)])
def test_value_and_gradient_of_the_exact_solver(
    shape: tuple[int, int], tau: float, partial: bool, euclidean: bool
) -> None:
    w, G = (normal(6, *shape) / tau).requires_grad_(), normal(6, *shape, seed=1)
    exact = fix(EXACT[euclidean], partial=partial)
    P, U = exact(w), matching_unrolled(w, partial=partial, euclidean=euclidean, iterations=400)
    # Linear convergence: 400 steps are within 1e-6 here, of which the gradient loses up to a digit.
    torch.testing.assert_close(U, P, atol=1e-5, rtol=0)
    of_exact, of_steps = (torch.autograd.grad((p * G).sum(), w)[0] for p in (P, U))
    torch.testing.assert_close(of_steps, of_exact, atol=1e-4, rtol=0)
    numeric = finite_difference(fix(exact, tolerance=1e-12), w, 1e-6, 2)
    (of_quotient,) = torch.autograd.grad((numeric * G).sum(), w)
    torch.testing.assert_close(of_steps, of_quotient, atol=1e-4, rtol=0)


def test_the_default_number_of_steps_suits_usual_temperatures() -> None:
    w = normal(20, 8, 8)
    for tau in (1.0, 0.3):
        torch.testing.assert_close(
            matching_unrolled(w / tau, euclidean=True), birkhoff_projection(w / tau), atol=2e-3, rtol=0
        )


def test_square_entropic_is_unrolled_sinkhorn() -> None:
    w = normal(3, 5, 5) / 0.2
    torch.testing.assert_close(matching_unrolled(w, iterations=7), sinkhorn_unrolled(w, 7))


@BOTH
def test_columns_are_exact_and_rows_nearly(euclidean: bool) -> None:
    P = matching_unrolled(normal(4, 6, 6), euclidean=euclidean)
    torch.testing.assert_close(P.sum(-2), torch.ones(4, 6, dtype=torch.float64))
    torch.testing.assert_close(P.sum(-1), torch.ones(4, 6, dtype=torch.float64), atol=1e-4, rtol=0)
    assert bool((P >= 0).all())


@BOTH
def test_forbidden_pairs(euclidean: bool) -> None:
    f = fix(matching_unrolled, euclidean=euclidean)
    w = normal(5, 6)
    w[1], w[:, 4] = -math.inf, -math.inf
    w.requires_grad_()
    P = f(w, partial=True)
    gone = w.detach() == -math.inf
    assert bool((P[gone] == 0).all())
    rest = f(w.detach()[[0, 2, 3, 4]][:, [0, 1, 2, 3, 5]], partial=True)
    torch.testing.assert_close(P[[0, 2, 3, 4]][:, [0, 1, 2, 3, 5]], rest)
    (grad,) = torch.autograd.grad((P * normal(5, 6, seed=1)).sum(), w, create_graph=True)
    assert bool(grad.isfinite().all()) and bool((grad[gone] == 0).all())
    if not euclidean:  # piecewise linear: no second derivative
        (second,) = torch.autograd.grad(grad.square().sum(), w)
        assert bool(second.isfinite().all())
    impossible = torch.zeros(2, 3, 3)
    impossible[1, :2, 1:] = -math.inf
    with pytest.raises(InputError, match=r"leave none in 1 of 2 matrices \(first: 1\)"):
        f(impossible)


@BOTH
@PARTIAL
def test_batch_is_loop_is_vmap(partial: bool, euclidean: bool) -> None:
    f = fix(matching_unrolled, partial=partial, euclidean=euclidean, iterations=5)
    w = normal(4, 2, 3, 5)
    loop = torch.stack([torch.stack([f(x) for x in row]) for row in w])
    torch.testing.assert_close(f(w), loop)
    torch.testing.assert_close(torch.vmap(f)(w), loop)
    assert f(torch.empty(0, 3, 5)).shape == (0, 3, 5)
    assert f(w.bfloat16()).dtype == torch.bfloat16


@BOTH
def test_compile_is_eager(euclidean: bool) -> None:
    torch._dynamo.reset()
    w = normal(3, 4, 6).requires_grad_()

    def loss(w: Tensor) -> Tensor:
        return matching_unrolled(w, euclidean=euclidean, iterations=3).square().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    expected, got = (torch.autograd.grad(f(w), w)[0] for f in (loss, compiled))
    torch.testing.assert_close(got, expected)


def test_what_is_said() -> None:
    with pytest.raises(InputError, match="must not hold NaN"):
        matching_unrolled(torch.full((2, 2), math.nan))
    with pytest.raises(InputError, match="at least 1"):
        matching_unrolled(torch.zeros(2, 2), iterations=0)
