r"""The best children of each node of a beam, by probability or by race.

Children $c$ of a node of value $T$ get $G_c = \phi_c + \varepsilon_c$, shifted monotonically so that their
maximum is $T$ (`gumbel_given_max`). Because the shift keeps the order among siblings, the few that
can matter are found first, on the unshifted values, and only those are shifted, in float64.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from argrad._checks import can_read, is_transformed
from argrad._kernels.threads import run_rows
from argrad._numerics import logsumexp
from argrad.conditional_gumbel import shift_maximum
from argrad.sequences import _refusals as refuse
from argrad.sequences.beam import Beam, Children, Expand
from argrad.sequences.nodes import Key, gumbel_at

CHUNK = 32_768  # tokens whose noise exists at once where there is no kernel

Raced = tuple[Tensor, Tensor, Tensor]


def by_log_prob(call: str, beam: Beam, logits: Tensor, count: int) -> Children:
    """The most probable children: beam search."""
    if can_read(logits):
        refuse.check_logits(call, logits, beam.tokens, beam.is_open)
    log_p, tokens = logits.topk(count, -1)
    log_p = log_p.double() - logsumexp(logits, keepdim=True).double()
    log_p = (beam.log_prob[..., None] + log_p).masked_fill(~beam.is_open[..., None], -math.inf)
    return Children(tokens, log_p, log_p, log_p)


def by_gumbel(key: Key) -> Expand:
    """The children with the largest perturbed log-probabilities: stochastic beam search."""

    def expand(call: str, beam: Beam, logits: Tensor, count: int) -> Children:
        tokens, log_p, noisy = race(call, key, beam, logits, count)
        log_p = beam.mass[..., None] + log_p
        perturbed = shift_maximum(beam.mass[..., None] + noisy, beam.perturbed[..., None])
        return Children(tokens, log_p, log_p, perturbed)

    return expand


def race(call: str, key: Key, beam: Beam, logits: Tensor, count: int) -> Raced:
    """The `count` largest sums of log-probability (given the parent) and Gumbel: tokens, log_p, sums."""
    return (_race_kernel if has_kernel(logits) else _race_torch)(call, key, beam, logits, count)


def has_kernel(logits: Tensor) -> bool:
    """On the CPU; elsewhere plain torch does the same."""
    return logits.is_cpu and logits.dtype in (torch.float32, torch.float64) and not is_transformed()


def _race_kernel(call: str, key: Key, beam: Beam, logits: Tensor, count: int) -> Raced:
    from argrad._kernels.beam import best_children

    batch, m, n = logits.shape
    flat = logits.reshape(-1, n).contiguous()
    noisy = torch.empty(batch * m, count, dtype=torch.float64, device="cpu")
    tokens, log_p = torch.empty_like(noisy, dtype=torch.int64), torch.empty_like(noisy)
    nodes = beam.node.reshape(-1).contiguous().numpy().view("uint64")
    inputs = (flat.numpy(), nodes, beam.is_open.reshape(-1).contiguous().numpy())
    outputs = (noisy.numpy(), tokens.numpy(), log_p.numpy())
    if run_rows(best_children, batch * m, flat.numel(), *inputs, *outputs, key.array):
        refuse.check_logits(call, logits, beam.tokens, beam.is_open)
    shape = (batch, m, count)
    return tokens.clamp_(min=0).view(shape), log_p.view(shape), noisy.view(shape)


def _race_torch(call: str, key: Key, beam: Beam, logits: Tensor, count: int) -> Raced:
    """The same on other devices: float32 noise finds the tokens, float64 tells their values."""
    if can_read(logits):
        refuse.check_logits(call, logits, beam.tokens, beam.is_open)
    peak = logits.amax(-1, keepdim=True).where(beam.is_open[..., None], 0.0)
    # relative to the peak: the noise keeps its digits
    x = (logits - peak).masked_fill(~beam.is_open[..., None], -math.inf)
    top, tokens = x[..., :0], beam.node.new_empty(*x.shape[:-1], 0)
    for first in range(0, x.shape[-1], CHUNK):
        part = x[..., first : first + CHUNK]
        ids = torch.arange(first, first + part.shape[-1], device=x.device).expand(part.shape)
        noise = gumbel_at(key, beam.node[..., None], ids, x.dtype)
        top, tokens = torch.cat([top, part + noise], -1), torch.cat([tokens, ids], -1)
        top, where = top.topk(min(count, top.shape[-1]), -1)
        tokens = tokens.gather(-1, where)
    log_z = logsumexp(x, keepdim=True).double()
    log_p = x.gather(-1, tokens).double() - log_z.masked_fill(log_z == -math.inf, 0.0)
    return tokens, log_p, log_p + gumbel_at(key, beam.node[..., None], tokens)
