"""k of n on a line with neighbours: the contract, k per row, extreme attraction, high precision."""

from __future__ import annotations

import itertools
import math

import mpmath
import pytest
import torch
from torch import Tensor

from argrad._errors import InputError
from argrad.solvers import _chain_subset_torch as plain
from argrad.solvers import chain_subset as solver
from argrad.solvers.chain_subset import (
    chain_subset_argmax,
    chain_subset_log_partition,
    chain_subset_marginals,
    chain_subset_sample,
)
from argrad.solvers.subset import subset_log_partition, subset_marginals
from family_contract import FamilyCase, FamilyContract, compiled_is_eager


def choices(n: int, k: int) -> Tensor:
    bits = [z for z in itertools.product((0.0, 1.0), repeat=n) if sum(z) == k]
    z = torch.tensor(bits, dtype=torch.float64)
    return torch.cat([z, z[:, 1:] * z[:, :-1]], -1)


def make(n: int, k: int, closed: int | None = None) -> FamilyCase:
    return FamilyCase(
        f"{k}-of-{n}{'' if closed is None else f'-without-{closed}'}",
        choices(n, k),
        lambda x: chain_subset_log_partition(x, k),
        lambda x: chain_subset_marginals(x, k),
        lambda x, shape, generator: chain_subset_sample(x, k, shape, generator=generator),
        (lambda x: plain.log_partition(x, k), lambda x: plain.infer(x, k)[1]),
        lambda x, uniform: solver._event(plain.sample(x, k, uniform)[0], x),
        n,
        argmax=lambda x: chain_subset_argmax(x, k),
        closed=None if closed is None else (closed,),
        always_possible=k == 0,
    )


CASES = [
    make(1, 0),
    make(1, 1),
    make(2, 1, 2),
    make(4, 0),
    make(4, 4),
    make(5, 2, 1),
    make(5, 2, 6),
    make(6, 4, 7),
]


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest) -> FamilyCase:
    return request.param


