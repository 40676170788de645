"""Parts of a training loop: torch's Adam without its overhead, a rate that falls, batches in random order."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from argrad.recipes.training import Adam, Decay, Shuffled, gradients


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))


def torch_adam(model: nn.Module) -> torch.optim.Adam:
    return torch.optim.Adam(model.parameters(), 0.01, fused=True)


def our_adam(model: nn.Module) -> Adam:
    return Adam(model.parameters(), 0.01)


def trained(
    model: nn.Module, optimizer: torch.optim.Optimizer, steps: range, *, skip: int = -1
) -> list[Tensor]:
    """After steps that look at one half of the outputs; in step `skip` the first parameter has no gradient."""
    for step in steps:
        x = torch.randn(4, 5, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        model(x)[:, :2].square().sum().backward()
        if step == skip:
            next(iter(model.parameters())).grad = None
        Decay(optimizer, 10).step(0)
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("skip", [-1, 0, 3])
def test_adam_is_torchs_bit_for_bit(skip: int) -> None:
    """Also where a parameter has no gradient, in the first step or in a later one."""
    models = network(), network()
    theirs = trained(models[0], torch_adam(models[0]), range(6), skip=skip)
    ours = trained(models[1], our_adam(models[1]), range(6), skip=skip)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_adam_goes_on_from_a_checkpoint_of_torchs() -> None:
    models = network(), network()
    optimizers = torch_adam(models[0]), our_adam(models[1])
    trained(models[0], optimizers[0], range(3))
    trained(models[1], optimizers[1], range(7, 8))  # elsewhere
    models[1].load_state_dict(models[0].state_dict())
    optimizers[1].load_state_dict(copy.deepcopy(optimizers[0].state_dict()))
    theirs, ours = (trained(m, o, range(3, 6)) for m, o in zip(models, optimizers, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_adam_calls_what_wants_to_be_called_before_a_step() -> None:
    """As averaging over processes does."""
    model, calls = network(), []
    optimizer = our_adam(model)
    optimizer.register_step_pre_hook(lambda *_: calls.append(1))
    trained(model, optimizer, range(1))
    first = len(calls)
    trained(model, optimizer, range(2, 4))
    assert first >= 1 and len(calls) == first + 2


@pytest.mark.parametrize("pure", [False, True])
def test_compiled_gradients_are_those_of_backward(pure: bool, fresh_compiler: None) -> None:
    """Loss and gradients, also of other arguments, without compiling again."""

    def loss(model: nn.Module, x: Tensor, power: Tensor) -> Tensor:
        return (model(x).abs() ** power).mean()

    model = network()
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(1))
    plain, compiled = gradients(loss, model), gradients(loss, model, compiled=True, pure=pure)
    for power in (torch.tensor(2.0), torch.tensor(3.0)):
        found = []
        for backward in (plain, compiled):
            model.zero_grad()
            value = backward(x, power)
            assert not value.requires_grad
            found.append([value, *(p.grad for p in model.parameters())])
        torch.testing.assert_close(*found)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_the_rate_stays_and_then_falls() -> None:
    optimizer = our_adam(network())
    decay, rates = Decay(optimizer, 10), []
    for step in range(11):
        decay.step(step)
        rates.append(optimizer.param_groups[0]["lr"])
    assert rates[:6] == [0.01] * 6
    assert rates[10] == pytest.approx(0.001) and rates[8] == pytest.approx(0.0046)


def test_batches_hold_every_row_once_a_round_and_go_on_from_a_checkpoint() -> None:
    rows = torch.arange(10)
    batches = Shuffled(rows, 5, torch.Generator().manual_seed(0))
    round_ = torch.cat([batches.next(), batches.next()])
    assert round_.sort().values.tolist() == rows.tolist() and round_.tolist() != rows.tolist()
    first = batches.next()
    other = Shuffled(rows, 5, torch.Generator())
    other.load_state_dict(batches.state_dict())
    assert torch.equal(other.next(), batches.next()) and len(first) == 5
