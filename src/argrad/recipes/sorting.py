r"""Sorting numbers by a latent permutation (Mena et al. 2018, Table 1).

$$ \min_\theta\ \mathbb{E}\, \| P x - \mathrm{sort}(x) \|^2, \qquad
   P = \mathrm{Sinkhorn}\big((S_\theta(x) + g)/\tau\big), \quad S_{ij} = f_\theta(x_j)_i $$

Each number is seen alone by one small network, which scores the N places for it; only the matching makes an order of
them. At test time the matching is exact, and a list counts as wrong if one number is out of place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

import argrad as ag
from argrad.recipes.bench import Cell, CellResult, Claim, Recipe, Run, Summary, option
from argrad.recipes.charts import Series, legend, line_chart
from argrad.recipes.report import Row, section, table
from argrad.recipes.training import Decay
from argrad.solvers.softsort import sort_permutation

INTERVALS = ((0, 1), (0, 10), (0, 1000), (1, 2), (10, 11), (100, 101), (1000, 1001))  # the paper's
Column = Literal[
    "Gumbel-Sinkhorn", "Sinkhorn without noise", "Birkhoff projection", "SoftSort", "NeuralSort"
]
PUBLISHED = {5: 0.0, 10: 0.0, 15: 0.0, 80: 0.0, 120: 0.01}  # Gumbel-Sinkhorn, any wrong, U(0, 1)


@dataclass(frozen=True, kw_only=True)
class Config:
    """What can be set."""

    numbers: tuple[int, ...] = option(
        (5, 10, 15, 50, 80, 120), "N: how many numbers a list has", selects=True, at_least=2
    )
    columns: tuple[Column, ...] = option(get_args(Column), "the ways to relax an order", selects=True)
    steps: int = option(500, "training steps a cell", at_least=1)
    batch: int = option(10, "lists a step", at_least=1)
    samples: int = option(5, "noisy permutations a list, where there is noise", at_least=1)
    tau: float = option(1.0, "temperature", above=0)
    learning_rate: float = option(
        0.1, "of Adam, falling linearly to a tenth over the second half", above=0
    )
    hidden: int = option(32, "units of the network", at_least=1)
    test_lists: int = option(1000, "new lists in each interval", at_least=1)


# ---- the ways to relax an order ------------------------------------------------------------------------

Soften = Callable[[Tensor, Config, torch.Generator], Tensor]


@dataclass(frozen=True)
class Way:
    """From the network's values to a matrix P with P x in rising order: soft to train, hard to test."""

    soft: Soften
    hard: Callable[[Tensor], Tensor]
    scores_places: bool = (
        True  # values are scores `(*batch, place, item)`; else a rank value for each item
    )


def _gumbel_sinkhorn(scores: Tensor, config: Config, g: torch.Generator) -> Tensor:
    several = scores.expand(config.samples, *scores.shape)
    return ag.presets.gumbel_sinkhorn(several, config.tau, generator=g)


def _relaxed(regularizer: ag.Regularizer) -> Soften:
    return lambda s, config, _: ag.Permutation().relax(s, config.tau, regularizer=regularizer)


