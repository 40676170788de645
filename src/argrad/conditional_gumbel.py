r"""Gumbels under a condition: a given maximum, an upper bound, a known winner.

With $G_i = \theta_i + \varepsilon_i$, the maximum of the $G_i$ is Gumbel with location
$\log\sum_i e^{\theta_i}$ and independent of its place. Conditioning on it gives truncated Gumbels, the
building block of top-down sampling, of stochastic beam search and of counterfactuals.

The textbook form $-\log(e^{-T} - e^{-Z} + e^{-G})$ is NaN in float32 as soon as log-probabilities fall
below -87; everything here stays in the logarithmic domain and subtracts nothing that could cancel.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from argrad import random
from argrad._checks import (
    can_read,
    check_any_allowed,
    check_floating,
    check_scores,
    fail,
    nothing_allowed,
)
from argrad._errors import InputError, InputTypeError
from argrad._numerics import log1mexp, logsumexp, one_hot
from argrad._types import Bool, Float, Generator, Int
from argrad.gumbel import items_last


def gumbel_given_max(
    logits: Float[Tensor, "*shape"],
    maximum: Float[Tensor, "*batch"],
    *,
    dim: int = -1,
    mask: Bool[Tensor, "..."] | None = None,
    generator: Generator = None,
) -> Float[Tensor, "*shape"]:
    r"""Draw $G_i = \theta_i + \varepsilon_i$ given that $\max_i G_i = T$.

    Unconditional draws $G_i$ with maximum $Z$ are shifted monotonically,
    $$ \tilde G_i = T - \mathrm{softplus}\big(T - G_i + \log(1 - e^{G_i - Z})\big), \tag{1} $$
    which has the conditional law and keeps the order. The largest entry is exactly $T$; right for
    $\theta$ from 0 to -1000 in float32.

    Args:
        logits: $\theta$, any shape, need not be normalised.
        maximum: $T$, the shape of `logits` without `dim`; `-inf` gives `-inf` everywhere.
        dim: the dimension that holds the items.
        mask: True = allowed; forbidden items get `-inf`.
        generator: `torch.Generator`, `CounterRNG`, or None for torch's global generator.

    Returns:
        Perturbed logits, the shape and dtype of `logits`; differentiable in both arguments.

    Examples:
        >>> import torch, argrad as ag
        >>> g = ag.gumbel_given_max(torch.full((5,), -100.0), torch.tensor(2.0))
        >>> g.max().item()
        2.0

    References: [kool2019], [maddison2014].
    """
    call = "gumbel_given_max"
    scores, dim = items_last(call, logits, dim, mask, generator)
    check_scores(call, "logits", scores)
    top = _per_row(call, "maximum", maximum, scores)
    _check_attained(call, scores, top)
    noise = _gumbel_like(scores, generator)
    peak, closed = scores.detach().amax(-1, keepdim=True), scores == -math.inf
    peak = peak.masked_fill(peak == -math.inf, 0.0)
    g = scores.masked_fill(closed, -1.0) - peak + noise  # relative to the peak: noise keeps its digits
    g = g.masked_fill(closed, -math.inf)
    return _finish(shift_maximum(g, top, peak), logits, dim)


def truncated_gumbel(
    logits: Float[Tensor, "*shape"],
    upper: Float[Tensor, "..."],
    *,
    mask: Bool[Tensor, "..."] | None = None,
    generator: Generator = None,
) -> Float[Tensor, "*shape"]:
    r"""Draw $G_i = \theta_i + \varepsilon_i$ given that $G_i \le b_i$, each on its own.

    $$ \tilde G_i = b_i - \mathrm{softplus}(b_i - G_i) = -\log(e^{-b_i} + e^{-G_i}) $$

    Args:
        logits: $\theta$, any shape.
        upper: $b$, broadcastable to `logits`.
        mask: True = allowed; forbidden items get `-inf`.
        generator: `torch.Generator`, `CounterRNG`, or None for torch's global generator.

    Returns:
        The shape and dtype of `logits`, nowhere above `upper`; differentiable in both arguments.

    Examples:
        >>> import torch, argrad as ag
        >>> bool((ag.truncated_gumbel(torch.zeros(1000), torch.tensor(-1.0)) <= -1).all())
        True

    References: [maddison2014].
    """
    scores, dim = items_last("truncated_gumbel", logits, -1, mask, generator)
    check_scores("truncated_gumbel", "logits", scores)
    check_floating("truncated_gumbel", "upper", upper)
    if can_read(upper) and bool(torch.isnan(upper).any()):
        raise fail("truncated_gumbel", "upper", "must not hold NaN", upper, "+inf means no bound.")
    try:
        bound = upper.to(scores.dtype).expand(scores.shape)
    except RuntimeError:
        shape = f"shape {tuple(upper.shape)}"
        rule = f"must broadcast to the logits' shape {tuple(scores.shape)}"
        raise fail(
            "truncated_gumbel", "upper", rule, shape, "One bound an item, or one for all."
        ) from None
    closed = (scores == -math.inf) | (bound == -math.inf)
    g = scores.masked_fill(closed, 0.0) + _gumbel_like(scores, generator)
    b = bound.masked_fill(closed, 0.0)
    free = b == math.inf
    cut = _minus_softplus(b.masked_fill(free, 0.0), b.masked_fill(free, 0.0) - g)
    return _finish(torch.where(free, g, cut).masked_fill(closed, -math.inf), logits, dim)


def gumbel_posterior(
    logits: Float[Tensor, "*shape"],
    observed: Int[Tensor, "*batch"],
    *,
    dim: int = -1,
    mask: Bool[Tensor, "..."] | None = None,
    generator: Generator = None,
) -> Float[Tensor, "*shape"]:
    r"""Draw $G_i = \theta_i + \varepsilon_i$ given that item `observed` won (was the arg max).

    Top-down: the maximum $T \sim \mathrm{Gumbel}(\log\sum_i e^{\theta_i})$ goes to the winner, the others
    are truncated at $T$. Adding another policy's logits to the noise, `result - logits`, asks what
    would have been chosen instead (a counterfactual).

    Args:
        logits: $\theta$, any shape.
        observed: the winner's index, `int64`, the shape of `logits` without `dim`.
        dim: the dimension that holds the items.
        mask: True = allowed; forbidden items get `-inf`.
        generator: `torch.Generator`, `CounterRNG`, or None for torch's global generator.

    Returns:
        Perturbed logits, the shape and dtype of `logits`, with their arg max at `observed`.

    Examples:
        >>> import torch, argrad as ag
        >>> ag.gumbel_posterior(torch.zeros(4, 3), torch.tensor([2, 0, 1, 1])).argmax(-1)
        tensor([2, 0, 1, 1])

    References: [oberst2019], [maddison2014].
    """
    call = "gumbel_posterior"
    scores, dim = items_last(call, logits, dim, mask, generator)
    check_scores(call, "logits", scores)
    check_any_allowed(call, scores)
    index = _check_observed(call, observed, scores)
    first, second = random.split(generator, 2)
    top = logsumexp(scores, keepdim=True) + _gumbel_like(scores[..., :1], first)
    closed = scores == -math.inf
    g = scores.masked_fill(closed, 0.0) + _gumbel_like(scores, second)
    rest = _minus_softplus(top, top - g).to(logits.dtype)
    top = top.to(logits.dtype)
    # a float below the maximum at least: a draw far above it would round to a tie with the winner
    below = torch.nextafter(top.detach(), torch.full_like(top, -math.inf))
    rest = torch.minimum(rest, below).masked_fill(closed, -math.inf)
    return _finish(torch.where(one_hot(index, closed), top, rest), logits, dim)


# ---- shared parts --------------------------------------------------------------------------------


def shift_maximum(g: Tensor, top: Tensor, offset: Tensor | float = 0.0) -> Tensor:
    """Perturbed logits `g + offset` `(*batch, n)`, shifted by Eq. (1) so that their maximum is `top`.

    `-inf` stays `-inf`, and a `top` of `-inf` makes the whole row so; both are `(*batch, 1)`.
    """
    closed, never = g == -math.inf, top == -math.inf
    z, winner = g.max(-1, keepdim=True)
    g = g.masked_fill(closed, -1.0)
    t = top.masked_fill(never, 0.0)
    rest = _minus_softplus(t, t - (g + offset) + log1mexp(_below_zero(g - z)))
    rest = torch.where(one_hot(winner, closed), t, rest)
    return rest.masked_fill(closed | never, -math.inf)


def _minus_softplus(t: Tensor, v: Tensor) -> Tensor:
    """$t - log(1 + e^v)$; `logsigmoid` is accurate where `F.softplus` switches to the identity."""
    return t + logsigmoid(-v)


def _below_zero(x: Tensor) -> Tensor:
    """Move the arg max (0) away from 0, where log1mexp is -inf; its entry is replaced afterwards."""
    return torch.where(x < 0, x, -1.0)


def _gumbel_like(scores: Tensor, generator: Generator) -> Tensor:
    return random.gumbel(scores.shape, dtype=scores.dtype, device=scores.device, generator=generator)


def _per_row(call: str, name: str, value: Tensor, scores: Tensor) -> Tensor:
    """A number a row, as `(*batch, 1)`."""
    check_floating(call, name, value)
    check_scores(call, name, value)
    try:
        cast = value.to(scores.dtype).expand(scores.shape[:-1])[..., None]
        check_scores(call, name, cast)  # float64 may overflow in float32
        return cast
    except RuntimeError:
        rule = f"must have the logits' shape without `dim`, {tuple(scores.shape[:-1])}"
        raise fail(call, name, rule, f"shape {tuple(value.shape)}", "One number a row.") from None


def _check_attained(call: str, scores: Tensor, top: Tensor) -> None:
    """A row with nothing to choose has the maximum -inf, and no other."""
    if not can_read(scores, top) or scores.numel() == 0:
        return
    impossible = (scores.amax(-1) == -math.inf) & (top.squeeze(-1) > -math.inf)
    if bool(impossible.any()):
        raise nothing_allowed(call, impossible)


def _check_observed(call: str, observed: Tensor, scores: Tensor) -> Tensor:
    """Indices as `(*batch, 1)`, in range and possible."""
    if not isinstance(observed, Tensor) or observed.is_floating_point() or observed.is_complex():
        kind = observed.dtype if isinstance(observed, Tensor) else type(observed).__name__
        raise InputTypeError(
            f"`{call}(observed=...)` must be an integer tensor; got {kind}. "
            "Give indices, not one-hot vectors: `z.argmax(-1)`."
        )
    n, batch = scores.shape[-1], scores.shape[:-1]
    if observed.shape != batch:
        rule = f"must have the logits' shape without `dim`, {tuple(batch)}"
        raise fail(call, "observed", rule, f"shape {tuple(observed.shape)}", "One index a row.")
    if can_read(observed) and observed.numel() and not 0 <= observed.min() <= observed.max() < n:
        rule = f"must hold indices from 0 to {n - 1}"
        raise fail(call, "observed", rule, observed, "They count along `dim`, from 0.")
    index = observed.long()[..., None]
    if can_read(scores) and bool((scores.gather(-1, index) == -math.inf).any()):
        raise InputError(
            f"`{call}(observed=...)` names an item of probability 0 (`mask` or a logit of -inf forbids "
            "it), so it cannot have been observed. Check the mask, or the logits it was drawn from."
        )
    return index


def _finish(x: Tensor, logits: Tensor, dim: int) -> Tensor:
    return x.movedim(-1, dim).to(logits.dtype)
