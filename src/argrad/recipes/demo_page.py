"""The report of the demo."""

from __future__ import annotations

import time

import torch

import argrad
from argrad.recipes import charts, machine, pictures, report
from argrad.recipes.charts import Series, number
from argrad.recipes.demo import Result, Run
from argrad.recipes.digits import SIDE, TRAIN
from argrad.recipes.ways import hard_sample

_SHOWN = 10  # digits in the rows of reconstructions
_TAUS = (5.0, 2.0, 1.0, 0.6, 0.3, 0.1, 0.05)
_PROBS = (0.05, 0.10, 0.18, 0.24, 0.20, 0.12, 0.07, 0.04)
_COUNT = (
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)


def render(result: Result) -> str:
    """The whole page."""
    config, runs = result.config, result.runs
    count = _COUNT[len(runs)] if len(runs) < len(_COUNT) else str(len(runs))
    lead = (
        f"A variational autoencoder has to describe each 8×8 digit by {config.latents} choices, each one of "
        f"{config.classes} items. A choice has no derivative, so something must stand in for it when the "
        f"encoder is trained. Here are {count} ways to do it, side by side: same first weights, same images in "
        "the same order, same number of steps. All are judged alike, by hard choices on digits they have "
        "not seen."
    )
    return report.page(
        eyebrow="argrad demo",
        title=f"Learning through a discrete choice, {count} ways",
        lead=lead,
        finding=_finding(runs),
        sections=[
            _results(runs),
            _curves(runs),
            _variance(result),
            _reconstructions(result),
            _strip(config.seed),
        ],
        command=_command(result),
        facts=_facts(result),
    )


def _finding(runs: list[Run]) -> str:
    best = min(runs, key=lambda r: r.test[-1])
    wide = max(runs, key=lambda r: r.test[-1] - r.train[-1])
    text = f"Best with hard choices: {best.way.name}, {best.test[-1]:.1f} nats an image."
    gap = wide.test[-1] - wide.train[-1]
    if wide is not best and gap > 1:
        text += (
            f" Mind the gap: {wide.way.name} reaches {wide.train[-1]:.1f} on its own training samples, but "
            f"{wide.test[-1]:.1f} on new digits once its choices are made hard."
        )
    return text


def _results(runs: list[Run]) -> str:
    rows = [
        report.Row(
            run.way.name,
            run.way.note,
            i,
            (run.train[-1], run.test[-1], run.test[-1] - run.train[-1], run.variance[-1], run.seconds),
        )
        for i, run in enumerate(runs)
    ]
    headers = ("Way", "train −ELBO", "test −ELBO", "gap", "gradient variance", "seconds")
    return report.section(
        "Results",
        "−ELBO in nats an image, lower is better: reconstruction plus exact KL to uniform choices. Training "
        "uses each way's own samples (relaxed ones, where it relaxes); the test always uses hard ones.",
        f'<div class="card">{report.table(headers, rows, best=(1,))}</div>',
    )


def _curves(runs: list[Run]) -> str:
    values = [v for run in runs for v in (*run.train, *run.test)]
    # the first points are far above all others and would flatten the rest
    late = [v for run in runs for v in (*run.train[1:], *run.test[1:])] or values
    scale = (min(values), max(late))
    train = [Series(r.way.name, r.steps, r.train, i) for i, r in enumerate(runs)]
    test = [Series(r.way.name, r.steps, r.test, i) for i, r in enumerate(runs)]
    return report.section(
        "Loss curves",
        "Both charts have the same scale. A way whose training curve lies far below its test curve has "
        "learnt to use the shades of grey between choices, which are gone when the choice is hard.",
        charts.legend([r.way.name for r in runs]),
        report.pair(
            charts.line_chart(
                train,
                title="Training −ELBO",
                note="on its own samples, nats",
                x_label="step",
                y_range=scale,
            ),
            charts.line_chart(
                test, title="Test −ELBO", note="on hard samples, nats", x_label="step", y_range=scale
            ),
        ),
    )


def _variance(result: Result) -> str:
    config, runs = result.config, result.runs
    variance = [Series(r.way.name, r.steps, r.variance, i) for i, r in enumerate(runs)]
    carried = [Series(r.way.name, r.steps, r.kl, i) for i, r in enumerate(runs)]
    text = (
        f"On {config.variance_images} fixed images, over {config.variance_draws} draws of the noise: the variance "
        "of the gradient that reaches the logits of an image. It grows as the choices begin to carry "
        "information, for then it matters which one was drawn. Variance is one half of the matter; the other "
        "is bias, which a single run does not show."
    )
    return report.section(
        "How noisy is the gradient?",
        text,
        charts.legend([r.way.name for r in runs]),
        report.pair(
            charts.line_chart(
                variance,
                title="Gradient variance",
                note="summed over the logits of an image, logarithmic",
                x_label="step",
                log_y=True,
            ),
            charts.line_chart(
                carried,
                title="Information in the choices",
                note="KL to uniform, nats an image",
                x_label="step",
            ),
        ),
    )


@torch.no_grad()
def _reconstructions(result: Result) -> str:
    x = result.test[:_SHOWN]
    rows = [("Original", x)]
    for run in result.runs:
        z = hard_sample(run.model.encode(x), torch.Generator().manual_seed(result.config.seed))
        rows.append((run.way.name, run.model.decode(z)))
    images = [(name, pixels.reshape(-1, SIDE, SIDE).numpy()) for name, pixels in rows]
    return report.section(
        "Reconstructions from hard samples",
        "Test digits, and what each decoder makes of one hard sample of the choices: the probability of black.",
        pictures.image_rows(images),
    )


def _strip(seed: int) -> str:
    logits = torch.tensor(_PROBS).log()

    def draw(noise: int, tau: float) -> list[float]:
        # the same generator state for every temperature: the same Gumbel noise
        return argrad.gumbel_softmax(
            logits, tau, generator=torch.Generator().manual_seed(noise)
        ).tolist()

    rows: dict[int, list[list[float]]] = {}  # by winner, so that the draws shown differ
    for noise in range(seed, seed + 100):
        row = [draw(noise, tau) for tau in _TAUS]
        if len(rows) < 4:
            rows.setdefault(row[0].index(max(row[0])), row)
    return report.section(
        "What the temperature does",
        f"Draws from one distribution over {len(_PROBS)} items. Along a row the Gumbel noise is the same and "
        "only the temperature falls: the winner stays, and the sample goes from soft to hard; a close race "
        "stays open longest.",
        pictures.bar_strip(
            [f"τ {number(t)}" for t in _TAUS],
            list(rows.values()),
            ("soft, smooth gradient", "hard, steep gradient"),
        ),
    )


def _command(result: Result) -> str:
    config = result.config
    limit = f"--steps {config.steps}" if config.steps else f"--seconds {number(config.seconds)}"
    return f"argrad demo {limit} --seed {config.seed}"


def _facts(result: Result) -> dict[str, str]:
    config = result.config
    estimators = [run.way.name for run in result.runs if run.way.estimator is not None]
    return {
        "Training": f"{result.steps:,} steps a way, batches of {config.batch}, Adam at {config.learning_rate:g}",
        "Model": f"{config.latents} × {config.classes} choices, {config.hidden} hidden units",
        "Data": f"{TRAIN:,} digits to train on, {len(result.test)} to test",
        "Time": f"{result.seconds:.0f} s in all, one thread",
        **machine.described(),
        "Papers": " ".join(["argrad cite gumbel_softmax StraightThrough", *estimators]),
        "Written": time.strftime("%d %B %Y, %H:%M"),
    }
