"""Layers: schedules, state, evaluation."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch

import argrad as ag
from argrad.testing import assert_frequencies

LOGITS = torch.tensor([1.0, 0.0, -1.0])


def annealed(**options: object) -> ag.nn.GumbelSoftmax:
    return ag.nn.GumbelSoftmax(ag.schedules.Exponential(rate=0.1, floor=0.2, every=1), **options)


def test_training_follows_the_schedule() -> None:
    layer, logits = annealed(), torch.randn(4, 3)
    for step in range(30):
        tau = max(0.2, math.exp(-0.1 * step))
        assert layer.tau == tau
        expected = ag.gumbel_softmax(logits, tau, generator=ag.CounterRNG(step))
        assert torch.equal(layer(logits, generator=ag.CounterRNG(step)), expected)
        layer.step()
    assert layer.tau == 0.2


@pytest.mark.parametrize("hard", [False, True])
def test_hard_is_straight_through(hard: bool) -> None:
    layer = ag.nn.GumbelSoftmax(0.5, hard=hard)
    logits = torch.randn(4, 3, requires_grad=True)
    y = layer(logits)
    assert bool(((y == 0) | (y == 1)).all()) == hard
    (y * torch.randn(4, 3)).sum().backward()
    assert logits.grad.abs().sum() > 0


@pytest.mark.statistical
def test_evaluation_draws_hard_samples_without_gradient() -> None:
    layer = annealed().eval()
    z = layer(LOGITS.expand(20_000, 3).requires_grad_(), generator=torch.Generator().manual_seed(0))
    assert not z.requires_grad
    assert ((z == 0) | (z == 1)).all()
    assert_frequencies(z.sum(0), LOGITS.softmax(-1))


def test_evaluation_by_mode() -> None:
    layer = ag.nn.GumbelSoftmax(evaluate="mode", dim=0).eval()
    logits = torch.tensor([[1.0, 5.0], [2.0, 3.0]])
    before = torch.get_rng_state()
    assert layer(logits).tolist() == [[0, 1], [1, 0]]
    assert layer(logits, mask=torch.tensor([[True, False], [True, True]])).tolist() == [[0, 0], [1, 1]]
    assert torch.equal(torch.get_rng_state(), before)
    assert layer(logits.half()).dtype == torch.float16


@pytest.mark.parametrize("evaluate", ["sample", "mode"])
@pytest.mark.parametrize("training", [True, False])
def test_wrong_input_gets_a_sentence_in_either_mode(training: bool, evaluate: str) -> None:
    layer = ag.nn.GumbelSoftmax(evaluate=evaluate).train(training)
    with pytest.raises(ag.InputError, match="must not hold NaN"):
        layer(torch.tensor([0.0, math.nan]))
    with pytest.raises(ag.InputError, match="so nothing can be chosen there"):
        layer(torch.zeros(2, 3), mask=torch.tensor([[True] * 3, [False] * 3]))
    with pytest.raises(ag.InputTypeError, match="must be floating point"):
        layer(torch.zeros(2, 3).long())
    with pytest.raises(ag.InputTypeError, match="must be a bool tensor"):
        layer(torch.zeros(2, 3), mask=torch.ones(2, 3))


def test_the_step_count_is_saved() -> None:
    layer = annealed()
    for _ in range(7):
        layer.step()
    fresh = annealed()
    fresh.load_state_dict(layer.state_dict())
    assert fresh.tau == layer.tau == pytest.approx(math.exp(-0.7))
    assert float(fresh._now) == fresh.tau  # what compiled code reads
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        other.step()
        assert other.tau == pytest.approx(math.exp(-0.8))
        assert layer.tau == fresh.tau


def test_half_precision_does_not_round_the_temperature() -> None:
    layer = annealed().half()
    layer.step()
    assert layer.tau == float(layer._now) == math.exp(-0.1)
    assert layer(torch.zeros(2, 3, dtype=torch.float16)).dtype == torch.float16


def test_a_learnable_temperature_is_a_parameter() -> None:
    layer = ag.nn.GumbelSoftmax(ag.schedules.Learnable(0.7))
    assert [name for name, _ in layer.named_parameters()] == ["schedule.rho"]
    layer(torch.randn(5, 4)).square().sum().backward()
    assert layer.schedule.rho.grad.abs() > 0
    layer.step()
    assert layer.tau.item() == pytest.approx(0.7)


def test_a_function_is_a_schedule() -> None:
    layer = ag.nn.GumbelSoftmax(lambda step: 1 / (1 + step))
    layer.step()
    assert layer.tau == 0.5


def test_settings_are_checked_and_shown() -> None:
    with pytest.raises(
        ag.InputError, match=r'`GumbelSoftmax\(evaluate=...\)` must be "sample" or "mode"'
    ):
        ag.nn.GumbelSoftmax(evaluate="argmax")
    for bad, error in (
        (0.0, ag.InputError),
        (math.nan, ag.InputError),
        ("hot", ag.InputTypeError),
        (None, ag.InputTypeError),
    ):
        with pytest.raises(error, match=r"`GumbelSoftmax\(tau=...\)` must be"):
            ag.nn.GumbelSoftmax(bad)
    assert repr(ag.nn.GumbelSoftmax(0.5, hard=True)) == (
        "GumbelSoftmax(tau=Constant(tau=0.5), hard=True, dim=-1, evaluate='sample')"
    )


def test_stochastic_softmax_keeps_the_same_promises() -> None:
    layer = ag.nn.StochasticSoftmax(ag.OneHot(), tau=ag.schedules.Linear(1.0, 0.5, 2), hard=True)
    layer.step()
    assert layer.tau == 0.75
    assert torch.equal(layer(torch.zeros(4, 3)).sum(-1), torch.ones(4))
    layer.eval()
    assert torch.equal(layer(torch.zeros(4, 3)).sum(-1), torch.ones(4))
    assert "OneHot()" in repr(layer)
