r"""The MNIST-VAE of the ReinMax paper (Liu et al. 2023), with the exact gradient as a ceiling.

784-512-256-(M x N)-256-512-784 with ReLU: M choices among N classes. Grey pixels are Bernoulli targets, the KL to the
uniform prior is exact, and training -ELBO is what the paper reports.
For four choices among eight, all 4096 codes can be decoded once a step and every image's cost taken from them by one
product, so the exact gradient is affordable: a column that no published table has.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

import argrad as ag
from argrad._errors import InputError
from argrad.recipes.bench import Cell, Claim, Recipe, Run, Summary, option
from argrad.recipes.columns import LONGEST_LIST, Layer, Way
from argrad.recipes.data import load
from argrad.recipes.likelihood import bernoulli_nll
from argrad.recipes.training import Shuffled


@dataclass(frozen=True, kw_only=True)
class Config:
    """What can be set."""

    data: str = option("mnist", "digits, mnist or fashion-mnist")
    sizes: tuple[str, ...] = option(
        ("8x4", "4x24"), "classes x choices, of the paper's six", selects=True
    )
    columns: tuple[str, ...] = option((), "only these columns", selects=True)
    steps: int = option(30_000, "training steps a cell (the paper: 96000)", at_least=1)
    batch: int = option(100, "images a step", at_least=1)
    exact_steps: int = option(
        30_000, "of the exact gradient, a step of which costs ten to twenty times as much", at_least=1
    )
    hidden: tuple[int, ...] = option((512, 256), "units of the encoder; the decoder mirrors them")
    measured: int = option(10_000, "training images that the final -ELBO is measured on", at_least=1)


# Train -ELBO of the paper; optimiser's rate and temperature of ReinMax as in its code.
SIZES = ("8x4", "4x24", "8x16", "16x12", "64x8", "10x30")
PUBLISHED = {
    "ST Gumbel-softmax": (126.85, 101.32, 99.32, 100.09, 104.02, 99.63),
    "Gumbel-Rao": (125.94, 99.96, 99.58, 102.54, 112.34, 102.02),
    "Gapped ST": (126.35, 101.49, 98.29, 98.12, 102.53, 98.64),
    "ST": (135.53, 112.03, 112.94, 113.31, 113.90, 112.63),
    "ReinMax": (124.66, 99.77, 97.70, 98.06, 100.71, 98.37),
}
_RATE = {"16x12": 7e-4, "8x16": 7e-4}  # else 5e-4
_TAU = {"8x4": 1.3, "10x30": 1.3}  # of ReinMax, else 1.5
_PLAIN_ADAM = ("8x4",)  # the others use RAdam


def layer_of(size: str) -> Layer:
    """`8x4` is four choices among eight."""
    classes, _, variables = size.partition("x")
    if size not in SIZES:
        raise InputError(f"there is no size {size!r}; there are {', '.join(SIZES)}.")
    return Layer(int(variables), int(classes))


def ways(size: str) -> dict[str, ag.Estimator]:
    """The columns, with the temperatures of the paper's code where it states them."""
    found: dict[str, ag.Estimator] = {
        "ST": ag.StraightThrough(),
        "ST Gumbel-softmax": ag.GumbelST(tau=1.0),
        "Gumbel-Rao": ag.GumbelRao(tau=1.0, inner_samples=10),
        "Gapped ST": ag.GappedST(tau=1.0, gap=1.0),
        "Decoupled ST": ag.DecoupledST(),
        "ReinMax": ag.ReinMax(tau=_TAU.get(size, 1.5)),
        "LeaveOneOut(4)": ag.LeaveOneOut(4),
        "REBAR": ag.Rebar(),
    }
    return found


EXACT = "Exact gradient"
UNLIKELY = 1e-9  # a code's probability


def cells(config: Config) -> list[Cell]:
    """One for every size and way, and the ceiling where it can be had."""
    found = []
    for size in config.sizes:
        layer, index = layer_of(size), SIZES.index(size)
        names = [*ways(size), *([EXACT] if layer.classes**layer.variables <= LONGEST_LIST else [])]
        known = {name.lower(): name for name in [*ways(size), EXACT]}
        for name in config.columns:
            if name.lower() not in known:
                raise InputError(f"there is no column {name!r}; there are {', '.join(known.values())}.")
        for name in names:
            if not config.columns or name.lower() in {c.lower() for c in config.columns}:
                published = PUBLISHED[name][index] if name in PUBLISHED else None
                settings = {"learning_rate": _RATE.get(size, 5e-4)}
                found.append(Cell(size, name, published, settings))
    return found


