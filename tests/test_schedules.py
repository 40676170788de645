"""Temperatures over training."""

from __future__ import annotations

import copy
import math
import pickle

import pytest
import torch

import argrad as ag
from argrad import schedules
from argrad.testing import check_schedule
from cases import SCHEDULES

FIXED = [s for s in SCHEDULES if isinstance(s, schedules.Schedule)]


@pytest.mark.parametrize("schedule", FIXED, ids=repr)
def test_contract(schedule: schedules.Schedule) -> None:
    check_schedule(schedule)
    assert eval(repr(schedule), vars(schedules)) == schedule
    assert pickle.loads(pickle.dumps(schedule)) == copy.deepcopy(schedule) == schedule


def test_jang_et_al() -> None:
    """max(0.5, exp(-r t)), renewed every 1000 steps."""
    schedule = schedules.Exponential(rate=1e-4)
    assert [schedule(t) for t in (0, 999)] == [1.0, 1.0]
    assert schedule(1000) == schedule(1999) == math.exp(-0.1)
    assert schedule(6000) == math.exp(-0.6)
    assert schedule(7000) == 0.5


def test_ramps_begin_and_end_where_they_say() -> None:
    for kind in (schedules.Linear, schedules.Cosine):
        ramp = kind(2.0, 0.25, 100)
        assert ramp(0) == 2.0
        assert ramp(100) == ramp(10**9) == 0.25
        assert ramp(50) == pytest.approx(1.125)
        values = [ramp(t) for t in range(101)]
        assert values == sorted(values, reverse=True)
    rising = schedules.Linear(0.1, 1.0, 10)
    assert [rising(t) for t in (0, 10, 11)] == [0.1, 1.0, 1.0]
    cosine = schedules.Cosine(1.0, 0.0001, 100)
    assert cosine(0) - cosine(1) < cosine(50) - cosine(51)  # slow, fast


@pytest.mark.parametrize("start", [0.1001, 0.2, 1.0, 50.0, 1e4])
def test_learnable_starts_where_it_says(start: float) -> None:
    tau = schedules.Learnable(start, floor=0.1)
    assert tau(0).item() == pytest.approx(start, rel=1e-5)


def test_learnable_trains_and_stays_above_its_floor() -> None:
    tau = schedules.Learnable(0.5, floor=0.1, shape=(3,))
    logits = torch.randn(3, 4)
    optimizer = torch.optim.SGD(tau.parameters(), lr=100.0)
    for step in range(5):
        y = ag.gumbel_softmax(logits, tau(step))
        optimizer.zero_grad()
        (-(y**2).sum()).backward()
        assert tau.rho.grad is not None
        assert tau.rho.grad.isfinite().all()
        optimizer.step()
    assert (tau(0) >= 0.1).all()
    assert not torch.equal(tau(0), torch.full((3,), 0.5))
    assert "floor=0.1" in repr(tau)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: schedules.Constant(0), r"`Constant\(tau=...\)` must be positive and finite; got 0"),
        (lambda: schedules.Constant(math.nan), "got nan"),
        (lambda: schedules.Constant(True), "got True"),
        (lambda: schedules.Exponential(rate=-1.0), r"`Exponential\(rate=...\)` must be positive"),
        (lambda: schedules.Exponential(floor=0.0), r"`Exponential\(floor=...\)` must be positive"),
        (
            lambda: schedules.Exponential(every=0),
            r"`Exponential\(every=...\)` must be an integer of at least 1",
        ),
        (lambda: schedules.Linear(steps=0), r"`Linear\(steps=...\)` must be an integer of at least 1"),
        (
            lambda: schedules.Cosine(end=math.inf),
            r"`Cosine\(end=...\)` must be positive and finite; got inf",
        ),
        (lambda: schedules.Learnable(0.1, floor=0.1), r"must be above the floor, 0.1; got 0.1"),
        (lambda: schedules.Learnable(-1.0), r"`Learnable\(start=...\)` must be positive"),
    ],
)
def test_wrong_settings_get_a_sentence(make, message: str) -> None:
    with pytest.raises(ag.InputError, match=message):
        make()
