"""Maximum spanning arborescences: enumeration, networkx, one root child, free root, every path."""

from __future__ import annotations

import math

import networkx
import pytest
import torch
from torch import Tensor

from argrad._errors import InputError
from argrad.solvers.arborescence import arborescence_argmax
from tree_oracle import ROOTS, arborescences, tree_scores


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def networkx_best(scores: Tensor) -> float:
    graph = networkx.DiGraph()
    for i, row in enumerate(scores.tolist()):
        graph.add_weighted_edges_from((i, j, w) for j, w in enumerate(row) if i != j and w > -math.inf)
    return networkx.maximum_spanning_arborescence(graph).size(weight="weight")


@pytest.mark.parametrize(("root", "single_root"), ROOTS)
@pytest.mark.parametrize("n", [3, 4, 5])
def test_best_of_all_trees(n: int, root: int | None, single_root: bool) -> None:
    trees = arborescences(n, root, single_root)
    for scores in normal(25, n, n):
        best = tree_scores(trees, scores).argmax()
        assert torch.equal(arborescence_argmax(scores, root, single_root), trees[best])


@pytest.mark.parametrize("n", [2, 6, 13, 30])
@pytest.mark.parametrize("ties", [False, True])
def test_networkx(n: int, ties: bool) -> None:
    for seed in range(3):
        scores = normal(n, n, seed=seed)
        if ties:
            scores = scores.round()
        found = (arborescence_argmax(scores, None) * scores).sum().item()
        assert found == pytest.approx(networkx_best(scores), abs=1e-12 * n)
        fixed = scores.clone()
        fixed[:, 1] = -math.inf
        found = (arborescence_argmax(scores, 1) * scores).sum().item()
        assert found == pytest.approx(networkx_best(fixed), abs=1e-12 * n)


def nested_cycles(n: int, seed: int) -> Tensor:
    """Strong arcs within pairs, weaker ones within fours, ...: contractions of contractions."""
    v = torch.arange(n)
    level = sum(((v[:, None] >> b) == (v >> b)).double() for b in range(1, 6))
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return (10 * level + normal(n, n, seed=seed))[order][:, order]


@pytest.mark.parametrize("n", [8, 16, 27])
def test_nested_cycles(n: int) -> None:
    for seed in range(4):
        scores = nested_cycles(n, seed)
        found = (arborescence_argmax(scores, None) * scores).sum().item()
        assert found == pytest.approx(networkx_best(scores), abs=1e-11 * n)


@pytest.mark.parametrize("n", [6, 20])
def test_single_root_is_the_best_first_child(n: int) -> None:
    for seed in range(3):
        scores = nested_cycles(n, seed)
        z = arborescence_argmax(scores, 0, single_root=True)
        assert z[0].sum() == 1
        rest = scores[1:, 1:]
        best = max(
            scores[0, v + 1].item() + (arborescence_argmax(rest, v) * rest).sum().item()
            for v in range(n - 1)
        )
        assert (z * scores).sum().item() == pytest.approx(best, abs=1e-11 * n)


def test_single_root_is_exact_beside_huge_scores() -> None:
    scores = torch.zeros(4, 4)
    scores[0, 1:] = torch.tensor([1e30, 1e30, 2e30])  # a penalty of any size would have to beat these
    z = arborescence_argmax(scores, 0, single_root=True)
    assert z[0].tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize(("root", "single_root"), ROOTS)
def test_forbidden_arcs(root: int | None, single_root: bool) -> None:
    trees = arborescences(5, root, single_root)
    g = torch.Generator().manual_seed(2)
    refused = 0
    for scores in normal(60, 5, 5):
        masked = scores.masked_fill(torch.rand(5, 5, generator=g) < 0.5, -math.inf)
        values = tree_scores(trees, masked)
        if values.max() > -math.inf:
            assert torch.equal(arborescence_argmax(masked, root, single_root), trees[values.argmax()])
        else:
            refused += 1
            with pytest.raises(InputError, match="no tree that reaches every node in the graph"):
                arborescence_argmax(masked, root, single_root)
    assert 0 < refused < 60


