r"""Gumbel-top-k of a set whose best items an index finds: the others are drawn only if they might win.

Give every item of the tail an exponential clock of rate 1. All clocks together tick as a Poisson process of rate
$n$, each tick at a uniformly chosen item, and an item's Gumbel is $-\log$ of its first tick. An item whose logit is
at most $b$ enters the best $k$ only if it ticks before $e^{b - \kappa}$, where $\kappa$ is the $k$-th value so far. So
there are a few ticks, drawn one after the other, and the rest of the tail is never looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from argrad import random
from argrad._checks import (
    check_count,
    check_event,
    check_floating,
    check_scores,
    describe,
    fail,
    is_transformed,
    refuse_meta,
)
from argrad._errors import InputError, InputTypeError, UnsupportedError
from argrad._numerics import widen
from argrad._types import Bool, Float, Generator, Int

CALL = "lazy_gumbel_topk"
Lookup = Callable[[Tensor], Tensor]


class LazyTopK(NamedTuple):
    r"""What `lazy_gumbel_topk` drew. Logits are not normalised, since most of the set was never seen.

    Attributes:
        indices: the items in the order of drawing, `int64`, shape `(*batch, k)`; 0 where not `valid`.
        logits: $\theta_i$ of each item, shape `(*batch, k)`; differentiable if `lookup` is.
        perturbed: $\theta_i + \varepsilon_i$, falling, shape `(*batch, k)`.
        kappa: the largest perturbed logit that was *not* drawn, shape `(*batch,)`.
        valid: False where there was no item left to draw.
        touched: how many items of the tail were looked up, `int64`, shape `(*batch,)`.

    Examples:
        >>> import torch, argrad as ag
        >>> logits = torch.arange(1000.0).flip(0)
        >>> top = ag.lazy_gumbel_topk(
        ...     logits[:20], torch.arange(20), logits[20], 1000, lambda ids: logits[ids], k=3)
        >>> int(top.touched)
        0
    """

    indices: Int[Tensor, "*batch k"]
    logits: Float[Tensor, "*batch k"]
    perturbed: Float[Tensor, "*batch k"]
    kappa: Float[Tensor, "*batch"]
    valid: Bool[Tensor, "*batch k"]
    touched: Int[Tensor, "*batch"]


def lazy_gumbel_topk(
    top_logits: Float[Tensor, "*batch m"],
    top_ids: Int[Tensor, "*batch m"],
    bound: Float[Tensor, "*batch"] | float,
    n: int,
    lookup: Lookup,
    k: int,
    *,
    generator: Generator = None,
) -> LazyTopK:
    r"""Draw `k` of `n` items without replacement, looking at few of them (lazy Gumbels).

    $$ \text{the } k \text{ largest } \theta_i + \varepsilon_i, \quad
       \theta_i \le b \text{ for all } i \text{ not in } \texttt{top\_ids} $$
    The `m` best items come from an index (a nearest-neighbour search). In expectation
    $(n - m)\, e^{b - \kappa}$ items of the tail are looked up, $\kappa$ being the $k$-th largest value among the best:
    a few times $\sqrt n$ when $m \approx \sqrt n$. The law is that of `gumbel_topk` over all items, exactly, as long
    as the bound holds; what `lookup` returns is checked against it.

    Args:
        top_logits: $\theta$ of the best items, shape `(*batch, m)`, `m` at least 1.
        top_ids: their ids, from 0 to `n - 1`, all different in a row; `int64`, shape `(*batch, m)`.
        bound: $b$, no other item has a larger logit; a number, or one a row. Usually the least of `top_logits`.
        n: number of items in all.
        lookup: gets ids `(*batch, c)` and returns their logits `(*batch, c)`; asked at most once. Of rows that
            need fewer than `c` the last answers are not used.
        k: how many; where there are fewer items, `valid` is False behind them.
        generator: `torch.Generator`, `CounterRNG`, or None for torch's global generator. The draws are not those
            of `gumbel_topk`: they have its law.

    Examples:
        >>> import torch, argrad as ag
        >>> logits = 3 * torch.randn(100_000, generator=torch.Generator().manual_seed(0))
        >>> best = logits.topk(1000)
        >>> top = ag.lazy_gumbel_topk(
        ...     best.values, best.indices, best.values[-1], 100_000, lambda ids: logits[ids], k=8,
        ...     generator=ag.CounterRNG(0))
        >>> top.indices.shape, int(top.touched) < 5000
        (torch.Size([8]), True)

    References: [mussmann2017], [maddison2014].
    """
    k = check_count(CALL, "k", k, 1, None, "It is the number of items to draw.")
    n = check_count(CALL, "n", n, 1, None, "It is the number of items in all.")
    if isinstance(top_logits, Tensor):
        refuse_meta(CALL, "top_logits", top_logits)
    best, ids, b = _check(top_logits, top_ids, bound, n, generator)
    m = best.shape[-1]
    rng = _counter(generator)
    keys = best.detach().double() + _noise("gumbel", best, rng.fold(0))
    keep = min(k + 1, m)
    least = keys.topk(keep, -1).values[..., -1]  # what a tail item must pass
    if m <= k:  # all of these are drawn, so that there is nothing to pass
        least = torch.full_like(least, -math.inf)
    # ticks after this come too late; nothing of probability 0 ticks at all
    limit = (b - least).exp().masked_fill(b == -math.inf, 0.0)
    times, tail = _ticks(limit, ids, n, rng)
    logits, every = best, ids
    if times.shape[-1]:
        found = _look_up(lookup, tail, times < math.inf, b, best)
        keys = torch.cat([keys, found.detach().double() - times.log()], -1)
        logits, every = torch.cat([best, found], -1), torch.cat([ids, tail], -1)
    touched = (times < math.inf).sum(-1)
    return _result(k, keys, logits, every, touched, top_logits.dtype)


# ---- shared parts --------------------------------------------------------------------------------


def _ticks(limit: Tensor, ids: Tensor, n: int, rng: random.CounterRNG) -> tuple[Tensor, Tensor]:
    """First ticks before `limit` of items of the tail, and which items; `inf` where there is none."""
    batch, rest = limit.shape, n - ids.shape[-1]
    if rest == 0 or limit.numel() == 0:
        return limit[..., None][..., :0], ids[..., :0]
    limit = limit.reshape(-1)
    many = limit > 0.25  # a large part of the tail ticks
    times, rank = _few_ticks(limit.masked_fill(many, 0.0), rest, rng)
    rows = {
        row: _all_ticks(limit[row], rest, rng.shift(rows=row)) for row in many.nonzero()[:, 0].tolist()
    }
    width = max([times.shape[-1], *(len(t) for t, _ in rows.values())])
    times, rank = (pad(t, (0, width - t.shape[-1]), value=v) for t, v in ((times, math.inf), (rank, 0)))
    for row, (t, r) in rows.items():
        times[row, : len(t)], rank[row, : len(r)] = t, r
    shape = (*batch, width)
    return times.reshape(shape), _outside(rank.reshape(shape), ids)


def _few_ticks(limit: Tensor, rest: int, rng: random.CounterRNG) -> tuple[Tensor, Tensor]:
    """Ticks of the whole process, each at a random item; `inf` where it came late or was not its first."""
    mean = rest * float(limit.amax())
    count = math.ceil(mean + 6 * math.sqrt(mean) + 16)
    while True:  # ends at once but for one time in 10^9
        shape = limit[:, None].expand(-1, count)
        times = _noise("exponential", shape, rng.fold(1)).cumsum(-1) / rest
        if bool((times[:, -1] > limit).all()):
            break
        count *= 2
    rank = (_noise("uniform", shape, rng.fold(2)) * rest).long().clamp(max=rest - 1)
    out = _repeated(rank) | (times > limit[:, None])
    width = int((~out).sum(-1).amax())
    first = out.sort(dim=-1, stable=True).indices[:, :width]
    return times.masked_fill(out, math.inf).gather(-1, first), rank.gather(-1, first)


def _all_ticks(limit: Tensor, rest: int, rng: random.CounterRNG) -> tuple[Tensor, Tensor]:
    """Each item of one row with a clock of its own."""
    times = _noise("exponential", limit.expand(rest), rng.fold(3))
    rank = (times <= limit).nonzero()[:, 0]
    return times[rank], rank


def _repeated(rank: Tensor) -> Tensor:
    """Where an item has ticked before."""
    value, order = rank.sort(dim=-1, stable=True)
    again = torch.zeros_like(rank, dtype=torch.bool)
    again[..., 1:] = value[..., 1:] == value[..., :-1]
    return torch.zeros_like(again).scatter(-1, order, again)


def _outside(rank: Tensor, ids: Tensor) -> Tensor:
    """The id of the `rank`-th item that is not in `ids`."""
    below = ids.sort(-1).values - torch.arange(ids.shape[-1], device=ids.device)
    return rank + torch.searchsorted(below, rank.contiguous(), right=True)


def _look_up(lookup: Lookup, ids: Tensor, wanted: Tensor, bound: Tensor, like: Tensor) -> Tensor:
    """Logits of the tail, checked; `-inf` where nothing was wanted."""
    logits = lookup(ids)
    check_floating(CALL, "lookup", logits)
    if logits.shape != ids.shape:
        got = f"shape {tuple(logits.shape)}"
        raise fail(CALL, "lookup", f"must return shape {tuple(ids.shape)}", got, "One logit an id.")
    logits = logits.to(like.dtype).masked_fill(~wanted, -math.inf)
    check_scores(CALL, "lookup", logits)
    over = logits.detach().double() - bound[..., None]
    # the bound and the logit may be rounded in different places
    if bool((over > 1e-5 * (1 + bound[..., None].abs())).any()):
        item = int(ids.reshape(-1)[int(over.argmax())])
        raise InputError(
            f"`{CALL}(bound=...)` must not be below any logit of the tail; `lookup` returned one that is "
            f"{over.max().item():.4g} above it, for item {item}. Such items would be drawn too rarely: pass a "
            "bound that holds."
        )
    return logits


def _result(
    k: int, keys: Tensor, logits: Tensor, ids: Tensor, touched: Tensor, dtype: torch.dtype
) -> LazyTopK:
    missing = max(0, k + 1 - keys.shape[-1])
    keys = pad(keys, (0, missing), value=-math.inf)
    keys, order = keys.sort(dim=-1, descending=True, stable=True)
    drawn, valid = keys[..., :k], keys[..., :k] > -math.inf
    place = order[..., :k].masked_fill(~valid, 0)
    chosen = logits.gather(-1, place).masked_fill(~valid, -math.inf).to(dtype)
    indices = ids.gather(-1, place).masked_fill(~valid, 0)
    return LazyTopK(indices, chosen, drawn.to(dtype), keys[..., k].to(dtype), valid, touched)


def _noise(kind: str, like: Tensor, rng: random.CounterRNG) -> Tensor:
    draw = getattr(random, kind)
    return draw(like.shape, dtype=torch.float64, device=like.device, generator=rng)


def _counter(generator: Generator) -> random.CounterRNG:
    """A `CounterRNG` with a fresh seed, if it is not one already: ticks may have to be drawn again, longer."""
    if isinstance(generator, random.CounterRNG):
        return generator
    return random.CounterRNG(int(random.draw_key(generator)[0]))


def _check(
    top_logits: Tensor, top_ids: Tensor, bound: Tensor | float, n: int, generator: Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, ids and one bound a row."""
    if is_transformed():
        raise UnsupportedError(
            f"`{CALL}` cannot run inside `torch.compile` or `torch.func`: how many items it looks at depends on "
            "the noise. Call it outside, or use `gumbel_topk`."
        )
    random.check_generator(CALL, generator)
    check_floating(CALL, "top_logits", top_logits)
    check_event(CALL, "top_logits", top_logits)
    check_scores(CALL, "top_logits", top_logits)
    if not isinstance(top_ids, Tensor) or top_ids.dtype != torch.int64:
        kind = top_ids.dtype if isinstance(top_ids, Tensor) else type(top_ids).__name__
        raise InputTypeError(
            f"`{CALL}(top_ids=...)` must be an int64 tensor; got {kind}. Call `.long()`."
        )
    if top_ids.shape != top_logits.shape:
        rule = f"must have the shape of `top_logits`, {tuple(top_logits.shape)}"
        raise fail(CALL, "top_ids", rule, f"shape {tuple(top_ids.shape)}", "One id a logit.")
    ordered = top_ids.sort(-1).values
    if top_ids.numel() and not (int(ordered.min()) >= 0 and int(ordered.max()) < n):
        raise fail(
            CALL, "top_ids", f"must hold ids from 0 to {n - 1}", top_ids, "`n` is the number of items."
        )
    if bool((ordered[..., 1:] == ordered[..., :-1]).any()):
        raise fail(
            CALL, "top_ids", "must be different in each row", top_ids, "An index returned one twice."
        )
    best = widen(top_logits)
    batch = best.shape[:-1]
    b = torch.as_tensor(bound, dtype=torch.float64, device=best.device).detach()
    if bool(b.isnan().any()) or b.shape not in ((), batch):
        rule = f"must be a number, or one for each row of the batch {tuple(batch)}"
        raise fail(CALL, "bound", rule, describe(b), "No logit of the tail is above it.")
    return best, top_ids, b.expand(batch)
