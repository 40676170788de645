r"""The temperature of a structured choice, from observed objects."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from argrad._checks import can_read, check_floating, fail, is_transformed, refuse_meta
from argrad._errors import UnsupportedError
from argrad._types import Bool, Float
from argrad.calibration.scale import Moments, Temperature, solve_scale
from argrad.structures.base import Structure


def calibrate_structure(
    structure: Structure,
    scores: Float[Tensor, "..."],
    observed: Float[Tensor, "..."],
    *,
    mask: Bool[Tensor, "..."] | None = None,
) -> Temperature:
    r"""The temperature at which scores explain observed objects best: temperature scaling for structures.

    $$ \min_{\lambda \ge 0} \sum_i \big[A(\lambda\theta_i) - \lambda\langle\theta_i, z_i\rangle\big], \qquad
       \frac{d}{d\lambda}:\ \sum_i \langle\theta_i, \mathbb{E}_\lambda z\rangle
       = \sum_i \langle\theta_i, z_i\rangle, \qquad T = 1/\lambda $$
    $A$ is the structure's log-partition; convex in $\lambda$, so Newton with exact curvature. With `OneHot` it is
    `fit_temperature`. Sample from `Gibbs(structure, scores / T)` afterwards.

    Args:
        structure: anything with a log-partition: one-hots, bits, subsets, chains, trees.
        scores: $\theta$, shape `(*batch, n, *event)`, or anything that broadcasts to it (one score vector
            with many observations).
        observed: $z$, vertices, shape `(*batch, n, *event)`: n observations for each temperature.
        mask: True = allowed, broadcastable to `scores`.

    Returns:
        A `Temperature`, shape `(*batch)`; differentiable for the scores.

    Examples:
        >>> import torch, argrad as ag
        >>> g = torch.Generator().manual_seed(1)
        >>> scores = 4 * torch.randn(2000, 6, generator=g)
        >>> seen = ag.Subset(2).sample(scores / 2.5, generator=g)  # 2 of 6, at T = 2.5
        >>> fit = ag.calibrate_structure(ag.Subset(2), scores, seen)
        >>> round(fit.temperature.item(), 2), round(fit.standard_error.item(), 2)
        (2.45, 0.05)

    References: [guo2017], [wainwright2008].
    """
    theta, z = _check(structure, scores, observed, mask)
    refuse_meta("calibrate_structure", "scores", theta)
    closed = theta == -math.inf
    finite = theta.masked_fill(closed, 0.0)
    seen = structure._inner(finite, z)
    n = seen.shape[-1]
    best = structure._inner(finite.detach(), structure._argmax(theta.detach()))
    gap = best - seen.detach()
    # the two sums may be rounded differently
    perfect = (gap <= 1e-12 * (1 + best.abs())).all(-1)
    count = torch.full(seen.shape[:-1], float(n), dtype=torch.float64, device=seen.device)
    moments = _moments(structure, finite, closed, seen)
    return solve_scale("calibrate_structure", moments, perfect, count, scores.dtype)


def _moments(structure: Structure, finite: Tensor, closed: Tensor, seen: Tensor) -> Moments:
    event = (1,) * (structure.event_dims + 1)

    def expected(inverse: Tensor) -> Tensor:
        scaled = inverse.reshape(*inverse.shape, *event) * finite
        mean = structure._marginals(scaled.masked_fill(closed, -math.inf))
        return structure._inner(finite, mean)

    def moments(inverse: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():  # h: the derivative of the mean for lambda, here for its value alone
            at = inverse.detach().requires_grad_()
            mean = expected(at)
            (h,) = torch.autograd.grad(mean.mean(-1).sum(), at)
        wanted = finite.requires_grad or inverse.requires_grad or is_transformed()
        mean = expected(inverse) if torch.is_grad_enabled() and wanted else mean.detach()
        return (mean - seen).mean(-1), h.clamp(min=0.0)

    return moments


def _check(
    structure: Structure, scores: Tensor, observed: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Clean scores and observations of one shape, in float64."""
    call, name = "calibrate_structure", structure.name
    if not structure.has_log_partition:
        raise UnsupportedError(
            f"`{call}` needs a log-partition, and `{name}` has none: {structure.reasons.get('log_partition', '')} "
            "With `PerturbedFenchelYoung` a temperature can be fitted by gradient descent."
        )
    check_floating(call, "observed", observed)
    dims = structure.event_dims
    shape = torch.broadcast_shapes(scores.shape, observed.shape)
    if observed.shape != shape or observed.dim() < dims + 1:
        raise fail(
            call,
            "observed",
            f"must have {dims} event dimension{'s' * (dims > 1)} after the observations, and the scores' shape",
            f"observed {tuple(observed.shape)} with scores {tuple(scores.shape)}",
            "Give `(*batch, n, *event)`; the scores may broadcast to it.",
        )
    if observed.shape[-dims - 1] == 0:
        raise fail(call, "observed", "must hold at least one observation", observed, "")
    theta = structure._clean(call, scores, mask).double().expand(shape)
    z = observed.double()
    structure._check_vertices(call, z)
    if can_read(theta, z) and bool(((theta == -math.inf) & (z != 0)).any()):
        advice = "Their likelihood is 0 at every temperature: drop them, or correct the mask."
        raise fail(call, "observed", "must not use forbidden parts", "some that do", advice)
    return theta, z
