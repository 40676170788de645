"""The columns of the tables: ways of getting a gradient through a layer of discrete variables.

The first seven are those of Jang et al.; the others came later or were left out there. To add one, add a line to
`WAYS`; every recipe of this family then has the column.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace

import torch
from torch import Tensor, nn

import argrad as ag
from argrad._errors import InputError
from argrad.estimators.base import Cost, Estimator
from argrad.recipes.bench import Claim, Summary


@dataclass(frozen=True)
class Layer:
    """A layer of independent discrete variables: `variables` choices among `classes`, or bits if that is 2."""

    variables: int
    classes: int

    @property
    def size(self) -> int:
        """Numbers that a sample has, and scores that the law takes."""
        return self.variables if self.classes == 2 else self.variables * self.classes

    def law(self, scores: Tensor) -> ag.Gibbs:
        """The law of the layer for flat scores `(*batch, size)`; one event an example."""
        if self.classes == 2:
            return ag.Gibbs(ag.Bits(), scores)
        return ag.Gibbs(ag.OneHot(), scores.unflatten(-1, (self.variables, self.classes))).independent(
            1
        )

    def flat(self, z: Tensor) -> Tensor:
        """A sample as one row of numbers for the next layer."""
        return z if self.classes == 2 else z.flatten(-2)

    def kl_to_uniform(self, law: ag.Gibbs) -> Tensor:
        r"""$\mathrm{KL}(q \| u) = \sum_i \log K - H(q_i)$, exact, shape `(*batch,)`."""
        return self.variables * math.log(self.classes) - law.entropy()


@dataclass
class Way:
    """How a gradient gets through one layer.

    Attributes:
        estimator: for a step of training; the same object each time if it learns something.
        slope: by which the model multiplies its scores at a step (slope annealing), and after the last one for good.
    """

    estimator: Callable[[int], Estimator]
    slope: Callable[[int], float] = field(default=lambda step: 1.0)

    def expected(
        self, f: Cost, layer: Layer, law: ag.Gibbs, step: int, generator: torch.Generator
    ) -> Tensor:
        """An estimate of E f whose backward pass is this way's gradient; `f` takes flat samples."""
        return self.estimator(step)(lambda z: f(layer.flat(z)), law, generator=generator)

    def at(self, step: int, *, traced: bool = False) -> tuple[float | Tensor, Estimator]:
        """Slope and estimator of a step; what changes from step to step as tensors, if compiled code is to have it."""
        slope, estimator = self.slope(step), self.estimator(step)
        if traced and self.slope(0) != self.slope(step + 1):
            slope = torch.tensor(slope)
        if traced and is_dataclass(estimator) and estimator is not self.estimator(step):
            estimator = replace(estimator, tau=torch.tensor(estimator.tau))  # type: ignore[attr-defined]
        return slope, estimator

    @property
    def is_pure(self) -> bool:
        """Whether the estimator keeps and trains nothing."""
        return not isinstance(self.estimator(0), nn.Module)

    @property
    def module(self) -> nn.Module:
        """What the estimator itself trains or keeps, for the optimiser and the checkpoint."""
        estimator = self.estimator(0)
        return estimator if isinstance(estimator, nn.Module) else nn.Identity()


def _fixed(make: Callable[[Layer], Estimator]) -> Callable[[Layer, int], Way]:
    def build(layer: Layer, steps: int) -> Way:
        estimator = make(layer)
        return Way(lambda step: estimator)

    return build


def _annealed(make: Callable[[float], Estimator]) -> Callable[[Layer, int], Way]:
    """Temperature max(0.5, exp(-r t)) with r such that the floor is reached at 70 % of the run."""

    def build(layer: Layer, steps: int) -> Way:
        schedule = ag.schedules.Exponential(rate=math.log(2) / max(0.7 * steps, 1), every=500)
        return Way(lambda step: make(float(schedule(step))))

    return build


def _slope_annealed(layer: Layer, steps: int) -> Way:
    """Straight-through with a slope that grows from 1 to 3, as in the hierarchical RNN of Chung et al."""
    estimator = ag.StraightThrough()
    return Way(lambda step: estimator, slope=lambda step: 1.0 + 2.0 * step / max(steps, 1))


def _network(layer: Layer, hidden: int = 100) -> nn.Module:
    return nn.Sequential(nn.Linear(layer.size, hidden), nn.Tanh(), nn.Linear(hidden, 1))


