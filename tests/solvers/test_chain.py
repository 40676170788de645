"""Tags along a line: the contract, long chains, ties, shapes."""

from __future__ import annotations

import itertools
import math

import mpmath
import pytest
import torch
from torch import Tensor

import argrad as ag
from argrad._errors import InputError
from argrad.solvers import chain as solver
from argrad.solvers.chain import chain_argmax, chain_log_partition, chain_marginals, chain_sample
from family_contract import FamilyCase, FamilyContract, compiled_is_eager


def sequences(length: int, tags: int) -> Tensor:
    every = torch.tensor(list(itertools.product(range(tags), repeat=length)))
    one_hot = torch.nn.functional.one_hot(every, tags).double()
    return one_hot[:, :-1, :, None] * one_hot[:, 1:, None, :]


def make(length: int, tags: int) -> FamilyCase:
    def plain_sample(scores: Tensor, uniform: Tensor) -> Tensor:
        _, first, steps = solver._transitions(scores)
        return solver._pairs(solver._sample(first, steps, uniform), scores)

    return FamilyCase(
        f"{length}-places-{tags}-tags",
        sequences(length, tags),
        chain_log_partition,
        chain_marginals,
        lambda x, shape, generator: chain_sample(x, shape, generator=generator),
        (solver._log_partition, lambda x: solver._infer(x)[1]),
        plain_sample,
        length,
        argmax=chain_argmax,
        closed=(0, 0, 1) if tags > 1 else None,
    )


@pytest.fixture(params=[make(2, 1), make(4, 1), make(2, 3), make(3, 3), make(5, 2)], ids=str)
def case(request: pytest.FixtureRequest) -> FamilyCase:
    return request.param


class TestChain(FamilyContract):
    def test_plain_argmax(self, case: FamilyCase) -> None:
        scores = case.forbid(case.scores(6))
        tags, best = solver._argmax(scores)
        assert torch.equal(solver._pairs(tags, scores), chain_argmax(scores))
        parts = torch.where(chain_argmax(scores) > 0, scores, 0.0)
        assert torch.allclose(best, parts.sum((-3, -2, -1)))


def test_compiled(fresh_compiler: None) -> None:
    compiled_is_eager(make(4, 3))


@pytest.mark.slow
def test_inductor(fresh_compiler: None) -> None:
    compiled_is_eager(make(4, 3), "inductor")


@pytest.mark.parametrize("scale", [1.0, 10.0, 100.0])
def test_long_chains(scale: float) -> None:
    """Rounding does not grow with the length: continuations are kept relative to the best one."""
    scores = scale * torch.randn(2, 200, 6, 6)
    right = chain_marginals(scores.double())
    assert torch.allclose(right.sum((-2, -1)), torch.ones(2, 200, dtype=torch.float64), rtol=1e-13)
    assert (chain_marginals(scores) - right).abs().max() < 6e-8  # half an ulp of 1
    # plain torch rounds log-weights of a few times `scale`, 6e-8 each
    assert (solver._infer(scores)[1] - right).abs().max() < 2e-6 * (1 + scale / 10)
    free = scores.clone().requires_grad_()
    solver._log_partition(free).sum().backward()
    assert (free.grad - right).abs().max() < 2e-6 * (1 + scale / 10)


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_high_precision(scale: float) -> None:
    scores = scale * torch.randn(30, 3, 3, dtype=torch.float64)
    with mpmath.workdps(60):
        steps = [
            mpmath.matrix([[mpmath.exp(mpmath.mpf(s)) for s in row] for row in x])
            for x in scores.tolist()
        ]
        before, after = [mpmath.ones(1, 3)], [mpmath.ones(3, 1)]
        for m in steps:
            before.append(before[-1] * m)
        for m in reversed(steps):
            after.insert(0, m * after[0])
        z = sum(before[-1])
        right = [
            [[float(before[t][i] * m[i, j] * after[t + 1][j] / z) for j in range(3)] for i in range(3)]
            for t, m in enumerate(steps)
        ]
        log_z = float(mpmath.log(z))
    assert chain_log_partition(scores).item() == pytest.approx(log_z, rel=1e-14)
    expected = torch.tensor(right, dtype=torch.float64)
    # a log-weight of a few times `scale` is rounded to 1e-16 of it, then a relative error
    assert torch.allclose(chain_marginals(scores), expected, rtol=1e-13 * (1 + scale), atol=1e-300)
    assert torch.allclose(solver._infer(scores)[1], expected, rtol=1e-12 * (1 + scale), atol=1e-300)


def test_dead_ends() -> None:
    """A tag that leads nowhere is worth nothing, however good it looks."""
    scores = torch.zeros(3, 3, 3)
    scores[0, :, 2] = 50.0
    scores[1, 2, :] = -math.inf
    scores.requires_grad_()
    mu = chain_marginals(scores)
    assert mu[0, :, 2].max() == 0 and torch.allclose(mu.sum((-2, -1)), torch.ones(3))
    assert bool((chain_argmax(scores)[0, :, 2] == 0).all())
    for marginals in (mu, solver._infer(scores)[1]):
        (gradient,) = torch.autograd.grad(marginals.square().sum(), scores)
        assert bool(gradient.isfinite().all()) and gradient[1, 2].abs().max() == 0


def test_same_draws_everywhere() -> None:
    scores, rng = torch.randn(4, 7, 5, 5), ag.CounterRNG(2)
    uniform = ag.random.uniform((100, 4, 8), generator=rng)
    _, first, steps = solver._transitions(scores)
    tags = solver._sample(first, steps, uniform)
    # float32 sums can put a uniform on the other side of a threshold: 1e-7 a draw
    assert torch.equal(solver._pairs(tags, scores), chain_sample(scores, (100,), generator=rng))


def test_ties_take_the_first_tags() -> None:
    z = chain_argmax(torch.zeros(4, 3, 3))
    assert torch.equal(z.nonzero(), torch.tensor([[t, 0, 0] for t in range(4)]))


def test_shapes() -> None:
    with pytest.raises(InputError, match=r"\(..., L - 1, C, C\)"):
        chain_marginals(torch.zeros(3, 2, 4))
    with pytest.raises(InputError, match="at least 3 dimensions"):
        chain_marginals(torch.zeros(3, 3))
    solver.check_feasible("here", torch.zeros(3, 2, 2))
    with pytest.raises(InputError, match="here"):
        solver.check_feasible("here", torch.full((3, 2, 2), -math.inf))
