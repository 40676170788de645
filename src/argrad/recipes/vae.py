r"""The VAE table of Jang et al. (2017): discrete latent variables on binarised MNIST, every estimator a column.

$$ -\mathrm{ELBO}(x) = \mathbb{E}_{q(z|x)}[-\log p(x|z)] + \mathrm{KL}(q(z|x) \| p(z)), \quad p(z) \text{ uniform} $$

784-200-784 with 200 bits, and 784-(20 x 10)-200-784 with twenty choices among ten. Relaxed or hard in training as the
column says; always hard in evaluation, with the discrete KL and the bound of m samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from argrad.estimators.base import Estimator
from argrad.recipes.bench import Cell, Recipe, Run, option
from argrad.recipes.columns import PUBLISHED, WAYS, Layer, at_temperature, claims, columns
from argrad.recipes.data import Images, load
from argrad.recipes.likelihood import bernoulli_nll
from argrad.recipes.training import Adam, Decay, Shuffled, gradients


@dataclass(frozen=True, kw_only=True)
class Config:
    """What can be set."""

    data: str = option("binarized-mnist", "digits, mnist, binarized-mnist or fashion-mnist")
    rows: tuple[Literal["bernoulli", "categorical"], ...] = option(
        ("bernoulli", "categorical"), "kinds of latent variables", selects=True
    )
    columns: tuple[str, ...] = option((), "only these columns", selects=True)
    steps: int = option(30_000, "training steps a cell", at_least=1)
    batch: int = option(100, "images a step", at_least=1)
    optimizer: Literal["adam", "momentum"] = option(
        "adam", "adam, or gradient descent with momentum 0.9 as in the paper"
    )
    learning_rate: float = option(
        1e-3, "of Adam falling linearly to a tenth over the second half, else constant", above=0
    )
    variables: int = option(
        20, "choices of the categorical row (of the Bernoulli row: ten times as many bits)", at_least=1
    )
    classes: int = option(10, "items of each choice", at_least=3)
    hidden: int = option(
        200, "units between the choices and the pixels, in the categorical row", at_least=1
    )
    tau: float | None = option(
        None, "one temperature for columns that have one, instead of theirs", above=0
    )
    compile: bool = option(False, "compile the step: begins some seconds later, then takes less time")
    test_images: int = option(
        2000, "images that the final bound is measured on, evenly spaced", at_least=1
    )
    test_samples: int = option(1000, "m of the final bound", at_least=1)


PUBLISHED_ELBO = {
    "bernoulli": dict(zip(PUBLISHED, (112.2, 110.9, 109.7, 116.0, 111.5, 105.0, 111.5), strict=True)),
    "categorical": dict(zip(PUBLISHED, (110.6, 128.8, 107.0, 110.9, 107.8, 101.5, 107.8), strict=True)),
}


class Vae(nn.Module):
    """Encoder and decoder; the output's bias begins at the log-odds of the pixels' mean."""

    mean: Tensor
    slope: float | Tensor

    def __init__(self, layer: Layer, pixels: int, hidden: int | None, mean: Tensor) -> None:
        super().__init__()
        self.layer, self.slope = layer, 1.0
        self.encoder = nn.Linear(pixels, layer.size)
        inner = [nn.Linear(layer.size, hidden), nn.ReLU()] if hidden else []
        last = nn.Linear(hidden or layer.size, pixels)
        with torch.no_grad():
            last.bias.copy_(mean.clamp(0.01, 0.99).logit())
        self.decoder = nn.Sequential(*inner, last)
        self.register_buffer("mean", mean)

    def encode(self, x: Tensor) -> Tensor:
        """Flat scores of the latent variables."""
        scores = self.encoder(x - self.mean)
        return scores if isinstance(self.slope, float) and self.slope == 1.0 else self.slope * scores

    def cost(self, z: Tensor, x: Tensor) -> Tensor:
        r"""$-\log p(x|z)$ for flat samples `(S, batch, size)`."""
        pixels = self.decoder(z.flatten(0, -2))  # of matrices inductor makes better code
        return bernoulli_nll(pixels.unflatten(0, z.shape[:-1]), x)


def negative_elbo(
    model: Vae, estimator: Estimator, x: Tensor, noise: torch.Generator | None = None
) -> Tensor:
    """The training loss: an estimate of -ELBO, mean over the images."""
    law = model.layer.law(model.encode(x))
    cost = estimator(lambda z: model.cost(model.layer.flat(z), x), law, generator=noise)
    return (cost + model.layer.kl_to_uniform(law)).mean()


def layer_of(config: Config, row: str) -> Layer:
    """The latent variables of a row."""
    if row == "bernoulli":
        return Layer(config.variables * 10, 2)
    return Layer(config.variables, config.classes)


def cells(config: Config) -> list[Cell]:
    """One for every row and way."""
    return [
        Cell(row, column, PUBLISHED_ELBO[row].get(column))
        for row in config.rows
        for column in columns(config.columns, layer_of(config, row))
    ]


def train(config: Config, cell: Cell, run: Run) -> dict[str, float]:
    """Train one cell and measure its bound on test images."""
    images = load(config.data).binarized()
    layer = layer_of(config, cell.row)
    mean = images.train.float().mean(0)
    hidden = None if cell.row == "bernoulli" else config.hidden
    model = Vae(layer, images.side**2, hidden, mean)
    way = WAYS[cell.column](layer, config.steps)
    if config.tau is not None:
        way = at_temperature(cell.column, way, config.tau)
    parameters = [*model.parameters(), *way.module.parameters()]
    if config.optimizer == "adam":
        optimizer, final = Adam(parameters, config.learning_rate), 0.1
    else:
        optimizer, final = torch.optim.SGD(parameters, config.learning_rate, momentum=0.9), 1.0
    decay = Decay(optimizer, config.steps, final=final)
    batches, noise = Shuffled(images.train, config.batch, run.generator(1)), run.generator(2)
    if config.compile:  # which knows no generator but torch's own
        noise = torch.default_generator.manual_seed(noise.initial_seed())
    backward = gradients(negative_elbo, model, compiled=config.compile, pure=way.is_pure)
    state = {
        "model": model,
        "way": way.module,
        "optimizer": optimizer,
        "batches": batches,
        "noise": noise,
    }
    for step in run.steps(config.steps, **state):
        model.slope, estimator = way.at(step, traced=config.compile)
        optimizer.zero_grad()
        x = images.as_floats(batches.next())
        loss = backward(estimator, x, None if config.compile else noise)
        decay.step(step)
        run.log(loss=loss)
    model.slope = way.slope(config.steps)
    return evaluate(config, model, images, run)


def evaluate(config: Config, model: Vae, images: Images, run: Run) -> dict[str, float]:
    """The m-sample bound and the ELBO with hard choices, in nats an image, negated."""
    stride = max(len(images.test) // config.test_images, 1)
    test = images.as_floats(images.test[::stride][: config.test_images])
    g = run.generator(3)
    parts = [bound(model, x, config.test_samples, g) for x in test.split(10)]
    elbo, multi = (torch.cat(p).mean().item() for p in zip(*parts, strict=True))
    return {"-bound": -multi, "-ELBO": -elbo}


@torch.no_grad()
def bound(model: Vae, x: Tensor, samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    r"""ELBO and $\log \frac1m \sum_s p(x, z_s) / q(z_s|x)$ of hard samples, shape `(batch,)` each."""
    layer, scores = model.layer, model.encode(x)
    law = layer.law(scores)
    z = law.sample(torch.Size([samples]), generator=generator)
    log_prior = -layer.variables * math.log(layer.classes)
    weights = log_prior - model.cost(layer.flat(z), x) - law.log_prob(z)  # (m, batch)
    return weights.mean(0), weights.logsumexp(0) - math.log(samples)


RECIPE = Recipe(
    name="vae",
    title="VAE with discrete latent variables, every estimator",
    about=(
        "784-200-784 with 200 bits and 784-(20 x 10)-200-784 with twenty choices among ten, on MNIST binarised once. "
        "The table shows the bound of m = 1000 hard samples with the discrete prior. Differences from the paper: Adam "
        "instead of momentum (`--optimizer momentum` has it), one learning rate instead of a search, a stated number "
        "of steps (the paper's is not known), bits of the output begin at the pixels' log-odds."
    ),
    source="Jang, Gu and Poole 2017, Table 1",
    metric="-bound",
    unit="-log p(x), bound of m samples, nats",
    config=Config(),
    smoke=Config(
        data="digits",
        columns=("SF", "Gumbel-softmax", "ReinMax"),
        steps=40,
        batch=50,
        variables=4,
        classes=4,
        hidden=32,
        test_images=50,
        test_samples=20,
    ),
    full=Config(steps=500_000, compile=True, test_images=10_000),
    cells=cells,
    train=train,
    bands={
        "smoke": {("*", "*"): (15.0, 45.0)},
        "default": {
            # at most 5 nats above the published number; better than published is welcome
            ("categorical", "Gumbel-softmax"): (85.0, 106.5),
            ("categorical", "ST Gumbel-softmax"): (85.0, 112.8),
            ("categorical", "MuProp"): (85.0, 112.0),
        },
    },
    claims=claims,
    needs={"sklearn": "scikit-learn"},
)
