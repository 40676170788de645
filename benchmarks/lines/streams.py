"""Huge vocabularies and streams: time, memory, items a second."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

import argrad as ag
from benchmarks.inputs import normal
from benchmarks.line import Line, Speedup, Step, Within, both
from benchmarks.memory import Peak

ROWS, ITEMS, WIDTH = 2048, 50_000, 128
STREAM, SAMPLE = 10_000_000, 1000
MANY, BEST = 1_000_000, 3000


# ---- a head of 50000 items -----------------------------------------------------------------------


def _head() -> tuple[Tensor, Tensor]:
    return normal((ROWS, WIDTH)), normal((ITEMS, WIDTH), seed=3) / WIDTH**0.5


def _linear(k: int) -> Callable[[], Step]:
    return lambda: partial(ag.linear_gumbel_topk, *_head(), k)


def _softmax(k: int) -> Callable[[], Step]:
    def factory() -> Step:
        hidden, weight = _head()
        return lambda: torch.multinomial((hidden @ weight.T).softmax(-1), k)

    return factory


def _check_head(ours: ag.NormalizedTopK, peer: Tensor) -> None:
    """Both draw different items, and the first has the law of the softmax (|z| < 5, once in two million runs)."""
    hidden, weight = _head()
    log_p = (hidden @ weight.T).log_softmax(-1)
    mean = (log_p.exp() * log_p).sum(-1)
    variance = (log_p.exp() * log_p.square()).sum(-1) - mean.square()
    for indices in (ours.indices, peer):
        assert (indices.sort(-1).values.diff() > 0).all(), "an item was drawn twice"
        z = (log_p.gather(-1, indices[:, :1])[:, 0] - mean).sum() / variance.sum().sqrt()
        assert abs(z) < 5, f"drawn with the wrong law: z = {z:.1f}"
    # float32 sums of 50000 numbers
    torch.testing.assert_close(ours.log_prob, log_p.gather(-1, ours.indices), rtol=1e-5, atol=1e-4)


def _memory() -> Line:
    peak = Peak()
    return Line(
        name=f"linear_gumbel_topk {ROWS} x {ITEMS}, d={WIDTH}, k=1: memory",
        ours=lambda: peak.of(_linear(1)()),
        peer=lambda: peak.of(_softmax(1)()),
        peer_name="torch.multinomial(softmax, 1)",
        package="torch",
        check=_check_head,
        goals=both(Speedup(5)),
        unit="MB",
        clock=peak,
    )


def _time(k: int) -> Line:
    return Line(
        name=f"linear_gumbel_topk {ROWS} x {ITEMS}, d={WIDTH}, k={k}",
        ours=_linear(k),
        peer=_softmax(k),
        peer_name=f"torch.multinomial(softmax, {k}, replacement=False)",
        package="torch",
        check=_check_head,
        goals=both(Speedup(1)),
    )


# ---- a stream of 10 million ----------------------------------------------------------------------


def _weights() -> Tensor:
    return normal((STREAM,)).exp()


def _stream(values: Callable[[], dict[str, Any]], consecutive: bool) -> Callable[[], Step]:
    def factory() -> Step:
        given, ids = values(), 0 if consecutive else torch.arange(STREAM)
        return lambda: ag.GumbelTopKStream(SAMPLE, 0).update(ids, **given).result().indices

    return factory


def _multinomial() -> Step:
    return partial(torch.multinomial, _weights(), SAMPLE)


def _check_stream(ours: Tensor, peer: Tensor) -> None:
    """The mean log-weight of drawn items is 1: weights e^x of normal x, drawn by weight, have x ~ N(1, 1)."""
    x = _weights().log()
    for indices in (ours, peer):
        assert len(indices.unique()) == SAMPLE
        assert abs(x[indices].mean() - 1) < 5 / SAMPLE**0.5


def _stream_line(name: str, ours: Callable[[], Step]) -> Line:
    return Line(
        name=f"GumbelTopKStream, {STREAM // 10**6} million {name}, k={SAMPLE}",
        ours=ours,
        peer=_multinomial,
        peer_name=f"torch.multinomial(weights, {SAMPLE})",
        package="torch",
        check=_check_stream,
        goals={2: Within(STREAM / 20e6)},  # 20 million items a second
    )


# ---- an index ------------------------------------------------------------------------------------


def _lazy() -> Step:
    logits = 3 * normal((MANY,))
    best = logits.topk(BEST)
    arguments = (best.values, best.indices, best.values[-1], MANY, lambda ids: logits[ids], 8)
    return lambda: ag.lazy_gumbel_topk(*arguments).indices


def _eager() -> Step:
    logits = 3 * normal((MANY,))
    return lambda: ag.gumbel_topk(logits, 8).indices


def _check_different(ours: Tensor, peer: Tensor) -> None:
    assert len(ours.unique()) == len(peer.unique()) == 8


LINES = (
    _memory(),
    _time(1),
    _time(8),
    _stream_line("logits", _stream(lambda: {"logits": normal((STREAM,))}, True)),
    _stream_line("ids and logits", _stream(lambda: {"logits": normal((STREAM,))}, False)),
    _stream_line("ids and weights", _stream(lambda: {"weights": _weights()}, False)),
    Line(
        name=f"lazy_gumbel_topk, 8 of {MANY // 10**6} million, {BEST} found",
        ours=_lazy,
        peer=_eager,
        peer_name="gumbel_topk of all",
        package=None,
        check=_check_different,
    ),
)
