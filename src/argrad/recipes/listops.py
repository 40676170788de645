r"""The unsupervised parsing table of Paulus et al. (2020): latent trees over ListOps, learnt from the answers alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import argrad as ag
from argrad._errors import InputError
from argrad.recipes import listops_page
from argrad.recipes.bench import Cell, Claim, Recipe, Run, Summary, option
from argrad.recipes.data import listops as data
from argrad.recipes.data.listops import ListOps
from argrad.recipes.listops_model import (
    DIRECTED,
    GUMBEL,
    LSTM,
    NEG_EXP,
    TRUE,
    WAYS,
    LastState,
    Parser,
)
from argrad.recipes.training import Decay, Shuffled


@dataclass(frozen=True, kw_only=True)
class Config:
    """What can be set."""

    columns: tuple[str, ...] = option((), "only these columns", selects=True)
    depths: tuple[int, ...] = option((1, 2, 3, 4, 5), "of the expressions, mixed alike", at_least=1)
    longest: int = option(25, "tokens of an expression", at_least=16)
    expressions: int = option(20_000, "to train on", at_least=1)
    test_expressions: int = option(2000, "to measure with, none of which was trained on", at_least=1)
    steps: int = option(2000, "training steps a cell", at_least=1)
    batch: int = option(32, "expressions a step", at_least=1)
    rate: float = option(2e-3, "of AdamW, falling linearly to a tenth over the second half", above=0)
    decay: float = option(4e-5, "weight decay of AdamW", at_least=0)
    tau: float = option(1.0, "temperature of all relaxations", above=0)
    samples: int = option(4, "trees an expression of the leave-one-out column", at_least=2)
    d: int = option(60, "size of all vectors", at_least=1)
    rounds: int = option(5, "times that messages are sent", at_least=1)


# task accuracy in percent (Paulus et al. 2020, Table 2)
PUBLISHED = {
    LSTM: 92.1,
    "Indep. undirected edges": 89.4,
    "Spanning tree": 91.2,
    DIRECTED: 90.1,
    NEG_EXP: 71.5,
    "Arborescence (Gaussian)": 95.0,
    GUMBEL: 95.0,
    TRUE: 98.1,
}
MARGIN = 3  # times the precision of independent directed edges


def cells(config: Config) -> list[Cell]:
    """One for every way to a graph."""
    for name in config.columns:
        if name not in WAYS:
            raise InputError(f"there is no column {name!r}; there are {', '.join(WAYS)}.")
    return [Cell("", column, PUBLISHED.get(column)) for column in config.columns or WAYS]


def expressions(config: Config) -> tuple[ListOps, ListOps]:
    """To train on and to test with, all different."""
    n, m = config.expressions, config.test_expressions
    made = data.listops(n + m, config.depths, config.longest, seed=0)
    parts = zip(*(t.split((n, m)) for t in vars(made).values()), strict=True)
    train, test = (ListOps(*part) for part in parts)
    return train, test


def model_of(config: Config, column: str) -> LastState | Parser:
    """The network of a column, not yet trained."""
    return LastState(config.d) if column == LSTM else Parser(WAYS[column], config.d, config.rounds)


def loss_of(
    config: Config,
    column: str,
    model: LastState | Parser,
    batch: tuple[Tensor, ...],
    g: torch.Generator,
) -> Tensor:
    """The cross-entropy of a batch, as the column estimates it."""
    tokens, value, trees = batch
    if isinstance(model, LastState):
        return cross_entropy(model(tokens), value)
    cost = partial(model.cost, tokens, value)
    if column == TRUE:
        return cost(trees).mean()
    way = WAYS[column].estimator
    estimator = (
        ag.Relaxed(tau=config.tau) if way == "relaxed" else ag.LeaveOneOut(num_samples=config.samples)
    )
    return estimator(cost, model.law(tokens), generator=g).mean()


def train(config: Config, cell: Cell, run: Run) -> dict[str, float]:
    """Train one column and measure it with hard graphs."""
    seen, test = expressions(config)
    model = model_of(config, cell.column)
    optimizer = torch.optim.AdamW(
        model.parameters(), config.rate, weight_decay=config.decay, fused=True
    )
    decay = Decay(optimizer, config.steps)
    rows = (seen.tokens, seen.value, seen.trees)
    batches, noise = Shuffled(rows, config.batch, run.generator(1)), run.generator(2)
    state = {"model": model, "optimizer": optimizer, "batches": batches, "noise": noise}
    for step in run.steps(config.steps, **state):
        loss = loss_of(config, cell.column, model, batches.next(), noise)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        decay.step(step)
        run.log(loss=loss)
    return evaluate(cell.column, model, test, run)


# ---- what was found ----------------------------------------------------------------------------------


@torch.no_grad()
def evaluate(column: str, model: LastState | Parser, test: ListOps, run: Run) -> dict[str, float]:
    """Accuracy in percent; precision and recall of the arcs, mean over expressions, where there are arcs."""
    if isinstance(model, LastState):
        return {"accuracy": _percent(model(test.tokens).argmax(-1) == test.value)}
    z = graphs(column, model, test, run.generator(3))
    right = model.computer(test.tokens, z).argmax(-1) == test.value
    listops_page.keep(run.folder, test, z)
    found = {"accuracy": _percent(right), **arcs(z, test.trees, undirected=model.way.undirected)}
    last = right[test.depth == test.depth.max()]
    return found | {"accuracy, deepest": _percent(last)}


def graphs(column: str, model: Parser, test: ListOps, g: torch.Generator) -> Tensor:
    """Hard samples, noise and all; the true trees where they are given."""
    if column == TRUE:
        return test.trees
    parts = [model.law(tokens).sample(generator=g) for tokens in test.tokens.split(200)]
    return model.way.graph(torch.cat(parts), test.tokens > 0)


def arcs(z: Tensor, trees: Tensor, *, undirected: bool) -> dict[str, float]:
    """Precision and recall of arcs in percent, of edges if they have no direction."""
    true = trees + trees.mT if undirected else trees
    hits = (z * true).sum((1, 2))
    precision, recall = hits / z.sum((1, 2)).clamp(min=1), hits / true.sum((1, 2))
    return {"precision": _percent(precision), "recall": _percent(recall)}


def _percent(share: Tensor) -> float:
    return 100 * float(share.float().mean())


# ---- what the paper says, as sentences ----------------------------------------------------------------


def claims(summary: Summary) -> list[Claim]:
    """About the columns that were trained."""
    return list(_claims(summary))


def _claims(summary: Summary) -> Iterator[Claim]:
    cells = {c.cell.column: c for c in summary.cells}
    if {DIRECTED, GUMBEL} <= set(cells):
        ours, other = cells[GUMBEL], cells[DIRECTED]
        detail = f"{ours.mean():.1f} % and {other.mean():.1f} %"
        text = "arborescences with Gumbel noise answer better than independent directed edges"
        yield Claim(text, ours.mean() > other.mean(), detail)
        a, b = ours.mean("precision"), other.mean("precision")
        text = f"and their arcs are {MARGIN} times as precise"
        yield Claim(text, a >= MARGIN * b, f"{a:.1f} % and {b:.1f} %")
    if {NEG_EXP, GUMBEL} <= set(cells):
        a, b = cells[GUMBEL].mean(), cells[NEG_EXP].mean()
        text = "negative exponential noise is clearly worse than Gumbel noise (5 points)"
        yield Claim(text, a >= b + 5, f"{a:.1f} % and {b:.1f} %")
    if TRUE in cells and len(cells) > 1:
        best = max(c.mean() for name, c in cells.items() if name != TRUE)
        detail = f"{cells[TRUE].mean():.1f} % and at most {best:.1f} %"
        yield Claim("nothing is better than the true tree", cells[TRUE].mean() >= best, detail)


RECIPE = Recipe(
    name="listops",
    title="Unsupervised parsing: latent trees over nested lists",
    about=(
        "Expressions such as [MAX 2 9 [MIN 4 7 ] 0 ], of depths 1 to 5, and their value: all that is learnt "
        "from. An LSTM over kinds of tokens scores arcs, a graph is drawn by the law of the column, and a network "
        "sends messages along it to the first token. The table shows accuracy with hard samples; precision and "
        "recall of the arcs (those of closing brackets too) are among all measures. The published precisions "
        "are 13.0 for independent directed edges, and for arborescences 23.2 with negative exponential, 65.3 "
        "with Gaussian and 75.5 with Gumbel noise. Leave-one-out trains on hard trees of the Gibbs law instead "
        "of relaxed ones. Differences from the paper: at most 25 tokens instead of 49, a fifth of the "
        "expressions, few passes over them; one LSTM with two views instead of two LSTMs; it does not see which "
        "digit or operator a token is, because one that does does the arithmetic itself and passes the answer on "
        "along any graph (at this scale its trees then stay below 35 % precision); only operators listen; one "
        "learning rate and temperature instead of a search."
    ),
    source="Paulus et al. 2020, Table 2",
    metric="accuracy",
    unit="task accuracy in percent",
    better="higher",
    config=Config(),
    smoke=Config(
        depths=(1, 2),
        longest=16,
        expressions=500,
        test_expressions=100,
        steps=20,
        batch=20,
        d=16,
        samples=2,
    ),
    full=Config(
        longest=49,
        expressions=100_000,
        test_expressions=10_000,
        steps=100_000,
        batch=100,
        rate=1e-3,
        tau=1.22,
    ),
    cells=cells,
    train=train,
    bands={"smoke": {("*", "*"): (3.0, 70.0)}},
    claims=claims,
    figures=listops_page.figures,
)
