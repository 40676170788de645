"""Exact assignment: as good as enumeration and scipy, on every shape and mask."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from argrad._errors import InputError, InputTypeError
from argrad.solvers.assignment import assignment


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def value(w: Tensor, Z: Tensor) -> Tensor:
    """Total score; forbidden pairs count only if chosen."""
    return torch.where(Z > 0, w, 0.0).sum((-2, -1))


def is_matching(Z: Tensor) -> bool:
    zero_one = bool(((Z == 0) | (Z == 1)).all())
    return zero_one and bool((Z.sum(-1) <= 1).all()) and bool((Z.sum(-2) <= 1).all())


def matchings(n: int, m: int, partial: bool) -> list[Tensor]:
    """Every matching of n rows and m columns; only those of full size unless partial."""
    found = []
    for chosen in itertools.product(range(-1, m), repeat=n):
        used = [j for j in chosen if j >= 0]
        if len(set(used)) == len(used) and (partial or len(used) == min(n, m)):
            Z = torch.zeros(n, m, dtype=torch.float64)
            for i, j in enumerate(chosen):
                if j >= 0:
                    Z[i, j] = 1
            found.append(Z)
    return found


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (3, 3), (4, 4), (3, 5), (5, 3)])
def test_against_enumeration(shape: tuple[int, int], partial: bool) -> None:
    w = normal(20, *shape) - 0.3
    everything = torch.stack(matchings(*shape, partial))
    best = torch.einsum("bij,kij->bk", w, everything).amax(-1)
    Z = assignment(w, partial=partial)
    assert is_matching(Z)
    assert torch.allclose(value(w, Z), best, atol=1e-12)  # sums of five numbers
    if not partial:
        assert bool((Z.sum((-2, -1)) == min(shape)).all())
    else:
        assert bool((w[Z == 1] > 0).all())


@pytest.mark.parametrize("kind", ["normal", "integer", "constant", "outer", "columns"])
@pytest.mark.parametrize("shape", [(7, 7), (25, 25), (25, 40), (40, 25), (90, 90)])
def test_against_scipy(shape: tuple[int, int], kind: str) -> None:
    w = normal(6, *shape)
    if kind == "integer":  # exact ties
        w = w.mul(2).round()
    elif kind == "constant":
        w = torch.zeros_like(w)
    elif kind == "outer":  # near ties, long augmenting paths
        w = w[..., :1].sigmoid() * w[..., :1, :].sigmoid()
    elif kind == "columns":  # every row wants the same columns
        w = 0.1 * w + 5 * normal(6, 1, shape[1], seed=1)
    Z = assignment(w)
    assert is_matching(Z)
    for x, z in zip(w, Z, strict=True):
        rows, columns = linear_sum_assignment(x.numpy(), maximize=True)
        assert float(value(x, z)) == pytest.approx(float(x[rows, columns].sum()), abs=1e-9)


def test_forbidden_pairs_are_never_chosen() -> None:
    generator = torch.Generator().manual_seed(3)
    w = normal(50, 8, 8).masked_fill(torch.rand(50, 8, 8, generator=generator) < 0.6, -math.inf)
    w[:, range(8), [3, 1, 0, 2, 7, 6, 5, 4]] = -5.0  # one way is always open
    Z = assignment(w)
    assert bool((Z.sum(-1) == 1).all()) and bool((w[Z == 1] > -math.inf).all())
    for x, z in zip(w, Z, strict=True):
        rows, columns = linear_sum_assignment(np.maximum(x.numpy(), -1e6), maximize=True)
        assert float(value(x, z)) == pytest.approx(float(x[rows, columns].sum()), abs=1e-9)
    free = assignment(w, partial=True)
    assert bool((w[free == 1] > 0).all())


def test_partial_leaves_out_what_costs() -> None:
    w = torch.tensor([[3.0, 2.0], [2.5, -9.0]])
    assert torch.equal(assignment(w, partial=True), torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    assert torch.equal(assignment(-w.abs(), partial=True), torch.zeros(2, 2))
    nothing = torch.full((2, 3), -math.inf)
    assert torch.equal(assignment(nothing, partial=True), torch.zeros(2, 3))


def test_shapes_dtypes_and_gradients() -> None:
    assert assignment(torch.empty(0, 3, 3)).shape == (0, 3, 3)
    assert torch.equal(assignment(torch.tensor([[-2.0]])), torch.ones(1, 1))
    w = normal(2, 3, 5, 4)
    Z = assignment(w)
    assert torch.equal(Z, torch.stack([torch.stack([assignment(x) for x in row]) for row in w]))
    assert torch.equal(assignment(w.mT.contiguous().mT), Z)
    assert torch.equal(assignment(w.mT).mT, Z)
    assert torch.equal(assignment(torch.complex(w, -w).conj().imag), Z)  # a negated view of its memory
    assert torch.equal(assignment(torch.nn.Parameter(w)), Z)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        assert assignment(w.to(dtype)).dtype == dtype
    assert not assignment(w.requires_grad_()).requires_grad


def test_threads_change_nothing() -> None:
    w = normal(600, 20, 20)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = assignment(w)
        torch.set_num_threads(2)
        assert torch.equal(assignment(w), one)
    finally:
        torch.set_num_threads(before)


def test_vmap_and_compile() -> None:
    torch._dynamo.reset()
    w = normal(4, 3, 5, 5)
    Z = assignment(w)
    assert torch.equal(torch.vmap(assignment)(w), Z)
    assert torch.equal(torch.vmap(assignment, 1, 1)(w), Z)
    compiled = torch.compile(lambda x: 2 * assignment(x, partial=True), fullgraph=True, backend="eager")
    assert torch.equal(compiled(w), 2 * assignment(w, partial=True))
    from argrad.solvers.assignment import _operator

    torch.library.opcheck(_operator, (w, False), test_utils=("test_schema", "test_faketensor"))


def test_impossible_masks_are_told() -> None:
    w = torch.zeros(3, 4, 4)
    w[2, :2, 1:] = -math.inf
    with pytest.raises(InputError, match=r"leave none in 1 of 3 matrices \(first: 2\)"):
        assignment(w)
    wide = torch.zeros(2, 5)
    wide[1] = -math.inf
    with pytest.raises(InputError, match="leave none in the matrix"):
        assignment(wide)
    tall = torch.zeros(5, 2)
    tall[:, 0] = -math.inf
    with pytest.raises(InputError, match="partial=True"):
        assignment(tall)


def test_wrong_input_gets_a_sentence() -> None:
    for bad in (math.nan, math.inf):
        with pytest.raises(InputError, match="must not hold NaN"):
            assignment(torch.tensor([[bad, 0.0], [0.0, 0.0]]))
    with pytest.raises(InputError, match="at least 2 dimensions"):
        assignment(torch.zeros(3))
    with pytest.raises(InputError, match="at least one item"):
        assignment(torch.zeros(2, 0))
    with pytest.raises(InputTypeError, match="floating point"):
        assignment(torch.zeros(2, 2, dtype=torch.int64))


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape",
    [
        (512, 25, 25),
        (512, 3, 3),
        (16, 100, 100),
        (1, 400, 400),
        (1, 3, 3),
        (4, 5, 5),
        (1, 10, 10),
        (1, 100, 100),
    ],
)
def test_not_slower_than_a_loop_over_scipy(shape: tuple[int, int, int]) -> None:
    # Processor time of one thread, so that a busy machine does not matter; 3 is measured for the first.
    # Different matrices at each call: scipy is up to 3 times as fast at one that its branches have learned.
    calls = list(normal(max(1, 2000 // math.prod(shape[:2])), *shape))

    def loop(w: Tensor) -> Tensor:
        Z = np.zeros(shape)
        for z, x in zip(Z, w.numpy(), strict=True):
            z[linear_sum_assignment(x, maximize=True)] = 1
        return torch.from_numpy(Z)

    for w in calls:
        assert torch.equal(assignment(w), loop(w))  # no ties in normal draws
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    ours, theirs = (min(processor_time(f, calls) for _ in range(20)) for f in (assignment, loop))
    torch.set_num_threads(before)
    assert ours < theirs / (1.5 if shape == (512, 25, 25) else 1.0)


def processor_time(f: Callable[[Tensor], Tensor], calls: list[Tensor]) -> float:
    start = time.process_time()
    for w in calls:
        f(w)
    return time.process_time() - start