class Vae(nn.Module):
    """The paper's network."""

    def __init__(self, layer: Layer, pixels: int, hidden: tuple[int, ...]) -> None:
        super().__init__()
        self.layer = layer
        self.encoder = _dense(pixels, *hidden, layer.size)
        self.decoder = _dense(layer.size, *reversed(hidden), pixels)

    def cost(self, z: Tensor, x: Tensor) -> Tensor:
        r"""$-\log p(x|z)$ of flat samples `(S, batch, size)`."""
        return bernoulli_nll(self.decoder(z), x)

    def exact_cost(self, scores: Tensor, x: Tensor) -> Tensor:
        r"""$\sum_z q(z|x) (-\log p(x|z))$ over all codes, shape `(batch,)`.

        $-\log p(x|z) = \sum_j \mathrm{softplus}(o_j(z)) - x_j o_j(z)$ is linear in $x$, so every code is decoded once
        for all images. Codes to which no image gives `UNLIKELY` are left out: together they have less than 5e-6 of an
        image's mass, which float32 does not add up to better. Costs are taken from their mean, for the same reason.
        """
        z = self.layer.law(scores[:1]).enumerate_support(expand=False).squeeze(1)
        z = self.layer.flat(z)  # (codes, size)
        shape = (self.layer.variables, self.layer.classes)
        log_q = scores.unflatten(-1, shape).log_softmax(-1).flatten(-2) @ z.mT  # (batch, codes)
        likely = log_q.detach().amax(0) > math.log(UNLIKELY)
        pixels = self.decoder(z[likely])
        cost = softplus(pixels).sum(-1) - x @ pixels.mT
        base = cost.detach().mean(-1, keepdim=True)
        return (log_q[:, likely].exp() * (cost - base)).sum(-1) + base.squeeze(-1)


def _dense(*sizes: int) -> nn.Sequential:
    parts = [[nn.Linear(a, b), nn.ReLU()] for a, b in pairwise(sizes)]
    return nn.Sequential(*[part for two in parts for part in two][:-1])


def train(config: Config, cell: Cell, run: Run) -> dict[str, float]:
    """Train one cell and measure -ELBO with hard samples on training images (as published) and test images."""
    images = load(config.data)
    layer = layer_of(cell.row)
    model = Vae(layer, images.side**2, config.hidden)
    exact = cell.column == EXACT
    estimator = ag.Exact() if exact else ways(cell.row)[cell.column]
    way = Way(lambda step: estimator)
    kind = torch.optim.Adam if cell.row in _PLAIN_ADAM else torch.optim.RAdam
    parameters = [*model.parameters(), *way.module.parameters()]
    optimizer = kind(parameters, cell.settings["learning_rate"])
    batches, noise = Shuffled(images.train, config.batch, run.generator(1)), run.generator(2)
    state = {
        "model": model,
        "way": way.module,
        "optimizer": optimizer,
        "batches": batches,
        "noise": noise,
    }
    for step in run.steps(config.exact_steps if exact else config.steps, **state):
        x = images.as_floats(batches.next())
        scores = model.encoder(x)
        law = layer.law(scores)
        if exact:
            cost = model.exact_cost(scores, x)
        else:
            cost = way.expected(partial(model.cost, x=x), layer, law, step, noise)
        loss = (cost + layer.kl_to_uniform(law)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log(loss=loss)
    measured = {"-ELBO": images.train[: config.measured], "test -ELBO": images.test}
    return {
        name: negative_elbo(model, images.as_floats(x), run.generator(3))
        for name, x in measured.items()
    }


@torch.no_grad()
def negative_elbo(model: Vae, x: Tensor, generator: torch.Generator, draws: int = 10) -> float:
    """Nats an image with hard samples."""
    total = 0.0
    for rows in x.split(500):
        law = model.layer.law(model.encoder(rows))
        z = law.sample(torch.Size([draws]), generator=generator)
        cost = model.cost(model.layer.flat(z), rows).mean(0) + model.layer.kl_to_uniform(law)
        total += float(cost.sum())
    return total / len(x)


def claims(summary: Summary) -> list[Claim]:
    """What the paper claims for 8x4, and that nothing beats the exact gradient."""
    found = []
    reinmax, stgs = (summary["8x4", name].mean() for name in ("ReinMax", "ST Gumbel-softmax"))
    if reinmax == reinmax and stgs == stgs:
        text = "8x4: ReinMax at least as good as ST Gumbel-softmax"
        found.append(Claim(text, reinmax <= stgs, f"{reinmax:.2f} and {stgs:.2f}"))
    exact = summary["8x4", EXACT].mean()
    others = {c.cell.column: c.mean() for c in summary.cells if c.cell.row == "8x4"}
    others.pop(EXACT, None)
    if exact == exact and others:
        best = min(others, key=lambda name: others[name])
        text = "8x4: nothing beats the exact gradient"
        found.append(Claim(text, exact <= others[best], f"{exact:.2f}; {best} {others[best]:.2f}"))
    return found


RECIPE = Recipe(
    name="reinmax-vae",
    title="The MNIST-VAE of the ReinMax paper, with the exact gradient as a ceiling",
    about=(
        "784-512-256-(M x N)-256-512-784, grey MNIST pixels as Bernoulli targets, exact KL to the uniform prior; "
        "training -ELBO of hard samples, as the paper reports it. Fewer steps than the paper's 160 epochs; rates and "
        "temperatures of its code for ReinMax, temperature 1 and the same rate for the others (the paper searched)."
    ),
    source="Liu et al. 2023, training -ELBO (quoted from memory, the paper was not at hand; its row averages agree)",
    metric="-ELBO",
    unit="training -ELBO, nats",
    config=Config(),
    smoke=Config(
        data="digits",
        sizes=("8x4",),
        columns=("ST", "ReinMax"),
        steps=30,
        exact_steps=10,
        batch=50,
        hidden=(32, 16),
        measured=100,
    ),
    full=Config(sizes=SIZES, steps=96_000, exact_steps=96_000, measured=50_000),
    cells=cells,
    train=train,
    bands={"smoke": {("*", "*"): (20.0, 50.0)}},
    claims=claims,
    needs={"sklearn": "scikit-learn"},
    digits=2,
)
