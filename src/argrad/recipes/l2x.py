r"""The k-subset table of Paulus et al. (2020): which k words explain a score, seven relaxations, on planted rationales.

One sentence of a review holds the opinion; the choice of words is learnt from the score alone, and subset precision
says how many of them lie in that sentence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Literal

import torch
from torch.nn.functional import mse_loss

import argrad as ag
from argrad._errors import InputError
from argrad.recipes import l2x_page
from argrad.recipes.bench import Cell, CellResult, Claim, Recipe, Run, Summary, option
from argrad.recipes.data import rationales
from argrad.recipes.data.rationales import Part
from argrad.recipes.l2x_model import CORRELATED, RELAXATIONS, Explainer, Kind
from argrad.recipes.training import Decay, Shuffled


@dataclass(frozen=True)
class Training:
    """What depends on the text, unless a flag says otherwise."""

    reviews: int
    steps: int
    batch: int
    decay: float
    word_decay: float
    spread: float
    noise: float
    first_tau: float


GENERATED = Training(2000, 300, 32, decay=0.01, word_decay=0.01, spread=1.0, noise=1.0, first_tau=5.0)
# 24 000 words, and a polarity that the words of its sentence tell in 7 of 10 cases: unless vectors are kept small, the
# words of the training reviews are learnt by heart; scores are then small too, and need small noise
MOVIES = Training(40_000, 800, 64, decay=0.3, word_decay=3.0, spread=0.1, noise=0.1, first_tau=20.0)


@dataclass(frozen=True, kw_only=True)
class Config:
    """What can be set; `none` is what suits the text."""

    data: tuple[str, ...] = option(
        ("generated",),
        "generated, movies, or the folder of BeerAdvocate's files; what is none below is as suits them",
        selects=True,
    )
    models: tuple[Literal["simple", "complex"], ...] = option(
        ("simple", "complex"), "words scored one by one, or in their context", selects=True
    )
    k: tuple[int, ...] = option((5, 10, 15), "words to choose", selects=True, at_least=1)
    columns: tuple[str, ...] = option((), "only these relaxations", selects=True)
    reviews: int | None = option(None, "to train on, at most", at_least=1)
    aspect: int = option(1, "of BeerAdvocate: 0 look, 1 smell, 2 palate", at_least=0)
    steps: int | None = option(None, "training steps a cell", at_least=1)
    batch: int | None = option(None, "reviews a step", at_least=1)
    rate: float = option(3e-3, "of AdamW, falling linearly to a tenth over the second half", above=0)
    decay: float | None = option(None, "weight decay of AdamW", at_least=0)
    word_decay: float | None = option(None, "the same of the words' vectors", at_least=0)
    spread: float | None = option(None, "standard deviation of the words' vectors at first", above=0)
    noise: float | None = option(None, "size of the noise of the scores", above=0)
    first_tau: float | None = option(
        None, "temperature in units of the noise at first, at which all words are read", above=0
    )
    tau: float = option(0.5, "to which it falls linearly over the first half", above=0)
    d: int = option(50, "size of a word's vector, where they are learnt", at_least=1)
    hidden: int = option(100, "units of the hidden layers", at_least=1)


# of the simple model: subset precision in percent (Paulus et al. 2020, Table 3)
PUBLISHED = {
    "L2X": {5: 28.3, 10: 25.5, 15: 25.5},
    "SoftSub": {5: 27.2, 10: 26.1, 15: 25.1},
    "Euclid. Top k": {5: 25.8, 10: 32.9, 15: 29.0},
    "Cat. Ent. Top k": {5: 26.4, 10: 32.1, 15: 28.7},
    "Bin. Ent. Top k": {5: 29.2, 10: 33.6, 15: 28.8},
    "E.F. Ent. Top k": {5: 28.8, 10: 32.8, 15: 29.2},
    CORRELATED: {5: 63.1, 10: 53.1, 15: 45.5},
}
L2X = "L2X"
MARGIN = 1.5  # times the precision of every other relaxation, at k = 5


def row_of(data: str, model: str, k: int) -> str:
    """As the table calls it; BeerAdvocate by its folder's name."""
    return f"{data.rstrip('/').rpartition('/')[2]}, {model}, k = {k}"


def cells(config: Config) -> list[Cell]:
    """Every text, model, k and relaxation."""
    for name in config.columns:
        if name not in RELAXATIONS:
            raise InputError(f"there is no column {name!r}; there are {', '.join(RELAXATIONS)}.")
    return [
        Cell(
            row_of(data, model, k),
            column,
            PUBLISHED[column].get(k) if model == "simple" else None,
            {"data": data, "model": model, "k": k},
        )
        for data in config.data
        for model in config.models
        for k in config.k
        for column in config.columns or RELAXATIONS
    ]


def training(config: Config, data: str) -> Training:
    """How a text is trained on: what suits it, and what was asked for."""
    suits = MOVIES if data == "movies" else GENERATED
    asked = {name: getattr(config, name) for name in asdict(suits)}
    return replace(suits, **{name: value for name, value in asked.items() if value is not None})


def explainer(config: Config, cell: Cell, found: rationales.Rationales, spread: float) -> Explainer:
    """The model of a cell, not yet trained."""
    kind: Kind = cell.settings["model"]
    pairs = cell.column == CORRELATED
    return Explainer(len(found.words), config.d, config.hidden, kind, pairs, found.vectors, spread)


