r"""Measure gradient estimators on your own cost: bias, variance, error, time.

Which estimator is best depends on the cost; a league table on somebody else's problem does not tell.
`diagnose` runs each on `f` and `q` many times and compares with the exact gradient; `race` asks which has the
least error when all get the same time.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from argrad import random
from argrad._checks import check_count
from argrad._errors import InputError, UnsupportedError
from argrad._types import Generator
from argrad.estimators.base import Cost, Estimator
from argrad.estimators.exact import Exact
from argrad.estimators.leave_one_out import LeaveOneOut
from argrad.estimators.local_expectation import LocalExpectation
from argrad.structured import StructuredDistribution
from argrad.testing.statistics import z_bound


@dataclass(frozen=True)
class Row:
    """One estimator's figures.

    Attributes:
        name: of the estimator.
        relative_bias: |mean - exact| / |exact|, over all coordinates.
        max_z: the largest |mean - exact| in standard errors.
        verdict: `"unbiased"`, `"biased"`, or `"refused: ..."`.
        variance: of one estimate, summed over coordinates.
        mse: bias squared plus variance.
        cosine: mean cosine between one estimate and the exact gradient.
        evaluations: of `f`, an item and an estimate.
        milliseconds: an estimate (all replicates run at once, so without call overhead).
    """

    name: str
    relative_bias: float
    max_z: float
    verdict: str
    variance: float
    mse: float
    cosine: float
    evaluations: int
    milliseconds: float


@dataclass(frozen=True)
class Report:
    """What `diagnose` measured.

    Attributes:
        rows: one an estimator.
        oracle: where the "exact" gradient comes from.
        oracle_error: its own standard error, relative; 0 for enumeration.
        replicates: estimates behind each row.

    Examples:
        >>> import torch, argrad as ag
        >>> q = ag.Gibbs(ag.OneHot(), torch.zeros(3))
        >>> report = ag.diagnose(lambda z: z[..., 0], q, [ag.Exact()], replicates=2)
        >>> report.oracle, report.rows[0].verdict
        ('enumeration', 'unbiased')
    """

    rows: tuple[Row, ...]
    oracle: str
    oracle_error: float
    replicates: int

    def table(self) -> str:
        """A table for the terminal."""
        head = ("estimator", "bias", "max |z|", "verdict", "variance", "MSE", "cosine", "evals", "ms")
        lines: list[tuple[str, ...]] = [head]
        for r in self.rows:
            if r.verdict.startswith("refused"):
                lines.append((r.name, "", "", r.verdict, "", "", "", "", ""))
                continue
            numbers = (f"{r.relative_bias:.3f}", f"{r.max_z:.1f}", r.verdict, f"{r.variance:.3g}")
            rest = (f"{r.mse:.3g}", f"{r.cosine:.2f}", str(r.evaluations), f"{r.milliseconds:.3f}")
            lines.append((r.name, *numbers, *rest))
        return _align(lines) + f"\noracle: {self.oracle}; {self.replicates} replicates"

    def to_json(self) -> str:
        """The same as JSON text."""
        return json.dumps(asdict(self), indent=2)

    def plot(self, ax: Any = None) -> Any:
        """Bias against standard deviation, one point an estimator (needs matplotlib)."""
        from argrad.plot import bias_variance

        return bias_variance(self, ax=ax)

    def __str__(self) -> str:
        return self.table()


def diagnose(
    f: Cost,
    q: StructuredDistribution,
    estimators: Sequence[Estimator] | Mapping[str, Estimator],
    *,
    replicates: int = 2000,
    generator: Generator = None,
) -> Report:
    r"""Compare estimators of $\nabla \mathbb{E}_q f$ with the exact gradient.

    The exact gradient is by enumeration where the vertices can be listed; otherwise by local
    expectation or by a large leave-one-out run, and the report says which and how accurate it is.

    Args:
        f: the cost, `(S, *batch, *event) -> (S, *batch)`; must accept one more batch dimension in front
            (any cost that broadcasts does), else replicates run one by one.
        q: the law.
        estimators: a list, or a mapping from names.
        replicates: independent estimates of each.
        generator: source of randomness.

    Examples:
        >>> import torch, argrad as ag
        >>> q = ag.Gibbs(ag.OneHot(), torch.tensor([0.3, -0.5, 0.2]))
        >>> cost = lambda z: (z * torch.tensor([1.0, 4.0, 2.0])).sum(-1) ** 3
        >>> report = ag.diagnose(cost, q, [ag.LeaveOneOut(4), ag.StraightThrough()], replicates=500)
        >>> [row.verdict for row in report.rows]
        ['unbiased', 'biased']
    """
    check_count("diagnose", "replicates", replicates, 2, None, "Thousands tell most.")
    exact, oracle, error = _oracle(f, q, generator)
    named = _named(estimators)
    rows = [_row(n, e, f, q, exact, error, replicates, generator) for n, e in named.items()]
    size = exact.norm().item()
    relative = error.norm().item() / size if size else 0.0
    return Report(tuple(rows), oracle, relative, replicates)


def race(
    f: Cost,
    q: StructuredDistribution,
    estimators: Sequence[Estimator] | Mapping[str, Estimator],
    *,
    milliseconds: float | None = None,
    replicates: int = 2000,
    generator: Generator = None,
) -> Race:
    r"""Which estimator has the least error when all get the same time.

    Averaging as many estimates as fit in the budget divides the variance, not the bias:
    $\mathrm{MSE}(t) = \mathrm{bias}^2 + \mathrm{variance} \cdot t_1 / t$.

    Args:
        f: as `diagnose`.
        q: as `diagnose`.
        estimators: as `diagnose`.
        milliseconds: the budget an update; None is the slowest estimator's time for one estimate.
        replicates: as `diagnose`.
        generator: source of randomness.

    Examples:
        >>> import torch, argrad as ag
        >>> q = ag.Gibbs(ag.OneHot(), torch.zeros(3))
        >>> outcome = ag.race(lambda z: z[..., 0], q, [ag.LeaveOneOut(2), ag.Reinforce()], replicates=50)
        >>> outcome.best in ("LeaveOneOut", "Reinforce")
        True
    """
    report = diagnose(f, q, estimators, replicates=replicates, generator=generator)
    rows = [r for r in report.rows if not r.verdict.startswith("refused")]
    if not rows:
        raise UnsupportedError("`race`: none of the estimators works with this distribution.")
    budget = milliseconds or max(r.milliseconds for r in rows)
    error = {r.name: max(r.mse - r.variance, 0.0) + r.variance * r.milliseconds / budget for r in rows}
    order = sorted(error, key=lambda name: error[name])
    return Race(report, budget, {name: error[name] for name in order}, order[0])


@dataclass(frozen=True)
class Race:
    """The outcome of `race`: error at equal time, best first.

    Attributes:
        report: the figures behind it.
        milliseconds: the budget.
        mse: name -> mean squared error within the budget, rising.
        best: the first name.

    Examples:
        >>> import torch, argrad as ag
        >>> q = ag.Gibbs(ag.OneHot(), torch.zeros(3))
        >>> list(ag.race(lambda z: z[..., 0], q, [ag.Reinforce()], replicates=50).mse)
        ['Reinforce']
    """

    report: Report
    milliseconds: float
    mse: dict[str, float]
    best: str

    def table(self) -> str:
        """A table for the terminal."""
        best = self.mse[self.best]
        lines = [("estimator", "MSE at equal time", "times the best")]
        for name, error in self.mse.items():
            lines.append((name, f"{error:.3g}", f"{error / best:.2f}" if best else "-"))
        return _align(lines) + f"\nbudget {self.milliseconds:.3f} ms; recommended: {self.best}"

    def __str__(self) -> str:
        return self.table()


def check_batch_independence(
    f: Cost, z: Tensor, batch_dims: int = 1, *, tolerance: float = 1e-5
) -> None:
    """Raise a sentence if the cost of one item depends on the others (batch norm, in-batch losses).

    Per-example score functions are wrong then: `q.independent(n)` over the batch makes one joint cost.

    Args:
        f: the cost.
        z: samples `(S, *batch, *event)` with at least two items in the batch.
        batch_dims: number of batch dimensions.
        tolerance: largest relative change that counts as none.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.check_batch_independence(lambda z: z[..., 0], torch.eye(3).expand(2, 3, 3))
    """
    flat = z.flatten(1, batch_dims)
    if flat.shape[1] < 2:
        raise InputError("`check_batch_independence` needs at least two items in the batch.")
    with torch.no_grad():
        before = f(z)
        changed = flat.clone()
        changed[:, 0] = flat[:, 1:].roll(1, 1)[:, 0] if flat.shape[1] > 2 else 1 - flat[:, 0]
        after = f(changed.reshape(z.shape))
    old, new = (c.flatten(1)[:, 1:] for c in (before, after))
    gap = (old - new).abs().max().item()
    if gap > tolerance * (1 + old.abs().max().item()):
        raise InputError(
            f"`f` couples the items of a batch: changing one item's sample changed another's cost by {gap:.3g} "
            "(batch normalisation in training mode, or a loss over the batch?). Estimators that credit each "
            "item with its own cost are wrong then. Use `q.independent(n)` over all batch dimensions and one "
            "joint cost, or put `f` in evaluation mode."
        )


# ---- parts ---------------------------------------------------------------------------------------


def _named(estimators: Sequence[Estimator] | Mapping[str, Estimator]) -> dict[str, Estimator]:
    if isinstance(estimators, Mapping):
        return dict(estimators)
    named: dict[str, Estimator] = {}
    for e in estimators:
        name, i = type(e).__name__, 2
        while name in named:
            name, i = f"{type(e).__name__} {i}", i + 1
        named[name] = e
    return named


def _oracle(f: Cost, q: StructuredDistribution, generator: Generator) -> tuple[Tensor, str, Tensor]:
    """The exact gradient, its name, and the standard error of each coordinate."""
    try:
        grad = Exact().evaluate(f, q).scores_grad
        return grad, "enumeration", torch.zeros_like(grad)
    except UnsupportedError:
        pass
    for estimator, name, count in (
        (LocalExpectation(), "local expectation", 200),
        (LeaveOneOut(64), "leave-one-out", 2000),
    ):
        if estimator.works_with(q):
            try:
                grads = torch.stack(
                    [
                        estimator.evaluate(f, q, generator=g).scores_grad
                        for g in random.split(generator, count)
                    ]
                )
            except UnsupportedError:
                continue
            error = grads.std(0) / math.sqrt(count)
            return grads.mean(0), f"{name}, mean of {count}", error
    raise UnsupportedError("`diagnose`: no unbiased reference is known for this distribution.")


def _row(
    name: str,
    estimator: Estimator,
    f: Cost,
    q: StructuredDistribution,
    exact: Tensor,
    error: Tensor,
    replicates: int,
    generator: Generator,
) -> Row:
    reason = estimator.refusal(q)
    if reason is not None:
        nan = math.nan
        return Row(name, nan, nan, f"refused: {reason}", nan, nan, nan, 0, nan)
    grads, evaluations, seconds = replicate_gradients(estimator, f, q, replicates, generator)
    grads, exact = grads.double().flatten(1), exact.double().flatten()
    mean, spread = grads.mean(0), grads.std(0)
    gap = mean - exact
    deviation = torch.sqrt(spread**2 / replicates + error.double().flatten() ** 2)
    clean = gap.abs() <= 1e-9 * (1 + exact.abs())
    z = torch.where(clean, 0.0, gap / torch.where(deviation > 0, deviation, 1e-300)).abs().max().item()
    variance = spread.pow(2).sum().item()
    bias = max(gap.pow(2).sum().item() - variance / replicates, 0.0)
    cosine = torch.nn.functional.cosine_similarity(grads, exact[None].expand_as(grads), dim=1)
    verdict = "biased" if z > z_bound(len(exact), 1e-4) else "unbiased"
    size = exact.norm().item() or 1.0
    return Row(
        name,
        math.sqrt(bias) / size,
        z,
        verdict,
        variance,
        bias + variance,
        cosine.mean().item(),
        evaluations,
        1e3 * seconds / replicates,
    )


def replicate_gradients(
    estimator: Estimator, f: Cost, q: StructuredDistribution, count: int, generator: Generator = None
) -> tuple[Tensor, int, float]:
    """`count` independent gradients for the scores, evaluations of `f` an estimate, and seconds in all."""
    try:
        many = q.expand((count, *q.batch_shape))
        start = time.perf_counter()
        estimate = estimator.evaluate(f, many, generator=generator)
        return estimate.scores_grad, estimate.evaluations, time.perf_counter() - start
    except (InputError, RuntimeError, IndexError):  # f does not take another batch dimension
        start = time.perf_counter()
        all_ = [estimator.evaluate(f, q, generator=g) for g in random.split(generator, count)]
        seconds = time.perf_counter() - start
        return torch.stack([e.scores_grad for e in all_]), all_[0].evaluations, seconds


def _align(lines: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    rows = [
        "  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return "\n".join([rows[0], "-" * len(rows[0]), *rows[1:]])