WAYS: dict[str, Callable[[Layer, int], Way]] = {
    # no variance normalisation: the KL is exact and not part of the signal, so dividing the signal would favour the KL
    "SF": _fixed(lambda layer: ag.Nvil()),
    "DARN": _fixed(lambda layer: ag.Darn()),
    "MuProp": _fixed(lambda layer: ag.MuProp()),
    "ST": _fixed(lambda layer: ag.StraightThrough()),
    "Annealed ST": _slope_annealed,
    "Gumbel-softmax": _annealed(lambda tau: ag.Relaxed(tau=tau)),
    "ST Gumbel-softmax": _annealed(lambda tau: ag.GumbelST(tau=tau)),
    "NVIL": _fixed(lambda layer: ag.Nvil(_network(layer))),
    "LeaveOneOut(4)": _fixed(lambda layer: ag.LeaveOneOut(4)),
    "REBAR": _fixed(lambda layer: ag.Rebar()),
    "RELAX": _fixed(lambda layer: ag.Relax(_network(layer))),
    "ARM": _fixed(lambda layer: ag.Arm()),
    "DisARM": _fixed(lambda layer: ag.DisArm()),
    "UnorderedSet(4)": _fixed(lambda layer: ag.UnorderedSet(4)),
    "SumAndSample(4)": _fixed(lambda layer: ag.SumAndSample(4)),
    "ReinMax": _fixed(lambda layer: ag.ReinMax()),
    "Gumbel-Rao(10)": _fixed(lambda layer: ag.GumbelRao()),
    "Gapped ST": _fixed(lambda layer: ag.GappedST()),
    "Decoupled ST": _fixed(lambda layer: ag.DecoupledST()),
    "ReinMax-CV": _fixed(lambda layer: ag.ReinMaxCV()),
    "I-MLE": _fixed(lambda layer: ag.Imle()),
    "Adaptive I-MLE": _fixed(lambda layer: ag.AdaptiveImle()),
    "Perturbed(10)": _fixed(lambda layer: ag.PerturbedOptimizer()),
    "Identity": _fixed(lambda layer: ag.Identity()),
    "Blackbox": _fixed(lambda layer: ag.Blackbox()),
}
PUBLISHED = tuple(WAYS)[:7]
BITS_ONLY = ("ARM",)
LISTED = ("UnorderedSet(4)", "SumAndSample(4)")  # draw without replacement from a list of all values
LONGEST_LIST = 4096


ALIASES = {"gs": "Gumbel-softmax", "st-gs": "ST Gumbel-softmax", "loo": "LeaveOneOut(4)"}  # for a sweep


def at_temperature(name: str, way: Way, tau: float) -> Way:
    """The way with one temperature throughout, for the columns that have one."""
    estimator = way.estimator(0)
    if not (is_dataclass(estimator) and any(f.name == "tau" for f in fields(estimator))):
        raise InputError(f"the column {name!r} has no temperature. Leave out --tau, or the column.")
    warm = replace(estimator, tau=tau)
    return replace(way, estimator=lambda step: warm)


def columns(chosen: tuple[str, ...], layer: Layer) -> Iterator[str]:
    """The names in `chosen` (all if empty) that are defined for the layer; an unknown one is a sentence."""
    known = {name.lower(): name for name in WAYS} | ALIASES
    for name in chosen:
        if name.lower() not in known:
            raise InputError(f"there is no column {name!r}; there are {', '.join(WAYS)}.")
    wanted = {known[name.lower()] for name in chosen} or set(WAYS)
    left_out = () if layer.classes == 2 else BITS_ONLY
    if layer.classes**layer.variables > LONGEST_LIST:
        left_out += LISTED
    return (name for name in WAYS if name in wanted and name not in left_out)


def claims(summary: Summary) -> list[Claim]:
    """The ordering that the papers report for the categorical row, of the columns that were trained."""
    trained = {c.cell.column: c.mean() for c in summary.cells if c.cell.row == "categorical"}
    best = trained.get("Gumbel-softmax")
    return [
        Claim(f"categorical: Gumbel-softmax below {name}", best < value, f"{best:.1f} and {value:.1f}")
        for name, value in trained.items()
        if best is not None and name in ("SF", "DARN", "ST")
    ]
