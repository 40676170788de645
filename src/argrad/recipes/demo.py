"""The demo: one small VAE with discrete latent variables, trained with every way of getting a gradient.

Everything is the same for all ways: the first weights, the order of the images, the number of steps. They
differ only in how a gradient reaches the encoder through ten choices among ten. All are judged alike,
by hard choices on images they have not seen.
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from argrad.recipes.bench.run import threads
from argrad.recipes.digits import CategoricalVAE, load_digits
from argrad.recipes.files import write_text
from argrad.recipes.live import Line, Progress, Table, progress
from argrad.recipes.ways import Way, all_ways, hard_sample

TABLE = Table(
    "argrad demo: a categorical VAE on 8x8 digits",
    ("way", "train -ELBO", "test -ELBO", "gradient variance", "seconds"),
)


@dataclass(frozen=True, kw_only=True)
class Config:
    """What can be set; the defaults are those of `argrad demo`."""

    seed: int = 0
    seconds: float = 60.0  # for everything, unless `steps` is given
    steps: int | None = None  # training steps a way; None: as many as the time allows
    most_steps: int = 6000  # more only overfit 1500 images
    points: int = 30  # measurements along each curve
    latents: int = 10  # choices that describe an image
    classes: int = 10  # items of each choice
    hidden: int = 128  # units of the one hidden layer of encoder and decoder
    batch: int = 100  # images a step
    learning_rate: float = 3e-3  # of Adam
    test_draws: int = 4  # samples of z for each test image
    variance_images: int = 32  # fixed batch on which the gradient's variance is measured
    variance_draws: int = 32  # draws of the noise there


@dataclass
class Run:
    """One way in training, and what was measured on the way."""

    way: Way
    model: CategoricalVAE
    optimizer: torch.optim.Optimizer
    order: torch.Generator  # of the images
    noise: torch.Generator
    step: int = 0
    seconds: float = 0.0  # spent on training steps
    steps: list[int] = field(default_factory=list)  # at which these were measured
    train: list[float] = field(
        default_factory=list
    )  # -ELBO on its own samples, mean since the last point
    test: list[float] = field(default_factory=list)  # -ELBO with hard samples
    variance: list[float] = field(default_factory=list)  # of the gradient for the logits
    kl: list[float] = field(default_factory=list)  # nats that the choices carry about a test image

    def line(self) -> Line:
        """The newest numbers."""
        last = [
            curve[-1] if curve else float("nan") for curve in (self.train, self.test, self.variance)
        ]
        return Line(self.way.name, [*last, self.seconds])


@dataclass(frozen=True)
class Result:
    """Everything the report shows."""

    config: Config
    runs: list[Run]
    steps: int
    seconds: float
    test: Tensor


def main(config: Config, out: Path, *, quiet: bool = False, started: float | None = None) -> Result:
    """Train all ways, show progress, write the report to `out`; the time counts from `started` on."""
    from argrad.recipes.demo_page import render

    started = time.perf_counter() if started is None else started
    with progress(TABLE, quiet=quiet) as show:
        result = train_all(config, show, started)
    write_text(out, render(result), advice="Free some space or choose another --out.")
    show.say(f"{result.steps} steps a way in {result.seconds:.0f} s. Report: {out}")
    if config.steps is None and result.steps < _TELLING:
        show.say(
            "That is too few to tell the ways apart: the machine is slow, or busy with something else. "
            f"More time: argrad demo --seconds {5 * config.seconds:.0f}"
        )
    return result


def train_all(config: Config, show: Progress, started: float) -> Result:
    """All ways side by side, a stretch of each in turn, so that stopping early is fair to all."""
    with threads(1):  # matrices this small gain nothing from a second one
        data = load_digits(config.seed)
        steps, points = (config.steps, config.points) if config.steps else plan(config, data, started)
        runs = [start(config, way) for way in all_ways(steps)]
        points = min(points, steps)
        first = time.perf_counter()
        for i in range(1, points + 1):
            for run in runs:
                advance(config, run, data[0], steps * i // points)
                measure(config, run, data)
                show.update([r.line() for r in runs], sum(r.step for r in runs), steps * len(runs))
            if config.steps is None and _too_late(config, started, first, i):
                break
    show.finish([r.line() for r in runs])
    return Result(config, runs, runs[0].step, time.perf_counter() - started, data[1])


def start(config: Config, way: Way) -> Run:
    """The same first weights and the same order of images for every way."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = CategoricalVAE(config.latents, config.classes, config.hidden)
    parameters = [*model.parameters(), *way.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=config.learning_rate)
    order = torch.Generator().manual_seed(config.seed + 1)
    noise = torch.Generator().manual_seed(config.seed + 2)
    return Run(way, model, optimizer, order, noise)


