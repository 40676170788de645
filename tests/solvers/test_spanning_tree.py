"""Maximum spanning trees: enumeration, scipy, ties, and the same answer on every path."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.sparse.csgraph import minimum_spanning_tree
from torch import Tensor

from argrad._errors import InputError, InputTypeError
from argrad.solvers._rooted import arcs_of_heads, join_root, symmetric
from argrad.solvers.spanning_tree import _prim, spanning_tree_argmax
from tree_oracle import spanning_trees, tree_scores


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def torch_path(scores: Tensor) -> Tensor:
    """What other devices run."""
    z = join_root(arcs_of_heads("test", _prim(symmetric(scores)), scores.dtype), 0)
    return z + z.mT


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_best_of_all_trees(n: int) -> None:
    trees = spanning_trees(n)
    for scores in normal(20, n, n):
        best = tree_scores(trees, scores).argmax()
        assert torch.equal(spanning_tree_argmax(scores), trees[best])


@pytest.mark.parametrize("n", [2, 7, 16, 30])
def test_scipy(n: int) -> None:
    scores = normal(10, n, n)
    z = spanning_tree_argmax(scores)
    for s, tree in zip(symmetric(scores), z, strict=True):
        shifted = np.triu((s - s.max() - 1).numpy(), 1)  # scipy minimises and takes 0 for "no edge"
        expected = -minimum_spanning_tree(-shifted).sum()
        found = (tree * (s - s.max() - 1)).sum().item() / 2
        assert found == pytest.approx(expected, abs=1e-12 * n)
    assert torch.equal(z, z.mT)
    assert (z.sum((-2, -1)) == 2 * (n - 1)).all()


@pytest.mark.parametrize("n", [1, 2, 5, 12])
@pytest.mark.parametrize("ties", [False, True])
def test_every_path_gives_the_same_tree(n: int, ties: bool) -> None:
    scores = normal(6, n, n).float()
    if ties:
        scores = scores.round()
    expected = spanning_tree_argmax(scores)
    assert torch.equal(torch_path(scores), expected)
    assert torch.equal(torch.func.vmap(spanning_tree_argmax)(scores), expected)
    assert torch.equal(torch.func.vmap(spanning_tree_argmax, in_dims=1)(scores.movedim(0, 1)), expected)


def first_of_equals(scores: Tensor) -> Tensor:
    """The rule for ties, word by word: largest score, then the first new node, then the first old one."""
    n = len(scores)
    tree, z = {0}, torch.zeros(n, n)
    while len(tree) < n:
        edges = [(float(scores[u, v]), -v, -u) for u in tree for v in range(n) if v not in tree]
        _, v, u = max(edges)
        z[-u, -v] = z[-v, -u] = 1.0
        tree.add(-v)
    return z


@pytest.mark.parametrize("n", [3, 6, 9, 40])
def test_the_rule_for_ties(n: int) -> None:
    upper = normal(5, n, n, seed=n).mul(0.8).round().triu(1)  # -0.0 and 0.0 among them, which are equal
    scores = (upper + upper.mT).float()
    expected = torch.stack([first_of_equals(s) for s in scores])
    assert torch.equal(spanning_tree_argmax(scores), expected)
    assert torch.equal(spanning_tree_argmax(scores.double()), expected.double())
    assert torch.equal(torch_path(scores), expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_largest_and_smallest_floats(dtype: torch.dtype) -> None:
    most, least = torch.finfo(dtype).max, torch.finfo(dtype).tiny
    scores = torch.tensor([[0, most, -most], [most, 0, -least], [-most, -least, 0]], dtype=dtype)
    chain = torch.tensor([[0, 1, 0], [1, 0, 1], [0, 1, 0]], dtype=dtype)
    assert torch.equal(spanning_tree_argmax(scores), chain)
    assert torch.equal(torch_path(scores), chain)


def test_all_equal_gives_the_star_of_node_0() -> None:
    z = spanning_tree_argmax(torch.zeros(4, 4))
    assert z[0].tolist() == [0, 1, 1, 1]
    assert z.sum() == 6


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled(backend: str) -> None:
    scores = normal(3, 5, 5).float()
    compiled = torch.compile(spanning_tree_argmax, fullgraph=True, backend=backend)
    assert torch.equal(compiled(scores), spanning_tree_argmax(scores))


def test_the_diagonal_is_ignored() -> None:
    scores = normal(5, 6, 6)
    big = scores + torch.diag(torch.full((6,), 1e6, dtype=torch.float64))
    low = scores.masked_fill(torch.eye(6, dtype=torch.bool), -math.inf)
    assert torch.equal(spanning_tree_argmax(big), spanning_tree_argmax(low))
    assert torch.equal(torch_path(big), spanning_tree_argmax(low))


def test_forbidden_edges() -> None:
    trees = spanning_trees(5)
    g = torch.Generator().manual_seed(1)
    for scores in normal(30, 5, 5):
        masked = scores.masked_fill(torch.rand(5, 5, generator=g) < 0.2, -math.inf)
        values = tree_scores(trees, symmetric(masked))
        if values.max() > -math.inf:
            assert torch.equal(spanning_tree_argmax(masked), trees[values.argmax()])
            assert torch.equal(torch_path(masked), trees[values.argmax()])


def test_one_allowed_tree() -> None:
    chain = torch.zeros(6, 6).diagonal_scatter(torch.ones(5), 1)
    scores = torch.full((6, 6), -math.inf).masked_fill((chain + chain.T) > 0, -300.0)
    assert torch.equal(spanning_tree_argmax(scores), chain + chain.T)


def test_no_allowed_tree_is_a_sentence() -> None:
    scores = torch.zeros(3, 4, 4)
    scores[1, 2, :] = -math.inf
    with pytest.raises(
        InputError, match=r"no tree that reaches every node in 1 of 3 graphs \(first: graph 1\)"
    ):
        spanning_tree_argmax(scores)
    blind = torch.func.vmap(spanning_tree_argmax)(scores)
    assert blind[1].isnan().any()
    assert not blind[[0, 2]].isnan().any()


def test_wrong_input_is_a_sentence() -> None:
    with pytest.raises(InputError, match="square matrix"):
        spanning_tree_argmax(torch.zeros(3, 4))
    for value in (math.nan, math.inf):
        for place in ((1, 0, 2), (1, 1, 1)):
            scores = torch.zeros(2, 3, 3)
            scores[place] = value
            scores[1, 2, 0] = -math.inf
            with pytest.raises(InputError, match=r"NaN or \+inf.*at index \(1, "):
                spanning_tree_argmax(scores)
    with pytest.raises(InputTypeError, match="must be a tensor"):
        spanning_tree_argmax([[0.0]])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least 2 dimensions"):
        spanning_tree_argmax(torch.zeros(3))
    with pytest.raises(InputTypeError, match="floating"):
        spanning_tree_argmax(torch.zeros(3, 3, dtype=torch.int64))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_dtypes(dtype: torch.dtype) -> None:
    scores = normal(4, 8, 8).to(dtype)
    z = spanning_tree_argmax(scores)
    assert z.dtype == dtype
    assert torch.equal(z.double(), spanning_tree_argmax(scores.float()).double())


def test_batches() -> None:
    scores = normal(2, 3, 6, 6)
    loop = torch.stack([torch.stack([spanning_tree_argmax(s) for s in row]) for row in scores])
    assert torch.equal(spanning_tree_argmax(scores), loop)
    assert torch.equal(spanning_tree_argmax(scores.mT), loop)  # not contiguous
    assert spanning_tree_argmax(torch.zeros(0, 4, 4)).shape == (0, 4, 4)
    assert torch_path(torch.zeros(0, 4, 4)).shape == (0, 4, 4)


def test_no_gradient() -> None:
    assert not spanning_tree_argmax(normal(3, 3).requires_grad_()).requires_grad
