r"""Naming the neurons of worms whose wiring is known (Mena et al. 2018, Table 3; Linderman et al. 2017).

$$ Y_t = P W P^\top Y_{t-1} + \nu_t $$

To be recovered are P of each worm, and the weights W that all share. Some names are given; a channel's place along the
body excludes others. Easy and hard differ in how many are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

import argrad as ag
from argrad._errors import InputError
from argrad.recipes import saved_images
from argrad.recipes.bench import Cell, CellResult, Claim, Recipe, Run, Summary, option
from argrad.recipes.charts import Series, legend, line_chart
from argrad.recipes.connectome_model import (
    Worms,
    draw_weights,
    generated_wiring,
    measures,
    posterior_of_weights,
    record,
)
from argrad.recipes.connectome_ways import Belief, Chain
from argrad.recipes.data.elegans import elegans_wiring
from argrad.recipes.pictures import image_rows
from argrad.recipes.report import pair, section
from argrad.recipes.training import Decay

Column = Literal["MCMC", "naive variational", "Gumbel-Sinkhorn", "Gumbel-Sinkhorn without KL"]
Difficulty = Literal["easy", "hard"]
PUBLISHED = {  # easy and hard, 40 to 10 % known
    "MCMC": {0.4: (0.85, 0.82), 0.3: (0.51, 0.44), 0.2: (0.29, 0.27), 0.1: (0.16, 0.12)},
    "Gumbel-Sinkhorn": {0.4: (0.97, 0.96), 0.3: (0.92, 0.84), 0.2: (0.76, 0.59), 0.1: (0.44, 0.26)},
    "Gumbel-Sinkhorn without KL": {
        0.4: (0.96, 0.93),
        0.3: (0.89, 0.78),
        0.2: (0.71, 0.52),
        0.1: (0.40, 0.23),
    },
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """What can be set."""

    wiring: Literal["generated", "elegans"] = option(
        "generated", "a sparse graph on a line, or that of C. elegans (needs cect)"
    )
    known: tuple[float, ...] = option(
        (0.4, 0.3, 0.2, 0.1), "shares of the neurons whose names are given", selects=True, above=0
    )
    difficulties: tuple[Difficulty, ...] = option(
        get_args(Difficulty), "how many names a place leaves", selects=True
    )
    columns: tuple[Column, ...] = option(get_args(Column), "ways to find names", selects=True)
    neurons: int = option(60, "of the generated graph", at_least=4)
    inputs: float = option(6.0, "wires into a neuron of the generated graph, about", above=0)
    radius: float = option(0.9, "spectral radius of W", above=0)
    worms: int = option(4, "recordings, each with its own names and one W", at_least=1)
    recording: int = option(50, "time steps a recording", at_least=2)
    easy_reach: float = option(0.1, "error of a place, as a share of the body", above=0)
    hard_reach: float = option(0.3, "the same, in the hard rows", above=0)
    ridge: float = option(5.0, "precision of the prior of a weight", above=0)
    steps: int = option(300, "gradient steps", at_least=1)
    sweeps: int = option(200, "of the Markov chain, the second half counts", at_least=2)
    samples: int = option(1, "matchings a step", at_least=1)
    learning_rate: float = option(
        0.1, "of Adam, falling linearly to a tenth over the second half", above=0
    )
    tau: float = option(1.0, "temperature at first", above=0)
    last_tau: float = option(0.2, "temperature in the end", above=0)


def cells(config: Config) -> list[Cell]:
    """One for every share, difficulty and way."""
    if max(config.known, default=0.0) >= 1:
        raise InputError("`--known` must be below 1, so that there is a name to find; try 0.4,0.1.")
    return [
        Cell(
            f"{100 * known:g} % known, {difficulty}",
            column,
            _published(column, known, difficulty),
            {"known": known, "difficulty": difficulty},
        )
        for known in config.known
        for difficulty in config.difficulties
        for column in config.columns
    ]


def _published(column: str, known: float, difficulty: str) -> float | None:
    found = PUBLISHED.get(column, {}).get(known)
    return None if found is None else found[difficulty == "hard"]


def worms_of(config: Config, cell: Cell, generator: torch.Generator) -> Worms:
    """The recordings of a cell: of one seed all cells have the same W and activity."""
    if config.wiring == "elegans":
        wires = elegans_wiring()
    else:
        wires = generated_wiring(config.neurons, config.inputs, generator)
    reach = config.easy_reach if cell.settings["difficulty"] == "easy" else config.hard_reach
    return record(
        wires,
        draw_weights(wires, config.radius, generator),
        worms=config.worms,
        steps=config.recording,
        known=cell.settings["known"],
        reach=round(reach * len(wires)),
        generator=generator,
    )


def train(config: Config, cell: Cell, run: Run) -> dict[str, float]:
    """Find the names, then the weights that they imply."""
    worms = worms_of(config, cell, run.generator(1))
    search = markov_chain if cell.column == "MCMC" else variational
    p = search(config, cell, worms, run)
    weights, _ = posterior_of_weights(p.argmax(-2), worms, config.ridge)
    saved_images.save(run, picture(p, weights, worms), weights.shape[-1])
    return measures(p, weights, worms)


def variational(config: Config, cell: Cell, worms: Worms, run: Run) -> Tensor:
    """By gradient, through soft matchings."""
    naive, regularized = cell.column == "naive variational", "without" not in cell.column
    model = Belief(worms, ag.OneHot() if naive else ag.Permutation())
    optimizer = torch.optim.Adam(model.parameters(), config.learning_rate)
    decay, noise = Decay(optimizer, config.steps), run.generator(2)
    tau = ag.schedules.Linear(config.tau, config.last_tau, config.steps)
    for step in run.steps(config.steps, model=model, optimizer=optimizer, noise=noise):
        loss = model.loss(tau(step), config.samples, config.ridge, regularized, noise)
        optimizer.zero_grad()
        loss.backward()
        decay.step(step)
        run.log(loss=loss)
    return model.matching()


def markov_chain(config: Config, cell: Cell, worms: Worms, run: Run) -> Tensor:
    """By sampling; the names that were visited most often in the second half."""
    noise = run.generator(2)
    chain = Chain(worms, noise)
    for step in run.steps(config.sweeps, chain=chain, noise=noise):
        run.log(log_likelihood=chain.sweep(config.ridge, noise))
        if 2 * step >= config.sweeps:
            chain.count()
    return chain.matching()


# ---- the report ----------------------------------------------------------------------------------------


def picture(p: Tensor, weights: Tensor, worms: Worms) -> Tensor:
    """One row of three square images: sizes of the true and the found weights, names of the first worm by true name."""
    scale = worms.weights.abs().max()
    names = p[0][worms.names[0].argsort()]
    sizes = [(w.abs() / scale).clamp(max=1) ** 0.5 for w in (worms.weights, weights)]
    return torch.stack([*sizes, names.to(weights.dtype)]).flatten(-2)[None]


def claims(summary: Summary) -> list[Claim]:
    """What the published table says, over all its rows."""

    def mean(column: str, difficulty: str = "") -> float:
        found = [
            c.mean()
            for c in summary.cells
            if c.cell.column == column and c.cell.row.endswith(difficulty)
        ]
        return sum(found) / len(found)

    def above(text: str, a: float, b: float) -> Claim:
        return Claim(text, a > b, f"{a:.2f} and {b:.2f}")

    ours, done = "Gumbel-Sinkhorn", set(summary.columns)
    if ours not in done:
        return []
    others = [c for c in get_args(Column) if c in done and c != ours]
    found = [above(f"{ours} names more neurons than {c}", mean(ours), mean(c)) for c in others]
    if {"easy", "hard"} <= set(summary.config.difficulties):
        found.append(above(f"{ours}: easy is easier", mean(ours, "easy"), mean(ours, "hard")))
    return [*found, *_falls(summary, ours)]


def _falls(summary: Summary, column: str) -> list[Claim]:
    """Fewer known names, fewer found."""
    found = []
    for difficulty in summary.config.difficulties:
        line = _line(summary, column, difficulty, 0)
        if len(line.y) > 1:
            first, last = line.y[0], line.y[-1]
            text = f"{column}, {difficulty}: fewer known names, fewer found"
            found.append(Claim(text, first >= last, f"{first:.2f} and {last:.2f}"))
    return found


def figures(summary: Summary) -> Sequence[str]:
    """Named neurons against known ones, and what was found."""
    charts = [_chart(summary, difficulty) for difficulty in summary.config.difficulties]
    pictures = [_matrices(c) for c in summary.cells if len(saved_images.of(c))]
    return [
        section(
            "Known and found",
            "Share of the neurons without a name that got theirs; dots at the last point.",
            legend(summary.columns),
            pair(*charts),
        ),
        section(
            "Weights and names",
            "From the left: sizes of the true weights, of those found, and the names given in the first worm, whose "
            "right places are the diagonal.",
            *pictures,
        ),
    ]


def _chart(summary: Summary, difficulty: str) -> str:
    lines = [_line(summary, column, difficulty, i) for i, column in enumerate(summary.columns)]
    return line_chart(lines, title=f"named, {difficulty}", x_label="known, %", y_range=(0.0, 1.0))


def _line(summary: Summary, column: str, difficulty: str, colour: int) -> Series:
    found = [
        c
        for c in summary.cells
        if c.cell.column == column and c.cell.settings["difficulty"] == difficulty
    ]
    shares = [100 * c.cell.settings["known"] for c in found]
    return Series(column, shares, [c.mean() for c in found], colour)


def _matrices(c: CellResult) -> str:
    return image_rows([(f"{c.cell.name}: {c.mean():.2f}", saved_images.of(c)[0])])


RECIPE = Recipe(
    name="connectome",
    title="Naming the neurons of worms whose wiring is known",
    about=(
        "Linear dynamics on a sparse wiring: several worms share the weights W, each with its own unknown order of the "
        "channels. Some names are given, a rough place along the body excludes others, the rest is found together with "
        "W. The number is the share of the neurons without a given name that got theirs. MCMC draws W exactly and "
        "exchanges names; naive variational lets every channel choose by itself; Gumbel-Sinkhorn makes the choices a "
        "permutation, with or without the KL of its noise to that of equal scores. All end in an exact matching. The "
        "paper simulates on the wiring of C. elegans with 279 neurons (here `--wiring elegans`); its lengths, numbers "
        "of worms and definition of easy and hard are not known, nor whether the known neurons count, so its numbers "
        "are beside for their order only."
    ),
    source="Mena, Belanger, Linderman and Snoek 2018, Table 3",
    metric="identified",
    unit="share of the unknown neurons that got their name",
    better="higher",
    config=Config(),
    smoke=Config(
        known=(0.4,),
        neurons=12,
        inputs=3.0,
        worms=2,
        recording=300,
        easy_reach=0.2,
        hard_reach=0.4,
        steps=40,
        sweeps=20,
    ),
    full=Config(wiring="elegans", recording=1000, steps=2000, sweeps=2000),
    cells=cells,
    train=train,
    bands={
        "smoke": {("*", "Gumbel-Sinkhorn"): (0.6, 1.0), ("*", "*"): (0.1, 1.0)},
        "default": {
            ("40 % known, *", "Gumbel-Sinkhorn"): (0.85, 1.0),
            ("10 % known, easy", "Gumbel-Sinkhorn"): (
                0.6,
                1.0,
            ),  # 9 % by chance: about 11 names are left
            ("10 % known, hard", "Gumbel-Sinkhorn"): (0.25, 1.0),  # 4 % by chance
        },
    },
    claims=claims,
    figures=figures,
    digits=2,
)
