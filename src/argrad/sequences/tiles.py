r"""Logits of a linear layer, a tile at a time: the race over them, their log-sum-exp, and the gradient.

The forward pass keeps for each row the best candidates and $\log Z$. The backward pass makes every tile
again: with $p = e^{\theta - \log Z}$ and gradients $g_s$ for the chosen logits and $g_Z$ for $\log Z$,
$$ G = g_Z\, p + \mathrm{scatter}(g_s), \qquad \nabla h = G W, \quad \nabla W = G^\top h. \tag{1} $$
"""

from __future__ import annotations

import contextlib
import itertools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from argrad import random
from argrad._checks import can_read, is_transformed
from argrad._errors import UnsupportedError
from argrad._kernels.threads import run_rows
from argrad._numerics import logsumexp

if TYPE_CHECKING:
    from argrad.sequences.shards import Sharding

# Logits that exist at a time: 16 MB in float32, enough for a matrix product at full speed.
TILE = 1 << 22
_WORDS = (1 << 64) - 1
_KERNEL_DTYPES = (torch.float32, torch.float64)


class Head(NamedTuple):
    """Rows and the linear layer above them: logits are `hidden @ weight.T + scale * bias` where allowed."""

    hidden: Tensor  # (n, d), in the dtype of the arithmetic, divided by tau
    weight: Tensor  # (v, d), any floating dtype
    bias: Tensor | None  # (v,)
    scale: Tensor | None  # (n, 1), 1 / tau where it differs from row to row
    mask: Tensor | None  # (n, v) or (1, v)
    chunk: int

    def wants_gradient(self) -> bool:
        """Whether a gradient may be asked for."""
        return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in self[:4])

    def strips(self) -> list[slice]:
        """Rows that are handled together."""
        height = max(1, TILE // min(self.chunk, max(len(self.weight), 1)))
        return _slices(len(self.hidden), height)

    def chunks(self) -> list[slice]:
        """Columns that are handled together, in order."""
        return _slices(len(self.weight), self.chunk)

    def buffer(self) -> Tensor:
        """Room for one tile, a chunk of a strip."""
        return self.hidden.new_empty(_longest(self.strips()) * _longest(self.chunks()))

    def logits(self, rows: slice, columns: slice, buffer: Tensor) -> Tensor:
        """One tile, in `buffer`, which the next one overwrites."""
        weight = self.weight[columns].to(self.hidden.dtype)
        size = (rows.stop - rows.start, columns.stop - columns.start)
        out = buffer[: size[0] * size[1]].view(size)
        x = torch.mm(self.hidden[rows], weight.T, out=out)
        if self.bias is not None:
            bias = self.bias[columns]
            x = x.add_(bias) if self.scale is None else x.addcmul_(self.scale[rows], bias)
        if self.mask is not None:
            mask = self.mask[:, columns] if len(self.mask) == 1 else self.mask[rows, columns]
            x = x.masked_fill_(~mask, -math.inf)
        return x

    def whole(self) -> Tensor:
        """All logits, `(n, v)`, by differentiable operations: for transforms and second derivatives."""
        x = self.hidden @ self.weight.to(self.hidden.dtype).T
        if self.bias is not None:
            x = x + (self.bias if self.scale is None else self.scale * self.bias)
        return x if self.mask is None else x.masked_fill(~self.mask, -math.inf)


def _slices(size: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, size)) for start in range(0, size, step)]


def _longest(slices: list[slice]) -> int:
    return max([0, *(s.stop - s.start for s in slices)])


class Found(NamedTuple):
    """The best candidates of each row, falling, and the log-sum-exp of all its items."""

    keys: Tensor  # (n, m) perturbed logits, float64 on the CPU; -inf where there is none
    ids: Tensor  # (n, m) int64; -1 where there is none
    scores: Tensor  # (n, m) logits; -inf where there is none
    log_z: Tensor  # (n,), in the dtype of the keys
    bad: bool = False  # NaN or +inf was met


def race(head: Head, keep: int, source: Tensor, offset: int = 0) -> Found:
    """The `keep` best of each row; `source` are a `CounterRNG`'s words, item 0 of `head` is `offset`."""
    with torch.no_grad(), _no_autocast(head.hidden.device):
        if head.hidden.is_cpu and head.hidden.dtype in _KERNEL_DTYPES and not is_transformed():
            return _race_kernel(head, keep, source, offset)
        return _race_torch(head, keep, source, offset)