def advance(config: Config, run: Run, images: Tensor, goal: int) -> None:
    """Train up to step `goal`."""
    begin = time.perf_counter()
    first, total = run.step, torch.zeros(())
    while run.step < goal:
        x = images[torch.randint(len(images), (config.batch,), generator=run.order)]
        logits = run.model.encode(x)
        cost = run.way.expected_cost(run.model.cost(x), logits, run.step, run.noise)
        loss = (cost + run.model.kl(logits)).mean()  # -ELBO
        run.optimizer.zero_grad()
        loss.backward()
        run.optimizer.step()
        total += loss.detach()
        run.step += 1
    run.seconds += time.perf_counter() - begin
    run.train.append(float(total) / max(run.step - first, 1))


def measure(config: Config, run: Run, data: tuple[Tensor, Tensor]) -> None:
    """Add a point to the curves, with noise that is the same at every point and for every way."""
    train, test = data
    run.steps.append(run.step)
    cost, kl = hard_negative_elbo(run.model, test, config.test_draws, config.seed)
    run.test.append(cost + kl)
    run.kl.append(kl)
    run.variance.append(gradient_variance(config, run, train[: config.variance_images]))


@torch.no_grad()
def hard_negative_elbo(model: CategoricalVAE, x: Tensor, draws: int, seed: int) -> tuple[float, float]:
    """The two terms of -ELBO in nats an image, with hard choices: what the model is worth in use."""
    logits = model.encode(x)
    generator = torch.Generator().manual_seed(seed)
    z = hard_sample(logits.expand(draws, *logits.shape), generator)
    return float(model.cost(x)(z).mean()), float(model.kl(logits).mean())


def gradient_variance(config: Config, run: Run, x: Tensor) -> float:
    """Variance over the noise of the gradient for an image's logits, summed over them, mean over images."""
    draws = config.variance_draws
    logits = run.model.encode(x).detach().repeat(draws, 1, 1).requires_grad_()  # (draws * images, L, K)
    way = copy.deepcopy(run.way)  # a running baseline must not learn from being looked at
    generator = torch.Generator().manual_seed(config.seed)
    cost = way.expected_cost(run.model.cost(x.repeat(draws, 1)), logits, run.step, generator)
    (grad,) = torch.autograd.grad(cost.sum(), logits)
    return float(grad.unflatten(0, (draws, len(x))).var(0).sum((-2, -1)).mean())


# ---- time ----------------------------------------------------------------------------------------

_TELLING = 200  # steps a way before the curves part
_RESERVE = 1.0  # seconds for the last measurements and the report


def plan(config: Config, data: tuple[Tensor, Tensor], started: float) -> tuple[int, int]:
    """How many steps and points a way fit into the time, from the speed of a few; compiles the kernels."""
    training = measuring = 0.0
    trial = 20
    for way in all_ways(trial):
        run = start(config, way)
        advance(config, run, data[0], 2)  # the first step compiles
        run.seconds = 0.0
        advance(config, run, data[0], 2 + trial)
        training += run.seconds / trial
        begin = time.perf_counter()
        measure(config, run, data)
        measuring += time.perf_counter() - begin
    left = 0.92 * (config.seconds - _RESERVE - (time.perf_counter() - started))
    points = min(max(int(0.25 * left / measuring), 1), config.points)
    steps = int((left - measuring * points) / training)
    return min(max(steps, 1), config.most_steps), points


def _too_late(config: Config, started: float, first: float, done: int) -> bool:
    """Whether another stretch would end after the time is up (the machine has become slower)."""
    now = time.perf_counter()
    return now - started + (now - first) / done > config.seconds - _RESERVE
