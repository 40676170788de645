r"""Star-mesh elimination in the log domain, in plain torch: any device, `torch.compile`, `torch.func`.

The recursions of `_kernels/star_mesh.py` in another number system: weights as logarithms, and
probabilities $\mu = w D$ in place of the derivatives $D$. Nothing underflows at any scale of the scores.
Row 0 is an ordinary root, row 1 one whose arcs count as infinitely small (so a tree has just one of
them), node $v$ is row $v + 2$. A finite floor stands for $-\infty$, so that all derivatives are finite.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from argrad._numerics import LOG_ZERO, logaddexp, logsumexp
from argrad._types import Bool, Float


class Stage(NamedTuple):
    """The elimination of node k: what is needed to put it back."""

    p: Float[Tensor, "*batch heads"]  # log share of each head in the arcs into k
    b: Float[Tensor, "*batch k"]  # log-weights of the arcs out of k
    before: Float[Tensor, "*batch heads k"]
    after: Float[Tensor, "*batch heads k"]
    small: Bool[Tensor, "*batch"]  # only row 1 reaches k


def normalize(
    arcs: Float[Tensor, "*batch m1 m"], single: bool
) -> tuple[Float[Tensor, "*batch m1 m"], Float[Tensor, "*batch"]]:
    """Scores with each column's largest at 0 and no diagonal; and the sum of what was subtracted.

    Each child has one head, so a column's shift moves every tree alike; so does the root row's, when
    every tree has one root arc (`single`).
    """
    m = arcs.shape[-1]
    heads = torch.arange(m + 1, device=arcs.device)
    arcs = arcs.masked_fill(heads[:, None] == heads[1:], -math.inf)
    shift = _finite(arcs.detach()[..., int(single) :, :].amax(-2, keepdim=True))
    arcs = arcs - shift
    total = shift.sum((-2, -1))
    if single:
        shift = _finite(arcs.detach()[..., :1, :].amax(-1, keepdim=True))
        arcs = torch.where(heads[:, None] == 0, arcs - shift, arcs)
        total = total + shift.sum((-2, -1))
    return arcs, total


def _finite(shift: Tensor) -> Tensor:
    return shift.masked_fill(shift == -math.inf, 0.0)


def eliminate(
    arcs: Float[Tensor, "*batch m1 m"], single: bool
) -> tuple[Float[Tensor, "*batch"], list[Stage]]:
    r"""$\log Z$ (`-inf` if there is no tree), and the stages from the last node to the first.

    $$ w_{ij} \leftarrow \log(e^{w_{ij}} + e^{p_i + b_j}), \quad p_i = a_i - d, \quad
       d = \log \textstyle\sum_i e^{a_i}, \qquad \log Z = \sum_k d_k \tag{1} $$

    Args:
        arcs: log-weights, root row first (see `_rooted`); any finite values or `-inf`.
        single: the root has exactly one child.
    """
    arcs, log_z = normalize(arcs, single)
    e = _with_both_roots(arcs, single)
    none, singles, stages = torch.zeros_like(log_z, dtype=torch.bool), torch.zeros_like(log_z), []
    for _ in range(arcs.shape[-1]):
        stage, d = _eliminate_last(e)
        log_z, singles, none = log_z + d, singles + stage.small, none | (d < LOG_ZERO / 2)
        stages.append(stage)
        e = stage.after
    return log_z.masked_fill(none | (singles != int(single)), -math.inf), stages


def _with_both_roots(arcs: Tensor, single: bool) -> Tensor:
    """Rows 0 and 1 in place of the root's; `single` puts it into row 1. -inf becomes the floor."""
    arcs = arcs.masked_fill(arcs == -math.inf, LOG_ZERO)
    root, nothing = arcs[..., :1, :], torch.full_like(arcs[..., :1, :], LOG_ZERO)
    roots = [nothing, root] if single else [root, nothing]
    return torch.cat([*roots, arcs[..., 1:, :]], -2)


def _eliminate_last(e: Tensor) -> tuple[Stage, Tensor]:
    """Eq. (1) for the last node."""
    k = e.shape[-1] - 1
    before, a, b = e[..., : k + 2, :k], e[..., : k + 2, k], e[..., k + 2, :k]
    ordinary = logsumexp(torch.cat([a[..., :1], a[..., 2:]], -1))
    small = ordinary < LOG_ZERO / 2
    d = torch.where(small, a[..., 1], ordinary)
    row_0 = torch.where(torch.arange(k + 2, device=e.device) == 0, 0.0, LOG_ZERO)
    # a node that only row 1 reaches is the one child of the root: row 0 takes its place from now on
    p = torch.where(small[..., None], row_0.to(e.dtype), a - d[..., None])
    after = logaddexp(before, p[..., :, None] + b[..., None, :])
    return Stage(p, b, before, after, small), d


def marginals(stages: list[Stage], single: bool) -> Float[Tensor, "*batch m1 m"]:
    r"""$\mu = \partial \log Z / \partial \mathrm{arcs}$, by putting the nodes back one by one.

    An arc $ij$ of the smaller graph goes through $k$ with probability $q_{ij}$:
    $$ q_{ij} = \mu'_{ij} e^{p_i + b_j - w'_{ij}}, \quad \mu_{kj} = \sum_i q_{ij}, \quad
       \mu_{ik} = \sum_j q_{ij} + e^{p_i} (1 - \sum_{lj} q_{lj}) \tag{2} $$
    """
    p = stages[-1].p
    mu = p.new_zeros((*p.shape[:-1], 2, 0))
    for stage in reversed(stages):
        mu = _put_back(mu, stage)
    root = mu[..., 1:2, :] if single else mu[..., :1, :]
    return torch.cat([root, mu[..., 2:, :]], -2)


def _put_back(mu: Tensor, stage: Stage) -> Tensor:
    """Eq. (2)."""
    p, b, before, after, small = stage
    through = mu * torch.exp(p[..., :, None] + b[..., None, :] - after)
    direct = mu * torch.exp(before - after)
    by_head = through.sum(-1)
    row_1 = torch.arange(p.shape[-1], device=p.device) == 1
    leaf = torch.exp(p.masked_fill(row_1, LOG_ZERO)) * (1.0 - by_head.sum(-1, keepdim=True))
    # rounding can make a probability next to 0 negative
    into = torch.where(small[..., None], row_1.to(p.dtype), (by_head + leaf).clamp(min=0.0))
    out_of = torch.cat([through.sum(-2), torch.zeros_like(into[..., :1])], -1)
    return torch.cat([torch.cat([direct, into[..., None]], -1), out_of[..., None, :]], -2)


def tables(arcs: Float[Tensor, "b m1 m"], single: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What the sampler takes, as logarithms: weights, p and b of each stage in one matrix, `small`, kind."""
    log_z, stages = eliminate(arcs, single)
    direct = _with_both_roots(normalize(arcs, single)[0], single)
    table = torch.zeros_like(direct)
    for k, stage in enumerate(reversed(stages)):
        table[:, : k + 2, k], table[:, k + 2, :k] = stage.p, stage.b
    small = torch.stack([stage.small for stage in reversed(stages)], -1)
    kind = -(log_z == -math.inf).to(torch.int8)  # LOG or NO_TREE
    return direct, table, small, kind
