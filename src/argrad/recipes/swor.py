r"""Estimates from k sequences: with replacement, without, spread, or the k best.

$$ \mathbb{E} f \approx \sum_{s \in S} w_s f(s) $$

for the reward (BLEU against a target), the entropy ($f = -\log p$) and the gradient of the reward, from the same number
of model evaluations (Kool et al. 2019, 2020; Vilnis et al. 2023). The published curves are figures without numbers;
here every estimate is compared with the exact value, and unbiased ones are tested to be so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import argrad as ag
from argrad._errors import InputError
from argrad.recipes import charts, report
from argrad.recipes.bench import Cell, CellResult, Claim, Recipe, Run, Summary, option
from argrad.recipes.swor_models import Model, pronunciations, speller


@dataclass(frozen=True, kw_only=True)
class Config:
    """What can be set."""

    rows: tuple[str, ...] = option(("peaked", "flat", "pronunciations"), "models", selects=True)
    columns: tuple[str, ...] = option((), "only these columns", selects=True)
    k: tuple[int, ...] = option((2, 4, 8, 16), "numbers of sequences")
    rounds: int = option(20, "rounds of estimates", at_least=2)
    estimates: int = option(200, "estimates a round", at_least=2)
    train_steps: int = option(300, "of the model that is trained here", at_least=1)
    word: str = option("colonel", "whose pronunciations are drawn")
    reference: int = option(4096, "sequences that the reference value is made of", at_least=16)


TAU = {"peaked": 0.7, "flat": 2.0, "pronunciations": 1.0}


def model_of(config: Config, row: str) -> Model:
    """The model of a row."""
    if row == "pronunciations":
        return pronunciations(config.word, TAU[row])
    return speller(TAU[row], config.train_steps)


# ---- the ways ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """How sequences are drawn and weighed.

    Attributes:
        draw: `(model, rows, k, generator) -> sample`.
        options: of `expectation` and `surrogate`.
        unbiased: whether the mean of the estimates is the value.
    """

    draw: Callable[[Model, int, int, torch.Generator], Any]
    options: dict[str, Any]
    unbiased: bool = True


def _without(kind: str, *, unbiased: bool = True) -> Way:
    def draw(model: Model, rows: int, k: int, generator: torch.Generator) -> ag.SequenceSample:
        return ag.stochastic_beam_search(
            model.step, model.state(rows), k, generator=generator, **model.options
        )

    return Way(draw, {"kind": kind}, unbiased)


def _with(sampler: Callable[..., Any]) -> Way:
    def draw(model: Model, rows: int, k: int, generator: torch.Generator) -> Any:
        return sampler(model.step, model.state(rows), k, generator=generator, **model.options)

    return Way(draw, {})


BEAM = "beam search"
WAYS = {
    "Monte Carlo": _with(ag.ancestral_sample),
    "arithmetic": _with(ag.arithmetic_sample),
    "importance-weighted": _without("importance"),
    "normalized": _without("normalized", unbiased=False),
    "hindsight": _without("hindsight"),
    "sum and sample": _without("sum_and_sample"),
    "unordered set": _without("unordered"),
}
COLUMNS = (*WAYS, BEAM)


def values(model: Model, way: Way, sample: Any, generator: torch.Generator) -> Tensor:
    """The estimates of reward, entropy and gradient that a sample gives, `(rows, 2 + vocabulary)`."""
    noise = {"generator": generator} if "kind" in way.options else {}  # of hindsight
    reward = sample.expectation(model.reward(sample), **way.options, **noise)
    entropy = sample.entropy(**way.options, **noise)
    gradient = model.gradient(sample, **way.options, **noise)
    return torch.cat([reward[:, None], entropy[:, None], gradient], -1)


def exact(model: Model, count: int) -> Tensor:
    """From so many sequences that nothing, or next to nothing, is left out: `(2 + vocabulary,)`."""
    g = torch.Generator().manual_seed(0)
    way = WAYS["sum and sample"]  # no weights to integrate for
    return values(model, way, way.draw(model, 1, count, g), g)[0]


def beam_values(model: Model, k: int) -> Tensor:
    """The k best sequences, weighed by their probabilities: reward and entropy, no gradient."""
    found = ag.beam_search(model.step, model.state(1), k, **model.options)
    p = found.log_prob.softmax(-1)
    return torch.stack([(p * model.reward(found)).sum(), -(p * found.log_prob).sum()])


# ---- cells -------------------------------------------------------------------------------------------


def cells(config: Config) -> list[Cell]:
    """One for every model and way."""
    known = {name.lower(): name for name in COLUMNS}
    for name in config.columns:
        if name.lower() not in known:
            raise InputError(f"there is no column {name!r}; there are {', '.join(COLUMNS)}.")
    for row in config.rows:
        if row not in TAU:
            raise InputError(f"there is no row {row!r}; there are {', '.join(TAU)}.")
    wanted = {name.lower() for name in config.columns} or set(known)
    return [Cell(row, name) for row in config.rows for low, name in known.items() if low in wanted]


class Moments:
    """Sums of errors and of their squares, for every k."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.sums = torch.zeros(2, *shape, dtype=torch.float64)

    def add(self, i: int, errors: Tensor) -> None:
        """Errors `(rows, quantities)` of the i-th k."""
        self.sums[:, i] += torch.stack([errors.sum(0), errors.square().sum(0)])

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"sums": self.sums}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.sums = state["sums"]