def optimiser(config: Config, how: Training, model: Explainer) -> torch.optim.Optimizer:
    """With a weight decay for the words' vectors and another for the rest."""
    words = {id(p) for p in model.vectors.parameters()}
    learnt = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in learnt if id(p) in words], "weight_decay": how.word_decay},
        {"params": [p for p in learnt if id(p) not in words], "weight_decay": how.decay},
    ]
    return torch.optim.AdamW(groups, config.rate, fused=True)


def train(config: Config, cell: Cell, run: Run) -> dict[str, float]:
    """Learn to choose k words from scores alone; measure on reviews whose rationale is known."""
    how = training(config, cell.settings["data"])
    found = rationales.load(cell.settings["data"], how.reviews, aspect=config.aspect)
    k, relax = cell.settings["k"], RELAXATIONS[cell.column]
    model = explainer(config, cell, found, how.spread)
    optimizer = optimiser(config, how, model)
    decay = Decay(optimizer, how.steps)
    tau = ag.schedules.Linear(how.first_tau, config.tau, max(how.steps // 2, 1))
    rows = (found.train.tokens, found.train.score)
    batches, noise = Shuffled(rows, how.batch, run.generator(1)), run.generator(2)
    state = {"model": model, "optimizer": optimizer, "batches": batches, "noise": noise}
    run.log_every = max(1, how.steps // 50)
    for step in run.steps(how.steps, **state):
        tokens, score = batches.next()
        z = relax(model.scores(tokens) / how.noise, tokens > 0, k, tau(step), noise)
        loss = mse_loss(model.explained(tokens, z, k), score)
        optimizer.zero_grad()
        loss.backward()
        decay.step(step)
        run.log(mse=loss)
    l2x_page.keep(run.folder, model, found, k)
    return evaluate(model, found.test, k)


@torch.no_grad()
def evaluate(model: Explainer, test: Part, k: int) -> dict[str, float]:
    """With hard choices and no noise: precision in percent, MSE, and how many runs of neighbours the k words are."""
    hits = squares = runs = 0.0
    for tokens, score, rationale in zip(
        test.tokens.split(200), test.score.split(200), test.rationale.split(200), strict=True
    ):
        z = model.chosen(tokens, k)
        hits += float((z * rationale).sum())
        squares += float((model.explained(tokens, z, k) - score).square().sum())
        runs += float(z.sum() - (z[:, 1:] * z[:, :-1]).sum())
    n = len(test.score)
    return {"precision": 100 * hits / (n * k), "MSE x 100": 100 * squares / n, "runs": runs / n}


def claims(summary: Summary) -> list[Claim]:
    """What the paper finds where words are scored one by one; nothing is claimed of words in context."""
    return [claim for row in summary.rows for claim in _claims(summary, row)]


def _claims(summary: Summary, row: str) -> Iterator[Claim]:
    cells = {c.cell.column: c for c in summary.cells if c.cell.row == row}
    if CORRELATED not in cells or len(cells) < 2:
        return
    settings = cells[CORRELATED].cell.settings
    if settings["model"] == "simple":
        strict = settings["k"] == 5 and settings["data"] != "movies"
        yield from _simple(row, strict, cells.pop(CORRELATED), list(cells.values()))


def _simple(row: str, strict: bool, ours: CellResult, others: list[CellResult]) -> Iterator[Claim]:
    best, margin = max(c.mean() for c in others), MARGIN if strict else 1.0
    text = f"{row}: correlated top-k is " + (f"{margin} times as" if strict else "at least as")
    holds, detail = ours.mean() >= margin * best, f"{ours.mean():.1f} % and at most {best:.1f} %"
    yield Claim(f"{text} precise as every other relaxation", holds, detail)
    own, mse = ours.mean("MSE x 100"), min(c.mean("MSE x 100") for c in others)
    yield Claim(f"{row}: and predicts best", own < mse, f"MSE x 100: {own:.2f} and at least {mse:.2f}")


RECIPE = Recipe(
    name="l2x",
    title="Which k words explain a score: seven relaxations of k-subsets",
    about=(
        "A review is scored by the k of its words that a network chooses; the table shows how many of them "
        "(hard, no noise) lie in the sentence that holds the opinion, on test reviews. The generated reviews "
        "hide one opinion among five sentences that tell a story with the same adjectives, so that a word by "
        "itself says little and its neighbour much; `--data movies` hides a real opinion (Pang and Lee) among "
        "real plots; `--data FOLDER` reads BeerAdvocate's files. The published numbers are those of the simple "
        "model on BeerAdvocate, another text. Differences from the paper: word vectors are learnt with the "
        "rest, one learning rate and temperature for all relaxations instead of a search, the last model "
        "instead of the best on validation data."
    ),
    source="Paulus et al. 2020, Table 3",
    metric="precision",
    unit="subset precision in percent",
    better="higher",
    config=Config(),
    smoke=Config(
        models=("simple",),
        k=(5,),
        columns=(L2X, "E.F. Ent. Top k", CORRELATED),
        reviews=1000,
        steps=150,
        batch=24,
    ),
    full=Config(data=("generated", "movies"), reviews=20_000, steps=10_000),
    cells=cells,
    train=train,
    bands={
        "smoke": {("*", CORRELATED): (80.0, 100.0), ("*", "*"): (10.0, 45.0)},
        "default": {
            ("generated, simple, k = 5", CORRELATED): (80.0, 100.0),
            ("generated, simple, k = 5", "*"): (10.0, 45.0),
        },
    },
    claims=claims,
    figures=l2x_page.figures,
)