def test_a_node_that_nothing_reaches_is_the_free_root() -> None:
    scores = normal(6, 6)
    scores[:, 3] = -math.inf
    assert torch.equal(arborescence_argmax(scores, None), arborescence_argmax(scores, 3))


def test_one_allowed_tree() -> None:
    chain = torch.zeros(7, 7).diagonal_scatter(torch.ones(6), 1)
    scores = torch.full((7, 7), -math.inf).masked_fill(chain > 0, -1e4)
    for root in (0, None):
        assert torch.equal(arborescence_argmax(scores, root), chain)


def test_small_graphs() -> None:
    assert arborescence_argmax(torch.zeros(1, 1)).tolist() == [[0.0]]
    assert arborescence_argmax(torch.zeros(2, 1, 1), None).tolist() == [[[0.0]], [[0.0]]]
    assert arborescence_argmax(torch.zeros(2, 2), 1).tolist() == [[0.0, 0.0], [1.0, 0.0]]
    two = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    assert arborescence_argmax(two, None).tolist() == [[0.0, 0.0], [1.0, 0.0]]
    with pytest.raises(InputError, match="no tree"):
        arborescence_argmax(torch.zeros(1, 1), 0, single_root=True)


def test_ties_go_to_the_first_head() -> None:
    assert arborescence_argmax(torch.zeros(4, 4))[0].tolist() == [0, 1, 1, 1]
    assert arborescence_argmax(torch.zeros(4, 4), 2)[2].tolist() == [1, 1, 0, 1]


@pytest.mark.parametrize(("root", "single_root"), ROOTS)
def test_vmap_is_a_loop(root: int | None, single_root: bool) -> None:
    scores = normal(4, 3, 6, 6).round().float()
    expected = torch.stack([arborescence_argmax(s, root, single_root) for s in scores])
    mapped = torch.func.vmap(lambda s: arborescence_argmax(s, root, single_root), in_dims=1)
    assert torch.equal(mapped(scores.movedim(0, 1)), expected)
    assert torch.equal(arborescence_argmax(scores, root, single_root), expected)


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("root", "single_root"), [(0, False), (None, False), (1, True)])
def test_compiled(backend: str, root: int | None, single_root: bool) -> None:
    scores = normal(3, 6, 6).float()
    compiled = torch.compile(arborescence_argmax, fullgraph=True, backend=backend)
    assert torch.equal(
        compiled(scores, root, single_root), arborescence_argmax(scores, root, single_root)
    )


def test_operator_contract() -> None:
    from argrad.solvers.arborescence import _edmonds

    torch.library.opcheck(_edmonds, (normal(2, 4, 3), False))


def test_no_tree_is_nan_where_values_cannot_be_read() -> None:
    scores = torch.zeros(3, 4, 4)
    scores[1, :, 2] = -math.inf
    blind = torch.func.vmap(arborescence_argmax)(scores)
    assert blind[1].isnan().any()
    assert not blind[[0, 2]].isnan().any()


def test_wrong_root_is_a_sentence() -> None:
    with pytest.raises(InputError, match="must be an integer from 0 to 2; got 3"):
        arborescence_argmax(torch.zeros(3, 3), 3)
    with pytest.raises(InputError, match="must be a node number with `single_root=True`"):
        arborescence_argmax(torch.zeros(3, 3), None, single_root=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_dtypes_and_empty_batches(dtype: torch.dtype) -> None:
    scores = normal(4, 8, 8).to(dtype)
    z = arborescence_argmax(scores, None)
    assert z.dtype == dtype
    assert torch.equal(z.double(), arborescence_argmax(scores.double(), None))
    assert arborescence_argmax(scores[:0]).shape == (0, 8, 8)
    assert not arborescence_argmax(scores.requires_grad_()).requires_grad
