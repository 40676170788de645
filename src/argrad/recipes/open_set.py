r"""Classifiers that should know what they do not know: confidence losses, the GAN of Lee et al. (2018), a shell.

$$ \min_\theta\ \mathbb{E}_\text{in}[-\log p_\theta(y|x)] + \beta\, \mathbb{E}_\text{out}[o_\theta(x)], \qquad
   o = \mathrm{KL}(U \| p_\theta),\ -\log p_\theta(\text{none of these}),\ \text{or a margin on the energy} $$

What differs between the columns is where the outliers come from. *toy*: two Gaussians in the plane, unknown inputs from
boxes around them (the example of the paper). *digits*: 0 to 5 are known, 6 to 9 are not, and never shown in
training.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import argrad as ag
from argrad import openset
from argrad._errors import InputError
from argrad.losses.confidence import ConfidenceLoss
from argrad.recipes import open_set_page
from argrad.recipes.bench import Cell, Recipe, Run, option
from argrad.recipes.data import load
from argrad.recipes.training import Shuffled

SCORES = {"kl": openset.max_softmax, "reject": openset.reject, "energy": openset.energy}


@dataclass(frozen=True, kw_only=True)
class Config:
    """What can be set."""

    rows: tuple[str, ...] = option(("toy", "digits"), "data", selects=True)
    columns: tuple[str, ...] = option((), "only these columns", selects=True)
    steps: int = option(1500, "training steps", at_least=2)
    batch: int = option(128, "known inputs a step, and as many outliers", at_least=2)
    learning_rate: float = option(1e-3, "of Adam, for all networks", above=0)
    hidden: tuple[int, ...] = option((500, 500), "units of the classifier on the toy", at_least=1)
    gan_hidden: int = option(
        128, "units of each of two hidden layers of generator and discriminator", at_least=1
    )
    test: int = option(2000, "known and unknown inputs on the toy to measure with", at_least=10)


# ---- data ----------------------------------------------------------------------------------------------

CENTRES = torch.tensor([[-10.0, 0.0], [10.0, 0.0]])
SPREAD = 1.5


@dataclass(frozen=True)
class Problem:
    """Known inputs to train and test with, unknown ones by name, and a box that holds everything."""

    x: Tensor
    y: Tensor
    test: Tensor
    labels: Tensor
    unknown: dict[str, Tensor]
    box: tuple[float, float]
    classes: int


def toy(config: Config, g: torch.Generator) -> Problem:
    """Two Gaussians at (-10, 0) and (10, 0); what is further than four deviations from both is unknown."""
    y = torch.randint(2, (1000 + config.test,), generator=g)
    x = CENTRES[y] + SPREAD * torch.randn(len(y), 2, generator=g)
    unknown = {f"box of {r}": in_box(config.test, r, g) for r in (50, 20)}
    return Problem(x[:1000], y[:1000], x[1000:], y[1000:], unknown, (-50.0, 50.0), 2)


def in_box(n: int, half: float, g: torch.Generator) -> Tensor:
    """Uniform in a square of the plane, outside of the data, by rejection."""
    kept = torch.empty(0, 2)
    while len(kept) < n:
        points = half * (2 * torch.rand(n, 2, generator=g) - 1)
        outside = torch.cdist(points, CENTRES).amin(-1) > 4 * SPREAD
        kept = torch.cat([kept, points[outside]])
    return kept[:n]


def digits(config: Config, g: torch.Generator) -> Problem:
    """0 to 5 known, 6 to 9 unknown, pixels from 0 to 1."""
    images = load("digits")
    x = images.as_floats(torch.cat([images.train, images.valid, images.test]))
    y = torch.cat(images.labels).long()
    order = torch.randperm(len(x), generator=g)
    x, y = x[order], y[order]
    known, cut = y < 6, 700
    inside, labels = x[known], y[known]
    return Problem(
        inside[:cut], labels[:cut], inside[cut:], labels[cut:], {"6 to 9": x[~known]}, (0.0, 1.0), 6
    )


PROBLEMS: dict[str, Callable[[Config, torch.Generator], Problem]] = {"toy": toy, "digits": digits}


# ---- where outliers come from ----------------------------------------------------------------------------

Source = Callable[[Problem, torch.Generator], Callable[[int], Tensor]]


def boxed(half: float | None) -> Source:
    """A hundred uniform points of a box, drawn once (half None: the box of the data's range)."""

    def source(problem: Problem, g: torch.Generator) -> Callable[[int], Tensor]:
        if problem.x.shape[1] == 2:
            points = in_box(100, half or problem.box[1], g)
        else:
            low, high = problem.box
            points = low + (high - low) * torch.rand(100, problem.x.shape[1], generator=g)
        return lambda n: points[torch.randint(len(points), (n,), generator=g)]

    return source


def shelled(problem: Problem, g: torch.Generator) -> Callable[[int], Tensor]:
    """A shell around the training inputs."""
    shell = openset.Shell(problem.x)
    return lambda n: shell.sample(n, generator=g)


@dataclass(frozen=True)
class Way:
    """A loss and a source of outliers; `gan` trains a generator, after `warm_up` of the steps with the source."""

    loss: ConfidenceLoss | None = None
    source: Source | None = None
    gan: bool = False
    pull_away: float = 1.0
    warm_up: float = 0.0

    @property
    def mode(self) -> str:
        """Which score belongs to it."""
        return "kl" if self.loss is None else self.loss.mode


KL = ConfidenceLoss("kl")
WAYS = {
    "cross-entropy": Way(),
    "kl wide box": Way(KL, boxed(None)),
    "kl narrow box": Way(KL, boxed(20.0)),
    "kl GAN": Way(KL, gan=True),
    "kl GAN no pull-away": Way(KL, gan=True, pull_away=0.0),
    "kl GAN after shell": Way(KL, shelled, gan=True, warm_up=0.5),
    "kl shell": Way(KL, shelled),
    "reject GAN": Way(ConfidenceLoss("reject"), gan=True),
    "reject shell": Way(ConfidenceLoss("reject"), shelled),
    "energy shell": Way(ConfidenceLoss("energy", beta=0.1), shelled),
}
TOY_ONLY = ("kl narrow box",)


def cells(config: Config) -> list[Cell]:
    """One for every data set and way."""
    for names, known in ((config.rows, PROBLEMS), (config.columns, WAYS)):
        for name in names:
            if name not in known:
                raise InputError(f"there is no {name!r}; there are {'; '.join(known)}.")
    return [
        Cell(row, way)
        for row in config.rows
        for way in config.columns or WAYS
        if row == "toy" or way not in TOY_ONLY
    ]


# ---- training --------------------------------------------------------------------------------------------


def mlp(sizes: tuple[int, ...], last: nn.Module | None = None) -> nn.Sequential:
    """Linear layers with rectifiers between them."""
    layers: list[nn.Module] = []
    for a, b in pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1], *([] if last is None else [last]))


