"""Solvers of the structures; the goals hold on one thread and on two."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks import baselines
from benchmarks.inputs import forward_backward, normal, upstream
from benchmarks.line import Goal, Line, Speedup, Step, both

Shape = tuple[int, ...]
NODES: Shape = (512, 25, 25)
TREES: Shape = (128, 50, 50)
SUBSETS: Shape = (64, 1000)
CHAINS: Shape = (64, 49, 20, 20)  # 50 places, 20 tags
SENTENCES: Shape = (64, 31, 31)  # 30 words and the root
K = 100


def _edge_scores(shape: Shape) -> Tensor:
    scores = normal(shape)
    return (scores + scores.mT) / 2


def _named(module: str, name: str) -> Callable[..., Any]:
    """The function, or an ImportError, by which the line is "not available"."""
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError as error:
        raise ImportError(str(error)) from None


def _solver(name: str) -> Callable[..., Any]:
    file, _, function = name.partition(".")
    return _named(f"argrad.solvers.{file}", function)


# ---- arg max: the best structure is unique with probability 1, so its score must agree -------------


def _check_trees(ours: Tensor, peer: list[Any]) -> None:
    scores = _edge_scores(NODES)
    best = torch.tensor([sum(float(s) for s in tree.data) for tree in peer])
    edges = NODES[-1] - 1
    torch.testing.assert_close((ours * scores).sum((-2, -1)) / 2, edges * (scores.max() + 1) - best)


def _check_arborescences(ours: Tensor, peer: list[Any]) -> None:
    best = torch.tensor([tree.size("weight") for tree in peer], dtype=torch.float32)
    torch.testing.assert_close((ours * normal(NODES)).sum((-2, -1))[: len(peer)], best)


def _check_assignments(ours: Tensor, peer: Tensor, shape: Shape) -> None:
    scores = normal(shape)
    best = scores.gather(-1, peer[..., None]).sum((-2, -1))
    torch.testing.assert_close((ours * scores).sum((-2, -1)), best)


def _assignment(shape: Shape, goal: float) -> Line:
    return Line(
        name=f"assignment {shape}",
        ours=lambda: partial(_solver("assignment.assignment"), normal(shape)),
        peer=lambda: baselines.scipy_assignments(normal(shape)),
        peer_name="loop of linear_sum_assignment",
        package="scipy",
        check=partial(_check_assignments, shape=shape),
        goals=both(Speedup(goal)),
    )


CALLS = 64  # different matrices: scipy solves one again and again up to 3 times as fast, its branches learned


def _check_small(ours: list[Tensor], peer: list[Any]) -> None:
    for z, item in zip(ours, peer, strict=True):
        assert torch.equal(z, item if _is_matrix(item) else _of_columns(z, item))


def _is_matrix(item: Any) -> bool:
    return isinstance(item, Tensor) and item.is_floating_point()


def _of_columns(z: Tensor, item: Any) -> Tensor:
    """The 0/1 matrices of a tensor of columns, or of scipy's pairs of rows and columns."""
    columns = item if isinstance(item, Tensor) else torch.tensor([c.tolist() for _, c in item])
    return torch.zeros_like(z).scatter_(-1, columns[..., None], 1.0)


def _small_assignments(shape: Shape) -> tuple[Line, ...]:
    """Small calls, where the cost is in the call: against the same question, and against the bare loop."""
    calls = (CALLS, *shape)

    def solver() -> Step:
        solve, inputs = _solver("assignment.assignment"), list(normal(calls))
        return lambda: [solve(x) for x in inputs]

    def structure() -> Step:
        permutation, inputs = _named("argrad", "Permutation")(), list(normal(calls))
        return lambda: [permutation.argmax(x) for x in inputs]

    def line(
        name: str,
        ours: Callable[[], Step],
        peer: Callable[[Tensor], Step],
        to: str,
        goals: dict[int, Goal],
    ) -> Line:
        return Line(
            name=f"{name} {shape}, {CALLS} calls",
            ours=ours,
            peer=lambda: peer(normal(calls)),
            peer_name=f"linear_sum_assignment to {to}",
            package="scipy",
            check=_check_small,
            goals=goals,
            unit="us",
        )

    return (
        line("assignment", solver, baselines.scipy_matrices, "0/1 tensors", both(Speedup(1))),
        line(
            "assignment (columns)",
            solver,
            baselines.scipy_columns,
            "tensors of columns",
            both(Speedup(1)),
        ),
        line(
            "Permutation.argmax", structure, baselines.scipy_matrices, "0/1 tensors", both(Speedup(1))
        ),
        line(
            "assignment (bare)",
            solver,
            baselines.scipy_indices,
            "arrays of indices (the bare loop)",
            {},
        ),
    )


ARGMAX = (
    Line(
        name=f"spanning_tree_argmax {NODES}",
        ours=lambda: partial(_solver("spanning_tree.spanning_tree_argmax"), _edge_scores(NODES)),
        peer=lambda: baselines.scipy_trees(_edge_scores(NODES)),
        peer_name="loop of csgraph.minimum_spanning_tree",
        package="scipy",
        check=_check_trees,
        goals=both(Speedup(100)),
    ),
    Line(
        name=f"arborescence_argmax {NODES}",
        ours=lambda: partial(_solver("arborescence.arborescence_argmax"), normal(NODES)),
        peer=lambda: baselines.networkx_arborescences(normal(NODES)[:32]),
        part=32 / NODES[0],
        peer_name="loop of maximum_spanning_arborescence (timed on 32 graphs)",
        package="networkx",
        check=_check_arborescences,
        goals=both(Speedup(200)),
    ),
    _assignment((512, 25, 25), 1.5),
    _assignment((64, 5, 5), 1.0),
    _assignment((64, 100, 100), 1.0),
    _assignment((1, 500, 500), 1.0),
    *_small_assignments((1, 3, 3)),
    *_small_assignments((4, 5, 5)),
    *_small_assignments((1, 10, 10)),
    *_small_assignments((1, 100, 100)),
)

