"""Soft top-k with four regularizers: the stated problem, its limits, its derivatives, its refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import mpmath
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor

from argrad._errors import InputError, InputTypeError
from argrad.solvers import capped_simplex as capped
from argrad.solvers import fermi, root, tsallis

EPS = 2.0**-52


def normal(
    *shape: int, scale: float = 1.0, dtype: torch.dtype = torch.float64, seed: int = 0
) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


@dataclass(frozen=True)
class Case:
    name: str
    solve: Callable[..., Tensor]
    unrolled: Callable[..., Tensor]
    plain: Callable[[Tensor, int | Tensor], Tensor]  # the torch twin of the CPU kernel
    slope: Callable[[Tensor], Tensor]  # f'(z)
    f: Callable[[Tensor], Tensor]

    def __str__(self) -> str:
        return self.name


def xlogx(z: Tensor) -> Tensor:
    return torch.special.xlogy(z, z)


def tsallis_case(name: str, alpha: float) -> Case:
    return Case(
        name,
        partial(capped.capped_tsallis, alpha=alpha),
        partial(capped.capped_tsallis_unrolled, alpha=alpha),
        lambda x, k: tsallis.solve(x, k, alpha - 1),
        lambda z: (z ** (alpha - 1) - 1 / alpha) / (alpha - 1),
        lambda z: (z**alpha - z).sum(-1) / (alpha * (alpha - 1)),
    )


CASES = [
    Case(
        "euclidean",
        capped.capped_euclidean,
        capped.capped_euclidean_unrolled,
        lambda x, k: tsallis.solve(x, k, 1.0),
        lambda z: z,
        lambda z: 0.5 * z.square().sum(-1),
    ),
    Case(
        "entropy",
        capped.capped_entropy,
        capped.capped_entropy_unrolled,
        lambda x, k: tsallis.solve(x, k, 0.0),
        lambda z: z.log() + 1,
        lambda z: xlogx(z).sum(-1),
    ),
    Case(
        "binary_entropy",
        capped.capped_binary_entropy,
        capped.capped_binary_entropy_unrolled,
        lambda x, k: fermi.solve(x, k)[0],
        lambda z: z.logit(),
        lambda z: (xlogx(z) + xlogx(1 - z)).sum(-1),
    ),
    tsallis_case("tsallis13", 1.3),
    tsallis_case("tsallis15", 1.5),
    tsallis_case("tsallis25", 2.5),
]


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


# ---- the problem ---------------------------------------------------------------------------------


def check_optimal(case: Case, x: Tensor, z: Tensor, k: Tensor, at_most: bool, tolerance: float) -> None:
    """KKT: w - f'(z) is nu between the bounds, at most nu at 0, at least nu at 1; nu >= 0 with at_most."""
    assert bool(((z >= 0) & (z <= 1)).all())
    spare = k - z.sum(-1)
    slack = at_most & (spare > tolerance)
    assert bool((spare.abs() <= tolerance)[~slack].all())
    pull = x - case.slope(z.clamp(1e-300, 1))
    low = torch.where(z < 1 - 1e-9, pull, -math.inf).amax(-1)  # items that could rise
    high = torch.where(z > 1e-9, pull, math.inf).amin(-1)  # items that could fall
    assert bool((low <= high + tolerance).all())
    if at_most:
        assert bool((high >= -tolerance).all())
        assert bool((low <= tolerance)[slack].all())


@pytest.mark.parametrize("at_most", [False, True])
@pytest.mark.parametrize("scale", [0.1, 1.0, 5.0])
def test_optimality(case: Case, scale: float, at_most: bool):
    x = normal(40, 11, scale=scale) - 0.5
    k = torch.arange(40) % 10 + 1
    check_optimal(case, x, case.solve(x, k, at_most=at_most), k, at_most, 1e-9)
    check_optimal(case, x, case.unrolled(x, k, at_most=at_most), k, at_most, 1e-9)
    if not at_most:
        check_optimal(case, x, case.plain(x, k[:, None]), k, at_most, 1e-9)


