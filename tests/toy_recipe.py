"""A recipe in one file, as a user would write it: least squares with noise, two rows, two columns.

Quick enough to be killed, starved of disk and run again many times. `TOY` in the environment makes it misbehave, so
that a worker can be told to: `kill=7` (SIGKILL at step 7), `int=7` (SIGINT), `crash=7`, `slow=0.1` (seconds a step),
each only in the cell that `cell=NAME` names, if it is given.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from argrad.recipes.bench import Cell, Claim, Recipe, Run, Summary, option


@dataclass(frozen=True, kw_only=True)
class Config:
    """What can be set."""

    rows: tuple[str, ...] = option(("narrow", "wide"), "models", selects=True)
    columns: tuple[str, ...] = option((), "only these columns", selects=True)
    steps: int = option(20, "training steps a cell", at_least=1)
    rate: float = option(0.1, "learning rate", above=0)
    shape: Literal["line", "curve"] = option("line", "of the data")
    clip: float | None = option(None, "largest gradient")
    sizes: tuple[int, ...] = option((3, 2), "numbers that nothing depends on", at_least=1)
    momentum: bool = option(True, "with momentum, 100 % of the time")


COLUMNS = {"SGD": 1.0, "Half SGD ½": 0.5}


def cells(config: Config) -> list[Cell]:
    chosen = config.columns or tuple(COLUMNS)
    return [
        Cell(row, column, 0.5 if row == "narrow" else None, {"factor": COLUMNS[column]})
        for row in config.rows
        for column in chosen
    ]


def train(config: Config, cell: Cell, run: Run) -> dict[str, float]:
    run.save_seconds = -1.0  # after every step
    noise = run.generator(1)
    model = nn.Linear(2 if cell.row == "narrow" else 5, 1)
    rate = config.rate * cell.settings["factor"]
    optimizer = torch.optim.SGD(model.parameters(), rate, momentum=0.9 if config.momentum else 0.0)
    for step in run.steps(config.steps, model=model, optimizer=optimizer, noise=noise):
        misbehave(step, cell)
        x = torch.randn(8, model.in_features, generator=noise) + torch.rand(
            ()
        )  # and torch's own generator
        loss = (model(x)[:, 0] - x.sum(-1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log(loss=loss, step_twice=2 * step)
    error = (model.weight.detach() - 1).abs().sum() + torch.rand(())
    return {"error": float(error), "bias": float(model.bias.detach())}


def misbehave(step: int, cell: Cell) -> None:
    words = dict(word.partition("=")[::2] for word in os.environ.get("TOY", "").split(";") if word)
    if words.get("cell", cell.name) != cell.name:
        return
    time.sleep(float(words.get("slow", 0)))
    if words.get("kill") == str(step):
        os.kill(os.getpid(), signal.SIGKILL)
    if words.get("int") == str(step):
        os.kill(os.getpid(), signal.SIGINT)
    if words.get("crash") == str(step):
        raise ZeroDivisionError("on purpose")


def claims(summary: Summary) -> Sequence[Claim]:
    if summary.find("narrow", "SGD") is None or summary.find("narrow", "Half SGD ½") is None:
        return []
    a, b = summary["narrow", "SGD"].mean(), summary["narrow", "Half SGD ½"].mean()
    return [Claim("half the rate is <better> than all of it", b < a, f"{a:.2f} and {b:.2f}")]


RECIPE = Recipe(
    name="toy",
    title="Least squares & noise",
    about="A line is fitted to <points>.",
    source="our own tests",
    metric="error",
    unit="error of the weights",
    config=Config(),
    smoke=Config(steps=5, columns=("SGD",)),
    full=Config(steps=50),
    cells=cells,
    train=train,
    bands={
        "smoke": {("narrow", "*"): (0.0, 100.0)},
        "default": {("narrow", "*"): (0.0, 50.0), ("wide", "Half*"): (0.0, 50.0)},
        "full": {("*", "*"): (-2.0, -1.0)},
    },
    claims=claims,
    digits=2,
)
