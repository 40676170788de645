"""Euclidean projection onto the Birkhoff polytope: optimality, oracles, derivatives on the support."""

from __future__ import annotations

import math

import cvxpy as cp
import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from argrad._errors import ConvergenceError, ConvergenceWarning, InputError
from argrad.solvers.assignment import assignment
from argrad.solvers.birkhoff import birkhoff_projection
from argrad.solvers.tangent import tangent


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("tau", [10.0, 1.0, 0.1, 0.01, 0.001])
@pytest.mark.parametrize("n", [1, 2, 5, 20])
def test_optimality_against_the_linear_oracle(n: int, tau: float) -> None:
    # P is the projection of w iff no vertex improves on it: max_Z <w - P, Z> = <w - P, P>.
    w = normal(6, n, n) / tau
    P = birkhoff_projection(w, on_failure="raise")
    assert bool((P >= 0).all())
    assert float((P.sum(-1) - 1).abs().max()) < 1e-9 and float((P.sum(-2) - 1).abs().max()) < 1e-9
    gap = ((w - P) * (assignment(w - P) - P)).sum((-2, -1))
    assert float(gap.max()) < 1e-10 * n * float(w.abs().max())  # the tolerance times the scores


def test_against_cvxpy() -> None:
    w = normal(5, 5)
    P = cp.Variable((5, 5), nonneg=True)
    sums = [cp.sum(P, axis=0) == 1, cp.sum(P, axis=1) == 1]
    cp.Problem(cp.Minimize(cp.sum_squares(P - w.numpy())), sums).solve(solver=cp.CLARABEL)
    theirs = torch.tensor(P.value)
    assert torch.allclose(
        birkhoff_projection(w), theirs, atol=1e-5
    )  # an interior-point solver's accuracy


def test_points_of_the_polytope_stay() -> None:
    permutations = torch.eye(5, dtype=torch.float64)[torch.stack([torch.randperm(5) for _ in range(4)])]
    weights = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    P = (weights[:, None, None] * permutations).sum(0)
    assert torch.allclose(birkhoff_projection(P), P, atol=1e-10)
    assert torch.equal(birkhoff_projection(permutations), permutations)
    shifted = P + 30 * normal(5, 1) + 30 * normal(1, 5, seed=1)  # row and column shifts change nothing
    assert torch.allclose(birkhoff_projection(shifted), P, atol=1e-9)


def test_limits() -> None:
    w = normal(8, 6, 6)
    assert torch.equal(birkhoff_projection(w / 1e-3), assignment(w))  # exactly a permutation
    assert torch.allclose(birkhoff_projection(w / 1e9), torch.full_like(w, 1 / 6), atol=1e-8)


def test_sparse_zeros_are_exact() -> None:
    P = birkhoff_projection((3 * normal(10, 8, 8)).float())
    assert bool((P == 0).any(-1).all())
    assert bool((P[P > 0] > 1e-9).all())


def test_gradcheck() -> None:
    w = normal(3, 4, 4).requires_grad_()
    assert gradcheck(birkhoff_projection, w)
    assert gradgradcheck(birkhoff_projection, w)
    assert gradcheck(birkhoff_projection, w, check_forward_ad=True, check_backward_ad=False)


def test_gradient_is_the_projection_on_the_support() -> None:
    w = (3 * normal(4, 7, 7)).requires_grad_()
    P, G = birkhoff_projection(w), normal(4, 7, 7, seed=1)
    (grad,) = torch.autograd.grad((P * G).sum(), w)
    assert bool((grad[P == 0] == 0).all())
    assert float(grad.sum(-1).abs().max()) < 1e-10 and float(grad.sum(-2).abs().max()) < 1e-10
    again = tangent((P.detach() > 0).double(), grad)
    assert torch.allclose(again, grad, atol=1e-10)  # projecting twice is projecting once


def test_masks() -> None:
    w = normal(5, 5)
    w[2, :] = w[:, 3] = -math.inf
    w[2, 3] = 0.7
    rows, columns = [0, 1, 3, 4], [0, 1, 2, 4]
    w.requires_grad_()
    P = birkhoff_projection(w)
    assert torch.allclose(
        P[rows][:, columns], birkhoff_projection(w.detach()[rows][:, columns]), atol=1e-10
    )
    (grad,) = torch.autograd.grad(P.square().sum(), w)
    assert bool(grad.isfinite().all()) and bool((grad[w.detach() == -math.inf] == 0).all())
    lower = normal(6, 6).masked_fill(torch.ones(6, 6).triu(1).bool(), -math.inf)
    assert torch.allclose(birkhoff_projection(lower), torch.eye(6, dtype=torch.float64), atol=1e-9)


def test_batch_is_loop_is_vmap() -> None:
    w = normal(2, 3, 4, 4)
    loop = torch.stack([torch.stack([birkhoff_projection(x) for x in row]) for row in w])
    assert torch.equal(birkhoff_projection(w), loop)
    assert torch.equal(torch.vmap(birkhoff_projection)(w), loop)
    per_sample = torch.vmap(torch.func.grad(lambda x: birkhoff_projection(x).square().sum()))(w)
    whole = torch.func.grad(lambda x: birkhoff_projection(x).square().sum())(w)
    assert torch.allclose(per_sample, whole, atol=1e-12)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # dynamo's own
def test_compile_is_eager() -> None:
    torch._dynamo.reset()
    w = normal(3, 5, 5).requires_grad_()

    def loss(w: Tensor) -> Tensor:
        return birkhoff_projection(w).square().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    expected, got = (torch.autograd.grad(f(w), w)[0] for f in (loss, compiled))
    assert torch.allclose(expected, got, atol=1e-12)


def test_dtypes_and_empty_batches() -> None:
    w = 3 * normal(4, 6, 6)
    single = birkhoff_projection(w.float())
    assert torch.allclose(
        single.double(), birkhoff_projection(w.float().double()), atol=1e-6
    )  # rounding
    half = w.bfloat16()
    assert torch.equal(birkhoff_projection(half), birkhoff_projection(half.float()).bfloat16())
    assert birkhoff_projection(torch.empty(2, 0, 3, 3)).shape == (2, 0, 3, 3)


def test_what_is_said() -> None:
    with pytest.raises(InputError, match=r"must end in a square matrix.*euclidean_matching"):
        birkhoff_projection(torch.zeros(2, 3))
    impossible = torch.zeros(3, 3)
    impossible[:2, 1:] = -math.inf
    with pytest.raises(InputError, match="leave none in the matrix"):
        birkhoff_projection(impossible)
    w = normal(2, 9, 9) / 0.01
    with pytest.warns(ConvergenceWarning, match="`birkhoff_projection` stopped after 2 iterations"):
        birkhoff_projection(w, max_iterations=2)
    with pytest.raises(ConvergenceError, match="of 2 matrices"):
        birkhoff_projection(w, max_iterations=2, on_failure="raise")