@pytest.mark.parametrize("at_most", [False, True])
def test_solution_of_a_generic_solver(case: Case, at_most: bool):
    """SLSQP on the stated objective; its own tolerance is the 1e-4."""
    for seed, k in ((0, 2), (1, 4)):
        x = normal(6, seed=seed)

        def minus_objective(z, x=x):
            z = torch.from_numpy(z).clamp(1e-12, 1 - 1e-12)
            return float(case.f(z) - (x * z).sum())

        constraint = {"type": "ineq" if at_most else "eq", "fun": lambda z, k=k: k - z.sum()}
        found = minimize(
            minus_objective, [k / 6] * 6, bounds=[(0, 1)] * 6, constraints=[constraint], tol=1e-12
        )
        want = torch.from_numpy(found.x)
        torch.testing.assert_close(case.solve(x, k, at_most=at_most), want, rtol=0, atol=1e-4)


def test_solution_of_a_convex_solver():
    cvxpy = pytest.importorskip("cvxpy")
    x, k = normal(7), 3
    z = cvxpy.Variable(7)
    entropies = -cvxpy.entr(z)
    fs = {
        "euclidean": 0.5 * cvxpy.sum_squares(z),
        "entropy": cvxpy.sum(entropies),
        "binary_entropy": cvxpy.sum(entropies - cvxpy.entr(1 - z)),
    }
    for case in CASES[:3]:
        objective = cvxpy.Maximize(x.numpy() @ z - fs[case.name])
        cvxpy.Problem(objective, [z >= 0, z <= 1, cvxpy.sum(z) == k]).solve(solver="CLARABEL")
        # an interior-point solution: about the square root of its tolerance of 1e-8
        torch.testing.assert_close(case.solve(x, k), torch.from_numpy(z.value), rtol=0, atol=1e-4)


@pytest.mark.parametrize("scale", [0.01, 1.0, 20.0])
def test_high_precision(case: Case, scale: float):
    """50 digits, by bisection on the threshold."""
    forms = {"euclidean": 2.0, "entropy": 1.0, "tsallis13": 1.3, "tsallis15": 1.5, "tsallis25": 2.5}

    def point(v: mpmath.mpf) -> mpmath.mpf:
        if case.name == "binary_entropy":
            return 1 / (1 + mpmath.exp(-v))
        a = mpmath.mpf(forms[case.name]) - 1
        z = mpmath.exp(v) if a == 0 else max(mpmath.mpf(0), 1 + a * v) ** (1 / a)
        return min(mpmath.mpf(1), z)

    x, k = normal(9, scale=scale), 4
    with mpmath.workdps(50):
        w = [mpmath.mpf(s) for s in x.tolist()]
        low, high = min(w) - 30, max(w) + 30
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if sum(point(s - middle) for s in w) > k else (low, middle)
        want = torch.tensor([float(point(s - low)) for s in w], dtype=torch.float64)
    for z in (case.solve(x, k), case.plain(x, k), case.unrolled(x, k)):
        torch.testing.assert_close(z, want, rtol=0, atol=1e-13)


def test_relations():
    x = normal(5, 8)
    one, two = torch.tensor(1.0), torch.tensor(2.0)
    torch.testing.assert_close(capped.capped_tsallis(x, 3, 1.0), capped.capped_entropy(x, 3))
    torch.testing.assert_close(capped.capped_tsallis(x, 3, 2.0), capped.capped_euclidean(x, 3))
    torch.testing.assert_close(capped.capped_tsallis(x, 3, one), capped.capped_entropy(x, 3))
    torch.testing.assert_close(capped.capped_tsallis(x, 3, two), capped.capped_euclidean(x, 3))
    shifted = capped.capped_euclidean(x + 0.5, 3, at_most=True)
    torch.testing.assert_close(capped.capped_tsallis(x, 3, 2.0, at_most=True), shifted)
    # k of n is the mirror image of n - k of n for the symmetric regularizers
    for f in (capped.capped_euclidean, capped.capped_binary_entropy):
        torch.testing.assert_close(f(x, 3), 1 - f(-x, 5))
    # k = 1 is the simplex
    torch.testing.assert_close(capped.capped_entropy(x, 1), x.softmax(-1))


