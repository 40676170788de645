"""sparsemax and entmax: the stated problem is solved, at any scale, and differentiated rightly."""

from __future__ import annotations

import math
from functools import partial

import entmax as peer
import mpmath
import pytest
import torch
from torch import Tensor

from argrad._errors import InputError, InputTypeError
from argrad.solvers import root, tsallis
from argrad.solvers.simplex import entmax, entmax_unrolled, sparsemax, sparsemax_unrolled

ALPHAS = [1.0, 1.0001, 1.1, 1.5, 1.7, 2.0, 2.5, 4.0]
EPS = 2.0**-52


def normal(
    *shape: int, scale: float = 1.0, dtype: torch.dtype = torch.float64, seed: int = 0
) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def exact(scores: list[float], alpha: float, k: int = 1) -> list[float]:
    """The solution in 50 digits, by bisection on the threshold."""
    with mpmath.workdps(50):
        a, w = mpmath.mpf(alpha) - 1, [mpmath.mpf(s) for s in scores]

        def points(theta: mpmath.mpf) -> list[mpmath.mpf]:
            if a == 0:
                return [min(mpmath.mpf(1), mpmath.exp(s - theta)) for s in w]
            return [min(mpmath.mpf(1), max(mpmath.mpf(0), 1 + a * (s - theta)) ** (1 / a)) for s in w]

        low = sorted(w)[-k]
        high = low + mpmath.log(len(w)) + 1
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if sum(points(middle)) > k else (low, middle)
        return [float(z) for z in points(low)]


# ---- the problem ---------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_high_precision(alpha: float, scale: float):
    x = normal(3, 12, scale=scale)
    want = torch.tensor([exact(row, alpha) for row in x.tolist()], dtype=x.dtype)
    # alpha > 2 has infinite slopes at 0: an error of eps in a score moves z by eps^(1 / (alpha - 1))
    atol = 1e-14 if alpha <= 2 else 1e-11 if alpha < 3 else 1e-4
    for z in (entmax(x, alpha), tsallis.solve(x, 1, alpha - 1), entmax_unrolled(x, alpha)):
        torch.testing.assert_close(z, want, rtol=0, atol=atol)
    torch.testing.assert_close(
        entmax(x, alpha).sum(-1), torch.ones(3, dtype=x.dtype), rtol=0, atol=1e-14
    )


@pytest.mark.parametrize("alpha", [1.3, 1.5, 2.0])
@pytest.mark.parametrize("shape", [(5, 7), (2, 3, 300)])
def test_agrees_with_the_entmax_package(alpha: float, shape: tuple[int, ...]):
    x = normal(*shape).requires_grad_()
    theirs = {1.5: partial(peer.entmax15, dim=-1), 2.0: partial(peer.sparsemax, dim=-1)}.get(
        alpha, lambda s: peer.entmax_bisect(s, alpha, -1, 60)
    )(x)
    ours = entmax(x, alpha)
    g = normal(*shape, seed=1)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-13)
    torch.testing.assert_close(
        torch.autograd.grad(ours, x, g), torch.autograd.grad(theirs, x, g), rtol=0, atol=1e-11
    )


def test_alpha_2_is_sparsemax_and_alpha_1_is_softmax():
    x = normal(4, 9)
    assert torch.equal(entmax(x, 2.0), sparsemax(x))
    assert torch.equal(entmax(x, 1), x.softmax(-1))
    torch.testing.assert_close(entmax(x, torch.tensor(1.0)), x.softmax(-1))


@pytest.mark.parametrize("alpha", [1.5, 2.0, 3.0])
def test_optimality(alpha: float):
    """KKT: the gradient of the objective is constant on the support, and not larger outside."""
    x = normal(50, 20, scale=2.0)
    z = entmax(x, alpha)
    slope = x - z ** (alpha - 1) / (alpha - 1)
    inside = torch.where(z > 0, slope, -math.inf).amax(-1, keepdim=True)
    assert bool((slope <= inside + 1e-12).all())
    assert bool(((inside - slope).masked_fill(z == 0, 0.0) < 1e-12).all())


