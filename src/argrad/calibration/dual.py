r"""The dual of maximum entropy: a convex function of the multipliers, and Newton's method for it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from argrad._checks import can_read, is_transformed
from argrad.calibration.constraints import Constraint
from argrad.calibration.scale import Status
from argrad.calibration.targets import label_values

_STEPS = 100  # Newton's method needs about ten; more only if there is no finite optimum
_HALVINGS = 40
_TRUNCATE = 1e-13  # curvature, relative to the largest, that counts as a direction without effect
_PATIENCE = 8  # steps after which to ask whether the labels can be separated


class Design:
    """Features of one set of logits: weights of one-class features, and a table of all others."""

    def __init__(self, constraints: Sequence[Constraint], logits: Tensor) -> None:
        self.closed = logits == -math.inf
        z = logits.masked_fill(self.closed, 0.0)
        self.classes = z.shape[-1]
        self.parts = [(c.per_class, c.features(z)) for c in constraints]
        self.sizes = [self.classes if one else f.shape[-1] for one, f in self.parts]

    def logits(self, multipliers: Tensor) -> Tensor:
        """The features' weighted sum, `(*batch, n, classes)`."""
        total = 0.0
        for (one, f), p in zip(self.parts, multipliers.split(self.sizes, -1), strict=True):
            p = p[..., None, :]  # over the examples
            total = total + (f * p if one else (f * p[..., None, :]).sum(-1))
        assert isinstance(total, Tensor)
        return total.masked_fill(self.closed, -math.inf)

    def mean(self, q: Tensor) -> Tensor:
        """Each example's expected features under `q`, `(*batch, n, m)`."""
        parts = [q * f if one else (q[..., None] * f).sum(-2) for one, f in self.parts]
        return torch.cat(parts, -1)

    def second(self, q: Tensor, w: Tensor) -> Tensor:
        """The mean of products of two features, `(*batch, m, m)`."""
        weighted = w[..., None] * q
        rows = []
        for a in range(len(self.parts)):
            rows.append(torch.cat([self._block(weighted, a, b) for b in range(len(self.parts))], -1))
        return torch.cat(rows, -2)

    def _block(self, q: Tensor, a: int, b: int) -> Tensor:
        (one_a, f), (one_b, g) = self.parts[a], self.parts[b]
        if one_a and one_b:
            return torch.diag_embed((q * f * g).sum(-2))
        if one_a:
            return torch.einsum("...nk,...nkm->...km", q * f, g)
        if one_b:
            return self._block(q, b, a).mT
        return torch.einsum("...nk,...nkl,...nkm->...lm", q, f, g)


class Dual:
    """The dual: mean negative log-likelihood of softmax(multipliers . features), convex."""

    def __init__(
        self, design: Design, labels: Tensor, w: Tensor, ridge: float, unchanged: Tensor
    ) -> None:
        self.design, self.labels, self.w = design, labels, w
        self.ridge, self.unchanged = ridge, unchanged
        hot = torch.zeros_like(design.closed, dtype=torch.float64)
        hot = hot.scatter(-1, labels.to(torch.int64)[..., None], 1.0)
        self.seen = (w[..., None] * design.mean(hot)).sum(-2)  # (*batch, m)

    def value(self, p: Tensor) -> Tensor:
        """The mean, and the penalty, `(*batch)`."""
        log_q = self.design.logits(p).log_softmax(-1)
        penalty = 0.5 * self.ridge * ((p - self.unchanged) ** 2).sum(-1)
        return -(self.w * label_values(log_q, self.labels)).sum(-1) + penalty

    def gradient(self, p: Tensor) -> Tensor:
        """What the constraints still miss, `(*batch, m)`."""
        mean = self.design.mean(self.design.logits(p).softmax(-1))
        return (self.w[..., None] * mean).sum(-2) - self.seen + self.ridge * (p - self.unchanged)

    def curvature(self, p: Tensor) -> Tensor:
        """The mean covariance of the features, `(*batch, m, m)`."""
        q = self.design.logits(p).softmax(-1)
        mean = self.design.mean(q)
        outer = (self.w[..., None] * mean).mT @ mean
        eye = torch.eye(outer.shape[-1], dtype=outer.dtype, device=outer.device)
        return self.design.second(q, self.w) - outer + self.ridge * eye

    def separates(self, step: Tensor) -> Tensor:
        """Whether the likelihood never falls along `step`, however far: then no optimum is finite."""
        scores = self.design.logits(step)
        gap = label_values(scores, self.labels)[..., None] - scores  # +inf for forbidden classes
        gap = torch.where((self.w > 0)[..., None] & ~self.design.closed, gap, 0.0)
        largest = gap.abs().amax((-1, -2))
        return (gap.amin((-1, -2)) >= -1e-9 * largest) & (largest > 0)


def newton(dual: Dual, free: Tensor) -> tuple[Tensor, Tensor]:
    """Newton's method from 0 (uniform predictions), each step halved until the value falls enough."""
    p = torch.where(free, torch.zeros_like(dual.unchanged), 0.0)
    status = torch.full(p.shape[:-1], int(Status.OK), device=p.device)
    value = dual.value(p)
    for i in range(_STEPS):
        g = torch.where(free, dual.gradient(p), 0.0)
        step = -_solve(dual.curvature(p), g, free)
        slope = (g * step).sum(-1)
        done = slope >= -1e-24 * (1 + value.abs())
        if can_read(p) and bool(done.all()):
            break
        if i >= _PATIENCE and dual.ridge == 0:
            status = torch.where(~done & dual.separates(step), Status.UNBOUNDED, status)
        p, value, moved = _line_search(dual, p, value, step, slope)
        if can_read(p) and not bool(moved.any()):
            break
    return p, status


def _line_search(
    dual: Dual, p: Tensor, value: Tensor, step: Tensor, slope: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    size, new = torch.ones_like(value), value
    for _ in range(_HALVINGS):
        new = dual.value(p + size[..., None] * step)
        worse = new > value + 1e-4 * size * slope + 4e-16 * value.abs()
        if can_read(p) and not bool(worse.any()):
            break
        size = torch.where(worse, 0.5 * size, size)
    size = torch.where(new > value + 4e-16 * value.abs(), 0.0, size)
    p = p + size[..., None] * step
    return p, dual.value(p), size > 0


def _solve(curvature: Tensor, g: Tensor, free: Tensor) -> Tensor:
    """The shortest solution of `curvature x = g`, in units in which every feature curves by 1."""
    both = free[..., :, None] & free[..., None, :]
    curvature = torch.where(both, curvature, 0.0)
    units = curvature.diagonal(dim1=-2, dim2=-1).clamp(min=0.0).sqrt()
    inverse = torch.where(units > 0, 1 / units, 0.0)
    values, vectors = torch.linalg.eigh(curvature * inverse[..., :, None] * inverse[..., None, :])
    kept = values > _TRUNCATE * values[..., -1:].clamp(min=1e-300)
    scaled = (vectors.mT @ (g * inverse)[..., None])[..., 0]
    scaled = torch.where(kept, scaled / torch.where(kept, values, 1.0), 0.0)
    return inverse * (vectors @ scaled[..., None])[..., 0]


def differentiable(dual: Dual, p: Tensor, free: Tensor) -> Tensor:
    """Two steps that move nothing and carry the derivatives, as in `scale.py`."""
    g = dual.gradient(p)
    if not (g.requires_grad or is_transformed()):
        return p
    curvature = dual.curvature(p).detach()
    for _ in range(2):
        g = torch.where(free, dual.gradient(p), 0.0)
        p = p - _solve(curvature, g, free)
    return p
