"""Relaxed matchings of unequal or partly unmatched sides: optimality conditions, oracles, derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial as fix

import cvxpy as cp
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from argrad._errors import ConvergenceWarning, InputError
from argrad.solvers.assignment import assignment
from argrad.solvers.matching import entropic_matching, euclidean_matching, matching_report
from argrad.solvers.sinkhorn import sinkhorn

RELAXATIONS = {"entropic": entropic_matching, "euclidean": euclidean_matching}
SHAPES = [(3, 5), (5, 3), (4, 4), (1, 4), (4, 1), (1, 1)]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def kkt_violation(w: Tensor, partial: bool, euclidean: bool, **options: float) -> float:
    """The worst breach of the optimality conditions of the problem in the docstring."""
    found = matching_report(w, partial=partial, euclidean=euclidean, **options)  # type: ignore[arg-type]
    P, a, b = found.plan, found.row_potentials, found.column_potentials
    reduced = w - a[..., :, None] - b[..., None, :]
    n, m = w.shape[-2:]
    one = 0 if n == m and not partial else 1  # derivative of P log P; free multipliers absorb it
    stationary = P - (reduced.clamp_min(0) if euclidean else (reduced - one).exp())
    worst = [stationary.abs().max(), (-P).max()]
    for sums, multiplier, equal in ((P.sum(-1), a, n <= m), (P.sum(-2), b, m <= n)):
        if equal and not partial:
            worst.append((sums - 1).abs().max())
        else:  # feasible, of the right sign, and complementary
            worst += [
                (sums - 1).max(),
                (-multiplier).max(),
                torch.minimum(multiplier, 1 - sums).abs().max(),
            ]
    return float(torch.stack(worst).max())


@pytest.mark.parametrize("tau", [10.0, 1.0, 0.1, 0.01])
@pytest.mark.parametrize("euclidean", [False, True])
@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_optimality_conditions(
    shape: tuple[int, int], partial: bool, euclidean: bool, tau: float
) -> None:
    w = normal(6, *shape) / tau
    # 1e-9: the tolerance 1e-10, and entries below 1e-11 that the Euclidean solver drops.
    assert kkt_violation(w, partial, euclidean) < 1e-9


@pytest.mark.parametrize("euclidean", [False, True])
@pytest.mark.parametrize("partial", [False, True])
def test_against_cvxpy(partial: bool, euclidean: bool) -> None:
    w = 2 * normal(3, 4)
    P = cp.Variable((3, 4), nonneg=True)
    omega = cp.sum_squares(P) / 2 if euclidean else -cp.sum(cp.entr(P))
    rows = cp.sum(P, axis=1) <= 1 if partial else cp.sum(P, axis=1) == 1
    problem = cp.Problem(
        cp.Maximize(cp.sum(cp.multiply(w.numpy(), P)) - omega), [rows, cp.sum(P, axis=0) <= 1]
    )
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    f = euclidean_matching if euclidean else entropic_matching
    theirs = torch.tensor(P.value)
    assert torch.allclose(
        f(w, partial=partial), theirs, atol=1e-5
    )  # an interior-point solver's accuracy


def test_square_entropic_is_sinkhorn() -> None:
    w = normal(3, 5, 5) / 0.2
    assert torch.allclose(entropic_matching(w), sinkhorn(w), atol=1e-9)


def test_slack_everywhere_has_a_closed_form() -> None:
    # Very negative scores bind nothing: P = exp(w - 1), respectively max(w, 0).
    w = normal(3, 4) - 6
    assert torch.allclose(entropic_matching(w, partial=True), (w - 1).exp(), rtol=1e-12)
    w = 0.1 * normal(3, 4)
    assert torch.equal(euclidean_matching(w, partial=True), w.clamp_min(0))


@pytest.mark.parametrize("name", RELAXATIONS)
@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (5, 5)])
def test_small_tau_gives_the_assignment(shape: tuple[int, int], partial: bool, name: str) -> None:
    w = normal(10, *shape)
    P = RELAXATIONS[name](w / 1e-4, partial=partial)
    # exp(-gap / tau), where no gap between the best two is near 1e-3.
    assert torch.allclose(P, assignment(w, partial=partial), atol=1e-6)


def test_the_gradient_is_finite_where_a_row_keeps_a_denormal() -> None:
    """A row or column whose whole mass is 1e-313 has an infinite reciprocal."""
    w = torch.tensor([[0.1919, 1.2638, -1.2904], [-0.7911, -0.0209, -0.7185]], dtype=torch.float64)
    leaf = (w / 1e-3).requires_grad_()
    P = entropic_matching(leaf, partial=True)
    assert 0 < P[:, 2].sum() < torch.finfo(torch.float64).tiny
    (grad,) = torch.autograd.grad((P * normal(2, 3)).sum(), leaf)
    assert bool(grad.isfinite().all())


@pytest.mark.parametrize("name", RELAXATIONS)
def test_forbidden_rows_and_columns_are_removal(name: str) -> None:
    f = fix(RELAXATIONS[name], partial=True)
    w = normal(5, 6)
    w[1], w[:, 4] = -math.inf, -math.inf
    w.requires_grad_()
    P = f(w)
    rows, columns = [0, 2, 3, 4], [0, 1, 2, 3, 5]
    assert torch.allclose(P[rows][:, columns], f(w.detach()[rows][:, columns]), atol=1e-9)
    gone = w.detach() == -math.inf
    assert bool((P[gone] == 0).all())
    (grad,) = torch.autograd.grad((P * normal(5, 6, seed=1)).sum(), w)
    assert bool(grad.isfinite().all()) and bool((grad[gone] == 0).all())
    assert torch.equal(f(torch.full((2, 3), -math.inf)), torch.zeros(2, 3))
    wide = normal(3, 5)
    wide[:, 2] = -math.inf
    P = RELAXATIONS[name](wide)
    assert torch.allclose(P[:, [0, 1, 3, 4]], RELAXATIONS[name](wide[:, [0, 1, 3, 4]]), atol=1e-9)


@pytest.mark.parametrize("name", RELAXATIONS)
@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("shape", [(3, 4), (4, 3), (3, 3)])
def test_gradcheck(shape: tuple[int, int], partial: bool, name: str) -> None:
    f: Callable[[Tensor], Tensor] = fix(RELAXATIONS[name], partial=partial, tolerance=1e-12)
    w = normal(2, *shape, seed=4).requires_grad_()
    assert gradcheck(f, w)
    assert gradcheck(f, w, check_forward_ad=True, check_backward_ad=False)
    assert gradgradcheck(f, w)


@pytest.mark.parametrize("name", RELAXATIONS)
@pytest.mark.parametrize("partial", [False, True])
def test_batch_is_loop_is_vmap(partial: bool, name: str) -> None:
    f = fix(RELAXATIONS[name], partial=partial)
    w = normal(4, 2, 3, 5)
    loop = torch.stack([torch.stack([f(x) for x in row]) for row in w])
    assert torch.equal(f(w), loop)
    assert torch.equal(torch.vmap(f)(w), loop)
    assert torch.allclose(f(w.mT).mT, loop, atol=1e-9)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # dynamo's own
def test_compile_is_eager() -> None:
    torch._dynamo.reset()
    w = normal(3, 4, 6).requires_grad_()

    def loss(w: Tensor) -> Tensor:
        return entropic_matching(w, partial=True).square().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    expected, got = (torch.autograd.grad(f(w), w)[0] for f in (loss, compiled))
    assert torch.allclose(expected, got, atol=1e-12)


@pytest.mark.parametrize("name", RELAXATIONS)
def test_dtypes_and_empty_batches(name: str) -> None:
    f = RELAXATIONS[name]
    w = 3 * normal(4, 3, 5)
    assert torch.allclose(f(w.float()).double(), f(w.float().double()), atol=2e-6)  # tolerance 1e-6
    # The scores are widened before anything is added to them.
    half = w.bfloat16()
    assert torch.equal(f(half, partial=True), f(half.float(), partial=True).bfloat16())
    assert f(torch.empty(0, 3, 5)).shape == (0, 3, 5)


def test_what_is_said() -> None:
    w = torch.zeros(3, 2, 5)
    w[1, 0] = -math.inf
    with pytest.raises(InputError, match=r"`entropic_matching\(scores=...\)` .* leave none in 1 of 3"):
        entropic_matching(w)
    crowd = torch.zeros(3, 5)
    crowd[:, 2:] = -math.inf  # three rows, two columns
    with pytest.raises(
        InputError, match=r"`euclidean_matching\(scores=...\)` .* let some stay unmatched"
    ):
        euclidean_matching(crowd)
    with pytest.warns(ConvergenceWarning, match="`entropic_matching` stopped after 2 iterations"):
        entropic_matching(normal(6, 8) / 0.01, max_iterations=2)
    with pytest.raises(InputError, match="must not hold NaN"):
        entropic_matching(torch.full((2, 2), math.nan))
