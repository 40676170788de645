r"""Jigsaw puzzles by a latent permutation (Mena et al. 2018, Section 5.2).

$$ \min_\theta\ \mathbb{E}\, \| P \tilde X - X \|^2, \qquad
   P = \mathrm{Sinkhorn}\big((S_\theta(\tilde X) + g)/\tau\big) $$

$\tilde X$ are the pieces of a picture in random order, $X$ the picture. The network never sees where a piece belongs,
only the pixels of the whole. At test time the matching is exact and without noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

import argrad as ag
from argrad._errors import InputError
from argrad.recipes import saved_images
from argrad.recipes.bench import Cell, CellResult, Claim, Recipe, Run, Summary, option
from argrad.recipes.data import Images, load
from argrad.recipes.jigsaw_model import Solver, arrange, cut, join, measures, scramble
from argrad.recipes.pictures import image_rows
from argrad.recipes.report import Row, section, table
from argrad.recipes.training import Adam, Decay, Shuffled

Column = Literal["pieces alone", "pieces together"]
MEASURES = ("any wrong", "wrong", "l1", "l2", "Kendall tau")
SHOWN = 10  # puzzles in the report


@dataclass(frozen=True, kw_only=True)
class Config:
    """What can be set."""

    data: str = option("mnist", "digits, mnist, binarized-mnist or fashion-mnist")
    parts: tuple[int, ...] = option((2, 3, 4), "pieces along an edge", selects=True, at_least=2)
    columns: tuple[Column, ...] = option(
        get_args(Column), "whether a piece is seen alone, as in the paper", selects=True
    )
    steps: int = option(8000, "training steps a cell", at_least=1)
    batch: int = option(50, "puzzles a step", at_least=1)
    samples: int = option(2, "noisy permutations a puzzle", at_least=1)
    tau: float = option(1.0, "temperature", above=0)
    noise_scale: float = option(1.0, "of the Gumbel noise in training", at_least=0)
    learning_rate: float = option(
        1e-3, "of Adam, falling linearly to a tenth over the second half", above=0
    )
    channels: int = option(32, "of the convolution", at_least=1)
    width: int = option(128, "of a piece's description", at_least=4)
    layers: int = option(2, "rounds of attention, where pieces are seen together", at_least=1)
    test_images: int = option(10_000, "puzzles to solve", at_least=SHOWN)


def cells(config: Config) -> list[Cell]:
    """One for every size and network."""
    return [
        Cell(f"{n} x {n}", name, settings={"parts": n}) for n in config.parts for name in config.columns
    ]


def train(config: Config, cell: Cell, run: Run) -> dict[str, float]:
    """Learn to solve puzzles of one size, and solve new ones."""
    images, parts = load(config.data), cell.settings["parts"]
    if parts > images.side:
        raise InputError(
            f"`--parts` must be at most {images.side}, the pixels of an edge; got {parts}."
        )
    layers = config.layers if cell.column == "pieces together" else 0
    model = Solver(parts, images.side // parts, config.channels, config.width, layers)
    optimizer = Adam(model.parameters(), config.learning_rate)
    decay, noise = Decay(optimizer, config.steps), run.generator(2)
    batches = Shuffled(images.train, config.batch, run.generator(1))
    state = {"model": model, "optimizer": optimizer, "batches": batches, "noise": noise}
    for step in run.steps(config.steps, **state):
        pieces = pieces_of(images, batches.next(), parts)
        loss = reconstruction_error(config, model, pieces, noise)
        optimizer.zero_grad()
        loss.backward()
        decay.step(step)
        run.log(loss=loss)
    return evaluate(config, model, images, parts, run)


def pieces_of(images: Images, rows: Tensor, parts: int) -> Tensor:
    """Rows of pixels as pieces, from 0 to 1."""
    return cut(images.as_floats(rows).unflatten(-1, (images.side, images.side)), parts)


def reconstruction_error(
    config: Config, model: Solver, pieces: Tensor, noise: torch.Generator
) -> Tensor:
    """The training loss: squared error of a picture put together by soft permutations."""
    mixed, _ = scramble(pieces, noise)
    scores = model(mixed)
    several = scores.expand(config.samples, *scores.shape)
    p = ag.presets.gumbel_sinkhorn(several, config.tau, noise_scale=config.noise_scale, generator=noise)
    return (arrange(p, mixed) - pieces).square().flatten(2).sum(-1).mean()


@torch.no_grad()
def evaluate(config: Config, model: Solver, images: Images, parts: int, run: Run) -> dict[str, float]:
    """All measures on test images, mean; the first puzzles are kept for the report."""
    g, found = run.generator(3), []
    for i, rows in enumerate(images.test[: config.test_images].split(500)):
        pieces = pieces_of(images, rows, parts)
        mixed, order = scramble(pieces, g)
        scores = model(mixed)
        p = ag.Permutation().argmax(scores)
        solved = arrange(p, mixed)
        found.append(measures(solved, pieces, order.gather(-1, p.argmax(-1))))
        if i == 0:
            soft = arrange(ag.Permutation().relax(scores[:SHOWN], config.tau), mixed[:SHOWN])
            strip = torch.stack([join(t[:SHOWN]) for t in (mixed, soft, solved, pieces)])
            saved_images.save(run, strip.flatten(-2), strip.shape[-1])
    return {name: torch.cat([f[name] for f in found]).mean().item() for name in MEASURES}


# ---- the report ----------------------------------------------------------------------------------------

LIMITS = {"2 x 2": 0.01, "3 x 3": 0.05}  # shares of puzzles with a wrong piece


def claims(summary: Summary) -> list[Claim]:
    """Small puzzles are solved; looking at the other pieces helps."""
    return [*_solved(summary), *_together_helps(summary)]


def _solved(summary: Summary) -> Iterator[Claim]:
    for row, limit in LIMITS.items():
        if c := summary.find(row, "pieces together"):
            text = f"{row}: fewer than {100 * limit:g} % of the puzzles have a wrong piece"
            yield Claim(text, c.mean() < limit, f"{100 * c.mean():.2f} %")


def _together_helps(summary: Summary) -> Iterator[Claim]:
    for row in summary.rows:
        alone, together = (summary.find(row, name) for name in get_args(Column))
        if alone and together:
            text = f"{row}: pieces that see each other find their places more often"
            detail = f"{alone.mean():.3f} and {together.mean():.3f} any wrong"
            yield Claim(text, together.mean() < alone.mean(), detail)


def figures(summary: Summary) -> Sequence[str]:
    """The measures, and puzzles scrambled, soft and solved."""
    columns = summary.columns
    rows = [
        Row(c.cell.column, c.cell.row, columns.index(c.cell.column), [c.mean(m) for m in MEASURES])
        for c in summary.cells
    ]
    measured = section(
        "Measures",
        "A piece is wrong if a pixel is: identical pieces may change places. l1 and l2 are means over pixels from 0 "
        "to 1; Kendall's tau compares the order of the pieces with the right one, identical pieces numbered in their "
        "favour.",
        table(["network", *MEASURES], rows),
    )
    return [measured, *(_pictures(c) for c in summary.cells if len(saved_images.of(c)))]


def _pictures(c: CellResult) -> str:
    names = ("scrambled", "soft", "solved", "the picture")
    return section(
        c.cell.name,
        "The first puzzles of the test set. Soft: the pieces mixed by the relaxed permutation at the temperature of "
        "training, without noise. Solved: by the exact matching of the same scores.",
        image_rows(list(zip(names, saved_images.of(c), strict=True))),
    )


RECIPE = Recipe(
    name="jigsaw",
    title="Jigsaw puzzles by a latent permutation",
    about=(
        "MNIST digits cut in 2 x 2 to 4 x 4 pieces, scrambled, and put together by a network that is trained on the "
        "squared error of the whole picture with Gumbel-Sinkhorn permutations. 'Pieces alone' is the paper's network: "
        "a convolution on each piece and a linear layer for its places. In 'pieces together' the pieces also attend "
        "to each other, without positions. Wrong is counted by pixels, since many pieces are blank. 3 x 3 puzzles are "
        "cut from 27 x 27 pixels. Differences from the paper: Sinkhorn to a tolerance; sizes and steps are ours, the "
        "paper's are not known."
    ),
    source="Mena, Belanger, Linderman and Snoek 2018, Section 5.2",
    metric="any wrong",
    unit="share of puzzles with a wrong piece, by pixels",
    config=Config(),
    smoke=Config(
        data="digits",
        parts=(2,),
        steps=60,
        batch=32,
        channels=8,
        width=32,
        layers=1,
        learning_rate=3e-3,
        test_images=100,
    ),
    full=Config(parts=(2, 3, 4, 5, 6), steps=30_000, samples=5, channels=64, width=256),
    cells=cells,
    train=train,
    bands={
        "smoke": {("*", "*"): (0.0, 0.6)},  # untrained, 23 of 24
        "default": {
            ("2 x 2", "pieces together"): (0.0, 0.01),
            ("3 x 3", "pieces together"): (0.0, 0.05),
        },
    },
    claims=claims,
    figures=figures,
    needs={"sklearn": "scikit-learn"},
    digits=3,
)