def _falling(sort: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The library sorts in falling order, the lists here rise."""
    return lambda values: sort(-values)


WAYS: dict[str, Way] = {
    "Gumbel-Sinkhorn": Way(_gumbel_sinkhorn, ag.Permutation().argmax),
    "Sinkhorn without noise": Way(_relaxed(ag.Entropy()), ag.Permutation().argmax),
    "Birkhoff projection": Way(_relaxed(ag.Euclidean()), ag.Permutation().argmax),
    "SoftSort": Way(lambda s, c, _: ag.softsort(-s, c.tau), _falling(sort_permutation), False),
    "NeuralSort": Way(lambda s, c, _: ag.neuralsort(-s, c.tau), _falling(sort_permutation), False),
}


class Network(nn.Module):
    """One number in, scores for its place (or one rank value) out."""

    def __init__(self, places: int, hidden: int, way: Way) -> None:
        super().__init__()
        self.scores_places = way.scores_places
        outputs = places if way.scores_places else 1
        self.layers = nn.Sequential(nn.Linear(1, hidden), nn.ReLU(), nn.Linear(hidden, outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Numbers `(*batch, n)` to scores `(*batch, n, n)` or values `(*batch, n)`."""
        values = self.layers(x[..., None])  # (*batch, item, place)
        return values.mT if self.scores_places else values[..., 0]


# ---- training and testing ------------------------------------------------------------------------------


def cells(config: Config) -> list[Cell]:
    """One for every N and way."""
    return [
        Cell(f"N = {n}", name, PUBLISHED.get(n) if name == "Gumbel-Sinkhorn" else None, {"n": n})
        for n in config.numbers
        for name in config.columns
    ]


def train(config: Config, cell: Cell, run: Run) -> dict[str, float]:
    """Train on lists from U(0, 1), and sort new ones from every interval."""
    n, way = cell.settings["n"], WAYS[cell.column]
    model = Network(n, config.hidden, way)
    optimizer = torch.optim.Adam(model.parameters(), config.learning_rate)
    decay = Decay(optimizer, config.steps)
    data, noise = run.generator(1), run.generator(2)
    for step in run.steps(config.steps, model=model, optimizer=optimizer, data=data, noise=noise):
        x = torch.rand(run.share(config.batch), n, generator=data)
        p = way.soft(model(x), config, noise)
        loss = (apply(p, x) - x.sort(-1).values).square().sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        decay.step(step)
        run.log(loss=loss)
    return evaluate(config, model, way, n, run)


def apply(p: Tensor, x: Tensor) -> Tensor:
    """P x for lists."""
    return (p @ x[..., None])[..., 0]


@torch.no_grad()
def evaluate(config: Config, model: Network, way: Way, n: int, run: Run) -> dict[str, float]:
    """Shares of wrong lists and of wrong places in every interval, by exact matching."""
    g, model, found = run.generator(3), model.double(), {}  # U(1000, 1001) needs the digits
    for low, high in INTERVALS:
        x = low + (high - low) * torch.rand(config.test_lists, n, generator=g, dtype=torch.float64)
        order = torch.cat([apply(way.hard(model(part)), part) for part in x.split(100)])
        wrong = order != x.sort(-1).values
        name = "" if (low, high) == INTERVALS[0] else f" on {interval(low, high)}"
        found[f"any wrong{name}"] = wrong.any(-1).double().mean().item()
        found[f"wrong{name}"] = wrong.double().mean().item()
    return found


def interval(low: int, high: int) -> str:
    """As a person writes it."""
    return f"U({low}, {high})"


# ---- the report ----------------------------------------------------------------------------------------

QUICK = tuple(f"N = {n}" for n in (5, 10, 15, 50))


def claims(summary: Summary) -> list[Claim]:
    """No wrong list up to N = 50, in two minutes; none that the paper does not have beyond."""
    ours = [c for c in summary.cells if c.cell.column == "Gumbel-Sinkhorn"]
    quick = [c for c in ours if c.cell.row in QUICK]
    if len(quick) < len(QUICK):
        return []
    seconds = sum(c.seconds for c in quick)
    wrong = max(c.mean() for c in quick)
    others = max(c.mean(name) for c in quick for name in c.metrics if name.startswith("any wrong on"))
    return [
        Claim("Gumbel-Sinkhorn: no wrong list for N = 5, 10, 15, 50", wrong == 0, f"{wrong:g}"),
        Claim("these four train in two minutes", seconds <= 120, f"{seconds:.0f} seconds"),
        Claim(
            "the same networks sort numbers from every other interval", others <= 0.01, f"{others:g}"
        ),
    ]


def figures(summary: Summary) -> Sequence[str]:
    """Wrong lists as N grows, and beyond the interval of training."""
    lines = [_line(summary, column, i) for i, column in enumerate(summary.columns)]
    chart = line_chart(lines, title="share of wrong lists, U(0, 1)", x_label="N", y_range=(0.0, 1.0))
    names = [f"any wrong on {interval(*i)}" for i in INTERVALS[1:]]
    rows = [_row(c, summary.columns.index(c.cell.column), names) for c in summary.cells]
    return [
        section("Longer lists", "All numbers must be in place.", legend(summary.columns), chart),
        section(
            "Other intervals",
            "Share of wrong lists. Training saw U(0, 1) only; scores that grow with number times place sort any "
            "interval.",
            table(["trained on U(0, 1)", *(interval(*i) for i in INTERVALS)], rows),
        ),
    ]


def _line(summary: Summary, column: str, colour: int) -> Series:
    found = [c for c in summary.cells if c.cell.column == column]
    return Series(column, [c.cell.settings["n"] for c in found], [c.mean() for c in found], colour)


def _row(c: CellResult, colour: int, names: Sequence[str]) -> Row:
    return Row(c.cell.column, c.cell.row, colour, [c.mean(), *(c.mean(name) for name in names)])


RECIPE = Recipe(
    name="sorting",
    title="Sorting numbers by a latent permutation",
    about=(
        "A network 1-32-N scores the places of each number by itself; it is trained on lists from U(0, 1) by the "
        "squared error of P x, with P a relaxed permutation, and tested with the exact matching on new lists from "
        "seven intervals. Steps, batch, samples, temperature and learning rate are those of the paper's code. "
        "SoftSort and NeuralSort need one value for each number instead of N scores, a far easier problem. Differences "
        "from the paper: Sinkhorn to a tolerance with an implicit derivative instead of ten iterations, a learning "
        "rate that falls, tests in float64."
    ),
    source="Mena, Belanger, Linderman and Snoek 2018, Table 1",
    metric="any wrong",
    unit="share of lists with a wrong place, U(0, 1)",
    config=Config(),
    smoke=Config(numbers=(5,), steps=100, test_lists=50),
    full=Config(numbers=(5, 10, 15, 50, 80, 100, 120), steps=2000, test_lists=10_000),
    cells=cells,
    train=train,
    bands={
        "smoke": {("*", "*"): (0.0, 0.3)},  # untrained, 119 of 120 lists are wrong
        "default": {
            ("N = 120", "Gumbel-Sinkhorn"): (0.0, 0.03),
            ("N = 80", "Gumbel-Sinkhorn"): (0.0, 0.01),
            ("*", "Gumbel-Sinkhorn"): (-1e-9, 1e-9),
            ("*", "SoftSort"): (0.0, 0.01),
            ("*", "NeuralSort"): (0.0, 0.01),
        },
    },
    claims=claims,
    figures=figures,
    digits=3,
)