# ---- limits --------------------------------------------------------------------------------------


def test_nothing_and_everything(case: Case):
    x = normal(3, 5)
    x[1, 2] = -math.inf
    x.requires_grad_()
    allowed = (x > -math.inf).to(x.dtype)
    for f in (case.solve, case.unrolled, case.plain):
        assert torch.equal(f(x[:2], 0), torch.zeros(2, 5, dtype=x.dtype))
        full = f(x, torch.tensor([5, 4, 5])[:, None])
        assert torch.equal(full, allowed)
        if f is not case.plain:
            (grad,) = torch.autograd.grad((full * normal(3, 5)).sum(), x)
            assert torch.equal(grad, torch.zeros_like(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [1, 7, 49])
def test_temperature_limits(case: Case, k: int, dtype: torch.dtype):
    x = torch.linspace(-2, 2, 50, dtype=dtype)[torch.randperm(50)].expand(2, 50)
    hard = torch.zeros_like(x).scatter(-1, x.topk(k).indices, 1.0)
    for f in (case.solve, case.plain):
        torch.testing.assert_close(f(x / 1e-6, k), hard, rtol=0, atol=1e-6)
        # the scores differ by 4e-6 still, and Tsallis slopes are up to 50^(alpha - 2)
        centre = torch.full_like(x, k / 50)
        torch.testing.assert_close(f(x / 1e6, k), centre, rtol=0, atol=2e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3, 1e6])
def test_sums_to_k_at_any_scale(case: Case, scale: float, dtype: torch.dtype):
    x = normal(20, 500, scale=scale, dtype=dtype) + scale
    for k in (1, 20, 480):
        for f in (case.solve, case.plain):
            z = f(x, k)
            assert bool(((z >= 0) & (z <= 1)).all())
            # 500 terms, each rounded, summed pairwise
            want = torch.full((20,), float(k), dtype=dtype)
            torch.testing.assert_close(z.sum(-1), want, rtol=8 * torch.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0, 100.0])
def test_float32_has_float32_accuracy(case: Case, scale: float):
    x = normal(20, 300, scale=scale, dtype=torch.float32)
    for k in (2, 30, 150):
        want = case.solve(x.double(), k)
        for f in (case.solve, case.plain, case.unrolled):
            torch.testing.assert_close(f(x, k).double(), want, rtol=0, atol=2e-6)


def test_binary_entropy_keeps_small_gradients():
    """Nearly hard: z (1 - z) is 1e-9, where 1 - z has no digits left in float32."""
    x = torch.tensor([41.0, 40.0, 0.0, -1.0], requires_grad=True)
    g = torch.tensor([1.0, -2.0, 3.0, 0.5])
    exact = x.detach().double().requires_grad_()
    (want,) = torch.autograd.grad(capped.capped_binary_entropy(exact, 2), exact, g.double())
    (grad,) = torch.autograd.grad(capped.capped_binary_entropy(x, 2), x, g)
    assert 1e-6 > want.abs().max() > 1e-12
    torch.testing.assert_close(grad.double(), want, rtol=1e-4, atol=0)


