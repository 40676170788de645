r"""Gumbel-top-k of a linear layer's outputs, without the outputs: one tile of logits at a time.

A softmax over a vocabulary of $V$ items needs $V$ logits a row, and drawing from it as many random numbers. Only
$k$ of them are wanted. Here the logits are made in tiles, enter a running race and a running log-sum-exp, and are
forgotten; the gradient makes them again. Memory does not depend on $V$ or on the number of rows.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from argrad import random
from argrad._autograd import straight_through
from argrad._checks import (
    bad_values,
    can_read,
    check_count,
    check_event,
    check_floating,
    check_mask,
    check_tau,
    fail,
    is_transformed,
    nothing_allowed,
)
from argrad._errors import InputError, UnsupportedError
from argrad._numerics import log1mexp, logsumexp, widen
from argrad._types import Bool, Float, Generator, Int, Tau
from argrad.sequences import shards
from argrad.sequences.tiles import Found, Head, race, scores_and_partition

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

CALL = "linear_gumbel_topk"


class NormalizedTopK(NamedTuple):
    r"""A `TopK` with its normaliser: what was drawn from a set too large to write down.

    Attributes:
        indices: the items in the order of drawing, `int64`, shape `(*batch, k)`; 0 where not `valid`.
        log_prob: $\phi_i = \theta_i - \log Z$ of each item, shape `(*batch, k)`; differentiable.
        perturbed: $\phi_i + \varepsilon_i$, falling, shape `(*batch, k)`; differentiable.
        kappa: the largest perturbed log-probability that was *not* drawn, shape `(*batch,)`; `-inf` when
            everything was.
        valid: False where there was no item left to draw.
        log_partition: $\log Z = \log \sum_i e^{\theta_i}$ over all items, shape `(*batch,)`;
            differentiable.

    Examples:
        >>> import torch, argrad as ag
        >>> top = ag.linear_gumbel_topk(torch.randn(3, 8), torch.randn(1000, 8), k=5)
        >>> top.indices.shape, top.log_partition.shape
        (torch.Size([3, 5]), torch.Size([3]))
    """

    indices: Int[Tensor, "*batch k"]
    log_prob: Float[Tensor, "*batch k"]
    perturbed: Float[Tensor, "*batch k"]
    kappa: Float[Tensor, "*batch"]
    valid: Bool[Tensor, "*batch k"]
    log_partition: Float[Tensor, "*batch"]

    def weights(self) -> Tensor:
        r"""Unbiased weights: $\mathbb{E} \sum_j w_j f(i_j) = \sum_i p_i f(i)$ for every $f$; detached.

        $$ w_i = p_i / q_i, \quad q_i = 1 - \exp(-e^{\phi_i - \kappa}), $$
        with $q_i$ the probability that $i$ is drawn, given $\kappa$. 0 where not `valid`. Times
        `log_partition.exp()` they estimate sums $\sum_i e^{\theta_i} f(i)$ over all items.
        """
        x = (self.log_prob - self.kappa[..., None]).detach()
        far = x < -20.0  # log(1 - exp(-e^x)) = x - e^x / 2 + ..., and e^x would underflow
        log_q = torch.where(far, x - x.exp() / 2, log1mexp(-x.masked_fill(far, 0.0).exp()))
        log_q = log_q.masked_fill(self.kappa[..., None] == -math.inf, 0.0)
        return (self.log_prob.detach() - log_q).exp().masked_fill(~self.valid, 0.0)


def linear_gumbel_topk(
    hidden: Float[Tensor, "*batch d"],
    weight: Float[Tensor, "v d"],
    k: int,
    *,
    bias: Float[Tensor, "v"] | None = None,
    tau: Tau = 1.0,
    mask: Bool[Tensor, "..."] | None = None,
    chunk: int = 8192,
    group: ProcessGroup | None = None,
    generator: Generator = None,
) -> NormalizedTopK:
    r"""Draw `k` different items of $\mathrm{softmax}((W h + b)/\tau)$ without materialising the logits.

    $$ \theta = (W h + b) / \tau, \qquad
       (i_1, \dots, i_k) = \text{the places of the } k \text{ largest } \theta_i + \varepsilon_i,
       \quad \varepsilon_i \sim \mathrm{Gumbel}(0, 1) $$
    The draws of `gumbel_topk(hidden @ weight.T, k)`, with the log-partition beside them. At most
    $\max(2^{22}, \texttt{chunk})$ logits exist at a time, forwards and backwards.

    With `group`, `weight` (and `bias`, `mask`) is this process's shard of the vocabulary, in the order of
    ranks, and `hidden` is the same everywhere. A row costs $k + 1$ candidates and one log-sum-exp a
    shard on the wire. Every rank returns the whole result, with indices into the whole vocabulary, and
    the gradient for `hidden` is summed over the shards.

    Args:
        hidden: $h$, shape `(*batch, d)`.
        weight: $W$, shape `(v, d)`, as in `torch.nn.Linear` and `torch.nn.Embedding`.
        k: how many; where fewer items are possible, `valid` is False behind them.
        bias: $b$, shape `(v,)`; `-inf` is never drawn.
        tau: temperature $\tau > 0$; a tensor gives each row of the batch its own (and may be trained).
        mask: True = allowed, broadcastable to `(*batch, v)`.
        chunk: items of the vocabulary whose logits are made at once.
        group: process group that shares the vocabulary, `torch.distributed.group.WORLD` for all.
        generator: `torch.Generator`, `CounterRNG`, or None. With a `CounterRNG` the draw does not depend
            on `chunk`, on the batch's order or on the number of shards (as far as matrix products of
            other shapes agree: their last bit decides only between items that tie to six digits).

    Returns:
        A `NormalizedTopK`: indices, log_prob, perturbed, kappa, valid, log_partition. Gradients reach
        `hidden`, `weight`, `bias` and `tau` through `log_prob`, `perturbed` and `log_partition`.

    Examples:
        >>> import torch, argrad as ag
        >>> hidden, weight = torch.randn(4, 16), torch.randn(5000, 16)
        >>> rng = ag.CounterRNG(0)
        >>> top = ag.linear_gumbel_topk(hidden, weight, 3, chunk=512, generator=rng)
        >>> whole = ag.gumbel_topk(hidden @ weight.T, 3, generator=rng)
        >>> torch.equal(top.indices, whole.indices)
        True

    References: [kool2019], [efraimidis2006], [milakov2018].
    """
    if group is not None:
        shards.check_group(group)
    try:
        k = check_count(CALL, "k", k, 1, None, "It is the number of items to draw.")
        random.check_generator(CALL, generator)
        head = _head(hidden, weight, bias, tau, mask, chunk)
        if group is None:
            check_event(CALL, "weight", weight.mT)
    except Exception:
        if group is not None:
            shards.refuse(group)  # the other ranks need not wait for this one
        raise
    batch, dtype = hidden.shape[:-1], hidden.dtype
    if is_transformed() and not torch.compiler.is_compiling():
        return _materialised(head, k, group, generator, batch, dtype)
    source, sharding = _source(generator), None
    if group is not None:
        is_counter = isinstance(generator, random.CounterRNG)
        sharding, source = shards.agree(group, head, k, source, is_counter)
    found = race(head, k + 1, source, 0 if sharding is None else sharding.offset)
    if sharding is not None:
        found = sharding.merge(found)
    _check_found(head, found, batch)
    scores, log_z = scores_and_partition(head, found, k, sharding)
    return _result(k, found, scores, log_z, batch, dtype)


# ---- shared parts --------------------------------------------------------------------------------


def _head(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, tau: Tau, mask: Tensor | None, chunk: int
) -> Head:
    """Checked arguments as a `Head` of `(n, d)` rows, with `hidden` divided by the temperature."""
    _check_shapes(hidden, weight, bias)
    batch, items = hidden.shape[:-1], len(weight)
    n = batch.numel()
    chunk = check_count(CALL, "chunk", chunk, 1, None, "It is the number of items handled at once.")
    tau = check_tau(CALL, tau, batch)
    if mask is not None:
        check_mask(CALL, mask, torch.Size((*batch, items)))
        # one mask for all rows is not written out
        rows = 1 if mask.shape[:-1].numel() == 1 else n
        mask = mask.expand(*(batch if rows > 1 else mask.shape[:-1]), items).reshape(rows, items)
    dtype = torch.promote_types(widen(hidden).dtype, widen(weight).dtype)
    hidden = hidden.to(dtype)
    bias = None if bias is None else bias.to(dtype)
    scale = None
    if isinstance(tau, Tensor):
        tau = tau.to(dtype)
        hidden = hidden / tau
        scale = None if bias is None else tau.reciprocal().expand(*batch, 1).reshape(n, 1)
    elif tau != 1.0:
        hidden = hidden / tau
        bias = None if bias is None else bias / tau
    return Head(hidden.reshape(n, hidden.shape[-1]), weight, bias, scale, mask, chunk)


def _check_shapes(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    check_floating(CALL, "hidden", hidden)
    check_floating(CALL, "weight", weight)
    check_event(CALL, "hidden", hidden)
    if weight.dim() != 2:
        advice = "One row an item, as in `torch.nn.Linear.weight`."
        raise fail(CALL, "weight", "must have shape (v, d)", f"shape {tuple(weight.shape)}", advice)
    if weight.shape[1] != hidden.shape[-1]:
        rule = f"must have as many columns as `hidden` has numbers a row, {hidden.shape[-1]}"
        advice = "Its shape is (v, d): pass `linear.weight`, not its transpose."
        raise fail(CALL, "weight", rule, f"shape {tuple(weight.shape)}", advice)
    if bias is not None:
        check_floating(CALL, "bias", bias)
        if bias.shape != weight.shape[:1]:
            rule = f"must have one number an item, shape ({len(weight)},)"
            raise fail(CALL, "bias", rule, f"shape {tuple(bias.shape)}", "It is added to every row.")
    devices = {t.device for t in (hidden, weight, bias) if t is not None}
    if len(devices) > 1:
        rule = f"must be on the device of `hidden`, {hidden.device}"
        raise fail(CALL, "weight", rule, str(weight.device), "Move one with `.to(...)`.")


def _source(generator: Generator) -> Tensor:
    """Where this call's noise comes from: two key words, first row, first column (and a seed not used)."""
    if isinstance(generator, random.CounterRNG):
        return generator.words
    key = random.draw_key(generator).cpu()
    return torch.cat([key, key.new_zeros(3)])


