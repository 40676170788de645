"""Sums over trees: enumeration, 400 digits at every scale, derivatives, masks, every path."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import argrad as ag
from argrad._errors import InputError
from argrad.solvers import _tree_sums
from argrad.solvers.matrix_tree import (
    arborescence_log_partition,
    arborescence_marginals,
    spanning_tree_log_partition,
    spanning_tree_marginals,
)
from tree_oracle import ROOTS, arborescences, high_precision, law, spanning_trees

Sums = tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def sums(root: int | None, single_root: bool) -> Sums:
    return tuple(  # type: ignore[return-value]
        partial(f, root=root, single_root=single_root)
        for f in (arborescence_log_partition, arborescence_marginals)
    )


UNDIRECTED: Sums = (spanning_tree_log_partition, spanning_tree_marginals)
ALL: list[Sums] = [UNDIRECTED, *(sums(*r) for r in ROOTS)]


@pytest.fixture(params=["kernel", "log domain"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both kinds of arithmetic; what accelerators run is the log domain."""
    if request.param == "log domain":
        monkeypatch.setattr(_tree_sums, "_use_kernel", lambda arcs: False)
    return request.param


# ---- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("root", "single_root"), ROOTS)
@pytest.mark.parametrize("n", [3, 4, 5])
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_enumeration(path: str, n: int, root: int | None, single_root: bool, scale: float) -> None:
    log_partition, marginals = sums(root, single_root)
    trees = arborescences(n, root, single_root)
    for scores in scale * normal(3, n, n):
        log_z, p = law(trees, scores)
        # rounding of scores up to 100
        torch.testing.assert_close(log_partition(scores), log_z, rtol=1e-13, atol=1e-13)
        expected = torch.einsum("t,tij->ij", p, trees)
        torch.testing.assert_close(marginals(scores), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_enumeration_undirected(path: str, n: int) -> None:
    trees = spanning_trees(n)
    for scores in 3 * normal(4, n, n):
        log_z, p = law(trees, scores / 2)
        torch.testing.assert_close(spanning_tree_log_partition(scores), log_z, rtol=1e-13, atol=1e-13)
        expected = torch.einsum("t,tij->ij", p, trees)
        torch.testing.assert_close(spanning_tree_marginals(scores), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("scale", [1, 5, 20, 100])
@pytest.mark.parametrize("seed", [0, 1])
def test_float32_is_right_at_every_scale(path: str, scale: int, seed: int) -> None:
    scores = (scale * normal(20, 20, seed=seed)).float()
    direction = normal(20, 20, seed=seed + 100).float()
    log_z, mu, product = high_precision(scores, direction)
    x = scores.requires_grad_()
    found = arborescence_marginals(x)
    found.backward(direction)
    # the kernel works in float64 and rounds once; float32 logarithms lose an ulp of the scores' gaps
    tolerance = 1e-7 if path == "kernel" else 2e-5
    assert (found.double() - mu).abs().max() < tolerance
    assert (x.grad.double() - product).abs().max() < 3 * tolerance  # type: ignore[union-attr]
    assert arborescence_log_partition(x).item() == pytest.approx(log_z, rel=1e-6)


@pytest.mark.parametrize("scale", [1, 100])
def test_float64_is_right_to_rounding(path: str, scale: int) -> None:
    scores, direction = scale * normal(16, 16, seed=5), normal(16, 16, seed=6)
    _, mu, product = high_precision(scores, direction)
    x = scores.requires_grad_()
    found = arborescence_marginals(x)
    found.backward(direction)
    assert (found - mu).abs().max() < 1e-13  # 16 nodes, each a few ulp of 1; logs of scale 100
    assert (x.grad - product).abs().max() < 1e-13  # type: ignore[operator]


def two_islands(weak: float) -> Tensor:
    """Nodes 1-3 and 4-6 hold together; anything from outside is `weak`."""
    scores = normal(7, 7) + weak
    for island in (slice(1, 4), slice(4, 7)):
        scores[island, island] -= weak
    return scores


def test_beyond_the_range_of_float64() -> None:
    """exp(-2000) is 0 in float64, and yet one such arc must be used: the kernel has to notice."""
    near, far = two_islands(-20.0), two_islands(-2000.0)
    far_mu, near_mu = arborescence_marginals(far), arborescence_marginals(near)
    assert (far_mu - near_mu).abs().max() < 1e-7  # what arcs of weight exp(-20) can matter
    difference = arborescence_log_partition(near) - arborescence_log_partition(far)
    assert difference.item() == pytest.approx(2 * 1980.0, abs=1e-7)
    x = far.clone().requires_grad_()
    v = normal(7, 7, seed=3)
    (found,) = torch.autograd.grad(arborescence_marginals(x), x, v)
    y = near.clone().requires_grad_()
    (expected,) = torch.autograd.grad(arborescence_marginals(y), y, v)
    assert (found - expected).abs().max() < 1e-6


def test_range_is_checked_graph_by_graph() -> None:
    both = torch.stack([two_islands(0.0), two_islands(-2000.0)])
    expected = torch.stack([arborescence_marginals(s) for s in both])
    torch.testing.assert_close(arborescence_marginals(both), expected, rtol=0, atol=0)
    torch.testing.assert_close(
        arborescence_marginals(both.float()).double(), expected, rtol=0, atol=1e-3
    )


def wild(kind: str, count: int, n: int) -> Tensor:
    """Scores that leave the range of float64 in every way: huge steps, islands, forbidden arcs."""
    g = torch.Generator().manual_seed(11)
    forbidden = torch.rand(count, n + 1, n, generator=g) < 0.25
    if kind == "steps":  # many exact ties, exp(-2000) at the bottom
        steps = torch.randint(-5, 1, (count, n + 1, n), generator=g).double()
        arcs = steps * torch.randint(100, 400, (count, 1, 1), generator=g).double()
    else:
        scale, gap = 10 ** (4 * torch.rand(2, count, 1, 1, dtype=torch.float64, generator=g))
        island = torch.randint(0, 3, (count, n + 1), generator=g)
        arcs = scale * torch.randn(count, n + 1, n, dtype=torch.float64, generator=g)
        arcs = arcs - gap * (island[:, :, None] != island[:, None, 1:])
    return arcs.masked_fill(forbidden, -math.inf)


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("kind", ["steps", "islands"])
def test_the_kernel_knows_its_limits(kind: str, single: bool) -> None:
    """Among thousands of wild graphs it answers like the log domain or leaves the graph to it."""
    arcs = wild(kind, 6000, 4).requires_grad_()
    v = normal(6000, 5, 4)
    log_z, mu = _tree_sums._Sums.apply(arcs, single)
    expected_log_z, expected_mu = _tree_sums._log_domain(arcs, single)
    torch.testing.assert_close(log_z, expected_log_z, rtol=1e-12, atol=1e-12)
    assert (mu - expected_mu).abs().max() < 1e-10  # logarithms up to 1e5 have errors of 1e-11
    (product,) = torch.autograd.grad(mu, arcs, v)
    (expected,) = torch.autograd.grad(expected_mu, arcs, v)
    assert (product - expected).abs().max() < 1e-9


@pytest.mark.parametrize(("log_partition", "marginals"), ALL)
def test_shift(
    log_partition: Callable[[Tensor], Tensor], marginals: Callable[[Tensor], Tensor]
) -> None:
    scores = normal(6, 6)
    torch.testing.assert_close(marginals(scores + 1e4), marginals(scores), rtol=0, atol=1e-10)
    torch.testing.assert_close(log_partition(scores + 1e4), log_partition(scores) + 5e4)


def test_small_graphs(path: str) -> None:
    one = torch.zeros(2, 1, 1)
    for root in (0, None):
        assert arborescence_log_partition(one, root).tolist() == [0.0, 0.0]
        assert arborescence_marginals(one, root).tolist() == [[[0.0]], [[0.0]]]
    assert arborescence_log_partition(one, 0, single_root=True).tolist() == [-math.inf, -math.inf]
    assert spanning_tree_log_partition(one).tolist() == [0.0, 0.0]
    two = torch.tensor([[9.0, 1.0], [2.0, 9.0]])
    assert arborescence_log_partition(two).item() == pytest.approx(1.0)
    assert arborescence_log_partition(two, 1).item() == pytest.approx(2.0)
    assert spanning_tree_log_partition(two).item() == pytest.approx(1.5)
    assert spanning_tree_marginals(two).tolist() == [[0.0, 1.0], [1.0, 0.0]]


# ---- derivatives ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("log_partition", "marginals"), ALL)
def test_derivatives(
    log_partition: Callable[[Tensor], Tensor], marginals: Callable[[Tensor], Tensor]
) -> None:
    x = normal(2, 4, 4).requires_grad_()
    for f in (log_partition, marginals):
        assert gradcheck(f, (x,))
        assert gradgradcheck(f, (x,))


@pytest.mark.parametrize(("log_partition", "marginals"), ALL)
def test_derivatives_in_the_log_domain(
    monkeypatch: pytest.MonkeyPatch,
    log_partition: Callable[[Tensor], Tensor],
    marginals: Callable[[Tensor], Tensor],
) -> None:
    monkeypatch.setattr(_tree_sums, "_use_kernel", lambda arcs: False)
    x = normal(4, 4).requires_grad_()
    for f in (log_partition, marginals):
        assert gradcheck(f, (x,))
        assert gradgradcheck(f, (x,))


@pytest.mark.parametrize(("root", "single_root"), ROOTS)
def test_gradient_of_log_partition_is_the_marginals(root: int | None, single_root: bool) -> None:
    log_partition, marginals = sums(root, single_root)
    x = (5 * normal(3, 7, 7)).requires_grad_()
    (grad,) = torch.autograd.grad(log_partition(x).sum(), x)
    torch.testing.assert_close(grad, marginals(x.detach()), rtol=0, atol=1e-14)
    y = x.detach().requires_grad_()
    (grad,) = torch.autograd.grad(spanning_tree_log_partition(y).sum(), y)
    torch.testing.assert_close(2 * grad, spanning_tree_marginals(y.detach()), rtol=0, atol=1e-14)


def test_jacobians() -> None:
    x = normal(5, 5).requires_grad_()
    expected = torch.autograd.functional.jacobian(arborescence_marginals, x)
    torch.testing.assert_close(torch.func.jacrev(arborescence_marginals)(x.detach()), expected)
    torch.testing.assert_close(torch.func.jacfwd(arborescence_marginals)(x.detach()), expected)
    mu = arborescence_marginals(x)  # a graph made outside, differentiated inside vmap
    rows = torch.func.vmap(lambda v: torch.autograd.grad(mu, x, v, retain_graph=True)[0])(
        torch.eye(25, dtype=torch.float64).view(25, 5, 5)
    )
    torch.testing.assert_close(rows.view(5, 5, 5, 5), expected)


# ---- masks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("root", "single_root"), ROOTS)
def test_forbidden_arcs(path: str, root: int | None, single_root: bool) -> None:
    log_partition, marginals = sums(root, single_root)
    trees = arborescences(5, root, single_root)
    g = torch.Generator().manual_seed(4)
    for scores in normal(40, 5, 5):
        mask = torch.rand(5, 5, generator=g) < 0.5
        x = scores.masked_fill(mask, -math.inf).requires_grad_()
        log_z, p = law(trees, x.detach())
        found = log_partition(x)
        (grad,) = torch.autograd.grad(found, x)
        if log_z == -math.inf:
            assert found == -math.inf
            assert (grad == 0).all()
            with pytest.raises(InputError, match="leave no tree"):
                marginals(x)
            continue
        torch.testing.assert_close(found, log_z, rtol=1e-13, atol=1e-13)
        mu = marginals(x)
        torch.testing.assert_close(mu, torch.einsum("t,tij->ij", p, trees), rtol=0, atol=1e-13)
        torch.testing.assert_close(grad, mu, rtol=0, atol=1e-13)
        assert (mu[mask] == 0).all()
        (second,) = torch.autograd.grad(mu, x, normal(5, 5))
        assert second.isfinite().all()
        assert (second[mask] == 0).all()


def test_second_derivatives_beside_forbidden_arcs(path: str) -> None:
    mask = torch.zeros(4, 4, dtype=torch.bool)
    mask[0, 2] = mask[3, 1] = True
    x = normal(4, 4).requires_grad_()
    for root in (0, None):
        f = partial(arborescence_marginals, root=root)
        assert gradcheck(lambda s, f=f: f(s.masked_fill(mask, -math.inf)), (x,))
        assert gradgradcheck(lambda s, f=f: f(s.masked_fill(mask, -math.inf)), (x,))


def test_a_node_that_nothing_reaches_is_the_free_root(path: str) -> None:
    scores = normal(6, 6)
    for node in (0, 3, 5):
        x = scores.clone()
        x[:, node] = -math.inf
        torch.testing.assert_close(arborescence_marginals(x, None), arborescence_marginals(x, node))
        torch.testing.assert_close(
            arborescence_log_partition(x, None), arborescence_log_partition(x, node)
        )


def test_one_allowed_tree(path: str) -> None:
    chain = torch.zeros(6, 6).diagonal_scatter(torch.ones(5), 1)
    scores = torch.full((6, 6), -math.inf).masked_fill(chain > 0, -300.0)
    for root in (0, None):
        assert torch.equal(arborescence_marginals(scores, root), chain)
        assert arborescence_log_partition(scores, root).item() == -1500.0


def test_no_tree_in_some_graphs(path: str) -> None:
    scores = normal(3, 5, 5)
    scores[1, :, 2] = -math.inf
    x = scores.requires_grad_()
    log_z = arborescence_log_partition(x)
    assert log_z[1] == -math.inf
    (grad,) = torch.autograd.grad(log_z.sum(), x, create_graph=True)
    assert (grad[1] == 0).all()
    (second,) = torch.autograd.grad(grad.square().sum(), x)
    assert second.isfinite().all()
    assert (second[1] == 0).all()
    with pytest.raises(InputError, match=r"in 1 of 3 graphs \(first: graph 1\)"):
        arborescence_marginals(x)
    blind = torch.func.vmap(arborescence_marginals)(x)
    assert blind[1].isnan().any()
    assert not blind[[0, 2]].isnan().any()


# ---- calls ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("log_partition", "marginals"), ALL)
def test_vmap_is_a_loop(
    log_partition: Callable[[Tensor], Tensor], marginals: Callable[[Tensor], Tensor]
) -> None:
    scores = normal(3, 2, 5, 5)
    for f in (log_partition, marginals):
        loop = torch.stack([f(s) for s in scores])
        torch.testing.assert_close(torch.func.vmap(f, in_dims=1)(scores.movedim(0, 1)), loop)
        torch.testing.assert_close(f(scores), loop)


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.parametrize("f", [spanning_tree_marginals, sums(None, False)[1], sums(1, False)[0]])
def test_compiled(backend: str, f: Callable[[Tensor], Tensor]) -> None:
    x, y = (normal(2, 3, 3).requires_grad_() for _ in range(2))
    found, expected = torch.compile(f, fullgraph=True, backend=backend)(x), f(y)
    torch.testing.assert_close(found, expected)
    (found * found).sum().backward()
    (expected * expected).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_dtypes(dtype: torch.dtype, path: str) -> None:
    scores = normal(4, 6, 6).to(dtype).requires_grad_()
    mu = arborescence_marginals(scores)
    assert mu.dtype == dtype
    exact = arborescence_marginals(scores.detach().double())
    assert (mu.double() - exact).abs().max() <= 0.5 * torch.finfo(dtype).eps + 1e-6  # one rounding
    mu.square().sum().backward()
    assert scores.grad is not None
    assert scores.grad.dtype == dtype
    assert arborescence_log_partition(scores).dtype == dtype


@pytest.mark.parametrize(("log_partition", "marginals"), ALL)
def test_empty_batch(
    path: str, log_partition: Callable[[Tensor], Tensor], marginals: Callable[[Tensor], Tensor]
) -> None:
    x = torch.zeros(0, 2, 4, 4).requires_grad_()
    assert log_partition(x).shape == (0, 2)
    assert marginals(x).shape == (0, 2, 4, 4)
    marginals(x).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("scale", [1e10, 1e22, 1e28])
@pytest.mark.parametrize(("root", "single_root"), [(0, False), (0, True), (None, False)])
def test_huge_scores_come_to_the_arg_max(root: int | None, single_root: bool, scale: float) -> None:
    """The root row is shifted twice; rounding must not leave its largest above 0."""
    scores = normal(200, 4, 4) * scale
    tree = ag.Arborescence(root=root, single_root=single_root)
    assert torch.equal(tree.marginals(scores), tree.argmax(scores))


def test_not_contiguous() -> None:
    scores = normal(5, 5, 3).movedim(-1, 0)
    v = normal(5, 5, 3).movedim(-1, 0)
    x, y = scores.requires_grad_(), scores.detach().contiguous().requires_grad_()
    arborescence_marginals(x).backward(v)
    arborescence_marginals(y).backward(v.contiguous())
    assert torch.equal(x.grad, y.grad)  # type: ignore[arg-type]


def test_many_threads_give_the_same_numbers() -> None:
    scores = normal(64, 20, 20)
    expected = arborescence_marginals(scores)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert torch.equal(arborescence_marginals(scores), expected)
    finally:
        torch.set_num_threads(threads)


def test_wrong_input_is_a_sentence() -> None:
    with pytest.raises(InputError, match="square matrix"):
        arborescence_marginals(torch.zeros(3, 4))
    with pytest.raises(InputError, match="must be a node number"):
        arborescence_log_partition(torch.zeros(3, 3), None, single_root=True)
    with pytest.raises(InputError, match="NaN or"):
        spanning_tree_marginals(torch.full((3, 3), math.inf))