def test_ties(case: Case):
    x = torch.tensor([2.0, 1.0, 1.0, 1.0, -3.0]) * torch.tensor([[1.0], [40.0]])
    for k in (1, 2, 3, 4):
        for f in (case.solve, case.plain):
            z = f(x, k)
            torch.testing.assert_close(z.sum(-1), torch.full((2,), float(k)))
            torch.testing.assert_close(z[:, 1:4], z[:, 1:2].expand(2, 3))
    torch.testing.assert_close(case.solve(torch.zeros(4), 2), torch.full((4,), 0.5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fixed_number_of_steps_is_enough(dtype: torch.dtype):
    """Of the binary entropy; `test_simplex.py` has the others."""
    n = torch.arange(200, dtype=dtype)
    rates = torch.linspace(0.01, 2.0, 20, dtype=dtype)[:, None]
    cauchy = normal(20, 200, dtype=dtype) / normal(20, 200, seed=1, dtype=dtype)
    families = [normal(20, 200, scale=s, dtype=dtype) for s in (1e-3, 0.1, 1.0, 10.0, 1e6)]
    families += [cauchy, 2.0 ** (-n * rates), -n * rates, (n % 3) * rates * 10]
    for x in families:
        for k in (1, 3, 100, 199):
            want = fermi.solve(x, k)[0]
            kernel = fermi._solve_kernel(x, None, k, "")[0]
            torch.testing.assert_close(kernel, want, rtol=0, atol=64 * torch.finfo(dtype).eps)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(root, "can_read", lambda *_: False)
                blind = fermi.solve(x, k)[0]
            torch.testing.assert_close(blind, want, rtol=0, atol=64 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_is_computed_in_float32(case: Case, dtype: torch.dtype):
    x = normal(4, 50, dtype=dtype).requires_grad_()
    z = case.solve(x, 5)
    assert z.dtype == dtype
    assert torch.equal(z, case.solve(x.float(), 5).to(dtype))
    assert torch.autograd.grad(z.float().square().sum(), x)[0].dtype == dtype


# ---- shapes, masks, k a row ----------------------------------------------------------------------


def test_shapes(case: Case):
    for f in (case.solve, case.unrolled):
        assert f(torch.zeros(1), 1).tolist() == [1.0]
        assert f(torch.zeros(1), 0).tolist() == [0.0]
        assert f(torch.zeros(0, 3), 2).shape == (0, 3)
        assert f(torch.zeros(2, 0, 3), torch.ones(2, 0, dtype=torch.int64)).shape == (2, 0, 3)
        x = normal(2, 3, 4, 5)
        assert torch.equal(f(x, 2)[1, 2], f(x[1, 2], 2))
        torch.testing.assert_close(f(x.mT, 2)[0, 1], f(x[0, 1].mT, 2), rtol=0, atol=4 * EPS)


def test_k_for_each_row(case: Case):
    x, k = normal(2, 4, 6), torch.tensor([0, 2, 5, 6])
    want = torch.stack([case.solve(x[:, i], int(k[i])) for i in range(4)], 1)
    for f in (case.solve, case.unrolled):
        for sizes in (k, k.int(), k.expand(2, 4), k.expand(2, 4)[..., None]):
            torch.testing.assert_close(f(x, sizes), want, rtol=0, atol=1e-12)
    assert torch.equal(case.solve(x, torch.tensor(2)), case.solve(x, 2))


def test_a_forbidden_item_is_a_removed_item(case: Case):
    x = normal(4, 6)
    closed = x.clone()
    closed[:, [1, 4]] = -math.inf
    g = normal(4, 6, seed=1)
    g[0, 1] = math.nan  # whatever comes back for a forbidden item is ignored
    for f in (case.solve, case.unrolled):
        leaf, opened = closed.clone().requires_grad_(), x[:, [0, 2, 3, 5]].requires_grad_()
        z = f(leaf, 2)
        assert bool((z[:, [1, 4]] == 0).all())
        torch.testing.assert_close(z[:, [0, 2, 3, 5]], f(opened, 2), rtol=0, atol=1e-14)
        (grad,) = torch.autograd.grad(z, leaf, g if f is case.solve else g.nan_to_num())
        (want,) = torch.autograd.grad(f(opened, 2), opened, g[:, [0, 2, 3, 5]])
        assert bool((grad[:, [1, 4]] == 0).all())
        torch.testing.assert_close(grad[:, [0, 2, 3, 5]], want, rtol=0, atol=1e-13)


def test_at_most(case: Case):
    x = normal(6, 5) - torch.tensor([[-3.0], [-1.0], [0.0], [1.0], [2.0], [9.0]])
    for k in (0, 2, 5, 50):
        z = case.solve(x, k, at_most=True)
        assert bool((z.sum(-1) <= k + 1e-12).all())
        tight = (z.sum(-1) - k).abs() < 1e-12
        torch.testing.assert_close(z[tight], case.solve(x[tight], min(k, 5)), rtol=0, atol=1e-12)
    nothing = torch.full((2, 3), -math.inf)
    assert torch.equal(case.solve(nothing, 2, at_most=True), torch.zeros(2, 3))


# ---- derivatives ---------------------------------------------------------------------------------


@pytest.mark.parametrize("at_most", [False, True])
def test_gradients(case: Case, at_most: bool):
    x = (2 * normal(3, 6) - 0.3).requires_grad_()
    k = torch.tensor([1, 2, 4])
    for f in (case.solve, case.unrolled):
        assert torch.autograd.gradcheck(lambda s, f=f: f(s, k, at_most=at_most), x)
        assert torch.autograd.gradgradcheck(lambda s, f=f: f(s, k, at_most=at_most), x)


@pytest.mark.parametrize("f", [capped.capped_tsallis, capped.capped_tsallis_unrolled])
@pytest.mark.parametrize("at_most", [False, True])
def test_gradient_in_alpha(f, at_most: bool):
    x = (normal(3, 6) - 0.3).requires_grad_()
    alpha = torch.tensor([1.01, 1.5, 2.2], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s, a: f(s, 2, a, at_most=at_most), (x, alpha))
    assert torch.autograd.gradgradcheck(lambda s, a: f(s, 2, a, at_most=at_most), (x, alpha))


@pytest.mark.parametrize("k", [1, 3, 8])
def test_unrolled_is_implicit(case: Case, k: int):
    x, g = 2 * normal(5, 9), normal(5, 9, seed=1)
    grads = []
    for f in (case.solve, case.unrolled):
        leaf = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(f(leaf, k), leaf, g, create_graph=True)
        grads.append(first.detach())
    torch.testing.assert_close(*grads, rtol=1e-9, atol=1e-12)


def test_kernel_backward_is_the_torch_backward(case: Case):
    x, g = normal(30, 200, scale=2.0).requires_grad_(), normal(30, 200, seed=1)
    (fused,) = torch.autograd.grad(case.solve(x, 9), x, g)
    (plain,) = torch.autograd.grad(case.solve(x, 9), x, g, create_graph=True)
    torch.testing.assert_close(fused, plain.detach(), rtol=0, atol=1e-13)


# ---- transforms ----------------------------------------------------------------------------------


def test_vmap(case: Case):
    x, g, k = normal(4, 3, 6), normal(3, 6, seed=1), torch.tensor([1, 2, 5])
    for f in (case.solve, case.unrolled):

        def loss(scores: Tensor, k: Tensor | int, f=f) -> Tensor:
            return (f(scores, k) * g).sum()

        torch.testing.assert_close(
            torch.vmap(lambda s, f=f: f(s, 2), 1, 1)(x), f(x, 2), rtol=0, atol=1e-14
        )
        torch.testing.assert_close(torch.vmap(f, (1, 0), 1)(x, k), f(x, k), rtol=0, atol=1e-14)
        loop = torch.stack([torch.func.grad(loss)(row, k) for row in x])
        mapped = torch.vmap(torch.func.grad(loss), (0, None))(x, k)
        torch.testing.assert_close(mapped, loop, rtol=0, atol=1e-13)
        leaf = x[0].clone().requires_grad_()
        torch.testing.assert_close(
            torch.autograd.grad(loss(leaf, k), leaf)[0], loop[0], rtol=0, atol=1e-13
        )


def test_forward_mode(case: Case):
    x, g = normal(3, 6), normal(3, 6, seed=1)
    leaf = x.clone().requires_grad_()
    (backward,) = torch.autograd.grad(case.solve(leaf, 2), leaf, g)  # the Jacobian is symmetric
    forward = torch.func.jvp(lambda s: case.solve(s, 2), (x,), (g,))[1]
    torch.testing.assert_close(forward, backward, rtol=0, atol=1e-13)


def compiled_is_eager(f: Callable[[Tensor], Tensor], backend: str) -> None:
    compiled = torch.compile(f, fullgraph=True, backend=backend)
    results = []
    for g in (f, compiled):
        x = normal(4, 6, dtype=torch.float32).requires_grad_()
        z = g(x)
        results.append((z, torch.autograd.grad(z, x, normal(4, 6, dtype=torch.float32, seed=1))[0]))
    for eager, other in zip(*results, strict=True):
        torch.testing.assert_close(eager, other, rtol=0, atol=1e-6)


@pytest.mark.parametrize("at_most", [False, True])
def test_compiled(case: Case, at_most: bool, fresh_compiler: None):
    k = torch.tensor([1, 2, 5, 3])
    compiled_is_eager(lambda x: case.solve(x, k, at_most=at_most), "aot_eager")
    compiled_is_eager(lambda x: case.unrolled(x, 2, at_most=at_most), "aot_eager")


@pytest.mark.slow
def test_compiled_by_inductor(case: Case, fresh_compiler: None):
    k = torch.tensor([1, 2, 5, 3])
    compiled_is_eager(lambda x: case.solve(x, k), "inductor")
    compiled_is_eager(lambda x: case.unrolled(x, 2, at_most=True), "inductor")


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES[1:4], ids=str)
def test_the_torch_twin_compiles(case: Case, fresh_compiler: None):
    x = normal(4, 6)
    compiled = torch.compile(case.plain, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, 2), case.solve(x, 2), rtol=0, atol=1e-14)


# ---- wrong input ---------------------------------------------------------------------------------


def test_sentences(case: Case):
    x = torch.zeros(3, 4)
    name = "capped_tsallis" if "tsallis" in case.name else f"capped_{case.name}"
    with pytest.raises(InputError, match=rf"`{name}\(k=...\)` must be an integer from 0 to 4; got 5"):
        case.solve(x, 5)
    with pytest.raises(InputError, match="got -1"):
        case.solve(x, -1)
    with pytest.raises(InputError, match="must not be negative"):
        case.solve(x, torch.tensor([1, -1, 2]))
    with pytest.raises(InputError, match="batch shape"):
        case.solve(x, torch.tensor([1, 2]))
    with pytest.raises(InputTypeError, match="integer tensor"):
        case.solve(x, torch.tensor([1.0, 2.0, 2.0]))
    with pytest.raises(InputError, match="integer"):
        case.solve(x, 2.5)
    with pytest.raises(InputTypeError, match="floating point"):
        case.solve(x.long(), 2)


@pytest.mark.parametrize("unrolled", [False, True])
def test_values_that_cannot_be_answered(case: Case, unrolled: bool):
    f = case.unrolled if unrolled else case.solve
    bad = torch.zeros(3, 4)
    bad[1, 2] = math.nan
    with pytest.raises(InputError, match=r"NaN.*\(1, 2\)"):
        f(bad, 2)
    bad[1, :3] = -math.inf
    with pytest.raises(InputError, match=r"got k=2, but row 1 allows 1"):
        f(bad, 2)
    with pytest.raises(InputError, match=r"got k=3, but row 1 allows 1"):
        f(bad, torch.tensor([4, 3, 0]))
    with pytest.raises(InputError, match=r"row 1 allows 1"):  # an operator can read and refuse
        torch.vmap(lambda x: f(x, 2))(bad)


def test_impossible_is_nan_where_it_cannot_be_refused(case: Case):
    x = torch.zeros(4, 3)
    x[1, 0] = math.nan
    x[2, :2] = -math.inf
    z = case.plain(x, torch.tensor([[2], [2], [2], [-1]]))
    assert z.isnan().all(-1).tolist() == [False, True, True, True]


def test_alpha_below_one_is_refused():
    x = torch.zeros(2, 4)
    with pytest.raises(InputError, match=r"`capped_tsallis\(alpha=...\)` must be at least 1"):
        capped.capped_tsallis(x, 2, 0.9)
    with pytest.raises(InputError, match="at least 1"):
        torch.vmap(lambda a: capped.capped_tsallis(x, 2, a))(torch.tensor([1.5, 0.5]))