def build(config: Config, way: Way, problem: Problem) -> openset.ConfidentGAN:
    """Classifier, generator and discriminator; without a GAN only the first is trained."""
    size, h = problem.x.shape[1], config.gan_hidden
    hidden = config.hidden if size == 2 else (h, h)
    outputs = problem.classes + (way.mode == "reject")
    squash = None if size == 2 else nn.Sigmoid()  # pixels are from 0 to 1
    return openset.ConfidentGAN(
        mlp((size, *hidden, outputs)),
        mlp((16, h, h, size), squash),
        mlp((size, h, h, 1)),
        noise_dim=16,
        loss=way.loss,
        pull_away=way.pull_away,
    )


def train(config: Config, cell: Cell, run: Run) -> dict[str, float]:
    """Train one way and measure how well it tells unknown inputs."""
    way, problem = WAYS[cell.column], PROBLEMS[cell.row](config, run.generator(1))
    gan, g = build(config, way, problem), run.generator(2)
    outliers = None if way.source is None else way.source(problem, g)
    adams = gan.optimizers(config.learning_rate)
    batches = Shuffled((problem.x, problem.y), config.batch, run.generator(3))
    d, e, c = adams  # of discriminator, generator and classifier
    for step in run.steps(config.steps, gan=gan, noise=g, batches=batches, d=d, e=e, c=c):
        x, y = batches.next()
        if way.gan and step >= way.warm_up * config.steps:
            run.log(loss=gan.step(x, y, adams, generator=g).classifier)
            continue
        loss = loss_of(way, gan.classifier, x, y, outliers)
        gan.zero_grad()
        loss.backward()
        c.step()
        run.log(loss=loss)
    open_set_page.keep(run.folder, gan, way, problem)
    return measure(way, gan.classifier, problem)