# ---- marginals and relaxations -------------------------------------------------------------------


def _check_close(ours: Any, peer: Any, atol: float = 1e-4) -> None:
    """Values and gradients agree to what float32 leaves after sums over hundreds of terms."""
    for a, b in zip(ours, peer, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=atol)


def _subsets(scores: Tensor) -> tuple[Tensor, Tensor]:
    log_z, mu = _solver("subset.subset_log_partition"), _solver("subset.subset_marginals")
    return log_z(scores, K), mu(scores, K)


def _simplex(name: str, shape: Shape, ours: Callable[[], Callable[[Tensor], Tensor]]) -> Line:
    return Line(
        name=f"{name} fwd+bwd {shape}",
        ours=lambda: forward_backward(ours(), normal(shape)),
        peer=lambda: forward_backward(_named("entmax", name), normal(shape)),
        peer_name=f"entmax.{name}",
        package="entmax",
        check=_check_close,
        goals=both(Speedup(1)),
    )


def _sparsemax() -> Callable[[Tensor], Tensor]:
    return _solver("simplex.sparsemax")


def _entmax15() -> Callable[[Tensor], Tensor]:
    return partial(_solver("simplex.entmax"), alpha=1.5)


def _subset_step() -> Step:
    _solver("subset.subset_log_partition"), _solver("subset.subset_marginals")
    return partial(_subsets, normal(SUBSETS))


RELAXED = (
    Line(
        name=f"spanning_tree_marginals fwd+bwd {TREES}",
        ours=lambda: forward_backward(_solver("matrix_tree.spanning_tree_marginals"), normal(TREES)),
        peer=lambda: forward_backward(baselines.inverse_tree_marginals, normal(TREES)),
        peer_name="torch.linalg.inv formula",
        package="torch",
        check=_check_close,
        goals=both(Speedup(1 / 3)),
    ),
    Line(
        name=f"subset log-partition, marginals {SUBSETS}, k={K}",
        ours=_subset_step,
        peer=lambda: partial(baselines.sequential_subsets, normal(SUBSETS), K),
        peer_name="sequential dynamic program in torch",
        package="torch",
        # The sequential float32 program itself errs in log Z, about 450, by 1e-3.
        check=partial(_check_close, atol=1e-3),
        goals=both(Speedup(3)),
    ),
    Line(
        name=f"chain_marginals fwd+bwd {CHAINS}",
        ours=lambda: forward_backward(_solver("chain.chain_marginals"), normal(CHAINS)),
        peer=lambda: forward_backward(baselines.torch_struct_chains(), normal(CHAINS)),
        peer_name="LinearChainCRF of torch-struct",
        package="torch-struct",
        check=_check_close,
        goals=both(Speedup(1)),
    ),
    Line(
        name=f"arborescence_marginals fwd+bwd {SENTENCES}",
        ours=lambda: forward_backward(_solver("matrix_tree.arborescence_marginals"), normal(SENTENCES)),
        peer=lambda: forward_backward(baselines.torch_struct_trees(), normal(SENTENCES)),
        peer_name="NonProjectiveDependencyCRF of torch-struct (wrong beyond small scores)",
        package="torch-struct",
        # It adds 1e-5 to the Laplacian.
        check=partial(_check_close, atol=1e-3),
    ),
    _simplex("sparsemax", (4096, 128), _sparsemax),
    _simplex("sparsemax", (64, 5000), _sparsemax),
    _simplex("entmax15", (4096, 128), _entmax15),
    _simplex("entmax15", (64, 5000), _entmax15),
)

# ---- Sinkhorn ------------------------------------------------------------------------------------

PLANS: Shape = (16, 50, 50)
TAU = 0.5


def _plan_step() -> Step:
    sinkhorn, scores = _solver("sinkhorn.sinkhorn"), normal(PLANS) / TAU
    return lambda: sinkhorn(scores)


def _backward_after(iterations: int) -> Callable[[], Step]:
    """The backward pass alone, after a forward pass that runs all of its iterations (no tolerance is met)."""

    def factory() -> Step:
        sinkhorn, scores = _solver("sinkhorn.sinkhorn"), normal(PLANS).requires_grad_()
        plan = sinkhorn(scores / TAU, tolerance=1e-30, max_iterations=iterations, on_failure="ignore")
        weight = upstream(PLANS)
        return lambda: torch.autograd.grad(plan, scores, weight, retain_graph=True)

    return factory


SINKHORN = (
    Line(
        name=f"sinkhorn backward {PLANS}, 1000 iterations",
        ours=_backward_after(1000),
        peer=_backward_after(10),
        peer_name="the same after 10 iterations",
        package=None,
        check=lambda ours, peer: _check_close(
            ours, peer, atol=0.1
        ),  # 10 iterations are not the solution
        goals=both(Speedup(1 / 1.5)),  # independent of the iterations, up to the noise of the machine
    ),
    Line(
        name=f"sinkhorn {PLANS}, tau={TAU}",
        ours=_plan_step,
        peer=lambda: baselines.pot_plans(normal(PLANS), TAU),
        peer_name="solve_batch of POT",
        package="POT",
        check=lambda ours, peer: _check_close([ours], [peer.plan]),
    ),
)

LINES = ARGMAX + RELAXED + SINKHORN
