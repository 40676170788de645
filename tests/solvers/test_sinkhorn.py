"""Sinkhorn: solves the stated problem at any temperature, and differentiates it."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
import torch
from ot import sinkhorn as pot_sinkhorn  # codespell:ignore
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.graph import saved_tensors_hooks

from argrad._errors import ConvergenceError, ConvergenceWarning, InputError, InputTypeError
from argrad.random import gumbel
from argrad.solvers.assignment import assignment
from argrad.solvers.sinkhorn import sinkhorn, sinkhorn_report, sinkhorn_unrolled

KINDS = ("normal", "sorting", "outer", "heavy", "integer")


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=seeded(seed))


def scores_of(kind: str, batch: int, n: int) -> Tensor:
    g = seeded(3)
    if kind == "normal":
        return normal(batch, n, n) + gumbel((batch, n, n), dtype=torch.float64, generator=g)
    x = torch.rand(batch, n, dtype=torch.float64, generator=g)
    if kind == "sorting":  # w_ij = -|sorted_i - x_j|: long chains of near ties
        return -10 * (x.sort(-1).values[..., :, None] - x[..., None, :]).abs()
    if kind == "outer":
        return 4 * torch.linspace(0, 1, n, dtype=torch.float64)[:, None] * x[..., None, :]
    if kind == "heavy":
        return normal(batch, n, n) / x[..., None].clamp_min(1e-3)
    return torch.randint(0, 4, (batch, n, n), generator=g).double()  # exact ties


def marginal_error(P: Tensor) -> float:
    return max(float((P.sum(d) - 1).abs().max()) for d in (-1, -2))


# ---- the problem ---------------------------------------------------------------------------------


@pytest.mark.parametrize("tau", [10.0, 1.0, 0.1, 0.01, 0.001])
@pytest.mark.parametrize("kind", KINDS)
def test_solves_the_stated_problem_at_any_temperature(kind: str, tau: float) -> None:
    w = scores_of(kind, 4, 12) / tau
    found = sinkhorn_report(w, on_failure="raise")
    P = found.plan
    assert marginal_error(P) < 1.1e-10  # the default tolerance, and rounding
    # Stationarity: log P = w - alpha - beta wherever P does not underflow.
    reduced = w - found.row_potentials[..., :, None] - found.column_potentials[..., None, :]
    assert torch.allclose(
        P, reduced.exp(), rtol=1e-9, atol=1e-300
    )  # 1e-9: |w| reaches 1e4 at tau 0.001


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-5), (torch.float32, 1e-4)])
def test_the_truth_table_case(dtype: torch.dtype, bound: float) -> None:
    # 64 matrices 20 x 20 at tau = 0.01, where 1000 plain iterations leave an error of 9e-3.
    w = (normal(64, 20, 20) + gumbel((64, 20, 20), dtype=torch.float64, generator=seeded(1))) / 0.01
    P = sinkhorn(w.to(dtype), on_failure="raise")
    assert marginal_error(P) < bound
    assert torch.equal(P.argmax(-1), assignment(w).argmax(-1))
    assert marginal_error(sinkhorn_unrolled(w[:4], 500)) > 1e-3


def test_against_pot() -> None:
    w, r, c = normal(5, 7), normal(5, seed=1).softmax(-1), normal(7, seed=2).softmax(-1)
    for tau in (1.0, 0.3):
        P = sinkhorn(w / tau, row_marginals=r, column_marginals=c)
        theirs = pot_sinkhorn(
            r.numpy(),
            c.numpy(),
            -w.numpy(),
            tau,
            method="sinkhorn_log",
            stopThr=1e-13,
            numItermax=100_000,
        )
        assert np.abs(P.numpy() - theirs).max() < 1e-10  # both tolerances


def test_closed_form_two_by_two() -> None:
    # P = [[p, 1-p], [1-p, p]] with logit p = (w00 + w11 - w01 - w10) / 2.
    w = 5 * normal(50, 2, 2)
    p = ((w[:, 0, 0] + w[:, 1, 1] - w[:, 0, 1] - w[:, 1, 0]) / 2).sigmoid()
    assert torch.allclose(sinkhorn(w)[:, 0, 0], p, atol=1e-10)


def test_limits() -> None:
    w = normal(8, 6, 6)
    assert torch.allclose(sinkhorn(w / 1e-3), assignment(w), atol=1e-9)  # no near ties in these draws
    assert torch.allclose(
        sinkhorn(w / 1e6), torch.full_like(w, 1 / 6), atol=1e-5
    )  # first order in 1/tau
    r, c = torch.tensor([1.0, 3.0]), torch.tensor([2.0, 1.0, 1.0])
    P = sinkhorn(torch.zeros(2, 3), row_marginals=r, column_marginals=c)
    assert torch.allclose(P, r[:, None] * c / 4)


def test_shifts_of_rows_and_columns_change_nothing() -> None:
    w = normal(3, 5, 5)
    shifted = w + 100 * normal(3, 5, 1, seed=1) + 100 * normal(3, 1, 5, seed=2)
    assert torch.allclose(sinkhorn(w), sinkhorn(shifted), atol=1e-9)


@pytest.mark.parametrize("scale", [1.0, 10.0, 100.0])
def test_float32_against_float64(scale: float) -> None:
    w = (scale * normal(16, 10, 10)).float()
    assert torch.allclose(sinkhorn(w).double(), sinkhorn(w.double()), atol=5e-6)  # the tolerance, 1e-6


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    w = normal(2, 5, 5).to(dtype).requires_grad_()
    P = sinkhorn(w)
    P.square().sum().backward()
    assert P.dtype == dtype and w.grad is not None and w.grad.dtype == dtype
    reference = sinkhorn(w.detach().float())
    assert torch.equal(P.detach(), reference.to(dtype))


# ---- masks, sizes, batches -----------------------------------------------------------------------


def test_a_forced_pair_is_removal() -> None:
    w = normal(5, 5)
    w[2, :] = w[:, 3] = -math.inf
    w[2, 3] = 0.7
    w.requires_grad_()
    P = sinkhorn(w)
    rows, columns = [0, 1, 3, 4], [0, 1, 2, 4]
    rest = sinkhorn(w.detach()[rows][:, columns])
    assert torch.allclose(P[rows][:, columns], rest, atol=1e-10)
    assert float(P[2, 3].detach()) == pytest.approx(1.0, abs=1e-10)
    assert bool((P[w.detach() == -math.inf] == 0).all())
    (grad,) = torch.autograd.grad((P * normal(5, 5, seed=1)).sum(), w)
    assert bool(grad.isfinite().all()) and bool((grad[w.detach() == -math.inf] == 0).all())


def test_masked_enumeration_limit() -> None:
    # At small tau the relaxation is the best allowed permutation, found by enumeration.
    w = normal(4, 4).masked_fill(torch.rand(4, 4, generator=seeded(5)) < 0.3, -math.inf)
    w[range(4), [1, 0, 3, 2]] = normal(4, seed=7)
    best = max(itertools.permutations(range(4)), key=lambda p: float(w[range(4), list(p)].sum()))
    assert sinkhorn(w / 1e-3).argmax(-1).tolist() == list(best)


def test_support_without_total_support() -> None:
    # Only the identity fits under the triangle; the other allowed entries must vanish.
    w = normal(8, 8).masked_fill(torch.ones(8, 8).triu(1).bool(), -math.inf)
    assert torch.allclose(sinkhorn(w), torch.eye(8, dtype=torch.float64), atol=1e-9)


def test_zero_marginals_remove_a_row() -> None:
    w, c = normal(4, 3), torch.tensor([1.0, 1.0, 1.0], dtype=torch.float64)
    r = torch.tensor([1.0, 0.0, 1.0, 1.0], dtype=torch.float64)
    P = sinkhorn(w, row_marginals=r, column_marginals=c)
    assert bool((P[1] == 0).all())
    assert torch.allclose(P[[0, 2, 3]], sinkhorn(w[[0, 2, 3]]), atol=1e-9)


def test_one_item_and_empty_batches() -> None:
    assert torch.equal(sinkhorn(torch.tensor([[-3.0]])), torch.ones(1, 1))
    w = torch.empty(0, 3, 4, 4, requires_grad=True)
    P = sinkhorn(w)
    P.sum().backward()
    assert P.shape == w.shape and w.grad is not None and w.grad.shape == w.shape
    assert sinkhorn_unrolled(torch.empty(0, 3, 3)).shape == (0, 3, 3)


def test_batch_is_loop() -> None:
    w = normal(2, 3, 6, 6) / 0.1
    one_by_one = torch.stack([torch.stack([sinkhorn(x) for x in row]) for row in w])
    assert torch.equal(sinkhorn(w), one_by_one)
    assert torch.equal(sinkhorn(w.mT.contiguous().mT), one_by_one)  # strides do not matter


# ---- derivatives ---------------------------------------------------------------------------------


def test_gradcheck() -> None:
    w = normal(2, 4, 4).requires_grad_()
    assert gradcheck(sinkhorn, w)
    assert gradgradcheck(sinkhorn, w)
    assert gradcheck(sinkhorn, w, check_forward_ad=True, check_backward_ad=False)


def test_gradcheck_with_forbidden_pairs_and_marginals() -> None:
    free = normal(3, 5).requires_grad_()
    a, b = normal(3, seed=1).requires_grad_(), normal(5, seed=2).requires_grad_()
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[0, 1] = mask[2, 4] = False

    def f(w: Tensor, a: Tensor, b: Tensor) -> Tensor:
        r, c = a.softmax(-1), b.softmax(-1)
        return sinkhorn(w.masked_fill(~mask, -math.inf), row_marginals=r, column_marginals=c)

    assert gradcheck(f, (free, a, b))
    assert gradgradcheck(f, (free, a, b))
    assert gradcheck(f, (free, a, b), check_forward_ad=True, check_backward_ad=False)


def test_implicit_is_unrolled_when_converged() -> None:
    w = normal(4, 6, 6).requires_grad_()
    G = normal(4, 6, 6, seed=1)
    (implicit,) = torch.autograd.grad((sinkhorn(w) * G).sum(), w)
    (unrolled,) = torch.autograd.grad((sinkhorn_unrolled(w, 300) * G).sum(), w)
    assert torch.allclose(implicit, unrolled, atol=1e-9)  # the forward tolerance, 1e-10


@pytest.mark.parametrize("tau", [0.1, 0.01, 0.001])
def test_gradients_at_low_temperature(tau: float) -> None:
    # Where P is nearly a permutation the linear system is nearly singular. The gradient must still have
    # zero marginals and agree with a difference quotient.
    w = (scores_of("normal", 3, 10) / tau).requires_grad_()
    G, v = normal(3, 10, 10, seed=1), normal(3, 10, 10, seed=2)
    (grad,) = torch.autograd.grad((sinkhorn(w, tolerance=1e-12) * G).sum(), w)
    h = 1e-5
    ends = [(sinkhorn(w.detach() + s * h * v, tolerance=1e-12) * G).sum((-2, -1)) for s in (1, -1)]
    quotient = (ends[0] - ends[1]) / (2 * h)
    assert torch.allclose((grad * v).sum((-2, -1)), quotient, atol=1e-6)  # O(h^2) and 1e-12 / h
    assert float(grad.sum(-1).abs().max()) < 1e-10 and float(grad.sum(-2).abs().max()) < 1e-10


def saved_bytes(f: object, *args: object) -> int:
    """Bytes that autograd keeps for the backward pass."""
    total = 0

    def count(t: Tensor) -> Tensor:
        nonlocal total
        total += t.numel() * t.element_size()
        return t

    with saved_tensors_hooks(count, lambda t: t):
        f(*args)  # type: ignore[operator]
    return total


def test_backward_does_not_depend_on_the_iterations() -> None:
    w = scores_of("normal", 4, 15).requires_grad_()
    easy, hard = w / 10, w / 0.01
    few, many = sinkhorn_report(easy).iterations.max(), sinkhorn_report(hard).iterations.max()
    assert many > 2 * few
    assert saved_bytes(sinkhorn, easy) == saved_bytes(sinkhorn, hard)
    assert saved_bytes(sinkhorn, hard) < 4 * w.numel() * 8  # the plan and its potentials
    assert saved_bytes(sinkhorn_unrolled, hard, 40) > 1.8 * saved_bytes(sinkhorn_unrolled, hard, 20)


# ---- transforms ----------------------------------------------------------------------------------


def test_vmap_is_loop() -> None:
    w, G = normal(5, 3, 4, 4), normal(5, 3, 4, 4, seed=1)
    loop = torch.stack([sinkhorn(x) for x in w])
    assert torch.allclose(torch.vmap(sinkhorn)(w), loop, atol=1e-12)
    assert torch.allclose(torch.vmap(sinkhorn, 1, 1)(w), loop, atol=1e-12)

    def loss(x: Tensor, g: Tensor) -> Tensor:
        return (sinkhorn(x) * g).sum()

    per_sample = torch.vmap(torch.func.grad(loss))(w, G)
    assert torch.allclose(per_sample, torch.func.grad(loss)(w, G), atol=1e-12)
    both = torch.func.jacfwd(torch.func.jacrev(sinkhorn))(w[0, 0])
    assert torch.allclose(both, torch.func.jacrev(torch.func.jacrev(sinkhorn))(w[0, 0]), atol=1e-12)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # dynamo's own
@pytest.mark.parametrize(
    "f", [sinkhorn, lambda w: sinkhorn_unrolled(w, 2)], ids=["implicit", "unrolled"]
)
def test_compile_is_eager(f: object) -> None:
    torch._dynamo.reset()
    w = (normal(3, 5, 5) / 0.3).requires_grad_()
    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")  # type: ignore[call-overload]
    results = []
    for g in (f, compiled):
        P = g(w)  # type: ignore[operator]
        results.append((P.detach(), *torch.autograd.grad(P.square().sum(), w)))
    assert torch.allclose(results[0][0], results[1][0], atol=1e-12)
    assert torch.allclose(results[0][1], results[1][1], atol=1e-12)


def test_operator_is_registered_properly() -> None:
    from argrad.solvers._transport_operator import solve

    ones = torch.ones(2, 3, dtype=torch.float64)
    args = (normal(2, 3, 3), ones, ones, False, False, False, 1e-9, 100, "warn", "sinkhorn")
    torch.library.opcheck(solve, args, test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize("euclidean", [False, True])
@pytest.mark.parametrize("at_most", [(False, False), (True, False), (True, True)])
def test_torch_twin_is_the_kernel(at_most: tuple[bool, bool], euclidean: bool) -> None:
    from argrad.solvers._transport_operator import _run
    from argrad.solvers._transport_torch import solve_batch

    n = 6 if at_most[0] else 5
    w = torch.cat([normal(3, n, 5), normal(3, n, 5, seed=1) / 0.05])
    w[0, 0, 0] = -math.inf
    r, c = torch.ones(6, n, dtype=torch.float64), torch.ones(6, 5, dtype=torch.float64)
    theirs = solve_batch(w, r, c, *at_most, euclidean, 1e-11, 500)
    ours = _run((w, r, c, *at_most), euclidean, 1e-11, 500)
    assert float(theirs[3].max()) <= 1e-11
    assert torch.allclose(ours[0], theirs[0], atol=1e-9)  # both within 1e-11 of the same optimum


# ---- what is said --------------------------------------------------------------------------------


def test_convergence_failure_is_told() -> None:
    w = normal(3, 8, 8) / 0.01
    with pytest.warns(
        ConvergenceWarning, match=r"stopped after 3 iterations .* off by .* 3 of 3 matrices"
    ):
        P = sinkhorn(w, max_iterations=3)
    residual = sinkhorn_report(w, max_iterations=3, on_failure="ignore").residual
    assert float(residual.max()) == pytest.approx(marginal_error(P), rel=1e-6)
    with pytest.raises(ConvergenceError, match="larger tau"):
        sinkhorn(w, max_iterations=3, on_failure="raise")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sinkhorn(w, max_iterations=3, on_failure="ignore")


def test_impossible_masks_are_told() -> None:
    w = normal(3, 4, 4)
    w[1, :2, 1:] = -math.inf  # two rows that both want column 0
    with pytest.raises(
        InputError, match=r"-inf pairs \(or `mask`\) leave none in 1 of 3 matrices \(first: 1\)"
    ):
        sinkhorn(w)
    w = normal(4, 4)
    w[2] = -math.inf
    with pytest.raises(InputError, match="leave none in the matrix"):
        sinkhorn(w)
    with pytest.raises(InputError, match="remove every choice"):
        sinkhorn_unrolled(w)
    w, half = normal(2, 2), torch.tensor([0.9, 0.1])
    w[0, 0] = -math.inf
    with pytest.raises(InputError, match="leave none"):
        sinkhorn(w, row_marginals=half, column_marginals=half)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"scores": torch.zeros(2, 3)}, r"`sinkhorn\(scores=...\)` must end in a square matrix"),
        ({"scores": torch.zeros(3)}, "at least 2 dimensions"),
        ({"scores": torch.zeros(0, 0)}, "at least one item"),
        ({"scores": torch.tensor([[0.0, math.nan], [0.0, 0.0]])}, "must not hold NaN"),
        ({"tolerance": 0.0}, r"`sinkhorn\(tolerance=...\)` must be positive"),
        ({"max_iterations": 0}, "integer of at least 1"),
        ({"on_failure": "shout"}, '"warn", "raise" or "ignore"'),
        ({"row_marginals": torch.ones(2)}, "must be given with the other"),
        ({"row_marginals": torch.ones(3), "column_marginals": torch.ones(2)}, "must have 2 entries"),
        ({"row_marginals": -torch.ones(2), "column_marginals": torch.ones(2)}, "not negative"),
        ({"row_marginals": torch.ones(2), "column_marginals": 2 * torch.ones(2)}, "the same total"),
    ],
)
def test_wrong_input_gets_a_sentence(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        sinkhorn(**{"scores": torch.zeros(2, 2), **arguments})  # type: ignore[arg-type]


def test_integers_get_a_sentence() -> None:
    with pytest.raises(InputTypeError, match="floating point"):
        sinkhorn(torch.zeros(2, 2, dtype=torch.int64))
