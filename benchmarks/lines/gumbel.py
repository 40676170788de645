"""Choosing one, or k, of n; the goals are those of the Gumbel toolbox."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import argrad as ag
from benchmarks.inputs import forward_backward, normal, upstream
from benchmarks.line import Goal, Line, Speedup, Step, both

Shape = tuple[int, int]
Relaxed = tuple[Tensor, Tensor]  # the sample and the gradient
K = 64
NOISE: Shape = (1000, 1000)


# ---- steps ---------------------------------------------------------------------------------------


def _forward(sample: Callable[[Tensor], Any], shape: Shape) -> Callable[[], Step]:
    return lambda: partial(sample, normal(shape))


def _multinomial(logits: Tensor, k: int) -> Tensor:
    return torch.multinomial(logits.softmax(-1), k)


# ---- checks: |z| < 5 raises a false alarm once in two million runs ---------------------------------


def _check_law(index: Tensor, logits: Tensor) -> None:
    """The mean log-probability of the drawn items is that of `softmax(logits)`."""
    log_p = logits.double().log_softmax(-1)
    p = log_p.exp()
    mean = (p * log_p).sum(-1)
    variance = (p * log_p.square()).sum(-1) - mean.square()
    drawn = log_p.gather(-1, index[:, None])[:, 0]
    z = (drawn - mean).sum() / variance.sum().sqrt()
    assert abs(z) < 5, f"drawn with the wrong law: z = {z:.1f}"


def _check_relaxed(ours: Relaxed, peer: Relaxed, shape: Shape, tau: float) -> None:
    logits, weight = normal(shape), upstream(shape)
    for y, grad in (ours, peer):
        assert y.shape == shape
        # torch's float32 softmax of 50000 items sums to 1 within 2e-5 only
        torch.testing.assert_close(y.sum(-1), torch.ones(shape[0]), rtol=0, atol=1e-4)
        expected = y * (weight - (y * weight).sum(-1, keepdim=True)) / tau
        torch.testing.assert_close(
            grad, expected, rtol=1e-4, atol=1e-5
        )  # float32 sums in another order
        _check_law(y.argmax(-1), logits)


def _check_one(ours: Tensor, peer: Tensor, shape: Shape) -> None:
    _check_law(ours, normal(shape))
    _check_law(peer[:, 0], normal(shape))


def _check_topk(ours: ag.TopK, peer: Tensor, shape: Shape) -> None:
    for indices in (ours.indices, peer):
        assert indices.shape == (shape[0], K)
        assert (indices.sort(-1).values.diff() > 0).all(), "an item was drawn twice"
        _check_law(indices[:, 0], normal(shape))


def _check_noise(ours: Tensor, peer: Tensor) -> None:
    """Mean and variance are those of Gumbel(0, 1), whose kurtosis is 5.4."""
    variance = math.pi**2 / 6
    for g in (ours, peer):
        assert abs(g.mean() - 0.5772157) < 5 * math.sqrt(variance / g.numel())
        assert abs(g.var() - variance) < 5 * variance * math.sqrt(4.4 / g.numel())


# ---- lines ---------------------------------------------------------------------------------------


def _relaxed(shape: Shape, goals: dict[int, Goal], *, tau: float = 1.0, unit: Any = "ms") -> Line:
    return Line(
        name=f"gumbel_softmax fwd+bwd {shape}" + ("" if tau == 1.0 else f", tau={tau}"),
        ours=lambda: forward_backward(partial(ag.gumbel_softmax, tau=tau), normal(shape)),
        peer=lambda: forward_backward(partial(F.gumbel_softmax, tau=tau), normal(shape)),
        peer_name="F.gumbel_softmax",
        package="torch",
        check=partial(_check_relaxed, shape=shape, tau=tau),
        goals=goals,
        unit=unit,
    )


def _noise(name: str, generator: ag.CounterRNG | None) -> Line:
    return Line(
        name=f"{name} {NOISE}",
        ours=lambda: partial(ag.random.gumbel, NOISE, generator=generator),
        peer=lambda: lambda: -torch.empty(NOISE).exponential_().log(),
        peer_name="-empty.exponential_().log()",
        package="torch",
        check=_check_noise,
    )


LARGE: Shape = (64, 50_000)
LINES = (
    _relaxed((4096, 128), {1: Speedup(4), 2: Speedup(2)}),
    _relaxed((256, 50_000), {1: Speedup(4), 2: Speedup(2)}),
    _relaxed((32, 10), both(Speedup(1 / 1.2)), unit="us"),
    _relaxed((4096, 128), {}, tau=0.5),
    Line(
        name=f"gumbel_max {LARGE}",
        ours=_forward(ag.gumbel_max, LARGE),
        peer=_forward(partial(_multinomial, k=1), LARGE),
        peer_name="torch.multinomial(softmax, 1)",
        package="torch",
        check=partial(_check_one, shape=LARGE),
        goals=both(Speedup(10)),
    ),
    Line(
        name=f"gumbel_topk {LARGE}, k={K}",
        ours=_forward(partial(ag.gumbel_topk, k=K), LARGE),
        peer=_forward(partial(_multinomial, k=K), LARGE),
        peer_name=f"torch.multinomial(softmax, {K}, replacement=False)",
        package="torch",
        check=partial(_check_topk, shape=LARGE),
        goals=both(Speedup(2)),
    ),
    _noise("random.gumbel", None),
    _noise("random.gumbel, CounterRNG", ag.CounterRNG(0)),
)
