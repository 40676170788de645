r"""A small decision process for the recipe `counterfactual`: a patient's health, a treatment or none, ten days.

The next level is a function of noise, $s' = h(\log p(\cdot|s, a), \varepsilon)$. Several $h$ give the same law
and differ in what they say about the same patient under another action (Oberst and Sontag 2019):

| mechanism | $h$ |
|---|---|
| Gumbel-max | $\arg\max_i \log p_i + \varepsilon_i$, $\varepsilon_i$ Gumbel |
| inverse CDF | the level in whose share of the unit interval $\varepsilon$ falls |
| fresh noise | a new draw: nothing of the observed day is kept |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

import argrad as ag

LEVELS, ACTIONS = 6, 2
DEAD, HOME = 0, LEVELS - 1
REWARD = torch.tensor([-1.0, 0.0, 0.0, 0.0, 0.0, 1.0], dtype=torch.float64)  # of the last level


def log_transitions() -> Tensor:
    """$\\log p(s' | s, a)$, shape `(levels, actions, levels)`; those who died or went home stay there."""
    # by how many levels health changes: -2, -1, 0, 1, 2; treatment helps the ill and strains the well
    idle = [[0.15, 0.45, 0.30, 0.08, 0.02], [0.05, 0.25, 0.45, 0.20, 0.05]]
    treated = [[0.10, 0.20, 0.30, 0.28, 0.12], [0.12, 0.28, 0.38, 0.17, 0.05]]
    p = torch.zeros(LEVELS, ACTIONS, LEVELS, dtype=torch.float64)
    for s in range(1, HOME):
        for a, shares in enumerate((idle, treated)):
            for change, share in zip(range(-2, 3), shares[s > 2], strict=True):
                p[s, a, min(max(s + change, DEAD), HOME)] += share
    p[DEAD, :, DEAD] = p[HOME, :, HOME] = 1
    return p.log()


def observed_policy() -> Tensor:
    """What the doctors did: treat with probability 0.3, whoever it is; `(levels, actions)`."""
    return torch.tensor([0.7, 0.3], dtype=torch.float64).expand(LEVELS, ACTIONS)


def other_policy() -> Tensor:
    """What they might have done: treat the ill and nobody else."""
    ill = torch.arange(LEVELS) <= 2
    return torch.stack([~ill, ill], -1).double()


def value(policy: Tensor, start: int, days: int) -> float:
    """The exact mean reward of a policy, by dynamic programming."""
    step = torch.einsum("sa,sat->st", policy, log_transitions().exp())
    return float((torch.linalg.matrix_power(step, days) @ REWARD)[start])


class Episodes(NamedTuple):
    """What was seen: levels `(n, days + 1)` and actions `(n, days)`."""

    levels: Tensor
    actions: Tensor


def observe(count: int, start: int, days: int, generator: torch.Generator) -> Episodes:
    """Patients under the observed policy."""
    log_p, policy = log_transitions(), observed_policy().log()
    levels, actions = [torch.full((count,), start)], []
    for _ in range(days):
        actions.append(ag.gumbel_max(policy[levels[-1]], generator=generator))
        levels.append(ag.gumbel_max(log_p[levels[-1], actions[-1]], generator=generator))
    return Episodes(torch.stack(levels, -1), torch.stack(actions, -1))


# ---- mechanisms: (log p as observed, what was seen, log p as it would have been) -> what would have been seen ----

Mechanism = Callable[[Tensor, Tensor, Tensor, torch.Generator], Tensor]


def gumbel_max(log_p: Tensor, seen: Tensor, log_q: Tensor, generator: torch.Generator) -> Tensor:
    """The noise given that `seen` won, under other log-probabilities."""
    perturbed = ag.gumbel_posterior(log_p, seen, generator=generator)
    free = ag.random.gumbel(log_p.shape, dtype=log_p.dtype, generator=generator)
    noise = torch.where(
        log_p == -math.inf, free, perturbed - log_p
    )  # nothing was learnt about what cannot be
    return (log_q + noise).argmax(-1)


def inverse_cdf(log_p: Tensor, seen: Tensor, log_q: Tensor, generator: torch.Generator) -> Tensor:
    """The place in the unit interval given that it fell into the share of `seen`."""
    p = log_p.exp()
    share = p.gather(-1, seen[:, None])[:, 0]
    below = p.cumsum(-1).gather(-1, seen[:, None])[:, 0] - share
    u = below + share * torch.rand(len(seen), dtype=p.dtype, generator=generator)
    return (log_q.exp().cumsum(-1) <= u[:, None]).sum(-1).clamp(max=LEVELS - 1)


def fresh_noise(log_p: Tensor, seen: Tensor, log_q: Tensor, generator: torch.Generator) -> Tensor:
    """Another draw."""
    return ag.gumbel_max(log_q, generator=generator)


MECHANISMS: dict[str, Mechanism] = {
    "Gumbel-max": gumbel_max,
    "inverse CDF": inverse_cdf,
    "fresh noise": fresh_noise,
}


def imagine(seen: Episodes, mechanism: Mechanism, generator: torch.Generator) -> Tensor:
    """The last level of each patient under the other policy, with the noise of what was seen."""
    log_p, policy = log_transitions(), other_policy().log()
    level = seen.levels[:, 0]
    for day in range(seen.actions.shape[1]):
        action = ag.gumbel_max(policy[level], generator=generator)
        as_seen = log_p[seen.levels[:, day], seen.actions[:, day]]
        level = mechanism(as_seen, seen.levels[:, day + 1], log_p[level, action], generator)
    return level


def unstable(seen: Episodes, mechanism: Mechanism, generator: torch.Generator) -> tuple[int, int]:
    r"""How often a day with the other action breaks counterfactual stability, and of how many days.

    Stability: if the odds of what was seen do not fall against those of $j$, $q_i / p_i \ge q_j / p_j$, then $j$ would
    not have happened instead.
    """
    log_p = log_transitions()
    before, after, action = (
        seen.levels[:, :-1].flatten(),
        seen.levels[:, 1:].flatten(),
        seen.actions.flatten(),
    )
    p, q = log_p[before, action], log_p[before, 1 - action]
    instead = mechanism(p, after, q, generator)
    ratio = (q - p).nan_to_num(nan=-math.inf)  # impossible before and after
    at = [ratio.gather(-1, i[:, None])[:, 0] for i in (after, instead)]
    broken = (instead != after) & (at[0] >= at[1])
    alive = (before != DEAD) & (before != HOME)
    return int((broken & alive).sum()), int(alive.sum())
