r"""The largest entropy under any set of moment constraints: temperature, biases and vector scaling in one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from argrad._checks import can_read, check_finite, check_floating, fail, refuse_meta
from argrad._errors import InputTypeError
from argrad._types import Float, Int
from argrad.calibration.constraints import ClassFrequency, Constraint, MeanLogit
from argrad.calibration.dual import Design, Dual, differentiable, newton
from argrad.calibration.scale import Status
from argrad.calibration.targets import check_targets, shares
from argrad.calibration.temperature import resize_buffers, statuses, warn_about


@dataclass(frozen=True)
class MaxEntropyFit:
    """Multipliers, one column after the other as the constraints are listed, and what the fit found."""

    multipliers: Float[Tensor, "*batch m"]
    status: Int[Tensor, "*batch"]


def fit_max_entropy(
    constraints: Sequence[Constraint],
    logits: Float[Tensor, "*batch n classes"],
    labels: Int[Tensor, "*batch n"],
    *,
    ridge: float = 0.0,
    weights: Float[Tensor, "*batch n"] | None = None,
) -> MaxEntropyFit:
    """The multipliers of `MaxEntCalibrator`, differentiable for the logits (first and second derivatives).

    Examples:
        >>> import torch, argrad as ag
        >>> g = torch.Generator().manual_seed(0)
        >>> logits = 3 * torch.randn(4000, 4, generator=g)
        >>> labels = ag.gumbel_max(logits / 2, generator=g)
        >>> fit = ag.calibration.fit_max_entropy([ag.calibration.MeanLogit()], logits, labels)
        >>> torch.allclose(1 / fit.multipliers, ag.calibration.fit_temperature(logits, labels).temperature)
        True

    References: [berger1996], [guo2017].
    """
    check_targets("fit_max_entropy", logits, labels, weights)
    refuse_meta("fit_max_entropy", "logits", logits)
    w, _ = shares(weights, labels)
    dual = Dual(Design(constraints, logits.double()), labels, w, ridge, _targets(constraints, logits))
    free = torch.ones_like(dual.unchanged, dtype=torch.bool)
    with torch.no_grad():
        p, status = newton(dual, free)
        low = _negative_temperatures(constraints, dual, p)
        if can_read(p) and bool(low.any()):  # one convex bound: if it binds, it holds with equality
            free = ~low
            again, status_again = newton(dual, free)
            p, status = again, torch.where(low.any(-1), Status.INFINITE, status_again)
    return MaxEntropyFit(differentiable(dual, p, free).to(logits.dtype), status)


def _targets(constraints: Sequence[Constraint], logits: Tensor) -> Tensor:
    """The parameters that change nothing, `(m)`: one constraint says 1, all others 0."""
    design = Design(constraints, logits[..., :1, :].double())
    values, taken = [], False
    for c, size in zip(constraints, design.sizes, strict=True):
        values.append(torch.full((size,), 0.0 if taken else c.unchanged, dtype=torch.float64))
        taken = taken or c.unchanged != 0
    return torch.cat(values).to(logits.device).expand(*logits.shape[:-2], -1)


def _negative_temperatures(constraints: Sequence[Constraint], dual: Dual, p: Tensor) -> Tensor:
    parts = p.split(dual.design.sizes, -1)
    alone = not any(
        c.per_class and c.unchanged for c in constraints
    )  # else the sum counts, not this one
    bounded = [isinstance(c, MeanLogit) and alone for c in constraints]
    return torch.cat([(x < 0) & b for x, b in zip(parts, bounded, strict=True)], -1)


class MaxEntCalibrator(nn.Module):
    r"""Predictions of the largest entropy that agree with the labels in the averages one lists.

    $$ \max_q \sum_i H(q_i) \quad \text{s.t.} \quad
       \sum_i \sum_k q_{ik}\, \varphi_m(z_i, k) = \sum_i \varphi_m(z_i, y_i) \quad (m = 1, \dots, M) $$
    has the solution $q_i = \mathrm{softmax}_k \sum_m \lambda_m \varphi_m(z_i, k)$, and its multipliers minimise
    the negative log-likelihood, a convex function. The known methods are nested lists of constraints:

    | constraints | method | parameters |
    |---|---|--:|
    | `MeanLogit()` | temperature scaling | 1 |
    | `MeanLogit()`, `ClassFrequency()` | temperature and class biases | K + 1 |
    | `ClassLogit()`, `ClassFrequency()` | vector scaling | 2 K |
    | and `Feature(f)` | anything linear in its parameters | |

    Each list fits at least as well as the one before it, on the data it was fitted on. A class without labels, or
    labels that can be separated, has no finite optimum; `status` says so, and `ridge` gives one.

    Args:
        constraints: what must agree; see `argrad.calibration`.
        ridge: adds $\frac{1}{2}$ `ridge` $\|\lambda - \lambda_0\|^2$, where $\lambda_0$ leaves logits as they are.

    Examples:
        >>> import torch, argrad as ag
        >>> g = torch.Generator().manual_seed(0)
        >>> truth = 2 * torch.randn(5000, 3, generator=g)
        >>> labels = ag.gumbel_max(truth, generator=g)
        >>> logits = 3 * (truth - torch.tensor([0.0, 1.0, -1.0]))  # too confident, and biased
        >>> c = ag.calibration
        >>> both = ag.MaxEntCalibrator([c.MeanLogit(), c.ClassFrequency()]).fit(logits, labels)
        >>> [round(x.item(), 3) for x in (c.nll(logits, labels), c.nll(both(logits), labels))]
        [1.509, 0.59]

    References: [guo2017], [berger1996].
    """

    multipliers: Tensor
    codes: Tensor

    def __init__(
        self, constraints: Sequence[Constraint] = (MeanLogit(), ClassFrequency()), *, ridge: float = 0.0
    ) -> None:
        super().__init__()
        wrong = [c for c in constraints if not isinstance(c, Constraint)]
        if wrong or not constraints:
            raise InputTypeError(
                "`MaxEntCalibrator(constraints=...)` must be a list of constraints such as `MeanLogit()`; "
                f"got {wrong[0] if wrong else 'an empty list'!r}. They are in `argrad.calibration`."
            )
        if not 0 <= ridge < math.inf:
            raise fail(
                "MaxEntCalibrator", "ridge", "must be finite and at least 0", ridge, "0 is none."
            )
        self.constraints = tuple(constraints)
        self.ridge = float(ridge)
        self.register_buffer("multipliers", torch.zeros(0))
        self.register_buffer("codes", torch.zeros((), dtype=torch.int64))
        self.register_load_state_dict_pre_hook(resize_buffers)

    def fit(
        self,
        logits: Float[Tensor, "*batch n classes"],
        labels: Int[Tensor, "*batch n"],
        *,
        weights: Float[Tensor, "*batch n"] | None = None,
    ) -> MaxEntCalibrator:
        """Find the multipliers (one set for each leading index of the batch); returns the layer itself."""
        with torch.no_grad():
            found = fit_max_entropy(self.constraints, logits, labels, ridge=self.ridge, weights=weights)
        self.multipliers, self.codes = found.multipliers, found.status
        warn_about(found.status)
        return self

    @property
    def status(self) -> Status | list[Status]:
        """What the fit found; a flat list for a batch of fits."""
        return statuses(self.codes)

    def forward(self, logits: Float[Tensor, "*batch n classes"]) -> Float[Tensor, "*batch n classes"]:
        """Calibrated logits."""
        if self.multipliers.shape[-1] == 0:
            raise InputTypeError(
                "`MaxEntCalibrator` has no multipliers yet. Call `fit(logits, labels)` first."
            )
        check_floating("MaxEntCalibrator", "logits", logits)
        check_finite("MaxEntCalibrator", "logits", logits)
        return Design(self.constraints, logits).logits(self.multipliers.to(logits))

    def extra_repr(self) -> str:
        """What was asked for."""
        return f"constraints={self.constraints!r}, ridge={self.ridge!r}"
