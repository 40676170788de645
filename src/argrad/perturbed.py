r"""Perturb and choose: noise on the scores, then the arg max."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from argrad import random
from argrad._autograd import straight_through
from argrad._checks import check_positive, check_scores, check_shape, fail
from argrad._errors import InputError, UnsupportedError
from argrad._numerics import masked_scores, widen
from argrad._types import Bool, Float, Generator, Shape, Tau
from argrad.backward import Backward
from argrad.gumbel import gumbel_softmax
from argrad.noise import ExponentialRace, Gumbel, Logistic, Noise
from argrad.regularizers import Regularizer
from argrad.structured import StructuredDistribution
from argrad.structures.arborescence import Arborescence
from argrad.structures.base import Structure
from argrad.structures.bits import Bits
from argrad.structures.one_hot import OneHot
from argrad.structures.spanning_tree import SpanningTree
from argrad.structures.subset import Subset
from argrad.traces import Trace, edmonds_trace, kruskal_log_prob, topk_log_prob


class Draw(NamedTuple):
    """Everything of one draw; shapes are `sample_shape + batch + event`.

    Attributes:
        hard: the vertex, without gradient.
        soft: the relaxed point of the same perturbed scores, or None if no `tau` was given.
        perturbed: scores plus noise, with the gradient of the scores.
        noise: the draw of the noise, before `noise_scale`.

    Examples:
        >>> import torch, argrad as ag
        >>> draw = ag.Perturbed(ag.OneHot(), torch.zeros(3)).draw(tau=0.5)
        >>> bool(draw.hard.argmax() == draw.soft.argmax() == draw.perturbed.argmax())
        True
    """

    hard: Tensor
    soft: Tensor | None
    perturbed: Tensor
    noise: Tensor


class Perturbed(StructuredDistribution):
    r"""Perturb and choose, $z = \arg\max_{z \in Z} \langle\theta + \sigma\varepsilon, z\rangle$.

    The law that stochastic softmax tricks draw from.
    Any structure that can be maximised can be drawn from, relaxed and trained by the path. The
    probability of a vertex is known only where this is a Gibbs law too (one-hots with Gumbel noise, bits
    with logistic noise).

    Args:
        structure: the set Z.
        scores: $\theta$, shape `(*batch, *event)`.
        noise: the law of $\varepsilon$; None is the structure's natural one (Gumbel; logistic for bits).
        noise_scale: $\sigma > 0$; apart from the temperature of `rsample`.
        mask: True = allowed, broadcastable to `scores`.

    Examples:
        >>> import torch, argrad as ag
        >>> scores = torch.zeros(4, 6, 6, requires_grad=True)
        >>> q = ag.Perturbed(ag.SpanningTree(), scores)
        >>> z = q.rsample(tau=0.5, hard=True, generator=torch.Generator().manual_seed(0))
        >>> z.shape, bool(ag.SpanningTree().contains(z).all())
        (torch.Size([4, 6, 6]), True)
        >>> (z * torch.randn(6, 6)).sum().backward()

    References: [papandreou2011], [paulus2020].
    """

    has_rsample = True

    def __init__(
        self,
        structure: Structure,
        scores: Float[Tensor, "..."],
        *,
        noise: Noise | None = None,
        noise_scale: float = 1.0,
        mask: Bool[Tensor, "..."] | None = None,
        validate_args: bool | None = None,
    ) -> None:
        super().__init__(structure, scores, mask=mask, validate_args=validate_args)
        if noise is not None and not isinstance(noise, Noise):
            raise fail("Perturbed", "noise", "must be a noise such as `argrad.Gumbel()`", noise, "")
        advice = "For no noise at all use `noise=NoNoise()`."
        check_positive("Perturbed", "noise_scale", noise_scale, advice)
        self.noise = structure.natural_noise if noise is None else noise
        self.noise_scale = noise_scale

    def draw(
        self,
        sample_shape: Shape = (),
        *,
        tau: Tau | None = None,
        regularizer: Regularizer | None = None,
        backward: Backward | None = None,
        generator: Generator = None,
    ) -> Draw:
        """One draw with all its parts, for estimators and for whoever wants to look."""
        perturbed, noise = self._perturb("draw", sample_shape, generator)
        hard = self.structure.argmax(perturbed, mask=self.mask)
        soft = None
        if tau is not None:
            options = {"regularizer": regularizer, "backward": backward, "mask": self.mask}
            soft = self.structure.relax(perturbed, tau, **options)
        return Draw(hard, soft, perturbed, noise)

    def sample(self, sample_shape: Shape = (), *, generator: Generator = None) -> Tensor:
        """Vertices, shape `sample_shape + batch_shape + event_shape`, without gradient."""
        with torch.no_grad():
            return self.draw(sample_shape, generator=generator).hard

    def rsample(
        self,
        sample_shape: Shape = (),
        *,
        tau: Tau = 1.0,
        hard: bool = False,
        regularizer: Regularizer | None = None,
        backward: Backward | None = None,
        generator: Generator = None,
    ) -> Tensor:
        r"""A relaxed sample $z_\tau$, differentiable; the vertex with its gradient if `hard`.

        Args:
            sample_shape: leading dimensions of independent draws.
            tau: temperature of the relaxation.
            hard: return exactly the vertex, with the gradient of the soft point (straight-through).
            regularizer: see `Structure.relax`.
            backward: see `Structure.relax`.
            generator: `torch.Generator`, `CounterRNG`, or None for torch's global generator.
        """
        if self._is_gumbel_softmax and regularizer is None and backward is None:
            shape = check_shape("Perturbed.rsample", "sample_shape", sample_shape)
            scores = self._cleaned.expand(shape + self.scores.shape)
            return gumbel_softmax(scores, tau, hard, generator=generator).to(self.scores.dtype)
        perturbed, _ = self._perturb("rsample", sample_shape, generator)
        options = {"regularizer": regularizer, "backward": backward, "mask": self.mask}
        soft = self.structure.relax(perturbed, tau, **options)
        if not hard:
            return soft
        return straight_through(self.structure.argmax(perturbed, mask=self.mask), soft)

    @property
    def _is_gumbel_softmax(self) -> bool:
        """Whether the default relaxation is the one that has a kernel of its own."""
        kinds = isinstance(self.structure, OneHot) and isinstance(self.noise, Gumbel)
        return kinds and self.noise_scale == 1

    def _perturb(self, call: str, sample_shape: Shape, generator: Generator) -> tuple[Tensor, Tensor]:
        """Scores plus noise, and the noise."""
        random.check_generator(f"Perturbed.{call}", generator)
        shape = check_shape(f"Perturbed.{call}", "sample_shape", sample_shape)
        scores = self.scores.expand(shape + self.scores.shape)
        noise = self.structure.draw_noise(self.noise, scores.detach(), generator)
        dims = self.structure.event_dims
        return self.noise.perturb(scores, noise, self.noise_scale, event_dims=dims), noise

    @property
    def is_gibbs(self) -> bool:
        """Whether perturb-and-argmax is here the Gibbs law of the scores over `noise_scale`."""
        kinds = (OneHot, Gumbel), (OneHot, ExponentialRace), (Bits, Logistic)
        return any(isinstance(self.structure, s) and isinstance(self.noise, n) for s, n in kinds)

    def log_prob(self, value: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """The log-probability of a vertex, where it is known."""
        if not self.is_gibbs:
            raise UnsupportedError(
                f"`Perturbed.log_prob` is not known for {self.structure!r} with {self.noise!r}: it is the "
                "volume of a cone. Use `trace` (the steps of the algorithm have a log-probability), or "
                "`Gibbs`, which is another law with the same scores."
            )
        scaled = self.scores / self.noise_scale
        return self._sum_joined(self.structure.log_prob(value, scaled, mask=self.mask))

    def trace(self, sample_shape: Shape = (), *, generator: Generator = None) -> Trace:
        r"""Draw, with the log-probability of the steps that led to the vertex.

        Known steps: the vertex itself where it has a probability, top-k, Kruskal (Gumbel noise), and
        Chu-Liu-Edmonds (`ExponentialRace`). Otherwise the noise is the trace, through its density.

        Returns:
            `Trace(hard, log_prob, kind)`; `log_prob` has the gradient for the scores.
        """
        perturbed, _ = self._perturb("trace", sample_shape, generator)
        perturbed = widen(masked_scores(perturbed.detach(), self.mask))
        scores = widen(masked_scores(self.scores, self.mask)).expand(perturbed.shape) / self.noise_scale
        check_scores("Perturbed.trace", "scores / noise_scale", scores)
        hard, log_prob, kind = self._steps(scores, perturbed)
        log_prob = log_prob if kind == "vertex" else self._sum_joined(log_prob)
        return Trace(hard.to(self.scores.dtype), log_prob.to(self.scores.dtype), kind)

    def _steps(self, scores: Tensor, perturbed: Tensor) -> tuple[Tensor, Tensor, str]:
        structure = self.structure
        if isinstance(self.noise, ExponentialRace) and isinstance(structure, Arborescence):
            return *edmonds_trace(scores, perturbed, structure), "edmonds"
        hard = structure.argmax(perturbed)
        if self.is_gibbs:
            return hard, self.log_prob(hard), "vertex"
        greedy = isinstance(self.noise, (Gumbel, ExponentialRace))
        if greedy and isinstance(structure, Subset) and not structure.at_most:
            return hard, topk_log_prob(scores, perturbed, structure.k), "top-k"
        if greedy and isinstance(structure, SpanningTree):
            edges = 0.5 * (scores + scores.mT)
            return hard, kruskal_log_prob(edges, 0.5 * (perturbed + perturbed.mT)), "kruskal"
        return hard, self._noise_log_prob(scores, perturbed / self.noise_scale), "noise"

    def _noise_log_prob(self, scores: Tensor, perturbed: Tensor) -> Tensor:
        """The log-density of the perturbed scores, forbidden and unused parts left out."""
        open_ = torch.isfinite(scores)
        gap = torch.where(open_, perturbed, 0.0) - torch.where(open_, scores, 0.0)
        parts = self.structure._noise_parts(torch.where(open_, self.noise.log_prob(gap), 0.0))
        return parts.flatten(-self.structure.event_dims).sum(-1)

    def entropy(self) -> Tensor:
        """The entropy, where the log-probability is known."""
        if not self.is_gibbs:
            raise UnsupportedError(
                f"`Perturbed.entropy` is not known for {self.structure!r} with {self.noise!r}. "
                "Use `noise_kl` (the divergence before choosing bounds the one after), or `Gibbs`."
            )
        return self._sum_joined(self.structure.entropy(self.scores / self.noise_scale, mask=self.mask))

    def noise_kl(self, other: Perturbed | None = None) -> Tensor:
        r"""$\mathrm{KL}(\theta + \sigma\varepsilon \,\|\, \theta' + \sigma\varepsilon)$, before choosing.

        An upper bound of the divergence between the two laws of $z$ (data processing): the KL term of a
        variational bound with a structured latent variable. `other` None means scores of 0. Forbidden
        parts do not count; undirected edges count once.

        Returns:
            Shape of the batch.
        """
        theta = torch.zeros_like(self.scores) if other is None else other.scores
        if other is not None and (other.noise, other.noise_scale) != (self.noise, self.noise_scale):
            raise InputError(
                "`Perturbed.noise_kl(other=...)` must have the same noise and scale; got "
                f"{self.noise!r} * {self.noise_scale} and {other.noise!r} * {other.noise_scale}."
            )
        finite = torch.isfinite(self.scores) & torch.isfinite(theta)
        if self.mask is not None:
            finite = finite & self.mask
        finite = finite & (self.structure._noise_parts(torch.ones_like(theta)) > 0)
        shift = torch.where(finite, self.scores, 0.0) - torch.where(finite, theta, 0.0)
        parts = self.noise.kl(shift / self.noise_scale)
        return self._sum_joined(
            torch.where(finite, parts, 0.0).flatten(-self.structure.event_dims).sum(-1)
        )