def _check_found(head: Head, found: Found, batch: torch.Size) -> None:
    if found.bad:
        raise _bad_values(head)
    needs_grad = torch.is_grad_enabled() and head.hidden.requires_grad
    if needs_grad and can_read(head.weight) and head.weight.numel() > 0:
        _check_weights(head.weight.detach(), head.hidden.dtype, found.ids.shape[-1])
    if can_read(head.hidden) and bool((found.log_z == -math.inf).any()):
        raise nothing_allowed(CALL, (found.log_z == -math.inf).view(batch))


def _check_weights(weight: Tensor, dtype: torch.dtype, k: int) -> None:
    """The backward pass adds about `2 k` of them with both signs: none may be infinite, nor may their sum."""
    low, high = (x.item() for x in torch.aminmax(weight))
    largest = max(-low, high)  # NaN if there is one, as both are
    if not math.isfinite(largest):
        raise bad_values(CALL, "weight", weight.abs())
    if 4 * k * largest > torch.finfo(dtype).max:
        raise InputError(
            f"`{CALL}(weight=...)` must leave room for its own sums if `hidden` has a gradient; got numbers up to "
            f"{largest:.3g}, of which {4 * k} exceed {dtype}. Scale them down, or pass float64."
        )


def _bad_values(head: Head) -> InputError:
    """Name the argument that holds the NaN, if it is here and not in another shard."""
    for name, value in (("hidden", head.hidden), ("weight", head.weight), ("bias", head.bias)):
        if value is not None and not bool((value < math.inf).all()):
            return bad_values(CALL, name, value)
    return InputError(
        f"`{CALL}`: NaN or +inf among the logits, though `hidden` and `weight` are finite here: their product "
        "overflows, or another shard has one. Look at the weights, or scale them down."
    )