def _no_autocast(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Half-precision logits would tie; the arithmetic has been chosen already."""
    if not torch.amp.is_autocast_available(device.type):
        return contextlib.nullcontext()
    return torch.autocast(device.type, enabled=False)


def _race_kernel(head: Head, keep: int, source: Tensor, offset: int) -> Found:
    from argrad._kernels.race import add_tile

    n = len(head.hidden)
    keys = torch.full((n, keep), -math.inf, dtype=torch.float64, device="cpu")
    ids = torch.full((n, keep), -1, dtype=torch.int64, device="cpu")
    scores = torch.full_like(keys, -math.inf, dtype=head.hidden.dtype)
    sums = torch.tensor([-math.inf, 0.0], dtype=torch.float64, device="cpu").repeat(n, 1)
    words, buffer, status = source.numpy().view(np.uint64), head.buffer(), 0
    for rows, columns in itertools.product(head.strips(), head.chunks()):
        tile, first = head.logits(rows, columns, buffer), offset + columns.start
        state = (t[rows].numpy() for t in (keys, ids, scores, sums))
        place = (_plus(words[2], rows.start), _plus(words[3], first))
        args = (tile.numpy(), first, *state, words, *place)
        status |= run_rows(add_tile, len(tile), tile.numel(), *args)
    order = ids.argsort(-1)  # from heaps to falling order; equal keys by rising id
    keys, ids, scores = (t.gather(-1, order) for t in (keys, ids, scores))
    return best(Found(keys, ids, scores, sums[:, 0] + sums[:, 1].log(), bool(status)), keep)


def _plus(word: np.uint64, number: int) -> np.uint64:
    return np.uint64((int(word) + number) & _WORDS)  # numpy warns when its own sum wraps around


def _falling(keys: Tensor) -> Tensor:
    """Places of the keys in falling order; equal ones keep theirs."""
    return keys.sort(dim=-1, descending=True, stable=True).indices


def _race_torch(head: Head, keep: int, source: Tensor, offset: int) -> Found:
    """The same by torch's operations, for other devices; keys in the dtype of the arithmetic."""
    buffer, strips = head.buffer(), []
    bad = torch.zeros((), dtype=torch.bool, device=buffer.device)
    for rows in head.strips():
        found = _nothing(head, rows.stop - rows.start, keep)
        for columns in head.chunks():
            tile, first = head.logits(rows, columns, buffer), offset + columns.start
            bad = bad | ~(tile.amax() < math.inf)
            place = torch.tensor([0, 0, rows.start, first, 0], device="cpu")
            rng = random.CounterRNG(0, words=source + place)
            noisy = tile + random.gumbel(
                tile.shape, dtype=tile.dtype, device=tile.device, generator=rng
            )
            keys, top = noisy.topk(min(keep, tile.shape[-1]), -1)
            new = Found(keys, top + first, tile.gather(-1, top), logsumexp(tile))
            found = combine([found, new], keep)
        strips.append(found)
    parts = strips or [_nothing(head, 0, keep)]
    keys, ids, scores, log_z = (
        torch.cat(fields) for fields in zip(*(p[:4] for p in parts), strict=True)
    )
    ids = ids.masked_fill(keys == -math.inf, -1)
    return Found(keys, ids, scores, log_z, can_read(bad) and bool(bad))


def _nothing(head: Head, rows: int, keep: int) -> Found:
    keys = head.hidden.new_full((rows, keep), -math.inf)
    ids = torch.full((rows, keep), -1, device=keys.device)
    return Found(keys, ids, keys, head.hidden.new_full((rows,), -math.inf))


def combine(parts: list[Found], keep: int) -> Found:
    """The race over the items of all parts, which hold rising ids."""
    keys, ids, scores = (torch.cat(fields, -1) for fields in zip(*(p[:3] for p in parts), strict=True))
    log_z = logsumexp(torch.stack([p.log_z for p in parts], -1))
    return best(Found(keys, ids, scores, log_z, any(p.bad for p in parts)), keep)


def best(found: Found, keep: int) -> Found:
    """The first `keep` candidates in falling order; equal keys keep their places."""
    order = _falling(found.keys)[:, :keep]
    keys, ids, scores = (t.gather(-1, order) for t in found[:3])
    return Found(keys, ids, scores, found.log_z, found.bad)


# ---- gradient ------------------------------------------------------------------------------------


def scores_and_partition(
    head: Head, found: Found, k: int, sharding: Sharding | None
) -> tuple[Tensor, Tensor]:
    """The logits of the first k candidates and the log-sum-exp, with gradients where they are wanted."""
    scores, log_z = found.scores[:, :k], found.log_z
    if not head.wants_gradient():
        return scores, log_z
    if torch.compiler.is_compiling():
        return _differentiable(head, found.ids[:, :k])
    return _Recomputed.apply(
        *head[:4], head.mask, head.chunk, found.ids[:, :k], scores, log_z, sharding
    )


def _differentiable(head: Head, ids: Tensor) -> tuple[Tensor, Tensor]:
    logits = head.whole()
    scores = logits.gather(-1, ids.clamp(min=0)).masked_fill(ids < 0, -math.inf)
    return scores, logsumexp(logits)


class _Recomputed(torch.autograd.Function):
    """Chosen logits and log-sum-exp as the race left them; the backward pass is Eq. (1), tile by tile.

    Never reached inside a transform, so it needs no vmap rule and no `setup_context`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        scale: Tensor | None,
        mask: Tensor | None,
        chunk: int,
        ids: Tensor,
        scores: Tensor,
        log_z: Tensor,
        sharding: Sharding | None,
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(hidden, weight, bias, scale, mask, ids, log_z)
        ctx.chunk, ctx.sharding = chunk, sharding
        return scores.clone(), log_z.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, scale, mask, ids, log_z = ctx.saved_tensors
        head = Head(hidden, weight, bias, scale, mask, ctx.chunk)
        if torch.is_grad_enabled():
            result = _backward_again(head, ids, grads, ctx.sharding)
        else:
            offset = 0 if ctx.sharding is None else ctx.sharding.offset
            result = _backward(head, ids - offset, log_z, grads, ctx.needs_input_grad)
            if ctx.sharding is not None:
                result = ctx.sharding.sum_gradients(result)
        return (*result, *(None,) * 6)


def _backward_again(
    head: Head, ids: Tensor, grads: tuple[Tensor, ...], sharding: Sharding | None
) -> list[Tensor | None]:
    """With a graph of its own, for second derivatives; this one makes all logits."""
    if sharding is not None:
        raise UnsupportedError(
            "`linear_gumbel_topk(group=...)` has no second derivative: the shards would have to exchange "
            "all logits. Gather the weight and leave `group` out."
        )
    leaves = head[:4]
    wanted = [t for t in leaves if t is not None and t.requires_grad]
    outputs = _differentiable(head, ids)
    found = iter(torch.autograd.grad(outputs, wanted, grads, create_graph=True, allow_unused=True))
    return [next(found) if t is not None and t.requires_grad else None for t in leaves]


def _backward(
    head: Head, ids: Tensor, log_z: Tensor, grads: tuple[Tensor, ...], wanted: tuple[bool, ...]
) -> list[Tensor | None]:
    """Eq. (1); `ids` count from the first item of `head`, and may lie in another shard."""
    leaves = hidden, weight, bias, scale = head[:4]
    wide = hidden.dtype
    out = [
        torch.zeros_like(t, dtype=wide) if t is not None and w else None
        for t, w in zip(leaves, wanted, strict=False)
    ]
    g_s, g_z, log_z, buffer = grads[0].to(wide), grads[1].to(wide), log_z.to(wide), head.buffer()
    with _no_autocast(hidden.device):
        for rows, columns in itertools.product(head.strips(), head.chunks()):
            g = head.logits(rows, columns, buffer).sub_(log_z[rows, None]).exp_().mul_(g_z[rows, None])
            here = (ids[rows] >= columns.start) & (ids[rows] < columns.stop)
            place = (ids[rows] - columns.start).masked_fill(~here, 0)
            g.scatter_add_(-1, place, g_s[rows].masked_fill(~here, 0.0))
            if out[0] is not None:
                out[0][rows].addmm_(g, weight[columns].to(wide))
            if out[1] is not None:
                out[1][columns].addmm_(g.T, hidden[rows])
            if out[2] is not None:
                out[2][columns] += g.sum(0) if scale is None else g.T @ scale[rows, 0]
            if out[3] is not None and bias is not None:
                # an item whose bias is -inf has g = 0, and 0 times -inf is NaN
                open_bias = bias[columns].masked_fill(bias[columns] == -math.inf, 0.0)
                out[3][rows] += (g @ open_bias)[:, None]
    out[1] = None if out[1] is None else out[1].to(weight.dtype)
    return out
