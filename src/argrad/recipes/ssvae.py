r"""The semi-supervised VAE of Jang et al. (2017): marginalise over the class, or sample it.

$$ \mathcal{U}(x) = \mathbb{E}_{q(y|x)}[\mathcal{L}(x, y)] - H(q(y|x)), \qquad
   \mathcal{L}(x, y) = \mathbb{E}_{q(z|x,y)}[-\log p(x|y, z)] + \mathrm{KL}(q(z|x, y) \| p(z)) + \log K $$

A hundred images have labels, the others do not. The expectation over $y$ is a sum over all classes (marginalisation)
or one draw of Gumbel-softmax: the cheaper, the more classes there are, which the second part measures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

import argrad as ag
from argrad._errors import InputError
from argrad.recipes import pictures, report, saved_images, ssvae_speed
from argrad.recipes.bench import Cell, CellResult, Claim, Recipe, Run, Summary, option
from argrad.recipes.data import Images, load
from argrad.recipes.ssvae_model import Batch, SemiSupervisedVae, estimator, loss
from argrad.recipes.training import Decay, Shuffled


@dataclass(frozen=True, kw_only=True)
class Config:
    """What can be set."""

    data: str = option("mnist", "digits, mnist or fashion-mnist")
    rows: tuple[str, ...] = option(("accuracy", "speed"), "parts of the experiment", selects=True)
    columns: tuple[str, ...] = option((), "only these columns", selects=True)
    steps: int = option(10_000, "training steps a cell", at_least=1)
    batch: int = option(100, "images without label a step, binarised anew each time", at_least=1)
    labels: int = option(100, "images with a label, the same number of each class", at_least=10)
    labelled_batch: int = option(50, "of them a step", at_least=1)
    network: Literal["dense", "mixed", "conv"] = option(
        "mixed", "all dense, with a convolutional classifier, or all convolutional"
    )
    hidden: int = option(256, "units of the dense layers", at_least=1)
    latent: int = option(16, "size of the style z", at_least=1)
    learning_rate: float = option(
        2e-3, "of Adam, falling linearly to a tenth over the second half", above=0
    )
    alpha: float = option(10.0, "weight of the classification of labelled images", above=0)
    pull_from: float = option(
        0.2, "share of the run after which unlabelled images begin to train q(y|x)", at_least=0
    )
    pull_by: float = option(0.4, "share of the run after which they do so fully", at_least=0)
    tau_rate: float | None = option(
        None, "r of tau = max(0.5, exp(-r t)); none: reaches 0.5 at 70 % of the run", above=0
    )
    test_images: int = option(10_000, "images that accuracy and ELBO are measured on", at_least=1)
    speed_steps: int = option(15, "steps of each way that are timed", at_least=2)


# Table 2: accuracy in %, -ELBO in nats
PUBLISHED = {
    "marginalisation": (92.6, 106.8),
    "Gumbel-softmax": (92.4, 109.6),
    "ST Gumbel-softmax": (93.6, 110.7),
}
LABELS_ONLY = "labels only"
COLUMNS = (*PUBLISHED, LABELS_ONLY)


def cells(config: Config) -> list[Cell]:
    """Accuracy of every way, and how much faster a step is for some numbers of classes."""
    known = {name.lower(): name for name in COLUMNS}
    for name in config.columns:
        if name.lower() not in known:
            raise InputError(f"there is no column {name!r}; there are {', '.join(COLUMNS)}.")
    for row in config.rows:
        if row not in ("accuracy", "speed"):
            raise InputError(f"there is no row {row!r}; there are accuracy, speed.")
    wanted = {name.lower() for name in config.columns} or set(known)
    chosen = [name for low, name in known.items() if low in wanted]
    trained = [Cell("accuracy", name, PUBLISHED.get(name, (None,))[0]) for name in chosen]
    return [
        *(trained if "accuracy" in config.rows else []),
        *(ssvae_speed.cells() if "speed" in config.rows else []),
    ]


# ---- training ----------------------------------------------------------------------------------------


def train(config: Config, cell: Cell, run: Run) -> dict[str, float]:
    """Train one way, or time the steps."""
    images = load(config.data)
    known_rows = labelled_images(images, config.labels, run.generator(2))
    if cell.row == "speed":
        model = build(config, images, cell.settings["classes"])
        few, (known, y) = images.train[: config.batch], (t[: config.labelled_batch] for t in known_rows)
        batch = Batch(images.as_floats(few), images.as_floats(known), y)
        return ssvae_speed.measure(model, batch, config.speed_steps, run)
    model = build(config, images, 10)
    optimizer = torch.optim.Adam(model.parameters(), config.learning_rate)
    decay, noise = Decay(optimizer, config.steps), run.generator(1)
    labelled = Shuffled(known_rows, config.labelled_batch, run.generator(3))
    batches = Shuffled(images.train, config.batch, run.generator(4))
    weights = {"alpha": config.alpha, "share": config.labels / len(images.train)}
    tau = temperature(config)
    state = {
        "model": model,
        "optimizer": optimizer,
        "batches": batches,
        "labelled": labelled,
        "noise": noise,
    }
    for step in run.steps(config.steps, **state):
        x, (known, y) = batches.next(), labelled.next()
        batch = Batch(binarized(images, x, noise), binarized(images, known, noise), y)
        pull = 0.0 if cell.column == LABELS_ONLY else pull_at(config, step)
        value = loss(model, batch, estimator(cell.column, tau(step)), noise, pull=pull, **weights)
        optimizer.zero_grad()
        value.backward()
        decay.step(step)
        run.log(loss=value)
    saved_images.save(run, styles(model, run.generator(6)), images.side)
    return evaluate(config, model, images, run)


def build(config: Config, images: Images, classes: int) -> SemiSupervisedVae:
    """The model for images of this size."""
    if config.network == "conv" and images.side != 28:
        raise InputError(
            f"`--network conv` is for images of 28 x 28; {config.data} has {images.side} x {images.side}."
        )
    return SemiSupervisedVae(config.network, images.side, classes, config.hidden, config.latent)


def temperature(config: Config) -> ag.schedules.Exponential:
    """The paper's schedule, or one of the same shape for the length of this run."""
    rate = config.tau_rate or math.log(2) / max(0.7 * config.steps, 1)
    return ag.schedules.Exponential(rate=rate, every=2000 if config.tau_rate else 100)