def _result(
    k: int, found: Found, scores: Tensor, log_z: Tensor, batch: torch.Size, dtype: torch.dtype
) -> NormalizedTopK:
    keys = found.keys - log_z.detach()[:, None]
    valid = found.keys[:, :k] > -math.inf
    log_prob = (scores[:, :k].to(log_z.dtype) - log_z[:, None]).masked_fill(~valid, -math.inf)
    # the gradient of log_prob; 0 for log_prob where invalid, as -inf - -inf is NaN
    perturbed = straight_through(keys[:, :k], log_prob.masked_fill(~valid, 0.0))
    per_item = (found.ids[:, :k].clamp(min=0), log_prob.to(dtype), perturbed.to(dtype))
    indices, log_prob, perturbed = (t.reshape(*batch, k) for t in per_item)
    kappa, log_z = (t.to(dtype).reshape(batch) for t in (keys[:, k], log_z))
    return NormalizedTopK(indices, log_prob, perturbed, kappa, valid.reshape(*batch, k), log_z)


def _materialised(
    head: Head,
    k: int,
    group: ProcessGroup | None,
    generator: Generator,
    batch: torch.Size,
    dtype: torch.dtype,
) -> NormalizedTopK:
    """Inside `torch.func` and fake tensors: the same law from all logits at once."""
    if group is not None:
        raise UnsupportedError(
            f"`{CALL}(group=...)` cannot run inside `torch.func` or `torch.compile`: processes exchange messages. "
            "Call it outside of the transform."
        )
    logits = head.whole()
    noise = random.gumbel(logits.shape, dtype=logits.dtype, device=logits.device, generator=generator)
    keys, ids = (logits.detach() + noise).topk(min(k + 1, logits.shape[-1]), -1)
    missing = (0, k + 1 - keys.shape[-1])
    keys = F.pad(keys, missing, value=-math.inf)
    scores = F.pad(logits.gather(-1, ids), missing, value=-math.inf)
    found = Found(keys, F.pad(ids, missing), scores, logsumexp(logits))
    return _result(k, found, scores, found.log_z, batch, dtype)