def test_solution_of_a_generic_solver():
    cvxpy = pytest.importorskip("cvxpy")
    x = normal(6)
    for alpha in (1.5, 2.0, 3.0):
        z = cvxpy.Variable(6)
        f = (cvxpy.sum(cvxpy.power(z, alpha)) - cvxpy.sum(z)) / (alpha * (alpha - 1))
        problem = cvxpy.Problem(cvxpy.Maximize(x.numpy() @ z - f), [z >= 0, cvxpy.sum(z) == 1])
        problem.solve(solver="CLARABEL")
        # an interior-point solution: about the square root of its tolerance of 1e-8
        torch.testing.assert_close(entmax(x, alpha), torch.from_numpy(z.value), rtol=0, atol=1e-4)


# ---- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("alpha", [1.2, 1.5, 2.0, 3.0])
def test_sums_to_one_at_any_scale(alpha: float, scale: float, dtype: torch.dtype):
    x = normal(20, 1000, scale=scale, dtype=dtype) + scale
    for z in (entmax(x, alpha), tsallis.solve(x, 1, alpha - 1)):
        assert bool((z >= 0).all())
        # 1000 terms, each rounded, summed pairwise
        torch.testing.assert_close(
            z.sum(-1), torch.ones(20, dtype=dtype), rtol=0, atol=8 * torch.finfo(dtype).eps
        )


@pytest.mark.parametrize("alpha", [1.0, 1.3, 1.5, 2.0])
def test_float32_has_float32_accuracy(alpha: float):
    x = normal(30, 200, scale=5.0, dtype=torch.float32)
    want = entmax(x.double(), alpha)
    for z in (entmax(x, alpha), tsallis.solve(x, 1, alpha - 1), entmax_unrolled(x, alpha)):
        torch.testing.assert_close(z.double(), want, rtol=2e-5, atol=3e-7)


@pytest.mark.parametrize("alpha", [1.3, 1.5, 2.0])
def test_temperature_limits(alpha: float):
    x = normal(8, 30, dtype=torch.float32)
    hard = torch.nn.functional.one_hot(x.argmax(-1), 30).float()
    torch.testing.assert_close(entmax(x / 1e-6, alpha), hard, rtol=0, atol=1e-6)
    # sparsemax moves as much as the scores do, by up to 4e-6
    torch.testing.assert_close(entmax(x / 1e6, alpha), torch.full_like(x, 1 / 30), rtol=0, atol=4e-6)


@pytest.mark.parametrize("alpha", [1.2, 1.5, 2.0, 3.0])
def test_ties_share_equally(alpha: float):
    x = torch.tensor([[1.0, 1.0, 1.0, -5.0], [0.0, 0.0, 0.0, 0.0]])
    z = entmax(x, alpha)
    torch.testing.assert_close(z[1], torch.full((4,), 0.25))
    torch.testing.assert_close(z[0, :3], z[0, :1].expand(3))


def error_of_blind_steps(families: list[Tensor], a: float) -> float:
    """The largest difference to the answer when the solver may not look at values."""
    worst = 0.0
    for x in families:
        for k in (1, 3, x.shape[-1] - 1):
            want = tsallis.solve(x, k, a)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(root, "can_read", lambda *_: False)
                worst = max(worst, (tsallis.solve(x, k, a) - want).abs().max().item())
    return worst