def train(config: Config, cell: Cell, run: Run) -> dict[str, float]:
    """Estimate again and again, and compare with the exact values."""
    model = model_of(config, cell.row)
    truth = exact(model, config.reference)
    if cell.column == BEAM:
        return _beam_errors(model, config.k, truth[:2])
    way, noise = WAYS[cell.column], run.generator(1)
    moments = Moments((len(config.k), len(truth) + 1))
    slope = truth[2:] / truth[2:].norm()
    run.log_every = 1
    for _ in run.steps(config.rounds, moments=moments, noise=noise):
        for i, k in enumerate(config.k):
            g = torch.Generator().manual_seed(int(torch.randint(2**62, (1,), generator=noise)))
            sample = way.draw(model, config.estimates, k, g)
            errors = values(model, way, sample, g) - truth
            along = errors[:, 2:] @ slope  # the whole gradient as one number
            moments.add(i, torch.cat([errors, along[:, None]], -1))
            run.log(**{f"error of the reward, k = {k}": errors[:, 0].abs().mean()})
    return _errors(config, moments.sums)


def _errors(config: Config, sums: Tensor) -> dict[str, float]:
    n = config.rounds * config.estimates
    bias, square = sums / n  # (k, quantities)
    variance = (square - bias.square()).clamp(min=0) * (n / (n - 1))
    # of reward, entropy and the gradient along its own direction: a token that is hardly ever drawn has no normal law
    z = (bias.abs() / (variance / n).sqrt())[:, [0, 1, -1]]
    found: dict[str, float] = {}
    for i, k in enumerate(config.k):
        found[f"reward, k = {k}"] = square[i, 0].sqrt().item()
        found[f"entropy, k = {k}"] = square[i, 1].sqrt().item()
        found[f"gradient, k = {k}"] = square[i, 2:-1].sum().sqrt().item()
    at = min(range(len(config.k)), key=lambda i: abs(config.k[i] - 8))
    real = torch.isfinite(z) & (
        bias[:, [0, 1, -1]].abs() > 1e-9
    )  # else the value itself, up to rounding
    return {
        "error": found[f"reward, k = {config.k[at]}"],
        "largest |z|": z[real].max().item() if bool(real.any()) else 0.0,
        **found,
    }