def loss_of(
    way: Way, classifier: nn.Module, x: Tensor, y: Tensor, outliers: Callable[[int], Tensor] | None
) -> Tensor:
    """Of a step without a GAN."""
    if way.loss is None or outliers is None:
        return cross_entropy(classifier(x), y)
    return way.loss(classifier(x), y, classifier(outliers(len(x))))


@torch.no_grad()
def measure(way: Way, classifier: nn.Module, problem: Problem) -> dict[str, float]:
    """In percent; the first unknown set under plain names, the others under theirs."""
    known = classifier(problem.test)
    score = SCORES[way.mode]
    right = known[:, : problem.classes].argmax(-1) == problem.labels
    found = {"right": 100 * right.float().mean().item()}
    for i, (name, x) in enumerate(problem.unknown.items()):
        unknown = classifier(x)
        a, b = score(known), score(unknown)
        after = "" if i == 0 else f", {name}"
        confidence = unknown[:, : problem.classes].softmax(-1).amax(-1).mean().item()
        found |= {
            f"AUROC{after}": 100 * ag.openset.auroc(a, b).item(),
            f"AUPR{after}": 100 * ag.openset.aupr(a, b).item(),
            f"FPR at 95 % TPR{after}": 100 * ag.openset.fpr_at_tpr(a, b).item(),
            f"mean confidence{after}": 100 * confidence,
        }
        for other, f in (
            ("max logit", openset.max_logit),
            ("entropy", openset.entropy),
            ("energy", openset.energy),
        ):
            inside, outside = known[:, : problem.classes], unknown[:, : problem.classes]
            found[f"AUROC by {other}{after}"] = 100 * openset.auroc(f(inside), f(outside)).item()
    return found


RECIPE = Recipe(
    name="open-set",
    title="Outliers for confident classifiers: boxes, a GAN, a shell",
    about=(
        "toy: two Gaussians at (-10, 0) and (10, 0), deviation 1.5, a network 2-500-500-2; unknown inputs are "
        "uniform in the square from -50 to 50 (and, below, from -20 to 20), more than four deviations from both "
        "centres. Outliers to train with are a hundred points of a box (as in the paper's figure 1), the samples "
        "of a GAN trained jointly from scratch, or a shell. digits: 0 to 5 known, 6 to 9 unknown and never shown "
        "in training. The score is that of the loss: largest softmax, rejection class, or energy. The paper's "
        "numbers are for images that are not here (SVHN, CIFAR-10), so none is quoted; its figure 3 used a "
        "classifier that had seen outliers before, as does our 'GAN after shell'."
    ),
    source="after Lee, Lee, Lee and Shin 2018, Figures 1 and 3, Table 1",
    metric="AUROC",
    unit="AUROC of unknown against known inputs, %",
    better="higher",
    config=Config(),
    smoke=Config(
        columns=("cross-entropy", "kl GAN", "kl shell"),
        steps=60,
        hidden=(64, 64),
        gan_hidden=32,
        test=300,
    ),
    full=Config(steps=6000),
    cells=cells,
    train=train,
    bands={
        "smoke": {("toy", "kl shell"): (60.0, 100.0), ("digits", "cross-entropy"): (70.0, 100.0)},
        "default": {
            ("toy", "cross-entropy"): (0.0, 60.0),
            ("toy", "kl shell"): (97.0, 100.0),
            ("toy", "reject shell"): (97.0, 100.0),
            ("toy", "energy shell"): (97.0, 100.0),
            ("toy", "kl wide box"): (97.0, 100.0),
            ("digits", "cross-entropy"): (93.0, 99.0),
            ("digits", "kl shell"): (95.0, 99.5),
        },
    },
    claims=open_set_page.claims,
    figures=open_set_page.figures,
    needs={"sklearn": "scikit-learn"},
)