def pull_at(config: Config, step: int) -> float:
    """From 0 to 1 between two places of the run."""
    through, width = step / config.steps, config.pull_by - config.pull_from
    return (
        float(through >= config.pull_from)
        if width <= 0
        else min(max((through - config.pull_from) / width, 0.0), 1.0)
    )


def labelled_images(images: Images, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """As many training images of each class, with their labels."""
    if not images.labels:
        raise InputError("this data set has no labels; take mnist, fashion-mnist or digits.")
    order = torch.randperm(len(images.train), generator=generator)
    y = images.labels[0][order]
    chosen = torch.cat([order[y == k][: count // 10] for k in range(10)])
    return images.train[chosen], images.labels[0][chosen]


def binarized(images: Images, rows: Tensor, generator: torch.Generator) -> Tensor:
    """Every pixel black with probability its intensity."""
    return torch.bernoulli(images.as_floats(rows), generator=generator)


# ---- evaluation --------------------------------------------------------------------------------------


@torch.no_grad()
def evaluate(config: Config, model: SemiSupervisedVae, images: Images, run: Run) -> dict[str, float]:
    """Accuracy of q(y|x) in %, and -ELBO with y marginalised in every column, on test images without their labels."""
    model.eval()
    g, right, free = run.generator(5), [], []
    for x, y in zip(images.test.split(100), images.labels[2].split(100), strict=True):
        if 100 * len(right) >= config.test_images:
            break
        x = binarized(images, x, g)
        logits, h = model.classifier(x), model.image(x)
        q = ag.Gibbs(ag.OneHot(), logits)
        cost = ag.Exact()(partial(model.cost, x, h, generator=g), q)
        right.append((logits.argmax(-1) == y).float())
        free.append(cost - q.entropy())
    return {"value": 100 * torch.cat(right).mean().item(), "-ELBO": torch.cat(free).mean().item()}


@torch.no_grad()
def styles(model: SemiSupervisedVae, generator: torch.Generator) -> Tensor:
    """All classes in four styles, shape `(4, classes, pixels)`."""
    model.eval()
    z = torch.randn((4, 1, model.latent), generator=generator).expand(-1, model.classes, -1)
    return model.decode(torch.eye(model.classes).expand(4, -1, -1), z).sigmoid()


# ---- the report --------------------------------------------------------------------------------------


def claims(summary: Summary) -> list[Claim]:
    """What the paper says: sampling loses little accuracy, and saves the more time the more classes there are."""
    exact, alone = summary.find("accuracy", "marginalisation"), summary.find("accuracy", LABELS_ONLY)
    found = []
    for c in _trained(summary):
        if exact is not None and c.cell.column in ("Gumbel-softmax", "ST Gumbel-softmax"):
            text = f"{c.cell.column} is at most 3 points less accurate than marginalisation"
            found.append(
                Claim(text, c.mean() > exact.mean() - 3, f"{c.mean():.1f} and {exact.mean():.1f} %")
            )
        if alone is not None and c is not alone:
            text = f"unlabelled images help {c.cell.column}"
            found.append(
                Claim(text, c.mean() > alone.mean(), f"{c.mean():.1f} and {alone.mean():.1f} %")
            )
    speeds = [c for c in summary.cells if c.cell.row == "speed"]
    ratios = [c.mean() for c in speeds]
    if len(ratios) > 1:
        text = "a step gains the more from sampling, the more classes there are"
        holds = all(a < b for a, b in pairwise(ratios))
        found.append(
            Claim(
                text,
                holds,
                ", ".join(f"{r:.1f}x at {c.cell.column}" for c, r in zip(speeds, ratios, strict=True)),
            )
        )
    return found


def _trained(summary: Summary) -> list[CellResult]:
    return [c for c in summary.cells if c.cell.row == "accuracy"]


def figures(summary: Summary) -> Sequence[str]:
    """The other half of the paper's table, and digits of all classes in the same style."""
    trained = _trained(summary)
    if not trained:
        return ()
    rows = [report.Row(c.cell.column, "", i, _beside_published(c)) for i, c in enumerate(trained)]
    table = report.table(["", "accuracy, %", "published", "-ELBO, nats", "published"], rows)
    images = [(c.cell.column, row) for c in trained for row in saved_images.of(c)[:2]]
    text = "Along a row z is fixed, and y goes from 0 to 9."
    return [
        report.section(
            "Accuracy and ELBO", "On test images without their labels, y marginalised.", table
        ),
        *(
            [report.section("All classes in the same style", text, pictures.image_rows(images))]
            if images
            else []
        ),
    ]


def _beside_published(c: CellResult) -> list[float]:
    accuracy, elbo = PUBLISHED.get(c.cell.column, (math.nan, math.nan))
    return [c.mean(), accuracy, c.mean("-ELBO"), elbo]


RECIPE = Recipe(
    name="ssvae",
    title="Semi-supervised VAE: marginalise over the class or sample it",
    about=(
        "Model M2 of Kingma et al. (2014) on MNIST with 100 labels: a classifier q(y|x), an encoder q(z|x, y) and a "
        "decoder p(x|y, z). All columns have the same objective and differ in the gradient through y: the sum over "
        "all classes, one relaxed draw, or one hard draw with the relaxed gradient; labels only trains the "
        "classifier on the 100 labelled images. Differences by default from the paper: dense encoder and decoder "
        "with a small convolutional classifier instead of convolutions throughout, a style of 16, 10000 steps, "
        "alpha = 10, and unlabelled images pull on q(y|x) only from a fifth of the run on, fully from two fifths. "
        "Speed is the time of one training step with all classes over one with a draw, in the same process."
    ),
    source="Jang, Gu and Poole 2017, Table 2",
    metric="value",
    unit="accuracy on test images in %; speed: time of a marginalised step over one with Gumbel-softmax",
    better="higher",
    config=Config(),
    smoke=Config(
        data="digits",
        steps=40,
        batch=50,
        network="dense",
        hidden=64,
        latent=4,
        test_images=100,
        speed_steps=2,
    ),
    full=Config(
        network="conv",
        steps=100_000,
        hidden=500,
        latent=50,
        learning_rate=3e-4,
        alpha=1.0,
        pull_from=0.0,
        pull_by=0.0,
        tau_rate=3e-5,
    ),
    cells=cells,
    train=train,
    bands={
        "smoke": {("accuracy", "*"): (30.0, 100.0), ("speed", "*"): (0.2, 60.0)},
        "default": {},
    },
    claims=claims,
    figures=figures,
    needs={"sklearn": "scikit-learn"},
)
