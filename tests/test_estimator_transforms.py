"""Estimators inside `torch.func` and `torch.compile(fullgraph=True)` give the gradients they give outside."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import argrad as ag
from estimator_cases import ESTIMATORS, EstimatorCase

TARGET = torch.tensor([0.2, 0.6, 0.4])
SCORES = torch.tensor([[0.3, -0.5, 0.8], [1.0, 0.0, -2.0]])
STRUCTURES = {"bits": ag.Bits(), "one of three": ag.OneHot()}
# those whose way through a transform is their own; compiling all takes minutes
FEW = ("LeaveOneOut", "UnorderedSet", "GumbelST", "ReinMaxCV", "Relax", "MuProp", "Arm")


def cost(z: Tensor) -> Tensor:
    return ((z - TARGET) ** 2).sum(-1) + 1.5 * z.prod(-1)


def build(case: EstimatorCase, structure: ag.Structure) -> ag.Estimator:
    q = ag.Gibbs(structure, SCORES)
    torch.manual_seed(0)  # weights of the networks
    estimator = case.make(q)
    if isinstance(estimator, nn.Module):
        estimator.float().eval()  # running averages stay as they are
    if not estimator.works_with(q):
        pytest.skip(f"{case.name} is not defined here")
    return estimator


def gradient(loss, scores: Tensor) -> Tensor:
    leaf = scores.clone().requires_grad_()
    loss(leaf).backward()
    assert leaf.grad is not None
    return leaf.grad


def close(actual: Tensor, expected: Tensor) -> None:
    # the same formula in another order of operations, float32
    torch.testing.assert_close(actual, expected, atol=2e-5, rtol=2e-4)


every = pytest.mark.parametrize("case", ESTIMATORS, ids=lambda c: c.name)
both = pytest.mark.parametrize("structure", STRUCTURES.values(), ids=STRUCTURES)


@every
@both
def test_grad_transform(case: EstimatorCase, structure: ag.Structure) -> None:
    estimator = build(case, structure)

    def loss(scores: Tensor) -> Tensor:
        return estimator(cost, ag.Gibbs(structure, scores), generator=ag.CounterRNG(5)).sum()

    close(torch.func.grad(loss)(SCORES), gradient(loss, SCORES))


def compiled_agrees(case: EstimatorCase, structure: ag.Structure, backend: str) -> None:
    """As a loss with `backward()` outside, and as a whole step with `torch.func.grad` inside."""
    estimator = build(case, structure)

    def loss(scores: Tensor, rng: ag.CounterRNG) -> Tensor:
        return estimator(cost, ag.Gibbs(structure, scores), generator=rng).sum()

    def step(scores: Tensor, rng: ag.CounterRNG) -> Tensor:
        return torch.func.grad(loss)(scores, rng)

    rng = ag.CounterRNG(5)
    expected = gradient(lambda x: loss(x, rng), SCORES)
    torch._dynamo.reset()
    fast = torch.compile(loss, fullgraph=True, backend=backend)
    close(gradient(lambda x: fast(x, rng), SCORES), expected)
    close(torch.compile(step, fullgraph=True, backend=backend)(SCORES, rng), expected)


@pytest.mark.parametrize("case", [c for c in ESTIMATORS if c.name in FEW], ids=lambda c: c.name)
def test_compiles_to_one_graph(case: EstimatorCase) -> None:
    compiled_agrees(case, ag.Bits(), "aot_eager")


@pytest.mark.slow
@every
@both
def test_compiles_to_one_graph_by_inductor(case: EstimatorCase, structure: ag.Structure) -> None:
    compiled_agrees(case, structure, "inductor")


def test_control_variates_train_in_compiled_code() -> None:
    """The gradients for a control variate's own parameters are those of eager code."""
    grads = []
    for compiled in (False, True):
        torch.manual_seed(0)
        est = ag.Relax(nn.Linear(3, 1))

        def loss(scores: Tensor, rng: ag.CounterRNG, est: ag.Relax = est) -> Tensor:
            return est(cost, ag.Gibbs(ag.Bits(), scores), generator=rng).mean()

        run = torch.compile(loss, fullgraph=True, backend="aot_eager") if compiled else loss
        run(SCORES.clone().requires_grad_(), ag.CounterRNG(5)).backward()
        grads.append([p.grad for p in est.parameters()])
    for one, two in zip(*grads, strict=True):
        close(one, two)


def test_running_averages_move_in_compiled_code() -> None:
    est = ag.MovingBaseline()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def loss(scores: Tensor) -> Tensor:
        return est(lambda z: 5.0 + 0.0 * z.sum(-1), ag.Gibbs(ag.Bits(), scores)).mean()

    loss(SCORES.clone().requires_grad_()).backward()
    torch.testing.assert_close(est.mean, torch.tensor(5.0))