class TestChainSubset(FamilyContract):
    def test_plain_argmax(self, case: FamilyCase) -> None:
        scores = case.forbid(case.scores(6))
        bits, best = plain.argmax(scores, int(case.vertices[0, : (case.event[0] + 1) // 2].sum()))
        z = solver._event(bits, scores)
        assert torch.equal(z, case.argmax(scores))
        assert torch.allclose(best, torch.where(z > 0, scores, 0.0).sum(-1))


def test_compiled(fresh_compiler: None) -> None:
    compiled_is_eager(make(4, 2))


@pytest.mark.slow
def test_inductor(fresh_compiler: None) -> None:
    compiled_is_eager(make(6, 2), "inductor")


def test_one_k_a_row() -> None:
    scores = torch.randn(2, 4, 11, dtype=torch.float64).requires_grad_()
    k = torch.tensor([0, 1, 4, 6])
    for call in (chain_subset_log_partition, chain_subset_marginals, chain_subset_argmax):
        found = call(scores, k)
        columns = [call(scores[:, i], int(k[i])) for i in range(4)]
        assert torch.allclose(found, torch.stack(columns, 1), atol=1e-14)
        rows = torch.vmap(call, in_dims=(1, 0), out_dims=1)
        assert torch.allclose(rows(scores, k), found, atol=1e-13)
    assert torch.autograd.gradcheck(lambda x: chain_subset_marginals(x, k), scores, fast_mode=True)
    assert bool((chain_subset_sample(scores, k, (30,))[..., :6].sum(-1) == k).all())


@pytest.mark.parametrize("scale", [1.0, 10.0, 100.0])
def test_without_pairs_it_is_a_subset(scale: float) -> None:
    unary = scale * torch.randn(3, 200, dtype=torch.float64)
    scores = torch.cat([unary, torch.zeros(3, 199, dtype=torch.float64)], -1)
    assert torch.allclose(
        chain_subset_log_partition(scores, 20), subset_log_partition(unary, 20), rtol=1e-13
    )
    # two algorithms, each with rounding of 1e-16 * scale in the exponents
    assert torch.allclose(
        chain_subset_marginals(scores, 20)[:, :200], subset_marginals(unary, 20), atol=1e-13
    )


@pytest.mark.parametrize("scale", [1.0, 10.0, 100.0])
def test_long_lines(scale: float) -> None:
    scores = scale * torch.randn(2, 699)
    right = chain_subset_marginals(scores.double(), 10)
    assert torch.allclose(right[:, :350].sum(-1), torch.tensor(10.0, dtype=torch.float64), rtol=1e-13)
    assert (chain_subset_marginals(scores, 10) - right).abs().max() < 6e-8  # half an ulp of 1
    # 9 levels of log-weights of a few times `scale`, rounded to 6e-8 of it
    assert (plain.infer(scores, 10)[1] - right).abs().max() < 2e-6 * (1 + scale / 10)


def weights(scores: Tensor, n: int, k: int) -> list[list[list[mpmath.mpf]]]:
    """The DP in high precision: [item][previous bit][chosen so far] -> weight of what follows."""
    w = [mpmath.exp(mpmath.mpf(s)) if s > -math.inf else mpmath.mpf(0) for s in scores.tolist()]
    after = [[mpmath.mpf(c == k) for c in range(k + 2)] for _ in range(2)]
    table = [after]
    for i in range(n - 1, -1, -1):
        pair = w[n + i - 1] if i else mpmath.mpf(1)
        factors = (w[i], w[i] * pair)
        after = [
            [
                after[0][c] + factors[b] * after[1][c + 1] if c <= k else mpmath.mpf(0)
                for c in range(k + 2)
            ]
            for b in range(2)
        ]
        table.insert(0, after)
    return table


@pytest.mark.parametrize("pull", [0.0, 40.0, 500.0, -500.0])
def test_high_precision_with_attraction(pull: float) -> None:
    """Neighbours that attract by e^500: counts other than 0 and n are rarer than any float."""
    n, k = 24, 9
    scores = 3.0 * torch.randn(2 * n - 1, dtype=torch.float64)
    scores[n:] += pull
    scores[:n] -= pull
    with mpmath.workdps(50):
        z = weights(scores, n, k)[0][0][0]
        without = scores.repeat(2 * n - 1, 1)
        without[range(2 * n - 1), range(2 * n - 1)] = -math.inf
        right = [float(1 - weights(row, n, k)[0][0][0] / z) for row in without]
        log_z = float(mpmath.log(z))
    expected = torch.tensor(right, dtype=torch.float64)
    assert chain_subset_log_partition(scores, k).item() == pytest.approx(log_z, rel=1e-14)
    assert torch.allclose(chain_subset_marginals(scores, k), expected, atol=1e-13 * (1 + abs(pull)))
    assert torch.allclose(plain.infer(scores, k)[1], expected, atol=1e-13 * (1 + abs(pull)))


def test_forbidden_neighbours() -> None:
    scores = torch.cat([torch.randn(5), torch.full((4,), -math.inf)])
    assert torch.equal(chain_subset_argmax(scores, 3)[:5], torch.tensor([1.0, 0.0, 1.0, 0.0, 1.0]))
    assert torch.allclose(
        chain_subset_marginals(scores, 3)[:5], torch.tensor([1.0, 0.0, 1.0, 0.0, 1.0])
    )
    assert chain_subset_log_partition(scores, 4) == -math.inf
    with pytest.raises(InputError, match="some choice of k items"):
        chain_subset_sample(scores, 4)
    with pytest.raises(InputError, match="here"):
        solver.check_feasible("here", scores, 4)
    solver.check_feasible("here", scores, 3)


def test_ties_take_the_earliest_items() -> None:
    z = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    assert torch.equal(chain_subset_argmax(torch.zeros(11), 3), z)
    assert torch.equal(
        torch.vmap(lambda x: chain_subset_argmax(x, 3))(torch.zeros(2, 11)), z.repeat(2, 1)
    )


def test_refuses() -> None:
    with pytest.raises(InputError, match="odd length 2n - 1"):
        chain_subset_marginals(torch.zeros(4), 1)
    with pytest.raises(InputError, match="must be an integer from 0 to 3"):
        chain_subset_marginals(torch.zeros(5), 4)
    assert chain_subset_log_partition(torch.zeros(2, 5), torch.tensor([1, 4]))[1] == -math.inf
