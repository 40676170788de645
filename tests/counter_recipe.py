"""A recipe whose noise belongs to the rows of the batch, not to a process: for tests of data-parallel training.

`RANKS=kill:1:7` in the environment lets rank 1 kill itself at step 7, leaving the time in the file that
`RANKS_STAMP` names.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

import argrad as ag
from argrad.recipes.bench import Cell, Recipe, Run, option
from argrad.recipes.training import Shuffled

ITEMS, WIDTH = 5, 3
# I-MLE and its kin are left out: they are not linear in the gradient of the loss, which a mean over fewer rows scales
WAYS = {
    "Relaxed": lambda: ag.Relaxed(0.7),
    "GumbelST": lambda: ag.GumbelST(0.7),
    "StraightThrough": lambda: ag.StraightThrough(),
    "ReinMax": lambda: ag.ReinMax(),
    "Reinforce": lambda: ag.Reinforce(),
    "MuProp": lambda: ag.MuProp(),
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """What can be set."""

    columns: tuple[str, ...] = option((), "only these columns", selects=True)
    steps: int = option(12, "training steps a cell", at_least=1)
    batch: int = option(8, "rows a step", at_least=1)


def cells(config: Config) -> list[Cell]:
    return [Cell("", name) for name in config.columns or WAYS]


def train(config: Config, cell: Cell, run: Run) -> dict[str, float]:
    run.save_seconds = -1.0  # after every step
    data = torch.randn(32, WIDTH, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    encoder, decoder = nn.Linear(WIDTH, ITEMS).double(), nn.Linear(ITEMS, WIDTH).double()
    model = nn.ModuleList([encoder, decoder])
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    batches, estimator = Shuffled(data, config.batch, run.generator(1)), WAYS[cell.column]()
    for step in run.steps(config.steps, model=model, optimizer=optimizer, batches=batches):
        misbehave(step)
        x = batches.next()
        q = ag.Gibbs(ag.OneHot(), encoder(x))
        noise = run.counter(step, rows=config.batch)
        loss = estimator(lambda z, x=x: (decoder(z) - x).square().sum(-1), q, generator=noise).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log(loss=loss, rows=len(x))
    return {f"p{i}": float(p.detach().square().sum()) for i, p in enumerate(model.parameters())}


def misbehave(step: int) -> None:
    words = os.environ.get("RANKS", "").split(":")
    if words[0] == "kill" and (os.environ.get("RANK"), str(step)) == (words[1], words[2]):
        if "RANKS_STAMP" in os.environ:
            Path(os.environ["RANKS_STAMP"]).write_text(str(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)


RECIPE = Recipe(
    name="counter",
    title="Noise that belongs to rows",
    about="An autoencoder with one choice.",
    source="our own tests",
    metric="p0",
    unit="squares of the parameters",
    config=Config(),
    smoke=Config(steps=3),
    full=Config(steps=50),
    cells=cells,
    train=train,
    digits=3,
)