def hard_families(dtype: torch.dtype) -> list[Tensor]:
    n = torch.arange(200, dtype=dtype)
    rates = torch.linspace(0.01, 2.0, 20, dtype=dtype)[:, None]
    u = torch.rand(20, 200, generator=torch.Generator().manual_seed(1), dtype=dtype)
    return [
        *(normal(20, 200, scale=s, dtype=dtype) for s in (1e-3, 0.1, 1.0, 10.0, 1e6)),
        2.0 ** (-n * rates),
        -(2.0 ** (-n * rates)),
        -n * rates,
        -torch.exp(30 * u - 28),
        (3 * u).floor() * rates,
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("a", [0.0, 1e-3, 0.5, 1.0, 2.0])
def test_fixed_number_of_steps_is_enough(a: float, dtype: torch.dtype):
    assert error_of_blind_steps(hard_families(dtype), a) <= 64 * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("alpha", [1.0, 1.3, 1.5, 2.0])
def test_kernel_and_torch_agree(alpha: float, dtype: torch.dtype):
    for x in hard_families(dtype):
        for k in (1, 5):
            args = (None, k, None, alpha - 1, "entmax")
            kernel, plain = tsallis._solve_kernel(x, *args), tsallis.solve(x, k, alpha - 1)
            torch.testing.assert_close(kernel, plain, rtol=0, atol=32 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_is_computed_in_float32(dtype: torch.dtype):
    x = normal(4, 50, dtype=dtype).requires_grad_()
    for f in (sparsemax, entmax, sparsemax_unrolled):
        z = f(x)
        assert z.dtype == dtype
        assert torch.equal(z, f(x.float()).to(dtype))
        assert torch.autograd.grad(z.float().square().sum(), x)[0].dtype == dtype


# ---- shapes and masks ----------------------------------------------------------------------------

FUNCTIONS = [
    pytest.param(sparsemax, id="sparsemax"),
    pytest.param(sparsemax_unrolled, id="sparsemax_unrolled"),
    pytest.param(entmax, id="entmax15"),
    pytest.param(entmax_unrolled, id="entmax15_unrolled"),
    pytest.param(partial(entmax, alpha=1.0), id="softmax"),
    pytest.param(partial(entmax, alpha=1.3), id="entmax13"),
    pytest.param(partial(entmax_unrolled, alpha=1.3), id="entmax13_unrolled"),
    pytest.param(partial(entmax, alpha=torch.tensor(1.3)), id="entmax_tensor"),
]


@pytest.mark.parametrize("f", FUNCTIONS)
def test_shapes(f):
    assert f(torch.zeros(1)).tolist() == [1.0]
    assert f(normal(5, 1)).tolist() == [[1.0]] * 5
    assert f(torch.zeros(0, 3)).shape == (0, 3)
    assert f(torch.zeros(2, 0, 3)).shape == (2, 0, 3)
    x = normal(2, 3, 4, 5)
    assert torch.equal(f(x)[1, 2], f(x[1, 2]))
    assert torch.equal(f(x.mT)[0, 1], f(x[0, 1].mT))  # not contiguous
    empty = torch.zeros(0, 3, requires_grad=True)
    assert torch.autograd.grad(f(empty).sum(), empty)[0].shape == (0, 3)


@pytest.mark.parametrize("f", FUNCTIONS)
def test_a_forbidden_item_is_a_removed_item(f):
    x = normal(4, 6)
    closed = x.clone()
    closed[:, [1, 4]] = -math.inf
    closed.requires_grad_()
    opened = x[:, [0, 2, 3, 5]].requires_grad_()
    z = f(closed)
    assert bool((z[:, [1, 4]] == 0).all())
    torch.testing.assert_close(z[:, [0, 2, 3, 5]], f(opened), rtol=0, atol=4 * EPS)
    g = normal(4, 6, seed=1)
    g[0, 1] = math.nan  # whatever comes back for a forbidden item is ignored
    (grad,) = torch.autograd.grad(z, closed, g)
    if f is not FUNCTIONS[4].values[0]:  # torch's softmax lets a NaN through
        assert bool((grad[:, [1, 4]] == 0).all())
        (want,) = torch.autograd.grad(f(opened), opened, g[:, [0, 2, 3, 5]])
        torch.testing.assert_close(grad[:, [0, 2, 3, 5]], want, rtol=0, atol=1e-14)


def test_alpha_for_each_row():
    x, alpha = normal(2, 3, 7), torch.tensor([1.0, 1.4, 2.5], dtype=torch.float64)
    want = torch.stack([entmax(x[:, i], float(alpha[i])) for i in range(3)], 1)
    for a in (alpha, alpha.expand(2, 3), alpha.expand(2, 3)[..., None]):
        torch.testing.assert_close(entmax(x, a), want, rtol=0, atol=8 * EPS)


# ---- derivatives ---------------------------------------------------------------------------------


@pytest.mark.parametrize("f", FUNCTIONS)
def test_gradients(f):
    x = normal(3, 6).requires_grad_()
    assert torch.autograd.gradcheck(f, x)
    assert torch.autograd.gradgradcheck(f, x)


@pytest.mark.parametrize("f", [entmax, entmax_unrolled])
def test_gradient_in_alpha(f):
    x = normal(4, 6).requires_grad_()
    alpha = torch.tensor([1.01, 1.3, 1.8, 2.2], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(f, (x, alpha))
    assert torch.autograd.gradgradcheck(f, (x, alpha))


@pytest.mark.parametrize("f", [entmax, entmax_unrolled])
def test_gradient_in_alpha_at_1(f):
    """Where log(1 + a v)/a is 0/0; against a one-sided difference, of which the error is O(h)."""
    x, g, h = normal(3, 6), normal(3, 6, seed=1), 1e-6
    alpha = torch.ones(3, dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(f(x, alpha), alpha, g)
    want = ((entmax(x, 1 + h) - entmax(x, 1.0)) / h * g).sum(-1)
    torch.testing.assert_close(grad, want, rtol=0, atol=1e-4)
    nearby = torch.full((3,), 1 + 1e-9, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(torch.autograd.grad(f(x, nearby), nearby, g)[0], grad, rtol=0, atol=1e-7)


@pytest.mark.parametrize("alpha", [1.2, 1.5, 2.0, 2.5])
def test_unrolled_is_implicit(alpha: float):
    x, g = normal(5, 9), normal(5, 9, seed=1)
    results = []
    for f in (entmax, entmax_unrolled):
        leaf = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(f(leaf, alpha), leaf, g, create_graph=True)
        second = (
            torch.autograd.grad(first.square().sum(), leaf, allow_unused=True)[0]
            if alpha != 2
            else first
        )
        results.append((f(x, alpha), first.detach(), second.detach()))
    for ours, unrolled in zip(*results, strict=True):
        torch.testing.assert_close(ours, unrolled, rtol=1e-9, atol=1e-12)


def test_kernel_backward_is_the_torch_backward():
    for alpha in (1.5, 2.0):
        x, g = normal(40, 300).requires_grad_(), normal(40, 300, seed=1)
        z = entmax(x, alpha)
        plain, _ = tsallis.pull_back(z.detach(), g, 1, alpha - 1)
        torch.testing.assert_close(torch.autograd.grad(z, x, g)[0], plain, rtol=0, atol=1e-13)


# ---- transforms ----------------------------------------------------------------------------------


@pytest.mark.parametrize("f", FUNCTIONS)
def test_vmap(f):
    x, g = normal(4, 3, 6), normal(3, 6, seed=1)

    def loss(scores: Tensor) -> Tensor:
        return (f(scores) * g).sum()

    torch.testing.assert_close(torch.vmap(f, 1, 1)(x), f(x), rtol=0, atol=4 * EPS)
    loop = torch.stack([torch.func.grad(loss)(row) for row in x])
    torch.testing.assert_close(torch.vmap(torch.func.grad(loss))(x), loop, rtol=0, atol=1e-14)
    leaf = x[0].clone().requires_grad_()
    torch.testing.assert_close(torch.autograd.grad(loss(leaf), leaf)[0], loop[0], rtol=0, atol=1e-14)


def test_vmap_over_alpha():
    x, alpha = normal(3, 6), torch.tensor([1.2, 1.9], dtype=torch.float64)
    want = torch.stack([entmax(x, 1.2), entmax(x, 1.9)])
    torch.testing.assert_close(torch.vmap(entmax, (None, 0))(x, alpha), want, rtol=0, atol=8 * EPS)


@pytest.mark.parametrize("f", [sparsemax, partial(entmax, alpha=1.3)])
def test_forward_mode(f):
    x, g = normal(3, 6), normal(3, 6, seed=1)
    leaf = x.clone().requires_grad_()
    (backward,) = torch.autograd.grad(f(leaf), leaf, g)  # the Jacobian is symmetric
    torch.testing.assert_close(torch.func.jvp(f, (x,), (g,))[1], backward, rtol=0, atol=1e-14)
    H = torch.func.hessian(lambda s: f(s).square().sum())(x[0])
    torch.testing.assert_close(H, H.T)


def test_forward_mode_in_alpha():
    x, alpha = normal(2, 6), torch.tensor([1.3, 1.8], dtype=torch.float64)
    forward = torch.func.jacfwd(lambda a: entmax(x, a))(alpha)
    torch.testing.assert_close(forward, torch.func.jacrev(lambda a: entmax(x, a))(alpha))


@pytest.mark.parametrize("f", FUNCTIONS)
def test_compiled(f, fresh_compiler: None):
    compiled_is_eager(f, "aot_eager")


@pytest.mark.slow
@pytest.mark.parametrize("f", FUNCTIONS)
def test_compiled_by_inductor(f, fresh_compiler: None):
    compiled_is_eager(f, "inductor")


def compiled_is_eager(f, backend: str) -> None:
    compiled = torch.compile(f, fullgraph=True, backend=backend)
    results = []
    for g in (f, compiled):
        x = normal(4, 6, dtype=torch.float32).requires_grad_()
        z = g(x)
        results.append((z, torch.autograd.grad(z, x, normal(4, 6, dtype=torch.float32, seed=1))[0]))
    for eager, other in zip(*results, strict=True):
        torch.testing.assert_close(eager, other, rtol=0, atol=1e-6)


# ---- wrong input ---------------------------------------------------------------------------------


def test_sentences():
    x = torch.zeros(3, 4)
    with pytest.raises(InputError, match=r"`entmax\(alpha=...\)` must be at least 1.*got 0.5"):
        entmax(x, 0.5)
    with pytest.raises(InputError, match="at least 1"):
        entmax(x, torch.tensor([2.0, math.nan, 1.0]))
    with pytest.raises(InputError, match="batch shape"):
        entmax(x, torch.ones(2))
    with pytest.raises(InputTypeError, match="float or a tensor"):
        entmax(x, "1.5")  # type: ignore[arg-type]
    with pytest.raises(InputTypeError, match="floating point"):
        sparsemax(x.long())
    with pytest.raises(InputError, match="at least one item"):
        sparsemax(torch.zeros(3, 0))


@pytest.mark.parametrize("f", FUNCTIONS)
def test_values_that_cannot_be_answered(f):
    bad = torch.zeros(3, 4)
    bad[1, 2] = math.nan
    with pytest.raises(InputError, match=r"NaN.*\(1, 2\)"):
        f(bad)
    bad[1, 2] = math.inf
    with pytest.raises(InputError, match="inf"):
        f(bad)
    bad[1] = -math.inf
    with pytest.raises(InputError, match="row 1"):
        f(bad)
    plain = tsallis.solve(bad, 1, 0.5)  # where values cannot be read: NaN, not a plausible number
    assert bool(plain[1].isnan().all())
    assert bool((plain[0] == 0.25).all())
