r"""Calibration of a small classifier: expected calibration error before and after, by four nested methods.

$$ \max_q \sum_i H(q_i) \ \text{s.t. predictions and labels agree in some averages}
   \quad\Rightarrow\quad q_i = \mathrm{softmax}_k \textstyle\sum_m \lambda_m \varphi_m(z_i, k) $$

Digits of which the pixels are too noisy to read make a network too sure; one temperature cures that. With wrong labels
instead the network is rightly sure of its digit and wrong about the label as often: the likelihood improves, the
calibration error need not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import argrad as ag
from argrad._errors import InputError
from argrad.calibration import ClassFrequency, ClassLogit, MeanLogit, ace, brier, ece, nll, reliability
from argrad.recipes.bench import Cell, Claim, Recipe, Run, Summary, option
from argrad.recipes.charts import Series, legend, line_chart
from argrad.recipes.data import load
from argrad.recipes.report import Row, pair, section, table
from argrad.recipes.training import Shuffled

ROWS = ("pixel noise", "label noise")
Fit = Callable[[Tensor, Tensor], Callable[[Tensor], Tensor]]
WAYS: dict[str, Fit] = {
    "as trained": lambda z, y: lambda z: z,
    "temperature": lambda z, y: ag.TemperatureScaling().fit(z, y),
    "temperature and biases": lambda z, y: ag.MaxEntCalibrator([MeanLogit(), ClassFrequency()]).fit(
        z, y
    ),
    "vector scaling": lambda z, y: ag.MaxEntCalibrator([ClassLogit(), ClassFrequency()]).fit(z, y),
}
BINS = 10


@dataclass(frozen=True, kw_only=True)
class Config:
    """What can be set."""

    rows: tuple[str, ...] = option(ROWS, "kinds of noise", selects=True)
    pixel_noise: float = option(0.45, "deviation of the noise on pixels from 0 to 1", at_least=0)
    label_noise: float = option(0.3, "share of labels drawn anew", at_least=0)
    train: int = option(600, "digits to train on, and as many to calibrate with", at_least=10)
    hidden: int = option(128, "units of each of two hidden layers", at_least=1)
    steps: int = option(600, "training steps", at_least=1)
    batch: int = option(64, "digits a step", at_least=1)
    learning_rate: float = option(1e-3, "of Adam", above=0)


def cells(config: Config) -> list[Cell]:
    """One for every kind of noise and way."""
    for row in config.rows:
        if row not in ROWS:
            raise InputError(f"there is no row {row!r}; there are {', '.join(ROWS)}.")
    return [Cell(row, way) for row in config.rows for way in WAYS]


def noisy_digits(config: Config, row: str, g: torch.Generator) -> tuple[Tensor, Tensor]:
    """All digits in random order, with noise on pixels or labels."""
    images = load("digits")
    x = images.as_floats(torch.cat([images.train, images.valid, images.test]))
    y = torch.cat(images.labels).long()
    order = torch.randperm(len(x), generator=g)
    x, y = x[order], y[order]
    if row == "pixel noise":
        return x + config.pixel_noise * torch.randn(x.shape, generator=g), y
    wrong = torch.rand(y.shape, generator=g) < config.label_noise
    return x, torch.where(wrong, torch.randint(10, y.shape, generator=g), y)


def train(config: Config, cell: Cell, run: Run) -> dict[str, float]:
    """Train, calibrate on held-out digits, measure on others."""
    (held_out, known), (logits, labels) = classify(config, cell.row, run)
    calibrate = WAYS[cell.column](held_out, known)
    return measure(calibrate(logits), logits, labels)


def classify(config: Config, row: str, run: Run) -> list[tuple[Tensor, Tensor]]:
    """Logits and labels of the digits to calibrate with, and of those to measure on, by a trained network."""
    x, y = noisy_digits(config, row, run.generator(1))
    n, hidden = config.train, config.hidden
    model = nn.Sequential(
        *(nn.Linear(x.shape[1], hidden), nn.ReLU()),
        *(nn.Linear(hidden, hidden), nn.ReLU()),
        nn.Linear(hidden, 10),
    )
    optimizer = torch.optim.Adam(model.parameters(), config.learning_rate)
    batches = Shuffled((x[:n], y[:n]), config.batch, run.generator(2))
    for _ in run.steps(config.steps, model=model, optimizer=optimizer, batches=batches):
        images, labels = batches.next()
        loss = cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log(loss=loss)
    with torch.no_grad():
        return [(model(x[part]), y[part]) for part in (slice(n, 2 * n), slice(2 * n, None))]


def measure(calibrated: Tensor, logits: Tensor, labels: Tensor) -> dict[str, float]:
    """Errors in percent, scores in nats, and the reliability curve."""
    bins = reliability(calibrated, labels, bins=BINS)
    curve = {
        f"{name} {i}": value
        for name in ("confidence", "accuracy")
        for i, value in enumerate(getattr(bins, name).tolist())
    }
    return {
        "ECE": 100 * ece(calibrated, labels).item(),
        "ACE": 100 * ace(calibrated, labels).item(),
        "NLL": nll(calibrated, labels).item(),
        "Brier": brier(calibrated, labels).item(),
        "right": 100 * (calibrated.argmax(-1) == labels).float().mean().item(),
        "scale": float((calibrated.std(-1) / logits.std(-1)).mean()),  # 1/T
        **curve,
    }


def claims(summary: Summary) -> list[Claim]:
    """What temperature scaling is known for, and where it ends."""
    found = []
    for row in summary.rows:
        before, after = summary[row, "as trained"], summary[row, "temperature"]
        values = f"{before.mean('NLL'):.2f} to {after.mean('NLL'):.2f}"
        found.append(
            Claim(
                f"{row}: a temperature improves the likelihood",
                after.mean("NLL") < before.mean("NLL"),
                values,
            )
        )
        same = abs(before.mean("right") - after.mean("right")) < 1e-6
        found.append(
            Claim(
                f"{row}: it leaves the predicted classes alone",
                same,
                f"{after.mean('right'):.1f} % right",
            )
        )
    if "pixel noise" in summary.rows:
        before, after = (summary["pixel noise", way].mean() for way in ("as trained", "temperature"))
        text = "pixel noise: the calibration error falls to a third"
        found.append(Claim(text, after < before / 3, f"{before:.1f} % to {after:.1f} %"))
    if "label noise" in summary.rows:
        before, after = (summary["label noise", way].mean() for way in ("as trained", "temperature"))
        text = "label noise: it does not, although the likelihood improves"
        found.append(Claim(text, after > before / 3, f"{before:.1f} % to {after:.1f} %"))
    return found


def figures(summary: Summary) -> Sequence[str]:
    """Reliability curves, and the other numbers."""
    return [
        section(
            "Confidence and accuracy",
            "Predictions in ten bins of confidence: their mean confidence and the share that is right. On the diagonal "
            "a prediction of 70 % is right seven times in ten; below it the network is too sure.",
            legend([*summary.columns, "perfect"]),
            pair(*(_curves(summary, row) for row in summary.rows)),
        ),
        section(
            "All numbers",
            "NLL and Brier score are proper scores: they are best for the true probabilities alone. ECE and ACE look "
            "at calibration only, in bins.",
            *(_numbers(summary, row) for row in summary.rows),
        ),
    ]


def _curves(summary: Summary, row: str) -> str:
    lines = []
    for i, column in enumerate(summary.columns):
        cell = summary[row, column]
        x, y = ([cell.mean(f"{name} {b}") for b in range(BINS)] for name in ("confidence", "accuracy"))
        lines.append(Series(column, x, y, i))
    lines.append(Series("perfect", [0.0, 1.0], [0.0, 1.0], len(lines)))
    return line_chart(lines, title=row, note="accuracy", x_label="confidence", y_range=(0.0, 1.0))


def _numbers(summary: Summary, row: str) -> str:
    names = ("ECE", "ACE", "NLL", "Brier", "right", "scale")
    headers = (row, "ECE %", "ACE %", "NLL", "Brier", "right %", "1/T")
    rows = [
        Row(c, "", i, [summary[row, c].mean(n) for n in names]) for i, c in enumerate(summary.columns)
    ]
    return table(headers, rows, best=(0, 1, 2, 3))


RECIPE = Recipe(
    name="calibrate",
    title="Calibration of a digit classifier by maximum entropy: temperature, biases, vector scaling",
    about=(
        "A network with two hidden layers learns 600 of scikit-learn's digits, with noise on the pixels or with wrong "
        "labels; 600 others calibrate it, and 597 measure. The methods are one convex problem with more and more "
        "constraints. Guo et al. report a fall of the expected calibration error from 16.5 % to 1.3 % for a ResNet on "
        "CIFAR-100; this is the same experiment at a size that takes seconds, so there is no published number to meet."
    ),
    source="after Guo, Pleiss, Sun and Weinberger 2017, Table 1; lecture of R. Xu, 2019 (the derivation)",
    metric="ECE",
    unit="expected calibration error on test digits, %",
    config=Config(),
    smoke=Config(steps=150),
    full=Config(steps=1500),
    cells=cells,
    train=train,
    bands={
        "smoke": {("pixel noise", "*"): (0.0, 25.0), ("label noise", "*"): (0.0, 30.0)},
        "default": {
            ("pixel noise", "as trained"): (15.0, 28.0),
            ("pixel noise", "*"): (2.0, 10.0),
            ("label noise", "*"): (5.0, 22.0),
        },
        "full": {("pixel noise", "as trained"): (19.0, 33.0), ("pixel noise", "*"): (2.0, 11.0)},
    },
    claims=claims,
    figures=figures,
    needs={"sklearn": "scikit-learn"},
)
