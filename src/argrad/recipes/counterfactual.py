r"""What would have happened under another policy, with the same noise (Oberst and Sontag 2019).

A patient was observed; what if the doctors had decided otherwise? With $s' = \arg\max_i \log p_i + \varepsilon_i$ the
observation says something about $\varepsilon$ (`ag.gumbel_posterior`), and the same $\varepsilon$ under other
log-probabilities gives the answer. Averaged over patients, every mechanism must give the value of the other policy,
which is known exactly here; the single answers differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from argrad._errors import InputError
from argrad.recipes import report
from argrad.recipes.bench import Cell, Claim, Recipe, Run, Summary, option
from argrad.recipes.clinic import (
    DEAD,
    HOME,
    MECHANISMS,
    REWARD,
    imagine,
    observe,
    other_policy,
    unstable,
    value,
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """What can be set."""

    columns: tuple[str, ...] = option((), "only these columns", selects=True)
    rounds: int = option(50, "rounds of patients", at_least=2)
    patients: int = option(20_000, "patients a round", at_least=2)
    days: int = option(10, "days of an episode", at_least=1)
    start: int = option(2, "level of health on the first day, 1 to 4", at_least=1)


def cells(config: Config) -> list[Cell]:
    """One for every mechanism."""
    known = {name.lower(): name for name in MECHANISMS}
    for name in config.columns:
        if name.lower() not in known:
            raise InputError(f"there is no column {name!r}; there are {', '.join(MECHANISMS)}.")
    if not DEAD < config.start < HOME:
        raise InputError(f"`--start` must be from {DEAD + 1} to {HOME - 1}; got {config.start}.")
    wanted = {name.lower() for name in config.columns} or set(known)
    return [Cell("", name) for low, name in known.items() if low in wanted]


class Counts:
    """Sums over patients: value, its square, effect, its square, saved, harmed, unstable days, days."""

    def __init__(self) -> None:
        self.sums = torch.zeros(8, dtype=torch.float64)

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"sums": self.sums}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.sums = state["sums"]


def train(config: Config, cell: Cell, run: Run) -> dict[str, float]:
    """Imagine the other policy for many patients."""
    mechanism, noise, counts = MECHANISMS[cell.column], run.generator(1), Counts()
    run.log_every = 1
    for _ in run.steps(config.rounds, counts=counts, noise=noise):
        seen = observe(config.patients, config.start, config.days, noise)
        instead = imagine(seen, mechanism, noise)
        broken = unstable(seen, mechanism, noise)
        counts.sums += sums(seen.levels[:, -1], instead, broken)
        run.log(value=REWARD[instead].mean())
    return summarise(counts.sums, config)


def sums(before: Tensor, instead: Tensor, broken: tuple[int, int]) -> Tensor:
    """What `Counts` holds, of one round."""
    y = REWARD[instead]
    effect = y - REWARD[before]
    saved = ((before == DEAD) & (instead == HOME)).double()
    harmed = ((before == HOME) & (instead == DEAD)).double()
    parts = [y, y.square(), effect, effect.square(), saved, harmed]
    days = torch.tensor(broken, dtype=torch.float64)
    return torch.cat([torch.stack([part.sum() for part in parts]), days])


def summarise(total: Tensor, config: Config) -> dict[str, float]:
    """The numbers of a cell."""
    n = config.rounds * config.patients
    y, y2, effect, effect2, saved, harmed = (total[:6] / n).tolist()
    exact = value(other_policy(), config.start, config.days)
    z = (y - exact) / math.sqrt((y2 - y * y) / n)
    return {
        "deviation": math.sqrt(effect2 - effect * effect),
        "value": y,
        "exact value": exact,
        "|z|": abs(z),
        "mean effect": effect,
        "saved, %": 100 * saved,
        "harmed, %": 100 * harmed,
        "unstable days, %": 100 * float(total[6] / total[7]),
    }


def claims(summary: Summary) -> list[Claim]:
    """All mechanisms agree on average; only Gumbel-max is stable, and keeping the noise sharpens single answers."""
    found = [
        Claim(
            f"{c.cell.column}: the mean over patients is the value of the other policy",
            c.mean("|z|") < 4.5,
            f"{c.mean('value'):.4f} and {c.mean('exact value'):.4f}, |z| = {c.mean('|z|'):.1f}",
        )
        for c in summary.cells
    ]
    ours, other, fresh = (summary.find("", name) for name in MECHANISMS)
    if ours is not None:
        broken = ours.mean("unstable days, %")
        found.append(
            Claim("Gumbel-max is counterfactually stable", broken == 0, f"{broken:.2f} % of days")
        )
    if other is not None:
        broken = other.mean("unstable days, %")
        found.append(Claim("the inverse CDF is not", broken > 0, f"{broken:.2f} % of days"))
    if ours is not None and fresh is not None:
        text = "the same noise makes the effect on one patient less uncertain than fresh noise"
        found.append(
            Claim(text, ours.mean() < fresh.mean(), f"{ours.mean():.3f} and {fresh.mean():.3f}")
        )
    return found


def figures(summary: Summary) -> Sequence[str]:
    """Who would have fared otherwise."""
    heads = ("mean effect", "deviation", "saved, %", "harmed, %", "unstable days, %")
    rows = [
        report.Row(c.cell.column, "", i, [c.mean(name) for name in heads])
        for i, c in enumerate(summary.cells)
    ]
    text = (
        "Saved: died as observed and would have gone home; harmed: the other way round. The mean effect is the same "
        "for all; how it falls on single patients is a matter of the mechanism, which data cannot decide."
    )
    return [report.section("The effect on single patients", text, report.table(["", *heads], rows))]


RECIPE = Recipe(
    name="counterfactual",
    title="Another policy with the same noise: Gumbel-max counterfactuals",
    about=(
        "A patient has one of six levels of health, from dead to home, and is treated or not on each of ten days. "
        "Observed: treatment at random in 30 % of cases. Imagined: the ill are treated and nobody else, day by day "
        "with the noise of the observed day, drawn from its posterior. The process is our own and small enough "
        "that the value of both policies is exact; the paper's sepsis simulator is not at hand, and it has no table."
    ),
    source="Oberst and Sontag 2019 (the idea and the definition of stability)",
    metric="deviation",
    unit="deviation of the effect between patients",
    config=Config(),
    smoke=Config(rounds=3, patients=2000),
    full=Config(rounds=500),
    cells=cells,
    train=train,
    bands={"smoke": {("*", "*"): (0.1, 2.0)}, "default": {("*", "*"): (0.1, 2.0)}},
    claims=claims,
    figures=figures,
    digits=3,
)