def _beam_errors(model: Model, ks: Sequence[int], truth: Tensor) -> dict[str, float]:
    found: dict[str, float] = {}
    for k in ks:
        reward, entropy = (beam_values(model, k) - truth).abs().tolist()
        found |= {f"reward, k = {k}": reward, f"entropy, k = {k}": entropy}
    at = min(ks, key=lambda k: abs(k - 8))
    return {"error": found[f"reward, k = {at}"], **found}


# ---- the report --------------------------------------------------------------------------------------


def claims(summary: Summary) -> list[Claim]:
    """What the papers say, and that nothing flagged unbiased is biased."""
    found = []
    for row, name in (("peaked", "the peaked model"), ("pronunciations", "pronunciations")):
        ours, plain = summary.find(row, "unordered set"), summary.find(row, "Monte Carlo")
        if ours is None or plain is None:
            continue
        for what in ("reward", "gradient"):
            pairs = [(ours.mean(key), plain.mean(key)) for key in _keys(ours, what)]
            text = f"{name}: the unordered set has a smaller error of the {what} than Monte Carlo at every k"
            detail = ", ".join(f"{a:.3f} and {b:.3f}" for a, b in pairs)
            found.append(Claim(text, all(a < b for a, b in pairs), detail))
    for c in summary.cells:
        if c.cell.column in WAYS and WAYS[c.cell.column].unbiased:
            z = c.mean("largest |z|")
            text = f"{c.cell.row}: {c.cell.column} is unbiased"
            found.append(Claim(text, z < 4.5, f"largest |z| {z:.1f}"))
    return found


def _keys(c: CellResult, what: str) -> list[str]:
    return [name for name in c.metrics if name.startswith(f"{what}, k = ")]


def figures(summary: Summary) -> Sequence[str]:
    """The curves of the papers: error against k."""
    parts = [charts.legend(COLUMNS)]
    for row in dict.fromkeys(c.cell.row for c in summary.cells):
        drawn = []
        for what in ("reward", "entropy", "gradient"):
            lines = [_curve(c, what) for c in summary.cells if c.cell.row == row and _keys(c, what)]
            note = "root mean square error"
            drawn.append(
                charts.line_chart(lines, title=f"{row}: {what}", note=note, x_label="k", log_y=True)
            )
        parts.append("".join(drawn))
    text = "Beam search is deterministic; its error is bias. Below 1e-9 an estimate is exact."
    return [report.section("Error against the number of sequences", text, "".join(parts))]


def _curve(c: CellResult, what: str) -> charts.Series:
    names = _keys(c, what)
    x = [float(name.rpartition(" ")[2]) for name in names]
    y = [v if (v := c.mean(name)) > 1e-9 else math.nan for name in names]
    return charts.Series(c.cell.column, x, y, COLUMNS.index(c.cell.column))


RECIPE = Recipe(
    name="swor",
    title="Estimates from k sequences: with replacement, without, spread, or the k best",
    about=(
        "Reward (smoothed BLEU-2 against a target), entropy, and the gradient of the reward for the bias of the output "
        "layer, each from k sequences. Models: a GRU trained here on twelve words of four letters, sharpened (peaked, "
        "temperature 0.7) and flattened (temperature 2), whose 1365 sequences are all enumerated; and the "
        "letters-to-phonemes model of the package g2p-en for one word, with the value of 4096 different sequences as "
        "reference. The papers show curves for translation models that are not at hand; the methods are theirs."
    ),
    source="Kool, van Hoof and Welling 2019 and 2020; Shi, Bieber and Singh 2020; Vilnis et al. 2023 (figures)",
    metric="error",
    unit="root mean square error of the mean reward, k = 8",
    config=Config(),
    smoke=Config(rows=("peaked",), k=(2, 8), rounds=4, estimates=50, train_steps=100, reference=2048),
    full=Config(rounds=100),
    cells=cells,
    train=train,
    bands={"smoke": {("*", "*"): (0.0, 1.0)}, "default": {("*", "*"): (0.0, 0.5)}},
    claims=claims,
    figures=figures,
    digits=3,
)
